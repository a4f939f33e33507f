"""How fast logs grow, what they repeat, and how long they are kept.

The logs are named by patterns: `*` and `?` within a name, `**` for any folders. It needs the right to
read them, and changes nothing.

- A log is named `HOST:PATH`; the labels `host` and `path` hold the two parts. Symbolic links are
  followed only where a path is named without signs.
- `logs.bytes` and `logs.lines` go on counting when a log is renamed by rotation or cut short; they
  never go back. What is written and then truncated between two looks is not seen.
- Of a log at most 256 KiB of new text are read at a look; where more was written lines are estimated
  from the newest part. `logs.debug_share`, `logs.error_share` and `logs.repeat_ratio` are of the lines read,
  and stay while nothing is written. A line repeats another that is equal but for its numbers.
- A line without a level is neither debug nor error, but counts in the share.
- `logs.rate` is since the look before. The first look looks twice, one second apart.
- `logs.size` counts what rotation has set aside beside the log (`app.log.1`, `app.log-20260101.gz`), which
  is no log of its own.
- `logs.retention` is what logrotate is configured to keep, rotated files times the time between two
  rotations. Where no rule names the log, or it goes by size, it is a bad reading.
- The job is what the option `job` says (`/runs/{job}`), else that of the process which has the log open
  to write. A log whose writer was not seen has no job, or an unreadable one while processes of
  other users hide their files; once seen, the job stays.
- A log that cannot be read, or is no text, makes bad readings of that log alone. A pattern that
  fits nothing is told in a note; a path without signs that is not there is a bad reading. Of one
  pattern at most 2,000 logs are followed.

Right:

```yaml
collectors:
  logs:
    paths: [/runs/*/logs/*.log, /var/log/train.log]
    job: /runs/{job}
```

Wrong, because a pattern begins at the root:

```yaml
collectors:
  logs:
    paths: ["*.log"]
```
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stoploss.collectors import log_owners, logrotate, path_labels
from stoploss.collectors.contract import Collector, CollectorError, Context
from stoploss.collectors.job_labels import Identities
from stoploss.collectors.log_files import Finder, Log, glob
from stoploss.collectors.logs_options import Options
from stoploss.collectors.walking import TIME_LIMIT, Tree, notes_of, shown, walk_all
from stoploss.engine.model import UNREADABLE, Bad, LabelValue, Look, Reading, ResourceId, Sample

NAME = "logs"

FIRST_GAP = 1.0
"""Seconds between the two halves of the first look."""

RULES_EVERY = 3600.0
"""Seconds for which the configuration of logrotate is not read again."""

TEXT = ("logs.lines", "logs.debug_share", "logs.error_share", "logs.repeat_ratio")
"""Signals that need the text."""


@dataclass(slots=True)
class Follower:
    """The logs of one pattern, followed while its folder is walked."""

    pattern: str
    logs: dict[str, Log] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)

    def follow(self, finder: Finder, stop: Callable[[], bool]) -> None:
        """Look once at each log that was not looked at in this look."""
        for path in finder.logs():
            if path not in self.done:
                self.done.add(path)
                self.logs.setdefault(path, Log(path)).follow(stop)

    def forget(self, kept: set[str]) -> None:
        """Only these logs are still there."""
        self.logs = {path: log for path, log in self.logs.items() if path in kept}


@dataclass(frozen=True, slots=True)
class _Known:
    """What a look knows of a log beside the log itself."""

    aside: int
    trouble: str | None
    retention: Reading
    rate: Reading


@dataclass(slots=True)
class LogsCollector:
    """Looks at the logs of one machine; `root` is where /etc and /proc lie."""

    hostname: str
    patterns: Sequence[str]
    sleep: Callable[[float], None]
    job: re.Pattern[str] | None = None
    root: Path = Path("/")
    time_limit: float = TIME_LIMIT
    _followers: list[Follower] = field(init=False)
    _trees: list[Tree[Finder]] = field(init=False)
    _first: bool = True
    _before: dict[str, tuple[float, int]] = field(default_factory=dict)
    _owners: dict[str, Mapping[str, LabelValue]] = field(default_factory=dict)
    _rules: tuple[float, list[logrotate.Rule] | Bad] | None = None

    def __post_init__(self) -> None:
        self._followers = [Follower(pattern) for pattern in self.patterns]
        self._trees = [_tree(follower) for follower in self._followers]

    def look(self, at: float) -> Look:
        """Look once; every sample carries `at`.

        Raises:
            CollectorError: none of the folders can be read.
        """
        rates = self._walk(at)
        failed = [tree for tree in self._trees if tree.trouble]
        if len(failed) == len(self._trees):
            raise CollectorError("; ".join(f"{tree.trouble}: {shown(tree.root)}" for tree in failed))
        logs: dict[str, tuple[Log, Tree[Finder]]] = {}
        for follower, tree in zip(self._followers, self._trees, strict=True):
            literal = glob(follower.pattern).literal
            if literal is not None and tree.trouble:
                follower.logs.setdefault(literal, Log(literal))
            for path, log in list(follower.logs.items()):
                logs.setdefault(path, (log, tree))
        # Asking where a path leads could hang like its folder does.
        owners = self._owners | self._labels([path for path, (_, tree) in logs.items() if not tree.hangs])
        self._owners = {path: owners[path] for path in logs if path in owners}
        rules = self._logrotate(at)
        samples: list[Sample] = []
        for path, (log, tree) in logs.items():
            finder = tree.walked or tree.under_way
            aside = finder.aside.get(path, 0) if finder is not None else 0
            rate = rates.get(path, Bad("looked at only once so far"))
            known = _Known(aside, tree.trouble, logrotate.retention(path, rules), rate)
            resource = ResourceId("log", f"{self.hostname}:{shown(path)}")
            labels = {**owners.get(path, {}), "host": self.hostname, "path": shown(path)}
            for signal, reading in log_readings(log, known, at).items():
                samples.append(Sample(at, resource, signal, reading, labels))
            if not known.trouble and not log.trouble:
                self._before[path] = (at, log.total)
        self._before = {path: before for path, before in self._before.items() if path in logs}
        notes = (*notes_of(NAME, self._trees), *self._missing())
        whole = all(tree.whole and tree.walked and not tree.walked.more for tree in self._trees)
        return Look(tuple(samples), frozenset({"log"}) if whole else frozenset(), notes)

    def _walk(self, at: float) -> dict[str, Reading]:
        """Follow all logs; returns the rate of each whose growth is known, in bytes per second."""
        first, self._first = self._first, False
        if first:
            self._follow(self.time_limit / 2)
            begun = {log.path: log.total for log in self._all() if log.inode is not None}
            self.sleep(FIRST_GAP)
            before = {path: (at - FIRST_GAP, count) for path, count in begun.items()}
        else:
            before = self._before
        self._follow(self.time_limit / 2 if first else self.time_limit)
        rates: dict[str, Reading] = {}
        for log in self._all():
            if log.path in before and at > before[log.path][0]:
                since, count = before[log.path]
                rates[log.path] = (log.total - count) / (at - since)
        return rates

    def _follow(self, limit: float) -> None:
        for follower, tree in zip(self._followers, self._trees, strict=True):
            if not tree.hangs:
                follower.done.clear()
        walk_all(self._trees, limit)
        for follower, tree in zip(self._followers, self._trees, strict=True):
            if tree.walked is not None and not tree.hangs:
                follower.forget(set(tree.walked.logs()))

    def _all(self) -> list[Log]:
        return [log for follower in self._followers for log in list(follower.logs.values())]

    def _labels(self, paths: Sequence[str]) -> dict[str, Mapping[str, LabelValue]]:
        """Path -> labels, by the names of folders or by the process that writes."""
        named: dict[str, Mapping[str, LabelValue]] = {}
        for path in paths:
            found = path_labels.labels_in(self.job, path) if self.job is not None else None
            if found is not None:
                named[path] = {name: shown(value) for name, value in found.labels.items()}
        real = {path: os.path.realpath(path) for path in paths if path not in named}
        if real:
            known = log_owners.writers(frozenset(real.values()), self.root / "proc")
            identities = Identities(self.root / "proc")
            for path, target in real.items():
                told = log_owners.labels(target, known, identities)
                before = self._owners.get(path)
                named[path] = before if before is not None and told["job"] in (None, UNREADABLE) else told
        return named

    def _logrotate(self, at: float) -> list[logrotate.Rule] | Bad:
        if self._rules is None or not 0 <= at - self._rules[0] < RULES_EVERY:
            self._rules = (at, logrotate.read(self.root))
        return self._rules[1]

    def _missing(self) -> list[str]:
        notes = []
        for follower, tree in zip(self._followers, self._trees, strict=True):
            if tree.trouble or tree.walked is None:
                continue
            if tree.walked.more:
                notes.append(
                    f"{NAME}: {shown(follower.pattern)}: only the first {len(follower.logs)} are told"
                )
            if not follower.logs:
                notes.append(f"{NAME}: {shown(follower.pattern)}: no log fits")
        return notes


def _tree(follower: Follower) -> Tree[Finder]:
    taken_apart = glob(follower.pattern)
    return Tree(taken_apart.base, lambda _: Finder(taken_apart), follower.follow)


def log_readings(log: Log, known: _Known, at: float) -> dict[str, Reading]:
    """The readings of one log; sizes in bytes, times in seconds."""
    counts = log.counts
    lines = max(1, counts.lines)
    readings: dict[str, Reading] = {
        "logs.bytes": float(log.total),
        "logs.lines": float(log.lines),
        "logs.rate": known.rate,
        "logs.size": float(log.size + known.aside),
        "logs.debug_share": counts.debug / lines,
        "logs.error_share": counts.error / lines,
        "logs.repeat_ratio": counts.repeated / lines,
        "logs.last_written": max(0.0, at - log.written),
    }
    trouble = known.trouble or log.trouble
    if trouble:
        readings = dict.fromkeys(readings, Bad(trouble))
    elif log.unread or log.binary:
        readings |= dict.fromkeys(TEXT, Bad(log.unread or "holds NUL bytes, so it is no text"))
    readings["logs.retention"] = known.retention
    return readings


def build(options: Options, context: Context) -> Collector:
    """The running collector."""
    job = path_labels.pattern_of(options.job) if options.job else None
    patterns = tuple(dict.fromkeys(options.paths))
    return LogsCollector(options.name or context.hostname, patterns, context.sleep, job)
