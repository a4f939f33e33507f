"""Policy files become a set, or diagnostics; never an exception."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict
from support.policy_texts import GOOD, MISTAKES, policy

from stoploss.actions.registry import action_options
from stoploss.rules.catalogue import catalogue
from stoploss.rules.conditions.typed import Junction, Not
from stoploss.rules.diagnostics import Diagnostic, Severity
from stoploss.rules.loader import LoadResult, load
from stoploss.rules.policy import PolicySet


class GpuOptions(BaseModel):
    """Options of a collector, as a plug-in would write them."""

    model_config = ConfigDict(extra="forbid")
    default_every: ClassVar[float] = 15.0
    devices: list[int] = []


Load = Callable[..., LoadResult]


@pytest.fixture(name="load_text")
def load_text_fixture(tmp_path: Path) -> Load:
    """Writes texts to a.yaml, b.yaml, … and loads them as one set."""

    def run(*texts: str, indent: bool = True) -> LoadResult:
        paths = []
        for name, text in zip("abc", texts, strict=False):
            path = tmp_path / f"{name}.yaml"
            path.write_text(textwrap.dedent(text) if indent else text, encoding="utf-8")
            paths.append(path)
        return load_paths(*paths)

    return run


def load_paths(*paths: Path) -> LoadResult:
    """Load files with one collector that is built."""
    return load(
        paths,
        catalogue=catalogue(),
        collector_options={"gpu": GpuOptions},
        action_options=action_options(),
        environ={"SLACK_URL": "https://secret.example"},
    )


def errors(result: LoadResult) -> list[Diagnostic]:
    """The errors of a load."""
    return [item for item in result.diagnostics if item.severity is Severity.ERROR]


def good(result: LoadResult) -> PolicySet:
    """The set of a load without errors."""
    assert result.policies is not None, [str(item) for item in result.diagnostics]
    return result.policies


def test_a_good_file_becomes_a_set(load_text: Load) -> None:
    """Every section arrives in base units, with the defaults of the settings."""
    loaded = good(load_text(GOOD))
    idle = loaded.policies[0]

    assert (idle.mode, idle.resolution, idle.for_seconds, idle.hold_seconds) == ("warn", 60.0, 600.0, 300.0)
    assert isinstance(idle.when, Junction)
    assert len(idle.when.items) == 3
    assert isinstance(idle.when.items[2], Not)
    assert [step.action for step in idle.steps] == ["alert", "snapshot", "downscale", "terminate"]
    assert [step.destructive for step in idle.steps] == [False, False, False, True]
    assert (idle.steps[3].after, idle.steps[3].approve, idle.steps[3].options["grace"]) == (
        1800.0,
        "required",
        120.0,
    )
    assert idle.steps[0].to == ("owner",)
    assert idle.steps[0].require_ack is not None
    assert idle.steps[0].require_ack["within"] == 7200.0
    assert idle.steps[0].require_ack["then"][0].action == "alert"
    assert idle.waste is not None
    assert idle.waste.value == 1.0
    assert loaded.settings.limits["gpus-per-run"] == 8
    assert loaded.settings.limits["share-of-population"] == 0.2
    assert [(item.name, item.every) for item in loaded.collectors] == [("gpu", 30.0), ("training", 60.0)]
    assert loaded.collectors[1].options == {"paths": ["/runs"]}
    assert loaded.prices["gpu-hour"]["H100"].value == pytest.approx(4.10 / 3600)
    assert loaded.fixed_costs[0]["cost"].value == pytest.approx(1 / 3600)
    assert [budget.per for budget in loaded.budgets] == ["life", "month"]
    assert loaded.exemptions[0].expires == "2027-01-31"
    assert loaded.currency == "USD"
    assert loaded.notify["ml"] == "${SLACK_URL}"
    assert loaded.correlations[0].all == ("idle-gpu",)


def test_minimal_file_has_safe_defaults(load_text: Load) -> None:
    """A policy of two keys is an audit policy that reports and does nothing."""
    loaded = good(load_text("version: 1\npolicies:\n- {name: a, each: gpu, when: gpu.power < 100W}\n"))

    assert loaded.policies[0].mode == "audit"
    assert loaded.policies[0].severity == "medium"
    assert loaded.policies[0].steps == ()
    assert loaded.settings.limits == {
        "actions-per-run": 10,
        "share-of-population": 0.2,
        "min-population": 10,
        "gpus-per-run": 64,
    }


def test_equal_trees_have_one_canonical_spelling(load_text: Load) -> None:
    """Order, nesting and spaces of a `when` do not change its canonical form; another condition does."""
    trees = [
        "- gpu.power < 100W\n- any: [gpu.utilization < 5%, gpu.power < 90W]",
        "- all:\n  - any: [gpu.power<90W, gpu.utilization < 5%]\n  - gpu.power  <  100W",
        "- gpu.power < 100W\n- any: [gpu.utilization < 5%, gpu.power < 80W]",
    ]
    spelt = [good(load_text(policy(when=tree, each="gpu"))).policies[0].canonical for tree in trees]

    assert spelt[0] == spelt[1]
    assert spelt[0] != spelt[2]


@pytest.mark.parametrize(
    ("text", "code", "line", "column", "hint"),
    [case[1:] for case in MISTAKES],
    ids=[case[0] for case in MISTAKES],
)
def test_each_mistake_is_one_error_at_its_place(
    load_text: Load, text: str, code: str, line: int, column: int, hint: str
) -> None:
    """One mistake gives one error, with its line and column, and a fix that says what to write."""
    result = load_text(text, indent=False)
    found = errors(result)

    assert [item.code for item in found] == [code], [str(item) for item in found]
    assert (found[0].position.line, found[0].position.column) == (line, column)
    assert hint in f"{found[0].message} {found[0].fix}"
    assert found[0].source_line == text.splitlines()[line - 1]
    assert result.policies is None


@pytest.mark.parametrize(
    "body",
    [
        'where: has(team) and team != "a"\nfor: 5m\nthen: [terminate: {}]',
        'where: not team != "a"\nfor: 5m\nthen: [terminate: {}]',
        'where: team != "a"\nthen: [alert: {}]',
        "for: 5m\nthen: [downscale: {power-cap: 300W}]",
        'active: {schedule: "*/5 8-17 1,15 jan-mar mon-wed,fri"}',
        "waste: $3/h",
        "for: 0",
    ],
)
def test_what_is_safe_is_allowed(load_text: Load, body: str) -> None:
    """Selections that ask for their label, notices, power caps and plain schedules load."""
    assert good(load_text(policy(body), indent=False)).policies


def test_quoted_conditions_are_marked_behind_their_escapes(load_text: Load) -> None:
    """The column of a mistake in a quoted condition counts quotes and escapes of the file."""
    single = load_text(policy(when="""- 'job == ''a'' and gpu.utl < 5%'"""), indent=False)
    double = load_text(policy(when=r'''- "job == \"a\" and gpu.utl < 5%"'''), indent=False)

    column = double.diagnostics[-1].source_line.index("gpu.utl") + 1  # type: ignore[union-attr]
    assert errors(double)[-1].position.column == column
    assert errors(single)[-1].source_line is not None


def test_P_C2_duplicate_list_shows_both_lines(load_text: Load) -> None:
    """`policies:` twice in one file is an error with both places, not the last list."""
    found = errors(load_text(policy() + "policies: []\n", indent=False))

    assert [item.code for item in found] == ["duplicate-key"]
    assert (found[0].position.line, found[0].related[0].position.line) == (8, 2)


def test_P_C3_duplicate_names_over_files(load_text: Load) -> None:
    """Two files with a policy of one name give one error that names both files and lines."""
    found = errors(load_text(policy(), policy(), indent=False))

    assert [item.code for item in found] == ["duplicate-name"]
    assert found[0].position.file.endswith("b.yaml")
    assert found[0].related[0].position.file.endswith("a.yaml")
    assert "a.yaml:3" in found[0].message


@pytest.mark.parametrize("text", ["", "\n# only a comment\n", "version: 1\n", "version: 1\npolicies: []\n"])
def test_P_C8_a_file_without_policies_is_refused(load_text: Load, text: str) -> None:
    """An empty file and a set without policies are errors, not a silent success."""
    assert [item.code for item in errors(load_text(text))] == ["file-empty"]


def test_settings_of_several_files_are_merged(load_text: Load) -> None:
    """Sections of several files add up; one key with two values is an error that names both."""
    first = "version: 1\nsettings: {mode: warn, limits: {gpus-per-run: 8}}\n"
    second = policy() + "settings: {mode: warn, limits: {actions-per-run: 3}}\n"
    third = policy() + "settings: {mode: enforce}\n"

    merged = good(load_text(first, second, indent=False)).settings
    found = errors(load_text(first, third, indent=False))

    assert (merged.mode, merged.limits["gpus-per-run"], merged.limits["actions-per-run"]) == ("warn", 8, 3)
    assert [item.code for item in found] == ["bad-value"]
    assert found[0].related[0].position.file.endswith("a.yaml")


def test_includes_are_relative_to_their_file_and_read_once(tmp_path: Path) -> None:
    """A file that two files include is read once, relative to each of them."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "base.yaml").write_text(policy())
    (tmp_path / "sub" / "b.yaml").write_text("version: 1\ninclude: [../base.yaml]\n")
    (tmp_path / "a.yaml").write_text("version: 1\ninclude: [sub/b.yaml, base.yaml]\n")

    result = load_paths(tmp_path / "a.yaml")

    assert [item.name for item in good(result).policies] == ["one"]
    assert len(result.files) == 3


def test_include_cycle_is_one_error(tmp_path: Path) -> None:
    """Files that include each other give one error at the include that closes the circle."""
    (tmp_path / "a.yaml").write_text(policy() + "include: [b.yaml]\n")
    (tmp_path / "b.yaml").write_text("version: 1\ninclude: [a.yaml]\n")

    found = errors(load_paths(tmp_path / "a.yaml"))

    assert [item.code for item in found] == ["include-cycle"]
    assert (Path(found[0].position.file).name, found[0].position.line, found[0].position.column) == (
        "b.yaml",
        2,
        11,
    )


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"\xef\xbb\xbfversion: 1\n", "byte-order mark"),
        (b"version: 1\nname: \xff\n", "UTF-8"),
        (b"a" * 5_000_001, "5 MB"),
        (None, "does not exist"),
        ("folder", "folder"),
    ],
)
def test_unreadable_files_are_one_error(tmp_path: Path, content: bytes | str | None, word: str) -> None:
    """What cannot be read as a policy file is told once, with the reason."""
    path = tmp_path / "a.yaml"
    if content == "folder":
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)

    found = load_paths(path).diagnostics

    assert [item.code for item in found] == ["file-unreadable"]
    assert word in found[0].message


def test_a_file_without_rights_is_one_error(tmp_path: Path) -> None:
    """A file that may not be read is told once."""
    path = tmp_path / "a.yaml"
    path.write_text(GOOD)
    path.chmod(0)
    if _readable(path):
        pytest.skip("this user may read every file")

    assert "permission denied" in load_paths(path).diagnostics[0].message


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except PermissionError:
        return False
    return True


def test_a_broken_file_does_not_hide_the_others(load_text: Load) -> None:
    """A syntax error in one file is told beside the mistakes of another."""
    found = errors(load_text("version: 1\npolicies: [\n", policy("sevrity: low"), indent=False))

    assert [item.code for item in found] == ["yaml-syntax", "unknown-key"]


def test_mistakes_in_one_policy_are_all_told(load_text: Load) -> None:
    """A wrong key does not hide a wrong condition, a wrong step or a wrong value beside it."""
    text = policy(
        "sevrity: low\nfor: 5\nthen:\n- terminat: {}\n- alert: {repeat: 5, colour: red}",
        when="- gpu.utl < 5%\n- gpu.power < 5%",
    )
    codes = sorted(item.code for item in errors(load_text(text, indent=False)))

    assert codes == sorted(
        [
            "unknown-key",
            "wrong-unit",
            "unknown-action",
            "wrong-unit",
            "unknown-option",
            "unknown-signal",
            "type-mismatch",
        ]
    )


def test_secrets_are_never_printed(load_text: Load) -> None:
    """Diagnostics and the set hold the variable's name, never what it is set to."""
    assert "secret.example" not in repr(load_text(GOOD))


FRAGMENTS = [
    *(line for line in GOOD.splitlines() if line.strip()),
    "- {", "}", "[", "]", "'", '"', ": ", " #", "&a", "*a", "!x", "<<:", "---", "\t", "{{ team }}",
    "on:", "22:30", "then: 5", "when: {all: 3}", "include: [a.yaml, pack:x]", "version: []",
    "each: [gpu]", "${", "\x00", "? ", "|", "é",
]  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12), st.sampled_from(["\n", "\n  ", " "]))
def test_fragments_never_raise(tmp_path_factory: pytest.TempPathFactory, parts: list[str], glue: str) -> None:
    """Whatever a file holds gives a set or an error, and never an exception."""
    path = tmp_path_factory.getbasetemp() / "a.yaml"
    path.write_text(glue.join(parts), encoding="utf-8")

    result = load_paths(path)

    assert (result.policies is None) == bool(errors(result))


def test_mutated_files_never_raise(tmp_path: Path) -> None:
    """A good file with characters, lines or values changed at random gives a set or an error."""
    chance = random.Random(7)
    path = tmp_path / "a.yaml"
    for _ in range(400):
        path.write_text(_mutated(GOOD, chance), encoding="utf-8")

        result = load_paths(path)

        assert (result.policies is None) == bool(errors(result))
        assert all(item.position.line >= 1 for item in result.diagnostics)


def _mutated(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 4)):
        lines = text.split("\n")
        at, where = chance.randrange(len(lines)), chance.randrange(len(text) or 1)
        match chance.randrange(5):
            case 0:
                text = text[:where] + text[where + chance.randint(1, 5) :]
            case 1:
                text = text[:where] + chance.choice("{}[]:,'\"#&*!?|>-%@\n \t0é\x07") + text[where:]
            case 2:
                text = "\n".join(lines[:at] + lines[at + 1 :])
            case 3:
                text = "\n".join([*lines[:at], lines[chance.randrange(len(lines))], *lines[at:]])
            case _:
                lines[at] = chance.choice(["  ", ""]) + lines[at].replace(
                    ": ", chance.choice([":", ": [", ": {a: "]), 1
                )
                text = "\n".join(lines)
    return text or "\n"
