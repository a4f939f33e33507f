"""A real Prometheus on loopback, filled from text or scraping an exporter; and answers that are typed in."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import urllib3

from stoploss.collectors.contract import Context
from stoploss.collectors.prometheus import PrometheusCollector
from stoploss.collectors.registry import load
from stoploss.engine.model import LabelValue, Look, Reading

AT = 1_700_006_400.0
STEP = 15
"""Seconds between two samples of a filled server."""


def collector(url: str, **options: object) -> PrometheusCollector:
    """The collector as a policy file makes it."""
    built = load().build("prometheus", {"url": url, **options}, Context("n1"))
    assert isinstance(built, PrometheusCollector)
    return built


def readings(look: Look, kind: str = "") -> dict[str, dict[str, Reading]]:
    """Resource -> signal -> reading."""
    found: dict[str, dict[str, Reading]] = {}
    for sample in look.samples:
        if not kind or sample.resource.kind == kind:
            signals = found.setdefault(sample.resource.id, {})
            assert sample.signal not in signals, f"{sample.resource} tells {sample.signal} twice"
            signals[sample.signal] = sample.reading
    return found


def labels(look: Look, resource: str) -> Mapping[str, LabelValue]:
    """Labels of a resource, which all its samples carry."""
    found = [sample.labels for sample in look.samples if sample.resource.id == resource]
    assert found
    assert all(item == found[0] for item in found)
    return found[0] or {}


class Past:
    """Series that a server is filled with; each test has a cluster of its own."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, cluster: str, name: str, value: float | Callable[[float], float], **keys: object) -> None:
        """One series from 10 minutes before AT: `value` of the seconds before AT; `ended` seconds before AT.

        All other keys are labels; `job` and `instance` have defaults.
        """
        ended = keys.pop("ended", 0)
        assert isinstance(ended, int)
        given = {"job": "exporter", "instance": "10.0.0.1:9400", **keys, "cluster": cluster}
        shown = ",".join(f"{key}={json.dumps(str(text))}" for key, text in given.items() if text != "")
        for before in range(600, ended - 1, -STEP):
            number = value(before) if callable(value) else value
            self.lines.append(f"{name}{{{shown}}} {number!r} {AT - before:.0f}")


class Running:
    """A Prometheus that runs in a folder of its own."""

    def __init__(self, folder: Path, configuration: str = "{}") -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        (folder / "prometheus.yml").write_text(configuration)
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.wait(lambda: urllib3.request("GET", f"{self.url}/-/ready", retries=False).status == 200)

    def wait(self, condition: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait until something is true."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if condition():
                    return
            except urllib3.exceptions.HTTPError:
                pass
            time.sleep(0.05)
        raise AssertionError("it did not come true in time")

    def close(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.wait(10)


def needed() -> None:
    """Skip where Prometheus is not installed."""
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def filled(folder: Path, past: Past) -> Running:
    """A server that holds series and scrapes nothing."""
    text = folder / "past.txt"
    text.write_text("\n".join([*past.lines, "# EOF\n"]))
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")],
        check=True,
        capture_output=True,
        timeout=30,
    )
    return Running(folder)


class Exporter:
    """Serves one text to a scraper, until it is closed."""

    def __init__(self, text: str) -> None:
        exporter = self
        self.text = text

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                data = exporter.text.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def close(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Typed:
    """An API whose answers are typed in: `answer` is given path and fields of a request."""

    def __init__(
        self,
        answer: Callable[[str, Mapping[str, str]], tuple[int, bytes]],
        secure: ssl.SSLContext | None = None,
    ) -> None:
        self.asked: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        typed = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                fields = {name: texts[0] for name, texts in parse_qs(body).items()}
                typed.asked.append(fields)
                typed.headers.append({name.lower(): text for name, text in self.headers.items()})
                status, data = answer(self.path, fields)
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if secure is not None:
            self.server.socket = secure.wrap_socket(self.server.socket, server_side=True)
        scheme = "http" if secure is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def close(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def vector(*series: tuple[Mapping[str, str], str], warnings: tuple[str, ...] = ()) -> bytes:
    """The body of an answer."""
    result = [{"metric": dict(metric), "value": [AT, value]} for metric, value in series]
    body = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return json.dumps(body | ({"warnings": warnings} if warnings else {})).encode()
