"""What every collector is made of: options that only validate, `build`, and `look`.

A collector is a module with `NAME`, an options model derived from `CollectorOptions` (in a
module without heavy imports), and `build(options, context) -> Collector`. What it must do is
written in `docs/collectors/README.md`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from stoploss.engine.model import Look, TrainingLog
from stoploss.rules.units import QuantityError, parse_duration

SHORTEST_EVERY = 1.0
"""Seconds; looking more often costs more than it tells."""


class CollectorError(Exception):
    """The whole look failed; `reason` says why, in words for people and without secrets."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotHere(Exception):
    """This machine has nothing to collect for this collector, which is not a failure."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _interval(value: object) -> float:
    if not isinstance(value, str):
        raise QuantityError(
            f"{value!r} is not a duration", "write a duration such as 30s or 5m", "wrong-type"
        )
    seconds = parse_duration(value)
    if seconds < SHORTEST_EVERY:
        raise QuantityError(f"{value!r} is too short an interval", "write 1s or longer", "bad-value")
    return seconds


Interval = Annotated[
    float,
    BeforeValidator(_interval),
    # Written back as text, so that what was validated once can be validated again.
    PlainSerializer(lambda seconds: f"{seconds!r}s", return_type=str),
    WithJsonSchema({"type": "string", "examples": ["30s", "5m"]}),
]
"""Seconds between two looks, written as a duration such as `30s`."""


class CollectorOptions(BaseModel):
    """The options of a collector: a closed list of keys, of which `every` is always one.

    A subclass sets `default_every` (seconds) and `every` with that default.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    default_every: ClassVar[float] = 60.0
    every: Interval = default_every


class HostOptions(CollectorOptions):
    """The options of a collector whose readings bear the name of this machine."""

    name: str | None = Field(
        default=None,
        min_length=1,
        description="name of this host; the machine's own hostname where it is left out",
    )


@dataclass(frozen=True, slots=True)
class Context:
    """What a collector is given by whoever runs it.

    Attributes:
        hostname: the name of this machine, as resources and labels carry it.
        sleep: waits a number of seconds.
        conclude: what a training log says of its run, as readings of the loss signals, given the time
            (None where nobody writes the log any more); None where nobody concludes.
    """

    hostname: str = field(default_factory=socket.gethostname)
    sleep: Callable[[float], None] = time.sleep
    conclude: Callable[[TrainingLog, float | None], Mapping[str, float | str]] | None = None


class Collector(Protocol):
    """A running collector; its looks are never made in parallel with each other."""

    def look(self, at: float) -> Look:
        """Look once; every sample carries `at`, the scheduled instant in seconds since the epoch.

        Raises:
            CollectorError: nothing could be read.
            NotHere: there is nothing to read on this machine.
        """
        ...
