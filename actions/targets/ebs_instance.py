"""Volumes of an instance: kept together as snapshots of one instant.

Each snapshot bears the tag `stoploss:order` with the id of the order, by which it is found after a crash.
What lies on disks of the instance's own machine is not in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stoploss.actions.contract import Found, Order, Outcome, Refused
from stoploss.actions.targets import ec2_instance as instances
from stoploss.actions.targets.aws_calls import TAG, AwsTarget, Place, tagging
from stoploss.aws import pages

Made = dict[str, Mapping[str, Any]]
"""Volume -> its snapshot of this order."""


class SnapshotAll(AwsTarget):
    """Keeps every volume of an instance; undone by deleting the snapshots."""

    def found_at(self, place: Place, order: Order) -> Found:
        """See what would be kept.

        Raises:
            Refused: the instance has ended, or no volume is attached to it.
        """
        item = instances.there(place, order.resource.id)
        sizes = _volumes(place, item.id)
        if not sizes:
            raise Refused(f"instance {item.id} has no volume that could be kept")
        names = ", ".join(f"{name} ({size} GiB)" for name, size in sizes.items())
        words = f"would make snapshots of {names} of instance {item.id}"
        return Found(words, {"instance": item.id, "volumes": sizes, "tags": dict(item.tags)}, undoable=True)

    def act_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Make them, unless they were begun before, and wait until all are complete."""
        name, wanted = found.before["instance"], found.before["volumes"]
        if not _made(place, order):
            if _volumes(place, name) != wanted:
                return Outcome("skipped", f"instance {name} has other volumes by now")
            # Asked once: there is no key against making them twice.
            place.client("ec2", once=True).create_snapshots(
                InstanceSpecification={"InstanceId": name},
                Description=f"stoploss: {order.by}"[:255],
                TagSpecifications=tagging("snapshot", {**found.before["tags"], TAG: order.id}),
            )
        self.wait(lambda: _made(place, order), lambda made: _settled(made, wanted))
        return self.look_at(place, order, found)

    def look_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Whether each volume has a complete one."""
        name, wanted = found.before["instance"], found.before["volumes"]
        made = _made(place, order)
        after = {"snapshots": {volume: one["SnapshotId"] for volume, one in made.items()}}
        if not made:
            item = instances.instance(place, name)
            if item is None or item.state in instances.OVER:
                return Outcome("skipped", f"instance {name} is gone")
            return Outcome("undone", "there is no snapshot of this order")
        for volume, size in wanted.items():
            one = made.get(volume)
            if one is None:
                return Outcome("failed", f"there is no snapshot of volume {volume}", after)
            if one["State"] != "completed":
                words = f"snapshot {one['SnapshotId']} is {one['State']} ({one['Progress']})"
                return Outcome("failed", words, after, retry=one["State"] == "pending")
            if one["VolumeSize"] != size:
                words = f"snapshot {one['SnapshotId']} has another size than volume {volume}"
                return Outcome("failed", words, after)
        kept = ", ".join(one["SnapshotId"] for one in made.values())
        return Outcome("done", f"complete of instance {name}: {kept}", after)

    def undo_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Delete the snapshots that were made."""
        made = _made(place, order)
        if not made:
            return Outcome("skipped", "there is no snapshot of this order")
        for one in made.values():
            place.client("ec2").delete_snapshot(SnapshotId=one["SnapshotId"])
        names = ", ".join(one["SnapshotId"] for one in made.values())
        if not self.wait(lambda: _made(place, order), lambda left: not left):
            return Outcome("done", f"deleted: {names}")
        return Outcome("failed", f"still there: {names}", retry=True)


def _volumes(place: Place, name: str) -> dict[str, int]:
    """Volume -> GiB, of all that are attached to an instance."""
    filters = [{"Name": "attachment.instance-id", "Values": [name]}]
    listed = pages(place.client("ec2"), "describe_volumes", "Volumes", Filters=filters)
    return dict(sorted((one["VolumeId"], one["Size"]) for one in listed))


def _made(place: Place, order: Order) -> Made:
    filters = [{"Name": f"tag:{TAG}", "Values": [order.id]}]
    listed = pages(place.client("ec2"), "describe_snapshots", "Snapshots", OwnerIds=["self"], Filters=filters)
    # Of two of a volume, where an answer was lost, the one that is furthest.
    ranked = sorted(listed, key=lambda one: (one["State"] == "completed", one["SnapshotId"]))
    return {one["VolumeId"]: one for one in ranked}


def _settled(made: Made, wanted: Mapping[str, int]) -> bool:
    over = {volume for volume, one in made.items() if one["State"] in ("completed", "error")}
    return over >= set(wanted) or any(one["State"] == "error" for one in made.values())
