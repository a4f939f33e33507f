"""Receivers on loopback: an HTTP server and a mail server that keep what they were sent."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    """What was posted, and when it had come as a whole, in seconds since the epoch."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float = 0.0

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class Hook:
    """An HTTP server: answers each request with `status`, after so many seconds, and keeps it."""

    port: int
    requests: list[Request] = field(default_factory=list)
    status: int = 200
    location: str = ""
    seconds: float = 0.0

    def url(self, path: str = "/hook", scheme: str = "http") -> str:
        """An address on it."""
        return f"{scheme}://127.0.0.1:{self.port}{path}"


@contextmanager
def hook() -> Iterator[Hook]:
    """An HTTP server while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {k.lower(): v for k, v in self.headers.items()}
            if len(body) == int(headers["content-length"]):
                state.requests.append(Request(self.path, headers, body, time.time()))
            time.sleep(state.seconds)
            self.send_response(state.status)
            if state.location:
                self.send_header("Location", state.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
            pass

    with _running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        state = Hook(port)
        yield state


@dataclass
class Post:
    """A mail server: keeps each mail; `replies` are its answers by command, else it agrees."""

    port: int
    commands: list[str] = field(default_factory=list)
    mails: list[str] = field(default_factory=list)
    replies: dict[str, str] = field(default_factory=dict)

    def url(self, login: str = "") -> str:
        """The setting that names it."""
        return f"smtp://{login}127.0.0.1:{self.port}?from=stoploss@example.org"


@contextmanager
def post() -> Iterator[Post]:
    """A mail server while the block runs."""

    class Handler(socketserver.StreamRequestHandler):
        def say(self, text: str) -> None:
            self.wfile.write(text.encode() + b"\r\n")

        def handle(self) -> None:
            self.say("220 here")
            while line := self.rfile.readline().decode().strip():
                verb = line[:4].upper()
                state.commands.append(verb + line[4:])
                if verb in state.replies:
                    self.say(state.replies[verb])
                elif verb == "EHLO":
                    self.say("250-here\r\n250 AUTH PLAIN")
                elif verb == "AUTH":
                    self.say("235 yes")
                elif verb == "DATA":
                    self.say("354 go on")
                    lines = []
                    while (text := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                        lines.append(text)
                    state.mails.append("\n".join(lines))
                    self.say("250 kept")
                elif verb == "QUIT":
                    self.say("221 bye")
                    return
                else:
                    self.say("250 ok")

    with _running(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as port:
        state = Post(port)
        yield state


@contextmanager
def _running(server: socketserver.TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
