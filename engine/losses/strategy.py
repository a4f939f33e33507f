"""What the learning rate and the gradient norm add to a verdict; never a cause by themselves."""

from __future__ import annotations

import math

import numpy as np

from stoploss.engine.losses.clean import Floats, Track, view

BEFORE = 8
"""Records before a loss goes wrong in which the gradient norm may have warned."""


def warming_up(lr: Track | None) -> bool | None:
    """Whether the learning rate still climbs; None where it is not logged or never moved."""
    if lr is None or len(lr) < 2 or lr.values[0] == lr.values[-1] == lr.values[len(lr) // 2]:
        return None
    peak = lr.best_before(len(lr))
    return peak == len(lr) - 1 and lr.values[-1] > lr.values[-2]


def between_drops(lr: Track | None) -> bool:
    """Whether the learning rate goes down in steps and the next drop may still come.

    A plateau before a drop is how such schedules work. It is no longer one when the present
    stretch has lasted half as long again as the longest before it.
    """
    if lr is None or len(lr) < BEFORE:
        return False
    values, steps = view(lr.values), view(lr.steps)
    drops = np.flatnonzero(values[1:] < 0.7 * values[:-1]) + 1
    if not len(drops) or values[-1] != values[drops[-1]]:
        return False
    edges = np.concatenate(([steps[0]], steps[drops]))
    return bool(steps[-1] - edges[-1] < 1.5 * np.diff(edges).max())


def learning_rate(lr: Track | None, since: float | None, total: float | None) -> tuple[str, ...]:
    """Sentences on the schedule: trouble near the end of warm-up, a late rise, a schedule that is over."""
    peak = lr.best_before(len(lr)) if lr is not None else None
    if lr is None or peak is None or lr.values[peak] <= 0:
        return ()
    values, found = view(lr.values), []
    top = lr.values[peak]
    ramp = peak > 0 and lr.values[0] < 0.9 * top
    if since is not None and ramp:
        ready = lr.steps[int((values >= 0.999 * top).argmax())]
        if 0.8 * ready <= since <= 1.2 * ready + 5 * lr.spacing():
            found.append(f"it began at step {since:g}, near the end of warm-up (step {ready:g})")
    # A rate that stands at its peak and has all its history there is the usual case, and quick to see.
    rise = _late_rise(values) if values.min() < 0.8 * top else None
    if rise is not None:
        found.append(
            f"the learning rate rose to {rise[1]:.3g} at step {lr.steps[rise[0]]:g} after it had fallen"
        )
    last, step = lr.values[-1], lr.steps[-1]
    if 0 <= last < 0.01 * top and total is not None and step < total:
        left = f"{total - step:g} steps left"
        found.append(f"the learning rate is {last / top:.1%} of its peak with {left}: the rest buys little")
    return tuple(found)


def _late_rise(values: Floats) -> tuple[int, float] | None:
    """Where the learning rate climbs by more than a fifth after a fall from its first peak."""
    finite = np.where(np.isfinite(values), values, 0.0)
    top = np.maximum.accumulate(finite)
    fallen = finite < 0.8 * top
    if not fallen.any():
        return None
    start = int(fallen.argmax())
    rest = finite[start:]
    low = np.minimum.accumulate(rest)
    up = (rest > 1.2 * low) & (rest > 0.01 * top[start])
    return (start + int(up.argmax()), float(rest[int(up.argmax())])) if up.any() else None


def measured(grad: Track | None) -> bool:
    """Whether the gradient norm is a measurement: some loggers write one constant."""
    if grad is None or not len(grad):
        return False
    first = grad.values[0]
    return len(grad) < 3 or any(value != first for value in grad.values[-200:])


def lead(grad: Track | None, step: float) -> int | None:
    """Records in a row before `step` in which the gradient norm stood above three times its level.

    None where the gradient norm is not measured or no record stands before.
    """
    if grad is None or not measured(grad):
        return None
    place = grad.place(step)
    before = [v for v in grad.values[max(0, place - 128) : max(0, place - BEFORE)] if math.isfinite(v)]
    near = grad.values[max(0, place - BEFORE) : place]
    finite = [value for value in near if math.isfinite(value)]
    if not finite:
        return None
    level = sorted(before)[len(before) // 2] if len(before) >= 3 else min(finite)
    count = 0
    while count < len(near) and not near[-1 - count] <= 3 * level:
        count += 1
    return count


def warned(records: int) -> str:
    """A sentence on how long the gradient norm rose before the loss."""
    return f"the gradient norm rose {'one record' if records == 1 else f'{records} records'} before the loss"


def vanishing(grad: Track | None) -> str | None:
    """A sentence where the gradient norm has gone towards zero."""
    if grad is None or len(grad) < BEFORE or not measured(grad):
        return None
    values = view(grad.values)
    finite = values[np.isfinite(values)]
    if len(finite) < BEFORE:
        return None
    early, now = float(np.median(finite[:BEFORE])), float(np.median(finite[-BEFORE:]))
    if now < 1e-6 or now < 1e-3 * early:
        return f"the gradient norm has vanished: {now:.3g} now, {early:.3g} at the start"
    return None


def restless(grad: Track | None, since: float) -> str | None:
    """A sentence where the gradient norm swings more since a step than it did before."""
    if grad is None or not measured(grad):
        return None
    values, place = view(grad.values), grad.place(since)
    before, after = (part[np.isfinite(part)] for part in (values[:place], values[place:]))
    if min(len(before), len(after)) < BEFORE:
        return None
    calm, now = float(np.std(before)), float(np.std(after))
    return (
        f"the gradient norm scatters {now / calm:.1f} times as much as before" if now > 2 * calm > 0 else None
    )
