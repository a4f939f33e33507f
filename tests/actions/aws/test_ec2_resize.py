"""Giving instances, and groups of them, less."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stoploss.actions.contract import Refused
from stoploss.actions.targets.ec2 import Resize

from .conftest import SECRET, Cloud, backend, crashed, order

pytestmark = pytest.mark.slow
"""Many calls of a server that takes its time."""

STEPS = {"CreateTags": 1, "StopInstances": 1, "ModifyInstanceAttribute": 1, "StartInstances": 1}


def use(
    cloud: Cloud, name: str, cpu: float | None = None, memory: float | None = None, hours: int = 30
) -> None:
    """Hourly reports of an instance, in percent."""
    for namespace, metric, value in (
        ("AWS/EC2", "CPUUtilization", cpu),
        ("CWAgent", "mem_used_percent", memory),
    ):
        if value is None:
            continue
        rows = [
            {
                "MetricName": metric,
                "Dimensions": [{"Name": "InstanceId", "Value": name}],
                "Timestamp": datetime.fromtimestamp(time.time() - 3600 * (hour + 1), UTC),
                "Value": value if hour == 5 else 1.0,
            }
            for hour in range(hours)
        ]
        cloud.client("cloudwatch").put_metric_data(Namespace=namespace, MetricData=rows)


def refused(cloud: Cloud, name: str, **parameters: Any) -> str:
    """Why an instance is not given less; nothing is changed by asking."""
    cloud.changes()
    with pytest.raises(Refused) as told:
        Resize(cloud.means).find(order("instance", name, "downscale", **parameters))
    assert not cloud.changes()
    return told.value.words


def test_the_next_smaller_type_that_fits_is_taken(cloud: Cloud) -> None:
    """Stopped, changed, started, each once; an undo gives the old type back."""
    (name,) = cloud.instances(InstanceType="m5.4xlarge")
    use(cloud, name, cpu=20.0, memory=30.0)
    target, what = Resize(cloud.means), order("instance", name, "downscale")

    cloud.changes()
    found = target.find(what)
    asked = cloud.changes()
    outcome = target.act(what, found)
    made = cloud.changes()
    small = cloud.state(name)
    undone = target.undo(what, found)

    assert found.words == (
        f"would stop instance {name}, change m5.4xlarge (16 vCPUs, 64 GiB) to m5.2xlarge (8 vCPUs, 32 GiB), "
        "and start it"
    )
    assert found.undoable
    assert not asked
    assert (outcome.state, small) == ("done", ("running", "m5.2xlarge"))
    assert made == {**STEPS, "DeleteTags": 1}
    assert (undone.state, cloud.state(name)) == ("done", ("running", "m5.4xlarge"))
    assert target.undo(what, found).state != "failed"


@pytest.mark.parametrize(
    ("cpu", "memory", "why"),
    [
        (45.0, 30.0, "no smaller type holds 1.2 x the highest use"),
        (20.0, 45.0, "no smaller type holds 1.2 x the highest use"),
        (20.0, None, "no agent reports it: name instance-type"),
        (None, 30.0, "the highest CPU use"),
    ],
)
def test_what_is_used_or_unknown_is_not_taken_away(
    cloud: Cloud, cpu: float | None, memory: float | None, why: str
) -> None:
    """A type that does not hold the highest use x 1.2 is not chosen, and none where that is not known."""
    (name,) = cloud.instances()
    use(cloud, name, cpu=cpu, memory=memory)

    assert why in refused(cloud, name)


def test_a_short_look_is_not_the_highest_use(cloud: Cloud) -> None:
    """Less than a day of reports does not tell the highest use."""
    (name,) = cloud.instances()
    use(cloud, name, cpu=1.0, memory=1.0, hours=23)

    assert "23 of 24 hours needed" in refused(cloud, name)


def test_gpus_stay_unless_a_type_is_named(cloud: Cloud) -> None:
    """The ladder never takes a GPU; a type that is named may."""
    (name,) = cloud.instances(InstanceType="g5.12xlarge")
    use(cloud, name, cpu=1.0, memory=1.0)

    assert "smallest of its family with 4 GPUs" in refused(cloud, name)
    found = Resize(cloud.means).find(order("instance", name, "downscale", instance_type="g5.2xlarge"))
    assert found.before["to"] == "g5.2xlarge"


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("m5.xlarge", "is of type m5.xlarge already"),
        ("m5.2xlarge", "is not smaller"),
        ("m6g.large", "another processor architecture"),
        ("m5.tiny", "there is no instance type"),
    ],
)
def test_a_type_that_makes_no_sense_is_refused(cloud: Cloud, kind: str, why: str) -> None:
    """The same, a larger one, one for other programs, and one that is not there."""
    (name,) = cloud.instances()

    assert why in refused(cloud, name, instance_type=kind)


def test_instance_storage_is_told(cloud: Cloud) -> None:
    """The words say that disks of the host lose what they hold."""
    (name,) = cloud.instances(InstanceType="m5d.xlarge")

    found = Resize(cloud.means).find(order("instance", name, "downscale", instance_type="m5d.large"))

    assert found.words.endswith("; what lies on its instance storage is lost")


def test_what_cannot_be_stopped_is_not_changed(cloud: Cloud) -> None:
    """An instance store as root, protection, a member of a group, and what does not run."""
    (store, kept, still) = cloud.instances(3)
    backend("ec2").get_instance(store).root_device_type = "instance-store"
    cloud.client("ec2").modify_instance_attribute(InstanceId=kept, DisableApiStop={"Value": True})
    cloud.client("ec2").stop_instances(InstanceIds=[still])
    (member,) = cloud.group(1, 0)

    assert "instance store" in refused(cloud, store, instance_type="m5.large")
    assert "protected" in refused(cloud, kept, instance_type="m5.large")
    assert "is stopped" in refused(cloud, still, instance_type="m5.large")
    assert "launch template" in refused(cloud, member, instance_type="m5.large")


@pytest.mark.parametrize(
    ("calls", "state", "words"),
    [
        (0, "undone", "runs as m5.xlarge"),
        (1, "undone", "runs as m5.xlarge"),
        (2, "failed", "is stopped, its type is m5.xlarge"),
        (3, "failed", "is stopped, its type is m5.large"),
        (4, "done", "runs as m5.large"),
    ],
)
def test_a_crash_at_any_step_is_gone_on_from(cloud: Cloud, calls: int, state: str, words: str) -> None:
    """Killed after any call, a look tells how far it is, and acting again does only what is left."""
    (name,) = cloud.instances()
    what = order("instance", name, "downscale", instance_type="m5.large")
    found = Resize(cloud.means).find(what)
    cloud.changes()

    seen = crashed(cloud, Resize, what, found, calls)
    outcome = Resize(cloud.means).act(what, found)
    made = cloud.changes()

    assert (seen.state, seen.words) == (state, f"instance {name} {words}")
    assert (outcome.state, cloud.state(name)) == ("done", ("running", "m5.large"))
    assert {call: made[call] for call in list(STEPS)[1:]} == dict.fromkeys(list(STEPS)[1:], 1)
    assert cloud.instance(name).get("Tags", []) == []


@pytest.mark.parametrize("calls", [2, 3, 4])
def test_a_crash_in_an_undo_is_gone_on_from(cloud: Cloud, calls: int) -> None:
    """An undo that was killed is taken up again, and ends with the old type."""
    (name,) = cloud.instances()
    what = order("instance", name, "downscale", instance_type="m5.large")
    found = Resize(cloud.means).find(what)
    Resize(cloud.means).act(what, found)

    class Undoing(Resize):
        act = Resize.undo

    crashed(cloud, Undoing, what, found, calls)
    outcome = Resize(cloud.means).undo(what, found)

    assert (outcome.state, cloud.state(name)) == ("done", ("running", "m5.xlarge"))


def test_what_does_not_start_gets_its_old_type_back(cloud: Cloud) -> None:
    """Where AWS has no room for the new type the instance runs as before, and the outcome says why."""
    (name,) = cloud.instances()
    target, what = Resize(cloud.means), order("instance", name, "downscale", instance_type="m5.large")
    found = target.find(what)
    full = once(cloud, "InsufficientInstanceCapacity", "Action=StartInstances")

    outcome = target.act(what, found)

    assert next(full)
    assert (outcome.state, cloud.state(name)) == ("failed", ("running", "m5.xlarge"))
    assert outcome.words == (
        f"instance {name} did not start as m5.large (StartInstances failed: InsufficientInstanceCapacity) "
        "and runs as m5.xlarge again"
    )
    assert SECRET not in repr(outcome)
    assert target.look(what, found).state == "undone"


def once(cloud: Cloud, code: str, mark: str) -> Iterator[bool]:
    """Refuse one request that holds a mark; gives whether it came."""
    came: list[bytes] = []

    def fault(_: str, body: bytes) -> tuple[int, str] | None:
        if came or mark.encode() not in body:
            return None
        came.append(body)
        return 500, code

    cloud.app.faults.append(fault)
    return iter(lambda: bool(came), None)


def test_what_falls_back_gets_its_old_type_back(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that AWS takes back later is noticed by its reason."""
    (name,) = cloud.instances()
    target, what = Resize(cloud.means), order("instance", name, "downscale", instance_type="m5.large")
    found = target.find(what)
    item = backend("ec2").get_instance(name)
    start = item.start

    def falling() -> Any:
        if item.instance_type == "m5.large":
            item.state_reason.code = "Server.InsufficientInstanceCapacity"
            return item._state
        return start()

    monkeypatch.setattr(item, "start", falling)

    outcome = target.act(what, found)

    assert (outcome.state, cloud.state(name)) == ("failed", ("running", "m5.xlarge"))
    assert "(it fell back: Server.InsufficientInstanceCapacity)" in outcome.words


def test_what_starts_with_neither_type_is_told(cloud: Cloud) -> None:
    """It is never left stopped without saying so; another try goes on from there."""
    (name,) = cloud.instances()
    target, what = Resize(cloud.means), order("instance", name, "downscale", instance_type="m5.large")
    found = target.find(what)
    cloud.fail("InsufficientInstanceCapacity", "Action=StartInstances", status=500)

    outcome = target.act(what, found)
    cloud.app.faults.clear()

    assert (outcome.state, outcome.retry) == ("failed", True)
    assert "it is stopped, its type is m5.xlarge" in outcome.words
    assert target.look(what, found).state == "failed"
    assert target.act(what, found).state == "done"
    assert cloud.state(name) == ("running", "m5.large")


@pytest.mark.parametrize(
    ("call", "left"),
    [
        ("StopInstances", "runs as m5.xlarge"),
        ("ModifyInstanceAttribute", "is stopped, its type is m5.xlarge"),
        ("StartInstances", "is stopped, its type is m5.large"),
    ],
)
def test_a_throttled_step_tells_what_it_left(cloud: Cloud, call: str, left: str) -> None:
    """A call that is throttled leaves nothing untold, and another try ends it well."""
    (name,) = cloud.instances()
    target, what = Resize(cloud.means), order("instance", name, "downscale", instance_type="m5.large")
    found = target.find(what)
    cloud.fail("RequestLimitExceeded", f"Action={call}", status=503)

    outcome = target.act(what, found)
    cloud.app.faults.clear()

    assert (outcome.state, outcome.retry) == ("failed", True)
    assert outcome.words == f"throttled ({call}); instance {name} {left}"
    assert target.act(what, found).state == "done"


def test_what_others_did_meanwhile_stays(cloud: Cloud) -> None:
    """An instance that somebody stopped, started anew, or changed is left as it is."""
    names = cloud.instances(3)
    target = Resize(cloud.means)
    orders = [order("instance", name, "downscale", instance_type="m5.large") for name in names]
    found = [target.find(what) for what in orders]
    client = cloud.client("ec2")
    client.stop_instances(InstanceIds=[names[0], names[2]])
    backend("ec2").get_instance(names[1]).launch_time += timedelta(hours=1)
    client.modify_instance_attribute(InstanceId=names[2], InstanceType={"Value": "m5.4xlarge"})
    cloud.changes()

    outcomes = [target.act(what, seen) for what, seen in zip(orders, found, strict=True)]

    assert [outcome.state for outcome in outcomes] == ["skipped"] * 3
    assert not cloud.changes()
    assert target.undo(orders[2], found[2]).state == "skipped"


def test_a_group_keeps_fewer(cloud: Cloud) -> None:
    """With `replicas` the group of the instance is made smaller; an undo makes it as large as before."""
    names = cloud.group(4, 1)
    target, what = Resize(cloud.means), order("instance", names[0], "downscale", replicas=2)

    found = target.find(what)
    before = target.look(what, found)
    outcome = target.act(what, found)
    small = cloud.desired()
    again = target.act(what, found)
    undone = target.undo(what, found)

    assert found.words == "would have group workers keep 2 instances instead of 4; it chooses which end"
    assert (before.state, outcome.state, small, again.state) == ("undone", "done", 2, "done")
    assert (undone.state, cloud.desired()) == ("done", 4)
    assert cloud.changes()["SetDesiredCapacity"] == 2


def test_a_group_is_not_made_smaller_than_its_minimum(cloud: Cloud) -> None:
    """Its minimum is somebody's will; so is a size that was set meanwhile."""
    names = cloud.group(4, 2)
    target, what = Resize(cloud.means), order("instance", names[0], "downscale", replicas=3)

    assert "the minimum of group workers is 2" in refused(cloud, names[0], replicas=1)
    assert "no more than 4" in refused(cloud, names[0], replicas=4)
    found = target.find(what)
    cloud.client("autoscaling").set_desired_capacity(AutoScalingGroupName="workers", DesiredCapacity=5)
    assert target.act(what, found).state == "skipped"
    assert cloud.desired() == 5


def test_replicas_need_a_group(cloud: Cloud) -> None:
    """An instance that stands alone has no replicas."""
    (name,) = cloud.instances()

    assert "belongs to no group" in refused(cloud, name, replicas=1)
