"""Notices from the metadata service of this machine, asked over real HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stoploss.collectors.aws import AwsCollector
from stoploss.collectors.aws_imds import Metadata, NoAnswer, time_left
from stoploss.engine.model import Bad

from .conftest import readings

AT = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
NOTICE = '{"action": "terminate", "time": "2026-01-01T00:02:00Z"}'


class Service(ThreadingHTTPServer):
    """A metadata service that wants a session token."""

    daemon_threads = True
    pages: dict[str, str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_PUT(self) -> None:
        known = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self._answer(200 if known else 400, "token-1")

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.removeprefix("/latest/meta-data/"))
        allowed = self.headers["X-aws-ec2-metadata-token"] == "token-1"
        self._answer(401 if not allowed else 404 if page is None else 200, page or "")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    server = Service(("127.0.0.1", 0), Handler)
    server.pages = {"instance-id": "i-1"}
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_notice_counts_once_and_its_time_runs_down(service: Service) -> None:
    """The count is 0 without a notice and 1 at the look that first sees one; the time left falls."""
    collector = AwsCollector((), (), {}, metadata=Metadata(service.url))
    none = readings(collector.look(AT), "i-1")
    service.pages["spot/instance-action"] = NOTICE
    first = readings(collector.look(AT + 30), "i-1")
    second = readings(collector.look(AT + 60), "i-1")

    assert none == {"instance.reclaim_notices": 0.0}
    assert first == {"instance.reclaim_notices": 1.0, "instance.reclaim_in": 90.0}
    assert second == {"instance.reclaim_notices": 0.0, "instance.reclaim_in": 60.0}


def test_a_machine_that_cannot_be_asked_is_told(service: Service) -> None:
    """Where nothing listens, or no instance is named, there is a note and no reading."""
    service.pages.clear()
    nameless = AwsCollector((), (), {}, metadata=Metadata(service.url)).look(AT)

    with pytest.raises(NoAnswer, match="does not answer"):
        Metadata("http://127.0.0.1:1").look(AT)
    assert nameless.samples == ()
    assert nameless.notes == (
        "aws: notices of this machine are not covered: the metadata service names no instance",
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"time": 3}', '{"time": "soon"}'])
def test_a_notice_in_pieces_is_a_bad_reading(text: str) -> None:
    """A notice without a time that can be read is bad, never no time left."""
    assert time_left(text, AT) == Bad("the notice cannot be read")
