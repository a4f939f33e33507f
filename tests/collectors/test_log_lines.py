"""What lines of logs tell: levels, repeats, garbage; and how long logrotate keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoploss.collectors import log_lines, logrotate
from stoploss.collectors.log_lines import Counts
from stoploss.engine.model import Bad


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (b"2026-01-01 12:00:00,123 DEBUG trainer: step 5", "debug"),
        (b"INFO:root:an error happened and was handled", "other"),
        (b"[error] cannot open file", "error"),
        (b"error: cannot open file", "error"),
        (b"ts=1 level=debug msg=hello", "debug"),
        (b'{"time": 1, "level": "ERROR", "msg": "x"}', "error"),
        (b'{"level":20,"msg":"x"}', "debug"),
        (b'{"level":50,"msg":"x"}', "error"),
        (b'{"level":30,"msg":"x"}', "other"),
        (b"E0102 12:00:00.1 5 file.cc:1] failed", "error"),
        (b"I0102 12:00:00.1 5 file.cc:1] fine", "other"),
        (b"node1:12:34 [0] NCCL INFO Channel 00", "other"),
        (b"12:00 | TRACE | x", "debug"),
        (b"CRITICAL out of memory", "error"),
        (b"WARNING: slow", "other"),
        (b"the training error went down", None),
        (b"step 100 loss 2.31", None),
        (b"DEBUGGER attached", None),
        (b"", None),
        (b"\xff\xfe\x80", None),
        (b"x" * 500 + b" ERROR", None),
    ],
)
def test_levels(line: bytes, level: str | None) -> None:
    """A level is a word in capitals, in brackets or behind its key; in running text it is none."""
    assert log_lines.level(line) == level


def test_lines_that_differ_in_numbers_only_repeat() -> None:
    """A line repeats another that is equal but for numbers and addresses; the first is no repeat."""
    data = b"step 1 loss 2.5\nstep 20 loss 1e-05\nDEBUG at 0x7fff\nDEBUG at 0x1\nERROR other\n"

    assert log_lines.counted(data) == Counts(lines=5, debug=2, error=1, repeated=2)
    assert log_lines.counted(b"") == Counts()


@given(st.binary(max_size=400))
def test_shares_are_shares_for_any_bytes(data: bytes) -> None:
    """Whatever bytes a log holds, no part is larger than the whole."""
    counts = log_lines.counted(data + b"\n")

    assert counts.lines >= 1
    assert 0 <= counts.debug + counts.error <= counts.lines
    assert 0 <= counts.repeated < counts.lines


def test_nul_bytes_are_no_text_but_after_a_truncation() -> None:
    """NUL bytes at the beginning are what a truncated log leaves; elsewhere they are no text."""
    assert log_lines.is_text(b"\0\0\0hello\n")
    assert not log_lines.is_text("hello".encode("utf-16-le"))
    assert not log_lines.is_text(b"\x7fELF\x02\0\0")


CONFIG = """
# defaults
weekly
rotate 4
include /etc/logrotate.d
/var/log/wtmp {
    monthly
    rotate 1
}
"""
TRAIN = """
"/runs/*/train.log" /runs/*/eval.log {
    daily
    rotate 60
    maxage 30
    postrotate
        rotate 99
    endscript
}
/runs/size.log { size 100M
  rotate 3 }
/runs/forever.log { rotate -1 }
/runs/plain.log {
}
"""


def test_retention_by_logrotate(tmp_path: Path) -> None:
    """Rotated files times the period, at most the age; defaults and included files count."""
    (tmp_path / "etc/logrotate.d").mkdir(parents=True)
    (tmp_path / "etc/logrotate.conf").write_text(CONFIG)
    (tmp_path / "etc/logrotate.d/train").write_text(TRAIN)
    day = 86_400.0

    rules = logrotate.read(tmp_path)
    told = {
        path: logrotate.retention(path, rules)
        for path in (
            "/var/log/wtmp",
            "/runs/a/train.log",
            "/runs/a/eval.log",
            "/runs/size.log",
            "/runs/forever.log",
            "/runs/plain.log",
            "/other.log",
        )
    }

    assert told == {
        "/var/log/wtmp": 30 * day,
        "/runs/a/train.log": 30 * day,
        "/runs/a/eval.log": 30 * day,
        "/runs/size.log": Bad("logrotate goes by size, not by time"),
        "/runs/forever.log": logrotate.FOREVER,
        "/runs/plain.log": 28 * day,
        "/other.log": Bad("no rule of logrotate names it"),
    }


def test_without_logrotate_nothing_is_known_of_retention(tmp_path: Path) -> None:
    """A machine without logrotate makes retention a bad reading."""
    assert logrotate.retention("/a.log", logrotate.read(tmp_path)) == Bad("no /etc/logrotate.conf")


@given(st.text(max_size=200))
def test_any_configuration_is_read(text: str) -> None:
    """A configuration that is garbage gives rules or none, never an error."""
    rules, _, _ = logrotate.parse(text, logrotate.Rule())

    assert all(rule.retention is not None for rule in rules)
