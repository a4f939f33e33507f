"""The options of the collector `checkpoints`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from stoploss.collectors.contract import HostOptions, Interval
from stoploss.collectors.path_labels import Template
from stoploss.collectors.storage_options import AbsolutePath, path_or_settings, place_schema, some

Domain = Literal["process", "host", "rack", "zone", "region"]


class Place(BaseModel):
    """A folder with checkpoints, and what they would be lost with."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    path: AbsolutePath
    failure_domain: Domain | None = Field(default=None, alias="failure-domain")


AnyPlace = Annotated[
    Place,
    BeforeValidator(path_or_settings),
    place_schema(**{"failure-domain": {"enum": list(get_args(Domain))}}),
]


class Options(HostOptions):
    """What `collectors: checkpoints:` takes."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    default_every: ClassVar[float] = 300.0
    every: Interval = Field(default=300.0, description="time between two looks")
    paths: Annotated[tuple[AnyPlace, ...], AfterValidator(some)] = Field(
        description="folders with checkpoints: each a path, or `{path, failure-domain}`"
    )
    job: Template | None = Field(
        default=None,
        description="which folders below a path name the job, such as `{team}/{job}`; else the first",
    )
    failure_domain: Domain | None = Field(
        default=None,
        alias="failure-domain",
        description="`process`, `host`, `rack`, `zone` or `region`: what the checkpoints would be lost with",
    )
