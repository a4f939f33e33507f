"""`trainer_state.json` of Hugging Face trainers: the rows of `log_history`, and what stands beside them.

The file is one JSON document, in which NaN and Infinity may stand bare. It is read piece by piece, so that
neither a long history nor a file that is cut off is a difficulty.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence

from stoploss.collectors.training.lines import decoder_of
from stoploss.collectors.training.records import Reader, number

NAME = "hf_state"

LONGEST_VALUE = 1 << 22
"""Characters of one row, or of one value beside the history."""

_FILLING = " \t\r\n,"
_ENDS = frozenset(_FILLING + ":]}")


def fits(head: bytes, lines: Sequence[str]) -> bool:
    """Whether a file that begins so is of this format."""
    text = "\n".join(lines)
    return text.lstrip().startswith("{") and '"log_history"' in text


class StateReader(Reader):
    """Reads the state of a trainer."""

    name = NAME
    snapshot = True

    def __init__(self, subject: str = "") -> None:
        super().__init__(subject)
        self._decoder: codecs.IncrementalDecoder | None = None
        self._json = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._key: str | None = None
        self._where = "start"

    def feed(self, data: bytes) -> None:
        """Go on with the next bytes."""
        if not data or self._where == "done":
            return
        self._decoder = self._decoder or decoder_of(data)
        self._text = self._text[self._at :] + self._decoder.decode(data)
        self._at = 0
        try:
            while self._where != "done" and self._step_on():
                pass
        except RecursionError:
            self._give_up("nested too deeply")
        if len(self._text) - self._at > LONGEST_VALUE:
            self._give_up("a value in it is too long or damaged")

    def end(self) -> None:
        """The document should be complete."""
        if self._where != "done":
            self._give_up("the file is cut off or damaged")

    def _give_up(self, why: str) -> None:
        self._where, self._text, self._at = "done", "", 0
        self.notes.add(f"{why}; what was read before that is used")

    def _step_on(self) -> bool:
        """Read one more piece; whether there was a whole one."""
        text = self._text
        while self._at < len(text) and text[self._at] in _FILLING:
            self._at += 1
        if self._at >= len(text):
            return False
        sign = text[self._at]
        if self._where == "start":
            self._at += 1
            self._where = "key"
            if sign != "{":
                self._give_up("this is no JSON object")
            return True
        if self._where == "key" and sign == "}":
            self._where = "done"
            return True
        if self._where == "list" and sign == "]":
            self._at += 1
            self._where = "key"
            return True
        return self._value(sign)

    def _value(self, sign: str) -> bool:
        if self._where == "value" and sign == ":":
            self._at += 1
            return True
        if self._where == "value" and self._key == "log_history" and sign == "[":
            self._at += 1
            self._where = "list"
            return True
        try:
            value, end = self._json.raw_decode(self._text, self._at)
        except ValueError:
            return False
        if self._text[end : end + 1] not in _ENDS:
            # A number may go on in the next piece.
            return False
        self._at = end
        if self._where == "key":
            self._key, self._where = str(value), "value"
        elif self._where == "value":
            self._beside(value)
            self._where = "key"
        else:
            self._row(value)
        return True

    def _beside(self, value: object) -> None:
        facts = self.facts[self.run]
        if self._key == "max_steps" and (steps := number(value)) is not None and steps > 0:
            facts["total_steps"] = steps
        elif self._key == "best_model_checkpoint" and isinstance(value, str):
            facts["best_checkpoint"] = value

    def _row(self, row: object) -> None:
        # The row with the run time is a summary of the whole run and no step of it.
        if not isinstance(row, dict) or "train_runtime" in row:
            return
        values = {str(name): found for name, value in row.items() if (found := number(value)) is not None}
        self.put_row(values)


READER = StateReader
