"""`pagerduty://ROUTING_KEY`: events that open and close one incident per thing."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from stoploss.actions.contract import Delivery, Result
from stoploss.actions.targets.posting import encoded, post
from stoploss.engine.model import Notice

ENDPOINT = "https://events.pagerduty.com/v2/enqueue"
LONGEST = 1024
"""Characters that PagerDuty takes as a summary."""
_SEVERITIES = {"low": "info", "medium": "warning", "high": "error", "critical": "critical"}


def deliver(delivery: Delivery) -> Result:
    """Trigger or resolve; a test does both, so that no incident stays open."""
    parts = urlsplit(delivery.url)
    # Not `hostname`, which is in lower case.
    key = unquote(parts.netloc)
    if not key:
        return Result(False, False, "its address lacks the routing key: pagerduty://KEY")
    endpoint = parse_qs(parts.query).get("endpoint", [ENDPOINT])[0]
    notice = delivery.notice
    done = Result(True)
    for action in {"firing": ("trigger",), "resolved": ("resolve",)}.get(
        notice.event, ("trigger", "resolve")
    ):
        done = post(endpoint, encoded(event(notice, key, action)))
        if not done.delivered:
            break
    return done


def event(notice: Notice, key: str, action: str) -> dict[str, Any]:
    """An event of version 2 of their interface."""
    said: dict[str, Any] = {"routing_key": key, "event_action": action, "dedup_key": notice.key}
    if action == "trigger":
        said["payload"] = {
            "summary": notice.title[:LONGEST],
            "source": notice.resource,
            "severity": "info" if notice.event == "test" else _SEVERITIES.get(notice.severity, "warning"),
            "timestamp": notice.at.isoformat(),
            "component": notice.policy,
            "custom_details": {"text": notice.text},
        }
    return said
