"""What AWS refuses is unknown, and what is beside it is not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from support.scenes import Scene, reasons

from stoploss import aws as calls
from stoploss.collectors import aws
from stoploss.collectors.aws_calls import Asker, Found
from stoploss.collectors.contract import CollectorError
from stoploss.engine.model import UNREADABLE, Bad

from .conftest import SECRET, Cloud, labels, readings
from .test_instances import put

ROLES = ("arn:aws:iam::111111111111:role/reader", "arn:aws:iam::222222222222:role/reader")

POLICIES = """
version: 1
collectors:
  aws: {{regions: [{regions}], which: [{which}], endpoint-url: "{url}"}}
policies:
  - name: p
    each: {each}
    when:
      - '{condition}'
"""


def audit(
    cloud: Cloud,
    scene: Scene,
    which: str,
    condition: str,
    *,
    each: str = "instance",
    regions: str = "us-east-1",
) -> Any:
    """The audit of one policy, through the command."""
    text = POLICIES.format(regions=regions, which=which, url=cloud.url, each=each, condition=condition)
    return scene.json("audit", scene.write("policies.yaml", text))


def answering(code: str, *marks: str, status: int = 400) -> Callable[[str, bytes], tuple[int, str] | None]:
    """Refuses the requests that hold every mark in their line or body."""

    def fault(line: str, body: bytes) -> tuple[int, str] | None:
        text = line + body.decode("utf-8", "replace")
        return (status, code) if all(mark in text for mark in marks) else None

    return fault


@pytest.mark.slow
def test_P_A2_a_throttled_back_end_is_unknown_and_not_idle(cloud: Cloud, scene: Scene) -> None:
    """Of 200 idle instances 50 cannot be measured: they are unknown, the others found, the run degraded."""
    names = cloud.instances(200, InstanceType="t3.micro")
    put(cloud, "CPUUtilization", dict.fromkeys(names, 1.0), time.time() - 300)
    cloud.fail(answering("ThrottlingException", "GetMetricData", names[170]))

    result = audit(cloud, scene, "ec2, cloudwatch", "not instance.cpu.utilization > 5%")

    assert {item["resource"]["id"] for item in result["findings"]} == {*names[:150]}
    assert reasons(result) == dict.fromkeys(
        names[150:], "instance.cpu.utilization: throttled (GetMetricData)"
    )
    assert result["degraded"] is True
    assert scene.status == 4


@pytest.mark.slow
def test_a_throttled_call_is_tried_again(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is throttled once answers at its second try."""
    monkeypatch.setattr(calls, "ATTEMPTS", 2)
    (name,) = cloud.instances()
    refused: list[str] = []

    def once(line: str, body: bytes) -> tuple[int, str] | None:
        if b"DescribeInstances" in body and not refused:
            refused.append(line)
            return 503, "RequestLimitExceeded"
        return None

    cloud.fail(once)
    look = cloud.collector("ec2").look(time.time())

    assert refused
    assert readings(look, name)["instance.state"] == "running"


def test_P_A3_a_bucket_whose_tags_fail_is_not_untagged(cloud: Cloud, scene: Scene) -> None:
    """Of three buckets without an owner the one whose tags cannot be read is unknown."""
    for name in ("alpha", "beta", "gamma"):
        cloud.client("s3").create_bucket(Bucket=name)
    cloud.fail(answering("InternalError", "GET", "/beta", "tagging", status=500))

    result = audit(cloud, scene, "s3", "not has(label.owner)", each="bucket")

    assert {item["resource"]["id"] for item in result["findings"]} == {"alpha", "gamma"}
    assert reasons(result) == {"beta": "label owner cannot be read"}
    assert scene.status == 4


def test_P_A3_nothing_is_decided_on_a_resource_without_its_tags(cloud: Cloud) -> None:
    """Where tags cannot be read all labels are unreadable, tags of others too, and all readings bad."""
    for name in ("alpha", "beta"):
        cloud.client("s3").create_bucket(Bucket=name)
    cloud.client("s3").put_bucket_tagging(
        Bucket="alpha", Tagging={"TagSet": [{"Key": "do-not-touch", "Value": "yes"}]}
    )
    cloud.fail(answering("InternalError", "GET", "/beta", "tagging", status=500))

    look = cloud.collector("s3").look(time.time())

    assert labels(look, "alpha")["do-not-touch"] == "yes"
    assert labels(look, "beta")["do-not-touch"] is UNREADABLE
    assert {str(item) for item in readings(look, "beta").values()} == {
        "Bad(reason='its tags cannot be read: GetBucketTagging failed: InternalError')"
    }
    assert look.notes == (
        "aws: own: tags of 1 buckets cannot be read: GetBucketTagging failed: InternalError",
    )


def test_P_D27_one_region_that_fails_leaves_the_others(cloud: Cloud, scene: Scene) -> None:
    """The other region is judged; the report and the exit status tell what was not covered."""
    (seen,) = cloud.instances()
    cloud.instances(region="eu-west-1")
    cloud.fail(answering("UnauthorizedOperation", "/eu-west-1/ec2/", "DescribeInstances", status=403))

    result = audit(cloud, scene, "ec2", 'instance.state == "running"', regions="us-east-1, eu-west-1")

    assert [item["resource"]["id"] for item in result["findings"]] == [seen]
    assert reasons(result) == {"eu-west-1/*": "instance.state: no rights for DescribeInstances"}
    assert scene.status == 4
    assert "aws: eu-west-1: ec2 is not covered: no rights for DescribeInstances" in str(result) + scene.stderr


def test_P_D27_one_account_that_fails_leaves_the_others(cloud: Cloud) -> None:
    """A role that cannot be assumed is told; the other account is read, and no inventory is claimed."""
    cloud.fail(answering("AccessDenied", "AssumeRole", "222222222222", status=403))

    look = cloud.collector("ec2", "sqs", roles=ROLES).look(time.time())

    assert readings(look, "222222222222/us-east-1/*")["instance.state"] == Bad("no rights for AssumeRole")
    assert look.inventories == frozenset()
    assert look.notes == (
        "aws: 222222222222/us-east-1: ec2 is not covered: no rights for AssumeRole",
        "aws: 222222222222/us-east-1: sqs is not covered: no rights for AssumeRole",
    )


def test_a_region_that_fails_later_keeps_what_was_there(cloud: Cloud) -> None:
    """What was seen in a region is bad while it cannot be read, never gone; afterwards all is well again."""
    (name,) = cloud.instances()
    collector = cloud.collector("ec2", "sqs")
    before = collector.look(time.time())
    cloud.fail(answering("InternalError", "DescribeInstances", status=500))
    during = collector.look(time.time())
    cloud.app.faults.clear()
    after = collector.look(time.time())

    assert set(readings(before, name)) == set(readings(during, name))
    assert readings(during, name)["instance.state"] == Bad("DescribeInstances failed: InternalError")
    assert during.inventories == frozenset()
    assert readings(after, name)["instance.state"] == "running"
    assert readings(after, "us-east-1/*") == {"resource.present": 0.0}


def test_nothing_that_can_be_read_is_a_failure(cloud: Cloud) -> None:
    """Where every list is refused the look fails, with each reason once and nothing of what AWS said."""
    cloud.fail(answering("UnrecognizedClientException", ""))

    with pytest.raises(CollectorError) as caught:
        cloud.collector("ec2", "ebs", "logs", "sqs").look(time.time())

    assert "credentials are not accepted (DescribeInstances)" in caught.value.reason
    assert SECRET not in caught.value.reason
    assert caught.value.__cause__ is None


def test_no_credentials_is_a_failure(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials the look fails and says so."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)

    with pytest.raises(CollectorError, match=r"^no credentials$"):
        cloud.collector("ec2").look(time.time())


def test_what_is_slow_counts_at_the_next_look(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that is not there in time is bad in this look, is not asked twice, and counts in the next."""
    import threading

    (name,) = cloud.instances()
    go, asked = threading.Event(), []
    whole = aws.PARTS["ec2"]

    def slow(asker: Asker, which: frozenset[str]) -> Found:
        asked.append(asker.at)
        go.wait(20)
        return whole.read(asker, which)

    monkeypatch.setattr(aws, "PARTS", {**aws.PARTS, "ec2": aws.Part(whole.kind, whole.signals, slow)})
    collector = cloud.collector("ec2", "sqs")
    collector._time_limit = 1.0
    first = collector.look(100.0)
    go.set()
    collector._time_limit = 20.0
    second = collector.look(200.0)

    assert readings(first, "us-east-1/*")["instance.state"] == Bad("no answer within 1s")
    assert readings(second, name)["instance.state"] == "running"
    assert {item.time for item in second.samples} == {200.0}
    assert asked == [100.0]


def test_a_role_is_assumed_again_before_its_credentials_end(cloud: Cloud) -> None:
    """Credentials of a role serve until five minutes before their end, then they are renewed."""
    assumed: list[bytes] = []

    def count(line: str, body: bytes) -> None:
        assumed.extend([body] if b"AssumeRole" in body else [])

    cloud.fail(count)
    collector = cloud.collector("ec2", "sqs", roles=ROLES[:1])
    at = time.time()
    collector.look(at)
    collector.look(at + 60)
    early = len(assumed)
    collector.look(at + 3590)

    assert early == 1
    assert len(assumed) > early
    assert b"111111111111" in assumed[0]


def test_credentials_that_come_later_are_used(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that started without credentials looks as soon as there are some."""
    collector = cloud.collector("sqs", "ec2")
    with monkeypatch.context() as without:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            without.delenv(name)
        with pytest.raises(CollectorError):
            collector.look(100.0)

    assert collector.look(200.0).inventories == {"instance"}
