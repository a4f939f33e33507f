"""A server that behaves as AWS does, on loopback, and can be told to fail."""

from __future__ import annotations

import io
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from stoploss.collectors import aws, aws_calls
from stoploss.collectors.aws_options import Options
from stoploss.collectors.contract import Context
from stoploss.engine.model import Look, Reading

SECRET = "wJalrXUtnFEMI-very-secret"  # noqa: S105

Fault = Callable[[str, bytes], "tuple[int, str] | None"]
"""Given the request line with its headers, and the body: the status and error code to answer, or None."""


def _text(text: str) -> bytes:
    return bytes([0x60 + len(text)] if len(text) < 24 else [0x78, len(text)]) + text.encode()


class FailingApp:
    """Answers some requests with errors, and hands on the rest."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.faults: list[Fault] = []

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        names = ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "HTTP_X_AMZ_TARGET", "HTTP_AUTHORIZATION")
        line = " ".join(str(environ.get(name, "")) for name in names)
        for fault in self.faults:
            answer = fault(line, body)
            if answer is not None:
                return self._fail(environ, start, *answer)
        return self.app(environ, start)

    def _fail(self, environ: dict[str, Any], start: Any, status: int, code: str) -> list[bytes]:
        headers = [("x-amzn-errortype", code)]
        if "cbor" in environ.get("CONTENT_TYPE", ""):
            payload = b"\xa1" + _text("__type") + _text(code)
            headers += [("smithy-protocol", "rpc-v2-cbor"), ("content-type", "application/cbor")]
        elif "json" in environ.get("CONTENT_TYPE", ""):
            payload = f'{{"__type": "{code}", "message": "{SECRET}"}}'.encode()
        else:
            error = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>"
            ec2 = "/ec2/" in environ.get("HTTP_AUTHORIZATION", "")
            s3 = "/s3/" in environ.get("HTTP_AUTHORIZATION", "")
            wrapped = (
                f"<Response><Errors>{error}</Errors></Response>"
                if ec2
                else f"<ErrorResponse>{error}</ErrorResponse>"
            )
            payload = (error if s3 else wrapped).encode()
        start(f"{status} Failed", [*headers, ("content-length", str(len(payload)))])
        return [payload]


class Cloud:
    """The server: clients that set a scene, and looks of the collector."""

    def __init__(self, url: str, app: FailingApp) -> None:
        self.url, self.app = url, app
        self._clients: dict[tuple[str, str], Any] = {}

    def client(self, service: str, region: str = "us-east-1") -> Any:
        key = (service, region)
        if key not in self._clients:
            self._clients[key] = aws_calls.session("AKIAIOSFODNN7EXAMPLE", SECRET).client(
                service, region_name=region, endpoint_url=self.url
            )
        return self._clients[key]

    def collector(
        self, *which: str, regions: tuple[str, ...] = ("us-east-1",), **options: Any
    ) -> aws.AwsCollector:
        chosen = {"which": which, "regions": regions, "endpoint-url": self.url, **options}
        built = aws.build(Options.model_validate(chosen), Context())
        assert isinstance(built, aws.AwsCollector)
        return built

    def reset(self) -> None:
        """Everything is gone."""
        request = urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")  # noqa: S310
        urllib.request.urlopen(request).close()  # noqa: S310

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
    moto = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    moto.start()
    assert moto._server is not None
    app = FailingApp(moto._server.app)
    moto._server.app = app
    host, port = moto.get_host_and_port()
    yield Cloud(f"http://{host}:{port}", app)
    moto.stop()


@pytest.fixture
def cloud(server: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Cloud]:
    """An empty cloud, with credentials, whose refusals are final at once."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(aws_calls, "ATTEMPTS", 1)
    server.reset()
    server.app.faults.clear()
    yield server
    server.app.faults.clear()


def readings(look: Look, resource: str) -> dict[str, Reading]:
    """Signal -> reading of the resource with an id."""
    return {item.signal: item.reading for item in look.samples if item.resource.id == resource}


def labels(look: Look, resource: str) -> dict[str, Any]:
    """Labels of the resource with an id."""
    return dict(next(item.labels for item in look.samples if item.resource.id == resource and item.labels))
