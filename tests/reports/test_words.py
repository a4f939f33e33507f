"""`stoploss explain WORD`: every word of the language has a meaning, and unknown ones a hint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from stoploss.cli.main import run
from stoploss.reports.keys import all_keys
from stoploss.reports.words import as_json, as_text, known_words, look_up, signal_example
from stoploss.rules.catalogue import catalogue
from stoploss.rules.codes import CODES
from stoploss.rules.conditions.check import check_condition
from stoploss.rules.conditions.functions import FUNCTIONS

SOURCE = Path(__file__).parents[2] / "src"


def test_every_word_has_a_meaning_with_text() -> None:
    """Each signal, function, key and code is found, says something, and can be printed both ways."""
    words = known_words()

    assert {*catalogue(), *FUNCTIONS, *CODES, "except-phase", "require-ack"} <= set(words)
    for word in words:
        meanings = look_up(word)
        assert meanings
        assert all(meaning.text for meaning in meanings), word
        assert word in as_text(meanings)
        assert json.loads(json.dumps(as_json(word, meanings)))["meanings"]


def test_printed_lines_fit_a_terminal() -> None:
    """No line of prose is wider than 80 columns."""
    lines = [
        line for word in (*catalogue(), *FUNCTIONS, *CODES) for line in as_text(look_up(word)).splitlines()
    ]

    assert [line for line in lines if len(line) > 80] == []


def test_every_example_condition_is_one() -> None:
    """The example of each signal is accepted by the language itself."""
    for signal in catalogue().values():
        example = signal_example(signal)
        condition, problems = check_condition(example, each=signal.resources[0], catalogue=catalogue())
        assert problems == (), example
        assert condition is not None


def test_every_key_has_an_example_that_is_yaml() -> None:
    """The example of each key is YAML that gives that key a value."""
    for key in all_keys():
        assert key.example is not None, key.name
        assert list(yaml.safe_load(key.example)) == [key.name]


def test_a_signal_tells_all_there_is_to_know() -> None:
    """A state shows its unit, resources, collector, functions, closed list and an example."""
    text = as_text(look_up("loss.verdict"))

    for part in (
        "state",
        "job",
        "derived",
        "last",
        "warming-up",
        "cannot-tell",
        'loss.verdict == "cannot-tell"',
    ):
        assert part in text


def test_a_quantile_is_found_by_any_of_its_names() -> None:
    """p95 and p99.9 are both the quantile function."""
    assert look_up("p95") == look_up("p99.9") == look_up("pNN") != ()


def test_a_key_of_several_sections_tells_each() -> None:
    """`where` means something else in budgets, exemptions and policies, and all three are told."""
    sections = {dict(meaning.facts)["section"] for meaning in look_up("where")}

    assert sections == {"budgets", "exemptions", "policies"}


def test_required_and_default_values_are_told() -> None:
    """A required key says so, and a key with a default says which."""
    assert dict(look_up("expires")[0].facts)["default"] == "none: the key is required"
    assert dict(look_up("severity")[0].facts)["default"] == "medium"


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    """With --format json the output is one JSON value with a version."""
    assert run(["explain", "unknown-key", "--format", "json"]) == 0

    value = json.loads(capsys.readouterr().out)
    assert value["version"] == 1
    assert value["meanings"][0]["severity"] == "error"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["gpu.utl"], "did you mean gpu.utilization?"),
        (["except-phases"], "did you mean except-phase?"),
        (["zzzzzz"], "words are signals, functions, keys and error codes"),
        ([], "needs a WORD"),
    ],
)
def test_an_unknown_word_is_bad_input(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A word without a meaning ends with status 2 and names the nearest word."""
    assert run(["explain", *arguments]) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert hint in captured.err


def test_the_command_is_light_to_import() -> None:
    """Importing the command loads neither pydantic nor the catalogue."""
    code = (
        "import sys, stoploss.cli.explain;"
        "print([name for name in ('pydantic', 'numpy', 'stoploss.rules.signals') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(SOURCE)}
    )

    assert result.stdout.strip() == "[]"
