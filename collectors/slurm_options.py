"""The options of the collector `slurm`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from stoploss.collectors.contract import CollectorOptions, Interval


class Options(CollectorOptions):
    """What `collectors: slurm:` takes."""

    default_every: ClassVar[float] = 60.0
    every: Interval = Field(default=60.0, description="time between two looks")
    partitions: tuple[str, ...] = Field(default=(), description="partitions whose jobs are told; all without")
    classes: Mapping[str, Annotated[str, Field(min_length=1)]] = Field(
        default={}, description="partition: the class of its jobs, such as train; without it none is told"
    )
    accounting: bool = Field(default=True, description="whether `sacct` is asked for jobs that ended")
    forget: Interval = Field(default=3600.0, description="how long a job is still shown after its end")
