"""What Hugging Face trainers print: one Python dict a line, between progress bars and other text.

The lines hold epochs and no steps. The dict with `train_runtime` sums up a whole run; the next training
record after it, or an epoch that starts over, begins another run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from stoploss.collectors.training.lines import LineReader
from stoploss.collectors.training.records import NAN, number

NAME = "hf_stdout"

_DICT = re.compile(r"\{'[A-Za-z][\w./-]{0,80}'\s*:[^{}]*\}")
_PAIR = re.compile(r"'([^']{1,80})'\s*:\s*(?:'([^']{0,80})'|([^,}\s]{1,80}))")
_TELLING = ("'loss'", "'eval_loss'", "'grad_norm'", "'learning_rate'", "'train_loss'")


def fits(head: bytes, lines: Sequence[str]) -> bool:
    """Whether a file that begins so is of this format."""
    return any(
        _DICT.search(line) and any(word in line for word in _TELLING) for line in lines if "{'" in line
    )


class StdoutReader(LineReader):
    """Reads printed dicts."""

    name = NAME

    def __init__(self, subject: str = "") -> None:
        super().__init__(subject)
        self._first_epoch = self._epoch = NAN
        self._summed_up = False

    def line(self, text: str) -> None:
        """Read the dicts of one line."""
        if "{'" not in text:
            return
        for found in _DICT.finditer(text):
            values: dict[str, float] = {}
            for name, quoted, bare in _PAIR.findall(found[0]):
                value = number(quoted or bare)
                if value is not None:
                    values[name] = value
            if values:
                self._row(values)

    def _row(self, values: dict[str, float]) -> None:
        epoch = values.get("epoch", NAN)
        if "train_runtime" in values:
            self._summed_up = True
            return
        starts_over = epoch < self._epoch and epoch <= self._first_epoch
        if (self._summed_up and "loss" in values) or starts_over:
            self.begin_run()
            self._summed_up, self._first_epoch = False, NAN
        if not math.isnan(epoch):
            self._epoch = epoch
            if math.isnan(self._first_epoch):
                self._first_epoch = epoch
        step = next((values[name] for name in ("step", "global_step") if name in values), NAN)
        self.put_fields(values, step, NAN)


READER = StdoutReader
