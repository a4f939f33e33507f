"""What every action gives back, and what a target is handed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from stoploss.engine.model import Notice


@dataclass(frozen=True, slots=True)
class Result:
    """How an action went. A receiver's failure is a result, never an exception.

    Attributes:
        delivered: it arrived, or was done.
        retry: trying again later is of use.
        words: for people; never a secret, an address with a path, or what a receiver answered.
    """

    delivered: bool
    retry: bool = False
    words: str = "delivered"


class AddressError(ValueError):
    """There is nowhere to send a notice to; the message says why and holds no address."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One notice on its way to one address. `url` and `environ` hold secrets and are never shown.

    Attributes:
        url: the address with everything filled in.
        notice: what is said.
        now: the instant of sending.
        environ: variables, for targets with settings of their own.
    """

    url: str = field(repr=False)
    notice: Notice
    now: datetime
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
