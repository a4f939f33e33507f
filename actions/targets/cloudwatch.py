"""Log groups of CloudWatch: has them kept shorter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from stoploss.actions.contract import Found, Order, Outcome, Refused
from stoploss.actions.targets.aws_calls import AwsTarget, Place, name_of
from stoploss.aws import pages

DAY = 86_400.0
ALLOWED = (
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653,
)  # fmt: skip
"""Days for which CloudWatch keeps logs."""


class Retention(AwsTarget):
    """Sets the retention of a log group; undone by setting what it was."""

    def found_at(self, place: Place, order: Order) -> Found:
        """See how long it is kept.

        Raises:
            Refused: it is gone, or is kept no longer than that.
        """
        name, seconds = name_of(order), float(order.parameters["retention"])
        item = _group(place, name)
        if item is None:
            raise Refused(f"there is no log group {name}", gone=True)
        if item.get("logGroupClass") == "DELIVERY":
            raise Refused(f"the retention of log group {name} is fixed by its class")
        wanted = math.ceil(seconds / DAY)
        days = next((one for one in ALLOWED if one >= wanted), None)
        now = item.get("retentionInDays")
        if days is None or (now is not None and now <= days):
            raise Refused(f"log group {name} is kept {_time(now)}, no longer than {wanted} days")
        words = (
            f"would keep log group {name} {_time(days)} instead of {_time(now)}: "
            "AWS deletes what is older, and it does not come back"
        )
        before = {"group": name, "created": item.get("creationTime"), "days": now, "to": days}
        return Found(words, before, undoable=True)

    def act_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Set it, if it is as it was found, and look."""
        if self.look_at(place, order, found).state == "undone":
            _set(place, found, found.before["to"])
        return self.wait(lambda: self.look_at(place, order, found), lambda seen: seen.state != "undone")

    def look_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """How long it is kept now."""
        name = found.before["group"]
        item = _group(place, name)
        if item is None or item.get("creationTime") != found.before["created"]:
            return Outcome("skipped", f"log group {name} is gone, or another of its name")
        now = item.get("retentionInDays")
        words, after = f"log group {name} is kept {_time(now)}", {"days": now}
        if now == found.before["to"]:
            return Outcome("done", words, after)
        return Outcome("undone" if now == found.before["days"] else "skipped", words, after)

    def undo_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Set what it was; lines that AWS has deleted by then do not come back."""
        seen = self.look_at(place, order, found)
        if seen.state != "done":
            return Outcome("skipped", seen.words)
        _set(place, found, found.before["days"])
        seen = self.wait(lambda: self.look_at(place, order, found), lambda one: one.state != "done")
        if seen.state == "undone":
            return Outcome("done", f"{seen.words}; lines deleted meanwhile do not come back", seen.after)
        return Outcome("failed", seen.words, seen.after, retry=True)


def _group(place: Place, name: str) -> Mapping[str, Any] | None:
    listed = pages(place.client("logs"), "describe_log_groups", "logGroups", logGroupNamePrefix=name)
    return next((item for item in listed if item["logGroupName"] == name), None)


def _set(place: Place, found: Found, days: int | None) -> None:
    client, name = place.client("logs"), found.before["group"]
    if days is None:
        client.delete_retention_policy(logGroupName=name)
    else:
        client.put_retention_policy(logGroupName=name, retentionInDays=days)


def _time(days: int | None) -> str:
    return "for ever" if days is None else f"for {days} days"
