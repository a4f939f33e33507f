"""A server that behaves as AWS does, on loopback, and can be told to fail; a process that can be killed."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.client import BaseClient

from stoploss.actions.contract import Means
from stoploss.actions.targets import aws_calls
from stoploss.engine.model import Action, Found, Order, Outcome, ResourceId
from support.failing_aws import REGION, FailingApp, alone, client_of, empty, serving

READING = re.compile(r"(Describe|List|Get|Head)[A-Z]\w*|AssumeRole")

_CLIENTS: dict[str, Any] = {}


class Killed(BaseException):
    """The process is no more."""


@dataclass
class Cloud:
    """The server, and the machine that asks it.

    `calls` are the operations that were asked for, `left` the number of changing calls after which the
    process is killed, `passed` the seconds that were slept, `meanwhile` what happens during a sleep.
    """

    url: str
    app: FailingApp
    calls: list[str] = field(default_factory=list)
    left: int | None = None
    passed: float = 0.0
    meanwhile: Callable[[], object] = lambda: None
    collectors: dict[str, Any] = field(default_factory=dict)

    def client(self, service: str) -> Any:
        """A client that sets the scene."""
        if service not in _CLIENTS:
            _CLIENTS[service] = client_of(self.url, service)
        return _CLIENTS[service]

    @property
    def means(self) -> Means:
        return Means(
            hostname="here",
            now=time.time,
            monotonic=lambda: self.passed,
            sleep=self._sleep,
            environ={},
            collectors=self.collectors,
        )

    def _sleep(self, seconds: float) -> None:
        self.passed += seconds
        self.meanwhile()

    def fail(self, code: str, *marks: str, status: int = 400) -> None:
        """Refuse the requests that hold every mark in their line or body."""

        def fault(line: str, body: bytes) -> tuple[int, str] | None:
            text = line + body.decode("utf-8", "replace")
            return (status, code) if all(mark in text for mark in marks) else None

        self.app.faults.append(fault)

    def changes(self) -> Counter[str]:
        """The calls that changed something since the last time."""
        seen = Counter(name for name in self.calls if not READING.fullmatch(name))
        self.calls.clear()
        return seen

    def instances(self, count: int = 1, **options: Any) -> list[str]:
        """Ids of instances that were just started."""
        told = self.client("ec2").run_instances(
            ImageId="ami-12c6146b", MinCount=count, MaxCount=count, **{"InstanceType": "m5.xlarge", **options}
        )
        return sorted(item["InstanceId"] for item in told["Instances"])

    def group(self, size: int, least: int) -> list[str]:
        """Ids of the members of a new group `workers`."""
        client = self.client("autoscaling")
        client.create_launch_configuration(
            LaunchConfigurationName="lc", ImageId="ami-12c6146b", InstanceType="m5.xlarge"
        )
        client.create_auto_scaling_group(
            AutoScalingGroupName="workers", LaunchConfigurationName="lc", MinSize=least, MaxSize=9,
            DesiredCapacity=size, AvailabilityZones=["us-east-1a"],
        )  # fmt: skip
        members = client.describe_auto_scaling_instances()["AutoScalingInstances"]
        return sorted(item["InstanceId"] for item in members)

    def desired(self) -> int:
        """How many instances the group keeps."""
        told = self.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=["workers"])
        return int(told["AutoScalingGroups"][0]["DesiredCapacity"])

    def instance(self, name: str) -> dict[str, Any]:
        """An instance as it is told."""
        told = self.client("ec2").describe_instances(InstanceIds=[name])
        return dict(told["Reservations"][0]["Instances"][0])

    def state(self, name: str) -> tuple[str, str]:
        """State and type of an instance."""
        told = self.instance(name)
        return told["State"]["Name"], told["InstanceType"]


@pytest.fixture(scope="session")
def server() -> Iterator[tuple[str, FailingApp]]:
    with serving() as made:
        yield made


@pytest.fixture
def cloud(server: tuple[str, FailingApp], monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Cloud]:
    """An empty cloud, with credentials, whose refusals are final at once."""
    url, app = server
    alone(monkeypatch, tmp_path)
    monkeypatch.setattr(aws_calls, "PAUSE", 60.0)
    empty(url, app)
    made = Cloud(url, app, collectors={"aws": {"regions": (REGION,), "roles": (), "endpoint_url": url}})
    whole = BaseClient._make_api_call

    def watched(self: Any, operation: str, arguments: Any) -> Any:
        changing = READING.fullmatch(operation) is None
        if changing and made.left == 0:
            raise Killed
        made.calls.append(operation)
        answer = whole(self, operation, arguments)
        if changing and made.left is not None:
            made.left -= 1
            if made.left == 0:
                raise Killed
        return answer

    monkeypatch.setattr(BaseClient, "_make_api_call", watched)
    yield made
    app.faults.clear()


def order(kind: str, name: str, action: str = "terminate", **parameters: Any) -> Order:
    """An order on a resource of the region; names of parameters as in a policy, with `_` for `-`."""
    labels = {"region": REGION, **parameters.pop("labels", {})}
    given = {key.replace("_", "-"): value for key, value in parameters.items()}
    return Order("order-1", action, ResourceId(kind, name), given, labels, "policy idle")


def crashed(
    cloud: Cloud, target: Callable[[Means], Action], what: Order, found: Found, calls: int
) -> Outcome:
    """What a look tells after the process was killed right after that many changing calls."""
    cloud.left = calls
    with suppress(Killed):
        target(cloud.means).act(what, found)
    cloud.left = None
    made = Counter(cloud.calls)
    seen = target(cloud.means).look(what, found)
    assert not [name for name in (Counter(cloud.calls) - made) if not READING.fullmatch(name)]
    return seen
