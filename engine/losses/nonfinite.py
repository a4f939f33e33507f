"""Numbers that are not finite: in the loss, an evaluation, the gradient norm, or hidden by the logger."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from stoploss.engine.losses.clean import Track
from stoploss.engine.losses.model import LossSettings

WATCHED = ("train.loss", "eval.loss", "eval.metric", "train.grad_norm")
CALIBRATION = 5
"""Records in a row that the infinite gradient norms of a loss scale that still seeks its level may last."""


@dataclass(frozen=True, slots=True)
class NonFinite:
    """Where non-finite numbers began, and what shows it."""

    step: float
    evidence: tuple[str, ...]


def non_finite(tracks: Mapping[str, Track], settings: LossSettings) -> NonFinite | None:
    """The open run of non-finite records, or None where numbers are finite or came back."""
    runs = {name: tracks[name].bad_run() for name in WATCHED if name in tracks}
    if not any(runs.values()):
        return _crowded(tracks) or _hidden(tracks)
    loss = runs.get("train.loss", 0)
    counts = [name for name, run in runs.items() if run and _counts(tracks[name], name, run, settings)]
    if not counts and loss and sum(runs.values()) > loss and sum(runs.values()) >= settings.non_finite_run:
        counts = ["train.loss"]
    if not counts:
        return _crowded(tracks) or _hidden(tracks)
    shown = [name for name, run in runs.items() if run]
    step = min(tracks[name].steps[len(tracks[name]) - runs[name]] for name in shown)
    evidence = [_sentence(name, tracks[name], runs[name]) for name in shown]
    if not loss and "train.loss" in tracks:
        evidence.append(_beside(tracks["train.loss"]))
    lr = tracks.get("train.lr")
    if lr is not None and len(lr) and lr.values[-1] == 0:
        evidence.append("the learning rate is 0: every optimiser step is skipped")
    return NonFinite(step, tuple(evidence))


def _counts(track: Track, name: str, run: int, settings: LossSettings) -> bool:
    whole = run == len(track)
    if name != "train.grad_norm":
        return run >= settings.non_finite_run
    nan = any(math.isnan(value) for value in track.values[-run:][-3:])
    return run >= CALIBRATION or (nan and (run >= 3 or (whole and run >= settings.non_finite_run)))


def _sentence(name: str, track: Track, run: int) -> str:
    word = "nan" if math.isnan(track.values[-1]) else f"{track.values[-1]}"
    since = track.steps[len(track) - run]
    what = f"{'all' if run == len(track) else 'the last'} {run} records" if run > 1 else "the last record"
    return f"{name} is {word} in {what}, since step {since:g}"


def _beside(loss: Track) -> str:
    if loss.values and loss.values[-1] == 0:
        return "the training loss is exactly 0 beside it, which is not convergence"
    return f"the training loss stays finite beside it ({loss.values[-1]:.4g}), which proves nothing"


def _crowded(tracks: Mapping[str, Track]) -> NonFinite | None:
    """Losses that are not finite again and again, each time with a finite one after it."""
    track = tracks.get("train.loss")
    if track is None or len(track.bad) < 5:
        return None
    newest = [place for place in track.bad[-20:] if place >= len(track) - 20]
    if len(newest) < 5:
        return None
    step = track.steps[newest[0]]
    return NonFinite(step, (f"{len(newest)} of the last 20 training losses are not finite",))


def _hidden(tracks: Mapping[str, Track]) -> NonFinite | None:
    """What other fields tell of steps whose loss the logger left out or averaged away."""
    share = tracks.get("train.non_finite_share")
    # A loss scale that still seeks its level skips steps, and nothing is wrong.
    seeking = "train.loss_scale" in tracks and share is not None and len(share) < 32
    seeking = seeking and share is not None and not share.starts_late()
    if share is not None and len(share) > 1 and not seeking:
        newest = list(share.values[-3:])
        if sorted(newest)[(len(newest) - 1) // 2] >= 0.1:
            place = len(share)
            while place and share.values[place - 1] > 0:
                place -= 1
            text = f"{newest[-1]:.0%} of steps are not finite, though the logged loss is"
            return NonFinite(share.steps[place], (text,))
    return _scale_falls(tracks)


def _scale_falls(tracks: Mapping[str, Track]) -> NonFinite | None:
    loss, scale = tracks.get("train.loss"), tracks.get("train.loss_scale")
    if scale is None or len(scale) < 4:
        return None
    last = loss.steps[-1] if loss is not None and len(loss) else -math.inf
    first = scale.place(math.nextafter(last, math.inf))
    missing = scale.values[first:]
    halved = sum(later < earlier for earlier, later in pairwise(missing))
    if len(missing) < CALIBRATION or halved < 3:
        return None
    text = f"{len(missing)} records without a loss while the loss scale fell to {missing[-1]:g}"
    return NonFinite(scale.steps[first], (text,))
