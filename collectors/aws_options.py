"""The options of the collector `aws`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Field

from stoploss.collectors.contract import CollectorOptions, Interval
from stoploss.rules.units import QuantityError

Service = Literal["ec2", "cloudwatch", "spot", "ebs", "asg", "s3", "logs", "sagemaker", "rds", "sqs"]

SERVICES: tuple[Service, ...] = get_args(Service)

LABELS = ("team", "user", "job", "class", "stage", "env", "experiment", "owner", "keep")
"""Labels that are taken from the tag of the same name, in any case."""

_ROLE = re.compile(r"arn:[\w-]+:iam::\d{12}:role/\S+")
_REGION = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+")


def _region(text: str) -> str:
    if not _REGION.fullmatch(text):
        raise QuantityError(f"{text!r} is not a region", "write one such as eu-central-1", "bad-value")
    return text


def _role(text: str) -> str:
    if not _ROLE.fullmatch(text):
        raise QuantityError(
            f"{text!r} is not the ARN of a role",
            "write it as arn:aws:iam::123456789012:role/NAME",
            "bad-value",
        )
    return text


def _endpoint(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@?]+/?", text):
        raise QuantityError(
            f"{text!r} is not an endpoint", "write http:// or https:// and a host, nothing else", "bad-value"
        )
    return text


class Options(CollectorOptions):
    """What `collectors: aws:` takes."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    default_every: ClassVar[float] = 300.0
    every: Interval = Field(default=300.0, description="time between two looks")
    regions: tuple[Annotated[str, AfterValidator(_region)], ...] = Field(
        default=(), description="regions to look at; else the region of the credentials' profile"
    )
    roles: tuple[Annotated[str, AfterValidator(_role)], ...] = Field(
        default=(), description="ARN of the role to assume in each account; else the credentials' own account"
    )
    which: tuple[Service, ...] = Field(default=SERVICES, description="what to look at")
    labels: Mapping[str, str] = Field(
        default={},
        description="label: the tag that gives it, where the tag is not named as the label is",
    )
    imds: bool = Field(
        default=False,
        description="ask this machine's own metadata service for notices that it will be taken back",
    )
    endpoint_url: Annotated[str, AfterValidator(_endpoint)] | None = Field(
        default=None, alias="endpoint-url", description="one endpoint for all services"
    )
