"""Money as people write it."""

from __future__ import annotations

from stoploss.rules.units import SYMBOLS

_WHOLE = 999.995
"""From here on cents say nothing."""
_CENT = 0.005
"""Below this an amount would be rounded to nothing."""


def figure(amount: float) -> str:
    """An amount without its currency: to the cent below 1,000, in whole units above, never a false 0."""
    if 0 < abs(amount) < _CENT:
        return "<0.01" if amount > 0 else ">-0.01"
    return f"{amount:,.2f}" if abs(amount) < _WHOLE else f"{amount:,.0f}"


def money(amount: float, currency: str) -> str:
    """An amount with its currency: `$412.80`, `€1,204`, `<$0.01`."""
    shown, symbol = figure(amount), SYMBOLS.get(currency, f"{currency} ")
    for sign in ("<", ">-", "-"):
        if shown.startswith(sign):
            return f"{sign}{symbol}{shown.removeprefix(sign)}"
    return symbol + shown


def price_text(amount: float, unit: str, currency: str) -> str:
    """A price with the digits it was listed with, at least cents: `$4.10/GPU-hour`, `$0.0036/GiB-month`."""
    digits = f"{amount:.6f}".rstrip("0")
    whole, _, cents = digits.partition(".")
    return f"{SYMBOLS.get(currency, f'{currency} ')}{int(whole):,}.{cents:0<2}/{unit}"
