"""Readings that a GPU makes and that cannot be true: frozen, latched, or against each other.

What is suspect is unknown. Better a GPU that nobody judges than a busy one that a dead sensor
makes look idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stoploss.engine.model import Bad, Reading

FROZEN_LOOKS = 10
"""Looks over which a reading that always moves may stay the same to the last digit."""

ALWAYS_MOVING = ("gpu.power", "gpu.energy")

OTHERS = (
    "gpu.utilization",
    "gpu.temperature",
    "gpu.memory.temperature",
    "gpu.memory.used",
    "gpu.clock.sm",
    "gpu.pcie.received",
    "gpu.pcie.sent",
)
"""Readings of which one that changes shows that the GPU lives."""

NEAR_IDLE = 1.1
"""Times its idle power within which a GPU is as good as idle."""

IDLE_SHARE = 0.2
"""Share of the power limit that counts as idle power until the GPU was seen idle."""

NO_POWER = Bad("suspect: 0 W on a GPU with a power limit")
LATCHED = Bad("suspect: 100% at idle power and without a process")


@dataclass(slots=True)
class _Still:
    """A reading that did not change: for how many looks, and what others said at the first."""

    value: float
    looks: int
    others: tuple[Reading | None, ...]
    moved: bool = False


@dataclass(slots=True)
class Watch:
    """Keeps what the doubts about one GPU need from look to look."""

    _still: dict[str, _Still] = field(default_factory=dict)
    _idle_power: float | None = None

    def check(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        """The readings of one look, by signal; those that cannot be true are bad."""
        checked = dict(readings)
        for signal in ALWAYS_MOVING:
            if self._is_frozen(signal, readings):
                checked[signal] = Bad(
                    f"suspect: the same to the last digit over {FROZEN_LOOKS} looks while others moved"
                )
        if readings.get("gpu.power") == 0 and _number(readings, "gpu.power_limit"):
            checked["gpu.power"] = NO_POWER
        self._learn_idle(checked)
        if self._is_latched(checked):
            checked["gpu.utilization"] = LATCHED
        return checked

    def _is_frozen(self, signal: str, readings: Mapping[str, Reading]) -> bool:
        value = _number(readings, signal)
        if value is None or _is_coarse(signal, value):
            self._still.pop(signal, None)
            return False
        others = tuple(readings.get(other) for other in OTHERS)
        still = self._still.get(signal)
        if still is None or still.value != value:
            self._still[signal] = _Still(value, 1, others)
            return False
        still.looks += 1
        still.moved = still.moved or _differ(still.others, others)
        return still.moved and still.looks >= FROZEN_LOOKS

    def _learn_idle(self, readings: Mapping[str, Reading]) -> None:
        power = _number(readings, "gpu.power")
        if power is not None and readings.get("gpu.utilization") == 0:
            self._idle_power = power if self._idle_power is None else min(self._idle_power, power)

    def _is_latched(self, readings: Mapping[str, Reading]) -> bool:
        if readings.get("gpu.utilization") != 1 or readings.get("gpu.processes") != 0:
            return False
        power, limit = _number(readings, "gpu.power"), _number(readings, "gpu.power_limit")
        if power is None:
            return False
        if self._idle_power is not None:
            return power <= NEAR_IDLE * self._idle_power
        return limit is not None and power <= IDLE_SHARE * limit


def _is_coarse(signal: str, value: float) -> bool:
    # A sensor that tells whole watts may well say the same for long.
    return signal == "gpu.power" and value == round(value)


def _differ(one: tuple[Reading | None, ...], other: tuple[Reading | None, ...]) -> bool:
    pairs = zip(one, other, strict=True)
    return any(isinstance(a, float | int) and isinstance(b, float | int) and a != b for a, b in pairs)


def _number(readings: Mapping[str, Reading], signal: str) -> float | None:
    found = readings.get(signal)
    return found if isinstance(found, float | int) else None
