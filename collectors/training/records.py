"""What all readers share: records, numbers, and the fields of one row.

A reader is fed the bytes of a log in pieces of any size and leaves records; whoever feeds it takes them. So a
file that is read whole and one that still grows go through the same code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, Final, NamedTuple

from stoploss.collectors.training import names

NAN: Final = math.nan

DIFFERENT_NOTES: Final = 50
"""Notes that are kept word by word."""

_LONGEST_NUMBER = 100
"""Characters of a number with its unit and what surrounds it."""

_PLANS, _WIDEST_PLAN = 1000, 200
"""Different sets of fields that are remembered, and how many fields these may have."""

FIELDS_NAMED: Final = 10
"""Fields without a signal that a note names."""


class Record(NamedTuple):
    """One value of one signal.

    Attributes:
        run: which run of the file, from 0.
        signal: catalogue name.
        step: training step; NaN where the log gives none.
        value: in the catalogue unit.
        time: seconds since the epoch; NaN where the log gives none.
    """

    run: int
    signal: str
    step: float
    value: float
    time: float


@dataclass(frozen=True, slots=True)
class ReadProblem:
    """A file or folder, or a part of it, that could not be read, with the reason in words."""

    path: str
    message: str


@dataclass(slots=True)
class Notes:
    """Remarks for people, each once with how often it was made."""

    counts: dict[str, tuple[str, int]] = field(default_factory=dict)
    unread: dict[str, None] = field(default_factory=dict)

    def add(self, text: str, kind: str = "") -> None:
        """Make a remark; of remarks of one kind only the first is kept, with their number."""
        said, times = self.counts.get(kind or text, (text, 0))
        if times or len(self.counts) < DIFFERENT_NOTES:
            self.counts[kind or text] = (said, times + 1)

    def once(self, text: str) -> None:
        """Make a remark that holds for the whole log."""
        self.counts[text] = (text, 1)

    def leave_out(self, name: str) -> None:
        """Remember a field that is not read."""
        if len(self.unread) <= FIELDS_NAMED:
            self.unread.setdefault(name[:60])

    def lines(self) -> tuple[str, ...]:
        """All remarks."""
        lines = [text if times == 1 else f"{text} ({times} times)" for text, times in self.counts.values()]
        if self.unread:
            listed = list(self.unread)
            more = " and others" if len(listed) > FIELDS_NAMED else ""
            lines.append(f"fields not read: {', '.join(listed[:FIELDS_NAMED])}{more}")
        return tuple(lines)


_NUMBER = re.compile(
    r"\s*([-+]?(?:\d[\d_]*\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|inf(?:inity)?|nan))\s*(.*?)\s*$", re.I
)


def measured(text: str) -> tuple[float, str] | None:
    """A number and the unit behind it, as in `1.5`, `-Infinity`, `278ms` and `nanms`; None for other text."""
    found = _NUMBER.match(text) if len(text) <= _LONGEST_NUMBER else None
    if found is None:
        return None
    try:
        return float(found[1]), found[2]
    except (ValueError, OverflowError):
        return None


def number(value: object) -> float | None:
    """A value as a number; None for what is no plain number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str) and len(value) <= 64:
        try:
            return float(value)
        except ValueError:
            return None
    return None


def instant(value: object) -> float:
    """A clock reading in seconds since the epoch: numbers in s, ms, µs or ns, or ISO 8601; else NaN.

    A number too small to be a date, such as seconds since the start, is none. Text without a zone is UTC.
    """
    seconds = number(value)
    if seconds is not None:
        for factor in (1.0, 1e-3, 1e-6, 1e-9):
            if 6e8 <= seconds * factor < 6e9:
                return seconds * factor
        return NAN
    if isinstance(value, str) and 8 <= len(value) <= 40:
        try:
            moment = datetime.fromisoformat(value.strip().replace(",", "."))
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return NAN
    return NAN


_CLOCK = re.compile(r"[^\w]{0,3}(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?:Z|[+-]\d\d:?\d\d)?)")


def clock_of(line: str) -> float:
    """The date and time at the beginning of a line of text, in seconds since the epoch; else NaN."""
    found = _CLOCK.match(line)
    return instant(found[1]) if found is not None else NAN


@dataclass(slots=True)
class Spending:
    """The total of a counter of money that starts again with each session.

    Attributes:
        total: the sum of all growth.
        currency: its code.
    """

    total: float = 0.0
    currency: str = ""
    _last: float = 0.0
    _step: float = -math.inf

    def add(self, value: float, step: float) -> None:
        """Go on with the next reading."""
        if not math.isfinite(value):
            return
        # A session that began again may have outgrown the old one before its first record, and then only
        # its step tells. Where the old value is most of the new one, it was carried over with the checkpoint.
        anew = value < self._last or (step < self._step and self._last < value / 2)
        self.total += value if anew else value - self._last
        self._last = value
        if not math.isnan(step):
            self._step = step


class _Plan(NamedTuple):
    """What the fields of a row are, by name: axes, what is no signal, and signals with their factors."""

    step: str | None
    epoch: str | None
    planned: str | None
    cost: str | None
    currency: str
    reads: tuple[tuple[str, str, float], ...]
    checked: bool


class Reader:
    """One pass over one log, fed in pieces.

    Attributes:
        name: the format.
        facts: of each run, what the log declares.
        notes: remarks so far.
        run: the run that records belong to now, from 0.
        subject: what the file itself is named, for formats in which the name says the signal.
    """

    name: ClassVar[str]
    snapshot: ClassVar[bool] = False
    """Whether the file is written anew each time, with all that it held before."""

    def __init__(self, subject: str = "") -> None:
        self.subject = subject
        self.facts: list[dict[str, str | float]] = [{}]
        self.notes = Notes()
        self.run = 0
        self._records: list[Record] = []
        self._spent: dict[int, Spending] = {}
        self._owners: dict[tuple[int, str], str] = {}
        self._plans: dict[tuple[str, ...], _Plan] = {}
        self._step = NAN
        self._by_epoch = True

    def feed(self, data: bytes) -> None:
        """Go on with the next bytes."""
        raise NotImplementedError

    def end(self) -> None:
        """There are no more bytes: an unfinished last record is read as far as it goes."""

    def restart(self) -> None:
        """The bytes that follow are those of a new file, in which the same log goes on."""

    def take(self) -> list[Record]:
        """The records since the last take."""
        taken, self._records = self._records, []
        return taken

    def begin_run(self) -> None:
        """What follows belongs to another run."""
        self.run += 1
        self.facts.append({})
        self._plans.clear()
        self._step, self._by_epoch = NAN, True

    def put(self, signal: str, value: float, step: float = NAN, time: float = NAN) -> None:
        """Leave one record, unless it is a non-finite value of a signal for which that says nothing."""
        if math.isfinite(value) or signal in names.KEPT_NON_FINITE:
            self._records.append(Record(self.run, signal, step, value, time))

    def put_row(self, fields: Mapping[str, float], time: float = NAN) -> None:
        """Leave the records of one row that may hold its own step.

        A row without one belongs to the step before. Where a log counts only epochs, these are the steps.
        """
        plan = self._plan(fields)
        step = NAN if plan.step is None else fields[plan.step]
        if math.isfinite(step):
            self._step, self._by_epoch = step, False
        elif self._by_epoch and plan.epoch is not None and math.isfinite(fields[plan.epoch]):
            self._step = fields[plan.epoch]
            self.notes.once("the log counts no steps: epochs are taken as steps")
        self.put_fields(fields, self._step, time)

    def put_fields(self, fields: Mapping[str, float], step: float, time: float) -> None:
        """Leave the records of one row, given as field names and values."""
        plan = self._plan(fields)
        if plan.planned is not None and math.isfinite(fields[plan.planned]):
            self.facts[self.run]["total_steps"] = fields[plan.planned]
        if plan.cost is not None:
            self._spend(fields[plan.cost], step, plan.currency)
        if plan.checked:
            values = {signal: fields[name] * factor for name, signal, factor in plan.reads}
            for signal, value in self.believe(values).items():
                self.put(signal, value, step, time)
            return
        for name, signal, factor in plan.reads:
            self.put(signal, fields[name] * factor, step, time)

    def _plan(self, fields: Mapping[str, float]) -> _Plan:
        """What to do with rows of these fields, which mostly is what was done with the row before."""
        key = tuple(fields)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            plan = self._planned(key)
            if len(key) <= _WIDEST_PLAN:
                self._plans[key] = plan
        return plan

    def _planned(self, fields: Iterable[str]) -> _Plan:
        best: dict[str, tuple[int, str, names.Meaning]] = {}
        for name in fields:
            found = names.meaning(name)
            if found is None:
                self.notes.leave_out(name)
            elif found.signal not in best or found.rank < best[found.signal][0]:
                best[found.signal] = (found.rank, name, found)
        first = {signal: name for signal, (_, name, _) in best.items()}
        cost = best.get(names.COST)
        if cost is not None and not self._owned(names.COST, cost[1]):
            cost = None
        reads = tuple(
            (name, signal, found.factor)
            for signal, (_, name, found) in best.items()
            if signal not in names.NO_SIGNALS and self._owned(signal, name)
        )
        return _Plan(
            step=first.get(names.STEP),
            epoch=first.get(names.EPOCH),
            planned=first.get(names.PLANNED),
            cost=None if cost is None else cost[1],
            currency="" if cost is None else cost[2].currency,
            reads=reads,
            checked=any(signal in ("train.samples_per_second", "train.mfu") for _, signal, _ in reads),
        )

    def believe(self, values: dict[str, float]) -> dict[str, float]:
        """The values of one row without what the others of the row show to be impossible."""
        return _believed(values, self.notes)

    def _owned(self, signal: str, name: str) -> bool:
        """Whether that field is the one of this run that the signal is read from; the first is."""
        owner = self._owners.setdefault((self.run, signal), name)
        if owner != name:
            self.notes.leave_out(name)
        return owner == name

    def _spend(self, value: float, step: float, currency: str) -> None:
        spent = self._spent.setdefault(self.run, Spending(currency=currency))
        spent.add(value, step)
        self.facts[self.run].update(cost=spent.total, cost_currency=currency)


def _believed(values: dict[str, float], notes: Notes) -> dict[str, float]:
    mfu = values.get("train.mfu")
    if mfu is not None and 1 < mfu <= 100:
        values["train.mfu"] = mfu / 100
        notes.add("mfu above 1 is read as a percentage")
    speed = values.get("train.samples_per_second")
    batch, seconds = values.get("train.batch_size"), values.get("train.step_time")
    if speed is None:
        return values
    if batch and seconds and seconds > 0 and math.isfinite(speed):
        true = batch / seconds
        # A wrong unit is off by a thousand or sixty; averaging over other steps is not off by ten.
        if not true / 10 < speed < true * 10:
            values["train.samples_per_second"] = true
            notes.add(
                f"impossible throughput: the log says {speed:g} samples/s, but {batch:g} samples in "
                f"{seconds:.4g} s are {true:.2f}/s, which is used",
                kind="throughput",
            )
    elif speed < 0:
        del values["train.samples_per_second"]
        notes.add("impossible throughput: below zero; left out")
    return values
