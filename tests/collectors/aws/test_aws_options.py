"""The options of the collector."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from stoploss.collectors.aws import build
from stoploss.collectors.aws_calls import scopes
from stoploss.collectors.aws_options import Options
from stoploss.collectors.contract import CollectorError, Context

from .conftest import Cloud

ROLE = "arn:aws:iam::111111111111:role/reader"


@pytest.mark.parametrize(
    "wrong",
    [
        {"regions": ["us-east-1a"]},
        {"regions": ["Frankfurt"]},
        {"roles": ["reader"]},
        {"roles": ["arn:aws:iam::1:role/reader"]},
        {"which": ["ec3"]},
        {"endpoint-url": "http://user:password@host"},
        {"endpoint-url": "localhost"},
        {"metrics": True},
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, object]) -> None:
    """What is no region, role, service or endpoint is refused at load."""
    with pytest.raises(ValidationError):
        Options.model_validate(wrong)


def test_every_region_of_every_role_is_looked_at() -> None:
    """Regions times roles; names tell as much as is needed to keep them apart."""
    one = scopes(("eu-west-1",), (), None)
    two = scopes(("eu-west-1", "us-gov-west-1"), (), None)
    four = scopes(("eu-west-1", "us-east-1"), (ROLE, ROLE.replace("1" * 12, "2" * 12)), None)

    assert [scope.suffix for scope in one] == [""]
    assert [scope.suffix for scope in two] == ["@eu-west-1", "@us-gov-west-1"]
    assert [scope.place for scope in four] == [
        "111111111111/eu-west-1",
        "111111111111/us-east-1",
        "222222222222/eu-west-1",
        "222222222222/us-east-1",
    ]
    assert len({scope.named("job") for scope in four}) == 4


def test_without_a_region_nothing_starts(cloud: Cloud) -> None:
    """Neither the options nor the environment name a region: the collector says so."""
    with pytest.raises(CollectorError, match="no region: name one under regions"):
        scopes((), (), cloud.url)


def test_notices_alone_need_no_region(cloud: Cloud) -> None:
    """With no list to read the collector starts without a region and without credentials."""
    look = build(Options.model_validate({"which": []}), Context()).look(100.0)

    assert look.samples == ()
