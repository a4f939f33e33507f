"""One run as the judges see it, and what a judge returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stoploss.engine.losses.clean import Track
from stoploss.engine.losses.evaluations import Evaluations
from stoploss.engine.losses.facts import Facts
from stoploss.engine.losses.model import LossSettings
from stoploss.engine.losses.spikes import Level
from stoploss.engine.losses.statistics import Trend


@dataclass(frozen=True, slots=True)
class Run:
    """The cleaned curves of one run and what is known about them.

    Attributes:
        tracks: signal -> curve.
        level: the calm part of the training loss; empty where none is logged.
        half: trend of the last half of the training loss; None while it is short.
        facts: what the log declares.
        settings: where the lines lie.
        evaluations: judges an evaluation curve by name.
    """

    tracks: Mapping[str, Track]
    level: Level
    half: Trend | None
    facts: Facts
    settings: LossSettings
    evaluations: Callable[[str], Evaluations | None]

    @property
    def train(self) -> Track | None:
        """The training loss, where it has records."""
        return self.tracks.get("train.loss") or None

    @property
    def grad(self) -> Track | None:
        """The gradient norm, where it has records."""
        return self.tracks.get("train.grad_norm") or None

    @property
    def judged(self) -> str | None:
        """The evaluation that is judged: the loss before a metric, a metric only with its direction."""
        if self.tracks.get("eval.loss"):
            return "eval.loss"
        return "eval.metric" if self.tracks.get("eval.metric") and "better" in self.facts else None

    @property
    def primary(self) -> str | None:
        """The curve that best and last are told of."""
        return self.judged or ("train.loss" if self.train else None)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a run's curves show.

    Attributes:
        verdict: the word for it.
        step: the step where it began.
        evidence: sentences with numbers.
        sudden: records from the last good one to the first bad one.
        lag: steps between the trouble in training and in evaluation.
        lead: records by which the gradient norm rose first.
        wasted: share of the run after its useful end; None leaves it to be measured from `step`.
        strategy: sentences on gradient and schedule.
    """

    verdict: str
    step: float | None = None
    evidence: tuple[str, ...] = ()
    sudden: int | None = None
    lag: float | None = None
    lead: int | None = None
    wasted: float | None = None
    strategy: tuple[str, ...] = ()
