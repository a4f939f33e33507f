"""A filter for `logging` that keeps a share of DEBUG and INFO lines, as a file in the run's folder asks.

What is a warning or worse, what tells a metric, and what stoploss itself says always passes. Where the file
is not there or cannot be read, everything passes. Nothing here raises.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stoploss.engine import clock
from stoploss.training import places

FILE = "sampling.json"

VARIABLE = "STOPLOSS_SAMPLING"
"""Environment variable with the path of the file."""

VERSION = 1

EVERY = 1.0
"""Seconds between two looks at the file's date."""

LONGEST = 65_536
"""Bytes of the file that are read."""

METRIC = re.compile(r"(?<![a-z])(?:loss|lr|learning[_ ]rate|grad[_ ]norm)(?![a-z])", re.IGNORECASE)
"""What a line that tells a metric mentions."""

# Multiples of the golden ratio spread evenly, whatever pattern the lines repeat in.
_SPREAD, _WHOLE = 0x9E3779B9, 1 << 32


@dataclass(frozen=True, slots=True)
class Asked:
    """What the file asks for; times in seconds since the epoch.

    Attributes:
        share: of the lines that are kept.
        levels: whose lines may be left out.
        until: from then on everything passes; None for no end.
        everything_until: everything passes until then; None for never.
    """

    share: float = 1.0
    levels: frozenset[str] = frozenset({"DEBUG", "INFO"})
    until: float | None = None
    everything_until: float | None = None


def parsed(content: bytes) -> Asked:
    """What the bytes of a file ask for; of what is damaged, that everything passes."""
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return Asked()
    if not isinstance(record, dict) or record.get("version") != VERSION:
        return Asked()
    share, levels = _number(record.get("share")), record.get("levels", ["DEBUG", "INFO"])
    if share is None or not 0 <= share <= 1 or not isinstance(levels, list):
        return Asked()
    times = [record.get("until"), record.get("everything_until")]
    if any(time is not None and _number(time) is None for time in times):
        return Asked()
    named = frozenset(level for level in levels if isinstance(level, str))
    return Asked(share, named, _number(times[0]), _number(times[1]))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


class SamplingFilter(logging.Filter):
    """For `handler.addFilter(stoploss.SamplingFilter())`.

    The file is `.stoploss/sampling.json` in the run's folder; a change is followed within a second.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str] | None = None,
        *,
        monotonic: Callable[[], float] = clock.monotonic,
        now: Callable[[], float] = lambda: clock.now().timestamp(),
    ) -> None:
        """Take over where the file lies.

        Args:
            run_dir: the run's folder. Where it is left out, the file is that of `STOPLOSS_SAMPLING`, else in
                the folder `STOPLOSS_RUN_DIR` or the working directory.
            monotonic: seconds on a clock that never goes back.
            now: seconds since the epoch.
        """
        super().__init__()
        self.path = places.file_of(FILE, VARIABLE, run_dir)
        self._monotonic, self._now = monotonic, now
        self._looked: float | None = None
        self._mark: tuple[int, int, int] | None = None
        self._asked = Asked()
        self._lines = itertools.count()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is kept."""
        if record.levelno >= logging.WARNING:
            return True
        asked = self._current()
        if asked.share >= 1 or _level(record) not in asked.levels or _always(record):
            return True
        if asked.until is not None or asked.everything_until is not None:
            now = self._now()
            if asked.until is not None and now >= asked.until:
                return True
            if asked.everything_until is not None and now < asked.everything_until:
                return True
        return next(self._lines) * _SPREAD % _WHOLE < asked.share * _WHOLE

    def _current(self) -> Asked:
        at = self._monotonic()
        if self._looked is None or at - self._looked >= EVERY:
            self._looked = at
            self._look()
        return self._asked

    def _look(self) -> None:
        """Read the file where it has changed."""
        try:
            status = os.stat(self.path)
            mark = status.st_ino, status.st_mtime_ns, status.st_size
            if mark == self._mark:
                return
            if not stat.S_ISREG(status.st_mode) or status.st_size > LONGEST:
                self._mark, self._asked = mark, Asked()
                return
            with open(self.path, "rb") as stream:
                self._mark, self._asked = mark, parsed(stream.read(LONGEST))
        except OSError:
            self._mark, self._asked = None, Asked()


def _level(record: logging.LogRecord) -> str:
    return "INFO" if record.levelno >= logging.INFO else "DEBUG"


def _always(record: logging.LogRecord) -> bool:
    """Whether a line is ours, or tells a metric."""
    if getattr(record, "stoploss_metric", False):
        return True
    if record.name == "stoploss" or record.name.startswith("stoploss."):
        return True
    arguments = record.args if isinstance(record.args, tuple) else (record.args,)
    return any(_tells(part) for part in (record.msg, *arguments))


def _tells(part: object) -> bool:
    if isinstance(part, str):
        return METRIC.search(part) is not None
    return isinstance(part, Mapping) and any(METRIC.search(str(key)) for key in part)
