"""Ending instances, and starting them again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stoploss.actions.contract import Refused
from stoploss.actions.resume import build as resume
from stoploss.actions.targets.ec2 import End, Start

from .conftest import SECRET, Cloud, backend, crashed, order

pytestmark = pytest.mark.slow
"""Many calls of a server that takes its time."""


def refused(cloud: Cloud, name: str, **parameters: Any) -> Refused:
    """Why an instance is not ended; nothing is changed by asking."""
    cloud.changes()
    with pytest.raises(Refused) as told:
        End(cloud.means).find(order("instance", name, **parameters))
    assert not cloud.changes()
    return told.value


def test_an_instance_is_terminated(cloud: Cloud) -> None:
    """It is looked at, terminated, and looked at again; that cannot be undone."""
    (name,) = cloud.instances()
    target, what = End(cloud.means), order("instance", name)

    cloud.changes()
    found = target.find(what)
    asked = cloud.changes()
    outcome = target.act(what, found)
    again = target.act(what, found)

    assert found.words.startswith(f"would terminate instance {name} (m5.xlarge, running)")
    assert (found.undoable, not asked) == (False, True)
    assert (outcome.state, cloud.state(name)[0]) == ("done", "terminated")
    assert cloud.changes() == {"CreateTags": 1, "TerminateInstances": 1}
    assert again.state == "done"
    assert target.undo(what, found).state == "failed"


def test_an_instance_is_stopped_and_started_again(cloud: Cloud) -> None:
    """With `how: stop` it is stopped, and an undo starts it."""
    (name,) = cloud.instances()
    target, what = End(cloud.means), order("instance", name, how="stop")

    found = target.find(what)
    outcome = target.act(what, found)
    stopped = cloud.state(name)[0]
    undone = target.undo(what, found)

    assert (found.undoable, outcome.state, stopped) == (True, "done", "stopped")
    assert (undone.state, cloud.state(name)[0]) == ("done", "running")
    assert target.undo(what, found).state == "skipped"


@pytest.mark.parametrize("how", ["stop", "terminate"])
@pytest.mark.parametrize("calls", [0, 1, 2])
def test_a_crash_ends_nothing_twice(cloud: Cloud, how: str, calls: int) -> None:
    """Killed after any call, a look tells what came of it, and acting again goes on from there."""
    (name,) = cloud.instances()
    what = order("instance", name, how=how)
    found = End(cloud.means).find(what)
    cloud.changes()

    seen = crashed(cloud, End, what, found, calls)
    outcome = End(cloud.means).act(what, found)
    made = cloud.changes()

    assert seen.state == ("undone", "undone", "done")[calls]
    assert outcome.state == "done"
    assert made["StopInstances"] + made["TerminateInstances"] == 1


@pytest.mark.parametrize("how", ["stop", "terminate"])
def test_what_is_protected_is_refused(cloud: Cloud, how: str) -> None:
    """Protection against termination and against stopping are both heeded."""
    (one, two) = cloud.instances(2)
    client = cloud.client("ec2")
    client.modify_instance_attribute(InstanceId=one, DisableApiTermination={"Value": True})
    client.modify_instance_attribute(InstanceId=two, DisableApiStop={"Value": True})

    if how == "terminate":
        assert refused(cloud, one).words == f"instance {one} is protected against termination"
    assert refused(cloud, two, how=how).words == f"instance {two} is protected against stopping"


def test_protection_that_comes_later_is_heeded(cloud: Cloud) -> None:
    """What is protected between the look and the act is left alone."""
    (name,) = cloud.instances()
    target, what = End(cloud.means), order("instance", name)
    found = target.find(what)
    cloud.client("ec2").modify_instance_attribute(InstanceId=name, DisableApiTermination={"Value": True})

    outcome = target.act(what, found)

    assert (outcome.state, cloud.state(name)[0]) == ("skipped", "running")
    assert outcome.words == f"instance {name} is protected against termination"


def test_a_member_is_terminated_through_its_group(cloud: Cloud) -> None:
    """The group keeps one less, so that it starts no other."""
    names = cloud.group(3, 1)
    target, what = End(cloud.means), order("instance", names[0])

    found = target.find(what)
    outcome = target.act(what, found)

    assert "through group workers, which keeps one less (3, at least 1)" in found.words
    assert (outcome.state, cloud.state(names[0])[0], cloud.desired()) == ("done", "terminated", 2)
    assert cloud.changes()["TerminateInstances"] == 0


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_a_crash_makes_a_group_smaller_once(cloud: Cloud, calls: int) -> None:
    """Killed after any call, the group keeps one less in the end, and not two."""
    names = cloud.group(4, 1)
    what = order("instance", names[0])
    found = End(cloud.means).find(what)

    crashed(cloud, End, what, found, calls)
    outcome = End(cloud.means).act(what, found)

    assert (outcome.state, cloud.desired()) == ("done", 3)


def test_a_member_that_its_group_holds_up_is_waited_for(cloud: Cloud) -> None:
    """While a hook of the group runs, the instance is not ended a second time."""
    names = cloud.group(3, 1)
    what = order("instance", names[0])
    found = End(cloud.means).find(what)
    member = next(
        one
        for one in backend("autoscaling").autoscaling_groups["workers"].instance_states
        if one.instance.id == names[0]
    )

    crashed(cloud, End, what, found, 1)
    member.lifecycle_state = "Terminating:Wait"
    seen = End(cloud.means).look(what, found)
    outcome = End(cloud.means).act(what, found)

    assert (seen.state, seen.retry) == ("failed", True)
    assert (outcome.state, outcome.retry, cloud.passed) == ("failed", True, 600.0)
    assert cloud.desired() == 3


def test_a_member_of_a_group_at_its_minimum_is_refused(cloud: Cloud) -> None:
    """The group would start another in its place."""
    (name,) = cloud.group(1, 1)

    told = refused(cloud, name)

    assert told.words == f"group workers keeps 1 instances and its minimum is 1: it would replace {name}"


def test_a_member_is_not_stopped(cloud: Cloud) -> None:
    """Its group would replace it."""
    (name,) = cloud.group(1, 0)

    assert "which would replace it" in refused(cloud, name, how="stop").words


def test_a_protected_member_is_refused(cloud: Cloud) -> None:
    """What is protected from being scaled in is not terminated through the group."""
    (name, _) = cloud.group(2, 0)
    cloud.client("autoscaling").set_instance_protection(
        AutoScalingGroupName="workers", InstanceIds=[name], ProtectedFromScaleIn=True
    )

    assert refused(cloud, name).words == f"instance {name} is protected in group workers"


def test_what_cannot_be_stopped_is_refused(cloud: Cloud) -> None:
    """A root volume that a stop would lose, and a spot instance, are not stopped; a fleet's is not ended."""
    (one, two) = cloud.instances(2)
    (three,) = cloud.instances(
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "fleet", "Value": "f"}]}]
    )
    backend("ec2").get_instance(one).root_device_type = "instance-store"
    backend("ec2").get_instance(two).lifecycle = "spot"
    backend("ec2").tags[three]["aws:ec2:fleet-id"] = "fleet-1"

    assert "instance store" in refused(cloud, one, how="stop").words
    assert "spot" in refused(cloud, two, how="stop").words
    assert "fleet" in refused(cloud, three).words


def test_what_a_spot_request_would_start_again_is_refused(cloud: Cloud) -> None:
    """A persistent request is to be cancelled first; an instance of a one-time request is terminated."""
    ec2 = cloud.client("ec2")
    for kind in ("persistent", "one-time"):
        launched = {"ImageId": "ami-12c6146b", "InstanceType": "m5.xlarge"}
        ec2.request_spot_instances(SpotPrice="1", Type=kind, InstanceCount=1, LaunchSpecification=launched)
    told = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    names = {item["Type"]: item["InstanceId"] for item in told}

    assert "is persistent and would start another" in refused(cloud, names["persistent"]).words
    assert End(cloud.means).find(order("instance", names["one-time"])).words


def test_what_has_ended_is_gone(cloud: Cloud) -> None:
    """An instance that is terminated, or was never there, is refused as gone."""
    (name,) = cloud.instances()
    cloud.client("ec2").terminate_instances(InstanceIds=[name])

    assert refused(cloud, name).gone
    assert refused(cloud, "i-0123456789abcdef0").gone


def test_P_A3_unreadable_labels_are_refused(cloud: Cloud) -> None:
    """Where tags could not be read nothing is ended, as nobody knows whose it is."""
    (name,) = cloud.instances()

    told = refused(cloud, name, labels={"team": "?", "owner": "?", "asg": "?"})

    assert told.words.endswith("cannot be read: owner, team")


def test_where_it_lies_must_be_known(cloud: Cloud) -> None:
    """Without a region, a collector, or a role for its account nothing is asked."""
    (name,) = cloud.instances()

    assert "in which region" in refused(cloud, name, labels={"region": ""}).words
    cloud.collectors["aws"] = {**cloud.collectors["aws"], "roles": ("arn:aws:iam::111111111111:role/act",)}
    assert "no role" in refused(cloud, name, labels={"account": "222222222222"}).words
    cloud.collectors.clear()
    assert "no collector aws" in refused(cloud, name).words


def test_a_role_is_assumed_for_its_account(cloud: Cloud) -> None:
    """With roles the one of the account that the label names is assumed, and sees what is there."""
    (name,) = cloud.instances()
    cloud.collectors["aws"] = {**cloud.collectors["aws"], "roles": ("arn:aws:iam::111111111111:role/act",)}
    what = order("instance", name, labels={"account": "111111111111"})
    cloud.calls.clear()

    with pytest.raises(Refused) as told:
        End(cloud.means).find(what)

    # That account has no such instance.
    assert told.value.gone
    assert cloud.calls == ["AssumeRole", "DescribeInstances"]


@pytest.mark.parametrize("call", ["CreateTags", "StopInstances"])
def test_a_throttled_call_has_failed_and_tells_what_it_left(cloud: Cloud, call: str) -> None:
    """Another try is of use; the words say that it runs, and nothing of what AWS answered."""
    (name,) = cloud.instances()
    target, what = End(cloud.means), order("instance", name, how="stop")
    found = target.find(what)
    cloud.fail("RequestLimitExceeded", f"Action={call}", status=503)

    outcome = target.act(what, found)
    cloud.app.faults.clear()

    assert (outcome.state, outcome.retry) == ("failed", True)
    assert outcome.words == f"throttled ({call}); instance {name} is running as before"
    assert SECRET not in repr(outcome)
    assert target.act(what, found).state == "done"


def test_what_may_not_be_done_is_not_tried_again(cloud: Cloud) -> None:
    """A right that is missing is named, and another try is of no use."""
    (name,) = cloud.instances()
    target, what = End(cloud.means), order("instance", name)
    found = target.find(what)
    cloud.fail("UnauthorizedOperation", "Action=TerminateInstances", status=403)

    outcome = target.act(what, found)

    assert (outcome.state, outcome.retry) == ("failed", False)
    assert outcome.words.startswith("no rights for TerminateInstances; ")


def test_what_cannot_be_looked_at_is_unknown(cloud: Cloud) -> None:
    """A refused look is no outcome, and no find."""
    (name,) = cloud.instances()
    target, what = End(cloud.means), order("instance", name)
    found = target.find(what)
    cloud.fail("UnauthorizedOperation", "Action=DescribeInstances&", status=403)

    assert target.look(what, found).state == "unknown"
    assert refused(cloud, name).words.endswith("cannot be looked at: no rights for DescribeInstances")


def test_what_was_started_anew_is_left_alone(cloud: Cloud) -> None:
    """Another launch than the one that was found is another instance."""
    (name,) = cloud.instances()
    target, what = End(cloud.means), order("instance", name)
    found = target.find(what)
    backend("ec2").get_instance(name).launch_time += timedelta(hours=1)

    outcome = target.act(what, found)

    assert (outcome.state, target.look(what, found).state) == ("skipped", "skipped")
    assert cloud.state(name)[0] == "running"


def test_what_somebody_else_has_ended_is_not_ours(cloud: Cloud) -> None:
    """An instance that ended without us is skipped; one that others stopped is not started by an undo."""
    (one, two) = cloud.instances(2)
    target = End(cloud.means)
    ended, stopped = order("instance", one), order("instance", two, how="stop")
    first, second = target.find(ended), target.find(stopped)
    cloud.client("ec2").terminate_instances(InstanceIds=[one])
    cloud.client("ec2").stop_instances(InstanceIds=[two])

    assert (target.look(ended, first).state, target.act(ended, first).state) == ("skipped", "skipped")
    assert target.act(stopped, second).state == "skipped"
    assert target.undo(stopped, second).state == "skipped"
    assert cloud.state(two)[0] == "stopped"


def test_waiting_has_an_end(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance that is still stopping after ten minutes is told as failed, to be tried again."""
    (name,) = cloud.instances()
    target, what = End(cloud.means), order("instance", name, how="stop")
    found = target.find(what)
    item = backend("ec2").get_instance(name)
    monkeypatch.setattr(item, "stop", lambda: setattr(item._state, "name", "stopping") or item._state)

    outcome = target.act(what, found)

    assert (outcome.state, outcome.retry, cloud.passed) == ("failed", True, 600.0)
    assert outcome.words == f"instance {name} is still stopping"


def test_a_stopped_instance_is_started_once(cloud: Cloud) -> None:
    """Resume starts it, and does not start it again when somebody stops it after that."""
    (name,) = cloud.instances()
    cloud.client("ec2").stop_instances(InstanceIds=[name])
    target, what = Start(cloud.means), order("instance", name, "resume")

    found = target.find(what)
    before = target.look(what, found)
    outcome = target.act(what, found)
    again = target.act(what, found)
    item = backend("ec2").get_instance(name)
    item.launch_time += timedelta(hours=1)
    cloud.client("ec2").stop_instances(InstanceIds=[name])
    cloud.changes()
    late = target.act(what, found)

    assert found.words == f"would start instance {name} (m5.xlarge)"
    assert (before.state, outcome.state, again.state, late.state) == ("undone", "done", "done", "skipped")
    assert not cloud.changes()
    assert target.undo(what, found).state == "failed"


def test_what_runs_is_not_resumed(cloud: Cloud) -> None:
    """An instance that runs is gone as a case for a resume."""
    (name,) = cloud.instances()

    with pytest.raises(Refused) as told:
        Start(cloud.means).find(order("instance", name, "resume"))

    assert told.value.gone


def test_no_capacity_for_a_start_is_tried_again(cloud: Cloud) -> None:
    """Where AWS has no such instance left the outcome says so, and that it is still stopped."""
    (name,) = cloud.instances()
    cloud.client("ec2").stop_instances(InstanceIds=[name])
    target, what = Start(cloud.means), order("instance", name, "resume")
    found = target.find(what)
    cloud.fail("InsufficientInstanceCapacity", "Action=StartInstances", status=500)

    outcome = target.act(what, found)

    assert (outcome.state, outcome.retry) == ("failed", True)
    assert outcome.words == (
        f"StartInstances failed: InsufficientInstanceCapacity; instance {name} is stopped as before"
    )


def test_the_region_is_the_one_of_the_label(cloud: Cloud) -> None:
    """An instance of another region is not found in this one."""
    (name,) = cloud.instances()

    assert refused(cloud, name, labels={"region": "eu-west-1"}).gone
    assert cloud.state(name)[0] == "running"


def owed(cloud: Cloud, name: str | None = None, **parameters: Any) -> Any:
    """An order to resume, of an instance or of the job that ran on the group `workers`."""
    if name is not None:
        return order("instance", name, "resume", **parameters)
    return order("job", "bert", "resume", labels={"scheduler": "process", "asg": "workers"}, **parameters)


@pytest.mark.parametrize("of_job", [False, True])
def test_a_group_keeps_more_again(cloud: Cloud, of_job: bool) -> None:
    """With `replicas` its group keeps that many, once; what was made smaller since is left alone."""
    names = cloud.group(1, 0)
    target, what = resume(cloud.means), owed(cloud, None if of_job else names[0], replicas=3)

    found = target.find(what)
    before = target.look(what, found)
    outcome = target.act(what, found)
    again = target.act(what, found)
    changes = cloud.changes()
    cloud.client("autoscaling").set_desired_capacity(AutoScalingGroupName="workers", DesiredCapacity=2)
    late = target.act(what, found)

    assert found.words == "would have group workers keep 3 instances instead of 1"
    assert (before.state, outcome.state, again.state, late.state) == ("undone", "done", "done", "skipped")
    assert outcome.after == {"desired": 3, "instances": 3}
    assert (changes["SetDesiredCapacity"], cloud.desired()) == (1, 2)
    assert not found.undoable
    assert target.undo(what, found).state == "failed"


def test_a_job_whose_instances_are_gone_gets_one(cloud: Cloud) -> None:
    """A group that keeps none keeps one where the step does not say how many; a crash starts no second."""
    cloud.group(1, 0)
    cloud.client("autoscaling").set_desired_capacity(AutoScalingGroupName="workers", DesiredCapacity=0)
    what = owed(cloud)
    found = resume(cloud.means).find(what)
    seen = crashed(cloud, resume, what, found, 1)

    assert seen.state == "done"
    assert cloud.desired() == 1


def test_a_group_is_not_made_larger_than_it_may_be(cloud: Cloud) -> None:
    """Its maximum is somebody's will; a group that keeps as many starts them itself; others are told."""
    names = cloud.group(2, 0)
    (alone,) = cloud.instances()

    def why(what: Any) -> tuple[str, bool]:
        with pytest.raises(Refused) as told:
            resume(cloud.means).find(what)
        return told.value.words, told.value.gone

    assert why(owed(cloud, names[0], replicas=10)) == (
        "the maximum of group workers is 9, less than 10",
        False,
    )
    assert why(owed(cloud, replicas=2)) == (
        "group workers keeps 2 instances already, which it starts itself",
        True,
    )
    assert "belongs to no group" in why(owed(cloud, alone, replicas=2))[0]
    assert "it has no label asg" in why(order("job", "bert", "resume", labels={"scheduler": "process"}))[0]
    cloud.client("autoscaling").suspend_processes(AutoScalingGroupName="workers", ScalingProcesses=["Launch"])
    assert "starts no instances at present" in why(owed(cloud, replicas=5))[0]
