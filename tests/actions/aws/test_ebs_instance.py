"""All volumes of an instance, kept as snapshots of one instant."""

from __future__ import annotations

from typing import Any

import pytest

from stoploss.actions.contract import Refused
from stoploss.actions.targets.ebs_instance import SnapshotAll

from .conftest import Cloud, backend, crashed, order

pytestmark = pytest.mark.slow
"""Many calls of a server that takes its time."""


def instance(cloud: Cloud) -> str:
    """An instance with its root and a volume for data."""
    (name,) = cloud.instances()
    data = cloud.client("ec2").create_volume(AvailabilityZone="us-east-1a", Size=100, VolumeType="gp3")
    cloud.client("ec2").attach_volume(VolumeId=data["VolumeId"], InstanceId=name, Device="/dev/sdx")
    return name


def volumes(cloud: Cloud, name: str) -> set[str]:
    filters = [{"Name": "attachment.instance-id", "Values": [name]}]
    told = cloud.client("ec2").describe_volumes(Filters=filters)["Volumes"]
    return {item["VolumeId"] for item in told}


def kept(cloud: Cloud) -> list[dict[str, Any]]:
    told = cloud.client("ec2").describe_snapshots(OwnerIds=["self"])["Snapshots"]
    return [item for item in told if {"Key": "stoploss:order", "Value": "order-1"} in item.get("Tags", [])]


def test_every_volume_is_kept_by_one_call(cloud: Cloud) -> None:
    """Root and data are in complete snapshots; to look asks nothing to change, an undo deletes them."""
    name = instance(cloud)
    target, what = SnapshotAll(cloud.means), order("instance", name, "snapshot", what="volume")
    cloud.changes()

    found = target.find(what)
    asked = cloud.changes()
    outcome = target.act(what, found)
    made = kept(cloud)
    undone = target.undo(what, found)

    assert (not asked, found.undoable, "(100 GiB)" in found.words) == (True, True, True)
    assert (outcome.state, cloud.changes()["CreateSnapshots"]) == ("done", 1)
    assert {item["VolumeId"] for item in made} == volumes(cloud, name)
    assert len(made) == 2
    assert {item["SnapshotId"] for item in made} == set((outcome.after or {})["snapshots"].values())
    assert (undone.state, kept(cloud), target.undo(what, found).state) == ("done", [], "skipped")


@pytest.mark.parametrize(("calls", "state"), [(0, "undone"), (1, "done")])
def test_a_crash_makes_none_twice(cloud: Cloud, calls: int, state: str) -> None:
    """Killed before or after the call, a look tells what there is, and acting again makes no second one."""
    name = instance(cloud)
    what = order("instance", name, "snapshot", what="volume")
    found = SnapshotAll(cloud.means).find(what)
    cloud.changes()

    seen = crashed(cloud, SnapshotAll, what, found, calls)
    outcome = SnapshotAll(cloud.means).act(what, found)

    assert (seen.state, outcome.state) == (state, "done")
    assert cloud.changes() == {"CreateSnapshots": 1}


def test_one_that_failed_is_told(cloud: Cloud) -> None:
    """One snapshot in error, or one that is missing: the whole is not kept."""
    name = instance(cloud)
    target, what = SnapshotAll(cloud.means), order("instance", name, "snapshot", what="volume")
    found = target.find(what)
    target.act(what, found)
    first, second = kept(cloud)
    backend("ec2").snapshots[first["SnapshotId"]].status = "error"

    seen = target.look(what, found)
    del backend("ec2").snapshots[second["SnapshotId"]]

    assert (seen.state, seen.retry) == ("failed", False)
    assert f"snapshot {first['SnapshotId']} is error" in seen.words
    assert target.look(what, found).state == "failed"


def test_a_volume_that_came_meanwhile_is_not_left_out_unsaid(cloud: Cloud) -> None:
    """What is kept is what was found: with another volume by now nothing is made."""
    name = instance(cloud)
    target, what = SnapshotAll(cloud.means), order("instance", name, "snapshot", what="volume")
    found = target.find(what)
    more = cloud.client("ec2").create_volume(AvailabilityZone="us-east-1a", Size=1)
    cloud.client("ec2").attach_volume(VolumeId=more["VolumeId"], InstanceId=name, Device="/dev/sdy")

    outcome = target.act(what, found)

    assert (outcome.state, outcome.words) == ("skipped", f"instance {name} has other volumes by now")
    assert kept(cloud) == []


def test_what_has_ended_is_refused(cloud: Cloud) -> None:
    """An instance that is gone has nothing to keep."""
    name = instance(cloud)
    cloud.client("ec2").terminate_instances(InstanceIds=[name])

    with pytest.raises(Refused) as told:
        SnapshotAll(cloud.means).find(order("instance", name, "snapshot", what="volume"))
    assert told.value.gone
