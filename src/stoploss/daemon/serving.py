"""Answers over HTTP beside a running service."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoploss.daemon.answers import Answers
from stoploss.engine import clock

if TYPE_CHECKING:
    from stoploss.api.tokens import Tokens
    from stoploss.daemon.service import Service

LOG = logging.getLogger("stoploss.daemon")

START_LIMIT = 10.0
"""Seconds until the server must answer."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Where answers are given: an address of this machine, and a port; 0 is any that is free."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Listen:
        """Read HOST:PORT, [IPV6]:PORT or PORT.

        Raises:
            ValueError: it is none of these.
        """
        host, _, port = text.rpartition(":")
        host = host.strip("[]") or "127.0.0.1"
        if not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"{text!r} is no address; write 127.0.0.1:9199")
        return cls(host, int(port))


def serve(service: Service, listen: Listen, tokens: Tokens) -> Callable[[], None]:
    """Begin to answer; returns what ends that.

    Raises:
        OSError: the address is in use, or is none of this machine.
    """
    import uvicorn

    from stoploss.api.app import build

    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    place = socket.socket(family, socket.SOCK_STREAM)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        place.bind((listen.host, listen.port))
    except OSError:
        place.close()
        raise
    application = build(Answers(service, clock.now), tokens, now=clock.now)
    settings = uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        # A forwarded address would pass for one of this machine.
        proxy_headers=False,
    )
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, name="answers", daemon=True)
    thread.start()
    host, port = place.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    LOG.info("answering on http://%s:%d", shown, port)

    def end() -> None:
        server.should_exit = True
        thread.join(START_LIMIT)
        place.close()

    return end
