"""Where a notice goes: one module per kind of address, named in one lazy table."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from urllib.parse import urlsplit

from stoploss.actions.contract import AddressError, Delivery, Result

SLACK_HOST = "hooks.slack.com"

TARGETS: dict[str, str] = {
    # scheme of the address: module:function
    "log": "stoploss.actions.targets.log:deliver",
    "http": "stoploss.actions.targets.webhook:deliver",
    "https": "stoploss.actions.targets.webhook:deliver",
    "slack": "stoploss.actions.targets.slack:deliver",
    "mailto": "stoploss.actions.targets.smtp:deliver",
    "pagerduty": "stoploss.actions.targets.pagerduty:deliver",
}
OTHERS = "stoploss.actions.targets.apprise:deliver"


def target(url: str) -> Callable[[Delivery], Result]:
    """The function that delivers to an address.

    Raises:
        AddressError: it is none.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        # The error's own text repeats the address.
        raise AddressError("its address is not a URL") from None
    if not parts.scheme:
        raise AddressError("its address has no scheme such as https: or mailto:")
    scheme = "slack" if parts.hostname == SLACK_HOST else parts.scheme
    module, _, name = TARGETS.get(scheme, OTHERS).partition(":")
    function: Callable[[Delivery], Result] = getattr(importlib.import_module(module), name)
    return function
