"""The options of the collector `logs`."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from stoploss.collectors.contract import HostOptions, Interval
from stoploss.collectors.path_labels import Template
from stoploss.collectors.storage_options import absolute, some
from stoploss.rules.units import QuantityError


def _log(pattern: str) -> str:
    if absolute(pattern).endswith("/"):
        raise QuantityError(f"{pattern!r} is a folder", f"write {pattern}*.log", "bad-value")
    return pattern


class Options(HostOptions):
    """What `collectors: logs:` takes."""

    default_every: ClassVar[float] = 60.0
    every: Interval = Field(default=60.0, description="time between two looks")
    paths: Annotated[tuple[Annotated[str, AfterValidator(_log)], ...], AfterValidator(some)] = Field(
        description="logs, by absolute paths with `*`, `?`, `[…]` and `**` for any folders"
    )
    job: Template | None = Field(
        default=None,
        description="which folders name the job, such as `/runs/{job}`; else the process that writes",
    )
