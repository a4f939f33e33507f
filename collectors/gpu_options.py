"""The options of the collector `gpu`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stoploss.collectors.contract import CollectorOptions, Interval


class Options(CollectorOptions):
    """What `collectors: gpu:` takes."""

    default_every: ClassVar[float] = 15.0
    every: Interval = Field(default=15.0, description="time between two looks")
    name: str | None = Field(
        default=None,
        min_length=1,
        description="name of this host; the machine's own hostname where it is left out",
    )
