"""What every action gives back, and what a target is handed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from stoploss.engine.model import Action, Found, Notice, Order, Outcome, Refused

__all__ = [
    "Action",
    "AddressError",
    "Checkpoints",
    "Delivery",
    "Found",
    "Means",
    "Order",
    "Outcome",
    "Refused",
    "Result",
]


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


class Checkpoints(Protocol):
    """What is known of checkpoints on file systems of this machine, by the rules of the collector."""

    def lacks(self, path: str) -> str | None:
        """What the checkpoint at a path lacks to be complete, in words; None where it lacks nothing."""
        ...

    def domain(self, path: str) -> str | None:
        """The failure domain of a path, such as `host`; None where it is not known."""
        ...

    def folder_of(self, job: str) -> str | None:
        """The folder in which the newest checkpoint of a job lies; None where there is none."""
        ...

    def of_job(self, job: str) -> tuple[tuple[str, int | None], ...]:
        """The checkpoints of a job that are there now: path and step, in any state."""
        ...


@dataclass(frozen=True, slots=True)
class Means:
    """What an action is given by whoever runs it.

    Attributes:
        hostname: the name of this machine, as collectors tell it.
        now: seconds since the epoch.
        monotonic: seconds on a clock that never goes back.
        sleep: waits a number of seconds.
        environ: variables of the environment; never shown.
        collectors: the options of each collector that is named, as validated by its option model;
            where a system is and with which rights it is asked is said there once.
        folder: an absolute path below which actions keep what they move away or need later.
        checkpoints: where they can be looked at; None where no collector of them is named.
        mask: a text without the secrets that it may hold.
        masker: makes a mask that also knows the secrets of another environment.
    """

    hostname: str
    now: Callable[[], float]
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    environ: Mapping[str, str] = field(repr=False)
    collectors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    folder: str = ""
    checkpoints: Checkpoints | None = None
    mask: Callable[[str], str] = str
    masker: Callable[[Mapping[str, str]], Any] | None = None
