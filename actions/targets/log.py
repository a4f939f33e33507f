"""`log:`: a notice becomes one record of the program's log, logger `stoploss.alert`."""

from __future__ import annotations

import logging

from stoploss.actions.contract import Delivery, Result


def deliver(delivery: Delivery) -> Result:
    """Log a notice."""
    logging.getLogger("stoploss.alert").warning("%s", delivery.notice.text)
    return Result(True)
