"""Groups that keep instances alive: what is done to a member is done through them."""

from __future__ import annotations

from stoploss.actions.contract import Found, Order, Outcome, Refused
from stoploss.actions.targets import ec2_instance as instances
from stoploss.actions.targets.aws_calls import AwsTarget, Place
from stoploss.actions.targets.ec2_instance import Group, Member


def permitted(place: Place, name: str, member: Member) -> dict[str, object]:
    """What is remembered of the group of an instance that is to be terminated through it.

    Raises:
        Refused: it is protected there, or the group has its smallest size already.
        ClientError, BotoCoreError: the group cannot be looked at.
    """
    if member.protected:
        raise Refused(f"instance {name} is protected in group {member.group}")
    if member.state.startswith("Terminat"):
        raise Refused(f"group {member.group} is ending instance {name} already", gone=True)
    found = _group(place, member.group)
    if found.desired <= found.least:
        raise Refused(
            f"group {found.name} keeps {found.desired} instances and its minimum is {found.least}: "
            f"it would replace {name}"
        )
    return {"asg": found.name, "desired": found.desired, "min": found.least}


def on_its_way_out(place: Place, name: str) -> bool:
    """Whether a group has begun to end an instance, which a hook of it may hold up.

    Raises:
        ClientError, BotoCoreError: it cannot be told.
    """
    member = instances.member(place, name)
    return member is not None and member.state.startswith("Terminat")


class Capacity(AwsTarget):
    """Has a group keep fewer instances: parameter `replicas`. Which of them end, the group chooses."""

    def found_at(self, place: Place, order: Order) -> Found:
        """See how many it keeps.

        Raises:
            Refused: there is no group, it keeps no more than that, or its minimum is higher.
        """
        wanted = int(order.parameters["replicas"])
        item = instances.there(place, order.resource.id)
        member = instances.member(place, item.id)
        if member is None:
            raise Refused(f"instance {item.id} belongs to no group whose replicas could be fewer")
        found = _group(place, member.group)
        if wanted >= found.desired:
            raise Refused(f"group {found.name} keeps {found.desired} instances, no more than {wanted}")
        if wanted < found.least:
            raise Refused(f"the minimum of group {found.name} is {found.least}, more than {wanted}")
        if "Terminate" in found.suspended:
            raise Refused(f"group {found.name} ends no instances at present: that is suspended")
        before = {
            "kind": "asg",
            "asg": found.name,
            "made": found.made,
            "desired": found.desired,
            "min": found.least,
            "to": wanted,
        }
        words = (
            f"would have group {found.name} keep {wanted} instances instead of {found.desired}; "
            "it chooses which end"
        )
        return Found(words, before, undoable=True)

    def act_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Lower what it is to keep, and wait until no more are left."""
        return self._set(place, found, int(found.before["desired"]), int(found.before["to"]))

    def look_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """How many it keeps and has."""
        return _seen(place, found, int(found.before["desired"]), int(found.before["to"]))

    def undo_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Have it keep as many as before, and wait until they are there."""
        return self._set(place, found, int(found.before["to"]), int(found.before["desired"]))

    def _set(self, place: Place, found: Found, old: int, new: int) -> Outcome:
        now = _same(place, found)
        if now is not None and now.desired == old:
            place.client("autoscaling").set_desired_capacity(
                AutoScalingGroupName=now.name, DesiredCapacity=new, HonorCooldown=False
            )
        return self.wait(lambda: _seen(place, found, old, new), lambda seen: not seen.retry)


class Restored(Capacity):
    """Has a group keep as many instances again, at least: parameter `replicas`, one where it does not say.

    Of an instance it is the group that keeps it, of a job that which its label `asg` names.
    """

    def found_at(self, place: Place, order: Order) -> Found:
        """See how many it keeps.

        Raises:
            Refused: there is no group, it keeps that many, or it may not keep or start them.
        """
        wanted = int(order.parameters.get("replicas") or 1)
        found = _group(place, self._name(place, order))
        if wanted <= found.desired:
            words = f"group {found.name} keeps {found.desired} instances already, which it starts itself"
            raise Refused(words, gone=True)
        if wanted > found.most:
            raise Refused(f"the maximum of group {found.name} is {found.most}, less than {wanted}")
        if "Launch" in found.suspended:
            raise Refused(f"group {found.name} starts no instances at present: that is suspended")
        words = f"would have group {found.name} keep {wanted} instances instead of {found.desired}"
        before = {
            "kind": "asg",
            "asg": found.name,
            "made": found.made,
            "desired": found.desired,
            "to": wanted,
        }
        return Found(words, before)

    def undo_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Nothing: what runs is not ended in passing."""
        return Outcome("failed", "instances that run again are ended by downscale or terminate only")

    def _name(self, place: Place, order: Order) -> str:
        if order.resource.kind == "instance":
            member = instances.member(place, order.resource.id)
            if member is None:
                raise Refused(f"{order.resource} belongs to no group whose replicas could be more")
            return member.group
        name = order.labels.get("asg", "")
        if name in ("", "?"):
            raise Refused(f"nothing says which group {order.resource} runs in: it has no label asg")
        return name


def _seen(place: Place, found: Found, old: int, new: int) -> Outcome:
    now = _same(place, found)
    name = found.before["asg"]
    if now is None:
        return Outcome("skipped", f"group {name} is gone, or another of its name")
    after = {"desired": now.desired, "instances": now.kept}
    if now.desired == old:
        return Outcome("undone", f"group {name} keeps {old} instances as before", after)
    if now.desired != new:
        return Outcome("skipped", f"group {name} keeps {now.desired} instances by now", after)
    if now.kept <= new if new < old else now.kept >= new:
        return Outcome("done", f"group {name} keeps {new} instances", after)
    return Outcome("failed", f"group {name} is to keep {new} instances and has {now.kept}", after, retry=True)


def _same(place: Place, found: Found) -> Group | None:
    now = instances.group(place, found.before["asg"])
    return now if now is not None and now.made == found.before["made"] else None


def _group(place: Place, name: str) -> Group:
    found = instances.group(place, name)
    if found is None:
        raise Refused(f"there is no group {name}", gone=True)
    return found
