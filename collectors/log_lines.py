"""What lines of a log tell: their level, and how many repeat another but for its numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass

HEAD = 400
"""Bytes of a line in which its level is looked for, and by which it is compared."""

_WORDS = {
    b"trace": "debug",
    b"debug": "debug",
    b"verbose": "debug",
    b"info": "other",
    b"notice": "other",
    b"warn": "other",
    b"warning": "other",
    b"err": "error",
    b"error": "error",
    b"critical": "error",
    b"fatal": "error",
    b"panic": "error",
    b"alert": "error",
    b"emerg": "error",
}
# The longer of two words that begin alike comes first.
_ANY = b"|".join(sorted(_WORDS, reverse=True))
# In running text a level is no level: it stands in capitals, in brackets, or behind its key.
_LEVEL = re.compile(
    rb"\b(" + _ANY.upper() + rb")\b"
    rb"|[\[(<|](?i:(" + _ANY + rb"))[\])>|]"
    rb"|(?:level|lvl|severity)[\"']?\s*[=:]\s*[\"']?(?:(?i:(" + _ANY + rb"))\b|(\d\d)\b)"
    rb"|^\s*(?i:(" + _ANY + rb")):"
)
_GLOG = re.compile(rb"([DIWEF])\d{4} \d\d:")
_GLOG_LEVELS = {b"D": "debug", b"E": "error", b"F": "error"}
_NUMBER = re.compile(rb"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|[-+]?\d+(?:[.,:eE]?[-+]?\d+)*")


@dataclass(frozen=True, slots=True)
class Counts:
    """Lines in all, at debug level or below, at error level or above, and repeated."""

    lines: int = 0
    debug: int = 0
    error: int = 0
    repeated: int = 0


def is_text(data: bytes) -> bool:
    """Whether data looks like text; NUL bytes at its beginning are what a truncation leaves."""
    return b"\0" not in data.lstrip(b"\0")


def counted(data: bytes) -> Counts:
    """Counts over the lines of data, of which each ends with a line feed."""
    debug = error = repeated = 0
    seen: set[bytes] = set()
    lines = data.splitlines() if b"\n" in data else []
    for line in lines:
        found = level(line)
        debug += found == "debug"
        error += found == "error"
        key = _NUMBER.sub(b"#", line[:HEAD])
        repeated += key in seen
        seen.add(key)
    return Counts(len(lines), debug, error, repeated)


def level(line: bytes) -> str | None:
    """`debug`, `error` or `other` by the first level that a line names; None where it names none."""
    head = line[:HEAD]
    if glog := _GLOG.match(head):
        return _GLOG_LEVELS.get(glog[1], "other")
    match = _LEVEL.search(head)
    if match is None:
        return None
    if match[4]:
        # Some loggers write the level as a number: 10 and 20 are below information, 50 is an error.
        number = int(match[4])
        return "debug" if number <= 20 else "error" if number >= 50 else "other"
    word = next(group for group in match.groups() if group)
    return _WORDS[word.lower()]
