"""JSON lines: one object a record, with a step and any of the known fields; other lines between them are
skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stoploss.collectors.training import names
from stoploss.collectors.training.lines import LineReader
from stoploss.collectors.training.records import NAN, instant, number

NAME = "jsonl"

_WRAPPERS = frozenset({"metrics", "data", "log", "logs", "values", "scalars"})
"""Objects within a record whose name says nothing about what is in them."""


def fits(head: bytes, lines: Sequence[str]) -> bool:
    """Whether a file that begins so is of this format."""
    for line in lines:
        record = _object(line)
        if record is None:
            continue
        signals = {found.signal for name, _ in _flat(record) if (found := names.meaning(name)) is not None}
        # A learning rate alone may stand in a configuration.
        if signals & names.KEPT_NON_FINITE or (signals & names.CORE and names.STEP in signals):
            return True
    return False


def _object(line: str) -> Mapping[str, Any] | None:
    line = line.strip()
    if not line.startswith("{") or not line.endswith("}"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _flat(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Fields and those of the objects within, one level deep: `{"eval": {"loss": 1}}` holds `eval_loss`."""
    for name, value in record.items():
        if not isinstance(value, dict):
            yield name, value
        elif name in _WRAPPERS:
            yield from value.items()
        else:
            yield from ((f"{name}_{inner}", content) for inner, content in value.items())


class JsonLinesReader(LineReader):
    """Reads JSON lines."""

    name = NAME

    def line(self, text: str) -> None:
        """Read one record."""
        record = _object(text)
        if record is None:
            if text.strip():
                self.notes.add("a line that is no JSON object was skipped")
            return
        # A summary of the whole run is no step of it.
        if "train_runtime" in record:
            return
        phase = record.get("job.phase")
        if isinstance(phase, str):
            self.facts[self.run]["phase"] = phase
        values: dict[str, float] = {}
        time = NAN
        for name, raw in _flat(record):
            found = names.meaning(name)
            if found is not None and found.signal == names.TIME:
                clock = instant(raw)
                time = clock if clock == clock else time
            elif (value := number(raw)) is not None:
                values[name] = value
        self.put_row(values, time)


READER = JsonLinesReader
