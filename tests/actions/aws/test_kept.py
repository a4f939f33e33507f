"""Buckets, log groups and training jobs."""

from __future__ import annotations

from typing import Any

import pytest

from stoploss.actions.contract import Refused
from stoploss.actions.targets.cloudwatch import Retention
from stoploss.actions.targets.s3 import StorageClass
from stoploss.actions.targets.sagemaker import Stop

from .conftest import Cloud, backend, crashed, order

pytestmark = pytest.mark.slow
"""Many calls of a server that takes its time."""

DAY = 86_400.0
OTHER = {"ID": "theirs", "Status": "Enabled", "Filter": {"Prefix": "tmp/"}, "Expiration": {"Days": 7}}


def bucket(cloud: Cloud, *rules: dict[str, Any]) -> None:
    """The bucket `alpha` with lifecycle rules."""
    client = cloud.client("s3")
    client.create_bucket(Bucket="alpha")
    if rules:
        client.put_bucket_lifecycle_configuration(
            Bucket="alpha", LifecycleConfiguration={"Rules": list(rules)}
        )


def rules(cloud: Cloud) -> list[str]:
    """Names of the rules of the bucket."""
    client = cloud.client("s3")
    try:
        told = client.get_bucket_lifecycle_configuration(Bucket="alpha")
    except client.exceptions.ClientError:
        return []
    return [rule["ID"] for rule in told["Rules"]]


def tier(kind: str = "GLACIER_IR", **labels: str) -> Any:
    return order("bucket", "alpha", "tier", storage_class=kind, labels=labels)


def train(cloud: Cloud, status: str = "InProgress", **options: Any) -> Any:
    """The training job `bert`, and what the server remembers of it."""
    cloud.client("sagemaker").create_training_job(
        TrainingJobName="bert",
        AlgorithmSpecification={"TrainingImage": "image", "TrainingInputMode": "File"},
        RoleArn="arn:aws:iam::123456789012:role/train",
        OutputDataConfig={"S3OutputPath": "s3://out"},
        ResourceConfig={"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 3600},
        **options,
    )
    job = backend("sagemaker").training_jobs["bert"]
    job.training_job_status = status
    return job


@pytest.mark.parametrize("others", [(), (OTHER,)])
def test_a_rule_is_added_to_those_that_are_there(cloud: Cloud, others: tuple[dict[str, Any], ...]) -> None:
    """Rules of others stay, before and after an undo, which takes away ours alone."""
    bucket(cloud, *others)
    names = [rule["ID"] for rule in others]
    target, what = StorageClass(cloud.means), tier()

    cloud.changes()
    found = target.find(what)
    asked = cloud.changes()
    before = target.look(what, found)
    outcome = target.act(what, found)
    again = target.act(what, found)
    put = cloud.changes()
    added = rules(cloud)
    undone = target.undo(what, found)

    assert found.words == "would have S3 move the objects of bucket alpha to GLACIER_IR"
    assert (found.undoable, not asked) == (True, True)
    assert (before.state, outcome.state, again.state) == ("undone", "done", "done")
    assert put == {"PutBucketLifecycleConfiguration": 1}
    assert added == [*names, "stoploss-order-1"]
    assert (undone.state, rules(cloud)) == ("done", names)
    assert target.undo(what, found).state == "skipped"


@pytest.mark.parametrize(("calls", "state"), [(0, "undone"), (1, "done")])
def test_a_crash_adds_no_second_rule(cloud: Cloud, calls: int, state: str) -> None:
    """Killed after any call, a look tells whether the rule is there, and acting again adds none twice."""
    bucket(cloud, OTHER)
    found = StorageClass(cloud.means).find(tier())

    seen = crashed(cloud, StorageClass, tier(), found, calls)
    outcome = StorageClass(cloud.means).act(tier(), found)

    assert (seen.state, outcome.state, rules(cloud)) == (state, "done", ["theirs", "stoploss-order-1"])


def test_a_slow_class_and_older_versions_are_told(cloud: Cloud) -> None:
    """The words say what can no longer be read at once, and what is not moved."""
    bucket(cloud)
    cloud.client("s3").put_bucket_versioning(Bucket="alpha", VersioningConfiguration={"Status": "Enabled"})

    words = StorageClass(cloud.means).find(tier("deep-archive")).words
    aged = StorageClass(cloud.means).find(tier("standard-ia")).words

    assert words == (
        "would have S3 move the objects of bucket alpha to DEEP_ARCHIVE; older versions of them stay; "
        "they can be read only after they are restored, within hours"
    )
    assert "bucket alpha that are 30 days old to STANDARD_IA" in aged


def test_buckets_that_are_not_moved(cloud: Cloud) -> None:
    """A class that is none, a bucket that moves all already, one that is gone, and unreadable ones."""
    target = StorageClass(cloud.means)
    with pytest.raises(Refused, match="there is no bucket alpha") as gone:
        target.find(tier())
    moving = {"ID": "all", "Status": "Enabled", "Filter": {"Prefix": ""}}
    bucket(cloud, {**moving, "Transitions": [{"Days": 9, "StorageClass": "GLACIER"}]})

    assert gone.value.gone
    with pytest.raises(Refused, match="moves nothing to a class COLD"):
        target.find(tier("cold"))
    with pytest.raises(Refused, match="moves all objects to GLACIER already"):
        target.find(tier())
    with pytest.raises(Refused, match="cannot be read: team"):
        target.find(tier(team="?"))
    cloud.fail("AccessDenied", "GET /alpha", "versioning", status=403)
    with pytest.raises(Refused, match="no rights for GetBucketVersioning"):
        target.find(tier())


def test_P_A3_rules_that_cannot_be_read_are_not_replaced(cloud: Cloud) -> None:
    """Where the rules are refused, at the look or at the act, nothing is written over them."""
    bucket(cloud, OTHER)
    target, what = StorageClass(cloud.means), tier()
    found = target.find(what)
    cloud.fail("ServiceUnavailable", "GET /alpha", "lifecycle", status=503)

    outcome = target.act(what, found)
    with pytest.raises(Refused, match="GetBucketLifecycleConfiguration"):
        target.find(what)
    cloud.app.faults.clear()

    assert (outcome.state, outcome.retry, rules(cloud)) == ("failed", True, ["theirs"])
    assert target.act(what, found).state == "done"


def test_our_rule_that_was_changed_stays(cloud: Cloud) -> None:
    """A rule that somebody has turned off is theirs by now."""
    bucket(cloud)
    target, what = StorageClass(cloud.means), tier()
    found = target.find(what)
    target.act(what, found)
    changed = {"ID": "stoploss-order-1", "Status": "Disabled", "Filter": {"Prefix": ""}}
    changed |= {"Transitions": [{"Days": 0, "StorageClass": "GLACIER_IR"}]}
    cloud.client("s3").put_bucket_lifecycle_configuration(
        Bucket="alpha", LifecycleConfiguration={"Rules": [changed]}
    )

    assert (target.look(what, found).state, target.undo(what, found).state) == ("skipped", "skipped")
    assert rules(cloud) == ["stoploss-order-1"]


@pytest.mark.parametrize(("old", "words"), [(None, "for ever"), (365, "for 365 days")])
def test_a_log_group_is_kept_shorter(cloud: Cloud, old: int | None, words: str) -> None:
    """The least time that AWS allows and that is long enough is set; an undo sets what it was."""
    logs = cloud.client("logs")
    logs.create_log_group(logGroupName="/train")
    logs.create_log_group(logGroupName="/train/other")
    if old:
        logs.put_retention_policy(logGroupName="/train", retentionInDays=old)
    target, what = Retention(cloud.means), order("log", "/train@us-east-1", "retain", retention=20.5 * DAY)

    def kept() -> list[Any]:
        return [item.get("retentionInDays") for item in logs.describe_log_groups()["logGroups"]]

    cloud.changes()
    found = target.find(what)
    asked = cloud.changes()
    before = target.look(what, found)
    outcome = target.act(what, found)
    again = target.act(what, found)
    put = cloud.changes()
    short = kept()
    undone = target.undo(what, found)

    assert found.words == (
        f"would keep log group /train for 30 days instead of {words}: AWS deletes what is older, "
        "and it does not come back"
    )
    assert (before.state, outcome.state, again.state, short) == ("undone", "done", "done", [30, None])
    assert (asked, put) == ({}, {"PutRetentionPolicy": 1})
    assert (undone.state, kept()) == ("done", [old, None])


def test_log_groups_that_are_not_kept_shorter(cloud: Cloud) -> None:
    """One that is kept no longer, one that is gone, and one that somebody else has changed since."""
    logs = cloud.client("logs")
    logs.create_log_group(logGroupName="/train")
    logs.put_retention_policy(logGroupName="/train", retentionInDays=30)
    target = Retention(cloud.means)
    what = order("log", "/train", "retain", retention=7 * DAY)

    with pytest.raises(Refused, match="is kept for 30 days, no longer than 25 days"):
        target.find(order("log", "/train", "retain", retention=25 * DAY))
    with pytest.raises(Refused, match="there is no log group /gone"):
        target.find(order("log", "/gone", "retain", retention=7 * DAY))
    found = target.find(what)
    logs.put_retention_policy(logGroupName="/train", retentionInDays=90)
    assert (target.act(what, found).state, target.undo(what, found).state) == ("skipped", "skipped")
    logs.delete_log_group(logGroupName="/train")
    assert target.look(what, found).state == "skipped"


def test_a_throttled_retention_is_tried_again(cloud: Cloud) -> None:
    """The words say how long it is kept now."""
    cloud.client("logs").create_log_group(logGroupName="/train")
    target, what = Retention(cloud.means), order("log", "/train", "retain", retention=7 * DAY)
    found = target.find(what)
    cloud.fail("ThrottlingException", "PutRetentionPolicy")

    outcome = target.act(what, found)
    cloud.app.faults.clear()

    assert (outcome.state, outcome.retry) == ("failed", True)
    assert outcome.words == "throttled (PutRetentionPolicy); log group /train is kept for ever"
    assert target.act(what, found).state == "done"


def test_a_training_job_is_stopped(cloud: Cloud) -> None:
    """It is asked to stop, and waited for while it saves."""
    job = train(cloud)
    target, what = Stop(cloud.means), order("job", "bert@us-east-1")
    cloud.meanwhile = lambda: setattr(
        job, "training_job_status", "Stopped" if cloud.passed > 100 else "Stopping"
    )

    cloud.changes()
    found = target.find(what)
    asked = cloud.changes()
    before = target.look(what, found)
    outcome = target.act(what, found)
    again = target.act(what, found)

    assert found.words == "would stop training job bert (2 x ml.p4d.24xlarge), which has 120 s to save"
    assert (found.undoable, not asked, before.state) == (False, True, "undone")
    assert (outcome.state, again.state, cloud.passed) == ("done", "done", 120.0)
    assert cloud.changes() == {"StopTrainingJob": 1}
    assert target.undo(what, found).state == "failed"


def test_a_crash_stops_a_training_job_once(cloud: Cloud) -> None:
    """Killed after the call, a look tells that it is stopping, and it is not asked again."""
    job = train(cloud)
    what = order("job", "bert")
    found = Stop(cloud.means).find(what)
    cloud.changes()

    seen = crashed(cloud, Stop, what, found, 1)
    cloud.meanwhile = lambda: setattr(job, "training_job_status", "Stopped")
    outcome = Stop(cloud.means).act(what, found)

    assert (seen.state, seen.retry, seen.words) == ("failed", True, "training job bert is stopping")
    assert outcome.state == "done"
    assert cloud.changes() == {"StopTrainingJob": 1}


def test_training_jobs_that_are_not_stopped(cloud: Cloud) -> None:
    """One that is over, one that is gone, one that a tuning job runs, and one that ends meanwhile."""
    job = train(cloud)
    target, what = Stop(cloud.means), order("job", "bert")
    found = target.find(what)

    job.training_job_status = "Completed"
    assert target.act(what, found).state == "skipped"
    with pytest.raises(Refused, match="bert is completed") as over:
        target.find(what)
    with pytest.raises(Refused, match="there is no training job other") as gone:
        target.find(order("job", "other"))
    job.training_job_status = "InProgress"
    job.tuning_job_arn = "arn:aws:sagemaker:us-east-1:123456789012:hyper-parameter-tuning-job/tune"
    with pytest.raises(Refused, match="run by a tuning job"):
        target.find(what)
    assert over.value.gone
    assert gone.value.gone


def test_a_training_job_that_does_not_stop(cloud: Cloud) -> None:
    """After ten minutes it is told as failed, and a throttled call says that it still runs."""
    train(cloud)
    target, what = Stop(cloud.means), order("job", "bert")
    found = target.find(what)
    cloud.fail("ThrottlingException", "StopTrainingJob")
    throttled = target.act(what, found)
    cloud.app.faults.clear()

    outcome = target.act(what, found)

    assert throttled.words == "throttled (StopTrainingJob); training job bert is inprogress"
    assert (throttled.state, throttled.retry) == ("failed", True)
    assert (outcome.state, outcome.retry, cloud.passed) == ("failed", True, 600.0)
