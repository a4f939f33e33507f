"""Volumes: kept as snapshots, and given back."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from stoploss.actions.contract import Refused
from stoploss.actions.targets.ebs import Release, Snapshot

from .conftest import Cloud, backend, crashed, order

pytestmark = pytest.mark.slow
"""Many calls of a server that takes its time."""


def volume(cloud: Cloud, **tags: str) -> str:
    """A volume that nobody has attached; `__` in a tag stands for `/`."""
    given = [{"Key": key.replace("__", "/"), "Value": value} for key, value in tags.items()]
    made = cloud.client("ec2").create_volume(
        AvailabilityZone="us-east-1a",
        Size=100,
        VolumeType="gp3",
        TagSpecifications=[{"ResourceType": "volume", "Tags": given}] if given else [],
    )
    return str(made["VolumeId"])


def snapshots(cloud: Cloud) -> list[dict[str, Any]]:
    """Those that were made from volumes here."""
    told = cloud.client("ec2").describe_snapshots(OwnerIds=["self"])["Snapshots"]
    return [item for item in told if item.get("Tags")]


def tags(item: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in item["Tags"]}


def volumes(cloud: Cloud) -> list[str]:
    """Ids of the volumes that are there."""
    return [item["VolumeId"] for item in cloud.client("ec2").describe_volumes()["Volumes"]]


def refused(cloud: Cloud, name: str, **labels: str) -> Refused:
    """Why a volume is not given back; nothing is changed by asking."""
    cloud.changes()
    with pytest.raises(Refused) as told:
        Release(cloud.means).find(order("volume", name, "release", labels=labels))
    assert not cloud.changes()
    return told.value


def attach(cloud: Cloud, name: str) -> str:
    """The instance that a volume is attached to."""
    (owner,) = cloud.instances()
    cloud.client("ec2").attach_volume(VolumeId=name, InstanceId=owner, Device="/dev/sdx")
    return owner


def test_a_snapshot_is_made_before_a_volume_is_deleted(cloud: Cloud) -> None:
    """The volume is kept as a snapshot, then deleted, and an undo makes another that holds the same."""
    name = volume(cloud, team="vision")
    target, what = Release(cloud.means), order("volume", name, "release")

    cloud.changes()
    found = target.find(what)
    asked = cloud.changes()
    outcome = target.act(what, found)
    changes = [call for call in cloud.calls if call in ("CreateSnapshot", "DeleteVolume")]
    (kept,) = snapshots(cloud)
    undone = target.undo(what, found)

    assert found.words == f"would delete volume {name} (gp3, 100 GiB) after a snapshot of it"
    assert (found.undoable, not asked) == (True, True)
    assert (outcome.state, changes) == ("done", ["CreateSnapshot", "DeleteVolume"])
    assert outcome.words == f"volume {name} is deleted; snapshot {kept['SnapshotId']} is complete"
    assert {tag["Key"]: tag["Value"] for tag in kept["Tags"]} == {
        "team": "vision",
        "stoploss:order": "order-1",
    }
    (made,) = cloud.client("ec2").describe_volumes()["Volumes"]
    assert undone.after == {"volume": made["VolumeId"]}
    assert (made["SnapshotId"], made["VolumeType"], made["Size"]) == (kept["SnapshotId"], "gp3", 100)
    assert made["AvailabilityZone"] == "us-east-1a"
    assert tags(made)["team"] == "vision"
    assert target.undo(what, found).after == undone.after


@pytest.mark.parametrize(("calls", "state"), [(0, "undone"), (1, "failed"), (2, "done")])
def test_a_crash_makes_no_second_snapshot(cloud: Cloud, calls: int, state: str) -> None:
    """Killed after any call, a look tells what there is, and acting again goes on with that snapshot."""
    name = volume(cloud)
    what = order("volume", name, "release")
    found = Release(cloud.means).find(what)
    cloud.changes()

    seen = crashed(cloud, Release, what, found, calls)
    outcome = Release(cloud.means).act(what, found)

    assert (seen.state, outcome.state) == (state, "done")
    assert cloud.changes() == {"CreateSnapshot": 1, "DeleteVolume": 1}
    assert volumes(cloud) == []


@pytest.mark.parametrize(
    "tag",
    ["kubernetes.io__created-for__pvc__name", "kubernetes.io__cluster__main", "CSIVolumeName"],
)
def test_G_81_a_volume_of_a_claim_is_not_released(cloud: Cloud, tag: str) -> None:
    """Not attached is not left over: a claim that may still exist can want it back."""
    name = volume(cloud, **{tag: "data-0"})

    assert "Kubernetes" in refused(cloud, name).words


def test_G_81_a_claim_that_only_the_collector_told_counts(cloud: Cloud) -> None:
    """A label is heeded as the tag is."""
    name = volume(cloud)

    told = refused(cloud, name, **{"kubernetes.io/created-for/pvc/name": "data-0"})

    assert told.words == f"volume {name} was made for claim data-0 of Kubernetes, which may still exist"


def test_G_82_a_volume_that_is_attached_by_now_is_left_alone(cloud: Cloud) -> None:
    """The list that proposed it is old: it is looked at again before anything is done."""
    name = volume(cloud)
    target, what = Release(cloud.means), order("volume", name, "release")
    found = target.find(what)
    owner = attach(cloud, name)
    cloud.changes()

    outcome = target.act(what, found)

    assert (outcome.state, outcome.words) == ("skipped", f"volume {name} is attached to {owner}")
    assert not cloud.changes()
    assert refused(cloud, name).words == f"volume {name} is attached to {owner}"


def test_G_82_a_volume_that_is_attached_during_its_snapshot_is_left_alone(cloud: Cloud) -> None:
    """It is looked at once more when the snapshot is complete, which is told."""
    name = volume(cloud)
    what = order("volume", name, "release")
    found = Release(cloud.means).find(what)
    crashed(cloud, Release, what, found, 1)
    owner = attach(cloud, name)

    outcome = Release(cloud.means).act(what, found)

    assert (outcome.state, name in volumes(cloud)) == ("skipped", True)
    assert outcome.words.startswith(f"volume {name} is attached to {owner}")


def test_what_was_written_after_the_snapshot_is_not_lost(cloud: Cloud) -> None:
    """A volume that reported after its snapshot began was attached, and its snapshot is not all of it."""
    name = volume(cloud)
    what = order("volume", name, "release")
    found = Release(cloud.means).find(what)
    crashed(cloud, Release, what, found, 1)
    row = {
        "MetricName": "VolumeWriteOps",
        "Dimensions": [{"Name": "VolumeId", "Value": name}],
        "Timestamp": datetime.fromtimestamp(time.time() - 1, UTC),
        "Value": 7.0,
    }
    cloud.client("cloudwatch").put_metric_data(Namespace="AWS/EBS", MetricData=[row])

    outcome = Release(cloud.means).act(what, found)

    assert (outcome.state, name in volumes(cloud)) == ("skipped", True)
    assert "was attached after its snapshot began; snapshot snap-" in outcome.words


def test_a_snapshot_that_is_not_complete_deletes_nothing(cloud: Cloud) -> None:
    """After ten minutes it is told how far it is; another try goes on with it."""
    name = volume(cloud)
    target, what = Release(cloud.means), order("volume", name, "release")
    found = target.find(what)
    crashed(cloud, Release, what, found, 1)
    made = next(iter(one for one in backend("ec2").snapshots.values() if one.volume.id == name))
    made.status = "pending"

    outcome = target.act(what, found)
    kept = name in volumes(cloud)
    made.status = "completed"

    assert (outcome.state, outcome.retry, kept, cloud.passed) == ("failed", True, True, 600.0)
    assert "is pending" in outcome.words
    assert target.act(what, found).state == "done"


def test_a_failed_snapshot_deletes_nothing(cloud: Cloud) -> None:
    """A snapshot in error counts for nothing."""
    name = volume(cloud)
    what = order("volume", name, "release")
    found = Release(cloud.means).find(what)
    crashed(cloud, Release, what, found, 1)
    next(iter(one for one in backend("ec2").snapshots.values() if one.volume.id == name)).status = "error"

    outcome = Release(cloud.means).act(what, found)

    assert (outcome.state, outcome.retry, name in volumes(cloud)) == ("failed", False, True)


@pytest.mark.parametrize("call", ["CreateSnapshot", "DeleteVolume"])
def test_a_throttled_call_tells_what_there_is(cloud: Cloud, call: str) -> None:
    """Nothing is half done untold, and another try ends it well."""
    name = volume(cloud)
    target, what = Release(cloud.means), order("volume", name, "release")
    found = target.find(what)
    cloud.fail("RequestLimitExceeded", f"Action={call}", status=503)

    outcome = target.act(what, found)
    cloud.app.faults.clear()

    assert (outcome.state, outcome.retry) == ("failed", True)
    assert outcome.words.startswith(f"throttled ({call}); volume {name} is ")
    assert ("snapshot snap-" in outcome.words) == (call == "DeleteVolume")
    assert target.act(what, found).state == "done"
    assert len(snapshots(cloud)) == 1


def test_a_volume_that_is_gone_without_us(cloud: Cloud) -> None:
    """What others have deleted is skipped, and gone."""
    name = volume(cloud)
    target, what = Release(cloud.means), order("volume", name, "release")
    found = target.find(what)
    cloud.client("ec2").delete_volume(VolumeId=name)

    assert (target.act(what, found).state, target.look(what, found).state) == ("skipped", "skipped")
    assert target.undo(what, found).state == "failed"
    assert refused(cloud, name).gone


def test_P_A3_a_volume_without_readable_tags_is_not_released(cloud: Cloud) -> None:
    """Tags that could not be read are not the absence of tags."""
    name = volume(cloud)

    assert "cannot be read: owner" in refused(cloud, name, owner="?").words


def test_a_volume_in_use_is_kept_as_a_snapshot(cloud: Cloud) -> None:
    """`snapshot: {what: volume}` makes one, once, and an undo deletes it."""
    name = volume(cloud)
    attach(cloud, name)
    target, what = Snapshot(cloud.means), order("volume", name, "snapshot", what="volume")

    found = target.find(what)
    before = target.look(what, found)
    outcome = target.act(what, found)
    again = target.act(what, found)
    made = len(snapshots(cloud))
    undone = target.undo(what, found)

    assert (before.state, outcome.state, again.state, made) == ("undone", "done", "done", 1)
    assert (undone.state, snapshots(cloud), name in volumes(cloud)) == ("done", [], True)
    assert target.undo(what, found).state == "skipped"
