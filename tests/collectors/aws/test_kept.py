"""Volumes, buckets, logs, training jobs and services."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from stoploss.collectors.aws_metrics import since_used
from stoploss.engine.model import UNREADABLE, Bad

from .conftest import Cloud, labels, readings
from .test_failing import answering

DAY = 86_400.0
GIB = 2.0**30


def datapoint(cloud: Cloud, namespace: str, metric: str, value: float, at: float, **dimensions: str) -> None:
    """One value of a metric, `at` seconds since the epoch."""
    row = {
        "MetricName": metric,
        "Dimensions": [{"Name": name, "Value": text} for name, text in dimensions.items()],
        "Timestamp": datetime.fromtimestamp(at, UTC),
        "Value": value,
    }
    cloud.client("cloudwatch").put_metric_data(Namespace=namespace, MetricData=[row])


def train(cloud: Cloud, name: str, **options: Any) -> None:
    """Start a training job on two instances of eight GPUs."""
    cloud.client("sagemaker").create_training_job(
        TrainingJobName=name,
        AlgorithmSpecification={"TrainingImage": "image", "TrainingInputMode": "File"},
        RoleArn="arn:aws:iam::123456789012:role/train",
        OutputDataConfig={"S3OutputPath": "s3://out"},
        ResourceConfig={"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 3600},
        **options,
    )


def test_an_attached_and_a_detached_volume(cloud: Cloud) -> None:
    """Attachments, snapshots of others, size, tier and the time since the last report are told."""
    at, ec2 = time.time(), cloud.client("ec2")
    (instance,) = cloud.instances()
    used = ec2.create_volume(AvailabilityZone="us-east-1a", Size=8, VolumeType="gp3")["VolumeId"]
    ec2.attach_volume(VolumeId=used, InstanceId=instance, Device="/dev/sdx")
    ec2.create_snapshot(VolumeId=used)
    ours = [{"ResourceType": "snapshot", "Tags": [{"Key": "stoploss:order", "Value": "o-1"}]}]
    ec2.create_snapshot(VolumeId=used, TagSpecifications=ours)
    loose = ec2.create_volume(AvailabilityZone="us-east-1a", Size=100, VolumeType="sc1")["VolumeId"]
    never = ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"]
    datapoint(cloud, "AWS/EBS", "VolumeReadOps", 1.0, at - 40 * DAY, VolumeId=loose)

    look = cloud.collector("ebs", "cloudwatch").look(at)

    told = readings(look, used)
    assert (told["storage.attachments"], told["storage.references"]) == (1.0, 1.0)
    assert (told["storage.capacity"], told["storage.tier"]) == (8 * GIB, "fast")
    assert told["storage.since_detached"] == 0.0
    assert labels(look, used)["instance"] == instance
    told = readings(look, loose)
    assert (told["storage.attachments"], told["storage.references"], told["storage.tier"]) == (
        0.0,
        0.0,
        "cold",
    )
    assert 38 * DAY <= float(told["storage.since_detached"]) <= 40 * DAY
    assert labels(look, loose)["instance"] is None
    assert isinstance(readings(look, never)["storage.since_detached"], Bad)
    assert look.inventories == frozenset()


def test_snapshots_that_cannot_be_listed_are_not_none(cloud: Cloud) -> None:
    """A volume whose snapshots are refused has unknown references and keeps its other readings."""
    name = cloud.client("ec2").create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"]
    cloud.fail(answering("UnauthorizedOperation", "DescribeSnapshots", status=403))

    told = readings(cloud.collector("ebs").look(time.time()), name)

    assert told["storage.references"] == Bad("no rights for DescribeSnapshots")
    assert told["storage.capacity"] == GIB


def test_a_small_bucket_is_listed(cloud: Cloud) -> None:
    """A bucket of which CloudWatch has no size is listed: bytes, objects, tier, newest write, lifecycle."""
    s3 = cloud.client("s3")
    s3.create_bucket(Bucket="alpha")
    s3.put_object(Bucket="alpha", Key="a", Body=b"x" * 10)
    s3.put_object(Bucket="alpha", Key="b", Body=b"x" * 30, StorageClass="GLACIER")
    rule = {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}}
    s3.put_bucket_lifecycle_configuration(Bucket="alpha", LifecycleConfiguration={"Rules": [rule]})
    s3.create_bucket(Bucket="beta")

    look = cloud.collector("s3", "cloudwatch").look(time.time())

    told = readings(look, "alpha")
    assert (told["storage.size"], told["storage.objects"], told["storage.tier"]) == (40.0, 2.0, "archive")
    assert 0 <= float(told["storage.last_written"]) < 60
    assert labels(look, "alpha")["lifecycle"] == "yes"
    assert labels(look, "beta")["lifecycle"] is None
    assert readings(look, "beta")["storage.last_written"] == Bad("empty")
    assert look.inventories == {"bucket"}


def test_a_large_bucket_is_not_listed(cloud: Cloud) -> None:
    """Where CloudWatch knows the size no object is listed; all storage classes are added up."""
    at = time.time()
    cloud.client("s3").create_bucket(Bucket="alpha")
    for kind, size in (("StandardStorage", 1e9), ("GlacierStorage", 5e9)):
        datapoint(cloud, "AWS/S3", "BucketSizeBytes", size, at - DAY, BucketName="alpha", StorageType=kind)
    datapoint(
        cloud, "AWS/S3", "NumberOfObjects", 7.0, at - DAY, BucketName="alpha", StorageType="AllStorageTypes"
    )
    cloud.fail(answering("AccessDenied", "GET", "list-type=2", status=403))

    told = readings(cloud.collector("s3", "cloudwatch").look(at), "alpha")

    assert (told["storage.size"], told["storage.objects"], told["storage.tier"]) == (6e9, 7.0, "archive")


def test_a_lifecycle_that_cannot_be_read_is_not_none(cloud: Cloud) -> None:
    """The label is unreadable, the bucket is told all the same, and a note says why."""
    cloud.client("s3").create_bucket(Bucket="alpha")
    cloud.fail(answering("AccessDenied", "GET", "/alpha", "lifecycle", status=403))

    look = cloud.collector("s3").look(time.time())

    assert labels(look, "alpha")["lifecycle"] is UNREADABLE
    assert readings(look, "alpha")["storage.objects"] == 0.0
    assert look.notes == (
        "aws: own: bucket alpha: its lifecycle cannot be read: no rights for GetBucketLifecycleConfiguration",
    )


def test_log_groups_tell_how_long_they_are_kept(cloud: Cloud) -> None:
    """Retention is in seconds, and very long without an end; with several regions the name tells which."""
    logs = cloud.client("logs")
    logs.create_log_group(logGroupName="/train", tags={"team": "nlp"})
    logs.put_retention_policy(logGroupName="/train", retentionInDays=7)
    logs.create_log_group(logGroupName="/old")

    one = cloud.collector("logs").look(time.time())
    two = cloud.collector("logs", regions=("us-east-1", "eu-west-1")).look(time.time())

    assert readings(one, "/train")["logs.retention"] == 7 * DAY
    assert readings(one, "/old")["logs.retention"] == 36_500 * DAY
    assert labels(one, "/train")["team"] == "nlp"
    assert {item.resource.id for item in two.samples} == {"/train@us-east-1", "/old@us-east-1"}


def test_training_jobs_tell_what_they_hold(cloud: Cloud) -> None:
    """State, instances, GPUs, limit and tags of a training job are told."""
    train(cloud, "bert", Tags=[{"Key": "Team", "Value": "nlp"}])

    look = cloud.collector("sagemaker").look(time.time())

    told = readings(look, "bert")
    assert told["job.state"] in ("running", "ended")
    assert (told["job.nodes"], told["job.gpus"], told["job.time_limit"]) == (2.0, 16.0, 3600.0)
    assert labels(look, "bert")["team"] == "nlp"
    assert labels(look, "bert")["instance_type"] == "ml.p4d.24xlarge"
    assert labels(look, "bert")["scheduler"] == "sagemaker"


def test_a_job_that_cannot_be_described_is_told_all_the_same(cloud: Cloud) -> None:
    """The state comes from the list; the rest is bad."""
    train(cloud, "bert")
    cloud.fail(answering("AccessDeniedException", "DescribeTrainingJob"))

    told = readings(cloud.collector("sagemaker").look(time.time()), "bert")

    assert told["job.state"] in ("running", "ended")
    assert told["job.gpus"] == Bad("no rights for DescribeTrainingJob")


def test_a_queue_and_a_database(cloud: Cloud) -> None:
    """Messages that wait, connections, and the time since the newest use are told."""
    at, sqs = time.time(), cloud.client("sqs")
    address = sqs.create_queue(QueueName="work", tags={"owner": "ann"})["QueueUrl"]
    sqs.send_message(QueueUrl=address, MessageBody="x")
    cloud.client("rds").create_db_instance(
        DBInstanceIdentifier="db", DBInstanceClass="db.m5.large", Engine="postgres", AllocatedStorage=10,
        MasterUsername="u", MasterUserPassword="password",
    )  # fmt: skip
    datapoint(cloud, "AWS/RDS", "DatabaseConnections", 3.0, at - 2 * DAY, DBInstanceIdentifier="db")
    datapoint(cloud, "AWS/RDS", "DatabaseConnections", 0.0, at - 300, DBInstanceIdentifier="db")

    look = cloud.collector("rds", "sqs", "cloudwatch").look(at)

    assert readings(look, "sqs:work")["service.queue_depth"] == 1.0
    assert readings(look, "sqs:work")["service.last_used"] == Bad("no datapoint in 14d")
    assert labels(look, "sqs:work")["owner"] == "ann"
    assert readings(look, "rds:db")["service.connections"] == 0.0
    assert 1.9 * DAY <= float(readings(look, "rds:db")["service.last_used"]) <= 2 * DAY


def test_what_was_never_used_is_unused_as_long_as_reports_reach() -> None:
    """Zeros since a day say unused for a day, no report says nothing, and a failure stays one."""
    zeros = ((9_000.0, 0.0), (5_400.0, 0.0), (1_800.0, 0.0))

    assert since_used(zeros, 3600, DAY, 10_000.0) == 8_200.0
    assert since_used(((5_400.0, 2.0), (1_800.0, 0.0)), 3600, DAY, 10_000.0) == 1_000.0
    assert since_used((), 3600, DAY, 10_000.0) == Bad("no datapoint in 1d")
    assert since_used(Bad("throttled"), 3600, DAY, 10_000.0) == Bad("throttled")
