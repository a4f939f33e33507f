"""Real processes that fork, lose their parents and do not listen to SIGTERM are ended, and no others."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from support.unprivileged import unprivileged

from stoploss.actions.contract import Means, Refused
from stoploss.actions.targets import process_tree
from stoploss.actions.targets.processes import End, EndOne, Release
from stoploss.engine.model import Found, Order, Outcome, ResourceId

HEAD = """
import os, signal, subprocess, sys, time
def say(*words):
    print(*words, flush=True)
def child(code, **environment):
    return subprocess.Popen([sys.executable, "-IS", "-c", code], env=environment, stdout=subprocess.DEVNULL)
SLEEP = "import time; time.sleep(60)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
"""

SLEEPER = "say('ready'); time.sleep(60)"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); say('ready'); time.sleep(60)"
FAMILY = "say(child(SLEEP).pid, child(SLEEP, STOPLOSS_JOB=os.environ['STOPLOSS_JOB']).pid); time.sleep(60)"

# When it is asked to end, it starts one that has no parent any more and does not listen.
DOUBLE_FORK = """
def late(*_):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.execve(sys.executable, [sys.executable, "-IS", "-c", DEAF], os.environ)
        os._exit(0)
    os.wait()
    os._exit(0)
signal.signal(signal.SIGTERM, late)
say("ready")
time.sleep(60)
"""

Start = Callable[..., subprocess.Popen[str]]


def means(**more: object) -> Means:
    """The clocks of this machine, which is called n1."""
    return Means("n1", time.time, time.monotonic, time.sleep, {}, **more)  # type: ignore[arg-type]


@pytest.fixture
def job() -> str:
    """A name that no other test beside this one uses."""
    return f"job-{uuid4().hex[:8]}"


@pytest.fixture
def start(job: str) -> Iterator[Start]:
    """Starts programs of the job, reads their first line, and ends all of it in the end."""
    begun: list[subprocess.Popen[str]] = []

    def begin(code: str, **environment: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-IS", "-c", HEAD + code],
            stdout=subprocess.PIPE,
            text=True,
            env=environment or {"STOPLOSS_JOB": job},
            start_new_session=True,
        )
        begun.append(child)
        return child

    yield begin
    for child in begun:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    for seen in process_tree.look().members(job):
        with suppress(ProcessLookupError):
            os.kill(seen.pid, signal.SIGKILL)


def line(child: subprocess.Popen[str]) -> str:
    """What it says first."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def order(job: str, action: str = "terminate", **parameters: object) -> Order:
    """An order on a job."""
    return Order("o1", action, ResourceId("job", job), {"grace": 5.0, **parameters})


def lives(pid: int) -> bool:
    """Whether a process lives; one that only waits for its parent does not."""
    return process_tree.see(pid) is not None


def name_of(pid: int) -> str:
    """A process as the collector names it."""
    seen = process_tree.see(pid)
    assert seen is not None
    return f"n1/{pid}@{seen.start}"


def test_the_processes_of_a_slurm_job_are_told_by_its_id(start: Start, job: str) -> None:
    """Also those of one task of an array, which is named by the array; not those of another job."""
    number = 10 * int(job.removeprefix("job-"), 16)
    array = {"SLURM_JOB_ID": f"{number + 2}", "SLURM_ARRAY_JOB_ID": f"{number}", "SLURM_ARRAY_TASK_ID": "2"}
    plain = start(SLEEPER, SLURM_JOB_ID=f"{number + 1}", STOPLOSS_JOB=job)
    task = start(SLEEPER, **array, STOPLOSS_JOB=job)
    assert [line(plain), line(task)] == ["ready", "ready"]
    tree = process_tree.look()

    assert [seen.pid for seen in tree.of_slurm(f"{number + 1}")] == [plain.pid]
    assert [seen.pid for seen in tree.of_slurm(f"{number}_2")] == [task.pid]
    assert tree.of_slurm(f"{number + 2}") == ()


def test_a_job_ends_with_all_that_it_started(start: Start, job: str) -> None:
    """The leader, a child with the job's name and one that lost it end by SIGTERM, well within the grace."""
    leader = start(FAMILY)
    pids = [leader.pid, *map(int, line(leader).split())]
    ending = End(means())
    found = ending.find(order(job))
    begun = time.monotonic()
    outcome = ending.act(order(job), found)

    assert found.words.startswith(f"would end process {leader.pid} (")
    assert found.words.endswith(") and 2 more")
    assert sorted(pid for pid, _, _ in found.before["processes"]) == sorted(pids)
    assert found.before["processes"][0][0] == leader.pid
    assert json.loads(json.dumps(found.before)) == found.before
    assert not found.undoable
    assert (outcome.state, outcome.after) == ("done", {"ended": 3, "killed": 0})
    assert [lives(pid) for pid in pids] == [False] * 3
    assert time.monotonic() - begun < 4


def test_finding_and_looking_change_nothing(start: Start, job: str) -> None:
    """After `find` and `look` every process still lives, and the job is told as it was found."""
    leader = start(FAMILY)
    pids = [leader.pid, *map(int, line(leader).split())]
    ending = End(means())
    found = ending.find(order(job))

    assert ending.look(order(job), found).state == "undone"
    assert [lives(pid) for pid in pids] == [True] * 3
    assert ending.find(order(job)) == found


def test_one_that_does_not_listen_is_killed_after_its_grace(start: Start, job: str) -> None:
    """SIGKILL ends what SIGTERM did not, and no sooner than after the grace."""
    leader = start(DEAF)
    line(leader)
    begun = time.monotonic()
    ending = End(means())
    outcome = ending.act(order(job, grace=0.5), ending.find(order(job)))

    assert (outcome.state, outcome.after) == ("done", {"ended": 1, "killed": 1})
    assert "SIGKILL" in outcome.words
    assert time.monotonic() - begun >= 0.5
    assert leader.wait(1) == -signal.SIGKILL


def test_what_comes_while_it_is_asked_to_end_is_ended_too(start: Start, job: str) -> None:
    """A process that the job starts in its last moment, without a parent and deaf, does not outlive it."""
    leader = start(DOUBLE_FORK)
    line(leader)
    ending = End(means())
    outcome = ending.act(order(job, grace=1.0), ending.find(order(job)))

    assert (outcome.state, outcome.after["killed"]) == ("done", 1)
    assert process_tree.look().members(job) == ()


def test_a_stopped_process_ends_at_once(start: Start, job: str) -> None:
    """A process that is stopped is let go on, so that it can end in order."""
    leader = start("signal.signal(signal.SIGTERM, lambda *_: os._exit(7)); say('ready'); time.sleep(60)")
    line(leader)
    leader.send_signal(signal.SIGSTOP)
    ending = End(means())
    outcome = ending.act(order(job), ending.find(order(job)))

    assert (outcome.state, leader.wait(1)) == ("done", 7)


def test_another_process_of_the_same_id_is_not_touched(start: Start, job: str) -> None:
    """Where the start of a process differs from what was found, no signal is sent."""
    leader = start(SLEEPER)
    line(leader)
    ending = End(means())
    found = ending.find(order(job))
    [[pid, began, comm]] = found.before["processes"]
    reused = Found(found.words, {**found.before, "processes": [[pid, began - 1, comm]]})

    assert ending.act(order(job), reused).state == "skipped"
    assert ending.look(order(job), reused).state == "done"
    assert lives(leader.pid)


def test_another_boot_is_another_machine(start: Start, job: str) -> None:
    """After the machine was started anew the same id and start mean another process."""
    leader = start(SLEEPER)
    line(leader)
    ending = End(means())
    found = ending.find(order(job))
    rebooted = Found(found.words, {**found.before, "boot": "another"})

    assert ending.act(order(job), rebooted).state == ending.look(order(job), rebooted).state == "skipped"
    assert lives(leader.pid)


def test_a_job_started_anew_by_somebody_is_left_alone(start: Start, job: str) -> None:
    """A run of the same name that began after the order is told of and lives on."""
    first = start(SLEEPER)
    line(first)
    ending = End(means())
    found = ending.find(order(job))
    second = start(SLEEPER)
    line(second)
    outcome = ending.act(order(job), found)

    assert outcome.state == "done"
    assert "1 of this name that came meanwhile is left alone" in outcome.words
    assert (lives(first.pid), lives(second.pid)) == (False, True)


def test_another_job_that_it_started_is_left_alone(start: Start, job: str) -> None:
    """What the job started under another name is another job, and lives on; STOPLOSS_JOB goes before W&B."""
    trial = f"{job}-trial"
    code = f"say(child(SLEEP, STOPLOSS_JOB='{trial}', WANDB_RUN_ID='{job}').pid); time.sleep(60)"
    leader = start(code)
    other = int(line(leader))
    ending = End(means())
    outcome = ending.act(order(job), ending.find(order(job)))
    alive = lives(other)
    ending.act(order(trial), ending.find(order(trial)))

    assert (outcome.state, lives(leader.pid), alive) == ("done", False, True)


def test_a_job_is_told_from_the_first_instant_of_its_program(start: Start, job: str) -> None:
    """A program that is being started has no environment for a moment: it is waited for, not misjudged.

    It would be taken for what started it, or for nobody's, and be ended with another or outlive its own.
    """
    for number in range(40):
        seen = process_tree.see(start("time.sleep(60)", STOPLOSS_JOB=f"{job}-{number}").pid)
        assert seen is not None
        assert seen.variables == {"STOPLOSS_JOB": f"{job}-{number}"}


@pytest.mark.parametrize("environment", [{}, {"OTHER": "1"}])
def test_a_process_without_a_job_is_not_waited_for(environment: dict[str, str]) -> None:
    """One whose environment is empty, or names no job, is told at once to have none."""
    code = "import time; print(flush=True); time.sleep(60)"
    command = [sys.executable, "-IS", "-c", code]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        line(child)
        begun = time.monotonic()
        seen = process_tree.see(child.pid)
        took = time.monotonic() - begun
        child.kill()

    assert seen is not None
    assert seen.variables == {}
    assert took < 0.4


def test_a_job_of_wandb_is_found_by_its_run(start: Start, job: str) -> None:
    """Where nothing else names the job, WANDB_RUN_ID does."""
    leader = start(SLEEPER, WANDB_RUN_ID=job)
    line(leader)
    [[pid, _, _]] = End(means()).find(order(job)).before["processes"]

    assert pid == leader.pid


@pytest.mark.parametrize(
    ("variable", "value", "controller"),
    [("SLURM_JOB_ID", "4412", "Slurm job 4412"), ("KUBERNETES_SERVICE_HOST", "10.0.0.1", "a Kubernetes pod")],
)
def test_what_a_scheduler_runs_is_refused(
    start: Start, job: str, variable: str, value: str, controller: str
) -> None:
    """A process of a Slurm job or a pod is ended through it, alone and as part of a job."""
    leader = start(SLEEPER, STOPLOSS_JOB=job, **{variable: value})
    line(leader)

    with pytest.raises(Refused, match=controller):
        End(means()).find(order(job))
    one = Order("o1", "terminate", ResourceId("process", name_of(leader.pid)))
    with pytest.raises(Refused, match=controller):
        EndOne(means()).find(one)
    assert lives(leader.pid)


def test_a_job_that_is_not_there_is_gone(job: str) -> None:
    """No process of that name is told as gone where every environment can be read."""
    with pytest.raises(Refused, match=job) as refused:
        End(means()).find(order(job))

    assert refused.value.gone or process_tree.look().hidden


def test_where_others_hide_nothing_is_told_as_gone(job: str) -> None:
    """A user who cannot look into the processes of others is refused, without a word that it is gone."""
    with unprivileged(), pytest.raises(Refused, match="hide their environment") as refused:
        End(means()).find(order(job))

    assert not refused.value.gone


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_one_that_may_not_be_signalled_is_a_failure(start: Start, job: str) -> None:
    """Where this user may not end a process, the outcome says so and that it lives."""
    leader = start(f"os.setuid(1); {SLEEPER}")
    line(leader)
    ending = End(means())
    found = ending.find(order(job))
    with unprivileged():
        # Its ten seconds after SIGKILL need not pass.
        clock = iter(range(0, 1000, 4))
        ending = End(Means("n1", time.time, lambda: float(next(clock)), time.sleep, {}))
        outcome = ending.act(order(job, grace=0.1), found)

    assert (outcome.state, outcome.retry) == ("failed", True)
    assert "may not be signalled by this user" in outcome.words
    assert lives(leader.pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_name_of_two_users_is_refused(start: Start, job: str) -> None:
    """Two users that named their jobs alike are not told apart, and neither is ended."""
    mine, theirs = start(SLEEPER), start(f"os.setuid(65534); {SLEEPER}")
    line(mine), line(theirs)

    with pytest.raises(Refused, match="two users"):
        End(means()).find(order(job))
    assert lives(mine.pid)
    assert lives(theirs.pid)


def test_stoploss_never_ends_itself(start: Start, job: str) -> None:
    """Where stoploss runs within the job, as its child, the order is refused."""
    code = (
        "import time\n"
        "from stoploss.actions.contract import Means, Refused\n"
        "from stoploss.actions.targets.processes import End\n"
        "from stoploss.engine.model import Order, ResourceId\n"
        "try:\n"
        "    End(Means('n1', time.time, time.monotonic, time.sleep, {})).find(\n"
        f"        Order('o', 'terminate', ResourceId('job', '{job}')))\n"
        "except Refused as refused:\n"
        "    print(refused.words)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"STOPLOSS_JOB": job},
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )

    assert "is stoploss itself" in done.stdout


@pytest.mark.parametrize("stops_at", range(1, 7))
def test_after_a_crash_it_is_looked_at_and_done_again(start: Start, job: str, stops_at: int) -> None:
    """Wherever `act` was interrupted, `look` tells what lives, and the same order ends the rest."""
    leader = start(FAMILY.replace("child(SLEEP)", "child(DEAF)"))
    pids = [leader.pid, *map(int, line(leader).split())]
    time.sleep(0.1)
    asked = 0

    def clock() -> float:
        nonlocal asked
        asked += 1
        if asked == stops_at:
            raise KeyboardInterrupt
        return time.monotonic()

    broken = End(Means("n1", time.time, clock, time.sleep, {}))
    found = broken.find(order(job))
    with suppress(KeyboardInterrupt):
        broken.act(order(job, grace=0.3), found)
    told = End(means()).look(order(job), found)
    again = End(means()).act(order(job, grace=0.3), found)

    left = told.state
    assert left in ("undone", "failed", "done")
    assert again.state == ("skipped" if left == "done" else "done")
    assert [lives(pid) for pid in pids] == [False] * 3
    assert End(means()).look(order(job), found).state == "done"


def test_one_process_ends_with_what_it_started_and_nothing_else(start: Start, job: str) -> None:
    """Of a job's processes only the one that is named ends, with its children."""
    first, second = start(FAMILY), start(SLEEPER)
    children = [int(pid) for pid in line(first).split()]
    line(second)
    ending = EndOne(means())
    one = Order("o1", "terminate", ResourceId("process", name_of(first.pid)), {"grace": 5.0})
    outcome = ending.act(one, ending.find(one))

    assert (outcome.state, outcome.after["ended"]) == ("done", 3)
    assert [lives(pid) for pid in (first.pid, *children, second.pid)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("name", "reason", "gone"),
    [
        ("n2/{pid}@{start}", "is on n2", False),
        ("n1/{pid}@1", "has ended", True),
        ("{pid}", "no name of a process", False),
        ("n1/1@{first}", "is stoploss itself", False),
    ],
)
def test_a_process_that_is_not_meant_is_refused(start: Start, name: str, reason: str, gone: bool) -> None:
    """Another host, another start, an unreadable name and process 1 are refused."""
    child = start(SLEEPER)
    line(child)
    seen, first = process_tree.see(child.pid), process_tree.see(1)
    assert seen is not None
    assert first is not None
    name = name.format(pid=child.pid, start=seen.start, first=first.start)

    with pytest.raises(Refused, match=reason) as refused:
        EndOne(means()).find(Order("o1", "terminate", ResourceId("process", name)))
    assert refused.value.gone is gone


def test_what_is_left_of_a_job_releases_its_gpus(start: Start, job: str, tmp_path: Path) -> None:
    """A child that outlived its leader is ended, and the GPU files that it holds are told beforehand."""
    (tmp_path / "gpu0").touch()
    leader = start(
        f"gpu = open('{tmp_path}/gpu0'); os.set_inheritable(gpu.fileno(), True)\n"
        "command = [sys.executable, '-IS', '-c', DEAF]\n"
        "left = subprocess.Popen(command, close_fds=False, stdout=subprocess.DEVNULL)\n"
        "say(left.pid)"
    )
    left = int(line(leader))
    leader.wait(5)
    time.sleep(0.1)
    given = means(collectors={"process": {"devices": (f"{tmp_path}/gpu*",)}})
    releasing = Release(given)
    release = order(job, "release", what="allocation", grace=0.2)
    found = releasing.find(release)
    outcome = releasing.act(release, found)

    assert found.words.startswith(f"would release 1 GPU held by process {left} ")
    assert (outcome.state, lives(left)) == ("done", False)


def test_a_job_without_gpus_releases_nothing(start: Start, job: str, tmp_path: Path) -> None:
    """Processes that hold no GPU are left alone by a release, and so is a job asked for something else."""
    child = start(SLEEPER)
    line(child)
    given = means(collectors={"process": {"devices": (f"{tmp_path}/gpu*",)}})

    with pytest.raises(Refused, match="hold no GPU"):
        Release(given).find(order(job, "release"))
    with pytest.raises(Refused, match="volume"):
        Release(given).find(order(job, "release", what="volume"))
    assert lives(child.pid)


def test_what_has_ended_cannot_be_undone(start: Start, job: str) -> None:
    """An undo says so and does nothing."""
    child = start(SLEEPER)
    line(child)
    ending = End(means())
    found = ending.find(order(job))

    assert ending.undo(order(job), copy.deepcopy(found)) == Outcome(
        "failed", "what has ended cannot be brought back"
    )
    assert lives(child.pid)
