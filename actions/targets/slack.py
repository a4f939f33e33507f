"""`https://hooks.slack.com/…`, `slack://T/B/X`, or `slack:https://…` for a service that speaks the same."""

from __future__ import annotations

from stoploss.actions.contract import Delivery, Result
from stoploss.actions.targets.posting import encoded, post
from stoploss.engine.model import Notice

LONGEST = 3000
"""Characters that Slack takes in one section."""
HOOKS = "https://hooks.slack.com/services/"


def deliver(delivery: Delivery) -> Result:
    """Post a notice to an incoming webhook."""
    url = delivery.url
    if url.startswith("slack://"):
        url = HOOKS + url.removeprefix("slack://")
    return post(url.removeprefix("slack:"), encoded(payload(delivery.notice)))


def payload(notice: Notice) -> dict[str, object]:
    """The title for the notification, and the whole text as a block."""
    title, *rest = (_escaped(line) for line in notice.lines)
    text = "\n".join((f"*{title}*", *rest))
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    return {
        "text": title,
        "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}],
    }


def _escaped(text: str) -> str:
    """Without what Slack would read as a link or as a call to everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
