"""The options of the collector `process`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stoploss.collectors.contract import HostOptions, Interval


class Options(HostOptions):
    """What `collectors: process:` takes."""

    default_every: ClassVar[float] = 60.0
    every: Interval = Field(default=60.0, description="time between two looks")
    devices: tuple[str, ...] = Field(
        default=("/dev/nvidia[0-9]*",),
        min_length=1,
        description="patterns of the device files that stand for GPUs, such as `/dev/dri/renderD*`",
    )
    forget: Interval = Field(
        default=86400.0, description="how long a job is still shown after its last process is gone"
    )
