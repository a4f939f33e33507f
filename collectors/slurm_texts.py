"""What Slurm's commands print, turned into jobs; nothing here runs a command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from stoploss.collectors.slurm_lists import (
    Unparsable,
    allocated_gpus,
    count_gpus,
    count_hosts,
    duration,
    gpu_indices,
    tasks,
)

STATES: Mapping[str, tuple[str, str]] = {
    "PENDING": ("queued", "none"),
    "REQUEUED": ("queued", "none"),
    "REQUEUE_FED": ("queued", "none"),
    "REQUEUE_HOLD": ("queued", "none"),
    "RESV_DEL_HOLD": ("queued", "none"),
    "SPECIAL_EXIT": ("queued", "none"),
    "RUNNING": ("running", "none"),
    "CONFIGURING": ("running", "none"),
    "COMPLETING": ("running", "none"),
    "RESIZING": ("running", "none"),
    "SIGNALING": ("running", "none"),
    "STAGE_OUT": ("running", "none"),
    "SUSPENDED": ("suspended", "none"),
    "STOPPED": ("suspended", "none"),
    "COMPLETED": ("ended", "completed"),
    "CANCELLED": ("ended", "cancelled"),
    "REVOKED": ("ended", "cancelled"),
    "PREEMPTED": ("ended", "preempted"),
    # What a job did until its time was up may well be saved: it is over, not failed.
    "TIMEOUT": ("ended", "timeout"),
    "DEADLINE": ("ended", "timeout"),
    "FAILED": ("failed", "failed"),
    "LAUNCH_FAILED": ("failed", "failed"),
    "OUT_OF_MEMORY": ("failed", "out-of-memory"),
    "NODE_FAIL": ("failed", "node-failure"),
    "BOOT_FAIL": ("failed", "node-failure"),
}
"""Slurm's state -> `job.state` and `job.exit_reason`."""

QUEUE_FORMAT = "%i|%A|%T|%u|%a|%P|%l|%D|%N|%b|%S|%V|%e|%j"
"""Fields of `squeue -o`; the name is last, because it may hold the separator."""

ACCOUNTING_FIELDS = (
    "JobID,State,User,Account,Partition,TimelimitRaw,NNodes,NodeList,AllocTRES,Start,Submit,End,"
    "ExitCode,JobName"
)
"""Fields of `sacct -o`; the name is last, because it may hold the separator."""

_NO_VALUE = 0xFFFF_FFF0
"""Numbers from here on stand for none or for no limit."""

_TERM = 15

_NOTHING = frozenset({"", "(null)", "N/A", "None", "Unknown", "NONE"})

_LAID_OUT = re.compile(r"^\s+Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Job:
    """One job as Slurm tells it; times are seconds since the epoch.

    Attributes:
        id: `ID`, or `ID_TASK` of an array's task; the same through requeues.
        raw_id: the number that Slurm itself counts the job by.
        state: Slurm's own word.
        user: who submitted it.
        account: what it is charged to, or None.
        partition: where it runs or waits.
        name: what its user called it.
        hosts: its nodes, as Slurm writes lists of them; empty before it starts.
        nodes: how many they are.
        gpus: GPUs allocated to it while it holds them, or None where that is not told.
        indices: which GPUs these are on each node, or None.
        time_limit: seconds that it may run, or None without a limit.
        submitted: when it was queued, for the newest attempt.
        started: when the newest attempt began; of a waiting job, an estimate or None.
        ended: when it ended; of others, an estimate or None.
        restarts: how often it was queued again, or None where that is not told.
        signal: that its script was ended by, or None.
    """

    id: str
    raw_id: str
    state: str
    user: str | None
    account: str | None
    partition: str | None
    name: str | None
    hosts: str
    nodes: int
    gpus: int | None
    indices: str | None
    time_limit: float | None
    submitted: float | None
    started: float | None
    ended: float | None
    restarts: int | None
    signal: int | None = None

    @property
    def phase(self) -> str:
        """`job.state` of the catalogue.

        Raises:
            Unparsable: the state is a word that is not known here.
        """
        return self._known()[0]

    @property
    def reason(self) -> str:
        """`job.exit_reason` of the catalogue; `none` while it waits or runs."""
        return self._known()[1]

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.reason != "none"

    @property
    def holds(self) -> bool:
        """Whether nodes are allocated to it."""
        return not self.over and self.phase != "queued"

    @property
    def began(self) -> bool:
        """Whether the newest attempt has begun; one cancelled while it waited never had a node."""
        return self.holds or (self.over and bool(self.hosts))

    def _known(self) -> tuple[str, str]:
        # Slurm calls it failed, but somebody has asked the script to end. What asks only its tasks may be
        # Slurm itself, after another task has failed.
        state = "CANCELLED" if self.state == "FAILED" and self.signal == _TERM else self.state
        try:
            return STATES[state]
        except KeyError:
            raise Unparsable(f"{state!r} is not a state that is known here") from None


def parse_queue_json(text: str) -> tuple[Job, ...]:
    """The jobs that `squeue --json` prints, whichever version of its format.

    Raises:
        Unparsable: it is no JSON, or lacks the list of jobs or what a job must have.
    """
    try:
        told = json.loads(text)
    except ValueError as error:
        raise Unparsable(f"no JSON: {error}") from None
    entries = told.get("jobs") if isinstance(told, dict) else None
    if not isinstance(entries, list):
        raise Unparsable("no list of jobs")
    try:
        return tuple(job for entry in entries for job in _of_entry(entry))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Unparsable(f"a job without what every job has: {type(error).__name__}: {error}") from None


def _of_entry(entry: Mapping[str, Any]) -> Iterator[Job]:
    raw = str(int(entry["job_id"]))
    details = [str(item) for item in entry.get("gres_detail") or ()]
    job = Job(
        id=raw,
        raw_id=raw,
        state=_base_state(entry["job_state"]),
        user=_text(entry.get("user_name")),
        account=_text(entry.get("account")),
        partition=_text(entry.get("partition")),
        name=_text(entry.get("name")),
        hosts=_text(entry.get("nodes")) or "",
        nodes=int(_number(entry.get("node_count")) or 0),
        gpus=None,
        indices=";".join(found for item in details if (found := gpu_indices(item))) or None,
        time_limit=_times(_number(entry.get("time_limit")), 60.0),
        submitted=_number(entry.get("submit_time")) or None,
        started=_number(entry.get("start_time")) or None,
        ended=_number(entry.get("end_time")) or None,
        restarts=int(_number(entry.get("restart_cnt")) or 0),
        signal=_signal(entry.get("exit_code")),
    )
    job = replace(job, gpus=_gpus_of_entry(entry, details, job.nodes))
    array, task = int(_number(entry.get("array_job_id")) or 0), _number(entry.get("array_task_id"))
    if (component := int(_number(entry.get("het_job_id")) or 0)) != 0:
        yield replace(job, id=f"{component}+{int(_number(entry.get('het_job_offset')) or 0)}")
    elif array and task is not None:
        yield replace(job, id=f"{array}_{int(task)}")
    elif array and (waiting := str(entry.get("array_task_string") or "")):
        yield from (replace(job, id=f"{array}_{number}") for number in tasks(waiting))
    else:
        yield job


def _gpus_of_entry(entry: Mapping[str, Any], details: list[str], nodes: int) -> int:
    if details:
        return sum(count_gpus(item) for item in details)
    allocated = allocated_gpus(str(entry.get("tres_alloc_str") or ""))
    # Slurm counts GPUs among what it allocates only where its administrator says so.
    return count_gpus(str(entry.get("tres_per_node") or "")) * nodes if allocated is None else allocated


def parse_queue(text: str) -> tuple[Job, ...]:
    """The jobs that `squeue -h -r -t all -o QUEUE_FORMAT` prints, times in seconds since the epoch.

    How often they were queued again, and which GPUs they hold, is told by `scontrol` alone.

    Raises:
        Unparsable: a line is cut short or holds something else.
    """
    if text and not text.endswith("\n"):
        raise Unparsable("its last line is cut short")
    return tuple(_of_line(line) for line in text.splitlines() if line.strip())


def _of_line(line: str) -> Job:
    fields = line.split("|", QUEUE_FORMAT.count("|"))
    if len(fields) != QUEUE_FORMAT.count("|") + 1:
        raise Unparsable(f"{line[:60]!r} is no line of jobs")
    named, raw, state, user, account, partition, limit, nodes, hosts, gres, start, submit, end, name = fields
    try:
        count = int(nodes)
        return Job(
            id=named,
            raw_id=raw,
            state=state,
            user=_text(user),
            account=_text(account),
            partition=_text(partition),
            name=_text(name),
            hosts=_text(hosts) or "",
            nodes=count,
            gpus=count_gpus(gres) * count,
            indices=None,
            time_limit=duration(limit),
            submitted=_instant(submit),
            started=_instant(start),
            ended=_instant(end),
            restarts=None,
        )
    except ValueError:
        raise Unparsable(f"{line[:60]!r} is no line of jobs") from None


def with_details(jobs: tuple[Job, ...], text: str) -> tuple[Job, ...]:
    """The jobs with what `scontrol show job -d` adds: restarts, and the GPUs that each holds."""
    found: dict[str, tuple[int | None, int | None, list[tuple[str, str]]]] = {}
    for block in re.split(r"^(?=JobId=)", text, flags=re.MULTILINE):
        if (named := re.match(r"JobId=(\d+)", block)) is None:
            continue
        restarts = re.search(r"^\s+Requeue=\d+ Restarts=(\d+)", block, re.MULTILINE)
        ended = re.search(r"\bExitCode=(\d+:\d+)", block)
        found[named[1]] = (
            int(restarts[1]) if restarts else None,
            _signal(ended[1]) if ended else None,
            _LAID_OUT.findall(block),
        )
    return tuple(_detailed(job, *found.get(job.raw_id, (None, None, []))) for job in jobs)


def _detailed(job: Job, restarts: int | None, signal: int | None, layout: list[tuple[str, str]]) -> Job:
    job = replace(job, signal=signal)
    if not job.holds or not layout:
        return replace(job, restarts=restarts)
    gpus = sum(count_gpus(gres) * count_hosts(hosts) for hosts, gres in layout)
    indices = ";".join(found for _, gres in layout if (found := gpu_indices(gres))) or None
    return replace(job, restarts=restarts, gpus=gpus, indices=indices)


def parse_accounting(text: str) -> tuple[Job, ...]:
    """The attempts that `sacct -P -n -X -D -o ACCOUNTING_FIELDS` prints, oldest first.

    Raises:
        Unparsable: a line is cut short or holds something else.
    """
    count = ACCOUNTING_FIELDS.count(",")
    rows = []
    for line in text.splitlines():
        fields = line.split("|", count)
        if len(fields) != count + 1:
            raise Unparsable(f"{line[:60]!r} is no line of accounting")
        # `CANCELLED by 1000`, and arrays of which the tasks have not been told apart.
        if fields[0] and "[" not in fields[0] and fields[1].split():
            rows.append(_of_accounting(fields))
    return tuple(sorted(rows, key=lambda row: row.started or row.submitted or 0.0))


def _of_accounting(fields: list[str]) -> Job:
    named, state, user, account, partition, limit, nodes, hosts, tres, start, submit, end, code, name = fields
    return Job(
        id=named,
        raw_id=named,
        state=state.split()[0],
        user=_text(user),
        account=_text(account),
        partition=_text(partition),
        name=_text(name),
        hosts="" if hosts == "None assigned" else _text(hosts) or "",
        nodes=int(nodes) if nodes.isdigit() else 0,
        gpus=allocated_gpus(tres) or 0,
        indices=None,
        time_limit=int(limit) * 60.0 if limit.isdigit() else None,
        submitted=_instant(submit),
        started=_instant(start),
        ended=_instant(end),
        restarts=None,
        signal=_signal(code),
    )


def _base_state(value: object) -> str:
    """The state in a word, or in a list of a state and of flags (`CANCELLED`, `COMPLETING`)."""
    words = [str(word) for word in value] if isinstance(value, list) else [str(value)]
    if "COMPLETING" in words:
        return "COMPLETING"
    return next((word for word in words if word in STATES), words[0] if words else "")


def _number(value: object) -> float | None:
    """A number, or an object that says whether there is one; None where there is none."""
    if isinstance(value, Mapping):
        return float(value["number"]) if value.get("set") and not value.get("infinite") else None
    if value is None or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if value >= _NO_VALUE else float(value)


def _signal(code: object) -> int | None:
    """The signal in `0:15`, in a status of wait(2), or in an object that tells it; None for none."""
    if isinstance(code, Mapping):
        told = code.get("signal")
        told = told.get("id", told.get("signal_id")) if isinstance(told, Mapping) else told
        number = _number(told)
        return int(number) if number else None
    if isinstance(code, str):
        code = int(code.rpartition(":")[2]) if code.rpartition(":")[2].isdigit() else 0
    number = _number(code)
    return int(number) & 0x7F or None if number else None


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _instant(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+", text.strip()) else None


def _text(value: object) -> str | None:
    text = str(value).strip() if value is not None else ""
    return None if text in _NOTHING else text
