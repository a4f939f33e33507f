"""Quantities with units: durations, shares, sizes, power, GPU-hours and money.

A value is held in base units (seconds, bytes, watts, hertz, degrees Celsius, GPU-seconds,
one unit of a currency, shares as a fraction of one). A dimension is a product of powers of
bases; currencies are bases of their own, so two currencies never mix.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

MONTH = 730 * 3600.0
"""Seconds in a month of a price list: 730 hours, as cloud price lists reckon."""

CURRENCIES = {"$": "USD", "€": "EUR", "£": "GBP"}
SYMBOLS = {code: symbol for symbol, code in CURRENCIES.items()}
ANY_MONEY = "money"
"""The base of money whose currency is the policy set's own."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """A product of powers of bases, as sorted (base, power) pairs; empty is a plain number.

    `share` is a type of its own: it multiplies like a number, but compares only with
    shares and with ratios (a quotient of two quantities of one dimension).
    """

    powers: tuple[tuple[str, int], ...] = ()
    share: bool = False
    ratio: bool = False

    @staticmethod
    def of(**powers: int) -> Dimension:
        """A dimension from base=power pairs."""
        return Dimension(tuple(sorted((base, power) for base, power in powers.items() if power)))

    def _combined(self, other: Dimension, sign: int) -> tuple[tuple[str, int], ...]:
        merged = dict(self.powers)
        for base, power in other.powers:
            merged[base] = merged.get(base, 0) + sign * power
        return tuple(sorted((base, power) for base, power in merged.items() if power))

    def __mul__(self, other: Dimension) -> Dimension:
        powers = self._combined(other, 1)
        if powers:
            return Dimension(powers)
        return Dimension((), share=self.share or other.share, ratio=self.ratio or other.ratio)

    def __truediv__(self, other: Dimension) -> Dimension:
        powers = self._combined(other, -1)
        if powers:
            return Dimension(powers)
        if self.share and not other.share and not other.powers:
            return Dimension((), share=True)
        return Dimension((), ratio=bool(self.powers or self.share or self.ratio))

    def fits(self, other: Dimension) -> bool:
        """Whether values of the two dimensions can be compared or added."""
        if self.money and other.money and ANY_MONEY in (self.money, other.money):
            return self._without_money() == other._without_money()
        if self.powers != other.powers:
            return False
        return self.share == other.share or self.ratio or other.ratio

    @property
    def money(self) -> str | None:
        """The currency code, `money` for the set's own currency, or None."""
        return next((base for base, power in self.powers if power and base in _MONEY_BASES), None)

    def _without_money(self) -> tuple[tuple[str, int], ...]:
        renamed = (("money" if base in _MONEY_BASES else base, power) for base, power in self.powers)
        return tuple(sorted(renamed))

    def __str__(self) -> str:
        if self.share:
            return "a share (%)"
        if not self.powers:
            return "a plain number"
        return _DIMENSION_NAMES.get(self._without_money(), "*".join(f"{b}^{p}" for b, p in self.powers))


NUMBER = Dimension()
SHARE = Dimension((), share=True)
TIME = Dimension.of(time=1)
DATA = Dimension.of(data=1)
DATA_RATE = Dimension.of(data=1, time=-1)
POWER = Dimension.of(power=1)
ENERGY = Dimension.of(power=1, time=1)
FREQUENCY = Dimension.of(frequency=1)
TEMPERATURE = Dimension.of(temperature=1)
GPU_TIME = Dimension.of(gpu=1, time=1)
RATE = Dimension.of(time=-1)

_MONEY_BASES = frozenset({ANY_MONEY, *SYMBOLS})
_DIMENSION_NAMES: dict[tuple[tuple[str, int], ...], str] = {
    TIME.powers: "a duration",
    DATA.powers: "a size (bytes)",
    DATA_RATE.powers: "a data rate (bytes per second)",
    POWER.powers: "a power (W)",
    ENERGY.powers: "an energy (kWh)",
    FREQUENCY.powers: "a frequency (MHz)",
    TEMPERATURE.powers: "a temperature (C)",
    GPU_TIME.powers: "GPU time (GPU-hours)",
    RATE.powers: "a rate (per second)",
    (("money", 1),): "money",
    (("money", 1), ("time", -1)): "money per time",
    (("data", -1), ("money", 1)): "money per size",
    (("data", -1), ("money", 1), ("time", -1)): "money per size and time",
    (("gpu", -1), ("money", 1), ("time", -1)): "money per GPU-hour",
}

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}

UNITS: dict[str, tuple[float, Dimension]] = {
    "ms": (1e-3, TIME),
    "s": (1.0, TIME),
    "m": (60.0, TIME),
    "h": (3600.0, TIME),
    "d": (86400.0, TIME),
    "w": (604800.0, TIME),
    "month": (MONTH, TIME),
    "%": (0.01, SHARE),
    "W": (1.0, POWER),
    "kW": (1e3, POWER),
    "Wh": (3600.0, ENERGY),
    "kWh": (3.6e6, ENERGY),
    "Hz": (1.0, FREQUENCY),
    "kHz": (1e3, FREQUENCY),
    "MHz": (1e6, FREQUENCY),
    "GHz": (1e9, FREQUENCY),
    "C": (1.0, TEMPERATURE),
    "GPU-second": (1.0, GPU_TIME),
    "GPU-seconds": (1.0, GPU_TIME),
    "GPU-hour": (3600.0, GPU_TIME),
    "GPU-hours": (3600.0, GPU_TIME),
    "GPU": (1.0, Dimension.of(gpu=1)),
    **{f"{p}B": (float(f), DATA) for p, f in (_DECIMAL | _BINARY).items()},
    **{f"{p}bit": (f / 8, DATA) for p, f in (_DECIMAL | _BINARY).items()},
    "GB-month": (1e9 * MONTH, DATA * TIME),
    "GiB-month": (2**30 * MONTH, DATA * TIME),
}
"""Unit name -> (factor to base units, dimension)."""

DURATION_UNITS = ("ms", "s", "m", "h", "d", "w")
PER_UNITS = ("s", "m", "h", "d", "w", "month", "GB", "GiB", "TB", "GB-month", "GiB-month", "GPU-hour", "GPU")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value in base units with its dimension and the text it was written as."""

    value: float
    dimension: Dimension
    text: str = ""


class QuantityError(ValueError):
    """A quantity that cannot be read: `fix` is what to write, `code` the diagnostic code."""

    def __init__(self, message: str, fix: str, code: str = "bad-quantity") -> None:
        super().__init__(message)
        self.message, self.fix, self.code = message, fix, code


def alternation(names: tuple[str, ...] | dict[str, tuple[float, Dimension]]) -> str:
    """A regular expression that matches any of the names, longest first."""
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


NUMBER_PATTERN = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?"
_SIMPLE_UNITS = {name: unit for name, unit in UNITS.items() if name != "month"}
DURATION_PATTERN = (
    rf"\d+(?:\.\d+)?(?:{alternation(DURATION_UNITS)})(?:\d+(?:\.\d+)?(?:{alternation(DURATION_UNITS)}))*"
)
PER_PATTERN = rf"/(?:{alternation(PER_UNITS)})(?![\w.-])"
QUANTITY_PATTERN = (
    rf"[$€£]{NUMBER_PATTERN}(?:{PER_PATTERN})?"
    rf"|{DURATION_PATTERN}(?![\w.])(?:{PER_PATTERN})?"
    rf"|{NUMBER_PATTERN}(?:\s?(?:{alternation(_SIMPLE_UNITS)})(?![\w.-]))?(?:{PER_PATTERN})?"
)
"""Matches one quantity at the start of a text, as the condition language writes it."""

_DURATION = re.compile(rf"(\d+(?:\.\d+)?)({alternation(DURATION_UNITS)})")
_QUANTITY = re.compile(
    rf"(?P<money>[$€£])?(?P<number>[+-]?{NUMBER_PATTERN})"
    rf"(?:\s*(?P<unit>{alternation(_SIMPLE_UNITS)}))?(?:/(?P<per>{alternation(PER_UNITS)}))?"
)
_SUFFIXES = {
    "k": ("1000", "kB", "KiB"),
    "K": ("1000", "kB", "KiB"),
    "M": ("1000000", "MB", "m (minutes)"),
    "G": ("1e9", "GB", "GiB"),
}


def parse_quantity(text: str) -> Quantity:
    """Read one quantity, such as `5%`, `1h30m`, `10 GB/s`, `$4.10/GPU-hour` or `100 GPU-hours`.

    Raises:
        QuantityError: the text is no quantity; the error says what to write.
    """
    stripped = text.strip()
    compound = re.fullmatch(rf"({DURATION_PATTERN})(?:/({alternation(PER_UNITS)}))?", stripped)
    if compound:
        seconds = math.fsum(float(n) * UNITS[u][0] for n, u in _DURATION.findall(compound[1]))
        return _finite(_per(seconds, TIME, compound[2]), stripped)
    match = _QUANTITY.fullmatch(stripped)
    if match is None or (match["money"] and match["unit"]):
        raise _unreadable(stripped)
    value = float(match["number"].replace(",", ""))
    factor, dimension = 1.0, NUMBER
    if match["money"]:
        dimension = Dimension.of(**{CURRENCIES[match["money"]]: 1})
    elif match["unit"]:
        factor, dimension = UNITS[match["unit"]]
    # A division is exact where a product with 0.01 is not: 5% is the float nearest to 0.05.
    scaled = value / 100 if match["unit"] == "%" else value * factor
    return _finite(_per(scaled, dimension, match["per"]), stripped)


def _finite(scaled: tuple[float, Dimension], text: str) -> Quantity:
    if not math.isfinite(scaled[0]):
        raise QuantityError(f"{text!r} is too large a number", "write a smaller number")
    return Quantity(*scaled, text)


def _per(value: float, dimension: Dimension, per: str | None) -> tuple[float, Dimension]:
    if per is None:
        return value, dimension
    factor, below = UNITS[per]
    return value / factor, dimension / below


def _unreadable(text: str) -> QuantityError:
    suffix = re.fullmatch(rf"[$€£]?{NUMBER_PATTERN}\s*([kKMG])", text)
    if suffix:
        number = text[:-1].strip()
        plain, decimal, other = _SUFFIXES[suffix[1]]
        return QuantityError(
            f"{text!r} can be read in two ways",
            f"write {number}{decimal}, {number}{other}, or the number times {plain}",
            "ambiguous-suffix",
        )
    wrong = re.fullmatch(rf"[$€£]?[+-]?{NUMBER_PATTERN}\s*([^\s\d].*)", text)
    if wrong:
        from stoploss.rules.diagnostics import did_you_mean

        lowered = {name.lower(): name for name in UNITS}
        unit = wrong[1]
        near = lowered.get(unit.lower()) or did_you_mean(unit, UNITS)
        listed = "%, ms s m h d w, kB MB GB KiB MiB GiB, W kW kWh, MHz, C, GPU-hours, each with /s /m /h /d"
        return QuantityError(
            f"{unit!r} is not a unit", f"did you mean {near}?" if near else f"units are {listed}"
        )
    return QuantityError(
        f"{text!r} is not a quantity", "write a number with its unit, such as 5%, 30m, 10GB or $2/h"
    )


def parse_duration(text: str) -> float:
    """Read a duration such as `90s`, `30m` or `1h30m`, in seconds.

    Raises:
        QuantityError: the text is no duration.
    """
    quantity = parse_quantity(text)
    if quantity.dimension == NUMBER and quantity.value == 0:
        return 0.0
    if quantity.dimension != TIME:
        raise QuantityError(
            f"{text!r} is {quantity.dimension}, not a duration",
            "write a duration such as 30m or 1h30m",
            "wrong-unit",
        )
    return quantity.value


@lru_cache(maxsize=256)
def unit(text: str) -> tuple[float, Dimension]:
    """Factor and dimension of a catalogue unit: a unit name, `share`, `1`, `money`, or `A/B` of these."""
    top, _, below = text.partition("/")
    factor, dimension = _one_unit(top)
    if below:
        under, under_dimension = _one_unit(below)
        return factor / under, dimension / under_dimension
    return factor, dimension


def _one_unit(name: str) -> tuple[float, Dimension]:
    if name == "1":
        return 1.0, NUMBER
    if name == "share":
        return 1.0, SHARE
    if name == ANY_MONEY:
        return 1.0, Dimension.of(money=1)
    return UNITS[name]


def format_duration(seconds: float) -> str:
    """A duration for people: `45s`, `30m`, `3h 20m`, `2d 4h`; at most two units."""
    if not math.isfinite(seconds):
        return str(seconds)
    whole = round(abs(seconds))
    sign = "-" if seconds < 0 else ""
    if whole < 60:
        small = abs(seconds)
        return f"{sign}{small:.3g}s" if small and small < 10 and small != whole else f"{sign}{whole}s"
    parts: list[str] = []
    for name, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count}{name}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return sign + " ".join(parts)


def format_value(value: float | None, unit_name: str) -> str:
    """A number in the catalogue unit `unit_name`, as a person would write it; None is `unknown`."""
    if value is None:
        return "unknown"
    if math.isnan(value):
        return "nan"
    factor, dimension = unit(unit_name)
    base = value * factor
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if dimension.share:
        return f"{_short(base * 100)}%"
    if dimension == TIME:
        return format_duration(base)
    if dimension == GPU_TIME:
        return f"{_short(base / 3600)} GPU-hours"
    for basic, suffix in ((DATA, "B"), (DATA_RATE, "B/s")):
        if dimension == basic:
            return _prefixed(base, suffix)
    if unit_name in ("1", ANY_MONEY):
        return _short(value)
    return f"{_short(value)} {unit_name}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1e4 and abs(value) < 1e15 else f"{value:.4g}"


def _prefixed(value: float, suffix: str) -> str:
    size = abs(value)
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if size >= factor:
            return f"{value / factor:.3g} {prefix}{suffix}"
    return f"{value:.3g} {suffix}"
