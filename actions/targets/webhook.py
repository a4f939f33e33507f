"""`https://…`: a notice as JSON, signed when the address holds `secret=`."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from stoploss.actions.contract import Delivery, Result
from stoploss.actions.targets.posting import encoded, post
from stoploss.engine.model import Notice

TIMESTAMP, SIGNATURE = "X-Stoploss-Timestamp", "X-Stoploss-Signature"


def deliver(delivery: Delivery) -> Result:
    """Post a notice."""
    url, secret = _without_secret(delivery.url)
    body = encoded(payload(delivery.notice))
    stamp = str(int(delivery.now.timestamp()))
    headers = {TIMESTAMP: stamp}
    if secret is not None:
        if not secret:
            return Result(False, False, "the secret in its address is empty")
        headers[SIGNATURE] = signature(secret, stamp, body)
    return post(url, body, headers)


def payload(notice: Notice) -> dict[str, object]:
    """A notice as JSON values."""
    return {
        "version": 1,
        "event": notice.event,
        "key": notice.key,
        "policy": notice.policy,
        "resource": notice.resource,
        "severity": notice.severity,
        "at": notice.at.isoformat(),
        "title": notice.title,
        "text": notice.text,
        "labels": dict(notice.labels),
    }


def signature(secret: str, stamp: str, body: bytes) -> str:
    """HMAC-SHA256 over timestamp, a dot and the body, so that an old request cannot be sent again."""
    return "sha256=" + hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _without_secret(url: str) -> tuple[str, str | None]:
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    secrets = [value for name, value in pairs if name == "secret"]
    if not secrets:
        return url, None
    rest = urlencode([pair for pair in pairs if pair[0] != "secret"])
    return urlunsplit(parts._replace(query=rest)), secrets[-1]
