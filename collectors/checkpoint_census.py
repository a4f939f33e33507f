"""Finds the checkpoints in a tree while it is walked, and looks into what is new or has changed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stoploss.collectors import checkpoint_layouts as layouts
from stoploss.collectors.walking import TRASH, read_unnoticed, shown, words_of

MOST = 5000
"""Checkpoints kept of one tree; of more only their being there is told."""

HEADERS_READ = 256
"""Files of one checkpoint whose header is read."""

LONGEST_FACTS = 65_536
"""Bytes of a run.json that are read."""

JOB_FILE, RUN_FILE = "STOPLOSS_JOB", "run.json"

RUN_LABELS = (
    "job",
    "team",
    "user",
    "owner",
    "class",
    "stage",
    "env",
    "experiment",
    "trial",
    "recipe",
    "keep",
    "asg",
)
"""Labels that a run.json can give."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint as a walk saw it; times in seconds since the epoch, sizes in bytes.

    Attributes:
        oldest: the first write of its files.
        newest: the last.
        problem: what its own files lack to be whole, else None.
        markers: marker files that it has.
        trouble: why some of it cannot be read, else None.
        best: the name of the best one, as it knows; None where it does not say.
        knows_best: whether it says anything of that kind.
        steady: whether the walk before saw just the same.
    """

    path: str
    name: layouts.Name
    size: int
    files: int
    oldest: float
    newest: float
    problem: str | None
    markers: frozenset[str]
    trouble: str | None = None
    best: str | None = None
    knows_best: bool = False
    steady: bool = False
    sharded: bool = False

    @property
    def parent(self) -> str:
        """The folder that it lies in."""
        return os.path.dirname(self.path)


@dataclass(slots=True)
class Draft:
    """A checkpoint whose files are being added up."""

    path: str
    name: layouts.Name
    made: float
    size: int = 0
    files: int = 0
    oldest: float | None = None
    newest: float | None = None
    weights: list[tuple[str, int]] = field(default_factory=list)
    indexes: list[str] = field(default_factory=list)
    markers: set[str] = field(default_factory=set)
    trouble: str | None = None
    sharded: bool = False

    def add(self, folder: str, name: str, status: os.stat_result) -> None:
        """Add one file."""
        path = f"{folder}/{name}"
        self.size += status.st_size
        self.files += 1
        time = status.st_mtime
        self.oldest = time if self.oldest is None else min(self.oldest, time)
        self.newest = time if self.newest is None else max(self.newest, time)
        if name.endswith(layouts.WEIGHTS) and len(self.weights) < HEADERS_READ:
            self.weights.append((path, status.st_size))
        if folder == self.path:
            if name in layouts.MARKERS:
                self.markers.add(name)
            self.sharded = self.sharded or name.endswith(".distcp")
            if layouts.INDEX.fullmatch(name):
                self.indexes.append(path)


@dataclass(slots=True)
class Census:
    """The checkpoints of one walk.

    Attributes:
        before: what the last whole walk found, by path.
        found: what this one has found so far.
        trackers: folder and name of a tracker file in it -> the step that it names.
        facts: folder -> labels that lie in files there.
        more: whether there were too many.
    """

    before: Mapping[str, Checkpoint] = field(default_factory=dict)
    found: dict[str, Checkpoint] = field(default_factory=dict)
    trackers: dict[tuple[str, str], int | None] = field(default_factory=dict)
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    more: bool = False
    _draft: Draft | None = None
    _loose: list[tuple[Draft, list[Draft]]] = field(default_factory=list)

    def enter(self, folder: str, status: os.stat_result) -> bool:
        """A folder begins: a checkpoint's, a part of one, or one that may hold some."""
        if os.path.basename(folder) == TRASH:
            return False
        if self._draft is None:
            # The folder that was asked for may have a checkpoint's name itself.
            name = layouts.folder(os.path.basename(folder))
            if name is not None:
                self._draft = Draft(folder, name, status.st_mtime)
            else:
                own = Draft(folder, layouts.Name("huggingface"), status.st_mtime)
                self._loose.append((own, []))
        return True

    def file(self, folder: str, name: str, status: os.stat_result) -> None:
        """A file: part of a checkpoint, one by itself, a tracker, or a file with labels."""
        if self._draft is not None:
            self._draft.add(folder, name, status)
            return
        own, single = self._loose[-1]
        own.add(folder, name, status)
        kind = layouts.file(name)
        if kind is not None:
            if len(self.found) + len(single) < MOST:
                draft = Draft(f"{folder}/{name}", kind, status.st_mtime)
                draft.add(folder, name, status)
                single.append(draft)
            else:
                self.more = True
        elif name in (layouts.DEEPSPEED, layouts.MEGATRON):
            self._read(f"{folder}/{name}", lambda text: self._track((folder, name), text))
        elif name in (JOB_FILE, RUN_FILE):
            self._read(f"{folder}/{name}", lambda text: self._learn(folder, name, text))

    def leave(self, folder: str) -> None:
        """A folder is through: what was found in it is looked into."""
        if self._draft is not None:
            if self._draft.path == folder:
                self._keep(self._draft)
                self._draft = None
            return
        own, single = self._loose.pop()
        # The shards that an index lists are one checkpoint, whatever the folder is called.
        for draft in [own] if own.indexes else single:
            self._keep(draft)

    def denied(self, folder: str, reason: str) -> None:
        """A folder cannot be read; within a checkpoint that makes all of it unreadable."""
        if self._draft is not None:
            self._draft.trouble = reason

    def _keep(self, draft: Draft) -> None:
        if len(self.found) >= MOST:
            self.more = True
            return
        # A folder without files is as old as itself.
        newest = draft.made if draft.newest is None else draft.newest
        before = self.before.get(draft.path)
        same = before is not None and (before.size, before.files, before.newest) == (
            draft.size,
            draft.files,
            newest,
        )
        if before is not None and same and not (before.problem or before.trouble or draft.trouble):
            inside = Inside(None, None, before.best, before.knows_best)
        else:
            inside = _looked_into(draft)
        self.found[draft.path] = Checkpoint(
            draft.path,
            draft.name,
            draft.size,
            draft.files,
            newest if draft.oldest is None else draft.oldest,
            newest,
            inside.problem,
            frozenset(draft.markers),
            inside.trouble,
            inside.best,
            inside.knows_best,
            steady=same,
            sharded=draft.sharded,
        )

    def _read(self, path: str, use: Callable[[bytes], None]) -> None:
        try:
            use(read_unnoticed(path, LONGEST_FACTS))
        except FileNotFoundError:
            return
        except OSError as error:
            self.unread.append(f"{shown(path)} ({words_of(error)})")

    def _track(self, key: tuple[str, str], text: bytes) -> None:
        self.trackers[key] = layouts.tracked(text)

    def _learn(self, folder: str, name: str, text: bytes) -> None:
        facts = self.facts.setdefault(folder, {})
        if name == JOB_FILE:
            lines = text.decode("utf-8", "replace").strip().splitlines()
            if lines:
                facts["job"] = lines[0].strip()
            return
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict):
            self.unread.append(f"{shown(folder)}/{name} (no JSON object)")
            return
        for label in RUN_LABELS:
            if isinstance(value := told.get(label), str) and value:
                facts.setdefault(label, value)


@dataclass(frozen=True, slots=True)
class Inside:
    """What the files of a checkpoint tell: what they lack, why they cannot be read, and the best one."""

    problem: str | None
    trouble: str | None
    best: str | None
    knows_best: bool


def _looked_into(draft: Draft) -> Inside:
    state = layouts.TrainerState()
    knows = layouts.TRAINER_STATE in draft.markers
    if knows:
        state = layouts.read_trainer_state(f"{draft.path}/{layouts.TRAINER_STATE}")
    problem, trouble = None, draft.trouble
    try:
        problem = None if trouble else _problem(draft) or state.problem
    except FileNotFoundError:
        problem = "is changing"
    except OSError as error:
        trouble = words_of(error)
    return Inside(problem, trouble, state.best, knows)


def _problem(draft: Draft) -> str | None:
    if draft.name.unfinished:
        return "its name says that it is unfinished"
    if not draft.files:
        return "is empty"
    for path in draft.indexes:
        shards = layouts.index_shards(read_unnoticed(path, layouts.LONGEST_HEADER))
        if shards is None:
            return f"{os.path.basename(path)} is no index"
        there = set(os.listdir(os.path.dirname(path)))
        missing = sorted(shards - there)
        if missing:
            return f"{len(missing)} of {len(shards)} shards are missing, such as {missing[0]}"
    for path, size in draft.weights:
        problem = layouts.weights_problem(path, size)
        if problem is not None:
            return problem if path == draft.path else f"{os.path.basename(path)} {problem}"
    return None
