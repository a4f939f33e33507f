"""The functions of the condition language, with their help.

This table is what the checker consults and what `stoploss explain WORD` prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stoploss.rules.catalogue import SignalKind


@dataclass(frozen=True, slots=True)
class Function:
    """One function: `usage` shows its arguments, `kinds` the signals that a window function fits."""

    name: str
    usage: str
    help: str
    kinds: tuple[SignalKind, ...] = ()

    @property
    def arity(self) -> int:
        """How many arguments it takes."""
        return self.usage.count(",") + 1


_GAUGE, _COUNTER, _EVENT = SignalKind.GAUGE, SignalKind.COUNTER, SignalKind.EVENT
_STATE, _TEXT, _CURVE = SignalKind.STATE, SignalKind.TEXT, SignalKind.CURVE

_TABLE = (
    Function(
        "avg",
        "avg(SIGNAL, WINDOW)",
        "The mean of a gauge or curve over the window, in the unit of the signal. One busy minute hides "
        "in it: use max to say that nothing ever happened.",
        (_GAUGE, _CURVE),
    ),
    Function(
        "min",
        "min(SIGNAL, WINDOW)",
        "The smallest value of a gauge or curve in the window. `min(x, 30m) > 90%` says that x stayed "
        "above 90%.",
        (_GAUGE, _CURVE),
    ),
    Function(
        "max",
        "max(SIGNAL, WINDOW)",
        "The largest value of a gauge or curve in the window. `max(x, 30m) < 5%` says that x stayed below "
        "5%.",
        (_GAUGE, _CURVE),
    ),
    Function(
        "pNN",
        "pNN(SIGNAL, WINDOW)",
        "A quantile of a gauge by nearest rank, such as p95 or p99.9: NN is above 0 and below 100, with "
        "at most one decimal. Over fewer than 100/(100-NN) slots it equals max.",
        (_GAUGE,),
    ),
    Function(
        "count",
        "count(SIGNAL, WINDOW)",
        "How many valid samples of a gauge or an event lie in the window, as a plain number.",
        (_GAUGE, _EVENT),
    ),
    Function(
        "last",
        "last(SIGNAL, WINDOW)",
        "The newest valid value in the window, however old within it. A bare signal is stricter: it must "
        "be fresh.",
        (_GAUGE, _COUNTER, _STATE, _TEXT, _CURVE),
    ),
    Function(
        "increase",
        "increase(SIGNAL, WINDOW)",
        "How much a counter grew, counted from the last sample before the window. A reset counts from "
        "zero; the result is never negative.",
        (_COUNTER,),
    ),
    Function(
        "rate",
        "rate(SIGNAL, WINDOW)",
        "The increase of a counter, or the sum of an event, per second of the window. Compare it with a "
        "quantity per time, such as 10 MB/s.",
        (_COUNTER, _EVENT),
    ),
    Function(
        "sum",
        "sum(SIGNAL, WINDOW)",
        "All that an event added up to in the window, in the unit of the signal.",
        (_EVENT,),
    ),
    Function(
        "share",
        "share(CONDITION, WINDOW)",
        "The share of the window's known slots in which a condition over bare signals is true, judged "
        "slot by slot: `share(gpu.utilization < 5%, 1h) > 90%`. At least 80% of the slots have to be "
        "known.",
    ),
    Function(
        "absent",
        "absent(SIGNAL, WINDOW)",
        "True when no valid sample of the signal lies in the window although its collector looked; "
        "unknown when nobody looked.",
    ),
    Function(
        "age",
        "age(SIGNAL)",
        "The time since the newest valid sample of a signal: `age(train.step) > 10m`.",
    ),
    Function(
        "has",
        "has(LABEL)",
        "True when the label is present, also when it is empty: has(team), has(label.keep), "
        'has(label["aws:x"]).',
    ),
    Function(
        "all",
        "all(CONDITION)",
        "True when the condition holds for every member: every GPU of a job. A comparison that stands "
        "alone means this too; write all(…) to judge several comparisons on the same member.",
    ),
    Function(
        "any",
        "any(CONDITION)",
        "True when the condition holds for at least one member: `any(gpu.utilization < 5%)` finds the job "
        "with one idle GPU. All comparisons inside are judged on the same member.",
    ),
    Function(
        "most",
        "most(CONDITION, SHARE)",
        "True when the condition holds for at least the given share of the members: `most(gpu.utilization "
        "< 5%, 75%)`.",
    ),
    Function(
        "mean",
        "mean(NUMBER)",
        "The mean of a number over all members: `mean(gpu.utilization) < 20%` for a job looks at its GPUs "
        "together.",
    ),
    Function(
        "total",
        "total(NUMBER)",
        "The sum of a number over all members: `total(gpu.power) > 5kW` adds up the GPUs of a job.",
    ),
    Function("lowest", "lowest(NUMBER)", "The smallest value of a number over all members."),
    Function("highest", "highest(NUMBER)", "The largest value of a number over all members."),
)

FUNCTIONS: dict[str, Function] = {function.name: function for function in _TABLE}
"""Every function by name; `pNN` stands for all quantiles."""

FOLDS = ("all", "any", "most")
"""Functions that bring a condition from the members to the policy's kind."""
NUMBER_FOLDS = ("mean", "total", "lowest", "highest")
"""Functions that bring a number from the members to the policy's kind."""

_QUANTILE = re.compile(r"p([0-9]{1,2})(?:\.([0-9]))?")


def quantile_of(word: str) -> int | None:
    """The quantile of a name such as p95 or p99.9 in thousandths, or None when it is none."""
    match = _QUANTILE.fullmatch(word)
    if match is None:
        return None
    thousandths = int(match[1]) * 10 + int(match[2] or 0)
    return thousandths or None


def quantile_name(thousandths: int) -> str:
    """The shortest name of a quantile: p95, p99.9."""
    whole, tenth = divmod(thousandths, 10)
    return f"p{whole}.{tenth}" if tenth else f"p{whole}"


def find_function(word: str) -> Function | None:
    """The function that a word names, quantiles included, or None."""
    return FUNCTIONS["pNN"] if quantile_of(word) is not None else FUNCTIONS.get(word)


def functions_for(kind: SignalKind) -> tuple[str, ...]:
    """The window functions that fit signals of a kind."""
    return tuple(function.name for function in _TABLE if kind in function.kinds)
