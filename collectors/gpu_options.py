"""The options of the collector `gpu`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stoploss.collectors.contract import HostOptions, Interval


class Options(HostOptions):
    """What `collectors: gpu:` takes."""

    default_every: ClassVar[float] = 15.0
    every: Interval = Field(default=15.0, description="time between two looks")
