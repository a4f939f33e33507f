"""The small languages in what Slurm prints: durations, lists of hosts, of tasks and of GPUs."""

from __future__ import annotations

import re

MOST_TASKS = 10_000
"""Waiting tasks of one array that are told apart."""

# `gpu`, `gpu:2`, `gpu:a100`, `gres:gpu:a100:2(IDX:0-1)`: without a number it is one.
_GPUS = re.compile(
    r"\bgpu(?![\w-])(?::(?!\d+(?:[(,]|$))([^\s,:=()]+))?(?:[:=](\d+))?(?:\([^)]*IDX:([^)]*)\))?"
)
_TYPED_GPUS = re.compile(r"gres/gpu(?::[^\s,=]+)?=(\d+)")
_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


class Unparsable(Exception):
    """The text is not what the command prints."""


def duration(text: str) -> float | None:
    """Seconds of `MINUTES:SECONDS`, `HOURS:…` or `DAYS-HOURS:…`; None for UNLIMITED and the like."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def allocated_gpus(tres: str) -> int | None:
    """GPUs in a list such as `cpu=8,gres/gpu=2,gres/gpu:a100=2`; None where it counts none.

    Types are parts of the sum, so both are never added.
    """
    total = re.search(r"gres/gpu=(\d+)", tres)
    if total:
        return int(total[1])
    typed = _TYPED_GPUS.findall(tres)
    return sum(map(int, typed)) if typed else None


def tasks(text: str) -> tuple[int, ...]:
    """The tasks in `0-3,7,10-20:5%2`, as far as Slurm writes them out.

    Raises:
        Unparsable: it holds something else, or more than `MOST_TASKS`.
    """
    found: list[int] = []
    for part in text.partition("%")[0].strip("[]").split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if match is None:
            # Slurm ends a long list with dots.
            if part == "...":
                continue
            raise Unparsable(f"{text[:60]!r} is no list of tasks")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        numbers = range(first, last + 1, max(step, 1))
        if len(found) + len(numbers) > MOST_TASKS:
            raise Unparsable(f"an array of more than {MOST_TASKS} waiting tasks")
        found.extend(numbers)
    return tuple(found)


def count_hosts(text: str) -> int:
    """How many hosts `n[1-3,7],login` names."""
    total = 0
    for name in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*", text):
        count = 1
        for group in re.findall(r"\[([^\]]*)\]", name):
            ranges = [part.partition("-") for part in group.split(",")]
            count *= sum(int(last or first) - int(first) + 1 for first, _, last in ranges)
        total += count
    return total


def count_gpus(text: str) -> int:
    """GPUs in `gpu:a100:2(IDX:0-1),gpu:1`; without a number it is one."""
    return sum(int(match[2] or 1) for match in _GPUS.finditer(text))


def gpu_indices(text: str) -> str:
    """Which GPUs these are, as far as that is told: `0-1,3`."""
    return ",".join(match[3] for match in _GPUS.finditer(text) if match[3])
