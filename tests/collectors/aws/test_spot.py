"""Spot prices, and the burst balance of volumes."""

from __future__ import annotations

import time

from stoploss.engine.model import Bad

from .conftest import Cloud, readings
from .test_failing import answering
from .test_kept import datapoint


def test_spot_prices_are_of_type_and_zone(cloud: Cloud) -> None:
    """The present price is told of on-demand instances too; where it is refused it alone is bad."""
    (name,) = cloud.instances(InstanceType="m5.xlarge")

    told = readings(cloud.collector("ec2", "spot").look(time.time()), name)
    cloud.fail(answering("UnauthorizedOperation", "DescribeSpotPriceHistory", status=403))
    refused = readings(cloud.collector("ec2", "spot").look(time.time()), name)

    assert told["instance.spot_price"] == 0.00001
    assert refused["instance.spot_price"] == Bad("no rights for DescribeSpotPriceHistory")
    assert refused["instance.type"] == "m5.xlarge"
    assert "instance.spot_price" not in readings(cloud.collector("ec2").look(time.time()), name)


def test_a_price_in_yuan_is_no_price(cloud: Cloud) -> None:
    """What AWS tells in another currency is not taken for dollars."""
    (name,) = cloud.instances(region="cn-north-1", InstanceType="m5.xlarge")

    told = readings(cloud.collector("ec2", "spot", regions=("cn-north-1",)).look(time.time()), name)

    assert told["instance.spot_price"] == Bad("told in yuan")


def test_the_burst_balance_of_volumes_that_have_one(cloud: Cloud) -> None:
    """Credit left is a share; types without credit have none, and one that reports none is unknown."""
    at = time.time()
    names = {
        kind: cloud.client("ec2").create_volume(AvailabilityZone="us-east-1a", Size=500, VolumeType=kind)[
            "VolumeId"
        ]
        for kind in ("gp2", "st1", "gp3")
    }
    datapoint(cloud, "AWS/EBS", "BurstBalance", 25.0, at - 300, VolumeId=names["gp2"])

    look = cloud.collector("ebs", "cloudwatch").look(at)

    assert readings(look, names["gp2"])["storage.burst_balance"] == 0.25
    assert readings(look, names["st1"])["storage.burst_balance"] == Bad("no datapoint in 15m")
    assert "storage.burst_balance" not in readings(look, names["gp3"])
