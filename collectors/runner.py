"""Runs collectors side by side under a time limit, and measures them.

The runner, not the collector, says whether a look succeeded and how long it took. A collector
that hangs is left behind in its daemon thread: it stalls neither the run nor the exit of the
process, and is not started again while it hangs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace

from stoploss.collectors.background import in_background
from stoploss.collectors.contract import Collector, CollectorError, NotHere
from stoploss.engine.model import Bad, Look, ResourceId, Sample
from stoploss.rules.units import format_duration

TIME_LIMIT = 10.0
"""Seconds a look may take."""

LONGEST_REASON = 300
"""Characters of a failure's text that are kept."""

SHORTEST_SECRET = 4
"""Characters; masking shorter values would garble messages and hide nothing."""

_SECRET_NAME = re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CollectorRun:
    """What became of one look of one collector.

    Attributes:
        name: the collector.
        ok: whether it answered; having nothing to collect is an answer.
        look: what it saw, with the runner's own samples; None where it saw nothing.
        reason: why there is no look, in words.
        duration_s: seconds the look took, or was waited for.
        not_here: whether this machine has nothing to collect for it.
        samples: the samples of the look, if any, and always the runner's own two:
            `collector.success` (1 or 0) and `collector.duration` (seconds).
    """

    name: str
    ok: bool
    look: Look | None
    reason: str | None
    duration_s: float
    not_here: bool
    samples: tuple[Sample, ...]


_Answer = tuple["Look | BaseException", float]

# Threads belong to the process, and so does the list of those that were left behind.
_left_behind: dict[str, Future[_Answer]] = {}


def run_collectors(
    collectors: Mapping[str, Collector],
    *,
    at: float,
    monotonic: Callable[[], float],
    time_limit: float = TIME_LIMIT,
) -> list[CollectorRun]:
    """Let every collector look once, side by side; returns one run each, in their order.

    Args:
        collectors: name -> running collector.
        at: the scheduled instant that all samples carry, in seconds since the epoch.
        monotonic: seconds on a clock that never goes back.
        time_limit: seconds that the whole call waits at most.
    """
    secrets = _secrets(os.environ)
    begun = monotonic()
    futures: dict[str, Future[_Answer]] = {}
    for name, collector in collectors.items():
        if name in _left_behind and not _left_behind[name].done():
            continue
        _left_behind.pop(name, None)
        futures[name] = in_background(_asker(collector, at, monotonic), f"collector {name}")
    finished = wait(futures.values(), timeout=time_limit).done
    runs = []
    for name in collectors:
        future = futures.get(name)
        if future is None:
            runs.append(_failed(name, at, 0.0, "still hanging since an earlier look; not started again"))
        elif future not in finished:
            _left_behind[name] = future
            reason = f"no answer within {format_duration(time_limit)}"
            runs.append(_failed(name, at, monotonic() - begun, reason))
        else:
            runs.append(_answered(name, at, future, secrets))
    return runs


def _asker(collector: Collector, at: float, monotonic: Callable[[], float]) -> Callable[[], _Answer]:
    def ask() -> _Answer:
        begun = monotonic()
        answer: Look | BaseException
        try:
            answer = _stamped(collector.look(at), at)
        except BaseException as error:
            answer = error
        return answer, monotonic() - begun

    return ask


def _stamped(look: object, at: float) -> Look:
    if not isinstance(look, Look):
        raise TypeError(f"look() returned {type(look).__name__}, not a Look")
    samples = tuple(item if item.time == at else replace(item, time=at) for item in look.samples)
    return replace(look, samples=samples)


def _answered(name: str, at: float, future: Future[_Answer], secrets: tuple[str, ...]) -> CollectorRun:
    error = future.exception()
    answer, duration = (error, 0.0) if error is not None else future.result()
    if isinstance(answer, Look):
        look = _without_secrets(answer, secrets)
        look = replace(look, samples=look.samples + _own_samples(name, at, duration, success=True))
        return CollectorRun(name, True, look, None, duration, False, look.samples)
    reason = _masked(_words(answer), secrets)
    if isinstance(answer, NotHere):
        own = _own_samples(name, at, duration, success=True)
        return CollectorRun(name, True, None, reason, duration, True, own)
    return _failed(name, at, duration, reason)


def _failed(name: str, at: float, duration: float, reason: str) -> CollectorRun:
    own = _own_samples(name, at, duration, success=False)
    return CollectorRun(name, False, None, reason, duration, False, own)


def _own_samples(name: str, at: float, duration: float, *, success: bool) -> tuple[Sample, ...]:
    resource = ResourceId("collector", name)
    return (
        Sample(at, resource, "collector.success", 1.0 if success else 0.0),
        Sample(at, resource, "collector.duration", duration),
    )


def _words(error: BaseException | None) -> str:
    if isinstance(error, CollectorError | NotHere):
        return error.reason
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be read)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values that must not be shown, longest first, so that no part of one stays visible."""
    values = {
        value
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and len(value) >= SHORTEST_SECRET
    }
    return tuple(sorted(values, key=lambda value: (-len(value), value)))


def _masked(text: str, secrets: tuple[str, ...]) -> str:
    # Masked before it is folded and cut: a cut secret would no longer be found.
    for secret in secrets:
        text = text.replace(secret, "***")
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 1] + "…"


def _without_secrets(look: Look, secrets: tuple[str, ...]) -> Look:
    samples = tuple(
        replace(item, reading=Bad(_masked(item.reading.reason, secrets)))
        if isinstance(item.reading, Bad)
        else item
        for item in look.samples
    )
    return replace(look, samples=samples, notes=tuple(_masked(note, secrets) for note in look.notes))
