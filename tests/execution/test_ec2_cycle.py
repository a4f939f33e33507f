"""Instances and volumes of a server that behaves as AWS does: told of, kept, given less, ended, undone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, tzinfo
from pathlib import Path

import pytest
from support.clouds import Cloud
from support.failing_aws import REGION
from support.trainers import World

from stoploss.actions.targets import aws_calls
from stoploss.engine import clock
from stoploss.engine.execution.undoing import undo, undoable
from stoploss.engine.model import Outcome
from stoploss.engine.people import People

pytestmark = pytest.mark.slow

DAY = 86_400.0

HEAD = """
version: 1
settings: {mode: enforce, resolution: 1s, limits: {share-of-population: 100%}}
collectors:
  aws: {every: 1s, regions: [us-east-1], which: [ec2, cloudwatch, ebs], endpoint-url: "{url}"}
policies:
"""

OVERSIZED = """
  - name: oversized
    summary: An instance that uses less than half of what it has.
    each: instance
    for: 1s
    when: [instance.cpu.utilization < 45%, instance.memory.utilization < 45%]
    then:
      - alert: {}
      - downscale: {after: 1s, approve: required}
"""

IDLE = """
  - name: kept
    summary: What an idle instance holds is kept before anything else.
    each: volume
    for: 1s
    where: has(label.instance)
    when: [storage.attachments > 0]
    then:
      - snapshot: {what: volume}
  - name: idle
    summary: An instance that does nothing.
    each: instance
    for: 1s
    when: [instance.cpu.utilization < 5%]
    then:
      - alert: {}
      - terminate: {after: 3s, how: HOW}
"""

ORPHAN = """
  - name: orphan
    summary: A volume that has been attached to nothing for a month and that nothing refers to.
    each: volume
    for: 1s
    when: [storage.attachments == 0, storage.references == 0, storage.since_detached > 30d]
    then:
      - alert: {}
      - snapshot: {after: 1s, what: volume}
      - release: {after: 2s, what: volume}
"""


class Clock:
    """A clock that the test moves on."""

    def __init__(self) -> None:
        self.at = float(int(time.time()))

    def now(self, zone: tzinfo) -> datetime:
        """The instant that it shows."""
        return datetime.fromtimestamp(self.at, zone)


class Account(World):
    """What is in the cloud, looked at once for each second of the clock."""

    def __init__(self, folder: Path, cloud: Cloud, clock: Clock, policies: str) -> None:
        self.cloud, self.clock = cloud, clock
        super().__init__(folder, HEAD.replace("{url}", cloud.url) + policies, ("aws",), {})
        cloud.changes()

    def next_instant(self) -> float:
        """Move the clock on by a second."""
        self.clock.at += 1.0
        return self.clock.at

    def undo(self, action: str) -> Outcome:
        """Take the newest step of an action back, as a person does."""
        line = next(e for e in reversed(self.results()) if e.action == action)
        intent = undoable(self.ledger, str(line.seq))
        make = self.cycle.executor.action
        return undo(self.ledger, intent, make, who="ann", reason="needed", now=clock.now)


Make = Callable[[str], Account]


@pytest.fixture
def make(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes a world of an account, given its policies."""
    played = Clock()
    monkeypatch.setattr(clock, "datetime", played)
    monkeypatch.setattr(aws_calls, "PAUSE", 0.05)
    made: list[Account] = []

    def build(policies: str) -> Account:
        made.append(Account(tmp_path, cloud, played, policies))
        return made[-1]

    yield build
    for world in made:
        world.end()


def instance(cloud: Cloud, kind: str, *, cpu: float, memory: float) -> str:
    """An instance for training that has used at most so many percent for two days, and does so now."""
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "Class", "Value": "train"}]}]
    (name,) = cloud.instances(InstanceType=kind, TagSpecifications=tags)
    hours = [time.time() - 200 - 3600 * hour for hour in range(48)]
    report(cloud, "AWS/EC2", "CPUUtilization", cpu, *hours, InstanceId=name)
    report(cloud, "CWAgent", "mem_used_percent", memory, *hours, InstanceId=name)
    return name


def report(cloud: Cloud, space: str, metric: str, value: float, *at: float, **whose: str) -> None:
    """A value of a metric of CloudWatch at several instants."""
    row = {
        "MetricName": metric,
        "Dimensions": [{"Name": name, "Value": text} for name, text in whose.items()],
        "Value": value,
    }
    rows = [row | {"Timestamp": datetime.fromtimestamp(one, UTC)} for one in at]
    cloud.client("cloudwatch").put_metric_data(Namespace=space, MetricData=rows)


def orphan(cloud: Cloud) -> str:
    """A volume that was detached forty days ago."""
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "team", "Value": "vision"}]}]
    made = cloud.client("ec2").create_volume(
        AvailabilityZone=f"{REGION}a", Size=8, VolumeType="gp3", TagSpecifications=tags
    )
    name = str(made["VolumeId"])
    report(cloud, "AWS/EBS", "VolumeReadOps", 1.0, time.time() - 40 * DAY, VolumeId=name)
    return name


def volumes(cloud: Cloud) -> dict[str, dict[str, str]]:
    """Volumes that are there, with their tags."""
    told = cloud.client("ec2").describe_volumes()["Volumes"]
    return {one["VolumeId"]: {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())} for one in told}


def snapshots(cloud: Cloud, volume: str) -> list[str]:
    """The states of the snapshots of a volume."""
    filters = [{"Name": "volume-id", "Values": [volume]}]
    told = cloud.client("ec2").describe_snapshots(OwnerIds=["self"], Filters=filters)["Snapshots"]
    return [one["State"] for one in told]


def test_an_oversized_instance_gets_less_once_somebody_says_so(cloud: Cloud, make: Make) -> None:
    """Told of, asked for, and only then stopped, changed and started, once; an undo gives it back."""
    name = instance(cloud, "m5.4xlarge", cpu=20.0, memory=30.0)
    world = make(OVERSIZED)
    people = People(world.ledger)
    world.until(people.requests)
    world.pass_seconds(2)
    waiting = (cloud.changes(), cloud.state(name))
    [request] = people.requests()
    people.approve(request.id, who="ann", now=clock.now(), reason="too large")
    world.until(lambda: world.done("downscale"))
    world.pass_seconds(2)
    made, small = cloud.changes(), cloud.state(name)
    undone = world.undo("downscale")
    world.pass_seconds(3)

    assert waiting == (Counter(), ("running", "m5.4xlarge"))
    assert small == ("running", "m5.2xlarge")
    assert made == Counter(
        CreateTags=1, StopInstances=1, ModifyInstanceAttribute=1, StartInstances=1, DeleteTags=1
    )
    assert [e.action for e in world.results()] == ["alert", "downscale", "undo"]
    # What a person took back is not done again.
    assert (undone.state, cloud.state(name)) == ("done", ("running", "m5.4xlarge"))
    assert world.ledger.verify() == ()


@pytest.mark.parametrize("how", ["terminate", "stop"])
def test_an_idle_instance_is_ended_after_its_volume_was_kept(cloud: Cloud, make: Make, how: str) -> None:
    """Its volume has a complete snapshot before it is ended; what was stopped is started by an undo."""
    name = instance(cloud, "m5.xlarge", cpu=1.0, memory=1.0)
    [volume] = volumes(cloud)
    world = make(IDLE.replace("HOW", how))
    world.until(lambda: world.done("terminate"))
    made = cloud.changes()

    acted = [(e.action, e.resource and e.resource.kind) for e in world.results() if e.action != "alert"]
    assert acted == [("snapshot", "volume"), ("terminate", "instance")]
    assert snapshots(cloud, volume) == ["completed"]
    assert (made["CreateSnapshot"], made["TerminateInstances"], made["StopInstances"]) == (
        1,
        int(how == "terminate"),
        int(how == "stop"),
    )
    assert cloud.state(name)[0] == {"terminate": "terminated", "stop": "stopped"}[how]
    if how == "stop":
        assert world.undo("terminate").state == "done"
        assert cloud.state(name)[0] == "running"
    assert world.ledger.verify() == ()


def test_a_volume_that_nobody_attaches_is_kept_deleted_and_brought_back(cloud: Cloud, make: Make) -> None:
    """Told of, kept as a snapshot that is complete, deleted; an undo makes one like it with its tags."""
    name = orphan(cloud)
    world = make(ORPHAN)
    world.until(lambda: world.done("release"))
    gone, kept = name not in volumes(cloud), snapshots(cloud, name)
    undone = world.undo("release")
    again = str(undone.after["volume"])

    assert [e.action for e in world.results()] == ["alert", "snapshot", "release", "undo"]
    assert gone
    assert set(kept) == {"completed"}
    assert undone.words == f"volume {again} holds what {name} held"
    assert volumes(cloud)[again]["team"] == "vision"
    assert world.ledger.verify() == ()


def test_a_volume_that_is_attached_meanwhile_stays(cloud: Cloud, make: Make) -> None:
    """A fresh look at the act finds it attached, and nothing is deleted."""
    name = orphan(cloud)
    host = instance(cloud, "m5.xlarge", cpu=90.0, memory=90.0)
    world = make(ORPHAN)
    world.until(lambda: world.done("snapshot"))
    cloud.client("ec2").attach_volume(VolumeId=name, InstanceId=host, Device="/dev/sdx")
    world.pass_seconds(5)

    assert not world.done("release")
    assert name in volumes(cloud)
    assert cloud.changes()["DeleteVolume"] == 0


@pytest.mark.parametrize("mode", ["audit", "warn"])
def test_nothing_is_changed_in_a_mode_that_does_not_act(cloud: Cloud, make: Make, mode: str) -> None:
    """What would be done is planned and written down; AWS is only read."""
    instance(cloud, "m5.4xlarge", cpu=1.0, memory=1.0)
    orphan(cloud)
    policies = OVERSIZED.replace(", approve: required", "") + IDLE.replace("HOW", "stop") + ORPHAN
    world = make(policies.replace("    each:", f"    mode: {mode}\n    each:"))
    world.pass_seconds(7)
    asked = len(cloud.calls)

    planned = {e.action for e in world.ledger.entries(kinds=("decision",))}
    assert planned == {"downscale", "terminate", "release", "snapshot"}
    assert asked > 7
    assert cloud.changes() == Counter()
    assert world.done("alert") is (mode == "warn")


def test_a_plan_changes_nothing_where_the_cycle_would(cloud: Cloud, make: Make) -> None:
    """Planning alone, again and again, asks AWS for nothing but what the collector reads."""
    instance(cloud, "m5.4xlarge", cpu=1.0, memory=1.0)
    orphan(cloud)
    world = make(OVERSIZED.replace(", approve: required", "") + IDLE.replace("HOW", "stop") + ORPHAN)
    for _ in range(6):
        world.live.look(world.next_instant(), clock.monotonic)
        planned = world.cycle.plan()

    would = {item.action for item in planned.decisions if item.verdict == "would"}
    assert would >= {"alert", "snapshot"}
    assert cloud.changes() == Counter()
    assert world.ledger.entries() == ()
