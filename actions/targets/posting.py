"""Sends JSON over HTTP for the targets that do, and tells how it went without telling the address."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import urllib3

from stoploss.actions.contract import Result

CONNECT_SECONDS, READ_SECONDS = 5.0, 10.0
_TOO_MANY, _REQUEST_TIMEOUT = 429, 408

# Its debug lines hold the path, which is the secret of many a webhook.
logging.getLogger("urllib3.connectionpool").setLevel(logging.INFO)


def encoded(value: Mapping[str, Any]) -> bytes:
    """The body of a request."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True).encode()


def post(url: str, body: bytes, headers: Mapping[str, str] | None = None) -> Result:
    """Send a body once. Redirects are not followed: the other host was not named by anybody."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    sent = {"Content-Type": "application/json", "User-Agent": "stoploss", **(headers or {})}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        sent |= urllib3.make_headers(basic_auth=pair)
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))
    timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS)
    try:
        with urllib3.PoolManager() as pool:
            response = pool.request(
                "POST",
                bare,
                body=body,
                headers=sent,
                timeout=timeout,
                retries=False,
                redirect=False,
                # The answer is not read: it could be endless, or repeat a secret.
                preload_content=False,
            )
            status = response.status
            response.close()
    except urllib3.exceptions.HTTPError as error:
        return _failed(error, host)
    return _answered(status, host)


def _answered(status: int, host: str) -> Result:
    if 200 <= status < 300:
        return Result(True)
    if 300 <= status < 400:
        return Result(
            False, False, f"{host} redirects ({status}), which is not followed; name the new address"
        )
    retry = status in (_TOO_MANY, _REQUEST_TIMEOUT) or status >= 500
    return Result(False, retry, f"{host} answered {status}")


def _failed(error: urllib3.exceptions.HTTPError, host: str) -> Result:
    """Words of our own, as the library's hold the address."""
    if isinstance(error, urllib3.exceptions.NewConnectionError):  # a kind of timeout to urllib3
        return Result(False, True, f"{host} cannot be reached")
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return Result(False, True, f"{host} did not answer in time")
    if isinstance(error, urllib3.exceptions.SSLError):
        return Result(False, False, f"the certificate of {host} is not accepted")
    if isinstance(error, urllib3.exceptions.LocationValueError):
        return Result(False, False, "its address is not a URL")
    return Result(False, True, f"the connection to {host} broke ({type(error).__name__})")
