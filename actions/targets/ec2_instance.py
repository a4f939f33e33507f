"""What is known of an instance before anything is done to it, and who keeps it alive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from stoploss.actions.contract import Refused
from stoploss.actions.targets.aws_calls import TAG, Place
from stoploss.aws import code, tags_of

OVER = ("shutting-down", "terminated")
_KEPT = ("InService", "Pending")
FLEETS = ("aws:ec2:fleet-id", "aws:ec2spot:fleet-request-id")


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance as it is now.

    Attributes:
        id: its id, which is never given to another.
        state: pending, running, stopping, stopped, shutting-down or terminated.
        type: such as p5.48xlarge.
        launched: when it was started last, in seconds since the epoch.
        spot: it is a spot instance.
        root: what its root volume is on: ebs or instance-store.
        zone: its availability zone.
        volumes: volumes that are deleted with it.
        tags: its tags.
        why: the code for its last change of state, such as Client.UserInitiatedShutdown.
    """

    id: str
    state: str
    type: str
    launched: float
    spot: bool
    root: str
    zone: str
    volumes: int
    tags: Mapping[str, str]
    why: str

    def marked(self, mark: str) -> bool:
        """Whether an order has left its mark on it."""
        return self.tags.get(TAG) == mark


@dataclass(frozen=True, slots=True)
class Group:
    """The group that keeps an instance alive, as it is now.

    Attributes:
        name: of the group.
        made: when it was made, in seconds since the epoch: groups of one name may follow each other.
        desired: how many instances it keeps.
        least: its minimum size.
        most: its maximum size.
        kept: how many of these are there or on their way in.
        suspended: what it does not do at present.
    """

    name: str
    made: float
    desired: int
    least: int
    most: int
    kept: int
    suspended: frozenset[str]


@dataclass(frozen=True, slots=True)
class Member:
    """The membership of an instance in a group: its state there, and whether it is protected."""

    group: str
    state: str
    protected: bool


def instance(place: Place, name: str) -> Instance | None:
    """The instance of an id; None where there is none.

    Raises:
        ClientError, BotoCoreError: it cannot be looked at.
    """
    try:
        told = place.client("ec2").describe_instances(InstanceIds=[name])
    except ClientError as error:
        if code(error).startswith("InvalidInstanceID"):
            return None
        raise
    items = [item for reservation in told["Reservations"] for item in reservation["Instances"]]
    return _instance(items[0]) if items else None


def _instance(item: Mapping[str, Any]) -> Instance:
    mapped = [device.get("Ebs", {}) for device in item.get("BlockDeviceMappings") or ()]
    return Instance(
        id=item["InstanceId"],
        state=item["State"]["Name"],
        type=item["InstanceType"],
        launched=item["LaunchTime"].timestamp(),
        spot=item.get("InstanceLifecycle") == "spot",
        root=item.get("RootDeviceType", ""),
        zone=item["Placement"]["AvailabilityZone"],
        volumes=sum(bool(volume.get("DeleteOnTermination")) for volume in mapped),
        tags=tags_of(item.get("Tags")),
        why=item.get("StateReason", {}).get("Code", ""),
    )


def there(place: Place, name: str) -> Instance:
    """The instance of an id that has not ended.

    Raises:
        Refused: it has.
        ClientError, BotoCoreError: it cannot be looked at.
    """
    found = instance(place, name)
    if found is None:
        raise Refused(f"there is no instance {name}", gone=True)
    if found.state in OVER:
        raise Refused(f"instance {name} is {found.state}", gone=True)
    return found


def refuse_protected(place: Place, name: str, *, stop: bool) -> None:
    """See to it that an instance may be ended, or only stopped.

    Raises:
        Refused: it is protected.
        ClientError, BotoCoreError: it cannot be told.
    """
    # Protection against stopping keeps an instance from being terminated too.
    kinds = {"disableApiStop": "stopping"} | ({} if stop else {"disableApiTermination": "termination"})
    for attribute, words in kinds.items():
        told = place.client("ec2").describe_instance_attribute(InstanceId=name, Attribute=attribute)
        value = told.get(attribute[0].upper() + attribute[1:], {}).get("Value")
        if value is None:
            raise Refused(f"it is not told whether instance {name} is protected against {words}")
        if value:
            raise Refused(f"instance {name} is protected against {words}")


def refuse_fleet(item: Instance) -> None:
    """See to it that no fleet keeps it.

    Raises:
        Refused: one does, and would start another.
    """
    if any(name in item.tags for name in FLEETS):
        raise Refused(f"instance {item.id} belongs to a fleet, which is to be changed instead")


def refuse_persistent(place: Place, item: Instance) -> None:
    """See to it that no spot request starts another instance in its place.

    Raises:
        Refused: one would.
        ClientError, BotoCoreError: it cannot be told.
    """
    if not item.spot:
        return
    told = place.client("ec2").describe_spot_instance_requests(
        Filters=[{"Name": "instance-id", "Values": [item.id]}]
    )
    if any(
        one.get("Type") == "persistent" and one.get("State") != "cancelled"
        for one in told["SpotInstanceRequests"]
    ):
        raise Refused(f"the spot request of instance {item.id} is persistent and would start another")


def member(place: Place, name: str) -> Member | None:
    """Of which group it is a member; None where of none.

    Raises:
        ClientError, BotoCoreError: it cannot be told.
    """
    told = place.client("autoscaling").describe_auto_scaling_instances(InstanceIds=[name])
    for item in told["AutoScalingInstances"]:
        return Member(
            item["AutoScalingGroupName"], item["LifecycleState"], bool(item.get("ProtectedFromScaleIn"))
        )
    return None


def group(place: Place, name: str) -> Group | None:
    """The group of a name; None where there is none.

    Raises:
        ClientError, BotoCoreError: it cannot be told.
    """
    told = place.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])
    for item in told["AutoScalingGroups"]:
        return Group(
            name=name,
            made=item["CreatedTime"].timestamp(),
            desired=item["DesiredCapacity"],
            least=item["MinSize"],
            most=item["MaxSize"],
            kept=sum(one["LifecycleState"].startswith(_KEPT) for one in item.get("Instances") or ()),
            suspended=frozenset(one["ProcessName"] for one in item.get("SuspendedProcesses") or ()),
        )
    return None


def mark(place: Place, name: str, value: str) -> None:
    """Leave on an instance the mark of who is at work on it.

    A state that is found later is then known to be of that work, and not of somebody else.

    Raises:
        ClientError, BotoCoreError: it cannot be tagged.
    """
    place.client("ec2").create_tags(Resources=[name], Tags=[{"Key": TAG, "Value": value}])


def unmark(place: Place, name: str, value: str) -> None:
    """Take the mark away again, if it is still that one.

    Raises:
        ClientError, BotoCoreError: it cannot be untagged.
    """
    place.client("ec2").delete_tags(Resources=[name], Tags=[{"Key": TAG, "Value": value}])
