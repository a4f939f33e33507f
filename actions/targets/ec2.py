"""Instances: ends them, gives them less, and starts again what was stopped.

A member of a group is acted on through its group. Before an instance is changed it is tagged
`stoploss:order` with the id of the order, so that a state found after a crash is known to be ours.
"""

from __future__ import annotations

from contextlib import suppress

from stoploss.actions.contract import Found, Means, Order, Outcome, Refused
from stoploss.actions.targets import asg, ec2_sizes
from stoploss.actions.targets import ec2_instance as instances
from stoploss.actions.targets.aws_calls import AwsTarget, Place
from stoploss.actions.targets.ec2_instance import Instance
from stoploss.actions.targets.ec2_resize import Change, carry_out, seen_of
from stoploss.aws import FAILURES


class End(AwsTarget):
    """Stops or terminates an instance: parameter `how`."""

    def found_at(self, place: Place, order: Order) -> Found:
        """See what would be ended.

        Raises:
            Refused: it has ended, is protected, cannot be stopped, or its group keeps as many as it may.
        """
        how = str(order.parameters.get("how", "terminate"))
        item = instances.there(place, order.resource.id)
        if how == "stop" and item.state != "running":
            raise Refused(f"instance {item.id} is {item.state}", gone=True)
        before = {
            "how": how,
            "instance": item.id,
            "launched": item.launched,
            "type": item.type,
            "state": item.state,
            **_permitted(place, item, how),
        }
        return Found(_words(place, item, before), before, undoable=how == "stop")

    def act_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """End it, unless that is under way already, and wait until it has ended."""
        how, name = found.before["how"], found.before["instance"]
        item = instances.instance(place, name)
        if item is None:
            return Outcome("skipped", f"there is no instance {name} any more")
        if not self._under_way(place, item, order, found):
            if not _as_found(item, found):
                return Outcome("skipped", f"instance {name} is {item.state}, and not as it was found")
            # Everything that forbids it is asked again: minutes may lie between.
            if _permitted(place, item, how).get("asg") != found.before.get("asg"):
                return Outcome("skipped", f"instance {name} belongs to another group by now")
            instances.mark(place, name, order.id)
            self._end(place, item, found)
        goal = "stopped" if how == "stop" else "terminated"
        self.wait(lambda: instances.instance(place, name), lambda one: one is None or one.state == goal)
        return self.look_at(place, order, found)

    def look_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Whether it has ended, and by us."""
        how, name = found.before["how"], found.before["instance"]
        item = instances.instance(place, name)
        if item is None:
            return Outcome("skipped", f"there is no instance {name} any more")
        after = {"state": item.state}
        ours = item.marked(order.id)
        if item.state == ("stopped" if how == "stop" else "terminated"):
            if ours and (how == "terminate" or item.launched == found.before["launched"]):
                return Outcome("done", f"instance {name} is {item.state}", after)
            if not _as_found(item, found):
                return Outcome("skipped", f"instance {name} is {item.state}, and not by this", after)
        if self._under_way(place, item, order, found):
            return Outcome("failed", f"instance {name} is still {item.state}", after, retry=True)
        if _as_found(item, found):
            return Outcome("undone", f"instance {name} is {item.state} as before", after)
        return Outcome("skipped", f"instance {name} is {item.state}, and not as it was found", after)

    def undo_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Start what was stopped."""
        name = found.before["instance"]
        if found.before["how"] != "stop":
            return Outcome("failed", f"instance {name} is terminated, which cannot be undone")
        item = instances.instance(place, name)
        if item is None or item.state in instances.OVER:
            return Outcome("failed", f"there is no instance {name} any more")
        stopped = item.state in ("stopping", "stopped")
        if not item.marked(order.id) or (stopped and item.launched != found.before["launched"]):
            return Outcome("skipped", f"instance {name} is {item.state}, and not by this")
        outcome = _start(self, place, item)
        if outcome.state == "done":
            instances.unmark(place, name, order.id)
        return outcome

    def _under_way(self, place: Place, item: Instance, order: Order, found: Found) -> bool:
        if not item.marked(order.id):
            return False
        if found.before["how"] == "stop":
            return item.state in ("stopping", "stopped") and item.launched == found.before["launched"]
        held = found.before.get("asg") is not None and asg.on_its_way_out(place, item.id)
        return item.state in instances.OVER or held

    def _end(self, place: Place, item: Instance, found: Found) -> None:
        if found.before["how"] == "stop":
            place.client("ec2").stop_instances(InstanceIds=[item.id])
        elif found.before.get("asg") is None:
            place.client("ec2").terminate_instances(InstanceIds=[item.id])
        else:
            # Not repeated without an answer: the group would be made smaller twice.
            place.client("autoscaling", once=True).terminate_instance_in_auto_scaling_group(
                InstanceId=item.id, ShouldDecrementDesiredCapacity=True
            )


class Start(AwsTarget):
    """Starts an instance that is stopped, once."""

    def found_at(self, place: Place, order: Order) -> Found:
        """See what would be started.

        Raises:
            Refused: it is not stopped, or a group would replace it.
        """
        item = instances.there(place, order.resource.id)
        if item.state != "stopped":
            raise Refused(f"instance {item.id} is {item.state}", gone=item.state in ("pending", "running"))
        if instances.member(place, item.id) is not None:
            raise Refused(f"instance {item.id} belongs to a group, which starts instances itself")
        before = {"instance": item.id, "launched": item.launched, "type": item.type, "state": item.state}
        return Found(f"would start instance {item.id} ({item.type})", before)

    def act_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Start it, unless it was started since it was found."""
        name = found.before["instance"]
        item = instances.instance(place, name)
        if item is None or item.state in instances.OVER:
            return Outcome("skipped", f"there is no instance {name} any more")
        if item.state == "stopped" and item.launched != found.before["launched"]:
            return Outcome("skipped", f"instance {name} was started since, and stopped again")
        if item.state == "stopping":
            return Outcome("skipped", f"instance {name} is stopping again")
        return _start(self, place, item)

    def look_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Whether it runs."""
        name = found.before["instance"]
        item = instances.instance(place, name)
        if item is None or item.state in instances.OVER:
            return Outcome("skipped", f"there is no instance {name} any more")
        after = {"state": item.state}
        if item.state == "running":
            return Outcome("done", f"instance {name} runs", after)
        if item.state == "pending":
            return Outcome("failed", f"instance {name} is still starting", after, retry=True)
        if item.state == "stopped" and item.launched == found.before["launched"]:
            return Outcome("undone", f"instance {name} is stopped as before", after)
        return Outcome("skipped", f"instance {name} was started since, and stopped again", after)

    def undo_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Nothing: what runs is not stopped in passing."""
        return Outcome("failed", "an instance that runs again is stopped by a step terminate only")


class Resize(AwsTarget):
    """Changes an instance to a smaller type, or with `replicas` its group to fewer instances."""

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        self._groups = asg.Capacity(means)

    def found_at(self, place: Place, order: Order) -> Found:
        """See which type it would get.

        Raises:
            Refused: it does not run, cannot be stopped, or nothing smaller holds its highest use.
        """
        if "replicas" in order.parameters:
            return self._groups.found_at(place, order)
        item = instances.there(place, order.resource.id)
        if item.state != "running":
            raise Refused(f"instance {item.id} is {item.state}", gone=item.state == "stopped")
        if instances.member(place, item.id) is not None:
            raise Refused(
                f"instance {item.id} belongs to a group: change its launch template, or give replicas"
            )
        _permitted(place, item, "stop")
        now, to = ec2_sizes.chosen(place, item, order.parameters.get("instance-type"))
        before = {
            "kind": "type",
            "instance": item.id,
            "launched": item.launched,
            "type": item.type,
            "to": to.type,
            "state": item.state,
        }
        words = f"would stop instance {item.id}, change {now} to {to}, and start it{_lost(now)}"
        return Found(words, before, undoable=True)

    def act_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Stop it, change its type, start it; what was done before a crash is not done again."""
        if found.before["kind"] == "asg":
            return self._groups.act_at(place, order, found)
        before, change = found.before, _change(order, found)
        item = instances.instance(place, before["instance"])
        if item is not None and item.state == "running" and item.type == before["type"]:
            if item.launched != before["launched"]:
                return Outcome("skipped", f"instance {item.id} was started anew since it was found")
            if instances.member(place, item.id) is not None:
                return Outcome("skipped", f"instance {item.id} belongs to a group by now")
            _permitted(place, item, "stop")
        return self._settled(place, carry_out(self, place, change), change)

    def look_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Which type it has, and whether it runs."""
        if found.before["kind"] == "asg":
            return self._groups.look_at(place, order, found)
        return seen_of(place, _change(order, found))

    def undo_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Stop it, give it its old type, start it."""
        if found.before["kind"] == "asg":
            return self._groups.undo_at(place, order, found)
        there = _change(order, found)
        change = Change(there.name, there.new, there.old, f"undo:{order.id}")
        return self._settled(place, carry_out(self, place, change), change)

    def _settled(self, place: Place, outcome: Outcome, change: Change) -> Outcome:
        """The outcome; what runs bears no mark any more."""
        if outcome.after.get("state") == "running":
            # Whether that is allowed or not, the step itself is over.
            with suppress(*FAILURES):
                instances.unmark(place, change.name, change.mark)
        return outcome


def _change(order: Order, found: Found) -> Change:
    before = found.before
    return Change(before["instance"], before["type"], before["to"], order.id)


def _as_found(item: Instance, found: Found) -> bool:
    """Whether it was not started, stopped or changed since."""
    before = found.before
    return (item.state, item.launched, item.type) == (before["state"], before["launched"], before["type"])


def _permitted(place: Place, item: Instance, how: str) -> dict[str, object]:
    """The group through which it is acted on, where there is one.

    Raises:
        Refused: it may not be, or not so.
    """
    instances.refuse_protected(place, item.id, stop=how == "stop")
    instances.refuse_fleet(item)
    member = instances.member(place, item.id)
    if how == "stop":
        if member is not None:
            raise Refused(f"instance {item.id} belongs to group {member.group}, which would replace it")
        if item.root != "ebs":
            raise Refused(f"instance {item.id} cannot be stopped: its root volume is an instance store")
        if item.spot:
            raise Refused(f"instance {item.id} is a spot instance, and is not stopped")
        return {}
    instances.refuse_persistent(place, item)
    return {} if member is None else asg.permitted(place, item.id, member)


def _lost(size: ec2_sizes.Size) -> str:
    return "; what lies on its instance storage is lost" if size.storage else ""


def _words(place: Place, item: Instance, before: dict[str, object]) -> str:
    what = f"instance {item.id} ({item.type}, {item.state})"
    if before["how"] == "stop":
        lost = (
            "; what lies on its instance storage is lost" if ec2_sizes.size(place, item.type).storage else ""
        )
        return f"would stop {what}{lost}"
    volumes = f", which deletes {item.volumes} of its volumes" if item.volumes else ""
    if "asg" not in before:
        return f"would terminate {what}{volumes}"
    return (
        f"would terminate {what} through group {before['asg']}, which keeps one less "
        f"({before['desired']}, at least {before['min']}){volumes}"
    )


def _start(target: AwsTarget, place: Place, item: Instance) -> Outcome:
    """Start it unless it runs, and wait until it does."""
    if item.state == "stopping":
        target.wait(lambda: instances.there(place, item.id), lambda one: one.state != "stopping")
    if item.state not in ("pending", "running"):
        place.client("ec2").start_instances(InstanceIds=[item.id])
    seen = target.wait(lambda: instances.there(place, item.id), lambda one: one.state == "running")
    after = {"state": seen.state}
    if seen.state == "running":
        return Outcome("done", f"instance {item.id} runs", after)
    return Outcome("failed", f"instance {item.id} was started and is {seen.state}", after, retry=True)
