"""Any other address, through Apprise, which knows many services."""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

from stoploss.actions.contract import Delivery, Result


def deliver(delivery: Delivery) -> Result:
    """Hand a notice to Apprise."""
    scheme = urlsplit(delivery.url).scheme
    try:
        import apprise
    except ImportError:
        return Result(False, False, f"{scheme}: addresses need: pip install 'stoploss[notify]'")
    # They write whole addresses; how it went is told by the result.
    for name in ("apprise", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    service = apprise.Apprise()
    if not service.add(delivery.url):
        return Result(False, False, f"its {scheme}: address is not one that Apprise knows")
    kind = apprise.NotifyType.SUCCESS if delivery.notice.event == "resolved" else apprise.NotifyType.WARNING
    notice = delivery.notice
    if service.notify(body="\n".join(notice.lines[1:]) or notice.title, title=notice.title, notify_type=kind):
        return Result(True)
    # It says yes or no and never why, so another try is all there is.
    return Result(False, True, f"the {scheme}: service did not take it")
