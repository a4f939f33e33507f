"""A server that behaves as AWS does, on loopback, and can be told to fail; a process that can be killed."""

from __future__ import annotations

import io
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.client import BaseClient
from moto.backends import get_backend
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.base_backend import BackendDict
from moto.server import ThreadedMotoServer

from stoploss.actions.contract import Means
from stoploss.actions.targets import aws_calls
from stoploss.engine.model import Action, Found, Order, Outcome, ResourceId

SECRET = "wJalrXUtnFEMI-very-secret"  # noqa: S105
REGION = "us-east-1"
READING = re.compile(r"(Describe|List|Get|Head)[A-Z]\w*|AssumeRole")

Fault = Callable[[str, bytes], "tuple[int, str] | None"]
"""Given the request line and the body: the status and error code to answer, or None."""


class FailingApp:
    """Answers some requests with errors, and hands on the rest."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.faults: list[Fault] = []

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        line = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']} {target}"
        for fault in self.faults:
            answer = fault(line, body)
            if answer is not None:
                return _failure(environ, start, *answer)
        if target == "SageMaker.StopTrainingJob":
            return _stop_training(body, start)
        return self.app(environ, start)


def _failure(environ: dict[str, Any], start: Any, status: int, code: str) -> list[bytes]:
    headers = [("x-amzn-errortype", code)]
    if "json" in environ.get("CONTENT_TYPE", ""):
        payload = json.dumps({"__type": code, "message": SECRET}).encode()
    else:
        error = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>"
        authority = environ.get("HTTP_AUTHORIZATION", "")
        wrapped = f"<ErrorResponse>{error}</ErrorResponse>"
        if "/ec2/" in authority:
            wrapped = f"<Response><Errors>{error}</Errors></Response>"
        payload = (error if "/s3/" in authority else wrapped).encode()
    start(f"{status} Failed", [*headers, ("content-length", str(len(payload)))])
    return [payload]


def _stop_training(body: bytes, start: Any) -> list[bytes]:
    """The one call of those that are needed which the server does not know: the job is stopping."""
    job = backend("sagemaker").training_jobs[json.loads(body)["TrainingJobName"]]
    job.training_job_status = "Stopping"
    start("200 OK", [("content-type", "application/x-amz-json-1.1"), ("content-length", "0")])
    return [b""]


def backend(service: str) -> Any:
    """What the server remembers, for states that no call brings about."""
    known: BackendDict[Any] = get_backend(service)  # type: ignore[call-overload]
    return known[DEFAULT_ACCOUNT_ID][REGION]


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
            _CLIENTS[service] = aws_calls.session("AKIAIOSFODNN7EXAMPLE", SECRET).client(
                service, region_name=REGION, endpoint_url=self.url
            )
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
    moto = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    moto.start()
    assert moto._server is not None
    app = FailingApp(moto._server.app)
    moto._server.app = app
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}", app
    moto.stop()


@pytest.fixture
def cloud(server: tuple[str, FailingApp], monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Cloud]:
    """An empty cloud, with credentials, whose refusals are final at once."""
    import urllib.request

    url, app = server
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(aws_calls, "ATTEMPTS", 1)
    monkeypatch.setattr(aws_calls, "PAUSE", 60.0)
    request = urllib.request.Request(f"{url}/moto-api/reset", method="POST")  # noqa: S310
    urllib.request.urlopen(request).close()  # noqa: S310
    app.faults.clear()
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
