"""Checkpoints that are whole or not there: written beside, forced to disk, renamed, and marked last."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MARKER = "COMPLETE"
"""File that is written when everything else is on disk; without it a folder is no checkpoint."""


def save(
    folder: Path, step: int, weights: Sequence[npt.NDArray[np.float64]], random: Mapping[str, Any]
) -> Path:
    """Save and return the checkpoint's folder.

    Raises:
        OSError: it cannot be written; nothing that looks like a checkpoint is left.
    """
    target, draft = folder / f"step-{step}", folder / f".tmp-step-{step}"
    if (target / MARKER).exists():
        return target
    for left in (draft, target):
        shutil.rmtree(left, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        with (draft / "weights.npz").open("wb") as stream:
            np.savez(stream, *weights)
            os.fsync(stream.fileno())
        _write(draft / "state.json", json.dumps({"step": step, "random": random}))
        _force_folder(draft)
        draft.rename(target)
        _force_folder(folder)
        _write(target / MARKER, f"{step}\n")
        _force_folder(target)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return target


def newest(folder: Path) -> Path | None:
    """The complete checkpoint with the most steps; None where there is none."""
    complete = [path for path in folder.glob("step-*") if (path / MARKER).exists()]
    return max(complete, key=lambda path: int(path.name.removeprefix("step-")), default=None)


def load(checkpoint: Path) -> tuple[int, list[npt.NDArray[np.float64]], dict[str, Any]]:
    """Step, weights and state of the random numbers.

    Raises:
        OSError: it cannot be read.
    """
    state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    with np.load(checkpoint / "weights.npz") as arrays:
        weights = [arrays[f"arr_{index}"] for index in range(len(arrays.files))]
    return state["step"], weights, state["random"]


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def _force_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
