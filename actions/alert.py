"""Tell somebody: a notice to one receiver of `notify:`.

A receiver is an address. In it `${NAME}` is a variable of the environment, and `{user}`, `{team}` or
any other label is filled from the resource, escaped. Where a resource lacks the label, the receiver
that is named as its team is told instead; where there is none, the notice cannot be delivered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote

from stoploss.actions.contract import AddressError, Delivery, Result
from stoploss.actions.targets import target
from stoploss.engine.model import Notice
from stoploss.rules.environment import VariableError, expand

LOG = "log"
"""The receiver that needs no address."""

_LABEL = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_.:/-]*)\}")


@dataclass(frozen=True, slots=True)
class Receivers:
    """Who can be told: the addresses of `notify:` by name, and the variables that they name."""

    addresses: Mapping[str, str]
    environ: Mapping[str, str] = field(repr=False)


def alert(receivers: Receivers, name: str, notice: Notice, *, now: datetime) -> Result:
    """Tell one receiver, once. Whatever is wrong with the receiver is told by the result."""
    try:
        url = address(receivers, name, notice.labels)
        deliver = target(url)
    except AddressError as error:
        return Result(False, False, str(error))
    try:
        return deliver(Delivery(url, notice, now, receivers.environ))
    except Exception as error:
        # The text of an unforeseen error may hold the address.
        return Result(False, True, f"could not be sent ({type(error).__name__})")


def address(receivers: Receivers, name: str, labels: Mapping[str, str]) -> str:
    """The address of a receiver, with everything filled in: a secret.

    Raises:
        AddressError: there is none.
    """
    template = _template(receivers.addresses, name, labels)
    filled = _LABEL.sub(lambda match: quote(labels[match[1]], safe=""), template)
    head, mark, tail = filled.partition("?")
    escaped = {key: quote(value, safe="") for key, value in receivers.environ.items()} if tail else {}
    try:
        # A secret in a query may hold what means something there; in front it may be a whole address.
        return (expand(head, receivers.environ) + mark + expand(tail, escaped)).strip()
    except VariableError as error:
        raise AddressError(str(error)) from None


def recipient(receivers: Receivers, name: str, labels: Mapping[str, str]) -> str:
    """Who is told in the end, in words: notices for one recipient may be joined, those for two not."""
    try:
        template = _template(receivers.addresses, name, labels)
    except AddressError:
        return name
    used = sorted(set(_LABEL.findall(template)))
    if used:
        return f"{name} ({', '.join(f'{label} {labels[label]}' for label in used)})"
    # The same words for the team itself and for those who are told through it.
    return name if template == receivers.addresses.get(name, template) else labels["team"]


def _template(addresses: Mapping[str, str], name: str, labels: Mapping[str, str]) -> str:
    template = addresses.get(name)
    if template is None:
        if name == LOG:
            return "log:"
        raise AddressError(f"there is no receiver {name!r} under notify:")
    missing = _missing(template, labels)
    if not missing:
        return template
    team = labels.get("team", "")
    instead = addresses.get(team)
    if instead is not None and not _missing(instead, labels):
        return instead
    why = f"the team {team!r} is no receiver" if _usable(team) else "its team is not known"
    raise AddressError(f"the resource has no label {missing[0]!r}, and {why}")


def _missing(template: str, labels: Mapping[str, str]) -> list[str]:
    return [label for label in _LABEL.findall(template) if not _usable(labels.get(label, ""))]


def _usable(value: str) -> bool:
    """Whether a label names somebody: `?` is unreadable, and dots would climb a path."""
    return bool(value.strip(". ")) and value != "?"
