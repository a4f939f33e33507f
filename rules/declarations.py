"""What a user declares about training runs beside their logs: prices, targets, GPUs, budgets, patterns.

```yaml
version: 1
prices: {gpu-hour: {H100: $4.10/GPU-hour, default: $2/GPU-hour}}
patterns:
  - 'epoch (?P<epoch>\\d+) cost (?P<train_loss>\\S+)'
runs:
  - match: "*bert*"            # in the path or the name of the run
    gpus: 4
    gpu: L40S
    target: 0.72
    better: higher
    budget: 5.69 GPU-hours
    checkpoints: {every: 3h, save-time: 60s, mtbf: 3h}
```
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar

from stoploss.rules.diagnostics import Diagnostic, Diagnostics
from stoploss.rules.loading.files import read_files
from stoploss.rules.loading.structure import check, expect_mapping
from stoploss.rules.models.base import Section
from stoploss.rules.models.fields import BUDGET_LIMIT, COUNT, INTERVAL, TEXT, Reads, choice, problem, shown
from stoploss.rules.models.sections import Prices
from stoploss.rules.units import SYMBOLS, Dimension, Quantity


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise problem("wrong-type", f"{shown(value)} stands where a number is expected", "write it like 0.72")
    return float(value)


def _pattern(value: Any) -> str:
    if not isinstance(value, str):
        raise problem("wrong-type", f"{shown(value)} stands where a pattern is expected", "quote it")
    try:
        groups = re.compile(value).groupindex
    except re.error as error:
        raise problem("bad-value", f"{value!r} is no regular expression: {error}") from None
    if not groups:
        raise problem(
            "bad-value", f"{value!r} has no named group", r"name what it finds, as in (?P<train_loss>\S+)"
        )
    return value


def _version(value: Any) -> int:
    if value != 1 or isinstance(value, bool):
        raise problem("unsupported-version", f"version {shown(value)} is not 1", "write version: 1")
    return 1


NUMBER = Reads(_number, {"type": "number"})
PATTERN = Reads(_pattern, {"type": "string"})
VERSION = Reads(_version, {"const": 1})


class _Checkpoints(Section):
    every: Annotated[float | None, INTERVAL] = None
    save_time: Annotated[float, INTERVAL]
    mtbf: Annotated[float, INTERVAL]
    placeholders: ClassVar[dict[str, str]] = {"save-time": "1m", "mtbf": "1h"}


class _Run(Section):
    match: Annotated[str, TEXT] = "*"
    target: Annotated[float | None, NUMBER] = None
    better: Annotated[str | None, choice("lower", "higher")] = None
    steps: Annotated[int | None, COUNT] = None
    gpus: Annotated[int | None, COUNT] = None
    gpu: Annotated[str | None, TEXT] = None
    budget: Annotated[Quantity | None, BUDGET_LIMIT] = None
    checkpoints: _Checkpoints | None = None


class _File(Section):
    version: Annotated[int, VERSION]
    prices: Prices | None = None
    patterns: tuple[Annotated[str, PATTERN], ...] = ()
    runs: tuple[_Run, ...] = ()
    placeholders: ClassVar[dict[str, Any]] = {"version": 1}


@dataclass(frozen=True, slots=True)
class Declared:
    """What is declared of one run; None is not declared.

    Attributes:
        target: value of the evaluation metric that is to be reached.
        better: lower or higher.
        steps: training steps that are planned.
        gpus: how many GPUs it holds.
        gpu: their model.
        budget: GPU time or money.
        checkpoint_every, save_time, mtbf: seconds between two checkpoints, that one takes, and
            between two failures.
    """

    target: float | None = None
    better: str | None = None
    steps: int | None = None
    gpus: int | None = None
    gpu: str | None = None
    budget: Quantity | None = None
    checkpoint_every: float | None = None
    save_time: float | None = None
    mtbf: float | None = None

    @property
    def facts(self) -> dict[str, str | float]:
        """What of it stands in the place of facts that a log declares."""
        named = {"target": self.target, "better": self.better, "total_steps": self.steps, "gpus": self.gpus}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Declarations:
    """A whole file.

    Attributes:
        prices: `gpu-hour` and `kind`, as in a policy set.
        currency: of the prices and budgets, ISO code; None where none is named.
        patterns: regular expressions for text formats of the user's own.
        runs: patterns of paths or names, and what is declared of what fits; later ones add to earlier.
    """

    prices: Mapping[str, Any] = field(default_factory=dict)
    currency: str | None = None
    patterns: tuple[str, ...] = ()
    runs: tuple[tuple[str, Declared], ...] = ()

    def of(self, source: str, run: str) -> Declared:
        """What is declared of a run, by its path or its name."""
        found = Declared()
        for pattern, declared in self.runs:
            if any(fnmatchcase(text, pattern) for text in (source, source.rpartition("/")[2], run)):
                given = {item.name: getattr(declared, item.name) for item in fields(declared)}
                found = replace(found, **{name: value for name, value in given.items() if value is not None})
        return found


def load(path: str) -> tuple[Declarations | None, tuple[Diagnostic, ...]]:
    """Read a file of declarations; None where it holds mistakes, which are all told."""
    diagnostics = Diagnostics()
    files = read_files([path], diagnostics)
    document = next(iter(files.documents.values()), None)
    root = None
    if document is not None and document.root is not None:
        root = expect_mapping(document.root, "a file of declarations", diagnostics)
    checked = None if root is None else check(_File, root, diagnostics).value
    declarations = None
    if checked is not None and root is not None:
        currencies = _currencies(checked)
        if len(currencies) > 1:
            diagnostics.add("mixed-currency", f"{' and '.join(sorted(currencies))} stand here", root.position)
        declarations = _built(checked, next(iter(currencies), None))
    lines = document.lines if document is not None else ()
    told = tuple(
        replace(item, source_line=lines[item.position.line - 1]) if item.position.line <= len(lines) else item
        for item in diagnostics.sorted()
    )
    return (None if diagnostics.has_errors else declarations), told


def _currencies(file: _File) -> set[str]:
    amounts: Iterable[Quantity | None] = (
        *(file.prices.gpu_hour.values() if file.prices else ()),
        *(run.budget for run in file.runs),
    )
    found = {amount.dimension.money for amount in amounts if amount is not None}
    return {code for code in found if code in SYMBOLS}


def _built(file: _File, currency: str | None) -> Declarations:
    prices: dict[str, Any] = {}
    if file.prices is not None:
        prices = {"gpu-hour": dict(file.prices.gpu_hour), "kind": file.prices.kind}
    return Declarations(
        prices, currency, file.patterns, tuple((run.match, _declared(run)) for run in file.runs)
    )


def _declared(run: _Run) -> Declared:
    saved = run.checkpoints
    return Declared(
        run.target,
        run.better,
        run.steps,
        run.gpus,
        run.gpu,
        run.budget,
        saved.every if saved else None,
        saved.save_time if saved else None,
        saved.mtbf if saved else None,
    )


def is_gpu_time(limit: Quantity) -> bool:
    """Whether a budget is one of GPU time (GPU-seconds), not of money."""
    return limit.dimension == Dimension.of(gpu=1, time=1)
