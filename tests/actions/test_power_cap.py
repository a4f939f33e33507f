"""Power limits are lowered and put back in a child process that finds the fake driver."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import fake_driver
from support.fake_driver import NO_PERMISSION, NOT_SUPPORTED, gpu, idle, scenario, split

Calls = list[dict[str, Any]]


def cap(
    text: str | None,
    *calls: str,
    target: str = "CapGpu",
    found: object = None,
    watts: object = 300.0,
    **order: Any,
) -> Calls:
    """What calls about `n1/gpu0`, or the job bert, gave back."""
    resource = ("gpu", "n1/gpu0") if target == "CapGpu" else ("job", "bert")
    given = {
        "id": "o1",
        "action": "downscale",
        "resource": resource,
        "parameters": {"power-cap": watts},
        "labels": {"host": "n1", "uuid": "GPU-0"},
    }
    request = {"scenario": text, "target": target, "calls": calls, "order": given | order, "found": found}
    return fake_driver.driver().cap(request | {"limit": 30.0})


def written() -> list[str]:
    """The limits that were set since the last question."""
    path = fake_driver.driver().writes
    lines = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


@pytest.fixture(autouse=True)
def _no_writes() -> None:
    written()


@pytest.fixture
def worker() -> Iterator[Callable[..., int]]:
    """Starts processes with variables; gives their ids."""
    children: list[subprocess.Popen[bytes]] = []

    def start(**variables: str) -> int:
        command = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        child = subprocess.Popen(command, env={"PATH": os.environ["PATH"], **variables}, **pipes)
        children.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child.pid

    yield start
    for child in children:
        child.communicate()


def test_a_limit_is_lowered_and_put_back() -> None:
    """A cap is set, read back, and an undo restores the limit that it remembers."""
    found, done, undone = cap(scenario(gpu()), "find", "act", "undo")

    assert found["words"] == "would cap GPU-0 from 700 W to 300 W"
    assert found["before"] == {"cap_w": 300.0, "gpus": [{"uuid": "GPU-0", "limit_w": 700.0, "users": []}]}
    assert found["undoable"]
    assert (done["state"], done["after"]) == ("done", {"limits_w": {"GPU-0": 300.0}})
    assert (undone["state"], undone["after"]) == ("done", {"limits_w": {"GPU-0": 700.0}})
    assert written() == ["gpu0.300000", "gpu0.700000"]


def test_find_and_look_change_nothing() -> None:
    """Looking before and after sets nothing."""
    _, seen = cap(scenario(gpu()), "find", "look")

    assert seen["state"] == "undone"
    assert written() == []


def test_the_uuid_counts_not_the_place() -> None:
    """A GPU whose number shifted is found by its UUID."""
    _, done = cap(scenario(gpu(7), gpu(0)), "find", "act")

    assert done["state"] == "done"
    assert written() == ["gpu1.300000"]


@pytest.mark.parametrize(
    ("text", "changes", "words"),
    [
        (scenario(gpu()), {"watts": 100.0}, "GPU-0 cannot be capped to 100 W: its least is 200 W"),
        (scenario(gpu()), {"watts": 700.0}, "GPU-0 is limited to 700 W; 700 W is no less"),
        (scenario(gpu(power_limit=250000)), {}, "GPU-0 is limited to 250 W; 300 W is no less"),
        (scenario(gpu()), {"watts": None}, "power-cap says no power"),
        (scenario(split()), {}, "GPU-0 is split into MIG slices, whose users share its power"),
        (
            scenario(split()),
            {"resource": ("gpu", "n1/gpu0/mig1"), "labels": {"host": "n1", "uuid": "MIG-1"}},
            "gpu n1/gpu0/mig1 is a MIG slice, which has no power limit of its own",
        ),
        (scenario(gpu(power_least=NOT_SUPPORTED)), {}, "this GPU has no power limit that can be set"),
        (scenario(gpu(3)), {}, "the driver lists no GPU GPU-0"),
        (
            scenario(),
            {"labels": {"host": "n2", "uuid": "GPU-0"}},
            "gpu n1/gpu0 is not a GPU of this machine, n1",
        ),
        (scenario(init="!12"), {}, "the driver refuses: nvml shared library not found"),
    ],
)
def test_what_is_no_cap_is_refused(text: str, changes: dict[str, Any], words: str) -> None:
    """A limit that is too low, none, or not this GPU's own is refused, and nothing is set."""
    (refused,) = cap(text, "find", "act", **changes)

    assert refused["refused"] == words
    assert refused["gone"] == ("lists no GPU" in words)
    assert written() == []


def test_without_rights_it_fails_in_words() -> None:
    """A driver that does not let this account set limits is a failure that says what is needed."""
    _, failed, seen = cap(scenario(gpu(power_set=NO_PERMISSION)), "find", "act", "look")

    assert (failed["state"], failed["words"]) == ("failed", "setting a power limit needs root")
    assert seen["state"] == "undone"


def test_a_limit_that_is_not_kept_is_not_done() -> None:
    """What the driver takes without effect is a failure."""
    _, failed = cap(scenario(gpu(power_set="ignored")), "find", "act")

    assert (failed["state"], failed["words"]) == ("failed", "the driver took the limit and did not keep it")


def test_nothing_is_set_twice_after_a_crash() -> None:
    """After a crash behind the one call a look finds it done, and acting again sets nothing."""
    found, _, seen, again = cap(scenario(gpu()), "find", "act", "look", "act")

    assert (seen["state"], again["state"]) == ("done", "done")
    assert written() == ["gpu0.300000"]
    assert cap(None, "undo", "undo", "look", found=found)[1]["state"] == "done"
    assert written() == ["gpu0.700000"]


def test_what_somebody_else_set_is_left_alone() -> None:
    """A limit that changed since it was found, or since the cap, is not touched."""
    (found,) = cap(scenario(gpu()), "find")
    changed = scenario(gpu(power_limit=500000))
    states = [cap(changed, call, found=found)[0]["state"] for call in ("act", "look", "undo")]

    assert states == ["skipped", "skipped", "skipped"]
    assert written() == []


def test_a_gpu_that_vanished_is_skipped() -> None:
    """A GPU that the driver does not list any more has nothing to lower."""
    (found,) = cap(scenario(gpu()), "find")
    states = [cap(scenario(gpu(3)), call, found=found)[0]["state"] for call in ("act", "look", "undo")]

    assert states == ["skipped", "skipped", "skipped"]


def test_all_gpus_of_a_job(worker: Callable[..., int]) -> None:
    """A job is known by its processes on the GPUs of this machine; other GPUs keep their limit."""
    one, two, other = worker(STOPLOSS_JOB="bert"), worker(WANDB_RUN_ID="bert"), worker(SLURM_JOB_ID="7")
    gpus = [
        gpu(0, processes=f"{one}:1"),
        gpu(1, processes=f"{two}:1"),
        gpu(2, processes=f"{other}:1"),
        idle(3),
    ]
    found, done, undone = cap(scenario(*gpus), "find", "act", "undo", target="CapJob")

    assert found["words"] == "would cap GPU-0 from 700 W, GPU-1 from 700 W to 300 W"
    assert [done["words"], undone["words"]] == ["2 GPUs are capped to 300 W", "2 GPUs are limited as before"]
    assert written() == ["gpu0.300000", "gpu1.300000", "gpu0.700000", "gpu1.700000"]


def test_a_task_of_an_array_is_known_by_both_numbers(worker: Callable[..., int]) -> None:
    """A task of a Slurm job array has the name that the scheduler writes."""
    pid = worker(SLURM_JOB_ID="99", SLURM_ARRAY_JOB_ID="44", SLURM_ARRAY_TASK_ID="7")
    text = scenario(gpu(processes=f"{pid}:1"))
    (found,) = cap(text, "find", target="CapJob", resource=("job", "44_7"))
    (refused,) = cap(text, "find", target="CapJob", resource=("job", "99"))

    assert found["before"]["gpus"][0]["users"][0][0] == pid
    assert refused["refused"] == "no process of job 99 is seen on a GPU of this machine, n1"


def test_a_shared_gpu_is_not_capped(worker: Callable[..., int]) -> None:
    """Where another job, or one that cannot be seen, computes on the same GPU, the order is refused."""
    own, other = worker(STOPLOSS_JOB="bert"), worker(STOPLOSS_JOB="gpt")
    for beside in (other, 4194305):
        (refused,) = cap(scenario(gpu(processes=f"{own}:1 {beside}:1")), "find", target="CapJob")

        assert refused["refused"].endswith(f"process {beside} is of another, or hidden")


def test_a_job_that_left_is_skipped(worker: Callable[..., int]) -> None:
    """A GPU whose processes have ended since is not capped for whoever has it next."""
    pid = worker(STOPLOSS_JOB="bert")
    (found,) = cap(scenario(gpu(processes=f"{pid}:1")), "find", target="CapJob")
    found["before"]["gpus"][0]["users"] = [[pid, 1]]
    (skipped,) = cap(None, "act", target="CapJob", found=found)

    assert (skipped["state"], skipped["words"]) == ("skipped", "the job has left GPU-0")
    assert written() == []


def test_a_crash_between_two_gpus(worker: Callable[..., int]) -> None:
    """Where one of two was capped a look says so, and acting again caps only the other."""
    pid = worker(STOPLOSS_JOB="bert")
    both = [gpu(number, processes=f"{pid}:1") for number in (0, 1)]
    (found,) = cap(scenario(*both), "find", target="CapJob")
    half = scenario(gpu(0, processes=f"{pid}:1", power_limit=300000), both[1])
    seen, done = cap(half, "look", "act", target="CapJob", found=found)

    assert (seen["state"], seen["words"], seen["retry"]) == ("failed", "1 of 2 GPUs are capped", True)
    assert done["state"] == "done"
    assert written() == ["gpu1.300000"]


def test_a_driver_that_hangs_is_not_waited_for() -> None:
    """A driver without an answer is a refusal before, unknown afterwards, and nothing is set later on."""
    driver = fake_driver.driver()
    (found,) = cap(scenario(gpu()), "find")
    given = {
        "id": "o",
        "action": "downscale",
        "resource": ("gpu", "n1/gpu0"),
        "parameters": {"power-cap": 300},
    }
    labels = {"labels": {"host": "n1", "uuid": "GPU-0"}}
    request = {"scenario": scenario(gpu(), hang=1), "target": "CapGpu", "order": given | labels, "limit": 0.2}
    (refused,) = driver.cap(request | {"calls": ["find"], "found": None})
    (unknown,) = driver.cap(request | {"calls": ["act"], "found": found, "scenario": None})

    assert refused["refused"] == "the driver did not answer within 0.2 s"
    assert unknown["state"] == "unknown"
    time.sleep(1.2)
    assert written() == []
