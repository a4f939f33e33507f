"""Frames from short lists of values, one per slot, as live collectors would give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stoploss.engine.costs.accrual import accrue
from stoploss.engine.costs.book import book_for
from stoploss.engine.costs.priced import Prices
from stoploss.engine.costs.use import Accrual
from stoploss.engine.history.frame import Frame
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.model import Look, ResourceId, Sample
from stoploss.rules.catalogue import catalogue
from stoploss.rules.units import parse_quantity
from support.scenes import START

Series = Mapping[tuple[str, str, str], Sequence[float | str | None]]
Said = Callable[[str, int], Mapping[str, str | None]]
"""(resource, slot from 0) -> its labels."""
PRICE = 4.0


def frame_of(
    series: Series, said: Said | None = None, *, step: float = 60.0, until: int | None = None
) -> Frame:
    """A frame of one value per slot; None is a slot in which nobody looked at that series."""
    buffer = SampleBuffer(catalogue(), {"test": step})
    slots = max(len(values) for values in series.values())
    for slot in range(slots if until is None else until):
        at = START + (slot + 1) * step
        samples = [
            Sample(at, ResourceId(kind, name), signal, values[slot], said(name, slot) if said else None)
            for (kind, name, signal), values in series.items()
            if slot < len(values) and values[slot] is not None
        ]
        buffer.add("test", Look(tuple(samples)), slot_time=at)
    return buffer.frame(step)


def accrual_of(frame: Frame, fixed: Sequence[Mapping[str, object]] = ()) -> Accrual:
    """Use at $4 per GPU-hour of every model."""
    prices = {"gpu-hour": {"default": parse_quantity("$4/GPU-hour")}}
    return accrue(frame, Prices(frame, book_for(prices, None), catalogue()), fixed)


def of_job(job: str = "j", **labels: str) -> Said:
    """Every GPU belongs to one job."""
    return lambda name, slot: {"job": job, **labels} if name.startswith("g") else {}


def busy(count: int, slots: int, load: float = 0.9) -> dict[tuple[str, str, str], list[float | str | None]]:
    """GPUs g0, g1, … under load."""
    return {("gpu", f"g{n}", "gpu.utilization"): [load] * slots for n in range(count)}
