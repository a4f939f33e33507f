"""Reading a file or a folder once: which files there are, which of them are one run, and their logs."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, MutableSequence
from dataclasses import dataclass
from pathlib import Path

from stoploss.collectors import training
from stoploss.collectors.training import keyvalue, mlflow
from stoploss.collectors.training.curves import Assembly
from stoploss.collectors.training.records import Reader, ReadProblem
from stoploss.engine.model import TrainingLog

CHUNK = 1 << 18
"""Bytes that are read at a time."""

_CHECKPOINT = re.compile(r"checkpoint-\d+$")
_TRAINING_FOLDERS = frozenset({"train", "training"})
_EVALUATION_FOLDERS = frozenset({"validation", "val", "valid", "eval", "evaluation"})
"""Folders in which some writers keep the event files of one run's training and validation apart."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a run: where it is, its format, its bytes now."""

    path: str
    format: str
    size: int


def open_file(path: str) -> int:
    """Open a file to be read; what is no plain file (a pipe, a device) is opened without waiting.

    Raises:
        OSError: it cannot be opened.
    """
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def pieces_of(handle: int, limit: int) -> Iterator[bytes]:
    """The first pieces of an open file, as many as a format is looked for in.

    Raises:
        OSError: it cannot be read.
    """
    for index in range(training.HEADS):
        offset = index * training.HEAD
        piece = os.pread(handle, min(training.HEAD, max(0, limit - offset)), offset)
        if piece:
            yield piece
        if len(piece) < training.HEAD:
            return


class Reading:
    """One pass over a file or a folder."""

    def __init__(
        self,
        path: str,
        patterns: Iterable[str | re.Pattern[str]],
        progress: Callable[[int, int], None] | None,
        problems: MutableSequence[ReadProblem],
    ) -> None:
        self._root = path
        self._problems = problems
        self._progress = progress
        self._done = self._total = 0
        self._patterns: tuple[re.Pattern[str], ...] = ()
        try:
            self._patterns = keyvalue.compiled(patterns)
        except ValueError as error:
            self._problem(path, f"the pattern cannot be used: {error}")

    def run(self) -> tuple[TrainingLog, ...]:
        """Read it."""
        if training.is_regular(self._root):
            found = [self._part(self._root, alone=True)]
        elif os.path.isdir(self._root):
            found = [self._part(path, alone=False) for path in self._files()]
            if not any(found):
                self._problem(self._root, f"no training log among {len(found)} files")
        else:
            found = []
            self._problem(
                self._root, "no such file or folder" if not os.path.lexists(self._root) else "no file"
            )
        runs: dict[tuple[str, str], list[Part]] = {}
        for part in found:
            if part is not None:
                runs.setdefault((part.format, self._run_of(part)), []).append(part)
        for key, parts in runs.items():
            if key[0] == "hf_state":
                # Each checkpoint holds the history up to it, so that the longest holds them all.
                runs[key] = [max(parts, key=lambda part: part.size)]
        self._total = sum(part.size for parts in runs.values() for part in parts)
        named = Counter(self._name(run) for _, run in runs)
        return tuple(
            log
            for (_, run), parts in runs.items()
            for log in self._logs(run, parts, unique=named[self._name(run)] == 1)
        )

    def _problem(self, path: str, message: str) -> None:
        self._problems.append(ReadProblem(path, message))

    def _files(self) -> Iterator[str]:
        def denied(error: OSError) -> None:
            self._problem(str(error.filename), _words(error))

        for folder, inner, files in os.walk(self._root, onerror=denied):
            inner.sort()
            for name in sorted(files):
                path = os.path.join(folder, name)
                if not os.path.islink(path) and training.is_regular(path):
                    yield path

    def _part(self, path: str, *, alone: bool) -> Part | None:
        """The file as part of a run; None where it is no training log."""
        try:
            handle = open_file(path)
            try:
                size = os.fstat(handle).st_size
                reader = training.reader_for(pieces_of(handle, size), "", self._patterns)
            finally:
                os.close(handle)
        except OSError as error:
            self._problem(path, _words(error))
            return None
        if reader is None and alone:
            self._problem(path, "the file is empty" if size == 0 else "no known format of training log")
        return Part(path, reader.name, size) if reader is not None else None

    def _run_of(self, part: Part) -> str:
        """The file or folder that stands for the run."""
        folder = Path(part.path).parent
        if part.format == "tensorboard":
            apart = folder.name.lower() in _TRAINING_FOLDERS | _EVALUATION_FOLDERS
            return str(folder.parent if apart and folder != Path(self._root) else folder)
        # A file of another name is a run of its own, however many lie in one folder.
        named = Path(part.path).name == "trainer_state.json"
        if part.format == "hf_state" and named and not training.is_regular(self._root):
            inner = _CHECKPOINT.search(folder.name) and folder != Path(self._root)
            return str(folder.parent if inner else folder)
        if part.format == "mlflow":
            metrics = _metrics_folder(part.path)
            return str(metrics.parent) if metrics is not None else part.path
        return part.path

    def _logs(self, run: str, parts: list[Part], *, unique: bool) -> tuple[TrainingLog, ...]:
        assembly = Assembly()
        reader: Reader | None = None
        for part in parts:
            # Bytes can be anything: a fault in one file must not take the others with it.
            try:
                reader = self._pour(part, reader, assembly)
            except OSError as error:
                self._problem(part.path, _words(error))
            except Exception as error:
                self._problem(part.path, f"cannot be read: {type(error).__name__}: {error}")
        if reader is None:
            return ()
        name = self._name(run) if unique else os.path.relpath(run, self._root)
        if reader.name == "mlflow":
            name = self._declared(run, reader) or name
        logs = assembly.logs(reader, run, name)
        if not any(log.curves for log in logs):
            self._problem(run, f"{reader.name}: no record could be read")
        return logs

    def _pour(self, part: Part, reader: Reader | None, assembly: Assembly) -> Reader:
        handle = open_file(part.path)
        try:
            if reader is None:
                made = training.reader_for(pieces_of(handle, part.size), "", self._patterns)
                if made is None:
                    raise OSError(0, "the file changed while it was read")
                reader = made
            else:
                reader.restart()
            prepare(reader, part.path)
            while data := os.read(handle, CHUNK):
                reader.feed(data)
                assembly.extend(reader.take())
                self._done += len(data)
                if self._progress is not None:
                    self._progress(self._done, max(self._done, self._total))
            reader.end()
            assembly.extend(reader.take())
        finally:
            os.close(handle)
        return reader

    def _declared(self, run: str, reader: Reader) -> str:
        try:
            with open(os.path.join(run, "meta.yaml"), "rb") as file:
                facts, name = mlflow.facts_of(file.read(1 << 16).decode("utf-8", "replace"))
        except OSError:
            return ""
        reader.facts[0].update(facts)
        return name

    def _name(self, run: str) -> str:
        if run == self._root or not run.startswith(self._root):
            path = Path(run)
            return path.name if path.is_dir() else path.name.split(".")[0] or path.name
        relative = os.path.relpath(run, self._root)
        return os.path.splitext(relative)[0] if os.path.isfile(run) else relative


def _metrics_folder(path: str) -> Path | None:
    return next((parent for parent in Path(path).parents if parent.name == "metrics"), None)


def _subject(path: str) -> str:
    metrics = _metrics_folder(path)
    return os.path.relpath(path, metrics) if metrics is not None else os.path.basename(path)


def _mark_stage(reader: Reader, path: str) -> None:
    from stoploss.collectors.training.tensorboard import EventReader

    if isinstance(reader, EventReader):
        reader.prefix = "eval" if Path(path).parent.name.lower() in _EVALUATION_FOLDERS else ""


def prepare(reader: Reader, path: str) -> Reader:
    """Tell a reader what the place of its file says: the name of a metric, or that it is an evaluation's."""
    reader.subject = _subject(path)
    _mark_stage(reader, path)
    return reader


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
