"""Megatron-LM's text: `iteration N/ M | key: value | …`, and the lines of its validations.

Where the log goes on with dated lines but no iteration, the facts `quiet_from` and `quiet_to` say from when
to when (seconds since the epoch).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from stoploss.collectors.training.lines import LineReader
from stoploss.collectors.training.records import NAN, clock_of, measured

NAME = "megatron"

_ITERATION = re.compile(r"\biteration\s+(\d{1,15})\s*/\s*(\d{1,15})\s*\|")
_VALIDATION = re.compile(r"\bvalid(?:ation)? loss at ([^|]{0,200})\|(.{0,400})")
_AT = re.compile(r"iteration\s+(\d{1,15})")
_LOSS = re.compile(r"(?:lm )?loss(?: value)?:\s*(\S+)")
_TIME = re.compile(r"elapsed time per iteration \((ms|s)\)")

_KEYS = {
    "consumed samples": "train.samples",
    "consumed tokens": "train.tokens",
    "learning rate": "train.lr",
    "global batch size": "train.batch_size",
    "lm loss": "train.loss",
    "loss": "train.loss",
    "loss scale": "train.loss_scale",
    "grad norm": "train.grad_norm",
    "samples per second": "train.samples_per_second",
    "tokens per second": "train.tokens_per_second",
}


def fits(head: bytes, lines: Sequence[str]) -> bool:
    """Whether a file that begins so is of this format."""
    return any(_ITERATION.search(line) or ("lm loss" in line and _VALIDATION.search(line)) for line in lines)


class MegatronReader(LineReader):
    """Reads Megatron-LM's text."""

    name = NAME

    def line(self, text: str) -> None:
        """Read one line; only iterations and validations hold values."""
        found = _ITERATION.search(text)
        if found is not None:
            self._iteration(float(found[1]), float(found[2]), text[found.end() :], clock_of(text))
            return
        found = _VALIDATION.search(text) if "valid" in text else None
        if found is not None:
            self._validation(found[1], found[2], clock_of(text))
        elif text.startswith("["):
            self._dated(text)

    def _iteration(self, step: float, planned: float, rest: str, time: float) -> None:
        self._alive()
        self.facts[self.run]["total_steps"] = planned
        values: dict[str, float] = {}
        lost = NAN
        for part in rest.split("|"):
            key, colon, text = part.partition(":")
            held = measured(text) if colon else None
            if held is None:
                continue
            key = key.strip()
            timed = _TIME.match(key)
            if timed is not None:
                values["train.step_time"] = held[0] * (1e-3 if timed[1] == "ms" else 1.0)
            elif key in ("number of skipped iterations", "number of nan iterations"):
                # A step whose loss is not a number is skipped as well.
                lost = held[0] if math.isnan(lost) else max(lost, held[0])
            elif key in _KEYS:
                values[_KEYS[key]] = held[0]
        if not math.isnan(lost):
            since = step - self._step
            if since >= 1:
                values["train.non_finite_share"] = min(1.0, lost / since)
            elif lost == 0:
                values["train.non_finite_share"] = 0.0
        self._step = step
        for signal, value in self.believe(values).items():
            self.put(signal, value, step, time)

    def _validation(self, where: str, rest: str, time: float) -> None:
        loss = _LOSS.search(rest)
        held = measured(loss[1]) if loss is not None else None
        if held is None or "test" in where:
            return
        self._alive()
        at = _AT.search(where)
        self.put("eval.loss", held[0], float(at[1]) if at is not None else self._step, time)

    def _alive(self) -> None:
        facts = self.facts[self.run]
        facts.pop("quiet_from", None)
        facts.pop("quiet_to", None)

    def _dated(self, text: str) -> None:
        time = clock_of(text)
        # A scheduler's pulse may speak of a job that waits.
        if math.isnan(time) or ("PULSE" in text and " is running " not in text):
            return
        facts = self.facts[self.run]
        if not math.isnan(self._step):
            facts.setdefault("quiet_from", time)
            facts["quiet_to"] = time


READER = MegatronReader
