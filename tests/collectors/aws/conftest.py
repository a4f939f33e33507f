"""A server that behaves as AWS does, on loopback, and can be told to fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.failing_aws import SECRET, FailingApp, Fault, alone, client_of, empty, serving

from stoploss.collectors import aws
from stoploss.collectors.aws_options import Options
from stoploss.collectors.contract import Context
from stoploss.engine.model import Look, Reading

__all__ = ["SECRET", "Fault"]


class Cloud:
    """The server: clients that set a scene, and looks of the collector."""

    def __init__(self, url: str, app: FailingApp) -> None:
        self.url, self.app = url, app
        self._clients: dict[tuple[str, str], Any] = {}

    def client(self, service: str, region: str = "us-east-1") -> Any:
        key = (service, region)
        if key not in self._clients:
            self._clients[key] = client_of(self.url, service, region)
        return self._clients[key]

    def collector(
        self, *which: str, regions: tuple[str, ...] = ("us-east-1",), **options: Any
    ) -> aws.AwsCollector:
        chosen = {"which": which, "regions": regions, "endpoint-url": self.url, **options}
        built = aws.build(Options.model_validate(chosen), Context())
        assert isinstance(built, aws.AwsCollector)
        return built

    def fail(self, fault: Fault) -> None:
        self.app.faults.append(fault)

    def instances(self, count: int = 1, region: str = "us-east-1", **options: Any) -> list[str]:
        """Ids of instances that were just started."""
        told = self.client("ec2", region).run_instances(
            ImageId="ami-12c6146b",
            MinCount=count,
            MaxCount=count,
            **{"InstanceType": "p4d.24xlarge", **options},
        )
        return sorted(item["InstanceId"] for item in told["Instances"])


@pytest.fixture(scope="session")
def server() -> Iterator[Cloud]:
    with serving() as (url, app):
        yield Cloud(url, app)


@pytest.fixture
def cloud(server: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Cloud]:
    """An empty cloud, with credentials, whose refusals are final at once."""
    alone(monkeypatch, tmp_path)
    empty(server.url, server.app)
    yield server
    server.app.faults.clear()


def readings(look: Look, resource: str) -> dict[str, Reading]:
    """Signal -> reading of the resource with an id."""
    return {item.signal: item.reading for item in look.samples if item.resource.id == resource}


def labels(look: Look, resource: str) -> dict[str, Any]:
    """Labels of the resource with an id."""
    return dict(next(item.labels for item in look.samples if item.resource.id == resource and item.labels))
