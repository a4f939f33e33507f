"""The examples of the page work as they stand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stoploss.training.request import parsed

from .conftest import ROOT, Run, environment

PAGE = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
REQUEST, ANSWER = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_stops_when_it_is_asked_to(run: Run, example: str) -> None:
    """Each loop of the page does its first step, saves, answers that it stopped, and ends."""
    run.ask("r1", "stop")

    subprocess.run([sys.executable, "-c", example], cwd=run.folder, env=environment(), check=True, timeout=30)

    assert (run.answer()["state"], run.answer()["step"]) == ("stopped", 1)
    assert len((run.box / "track.jsonl").read_text(encoding="utf-8").splitlines()) == 1


def test_the_files_on_the_page_are_those_of_the_program(run: Run, tmp_path: Path) -> None:
    """The request of the page is one, and its answer has the keys that a run writes."""
    request = parsed(REQUEST.encode(), str(tmp_path / "answer.json"))
    request.saved("/runs/a/step-4000", 4000)

    answer = json.loads((tmp_path / "answer.json").read_text(encoding="utf-8"))
    shown = json.loads(ANSWER)
    assert list(answer) == list(shown)
    assert {**answer, "at": ""} == {**shown, "at": ""}
