"""Volumes: keeps them as snapshots, and deletes those that nobody has attached.

A snapshot bears the tag `stoploss:order` with the id of the order, by which it is found after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from stoploss.actions.contract import Found, Order, Outcome, Refused
from stoploss.actions.targets.aws_calls import TAG, AwsTarget, Figure, Place, tagging, token
from stoploss.aws import code, pages, tags_of

CLAIMS = ("kubernetes.io/created-for/", "kubernetes.io/cluster/", "CSIVolumeName", "ebs.csi.aws.com/")
"""Beginnings of tags on volumes that belong, or belonged, to claims of Kubernetes."""

_MINUTE = 60
_FASTER = {"io1": ("Iops",), "io2": ("Iops",), "gp3": ("Iops", "Throughput")}
"""What of a volume's speed can be given when it is made."""


class Snapshot(AwsTarget):
    """Keeps a volume as a snapshot; undone by deleting it."""

    def found_at(self, place: Place, order: Order) -> Found:
        """See what would be kept.

        Raises:
            Refused: there is no such volume, or it is not in use and not available.
        """
        item = _there(place, order.resource.id)
        if item["State"] not in ("available", "in-use"):
            raise Refused(f"volume {item['VolumeId']} is {item['State']}")
        return Found(f"would make a snapshot of {_named(item)}", _identity(item), undoable=True)

    def act_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Make it, unless it was begun before, and wait until it is complete."""
        if _snapshot(place, order) is None:
            if not _same(_volume(place, found.before["volume"]), found):
                return Outcome("skipped", f"volume {found.before['volume']} is gone")
            _make(place, order, found)
        self.wait(lambda: _snapshot(place, order), _over)
        return self.look_at(place, order, found)

    def look_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Whether it is complete."""
        made = _snapshot(place, order)
        if made is not None:
            return _judged(made, found)
        if _same(_volume(place, found.before["volume"]), found):
            return Outcome("undone", "there is no snapshot of this order")
        return Outcome("skipped", f"volume {found.before['volume']} is gone")

    def undo_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Delete the snapshot that was made."""
        made = _snapshot(place, order)
        if made is None:
            return Outcome("skipped", "there is no snapshot of this order")
        place.client("ec2").delete_snapshot(SnapshotId=made["SnapshotId"])
        if self.wait(lambda: _snapshot(place, order), lambda one: one is None) is None:
            return Outcome("done", f"snapshot {made['SnapshotId']} is deleted")
        return Outcome("failed", f"snapshot {made['SnapshotId']} is still there", retry=True)


class Release(AwsTarget):
    """Deletes a volume that is not attached, after a snapshot of it that is complete."""

    def found_at(self, place: Place, order: Order) -> Found:
        """See what would be deleted.

        Raises:
            Refused: it is gone, is attached, or may belong to a claim of Kubernetes.
        """
        item = _there(place, order.resource.id)
        _refuse_claimed({**order.labels, **tags_of(item.get("Tags"))}, item["VolumeId"])
        _refuse_attached(item)
        before = {**_identity(item), "zone": item["AvailabilityZone"], "tags": tags_of(item.get("Tags"))}
        before |= {name: item[name] for name in _FASTER.get(item["VolumeType"], ()) if name in item}
        before["multi"] = bool(item.get("MultiAttachEnabled"))
        return Found(f"would delete {_named(item)} after a snapshot of it", before, undoable=True)

    def act_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Make the snapshot, wait until it is complete, look at the volume again, delete it."""
        name = found.before["volume"]
        made = _snapshot(place, order)
        item = _volume(place, name)
        if item is None or item["State"] == "deleting":
            return self._gone(place, order, found)
        self._refuse(item, order, found)
        if made is None:
            _make(place, order, found)
        kept = self.wait(lambda: _snapshot(place, order), _over)
        judged = Outcome("failed", "the snapshot is gone") if kept is None else _judged(kept, found)
        if judged.state != "done" or kept is None:
            return judged
        item = _volume(place, name)
        if item is None:
            return self.look_at(place, order, found)
        try:
            # It may have been attached while the snapshot was made.
            self._refuse(item, order, found)
            _refuse_used(place, name, kept)
            place.client("ec2").delete_volume(VolumeId=name)
        except Refused as refused:
            return Outcome("skipped", f"{refused.words}; {judged.words}", judged.after)
        except ClientError as error:
            if code(error) != "VolumeInUse":
                raise
            return Outcome("skipped", f"volume {name} is attached by now; {judged.words}", judged.after)
        return self._gone(place, order, found)

    def look_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Whether it is gone, and kept as a snapshot."""
        name = found.before["volume"]
        made, item = _snapshot(place, order), _volume(place, name)
        kept = None if made is None else _judged(made, found)
        if not _same(item, found):
            if kept is None:
                return Outcome("skipped", f"volume {name} is gone, and not by this")
            return Outcome(kept.state, f"volume {name} is deleted; {kept.words}", kept.after, kept.retry)
        if kept is None:
            return Outcome("undone", f"volume {name} is there as before")
        return Outcome("failed", f"volume {name} is still there; {kept.words}", kept.after, retry=True)

    def undo_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Make a volume like it from the snapshot, where it was; it has another id."""
        if _same(_volume(place, found.before["volume"]), found):
            return Outcome("skipped", f"volume {found.before['volume']} is there")
        client, mark = place.client("ec2"), f"undo:{order.id}"
        if _made_again(place, mark) is None:
            kept = _snapshot(place, order)
            if kept is None or kept["State"] != "completed":
                return Outcome("failed", "there is no complete snapshot to make it from")
            client.create_volume(**_options(found, kept["SnapshotId"], mark))
        made = self.wait(
            lambda: _made_again(place, mark), lambda one: one is not None and one["State"] != "creating"
        )
        if made is None or made["State"] not in ("available", "in-use"):
            state = "not there" if made is None else made["State"]
            return Outcome("failed", f"the volume made from the snapshot is {state}", retry=True)
        words = f"volume {made['VolumeId']} holds what {found.before['volume']} held"
        return Outcome("done", words, {"volume": made["VolumeId"]})

    def _refuse(self, item: Mapping[str, Any], order: Order, found: Found) -> None:
        if not _same(item, found):
            raise Refused(f"volume {found.before['volume']} is another by now", gone=True)
        _refuse_claimed(tags_of(item.get("Tags")), item["VolumeId"])
        _refuse_attached(item)

    def _gone(self, place: Place, order: Order, found: Found) -> Outcome:
        name = found.before["volume"]
        self.wait(lambda: _volume(place, name), lambda one: one is None)
        return self.look_at(place, order, found)


def _volume(place: Place, name: str) -> Mapping[str, Any] | None:
    try:
        told = place.client("ec2").describe_volumes(VolumeIds=[name])["Volumes"]
    except ClientError as error:
        if code(error).startswith("InvalidVolume"):
            return None
        raise
    found: Mapping[str, Any] | None = told[0] if told and told[0]["State"] != "deleted" else None
    return found


def _there(place: Place, name: str) -> Mapping[str, Any]:
    item = _volume(place, name)
    if item is None or item["State"] == "deleting":
        raise Refused(f"there is no volume {name}", gone=True)
    return item


def _identity(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "volume": item["VolumeId"],
        "created": item["CreateTime"].timestamp(),
        "size": item["Size"],
        "type": item["VolumeType"],
    }


def _same(item: Mapping[str, Any] | None, found: Found) -> bool:
    return item is not None and item["CreateTime"].timestamp() == found.before["created"]


def _named(item: Mapping[str, Any]) -> str:
    return f"volume {item['VolumeId']} ({item['VolumeType']}, {item['Size']} GiB)"


def _refuse_claimed(labels: Mapping[str, str], name: str) -> None:
    claims = [text for label, text in labels.items() if label.startswith(CLAIMS[0] + "pvc/name")]
    if claims:
        raise Refused(f"volume {name} was made for claim {claims[0]} of Kubernetes, which may still exist")
    if any(label.startswith(CLAIMS) for label in labels):
        raise Refused(f"volume {name} belongs to a cluster of Kubernetes, which may still claim it")


def _refuse_attached(item: Mapping[str, Any]) -> None:
    owners = ", ".join(one.get("InstanceId", "?") for one in item.get("Attachments") or ())
    if owners:
        raise Refused(f"volume {item['VolumeId']} is attached to {owners}")
    if item["State"] != "available":
        raise Refused(f"volume {item['VolumeId']} is {item['State']}")


def _refuse_used(place: Place, name: str, kept: Mapping[str, Any]) -> None:
    """See to it that nothing was written after the snapshot began: a volume reports while it is attached."""
    since = place.now() - kept["StartTime"].timestamp() + _MINUTE
    figure = Figure("AWS/EBS", "VolumeWriteOps", {"VolumeId": name}, "SampleCount", _MINUTE)
    if place.values(figure, since):
        raise Refused(f"volume {name} was attached after its snapshot began")


def _make(place: Place, order: Order, found: Found) -> None:
    # Asked once: there is no key against making it twice.
    place.client("ec2", once=True).create_snapshot(
        VolumeId=found.before["volume"],
        Description=f"stoploss: {order.by}"[:255],
        TagSpecifications=tagging("snapshot", {**found.before.get("tags", {}), TAG: order.id}),
    )


def _snapshot(place: Place, order: Order) -> Mapping[str, Any] | None:
    filters = [
        {"Name": f"tag:{TAG}", "Values": [order.id]},
        {"Name": "volume-id", "Values": [order.resource.id]},
    ]
    found = list(
        pages(place.client("ec2"), "describe_snapshots", "Snapshots", OwnerIds=["self"], Filters=filters)
    )
    # Of two, where an answer was lost, the one that is furthest.
    return max(found, key=lambda one: (one["State"] == "completed", one["SnapshotId"]), default=None)


def _over(made: Mapping[str, Any] | None) -> bool:
    return made is not None and made["State"] in ("completed", "error")


def _judged(made: Mapping[str, Any], found: Found) -> Outcome:
    name, after = made["SnapshotId"], {"snapshot": made["SnapshotId"]}
    if made["State"] != "completed":
        retry = made["State"] == "pending"
        return Outcome("failed", f"snapshot {name} is {made['State']} ({made['Progress']})", after, retry)
    if made["VolumeSize"] != found.before["size"]:
        return Outcome("failed", f"snapshot {name} has another size than the volume", after)
    return Outcome("done", f"snapshot {name} is complete", after)


def _made_again(place: Place, mark: str) -> Mapping[str, Any] | None:
    filters = [{"Name": f"tag:{TAG}", "Values": [mark]}]
    found = list(pages(place.client("ec2"), "describe_volumes", "Volumes", Filters=filters))
    return found[0] if found else None


def _options(found: Found, snapshot: str, mark: str) -> dict[str, Any]:
    before = found.before
    speed = {name: before[name] for name in _FASTER.get(before["type"], ()) if name in before}
    multi = {"MultiAttachEnabled": True} if before["multi"] else {}
    return {
        "SnapshotId": snapshot,
        "AvailabilityZone": before["zone"],
        "VolumeType": before["type"],
        "Size": before["size"],
        "ClientToken": token(mark),
        "TagSpecifications": tagging("volume", {**before["tags"], TAG: mark}),
        **speed,
        **multi,
    }
