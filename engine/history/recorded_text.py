"""Whole lines of a recorded file, block by block: plain or gzip, however it ends."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stoploss.engine.history.recorded_problems import Problems, Unreadable

LONGEST_LINE = 1_000_000
"""Bytes; a longer line is skipped."""
_BLOCK = 1 << 18


@dataclass(frozen=True, slots=True)
class Lines:
    """Consecutive lines as one text, the first one's number, and whether the last one ends as a line does."""

    text: str
    first: int
    ended: bool = True

    def split(self) -> list[str]:
        """The lines one by one."""
        return self.text.split("\n")


def read_lines(path: Path, problems: Problems, advance: Callable[[int], None]) -> Iterator[Lines]:
    """The lines of a file in blocks that fit the processor's cache.

    Args:
        path: a text file; gzip when its name ends in .gz.
        problems: takes what is wrong but can be passed over.
        advance: is told how many bytes of the file have been read in all.

    Raises:
        Unreadable: nothing of the file can be used.
    """
    cutter = _Cutter(path, problems)
    for piece in _pieces(path, problems, cutter, advance):
        yield from cutter.take(piece)
    yield from cutter.finish()


def _pieces(
    path: Path, problems: Problems, cutter: _Cutter, advance: Callable[[int], None]
) -> Iterator[bytes]:
    held = bytearray()
    try:
        with path.open("rb", buffering=0) as raw:
            stream = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            # read1 gives what there is before it meets the damage, read would lose it.
            read = stream.read1 if isinstance(stream, gzip.GzipFile) else stream.read
            while piece := read(_BLOCK):
                held += piece
                if len(held) >= _BLOCK:
                    advance(raw.tell())
                    yield bytes(held)
                    held.clear()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        if not cutter.consumed and not held:
            raise Unreadable("recorded-damaged", f"the file cannot be unpacked: {error}") from error
        yield bytes(held)
        message = "the gzip file is cut off or damaged; the rows before that are used"
        problems.tell("recorded-truncated", message, path, cutter.line)
    except OSError as error:
        raise Unreadable(
            "recorded-unreadable", f"the file cannot be read: {error.strerror or error}"
        ) from error
    else:
        yield bytes(held)


class _Cutter:
    """Cuts pieces of bytes at line ends, and drops lines that are too long."""

    def __init__(self, path: Path, problems: Problems) -> None:
        self._path, self._problems = path, problems
        self.line, self.consumed = 1, 0
        self._offset = 0
        self._rest = b""
        self._skipping = False

    def take(self, piece: bytes) -> Iterator[Lines]:
        """The lines that are complete with this piece."""
        if not self.consumed and piece.startswith(b"\xef\xbb\xbf"):
            self._offset = 3
            piece = piece[3:]
        self.consumed += len(piece)
        head, newline, tail = piece.rpartition(b"\n")
        if not newline:
            self._keep(self._rest + tail)
            return
        if self._skipping or len(self._rest) + piece.index(b"\n") > LONGEST_LINE:
            self._tell_long()
            dropped, _, others = (head + newline).partition(b"\n")
            self._offset += len(self._rest) + len(dropped) + 1
            self._rest, self._skipping = b"", False
            self.line += 1
            if others:
                yield self._decoded(others[:-1])
        else:
            yield self._decoded(self._rest + head)
        self._keep(tail)

    def finish(self) -> Iterator[Lines]:
        """The last line where no line end follows it."""
        if self._skipping:
            self._tell_long()
        elif self._rest:
            yield self._decoded(self._rest, ended=False)

    def _keep(self, rest: bytes) -> None:
        if self._skipping or len(rest) > LONGEST_LINE:
            self._skipping = True
            self._offset += len(rest)
            rest = b""
        self._rest = rest

    def _tell_long(self) -> None:
        self._problems.tell(
            "recorded-long-line",
            f"a line of more than {LONGEST_LINE:,} bytes is skipped",
            self._path,
            self.line,
        )

    def _decoded(self, data: bytes, *, ended: bool = True) -> Lines:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            place = self._offset + error.start
            line = self.line + data.count(b"\n", 0, error.start)
            raise Unreadable(
                "recorded-encoding",
                f"byte {place} is not UTF-8 (0x{data[error.start]:02x})",
                line,
                fix="save the file as UTF-8",
            ) from error
        lines = Lines(text, self.line, ended)
        self.line += text.count("\n") + 1
        self._offset += len(data) + 1
        return lines
