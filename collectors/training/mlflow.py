"""MLflow's file store: `mlruns/EXPERIMENT/RUN/metrics/NAME` holds lines of time in ms, value and step.

The name of a file is that of the metric. `meta.yaml` beside the folder says when the run began and ended, and
how.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from stoploss.collectors.training.lines import LineReader
from stoploss.collectors.training.records import NAN, instant, number

NAME = "mlflow"

_LINE = re.compile(r"^\d{12,14} \S{1,40}(?: -?\d{1,18})?\s*$")
_META = re.compile(r"^(\w+):\s*(.*?)\s*$", re.MULTILINE)
_STATUS = {
    "3": "success",
    "FINISHED": "success",
    "4": "aborted",
    "FAILED": "aborted",
    "5": "aborted",
    "KILLED": "aborted",
}


def fits(head: bytes, lines: Sequence[str]) -> bool:
    """Whether a file that begins so is of this format."""
    whole = lines[:-1] or lines
    return bool(whole) and all(_LINE.match(line) for line in whole[:20])


class MetricReader(LineReader):
    """Reads the file of one metric, whose name is the subject."""

    name = NAME

    def line(self, text: str) -> None:
        """Read one value."""
        parts = text.split()
        value = number(parts[1]) if 2 <= len(parts) <= 3 else None
        if value is None:
            self.notes.add("a line that could not be understood was left out")
            return
        step = number(parts[2]) if len(parts) == 3 else None
        self.put_fields({self.subject: value}, NAN if step is None else step, instant(parts[0]))


def facts_of(meta: str) -> tuple[dict[str, str | float], str]:
    """What `meta.yaml` declares, and the name of the run."""
    told = {key: value.strip("'\"") for key, value in _META.findall(meta)}
    facts: dict[str, str | float] = {}
    for key, fact in (("start_time", "started"), ("end_time", "ended")):
        moment = instant(told.get(key))
        if moment == moment:
            facts[fact] = moment
    if told.get("status") in _STATUS:
        facts["status"] = _STATUS[told["status"]]
    return facts, told.get("run_name") or told.get("run_id") or ""


READER = MetricReader
