"""The signal catalogue: what holds for every entry."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from stoploss.rules.catalogue import KINDS, Catalogue, Signal, SignalKind, catalogue
from stoploss.rules.conditions.functions import functions_for
from stoploss.rules.signals import FAMILIES, SIGNALS
from stoploss.rules.signals.job import PHASES
from stoploss.rules.signals.training import VERDICTS
from stoploss.rules.units import Dimension

COLLECTORS = {
    "aws",
    "checkpoints",
    "derived",
    "gpu",
    "host",
    "inventory",
    "kubernetes",
    "logs",
    "network",
    "process",
    "prometheus",
    "runner",
    "slurm",
    "storage",
    "training",
}
WORD_KINDS = {SignalKind.STATE, SignalKind.TEXT}
NUMBER_KINDS = {SignalKind.GAUGE, SignalKind.COUNTER, SignalKind.EVENT, SignalKind.CURVE}


def those_that(breaks: Callable[[Signal], bool]) -> list[str]:
    """Names of the signals that break a rule."""
    return [signal.name for signal in SIGNALS if breaks(signal)]


def test_names_are_dotted_lowercase() -> None:
    """A name is two or more lowercase words joined by dots, so that it is never taken for a label."""
    pattern = re.compile(r"[a-z]+(\.[a-z][a-z0-9_]*)+")

    assert those_that(lambda item: pattern.fullmatch(item.name) is None) == []


def test_units_can_be_read() -> None:
    """A unit has a positive factor and a dimension that has a name; text is a plain word."""
    assert those_that(lambda item: item.factor <= 0) == []
    assert those_that(lambda item: item.is_text and item.dimension != Dimension()) == []
    assert those_that(lambda item: "^" in str(item.dimension)) == []


def test_units_and_kinds_agree() -> None:
    """States and texts hold words; gauges, counters, events and curves hold numbers."""
    assert those_that(lambda item: item.kind in WORD_KINDS and not item.is_text) == []
    assert those_that(lambda item: item.kind in NUMBER_KINDS and item.is_text) == []


def test_resources_are_known_kinds() -> None:
    """A signal belongs to at least one kind of resource, each once and each of the closed list."""
    assert those_that(lambda item: not set(item.resources) or not set(item.resources) <= set(KINDS)) == []
    assert those_that(lambda item: len(set(item.resources)) != len(item.resources)) == []


def test_collectors_are_known() -> None:
    """A signal names a collector or the engine itself."""
    assert those_that(lambda item: item.collector not in COLLECTORS) == []


def test_only_states_have_a_closed_list() -> None:
    """A state lists at least two distinct words, and nothing else lists any."""
    states = [signal for signal in SIGNALS if signal.kind is SignalKind.STATE]

    assert those_that(lambda item: item.kind is not SignalKind.STATE and item.values != ()) == []
    assert all(len(set(signal.values)) == len(signal.values) >= 2 for signal in states)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", word) for signal in states for word in signal.values)


def test_only_curves_have_a_direction() -> None:
    """A curve says which way is better, and nothing else does."""
    curves = those_that(lambda item: item.kind is SignalKind.CURVE)

    assert those_that(lambda item: item.better in ("lower", "higher")) == curves
    assert those_that(lambda item: item.better is not None) == curves


def test_only_counters_rewind() -> None:
    """Going back legally is a property of counters."""
    assert those_that(lambda item: item.rewinds and item.kind is not SignalKind.COUNTER) == []


def test_meanings_are_one_line() -> None:
    """A meaning is one line that ends in a full stop."""
    assert those_that(lambda item: "\n" in item.meaning or not item.meaning.endswith(".")) == []
    assert those_that(lambda item: not 10 <= len(item.meaning) <= 110) == []


def test_windows_fit_all_but_attributes() -> None:
    """Every signal that has an age has a function over a window; attributes have none."""
    assert those_that(lambda item: bool(functions_for(item.kind)) == item.is_attribute) == []


def test_catalogue_holds_every_signal_once() -> None:
    """The catalogue is the table, sorted by name."""
    names = [item.name for item in SIGNALS]

    assert list(catalogue()) == sorted(names)
    assert sum(map(len, FAMILIES.values())) == len(names) == len(set(names))


def test_a_name_twice_is_refused() -> None:
    """Two entries of one name are a mistake in the table, told by name."""
    with pytest.raises(ValueError, match=r"gpu\.model stands twice"):
        Catalogue((catalogue()["gpu.model"],) * 2)


def test_closed_lists_of_the_language() -> None:
    """Verdicts, states and phases are the ones that the language promises."""
    signals = catalogue()

    assert signals["loss.verdict"].values == VERDICTS
    assert len(VERDICTS) == 12
    assert signals["job.state"].values == ("queued", "running", "suspended", "ended", "failed")
    assert signals["job.phase"].values == PHASES
    assert len(PHASES) == 8


def test_the_step_counter_may_go_back() -> None:
    """A resumed run goes back to its checkpoint, which is no reset."""
    step = catalogue()["train.step"]

    assert step.kind is SignalKind.COUNTER
    assert step.rewinds


def test_gradient_norm_keeps_what_is_not_finite() -> None:
    """A NaN gradient is a fact about the run, so its norm is a curve like the loss."""
    assert catalogue()["train.grad_norm"].kind is SignalKind.CURVE


def test_presence_holds_for_every_kind() -> None:
    """Any resource can be missing from an inventory."""
    assert set(catalogue()["resource.present"].resources) == set(KINDS)


@pytest.mark.parametrize(
    ("name", "recorded", "base"),
    [("gpu.energy", 1.0, 3600.0), ("cost.gpu_hours", 2.0, 7200.0), ("gpu.clock.sm", 1980.0, 1.98e9)],
)
def test_recorded_values_become_base_units(name: str, recorded: float, base: float) -> None:
    """A recorded value times the factor of its signal is in base units."""
    assert recorded * catalogue()[name].factor == pytest.approx(base)
