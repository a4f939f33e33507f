"""Tells systemd that the service is ready, lives, and ends; does nothing where systemd did not start it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


def tell(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send a state such as READY=1; whether somebody was there to be told."""
    address = environ.get("NOTIFY_SOCKET")
    if not address:
        return False
    if address.startswith("@"):
        # A name in the abstract namespace.
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.connect(address)
            channel.sendall(state.encode())
    except OSError:
        return False
    return True
