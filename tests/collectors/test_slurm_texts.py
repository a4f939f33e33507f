"""What Slurm's commands print, as jobs: whole, cut short, and garbage."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoploss.collectors import slurm_texts as texts
from stoploss.collectors.slurm_lists import Unparsable, count_hosts, duration, tasks
from stoploss.collectors.slurm_texts import Job
from stoploss.rules.catalogue import catalogue


def entry(**keys: Any) -> dict[str, Any]:
    """A running job as version 22.05 writes it, with changes."""
    return {
        "job_id": 6,
        "array_job_id": 0,
        "array_task_id": None,
        "job_state": "RUNNING",
        "user_name": "ann",
        "account": "vision",
        "partition": "train",
        "name": "bert",
        "nodes": "n1",
        "node_count": 1,
        "gres_detail": ["gpu:2(IDX:0-1)"],
        "time_limit": 60,
        "submit_time": 100,
        "start_time": 160,
        "end_time": 3760,
        "restart_cnt": 0,
    } | keys


def told(**keys: Any) -> tuple[Job, ...]:
    """The jobs of an answer with one entry."""
    return texts.parse_queue_json(json.dumps({"jobs": [entry(**keys)]}))


def test_a_running_job_is_told_whole() -> None:
    """Every field of a running job is read, limits in seconds."""
    [job] = told()

    assert job == Job(
        "6", "6", "RUNNING", "ann", "vision", "train", "bert", "n1", 1, 2, "0-1",
        3600.0, 100.0, 160.0, 3760.0, 0,
    )  # fmt: skip
    assert (job.phase, job.reason, job.holds, job.over) == ("running", "none", True, False)


def test_newer_versions_wrap_numbers_and_list_states() -> None:
    """Numbers that say whether they are set, and states with flags, mean the same."""
    [job] = told(
        job_state=["RUNNING"],
        time_limit={"set": True, "infinite": False, "number": 60},
        submit_time={"set": True, "infinite": False, "number": 100},
        start_time={"set": True, "infinite": False, "number": 160},
        end_time={"set": True, "infinite": False, "number": 3760},
        node_count={"set": True, "infinite": False, "number": 1},
        array_task_id={"set": False, "infinite": False, "number": 0},
    )

    assert [job] == list(told())
    assert told(job_state=["CANCELLED", "COMPLETING"])[0].phase == "running"
    assert told(time_limit={"set": False, "infinite": True, "number": 0})[0].time_limit is None
    assert told(time_limit=4294967295)[0].time_limit is None


def test_tasks_and_parts_are_named_as_squeue_names_them() -> None:
    """A task is ID_TASK, waiting tasks are told apart, and a part of a heterogeneous job is ID+PART."""
    assert [job.id for job in told(array_job_id=3, array_task_id=0)] == ["3_0"]
    waiting = told(array_job_id=3, array_task_string="1-2,7%4", job_state="PENDING")
    assert [job.id for job in waiting] == ["3_1", "3_2", "3_7"]
    assert [job.id for job in told(het_job_id=9, het_job_offset=1)] == ["9+1"]


@pytest.mark.parametrize(
    ("keys", "gpus"),
    [
        ({"gres_detail": ["gpu:a100:4(IDX:0-3),nic:1", "gpu:a100:2(IDX:1,3)"]}, 6),
        ({"gres_detail": [], "tres_alloc_str": "cpu=8,gres/gpu=4,gres/gpu:a100=4"}, 4),
        ({"gres_detail": [], "tres_alloc_str": "gres/gpu:a100=4,gres/gpu:v100=1"}, 5),
        ({"gres_detail": [], "tres_alloc_str": "cpu=1", "tres_per_node": "gres:gpu:2", "node_count": 3}, 6),
        ({"gres_detail": [], "tres_per_node": "gres:gpu:h100:8"}, 8),
        ({"gres_detail": [], "tres_per_node": "gres:gpu:2g.10gb:3,gres:shard:4"}, 3),
        ({"gres_detail": [], "tres_per_node": "gres:gpu:a100,gres:gpu"}, 2),
        ({"gres_detail": []}, 0),
    ],
)
def test_gpus_are_counted_once(keys: dict[str, Any], gpus: int) -> None:
    """GPUs are those of every node, and a type is not added to the sum that it is part of."""
    assert told(**keys)[0].gpus == gpus


@pytest.mark.parametrize(
    ("state", "meant"),
    [
        ("COMPLETED", ("ended", "completed")),
        ("CANCELLED", ("ended", "cancelled")),
        ("PREEMPTED", ("ended", "preempted")),
        ("TIMEOUT", ("ended", "timeout")),
        ("FAILED", ("failed", "failed")),
        ("OUT_OF_MEMORY", ("failed", "out-of-memory")),
        ("NODE_FAIL", ("failed", "node-failure")),
        ("REQUEUE_HOLD", ("queued", "none")),
        ("SUSPENDED", ("suspended", "none")),
    ],
)
def test_states_mean_a_state_and_a_reason(state: str, meant: tuple[str, str]) -> None:
    """Each of Slurm's states is a state of the catalogue and the reason of an end."""
    [job] = told(job_state=state)

    assert (job.phase, job.reason) == meant


def test_every_state_is_in_the_catalogue() -> None:
    """No state is told in a word that policies cannot name."""
    states, reasons = catalogue()["job.state"].values, catalogue()["job.exit_reason"].values

    assert {state for state, _ in texts.STATES.values()} <= set(states)
    assert {reason for _, reason in texts.STATES.values()} <= set(reasons)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"errors": []}',
        '{"jobs": [7]}',
        '{"jobs": [{}]}',
        '{"jobs": [{"job_id": 1',
        "slurm_load",
    ],
)
def test_what_is_no_answer_is_refused(text: str) -> None:
    """Text that is cut short, no JSON, or JSON of something else is refused."""
    with pytest.raises(Unparsable):
        texts.parse_queue_json(text)


QUEUE = (
    "3_1|6|RUNNING|root|vision|train|1:00:00|2|n[1-2]|gres:gpu:1|160|100|3760|wrap\n"
    "1|1|PENDING|root|(null)|train|UNLIMITED|1||gres:gpu:1|N/A|100|N/A|a|b\n"
)
DETAILS = """
JobId=6 ArrayJobId=3 ArrayTaskId=1 JobName=x GRES=gpu:9(IDX:0-8)
   Requeue=1 Restarts=2 BatchFlag=1
     Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)

JobId=1 JobName=a|b
   Requeue=1 Restarts=0 BatchFlag=1
"""


def test_fixed_fields_tell_the_same() -> None:
    """Lines of `squeue -o` are jobs, also where a name holds the separator."""
    running, waiting = texts.parse_queue(QUEUE)

    assert (running.id, running.raw_id, running.gpus, running.started) == ("3_1", "6", 2, 160.0)
    assert (waiting.name, waiting.account, waiting.time_limit, waiting.started) == ("a|b", None, None, None)


def test_details_add_restarts_and_gpu_numbers() -> None:
    """`scontrol show job -d` adds restarts and indices, and a job's name does not fool it."""
    running, waiting = texts.with_details(texts.parse_queue(QUEUE), DETAILS)

    assert (running.restarts, running.gpus, running.indices) == (2, 2, "0")
    assert (waiting.restarts, waiting.indices) == (0, None)


@pytest.mark.parametrize(
    "text", [QUEUE[:-1], QUEUE[:40] + "\n", "squeue: error\n", QUEUE.replace("|2|n", "|x|n")]
)
def test_lines_that_are_cut_short_are_refused(text: str) -> None:
    """A queue that breaks off in a line, or holds other lines, is refused as a whole."""
    with pytest.raises(Unparsable):
        texts.parse_queue(text)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ({"status": ["SIGNALED"], "signal": {"id": {"set": True, "number": 15}, "name": "Terminated"}}, True),
        ({"status": "SIGNALED", "return_code": 0, "signal": {"signal_id": 15, "name": "Terminated"}}, True),
        ({"status": ["ERROR"], "signal": {"id": {"set": False, "number": 0}}}, False),
        ({"status": ["SIGNALED"], "signal": {"id": {"set": True, "number": 9}}}, False),
        (15, True),
        (256 * 143, False),
        (None, False),
        ("0:15", True),
        ("143:0", False),
        ("", False),
    ],
)
def test_a_script_that_was_asked_to_end_did_not_fail(code: object, told: bool) -> None:
    """SIGTERM to the script is somebody's wish, whatever Slurm calls it; to a task it may be Slurm's own."""
    if isinstance(code, str):
        line = f"7|FAILED|ann|vision|train|60|1|n1||150|200|210|{code}|bert\n"
        (job,) = texts.parse_accounting(line)
    else:
        entry = {"job_id": 7, "job_state": ["FAILED"], "exit_code": code}
        (job,) = texts.parse_queue_json(json.dumps({"jobs": [entry]}))

    assert (job.phase, job.reason) == (("ended", "cancelled") if told else ("failed", "failed"))


def test_accounting_tells_every_attempt() -> None:
    """Rows of `sacct` are attempts, oldest first; `CANCELLED by` and unassigned nodes are understood."""
    rows = texts.parse_accounting(
        "7|CANCELLED by 1000|ann|vision|train|60|1|None assigned||None|200|210|0:0|b|c\n"
        "6|PREEMPTED|ann|vision|train|UNLIMITED|2|n[1-2]|cpu=2,gres/gpu=8|150|100|190|0:15|bert\n"
        "9_[3-4]|PENDING|ann|vision|train|60|1|None assigned||Unknown|200|Unknown|0:0|many\n"
    )

    assert [(row.id, row.reason, row.began, row.gpus) for row in rows] == [
        ("6", "preempted", True, 8),
        ("7", "cancelled", False, 0),
    ]
    with pytest.raises(Unparsable):
        texts.parse_accounting("7|CANCELLED by 10")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10:00", 600.0), ("1:00:00", 3600.0), ("2-03:00:01", 183601.0), ("UNLIMITED", None), ("NOT_SET", None)],
)
def test_time_limits_are_seconds(text: str, seconds: float | None) -> None:
    """A limit is read with days and hours, and none is none."""
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [("n1", 1), ("n[1-3,7],login", 5), ("a[01-10]b[0-1]", 20), ("a,b,c", 3), ("", 0)],
)
def test_lists_of_hosts_are_counted(text: str, count: int) -> None:
    """Ranges, single hosts and several ranges in a name are counted."""
    assert count_hosts(text) == count


def test_lists_of_tasks_are_bounded() -> None:
    """Steps and cut lists are understood; garbage and very many tasks are refused."""
    assert tasks("0-10:5,3,...%2") == (0, 5, 10, 3)
    for text in ("x", "0-9999999"):
        with pytest.raises(Unparsable):
            tasks(text)


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """No text makes a parser fail in another way than by refusing it."""
    for parse in (texts.parse_queue_json, texts.parse_queue, texts.parse_accounting):
        try:
            parse(text)
        except Unparsable:
            continue


@given(
    st.dictionaries(
        st.sampled_from(sorted(entry())),
        st.none() | st.integers() | st.text(max_size=5) | st.lists(st.text(max_size=5), max_size=2),
        max_size=4,
    )
)
def test_odd_fields_are_parsed_or_refused(odd: dict[str, Any]) -> None:
    """No value in a field makes the parser fail in another way than by refusing it."""
    try:
        jobs = told(**odd)
    except Unparsable:
        return
    assert len(jobs) == 1
