"""How long logs are kept, by the configuration of logrotate."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from stoploss.collectors.walking import words_of
from stoploss.engine.model import Bad, Reading

DAY = 86_400.0

PERIODS = {"hourly": 3600.0, "daily": DAY, "weekly": 7 * DAY, "monthly": 30 * DAY, "yearly": 365 * DAY}
"""Directive -> seconds between two rotations."""

FOREVER = 100 * 365 * DAY
"""Seconds that stand for `without an end`."""

_SCRIPTS = ("postrotate", "prerotate", "firstaction", "lastaction", "preremove")


@dataclass(frozen=True, slots=True)
class Rule:
    """What is said of logs of these patterns; times in seconds.

    Attributes:
        kept: rotated files that are kept; -1 keeps all.
        period: time between two rotations, None where only the size decides.
        oldest: age at which a rotated file is removed, if any.
    """

    patterns: tuple[str, ...] = ()
    kept: int = 0
    period: float | None = None
    oldest: float | None = None

    @property
    def retention(self) -> Reading:
        """For how long rotated files are kept, in seconds."""
        if self.kept < 0 or self.period is None:
            if self.oldest is not None:
                return self.oldest
            return FOREVER if self.kept < 0 else Bad("logrotate goes by size, not by time")
        time = max(1, self.kept) * self.period
        return time if self.oldest is None else min(time, self.oldest)


def parse(text: str, base: Rule) -> tuple[list[Rule], Rule, list[str]]:
    """The rules of a configuration, the defaults after it, and what it includes.

    What is not understood is passed over: logrotate itself tells of mistakes.
    """
    rules: list[Rule] = []
    includes: list[str] = []
    heads: list[str] = []
    inside: Rule | None = None
    script = False
    for line in text.replace("{", " {\n").replace("}", "\n}\n").splitlines():
        words = _words(line)
        if not words:
            continue
        if script:
            script = words[0] != "endscript"
        elif words[0] in _SCRIPTS:
            script = True
        elif words[-1] == "{":
            inside = Rule((*heads, *words[:-1]), base.kept, base.period, base.oldest)
            heads = []
        elif words[0] == "}":
            rules += [inside] if inside is not None else []
            inside = None
        elif inside is not None:
            inside = _told(inside, words)
        elif words[0].startswith(("/", '"')):
            heads += words
        elif words[0] == "include" and len(words) > 1:
            includes.append(words[1])
        else:
            base = _told(base, words)
    return rules, base, includes


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def _told(rule: Rule, words: list[str]) -> Rule:
    kept, period, oldest = rule.kept, rule.period, rule.oldest
    name, value = words[0], words[1] if len(words) > 1 else ""
    if name in PERIODS:
        period = PERIODS[name]
    elif name == "size":
        period = None
    elif value.lstrip("-").isdigit():
        if name == "rotate":
            kept = int(value)
        elif name == "maxage":
            oldest = int(value) * DAY
    return Rule(rule.patterns, kept, period, oldest)


def read(root: Path = Path("/")) -> list[Rule] | Bad:
    """All rules of this machine, or why there are none; `root` is where /etc lies."""
    main = root / "etc/logrotate.conf"
    try:
        rules, base, includes = parse(main.read_text("utf-8", "replace"), Rule())
    except FileNotFoundError:
        return Bad("no /etc/logrotate.conf")
    except OSError as error:
        return Bad(f"/etc/logrotate.conf: {words_of(error)}")
    for path in _included(root, includes):
        try:
            more, _, _ = parse(path.read_text("utf-8", "replace"), base)
        except OSError:
            # A file that only root may read is as if it were not there.
            continue
        rules += more
    return rules


def _included(root: Path, includes: Iterable[str]) -> list[Path]:
    found: list[Path] = []
    for name in includes:
        path = root / name.lstrip("/")
        try:
            found += sorted(path.iterdir()) if path.is_dir() else [path]
        except OSError:
            continue
    return found


def retention(path: str, rules: list[Rule] | Bad) -> Reading:
    """For how long a log is kept, in seconds."""
    if isinstance(rules, Bad):
        return rules
    for rule in rules:
        if any(fnmatchcase(path, pattern) for pattern in rule.patterns):
            return rule.retention
    return Bad("no rule of logrotate names it")
