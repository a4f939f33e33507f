"""Changes the type of an instance in three steps: stop, change, start. Every one of them is looked at.

Whoever looks after a crash at any of them sees by the mark that the instance is at work, and by its
state and type how far.
"""

from __future__ import annotations

from dataclasses import dataclass

from botocore.exceptions import ClientError

from stoploss.actions.contract import Outcome
from stoploss.actions.targets import ec2_instance as instances
from stoploss.actions.targets.aws_calls import AwsTarget, Place
from stoploss.actions.targets.ec2_instance import Instance
from stoploss.aws import FAILURES, code, passing, reason

STOPPED_BY_CALL = ("Client.UserInitiatedShutdown", "")
"""Why an instance is stopped that did not fail to start."""


@dataclass(frozen=True, slots=True)
class Change:
    """Which instance changes from which type to which, and the mark that it bears meanwhile."""

    name: str
    old: str
    new: str
    mark: str


def carry_out(target: AwsTarget, place: Place, change: Change) -> Outcome:
    """Go on from wherever it is until the instance runs with the new type.

    Where it does not start with that, it gets the old one back and is started.

    Raises:
        ClientError, BotoCoreError: a step was refused; `seen_of` tells what that left.
    """
    item = instances.instance(place, change.name)
    why = _not_ours(item, change)
    if item is None or why is not None:
        return Outcome("skipped", why or "")
    if item.type == change.old:
        if item.state in ("pending", "running"):
            instances.mark(place, item.id, change.mark)
            place.client("ec2").stop_instances(InstanceIds=[item.id])
        if not _stopped(target, place, item):
            return seen_of(place, change)
        _retype(place, item.id, change.new)
    elif item.state == "stopping" and not _stopped(target, place, item):
        return seen_of(place, change)
    failed = _start(target, place, item)
    return seen_of(place, change) if failed is None else _back(target, place, change, failed)


def seen_of(place: Place, change: Change) -> Outcome:
    """How far it is; changes nothing.

    Raises:
        ClientError, BotoCoreError: it cannot be looked at.
    """
    item = instances.instance(place, change.name)
    why = _not_ours(item, change)
    if item is None or why is not None:
        return Outcome("skipped", why or "")
    if item.state == "running":
        words = f"instance {item.id} runs as {item.type}"
        return Outcome("done" if item.type == change.new else "undone", words, _after(item))
    words = f"instance {item.id} is {item.state}, its type is {item.type}"
    return Outcome("failed", words, _after(item), retry=True)


def _not_ours(item: Instance | None, change: Change) -> str | None:
    """Why it is left alone, where somebody else has changed it."""
    if item is None or item.state in instances.OVER:
        return f"there is no instance {change.name} any more"
    if item.type not in (change.old, change.new):
        return f"instance {item.id} is of type {item.type} by now"
    if item.state in ("stopping", "stopped") and not item.marked(change.mark):
        return f"instance {item.id} is {item.state}, and not by this"
    return None


def _stopped(target: AwsTarget, place: Place, item: Instance) -> bool:
    return target.wait(lambda: instances.there(place, item.id), lambda one: one.state == "stopped").state == (
        "stopped"
    )


def _retype(place: Place, name: str, kind: str) -> None:
    place.client("ec2").modify_instance_attribute(InstanceId=name, InstanceType={"Value": kind})


def _start(target: AwsTarget, place: Place, item: Instance) -> str | None:
    """Start it, and say why it stays stopped, if it does.

    Raises:
        ClientError, BotoCoreError: that may be over at another try.
    """
    try:
        if instances.there(place, item.id).state == "stopped":
            place.client("ec2").start_instances(InstanceIds=[item.id])
    except ClientError as error:
        if passing(error) and "Capacity" not in code(error):
            raise
        return reason(error)
    seen = target.wait(
        lambda: instances.there(place, item.id), lambda one: one.state == "running" or _fell(one)
    )
    return f"it fell back: {seen.why}" if _fell(seen) else None


def _fell(item: Instance) -> bool:
    """Whether it was started and is stopped all the same."""
    return item.state == "stopped" and item.why not in STOPPED_BY_CALL


def _back(target: AwsTarget, place: Place, change: Change, why: str) -> Outcome:
    """Give it the type that it had, and start it."""
    told = f"instance {change.name} did not start as {change.new} ({why})"
    try:
        _retype(place, change.name, change.old)
        failed = _start(target, place, instances.there(place, change.name))
    except FAILURES as error:
        failed = reason(error)
    seen = instances.there(place, change.name)
    if seen.state == "running" and seen.type == change.old:
        return Outcome("failed", f"{told} and runs as {change.old} again", _after(seen))
    left = f"{told}; it is {seen.state}, its type is {seen.type}"
    return Outcome("failed", f"{left} ({failed})" if failed else left, _after(seen), retry=True)


def _after(item: Instance) -> dict[str, object]:
    return {"state": item.state, "type": item.type}
