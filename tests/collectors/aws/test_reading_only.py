"""The collector only reads."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from botocore.client import BaseClient

from stoploss.collectors.aws_options import SERVICES

from .conftest import Cloud
from .test_kept import train

READING = re.compile(r"(Describe|List|Get)[A-Z]\w*|AssumeRole")


def test_every_call_only_reads(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """With something of every kind to see, each call's name says that it reads; roles are only assumed."""
    cloud.instances()
    cloud.client("ec2").create_volume(AvailabilityZone="us-east-1a", Size=1)
    cloud.client("s3").create_bucket(Bucket="alpha")
    cloud.client("logs").create_log_group(logGroupName="/train")
    cloud.client("sqs").create_queue(QueueName="work")
    train(cloud, "bert")
    calls: list[str] = []
    whole = BaseClient._make_api_call

    def trapped(self: Any, operation: str, arguments: Any) -> Any:
        calls.append(operation)
        return whole(self, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", trapped)
    own = cloud.collector(*SERVICES).look(time.time())
    cloud.collector("ec2", roles=("arn:aws:iam::111111111111:role/reader",)).look(time.time())

    assert {item.resource.kind for item in own.samples} == {
        "instance",
        "volume",
        "bucket",
        "log",
        "job",
        "service",
    }
    assert {"DescribeInstances", "GetMetricData", "ListTrainingJobs", "GetBucketTagging", "AssumeRole"} <= {
        *calls
    }
    assert [name for name in calls if not READING.fullmatch(name)] == []
