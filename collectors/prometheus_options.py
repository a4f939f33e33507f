"""The options of the collector `prometheus`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from stoploss.collectors.contract import CollectorOptions, Interval
from stoploss.rules.units import QuantityError

Part = Literal["dcgm", "node", "kube"]

PARTS: tuple[Part, ...] = get_args(Part)

LONGEST_LOOKBACK = 300.0
"""Seconds; the server itself repeats nothing that is older."""

_LABEL = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TEMPLATE = re.compile(r"(?:[^{}]|\{[A-Za-z_]\w*\})+", re.ASCII)


def _url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", text):
        raise QuantityError(
            f"{text!r} is not the address of a server",
            "write it as http://prometheus:9090, without a user, a password or a query",
            "bad-value",
        )
    return text.rstrip("/")


def _label(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise QuantityError(f"{text!r} is not the name of a label", "write one such as cluster", "bad-value")
    return text


def _template(text: str) -> str:
    if not _TEMPLATE.fullmatch(text):
        raise QuantityError(
            f"{text!r} is not a name made of labels", "write it as {namespace}/{pod}", "bad-value"
        )
    return text


def _lookback(seconds: float) -> float:
    if seconds > LONGEST_LOOKBACK:
        raise QuantityError("a reading this old says nothing of now", "write 5m or less", "bad-value")
    return seconds


Label = Annotated[str, AfterValidator(_label)]


class Query(BaseModel):
    """One signal by a query of the user's own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    signal: str = Field(min_length=1, description="signal of the catalogue")
    kind: str | None = Field(
        default=None, min_length=1, description="kind of its resources; else the signal's usual one"
    )
    query: str = Field(min_length=1, max_length=4000, description="PromQL")
    id: Annotated[str, AfterValidator(_template)] = Field(description="name of the resource, from labels")
    labels: Mapping[Label, Label] = Field(default={}, description="label: the label of the series")
    times: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="what the value is multiplied by"
    )
    newest: str | None = Field(
        default=None,
        min_length=1,
        max_length=4000,
        description="PromQL for the time of the newest sample, where `query` is more than a series",
    )


class Options(CollectorOptions):
    """What `collectors: prometheus:` takes."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    default_every: ClassVar[float] = 60.0
    every: Interval = Field(default=60.0, description="time between two looks")
    url: Annotated[str, AfterValidator(_url)] = Field(description="address of the server")
    which: tuple[Part, ...] = Field(default=PARTS, description="exporters to look at")
    match: Mapping[Label, str] = Field(
        default={}, description="label: value that all series of the exporters must have"
    )
    lookback: Annotated[Interval, AfterValidator(_lookback)] | None = Field(
        default=None, description="age from which a sample is none; twice `every`, at most 5m, without"
    )
    host: tuple[Label, ...] = Field(
        default=("node", "Hostname"), description="labels that name the host, the first that is there"
    )
    labels: Mapping[str, Label] = Field(
        default={"team": "label_team", "user": "label_user", "class": "label_class"},
        description="label: the label of kube_pod_labels that gives it",
    )
    queries: tuple[Query, ...] = Field(default=(), description="signals by queries of your own")
    token_env: str | None = Field(
        default=None, alias="token-env", min_length=1, description="variable that holds a bearer token"
    )
    token_file: str | None = Field(
        default=None, alias="token-file", min_length=1, description="file that holds a bearer token"
    )
    user: str | None = Field(default=None, min_length=1, description="user of basic authentication")
    password_env: str | None = Field(
        default=None, alias="password-env", min_length=1, description="variable that holds the password"
    )
    password_file: str | None = Field(
        default=None, alias="password-file", min_length=1, description="file that holds the password"
    )
    ca_file: str | None = Field(
        default=None, alias="ca-file", min_length=1, description="certificates that are trusted (PEM)"
    )
    tenant: str | None = Field(
        default=None, pattern=r"^[!-~]+$", description="sent as X-Scope-OrgID, for Mimir and Cortex"
    )

    @property
    def oldest(self) -> float:
        """Seconds from which a sample is too old to be a reading."""
        return self.lookback or min(2 * self.every, LONGEST_LOOKBACK)
