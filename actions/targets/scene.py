"""Keeps the scene of a failed job: last log lines, stacks, configuration, masked environment.

What is kept is text for people, with secrets masked, in a folder that only its owner may enter. It is no
checkpoint, and nothing may be ended on the strength of it. What cannot be read is listed with its
reason; one thing that is missing does not keep the rest from being kept.
"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from stoploss.actions import files
from stoploss.actions.targets.process_signal import Process

MANIFEST = "manifest.json"

VERSION = 1

LOG_BYTES, CONFIGURATION_BYTES, PROC_BYTES = 1 << 20, 1 << 20, 1 << 20
"""Bytes that are read of one log, of one configuration file, of one file about a process."""

LINES, CONFIGURATIONS, THREADS = 1000, 100, 64
"""Lines of a log, configuration files, and threads of a process that are kept."""


class Mask(Protocol):
    """Takes secrets out of texts and values."""

    def text(self, text: str) -> str:
        """A text without secrets."""
        ...

    def plain(self, value: Any) -> Any:
        """A JSON value without secrets."""
        ...


@dataclass(frozen=True, slots=True)
class Scene:
    """What is to be kept.

    Attributes:
        target: path of the folder that it is kept in; absolute.
        logs: paths of logs.
        processes: whose stacks, command line and environment are kept, where they still live.
        folder: under which configuration files are looked for; None for none.
        patterns: of file names, such as `*.yaml`.
        environment: of the job, where it is known otherwise.
        why: what the job failed of, for people.
    """

    target: str
    logs: tuple[str, ...] = ()
    processes: tuple[Process, ...] = ()
    folder: str | None = None
    patterns: tuple[str, ...] = ("*.yaml", "*.yml", "*.json", "*.toml")
    environment: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """What was kept: the folder, or None where none could be written, and why; what is missing, and why."""

    path: str | None
    files: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass(slots=True)
class _Box:
    """The folder while it is filled."""

    path: str
    mask: Mask
    names: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, text: str) -> None:
        files.write(os.path.join(self.path, name), self.mask.text(text).encode("utf-8", "replace"))
        self.names.append(name)

    def keep(self, name: str, source: str, read: Callable[[], str]) -> None:
        """Put what `read` gives; what it cannot read is missing."""
        try:
            text = read()
        except (OSError, ValueError) as error:
            self.missing[source] = files.words_of(error)
            return
        self.put(name, text)


def keep(scene: Scene, masker: Callable[[Mapping[str, str]], Mask], now: float) -> Kept:
    """Write all of it into a new folder, which is there as a whole or not at all.

    Args:
        scene: what is to be kept.
        masker: makes a mask that knows the secrets of an environment.
        now: seconds since the epoch, for the manifest.
    """
    if os.path.lexists(scene.target):
        return _there(scene.target)
    environments, unread = _environments(scene)
    secrets = {
        f"{owner}:{name}": value for owner, values in environments.items() for name, value in values.items()
    }
    parent, name = os.path.split(scene.target)
    draft = os.path.join(parent, f".tmp-{name}")
    try:
        # What a crash left is of an earlier moment.
        shutil.rmtree(draft, ignore_errors=True)
        os.makedirs(parent, exist_ok=True)
        os.mkdir(draft, 0o700)
        box = _Box(draft, masker(secrets), missing=unread)
        _fill(box, scene, environments)
        manifest = {
            "version": VERSION,
            "at": now,
            "why": box.mask.text(scene.why),
            "files": box.names,
            "missing": box.mask.plain(box.missing),
        }
        files.write(os.path.join(draft, MANIFEST), json.dumps(manifest, indent=1).encode())
        files.force_folder(draft)
        os.rename(draft, scene.target)
        files.force_folder(parent)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        return Kept(None, why=f"{scene.target} cannot be written: {files.words_of(error)}")
    return Kept(scene.target, tuple(box.names), box.missing)


def _there(path: str) -> Kept:
    """What was kept before: after a crash it is found, not kept again."""
    try:
        found = json.loads(files.read(os.path.join(path, MANIFEST), PROC_BYTES))
        return Kept(path, tuple(found["files"]), dict(found["missing"]))
    except (OSError, ValueError, LookupError, TypeError):
        return Kept(None, why=f"{path} is there already, and is no scene")


def _fill(box: _Box, scene: Scene, environments: Mapping[str, Mapping[str, str]]) -> None:
    for owner, values in environments.items():
        text = json.dumps(box.mask.plain(values), indent=1, sort_keys=True, ensure_ascii=False)
        box.put(f"environment-{owner}.json", text)
    for index, path in enumerate(scene.logs):
        box.keep(f"log-{index}-{_flat(path)}", path, partial(_tail, path))
    for process in scene.processes:
        if process.is_there():
            _process(box, process)
    if scene.folder is not None:
        _configurations(box, scene.folder, scene.patterns)


def _environments(scene: Scene) -> tuple[dict[str, Mapping[str, str]], dict[str, str]]:
    """Owner -> environment, and what could not be read."""
    found: dict[str, Mapping[str, str]] = {"job": scene.environment} if scene.environment else {}
    missing: dict[str, str] = {}
    for process in scene.processes:
        if not process.is_there():
            missing[f"process {process.pid}"] = "has ended"
            continue
        path = f"/proc/{process.pid}/environ"
        try:
            content = _proc(path)
        except OSError as error:
            missing[path] = files.words_of(error)
            continue
        pairs = (item.partition("=") for item in content.split("\0") if "=" in item)
        found[str(process.pid)] = {name: value for name, _, value in pairs}
    return found, missing


def _process(box: _Box, process: Process) -> None:
    root = f"/proc/{process.pid}"
    for name in ("cmdline", "status", "wchan", "stack"):
        box.keep(f"process-{process.pid}-{name}", f"{root}/{name}", partial(_line, f"{root}/{name}"))
    box.keep(f"process-{process.pid}-threads", f"{root}/task", lambda: "".join(_threads(root)))


def _threads(root: str) -> Iterator[str]:
    """What each thread waits in, as far as this user may see it."""
    ids = sorted(os.listdir(f"{root}/task"), key=int)
    for thread in ids[:THREADS]:
        yield f"thread {thread}\n"
        for name in ("comm", "wchan", "stack"):
            try:
                yield f"  {name}: {_proc(f'{root}/task/{thread}/{name}').strip()}\n"
            except OSError as error:
                yield f"  {name}: ({files.words_of(error)})\n"
    if len(ids) > THREADS:
        yield f"and {len(ids) - THREADS} more\n"


def _configurations(box: _Box, folder: str, patterns: tuple[str, ...]) -> None:
    kept = 0
    try:
        for entry in files.walk(folder):
            if not any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in patterns):
                continue
            if entry.is_link:
                box.missing[entry.below] = "is a link"
            elif entry.status.st_size > CONFIGURATION_BYTES:
                box.missing[entry.below] = f"has more than {CONFIGURATION_BYTES:,} bytes"
            elif kept == CONFIGURATIONS:
                box.missing[folder] = f"holds more than {CONFIGURATIONS} configuration files"
                return
            else:
                name = f"configuration-{kept}-{_flat(entry.below)}"
                box.keep(name, entry.below, partial(_text, entry))
                kept += 1
    except (OSError, ValueError) as error:
        box.missing[folder] = files.words_of(error)


def _text(entry: files.Entry) -> str:
    handle = entry.open()
    try:
        return os.pread(handle, CONFIGURATION_BYTES, 0).decode("utf-8", "replace")
    finally:
        os.close(handle)


def _tail(path: str) -> str:
    """The last whole lines of a log."""
    handle = os.open(path, files.READ)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is no plain file")
        start = max(0, status.st_size - LOG_BYTES)
        content = os.pread(handle, LOG_BYTES, start)
    finally:
        os.close(handle)
    lines = content.decode("utf-8", "replace").splitlines(keepends=True)
    # A line that was cut may begin in the middle of a secret, which a mask would not know.
    whole = lines[1:] if start else lines
    return "".join(whole[-LINES:])


def _proc(path: str) -> str:
    with open(path, "rb") as stream:
        return stream.read(PROC_BYTES).decode("utf-8", "replace")


def _line(path: str) -> str:
    """A file about a process; the arguments of a command line are parted by zero bytes."""
    return _proc(path).replace("\0", " ")


def _flat(path: str) -> str:
    """A path as a short file name."""
    return path.strip("/").replace("/", "_")[-100:]
