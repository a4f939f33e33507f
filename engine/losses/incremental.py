"""A run whose log arrives in parts; every part costs what is new in it."""

from __future__ import annotations

from array import array

import numpy as np

from stoploss.engine.losses.clean import Track
from stoploss.engine.losses.evaluations import Evaluations, evaluations
from stoploss.engine.losses.model import LossSettings, LossVerdict
from stoploss.engine.losses.plateau import trend
from stoploss.engine.losses.run import Run
from stoploss.engine.losses.spikes import Level
from stoploss.engine.losses.verdict import conclude
from stoploss.engine.model import Curve, TrainingLog

DEFAULT = LossSettings()


class LiveRun:
    """What has been read of one run so far.

    The verdict after any number of parts is the verdict on the whole log, read at once. A loss of
    1e200 is a reading too: its square is infinite, and no warning of numpy's helps.
    """

    def __init__(self, log: TrainingLog | None = None, *, settings: LossSettings = DEFAULT) -> None:
        self._settings = settings
        self._tracks: dict[str, Track] = {}
        self._facts: dict[str, str | float] = {}
        self._level = Level(Track(), settings)
        self._judged: dict[str, tuple[int, Evaluations | None]] = {}
        self._name = ("", "", "")
        if log is not None:
            self.extend(log)

    def extend(self, part: TrainingLog) -> None:
        """Take the records of a log that were not given before, and its facts.

        Raises:
            ValueError: the columns of a curve differ in length.
        """
        self._name = (part.run, part.source, part.format)
        if any(len(curve.values) for curve in part.curves.values()):
            # A silence ends with the next record; the part says if there is a new one.
            self._facts.pop("quiet_from", None)
            self._facts.pop("quiet_to", None)
        self._facts.update(part.facts)
        for name, curve in part.curves.items():
            track = self._tracks.get(name)
            if track is None:
                track = self._tracks[name] = Track(self._sign(name))
                if name == "train.loss":
                    self._level = Level(track, self._settings)
            changed = track.extend(curve.steps, curve.values, curve.times)
            if name == "train.loss":
                with np.errstate(over="ignore", invalid="ignore"):
                    self._level.update(changed)
        metric = self._tracks.get("eval.metric")
        if metric is not None and metric.sign != self._sign("eval.metric"):
            self._turn(metric)

    def verdict(self, now: float | None = None) -> LossVerdict:
        """The verdict on everything so far; `now` in seconds since the epoch tells a hang."""
        with np.errstate(over="ignore", invalid="ignore"):
            half = trend(self._level, self._settings)
            run = Run(self._tracks, self._level, half, self._facts, self._settings, self._evaluations)
            return conclude(run, now)

    def log(self) -> TrainingLog:
        """Everything that counts so far: what another process needs to go on from here."""
        run, source, reader = self._name
        curves = {
            name: Curve(name, array("d", t.steps), array("d", t.values), array("d", t.times))
            for name, t in self._tracks.items()
        }
        return TrainingLog(run, source, reader, curves, dict(self._facts))

    def _evaluations(self, name: str) -> Evaluations | None:
        track = self._tracks[name]
        known = self._judged.get(name)
        if known is None or known[0] != track.version:
            known = self._judged[name] = (track.version, evaluations(track, self._settings))
        return known[1]

    def _sign(self, name: str) -> float:
        if name == "train.lr":
            return -1.0  # Its peak is what matters.
        return -1.0 if name == "eval.metric" and self._facts.get("better") == "higher" else 1.0

    def _turn(self, metric: Track) -> None:
        """The direction was declared after the first records."""
        turned = Track(self._sign("eval.metric"))
        turned.extend(metric.steps, metric.values, metric.times)
        self._tracks["eval.metric"] = turned
        self._judged.pop("eval.metric", None)


def judge(log: TrainingLog, *, now: float | None = None, settings: LossSettings = DEFAULT) -> LossVerdict:
    """The verdict on one training log; `now` in seconds since the epoch tells a hang.

    Raises:
        ValueError: the columns of a curve differ in length.
    """
    return LiveRun(log, settings=settings).verdict(now)
