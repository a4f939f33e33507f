"""What is remembered of jobs, over processes typed in."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from support.fake_driver import LOST, MISMATCH, driver, gpu, scenario

from stoploss.collectors.contract import CollectorError
from stoploss.collectors.process import parse_kills
from stoploss.collectors.process_gpus import DENIED, Driver, Listed, memory
from stoploss.collectors.process_jobs import Jobs, Member
from stoploss.engine.model import Bad, Reading

G0, G1 = "/dev/nvidia0", "/dev/nvidia1"
DAY = 86400.0


def member(pid: int, *parents: int, began: float = 0.0, **known: object) -> Member:
    """A process of a job, started at `began` seconds."""
    facts: dict[str, object] = {
        "open_devices": frozenset(),
        "listed": frozenset(),
        "labels": {"team": "vision"},
        "read": 0.0,
        "stopped": False,
    }
    return Member((pid, int(began * 100)), parents, began, **{**facts, **known})  # type: ignore[arg-type]


def look(jobs: Jobs, at: float, *members: Member) -> dict[str, Reading]:
    """Signal -> reading of the job j at one look."""
    return {sample.signal: sample.reading for sample in jobs.look(at, {"j": members} if members else {})}


def test_a_job_has_ended_when_only_what_it_started_is_left() -> None:
    """A child that outlives its parent holds GPUs of a job that has ended; the time since is counted."""
    jobs = Jobs(DAY)
    held = {"open_devices": frozenset({G0, G1})}
    first = look(jobs, 60, member(5, 1, **held), member(6, 5, 1, **held))
    second = look(jobs, 120, member(6, 1, **held))
    third = look(jobs, 180, member(6, 1, **held))

    assert (first["job.state"], first["job.since_end"], first["job.runtime"]) == ("running", 0.0, 60.0)
    assert (second["job.state"], second["job.gpus_held"], second["job.since_end"]) == ("ended", 2.0, 0.0)
    assert (third["job.since_end"], third["job.runtime"]) == (60.0, 120.0)


def test_of_several_ranks_each_keeps_the_job_running() -> None:
    """The end of the oldest rank does not end a job whose other ranks were started beside it."""
    jobs = Jobs(DAY)
    look(jobs, 60, member(5, 1), member(6, 1, began=1))

    assert look(jobs, 120, member(6, 1, began=1))["job.state"] == "running"


def test_a_process_that_comes_later_begins_the_job_anew() -> None:
    """After its end a job runs again once a process appears that nothing of it started."""
    jobs = Jobs(DAY)
    look(jobs, 60, member(5, 1), member(6, 5, 1))
    look(jobs, 120, member(6, 1))
    again = look(jobs, 180, member(6, 1), member(9, 1, began=150))

    assert (again["job.state"], again["job.runtime"], again["job.since_end"]) == ("running", 30.0, 0.0)


def test_an_id_that_is_used_again_is_another_process() -> None:
    """A leftover child whose id a later start carries leads the job; it is not the old child."""
    jobs = Jobs(DAY)
    look(jobs, 60, member(5, 1), member(6, 5, 1))

    assert look(jobs, 120, member(6, 1, began=100))["job.state"] == "running"


def test_a_job_is_suspended_while_all_of_it_is_stopped() -> None:
    """One process that goes on keeps the job running."""
    jobs = Jobs(DAY)

    assert look(jobs, 60, member(5, 1, stopped=True), member(6, 5, 1))["job.state"] == "running"
    stopped = look(jobs, 120, member(5, 1, stopped=True), member(6, 5, 1, stopped=True))
    assert (stopped["job.state"], stopped["job.since_end"]) == ("suspended", 0.0)


def test_a_job_is_shown_until_it_is_forgotten() -> None:
    """An ended job without processes stays for `forget`, then is said to be gone once, then is not said."""
    jobs = Jobs(3600)
    look(jobs, 0, member(5, 1))

    assert look(jobs, 3600)["job.state"] == "ended"
    assert look(jobs, 3660) == {"resource.present": 0.0}
    assert look(jobs, 3720) == {}


def test_a_job_that_holds_on_is_not_forgotten() -> None:
    """However long ago a job ended, it is shown while a process of it lives."""
    jobs = Jobs(3600)
    look(jobs, 0, member(5, 1), member(6, 5, 1))
    look(jobs, 60, member(6, 1))

    assert look(jobs, 10 * DAY, member(6, 1))["job.since_end"] == 10 * DAY - 60


def test_what_processes_read_is_added_up() -> None:
    """Bytes read stay when the process that read them is gone, and one that is denied hides the sum."""
    jobs = Jobs(DAY)
    first = look(jobs, 0, member(5, 1, read=100.0), member(6, 5, 1, read=10.0))
    second = look(jobs, 60, member(5, 1, read=150.0))
    third = look(jobs, 120, member(5, 1, read=Bad("permission denied")))

    assert [item["data.bytes_read"] for item in (first, second, third)] == [
        110.0,
        160.0,
        Bad("permission denied"),
    ]


def test_the_drivers_list_goes_before_open_files() -> None:
    """A job holds the GPUs that the driver lists for it, not all those that a library opened."""
    jobs = Jobs(DAY)
    both = frozenset({G0, G1})
    listed = member(5, 1, open_devices=both, listed=frozenset({G1}))

    assert look(jobs, 0, listed, member(6, 5, 1, open_devices=both))["job.gpus_held"] == 1.0
    assert look(jobs, 60, member(6, 1, open_devices=both))["job.gpus_held"] == 2.0


def test_open_files_that_are_denied_are_not_none() -> None:
    """Where one process cannot be looked into, how many GPUs the job holds is a bad reading."""
    found = look(
        Jobs(DAY), 0, member(5, 1, open_devices=frozenset({G0})), member(6, 5, 1, open_devices=DENIED)
    )

    assert found["job.gpus_held"] == DENIED


@pytest.mark.parametrize(
    ("open_devices", "listed", "complete", "reading"),
    [
        (frozenset({G0}), {5: {G0: 7, G1: 3}}, True, 10.0),
        (frozenset({G0}), {5: {G0: 7, G1: None}}, True, Bad("the driver does not tell")),
        (frozenset({G0}), {6: {G0: 7}}, True, 0.0),
        (frozenset({G0}), {6: {G0: 7}}, False, Bad("device files do not tell how much")),
        (frozenset({G0}), {}, True, Bad("device files do not tell how much")),
        (frozenset({G0}), Bad("timeout"), False, Bad("timeout")),
        (frozenset(), {}, True, 0.0),
        (DENIED, {}, True, DENIED),
    ],
)
def test_gpu_memory_is_told_by_the_driver(
    open_devices: frozenset[str] | Bad, listed: Listed | Bad, complete: bool, reading: Reading
) -> None:
    """GPU memory is the driver's figure, zero only where it must be, else a bad reading."""
    assert memory(5, open_devices, listed, complete=complete) == reading


def test_a_driver_that_fails_or_hangs_costs_only_its_list() -> None:
    """A driver's failure is its reason, and one that hangs is neither waited for nor asked again."""
    asked = []

    def broken() -> Listed:
        raise CollectorError("driver/library version mismatch")

    def hanging() -> Listed:
        asked.append(1)
        time.sleep(1)
        return {}

    assert Driver(broken).listed() == Bad("driver/library version mismatch")
    driver = Driver(hanging, time_limit=0.01)
    assert [driver.listed(), driver.listed()] == [Bad("the GPU driver does not answer")] * 2
    assert len(asked) == 1


@pytest.mark.real
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            scenario(gpu(0, minor=3, processes="7:100 8"), gpu(1, minor=1, processes="7:5")),
            "{7: {'/dev/nvidia3': 100, '/dev/nvidia1': 5}, 8: {'/dev/nvidia3': None}}",
        ),
        (
            scenario(gpu(0, minor=0, processes=LOST), gpu(1, minor=1, processes="7:5")),
            "{7: {'/dev/nvidia1': 5}}",
        ),
        (scenario(init=MISMATCH), "CollectorError"),
    ],
)
def test_the_driver_lists_processes_by_device_file(text: str, told: str) -> None:
    """The real pynvml over a driver gives the processes of each GPU; one that fails costs only itself."""
    code = (
        "from stoploss.collectors.contract import CollectorError\n"
        "from stoploss.collectors.process_gpus import listed_by_nvml\n"
        "try:\n    print(listed_by_nvml())\n"
        "except CollectorError as error:\n    print(type(error).__name__)"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True, env=driver().environment(text))

    assert out == told + "\n"


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("low 0\nhigh 0\nmax 4\noom 2\noom_kill 2\noom_group_kill 0\n", 2.0),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", 1.0),
        ("oom_kill_disable 0\nunder_oom 0\n", Bad("the control group counts no OOM kills")),
        ("oom_ki", Bad("the control group counts no OOM kills")),
    ],
)
def test_kills_are_counted_by_the_control_group(text: str, reading: Reading) -> None:
    """OOM kills are read from either version's file; a kernel that counts none is a bad reading."""
    assert parse_kills(text) == reading
