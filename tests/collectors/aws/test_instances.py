"""Instances: facts, figures, labels."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from support.failing_aws import empty

from stoploss.engine.model import Bad

from .conftest import Cloud, labels, readings


def put(cloud: Cloud, metric: str, values: dict[str, float], at: float) -> None:
    """One datapoint of a metric per instance, `at` seconds since the epoch."""
    rows = [
        {
            "MetricName": metric,
            "Dimensions": [{"Name": "InstanceId", "Value": name}],
            "Timestamp": datetime.fromtimestamp(at, UTC),
            "Value": value,
        }
        for name, value in values.items()
    ]
    for begin in range(0, len(rows), 500):
        cloud.client("cloudwatch").put_metric_data(Namespace="AWS/EC2", MetricData=rows[begin : begin + 500])


def test_facts_and_figures_of_an_instance(cloud: Cloud) -> None:
    """Type, payment, state, what comes with the type, and use are told in the catalogue's units."""
    at = time.time()
    (name,) = cloud.instances()
    put(cloud, "CPUUtilization", {name: 42.0}, at - 300)
    put(cloud, "NetworkIn", {name: 3000.0}, at - 300)

    look = cloud.collector("ec2", "cloudwatch").look(at)
    told = readings(look, name)

    assert told["instance.type"] == "p4d.24xlarge"
    assert told["instance.lifecycle"] == "on-demand"
    assert told["instance.state"] == "running"
    assert 0 <= float(told["instance.age"]) < 60
    assert (told["instance.gpus"], told["instance.vcpus"]) == (8.0, 96.0)
    assert told["instance.memory.total"] == 1152 * 2**30
    assert told["instance.cpu.utilization"] == pytest.approx(0.42)
    assert told["instance.network.received"] == 10.0
    assert {item.time for item in look.samples} == {at}
    assert look.inventories == {"instance"}


def test_a_missing_datapoint_is_unknown_and_not_zero(cloud: Cloud) -> None:
    """An instance that reports nothing has no use that is known."""
    (name,) = cloud.instances()

    told = readings(cloud.collector("ec2", "cloudwatch").look(time.time()), name)

    assert told["instance.cpu.utilization"] == Bad("no datapoint in 15m")
    assert told["instance.memory.utilization"] == Bad("no datapoint in 15m")


def test_a_stopped_instance_says_so(cloud: Cloud) -> None:
    """What a stopped instance cannot report is bad, with its state as the reason."""
    (name,) = cloud.instances()
    cloud.client("ec2").stop_instances(InstanceIds=[name])

    told = readings(cloud.collector("ec2", "cloudwatch").look(time.time()), name)

    assert told["instance.state"] == "stopped"
    assert told["instance.cpu.utilization"] == Bad("the instance is stopped")


def test_tags_are_labels(cloud: Cloud) -> None:
    """Tags are labels as they are, labels of ours take tags in any case or by option, others are absent."""
    tags = [
        {"Key": "Team", "Value": "vision"},
        {"Key": "CostCenter", "Value": "c7"},
        {"Key": "aws-x", "Value": ""},
    ]
    (one,) = cloud.instances(TagSpecifications=[{"ResourceType": "instance", "Tags": tags}])
    (bare,) = cloud.instances()

    look = cloud.collector("ec2", labels={"env": "CostCenter"}).look(time.time())

    told = labels(look, one)
    assert (told["team"], told["env"], told["aws-x"], told["owner"]) == ("vision", "c7", "", None)
    assert told["region"] == "us-east-1"
    assert {name: labels(look, bare)[name] for name in ("team", "CostCenter")} == {
        "team": None,
        "CostCenter": None,
    }


def test_an_instance_of_a_group_names_it(cloud: Cloud) -> None:
    """The group that would start an instance anew is a label, and absent on an instance of no group."""
    (alone,) = cloud.instances()
    group = cloud.client("autoscaling")
    group.create_launch_configuration(
        LaunchConfigurationName="lc", ImageId="ami-12c6146b", InstanceType="t3.micro"
    )
    group.create_auto_scaling_group(
        AutoScalingGroupName="workers",
        LaunchConfigurationName="lc",
        MinSize=1,
        MaxSize=1,
        AvailabilityZones=["us-east-1a"],
    )
    member = group.describe_auto_scaling_instances()["AutoScalingInstances"][0]["InstanceId"]

    look = cloud.collector("ec2", "asg").look(time.time())

    assert labels(look, member)["asg"] == "workers"
    assert labels(look, alone)["asg"] is None


def test_many_instances_come_page_by_page(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing of several pages is read to its end."""
    names = cloud.instances(7, InstanceType="t3.micro")
    from stoploss.collectors.aws_calls import Asker

    whole = Asker.pages

    def small(self: Asker, service: str, operation: str, key: str, **arguments: Any) -> Any:
        size = {"PaginationConfig": {"PageSize": 5}} if operation == "describe_instances" else {}
        return whole(self, service, operation, key, **arguments, **size)

    monkeypatch.setattr(Asker, "pages", small)
    look = cloud.collector("ec2").look(time.time())

    assert {item.resource.id for item in look.samples} == set(names)


def test_an_instance_that_is_gone_is_not_told(cloud: Cloud) -> None:
    """After a terminated instance has left the list it is gone, once."""
    (name,) = cloud.instances()
    collector = cloud.collector("ec2")
    collector.look(time.time())
    cloud.client("ec2").terminate_instances(InstanceIds=[name])
    state = readings(collector.look(time.time()), name)["instance.state"]
    empty(cloud.url, cloud.app)
    gone = readings(collector.look(time.time()), name)

    assert state == "terminated"
    assert gone == {"resource.present": 0.0}
    assert readings(collector.look(time.time()), name) == {}
