"""The table of collectors, their options, and plug-ins of other packages."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from stoploss.collectors import registry
from stoploss.collectors.contract import CollectorError, CollectorOptions, Context
from stoploss.collectors.host_options import Options as HostOptions
from stoploss.rules.units import QuantityError

SOURCES = str(Path(__file__).parents[2] / "src")

PLUGIN = """
from stoploss.collectors.contract import CollectorOptions
class Options(CollectorOptions):
    drive: str
ENTRY = ("tape_collector", "tape_plugin:Options", "Tape drives of this machine.")
"""

COLLECTOR = """
from stoploss.engine.model import Look
class Tape:
    def __init__(self, drive): self.drive = drive
    def look(self, at): return Look(())
def build(options, context): return Tape(f"{context.hostname}:{options.drive}")
"""


def install(folder: Path, points: dict[str, str], **modules: str) -> None:
    """Lay out an installed package with entry points and modules, as pip would."""
    info = folder / "tape-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tape\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {value}" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[stoploss.collectors]\n{lines}\n")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that Python imports from; what a test imports from it is forgotten."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("tape", "broken")):
            del sys.modules[name]


def test_every_line_of_the_table_can_be_used() -> None:
    """Each collector in the table has a module with its NAME, a page-worthy summary and options."""
    table = registry.load()

    assert table.problems == ()
    for name, entry in registry.COLLECTORS.items():
        module = importlib.import_module(entry.module)
        assert name == module.NAME
        assert module.__doc__
        assert entry.summary.endswith(".")
        # Some options are required, so that not every model can be made without any.
        options = table.options[name]
        assert options.model_fields["every"].default == options.default_every


def test_defaults_are_in_the_table() -> None:
    """What looks by default exists."""
    assert set(registry.DEFAULT_ON) <= set(registry.COLLECTORS)


def test_options_are_known_without_the_collectors() -> None:
    """Reading all options imports no collector and nothing heavy."""
    program = (
        "import json, sys\n"
        "from stoploss.collectors.registry import option_models\n"
        "option_models()\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": SOURCES},
    )

    loaded = set(json.loads(done.stdout))
    assert "stoploss.collectors.host_options" in loaded
    assert not loaded & {"stoploss.collectors.host", "psutil", "pynvml", "boto3", "numpy", "sqlalchemy"}


def test_every_is_a_duration_in_seconds() -> None:
    """`every` is written as a duration and read in seconds; left out it is the default."""
    assert HostOptions(every="1m30s").every == 90.0
    assert HostOptions().every == HostOptions.default_every == 60.0


def test_options_survive_being_written_and_read_back() -> None:
    """Dumped options validate to the same options."""
    options = HostOptions(every="100s", name="n1")

    assert HostOptions.model_validate(options.model_dump()) == options


@pytest.mark.parametrize(
    ("every", "fix"),
    [
        (30, "write a duration such as 30s or 5m"),
        (True, "write a duration such as 30s or 5m"),
        ("0s", "write 1s or longer"),
        ("500ms", "write 1s or longer"),
        ("5 GB", "write a duration such as 30m or 1h30m"),
    ],
)
def test_a_bad_interval_is_refused_with_its_fix(every: object, fix: str) -> None:
    """An interval that is no duration, or shorter than a second, is refused and says what to write."""
    with pytest.raises(ValidationError) as caught:
        HostOptions.model_validate({"every": every})

    (problem,) = caught.value.errors()
    assert problem["loc"] == ("every",)
    error = problem["ctx"]["error"]
    assert isinstance(error, QuantityError)
    assert error.fix == fix


@pytest.mark.parametrize("options", [{"evry": "30s"}, {"name": ""}, {"name": 7}])
def test_options_are_closed_and_typed(options: dict[str, object]) -> None:
    """Unknown keys and values of a wrong type are refused."""
    with pytest.raises(ValidationError):
        HostOptions.model_validate(options)


def test_a_plug_in_is_listed_and_built(site: Path) -> None:
    """An entry point of another package becomes a collector beside the built-in ones."""
    install(site, {"tape": "tape_plugin:ENTRY"}, tape_plugin=PLUGIN, tape_collector=COLLECTOR)

    table = registry.load()
    collector = table.build("tape", {"drive": "st0"}, Context(hostname="n1"))

    assert table.problems == ()
    assert table.entries["tape"].summary == "Tape drives of this machine."
    assert "tape" in registry.option_models()
    assert "host" in table.entries
    assert collector.drive == "n1:st0"


@pytest.mark.parametrize(
    ("point", "why"),
    [
        ("broken_plugin:ENTRY", "ZeroDivisionError"),
        ("tape_plugin:MISSING", "has no attribute 'MISSING'"),
        ("no_such_module:ENTRY", "No module named 'no_such_module'"),
        ("tape_plugin:Options", "must name a tuple of three texts"),
        ("tape_odd:ENTRY", "not derived from stoploss.collectors.contract.CollectorOptions"),
    ],
)
def test_a_broken_plug_in_is_reported_and_left_out(site: Path, point: str, why: str) -> None:
    """A plug-in that cannot be loaded is named with its reason; all others still work."""
    odd = "Options = dict\nENTRY = ('tape_collector', 'tape_odd:Options', 'Odd.')\n"
    install(site, {"tape": point}, tape_plugin=PLUGIN, broken_plugin="1 / 0\n", tape_odd=odd)

    table = registry.load()

    assert set(table.entries) == set(table.options) == set(registry.COLLECTORS)
    (problem,) = table.problems
    assert problem.startswith(f"plug-in collector tape of tape ({point}): ")
    assert why in problem


def test_a_plug_in_cannot_take_a_built_in_name(site: Path) -> None:
    """A plug-in named like a built-in collector is refused, and the built-in one stays."""
    install(site, {"host": "tape_plugin:ENTRY"}, tape_plugin=PLUGIN)

    table = registry.load()

    assert table.options["host"] is HostOptions
    assert table.problems == (
        "plug-in collector host of tape (tape_plugin:ENTRY): a collector named host exists already",
    )


def test_a_collector_that_cannot_be_imported_fails_when_built(site: Path) -> None:
    """A plug-in whose heavy module is broken fails as a collector, with the reason."""
    install(site, {"tape": "tape_plugin:ENTRY"}, tape_plugin=PLUGIN, tape_collector="import tape_driver\n")

    with pytest.raises(
        CollectorError, match="cannot be loaded: ModuleNotFoundError: No module named 'tape_driver'"
    ):
        registry.load().build("tape", {"drive": "st0"}, Context())


def test_build_validates() -> None:
    """Options are validated before a collector is built."""
    assert issubclass(HostOptions, CollectorOptions)
    with pytest.raises(ValidationError):
        registry.load().build("host", {"nme": "x"}, Context())
