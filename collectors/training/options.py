"""The options of the collector `training`."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from stoploss.collectors.contract import HostOptions, Interval
from stoploss.collectors.path_labels import Template


def _usable(pattern: str) -> str:
    from stoploss.collectors.training.keyvalue import compiled

    try:
        compiled((pattern,))
    except ValueError as error:
        raise PydanticCustomError("bad-value", "{said}", {"said": str(error)}) from error
    return pattern


class Options(HostOptions):
    """What `collectors: training:` takes."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    default_every: ClassVar[float] = 30.0
    every: Interval = Field(default=30.0, description="time between two looks")
    paths: tuple[Annotated[str, Field(pattern=r"^/")], ...] = Field(
        min_length=1, description="training logs, or folders of them, by absolute paths"
    )
    patterns: tuple[Annotated[str, AfterValidator(_usable)], ...] = Field(
        default=(), description="regular expressions with named groups, for text formats of your own"
    )
    job: Template | None = Field(
        default=None,
        description="which folders name the job, such as `/runs/{team}/{job}`; else the process that writes",
    )
    max_age: Interval = Field(
        default=86400.0,
        alias="max-age",
        description="a log that was not written for so long, and that no process has open, is over",
    )
