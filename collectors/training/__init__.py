"""Readers of training logs: one module per format, found by what a file holds and not by its name.

`read` reads a file or a folder once; `stoploss.collectors.training.tail` follows a file that grows.
"""

from __future__ import annotations

import importlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stoploss.collectors.training.records import Reader, ReadProblem
    from stoploss.engine.model import TrainingLog

READERS: Final[Mapping[str, str]] = {
    "tensorboard": "stoploss.collectors.training.tensorboard",
    "mllog": "stoploss.collectors.training.mllog",
    "hf_state": "stoploss.collectors.training.hf_state",
    "hf_stdout": "stoploss.collectors.training.hf_stdout",
    "megatron": "stoploss.collectors.training.megatron",
    "jsonl": "stoploss.collectors.training.jsonl",
    "lightning_csv": "stoploss.collectors.training.lightning_csv",
    "generic_csv": "stoploss.collectors.training.generic_csv",
    "mlflow": "stoploss.collectors.training.mlflow",
    "keyvalue": "stoploss.collectors.training.keyvalue",
}
"""Format -> its module, in the order in which they are tried."""

HEAD: Final = 1 << 16
"""Bytes of a file that are looked at together to find its format."""

HEADS: Final = 16
"""How many such pieces are looked at: a log may begin with a long preamble."""

_AHEAD_OF_PATTERNS = ("tensorboard", "mllog", "hf_state")
"""Formats that no user's pattern is meant for."""


def detect(head: bytes) -> str | None:
    """The format of a file that begins with these bytes; None where it is none of ours."""
    from stoploss.collectors.training.lines import is_binary, text_of

    text = text_of(head)
    lines = [] if is_binary(text) else [line for line in text.split("\n") if line.strip()]
    for name, module in READERS.items():
        if (name == "tensorboard" or lines) and importlib.import_module(module).fits(head, lines):
            return name
    return None


def reader_for(
    pieces: Iterable[bytes], subject: str = "", patterns: Sequence[re.Pattern[str]] = ()
) -> Reader | None:
    """A new reader for a file, given its first pieces one after the other; None where no format fits.

    Args:
        pieces: bytes of the file from its beginning; only as many are taken as are needed.
        subject: the file's own name, which tells the signal in some formats.
        patterns: a user's patterns, for text of no format of its own.
    """
    from stoploss.collectors.training.keyvalue import PatternReader, described
    from stoploss.collectors.training.lines import is_binary, text_of

    for index, piece in enumerate(pieces):
        name, text = detect(piece), text_of(piece)
        if patterns and name not in _AHEAD_OF_PATTERNS and described(patterns, text.split("\n")):
            return PatternReader(subject, patterns)
        if name is not None:
            reader: Reader = importlib.import_module(READERS[name]).READER(subject)
            return reader
        if index == 0 and is_binary(text):
            return None
    return None


def read(
    path: str | os.PathLike[str],
    *,
    patterns: Iterable[str | re.Pattern[str]] = (),
    progress: Callable[[int, int], None] | None = None,
    problems: MutableSequence[ReadProblem] | None = None,
) -> tuple[TrainingLog, ...]:
    """All runs that a file, or the files in a folder and below, tell of.

    What cannot be read is a problem or a note and never an error; the rest is read.

    Args:
        path: a file or a folder. Symbolic links in a folder are not followed.
        patterns: regular expressions with named groups, for text of no format of its own.
        progress: is told how many bytes are read, and of how many.
        problems: gets what could not be read, and why.
    """
    from stoploss.collectors.training.reading import Reading

    return Reading(os.fspath(path), patterns, progress, [] if problems is None else problems).run()


def is_regular(path: str) -> bool:
    """Whether the path is a plain file; a link to one is too."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False
