"""A server that behaves as AWS does, on loopback, empty, and can be told to fail."""

from __future__ import annotations

import io
import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from moto.backends import get_backend
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.base_backend import BackendDict
from moto.server import ThreadedMotoServer

from stoploss import aws

SECRET = "wJalrXUtnFEMI-very-secret"  # noqa: S105
KEY, REGION = "AKIAIOSFODNN7EXAMPLE", "us-east-1"

Fault = Callable[[str, bytes], "tuple[int, str] | None"]
"""Given the request line with who asks, and the body: the status and error code to answer, or None."""

_NAMES = ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "HTTP_X_AMZ_TARGET", "HTTP_AUTHORIZATION")


class FailingApp:
    """Answers some requests with errors, and hands on the rest."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.faults: list[Fault] = []

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        line = " ".join(str(environ.get(name, "")) for name in _NAMES)
        for fault in self.faults:
            answer = fault(line, body)
            if answer is not None:
                return _failure(environ, start, *answer)
        if environ.get("HTTP_X_AMZ_TARGET") == "SageMaker.StopTrainingJob":
            return _stop_training(body, start)
        return self.app(environ, start)


def _failure(environ: dict[str, Any], start: Any, status: int, code: str) -> list[bytes]:
    headers = [("x-amzn-errortype", code)]
    asked = environ.get("CONTENT_TYPE", "")
    if "cbor" in asked:
        payload = b"\xa1" + _cbor("__type") + _cbor(code)
        headers += [("smithy-protocol", "rpc-v2-cbor"), ("content-type", "application/cbor")]
    elif "json" in asked:
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


def _cbor(text: str) -> bytes:
    return bytes([0x60 + len(text)] if len(text) < 24 else [0x78, len(text)]) + text.encode()


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


@contextmanager
def serving() -> Iterator[tuple[str, FailingApp]]:
    """The server's address, and where it is told to fail."""
    moto = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    moto.start()
    assert moto._server is not None
    app = FailingApp(moto._server.app)
    moto._server.app = app
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}", app
    moto.stop()


def empty(url: str, app: FailingApp) -> None:
    """Everything is gone, and nothing fails."""
    request = urllib.request.Request(f"{url}/moto-api/reset", method="POST")  # noqa: S310
    urllib.request.urlopen(request).close()  # noqa: S310
    app.faults.clear()


def alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Credentials of the server and none of this machine; refusals are final at once."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(aws, "ATTEMPTS", 1)


def client_of(url: str, service: str, region: str = REGION) -> Any:
    """A client that sets the scene."""
    return aws.session(KEY, SECRET).client(service, region_name=region, endpoint_url=url)
