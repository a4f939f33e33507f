"""Random healthy training logs: noisy falls of the kinds that schedules give."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from stoploss.engine.model import TrainingLog
from support.curves import curve, log

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Healthy:
    """A log, and the family of its curve: power, cosine, step, exp."""

    family: str
    log: TrainingLog


def healthy(random: np.random.Generator) -> Healthy:
    """One run of 60 to 5,000 records with 0.3 to 30 % of noise; half of them say rate, plan, evaluations."""
    count = int(np.exp(random.uniform(np.log(60), np.log(5000))))
    family = str(random.choice(["power", "cosine", "step", "exp"]))
    level, rate = _level(random, family, count)
    values = level * _noise(random, count)
    curves: dict[str, object] = {"train.loss": list(values)}
    if random.random() < 0.5:
        curves["train.lr"] = list(rate)
    if random.random() < 0.5:
        many = int(random.integers(5, 40))
        steps = np.unique(np.linspace(count / many, count, many).astype(int))
        smooth = np.convolve(np.pad(values, 5, "edge"), np.ones(11) / 11, "valid")
        spread = random.uniform(0.001, 0.02) * random.normal(size=len(steps))
        curves["eval.loss"] = curve("eval.loss", list(1.02 * smooth[steps - 1] * np.exp(spread)), list(steps))
    facts = {"total_steps": float(count)} if random.random() < 0.5 else {}
    return Healthy(family, log(curves, **facts))  # type: ignore[arg-type]


def _level(random: np.random.Generator, family: str, count: int) -> tuple[Floats, Floats]:
    steps = np.arange(1, count + 1)
    floor, height = random.uniform(0.05, 2.5), random.uniform(0.5, 8)
    rate = np.full(count, 1e-3)
    if family == "exp":
        return floor + height * np.exp(-steps / (count * random.uniform(0.2, 1))), rate
    if family == "step":
        return _stairs(random, count, floor, height)
    level = floor + height * (1 + steps / (count * random.uniform(0.002, 0.05) + 1)) ** -random.uniform(
        0.15, 0.8
    )
    if family == "cosine":
        done = steps / count
        level *= 1 - 0.12 * random.uniform(0.2, 1) * (1 - np.cos(np.pi * done)) / 2 * done
        rate = 1e-3 * (1 + np.cos(np.pi * done)) / 2
        warm = max(1, int(0.03 * count))
        rate[:warm] *= steps[:warm] / warm
    return level, rate


def _stairs(random: np.random.Generator, count: int, floor: float, height: float) -> tuple[Floats, Floats]:
    """Plateaus between drops of the learning rate, each reached by an exponential."""
    drops = sorted((random.uniform(0.25, 0.9, random.integers(1, 4)) * count).astype(int))
    edges = [0, *drops, count]
    level, rate = np.empty(count), np.empty(count)
    now = floor + height
    for number, (start, end) in enumerate(pairwise(edges)):
        if start == end:
            continue
        target = floor + (
            (now - floor) * random.uniform(0.3, 0.7) if number else height * random.uniform(0.2, 0.5)
        )
        tau = max(1, (end - start) * random.uniform(0.03, 0.4))
        level[start:end] = target + (now - target) * np.exp(-np.arange(end - start) / tau)
        now = level[end - 1]
        rate[start:end] = 1e-3 * 0.1**number
    return level, rate


def _noise(random: np.random.Generator, count: int) -> Floats:
    """Factors around 1: Gaussian, lognormal, or with neighbours that are alike."""
    spread = np.exp(random.uniform(np.log(0.003), np.log(0.3)))
    kind = random.choice(["gauss", "lognormal", "alike"])
    wave = random.normal(size=count)
    if kind == "alike":
        alike = random.uniform(0.2, 0.6)
        for place in range(1, count):
            wave[place] = alike * wave[place - 1] + wave[place] * math.sqrt(1 - alike * alike)
    factors: Floats = 1 + spread * wave if kind == "gauss" else np.exp(spread * wave)
    return factors
