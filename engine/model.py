"""The words that collectors, engine and actions share: resources, readings, samples, looks."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Protocol, TypeAlias


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


@dataclass(frozen=True, slots=True)
class Order:
    """One step that is to be carried out on one resource.

    Attributes:
        id: the same for the same step of the same episode, also after a crash; systems that take
            a key against doing a thing twice are given it.
        action: its name, such as terminate.
        resource: what is acted on.
        parameters: options of the step as the policy file names them (`power-cap`), numbers in the
            units of the catalogue; JSON values.
        labels: of the resource, as the newest look told them; those that are unreadable are `?`.
        by: who asks, for people: `policy idle-gpu`.
        since: when the episode began, in seconds since the epoch.
        saved: path of the checkpoint on which the step relies: verified in this episode by a step before;
            None where there is none or none is needed.
    """

    id: str
    action: str
    resource: ResourceId
    parameters: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    by: str = ""
    since: float = 0.0
    saved: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What an order would act on, as it is at this moment. Written down before anything is done.

    Attributes:
        place: which of the action's targets it is, such as `job/slurm`; whoever finds it names it.
        words: what would be done, for people: `would end process 4412 and 3 that it started`.
        before: what makes the target this one and no other (process id and start, type of an
            instance), and all that an undo needs; JSON values without secrets.
        undoable: whether it can be taken back.
    """

    words: str
    before: Mapping[str, Any] = field(default_factory=dict)
    undoable: bool = False
    place: str = ""


OutcomeState: TypeAlias = Literal["done", "failed", "skipped", "undone", "unknown"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an order.

    Attributes:
        state: `done`: it was looked at afterwards, and is as it should be. `failed`: it is not as it
            should be. `skipped`: there is nothing to do any more. `undone`: nothing has changed, as
            before the order. `unknown`: it cannot be told.
        words: for people; never a secret, nor what another system answered.
        after: what the look afterwards saw; JSON values without secrets.
        retry: another try later is of use, and cannot do a thing twice.
    """

    state: OutcomeState
    words: str
    after: Mapping[str, Any] = field(default_factory=dict)
    retry: bool = False


class Refused(Exception):
    """An order is not carried out; `words` says why, for people and without secrets.

    `gone` is true where what it is about is no more, or is another by now.
    """

    def __init__(self, words: str, *, gone: bool = False) -> None:
        super().__init__(words)
        self.words, self.gone = words, gone


class Action(Protocol):
    """What is done to a resource, in steps between which the caller writes down what happens."""

    def find(self, order: Order) -> Found:
        """Look at what the order is about as it is now; changes nothing.

        Raises:
            Refused: it is gone, is not what it was, is not alone of its name, or cannot be looked at.
        """
        ...

    def act(self, order: Order, found: Found) -> Outcome:
        """Do it to exactly what was found, wait for it, and look whether it came true.

        What another system answers or fails to answer is an outcome, never an exception. What is not any
        more as it was found is left alone: `skipped`.
        """
        ...

    def look(self, order: Order, found: Found) -> Outcome:
        """What came of `act` whose outcome was never written down; changes nothing.

        `done`, `undone` where it is as it was found, `failed` where it is in between (told in words),
        `skipped` where it is gone without us, or `unknown`.
        """
        ...

    def undo(self, order: Order, found: Found) -> Outcome:
        """Bring back what `found.before` remembers, and look whether it did: `done` is then undone well.

        What was changed again since by somebody else is left alone: `skipped`.
        """
        ...
