"""The words that collectors, engine and actions share: resources, readings, samples, looks."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True, order=True)
class ResourceId:
    """What is looked at: its kind (gpu, job, host, …) and its name within that kind."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A label that exists or not, we could not tell; written `?` in recorded files."""

    def __repr__(self) -> str:
        return "UNREADABLE"


UNREADABLE: Final = Unreadable()

LabelValue: TypeAlias = "str | Unreadable | None"
"""A text is present (also the empty one), None is absent (looked, none), UNREADABLE unknown."""

Labels: TypeAlias = Mapping[str, LabelValue]
"""What a look said about labels. A label that is not mentioned was not looked at."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A reading that could not be taken, with the reason in words: `not supported on MIG`."""

    reason: str


Reading: TypeAlias = "float | str | Bad"
"""A number in the catalogue unit, a word, or why there is neither."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of one signal of one resource at one look.

    `time` is the scheduled instant of the look in seconds since the epoch, not when the
    reading came back. A non-finite number is kept only for curves; elsewhere it is a bad
    reading.
    """

    time: float
    resource: ResourceId
    signal: str
    reading: Reading
    labels: Labels | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What one look of one collector saw.

    Attributes:
        samples: every reading, bad ones included.
        inventories: kinds of which this look read the whole list; a resource of such a kind
            that is not among the samples is gone.
        notes: words for people: what was not looked at and why (no rights, not present).
    """

    samples: tuple[Sample, ...]
    inventories: frozenset[str] = frozenset()
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Curve:
    """One logged series of a run, in the order of the log (resumes and repeats included).

    Attributes:
        signal: catalogue name, such as train.loss, eval.loss, eval.metric, train.lr, train.grad_norm.
        steps: training steps; NaN where the log gives none.
        values: in the catalogue unit; NaN and infinities are kept as logged.
        times: seconds since the epoch; NaN where the log holds no clock.
    """

    signal: str
    steps: array[float]
    values: array[float]
    times: array[float]


@dataclass(frozen=True, slots=True)
class TrainingLog:
    """One run as its log tells it; a file that holds two runs gives two.

    Attributes:
        run: a name for people, unique within the source.
        source: the file or folder it was read from.
        format: name of the reader.
        curves: signal -> curve; a signal that the log lacks has none.
        facts: what the log declares, by name: target, better (lower or higher, of eval.metric), gpus,
            started, ended (seconds since the epoch), status (success, aborted), best_checkpoint,
            total_steps, cost (money, resets handled) with cost_currency; absent where not declared.
        notes: oddities that were seen and handled: a truncated line, an impossible throughput.
    """

    run: str
    source: str
    format: str
    curves: Mapping[str, Curve]
    facts: Mapping[str, str | float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Notice:
    """What an alert says, whoever is told.

    Attributes:
        event: firing, resolved or test.
        key: the same for all notices of one thing, so that a receiver can join them.
        policy, resource: what it is about, in words.
        severity: low, medium, high or critical.
        at: the instant that it speaks of.
        lines: the text, the first line its title; at most twelve.
        labels: of the resource; receivers with `{user}` are filled from them.
    """

    event: str
    key: str
    policy: str
    resource: str
    severity: str
    at: datetime
    lines: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The first line."""
        return self.lines[0]

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines)
