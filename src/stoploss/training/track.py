"""What a run tells of itself: one JSON line a call, which the collector `training` reads.

A line is handed to the system in one write before the call returns, so that a process that is killed loses at
most the line it was writing. Nothing is forced to disk, and no file is ever rotated. Nothing here raises.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

from stoploss.engine import clock
from stoploss.training import places

FILE = "track.jsonl"

VARIABLE = "STOPLOSS_TRACK"
"""Environment variable with the path of the file."""

PHASES = (
    "queued",
    "setup",
    "loading",
    "compiling",
    "training",
    "evaluating",
    "checkpointing",
    "finishing",
)
"""Values of `job.phase`; kept here too, because a training program does not load the catalogue."""

SIGNALS = {
    "loss": "train.loss",
    "train_loss": "train.loss",
    "eval_loss": "eval.loss",
    "val_loss": "eval.loss",
    "eval_metric": "eval.metric",
    "grad_norm": "train.grad_norm",
    "lr": "train.lr",
    "learning_rate": "train.lr",
    "loss_scale": "train.loss_scale",
    "epoch": "train.epoch",
    "tokens": "train.tokens",
    "samples": "train.samples",
    "batch_size": "train.batch_size",
    "samples_per_second": "train.samples_per_second",
    "tokens_per_second": "train.tokens_per_second",
    "step_time": "train.step_time",
    "data_time": "train.data_time",
    "mfu": "train.mfu",
}
"""Short name -> signal. Other names are written as they are."""

_LARGEST = 1 << 63


class Tracker:
    """Appends to one file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        self._handle: int | None = None
        self._torn = False
        self._noted: set[str] = set()

    def track(
        self, *, step: object = None, loss: object = None, phase: str | None = None, **values: object
    ) -> None:
        """Append one line; see `stoploss.track`."""
        record: dict[str, float | str] = {"time": round(clock.now().timestamp(), 3)}
        known = len(record)
        if phase is not None:
            if phase in PHASES:
                record["job.phase"] = phase
            else:
                self._note(f"phase {phase!r} is left out: it is none of {', '.join(PHASES)}")
        for name, value in (("step", step), ("loss", loss), *values.items()):
            number = None if value is None else self._number(name, value)
            if number is not None:
                signal = SIGNALS.get(name, name)
                record[name if signal in record else signal] = number
        if len(record) > known:
            self._append((json.dumps(record) + "\n").encode())

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _number(self, name: str, value: Any) -> int | float | None:
        """A plain number of what may be an array or a tensor with one element."""
        # Whatever a library's own types raise, it is no number.
        with suppress(Exception):
            plain = value.item() if hasattr(value, "item") else value
            if isinstance(plain, int) and abs(plain) < _LARGEST:
                return int(plain)
            if not isinstance(plain, str | bytes):
                return float(plain)
        self._note(f"{name} is left out: {type(value).__name__} is no number")
        return None

    def _append(self, line: bytes) -> None:
        try:
            if self._handle is None:
                self._open()
            assert self._handle is not None
            if self._torn:
                line = b"\n" + line
            self._torn = os.write(self._handle, line) < len(line)
        except OSError as error:
            self._note(f"{self.path} cannot be written: {error.strerror}")

    def _open(self) -> None:
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._handle = os.open(self.path, flags, 0o666)
        size = os.fstat(self._handle).st_size
        # The process before may have been killed within a line.
        self._torn = size > 0 and os.pread(self._handle, 1, size - 1) != b"\n"

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            places.note(text)


_trackers: dict[str, Tracker] = {}


def track(*, step: object = None, loss: object = None, phase: str | None = None, **values: object) -> None:
    """Append what is known now to the run's file; of several ranks only the first writes.

    The file is that of `STOPLOSS_TRACK`, else `.stoploss/track.jsonl` in the folder `STOPLOSS_RUN_DIR` or in
    the working directory at the first call.

    Args:
        step: optimiser steps done.
        loss: training loss; NaN and infinities are kept.
        phase: what the run is doing from now on, such as `evaluating`.
        values: anything else, by the short names of `SIGNALS` or by a signal's own name, in its unit: `lr`,
            `grad_norm`, `eval_loss`, `step_time`, `**{"data.wait_share": 0.2}`.
    """
    if places.rank() != 0:
        return
    named = os.environ.get(VARIABLE) or os.environ.get(places.RUN_DIR) or ""
    tracker = _trackers.get(named)
    if tracker is None:
        tracker = _trackers[named] = Tracker(places.file_of(FILE, VARIABLE))
    tracker.track(step=step, loss=loss, phase=phase, **values)
