"""The options of the collector `network`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stoploss.collectors.contract import HostOptions, Interval


class Options(HostOptions):
    """What `collectors: network:` takes."""

    default_every: ClassVar[float] = 60.0
    every: Interval = Field(default=60.0, description="time between two looks")
    interfaces: tuple[str, ...] = Field(
        default=(),
        description="patterns of the interfaces to add up, such as `eth*`; all physical ones where left out",
    )
    ss: bool = Field(default=True, description="whether `ss` is asked for round-trip times")
