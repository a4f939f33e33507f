"""The options of the collector `host`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stoploss.collectors.contract import HostOptions, Interval


class Options(HostOptions):
    """What `collectors: host:` takes."""

    default_every: ClassVar[float] = 60.0
    every: Interval = Field(default=60.0, description="time between two looks")
