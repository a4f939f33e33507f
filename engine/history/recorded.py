"""Signals recorded in files: CSV, JSON lines or Parquet.

One row is one reading: `time, resource, kind, signal, value`, optionally `every` and any
`label.NAME`. Files are read once, in order of their names; frames of any resolution are then
folded from memory.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from stoploss.engine.history.assemble import Extras, assemble
from stoploss.engine.history.frame import Frame
from stoploss.engine.history.material import Material, build
from stoploss.engine.history.recorded_cells import Chunk, Intake
from stoploss.engine.history.recorded_csv import read_csv
from stoploss.engine.history.recorded_jsonl import read_jsonl
from stoploss.engine.history.recorded_parquet import read_parquet
from stoploss.engine.history.recorded_problems import Problems, Unreadable
from stoploss.engine.history.rows import Block, Rows
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.diagnostics import Diagnostic

Reader: TypeAlias = Callable[[Path, Intake, Problems, Callable[[int], None]], Iterator[Chunk]]

READERS: dict[str, Reader] = {
    ".csv": read_csv,
    ".csv.gz": read_csv,
    ".jsonl": read_jsonl,
    ".jsonl.gz": read_jsonl,
    ".parquet": read_parquet,
}
"""Reader by the end of a file's name."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What was read.

    Attributes:
        material: all readings.
        problems: what is wrong with the files; a file with an error was not used.
        notes: words for people about how the files were understood.
        files: the files that were used, in the order in which they were read.
    """

    material: Material
    problems: tuple[Diagnostic, ...]
    notes: tuple[str, ...]
    files: tuple[Path, ...]

    @property
    def samples(self) -> int:
        """How many readings there are; of two of one series and instant one counts."""
        return self.material.count

    @property
    def first_time(self) -> float | None:
        """The oldest instant in seconds since the epoch; None without readings."""
        return min((float(r.times.min()) for r in self.material.readings.values()), default=None)

    @property
    def last_time(self) -> float | None:
        """The newest instant in seconds since the epoch; None without readings."""
        return max((float(r.times.max()) for r in self.material.readings.values()), default=None)

    def frame(self, resolution: float, *, until: float | None = None) -> Frame:
        """The slots that ended by `until` (default: through the one that holds the newest reading).

        Columns and cadences are the same whatever `until` is.

        Args:
            resolution: seconds per slot.
            until: seconds since the epoch.

        Raises:
            FrameTooLarge: the readings span more slots than memory should be asked for.
        """
        return assemble(self.material, Extras(), resolution, until)


def read_recorded(
    paths: Iterable[str | Path],
    *,
    catalogue: Catalogue,
    timezone: str,
    progress: Callable[[float], None] | None = None,
) -> Recording:
    """Read files, and folders with all recordings in them.

    Of two rows of one series and instant the later one counts; files come in order of their
    names, whatever the order of `paths`.

    Args:
        paths: files or folders.
        catalogue: the signals that are known.
        timezone: IANA name of the zone of times without an offset.
        progress: is told the share that has been read, from 0 to 1.
    """
    problems, rows = Problems(), Rows()
    given = [Path(path) for path in paths]
    files = _files(given, problems)
    intake = Intake(rows, catalogue, timezone, problems)
    total = sum(size for _, size in files.values()) or 1
    before = 0
    blocks: list[Block] = []
    used: list[Path] = []
    for path, (reader, size) in files.items():

        def advance(read: int, before: int = before) -> None:
            if progress is not None:
                progress(min((before + read) / total, 1.0))

        if _take(path, partial(reader, path, intake, problems, advance), (intake, problems), blocks):
            used.append(path)
        before += size
    if progress is not None:
        progress(1.0)
    material = build(rows, blocks, ordered=True)
    if not material.count and not problems.has_errors:
        shown = given[0] if given else Path()
        problems.tell(
            "recorded-nothing", f"no sample could be read from {_counted(len(files), 'file')}", shown
        )
    return Recording(material, problems.listed(), intake.notes, tuple(used))


def _take(
    path: Path, chunks: Callable[[], Iterator[Chunk]], taker: tuple[Intake, Problems], blocks: list[Block]
) -> bool:
    """Add a file's rows to `blocks`, all or, when the file cannot be used, none."""
    intake, problems = taker
    start = len(blocks)
    try:
        blocks.extend(block for chunk in chunks() if (block := intake.take(chunk)))
    except Unreadable as error:
        problems.tell_unreadable(path, error)
        del blocks[start:]
        return False
    if len(blocks) == start and not problems.speaks_of(path):
        problems.tell("recorded-empty", "the file holds no rows", path)
    return True


@contextmanager
def _without_collection() -> Iterator[None]:
    """No search for reference cycles meanwhile: reading makes millions of cells and no cycle."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _files(paths: Iterable[Path], problems: Problems) -> dict[Path, tuple[Reader, int]]:
    """Reader and size of every file, in order of names, each file once."""
    found: dict[Path, Path] = {}
    for path in paths:
        if path.is_dir():
            inside = [file for file in sorted(path.rglob("*")) if _reader(file) and file.is_file()]
            if not inside:
                problems.tell("recorded-nothing", f"the folder holds no {', '.join(READERS)} file", path)
            found |= {file.resolve(): file for file in inside}
        elif _reader(path) is None and path.exists():
            fix = f"names end in {', '.join(READERS)}"
            problems.tell(
                "recorded-unreadable", "the name does not say which format the file has", path, fix=fix
            )
        else:
            found[path.resolve()] = path
    files: dict[Path, tuple[Reader, int]] = {}
    for path in sorted(found.values()):
        try:
            size = path.stat().st_size
        except OSError as error:
            problems.tell("recorded-unreadable", f"the file cannot be read: {error.strerror}", path)
            continue
        reader = _reader(path)
        if reader is not None:
            files[path] = (reader, size)
    return files


def _reader(path: Path) -> Reader | None:
    return next((reader for end, reader in READERS.items() if path.name.lower().endswith(end)), None)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
