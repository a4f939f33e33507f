"""How the daemon logs: lines for people on a terminal, one JSON object a line otherwise; without secrets."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime


class Lines(logging.Formatter):
    """`14:00:05 ERROR text`."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        at = datetime.fromtimestamp(record.created, UTC)
        level = "" if record.levelno <= logging.INFO else f"{record.levelname} "
        return f"{at:%H:%M:%S} {level}{self._mask(record.getMessage())}"


class Objects(Lines):
    """`{"at": …, "level": …, "logger": …, "text": …}`."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        said = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": self._mask(record.getMessage()),
        }
        return json.dumps(said, ensure_ascii=False)


def begin(mask: Callable[[str], str], *, verbose: bool = False) -> None:
    """Log to stderr from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter((Lines if sys.stderr.isatty() else Objects)(mask))
    root = logging.getLogger("stoploss")
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    root.propagate = False
    # What breaks off there is told by the daemon itself, without a traceback.
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL + 1)
