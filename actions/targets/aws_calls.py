"""How AWS is asked to change something: where a resource lies, what is waited for, and what came of it.

Regions, roles and the endpoint are those of the collector `aws`. A call is tried three times at most and
waits 10 s for an answer; what an action waits for in all has a limit of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from stoploss.actions.contract import Found, Means, Order, Outcome, Refused
from stoploss.aws import FAILURES, Account, Manner, default_region, passing, reason

LIMIT = 600.0
"""Seconds for which an action waits for what it asked for."""

PAUSE = 5.0
"""Seconds between two looks."""

MANNER = Manner("standard", connect=3, read=10, renew_before=300.0 + LIMIT)
"""The credentials of a role outlast an action."""

TAG = "stoploss:order"
"""The tag on what an order has made, or is at work on: its value is the order's id."""

ASKED_ANEW = frozenset({"asg", "instance", "lifecycle"})
"""Labels that the collector alone sets and that a target looks up itself: they may be unreadable."""

Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True)
class Place:
    """The region of the account in which a resource lies."""

    region: str
    account: Account = field(repr=False)
    now: Callable[[], float] = field(repr=False)

    def client(self, service: str, *, once: bool = False) -> Any:
        """A client of a service.

        Args:
            service: its name.
            once: a call that is not answered is not repeated: for those that would make a thing twice.

        Raises:
            ClientError, BotoCoreError: there are no credentials, or no connection.
        """
        return self.account.client(service, self.region, self.now(), once=once)

    def values(self, figure: Figure, seconds: float) -> list[float]:
        """The datapoints of a figure over the last `seconds`, in no order.

        Raises:
            ClientError, BotoCoreError: CloudWatch does not tell them.
        """
        dimensions = [{"Name": key, "Value": value} for key, value in figure.dimensions.items()]
        metric = {"Namespace": figure.namespace, "MetricName": figure.metric, "Dimensions": dimensions}
        stat = {"Metric": metric, "Period": figure.period, "Stat": figure.stat}
        now = self.now()
        pages = self.client("cloudwatch").get_paginator("get_metric_data")
        found: list[float] = []
        for page in pages.paginate(
            MetricDataQueries=[{"Id": "q", "MetricStat": stat}],
            StartTime=datetime.fromtimestamp(now - seconds, UTC),
            EndTime=datetime.fromtimestamp(now, UTC),
        ):
            for result in page["MetricDataResults"]:
                found += map(float, result["Values"])
        return found


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of CloudWatch: which metric of what, folded how over each period (seconds)."""

    namespace: str
    metric: str
    dimensions: Mapping[str, str]
    stat: str
    period: int = 3600


class Aws:
    """Every account that the collector `aws` looks at."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._accounts: dict[str | None, Account] = {}

    def place(self, order: Order) -> Place:
        """Where the resource of an order lies, by its labels.

        Raises:
            Refused: a label cannot be read, or the place is not one of the collector's.
        """
        unreadable = sorted(
            name for name, value in order.labels.items() if value == "?" and name not in ASKED_ANEW
        )
        if unreadable:
            raise Refused(f"labels of {order.resource} cannot be read: {', '.join(unreadable)}")
        options = self._means.collectors.get("aws")
        if options is None:
            raise Refused("the policy file names no collector aws, which says how AWS is reached")
        region, account = order.labels.get("region"), order.labels.get("account")
        if not region and order.resource.kind == "job" and len(options.get("regions") or ()) == 1:
            # What runs on instances is not told by the collector, which looks at one region only.
            region = options["regions"][0]
        if not region:
            raise Refused(f"nothing says in which region {order.resource} lies")
        roles = {role.split(":")[4]: role for role in options.get("roles") or ()}
        if roles and account not in roles:
            raise Refused(f"no role is named for the account of {order.resource}")
        # Without roles the label, if there is one, is a tag of somebody.
        number = account if roles else None
        if number not in self._accounts:
            endpoint = options.get("endpoint_url") or options.get("endpoint-url")
            self._accounts[number] = Account(roles[number] if number else None, endpoint, MANNER)
        return Place(region, self._accounts[number], self._means.now)


def own_place(means: Means) -> Place:
    """This machine's own account, for what is no resource of the collector `aws`.

    Its region is the first of the collector's, else that of this machine's settings.
    """
    options = means.collectors.get("aws") or {}
    regions = options.get("regions") or (default_region() or "us-east-1",)
    endpoint = options.get("endpoint_url") or options.get("endpoint-url")
    return Place(regions[0], Account(None, endpoint, MANNER), means.now)


class AwsTarget:
    """What targets in AWS have in common: where, how failures are told, and how long is waited.

    A target looks in `found_at`, acts in `act_at`, and so on; what AWS refuses there is told here, with
    the state in which that leaves the resource.
    """

    def __init__(self, means: Means) -> None:
        self._means, self._aws = means, Aws(means)

    def find(self, order: Order) -> Found:
        """Look at the resource; changes nothing.

        Raises:
            Refused: it is gone, may not be acted on, or cannot be looked at.
        """
        place = self._aws.place(order)
        try:
            return self.found_at(place, order)
        except FAILURES as error:
            raise Refused(f"{order.resource} cannot be looked at: {reason(error)}") from error

    def act(self, order: Order, found: Found) -> Outcome:
        """Do it, wait for it, and look; what failed is told with what it left."""
        return self._told(self.act_at, order, found, settled="done")

    def look(self, order: Order, found: Found) -> Outcome:
        """What came of it; changes nothing."""
        try:
            return self.look_at(self._aws.place(order), order, found)
        except Refused as refused:
            return Outcome("unknown", refused.words)
        except FAILURES as error:
            return Outcome("unknown", f"cannot be looked at: {reason(error)}", retry=passing(error))

    def undo(self, order: Order, found: Found) -> Outcome:
        """Bring it back, and look."""
        return self._told(self.undo_at, order, found, settled="undone")

    def found_at(self, place: Place, order: Order) -> Found:
        """As `find`."""
        raise NotImplementedError

    def act_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """As `act`; may raise `Refused` for what was there to be found and is not any more."""
        raise NotImplementedError

    def look_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """As `look`."""
        raise NotImplementedError

    def undo_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """As `undo`."""
        raise NotImplementedError

    def wait(
        self, look: Callable[[], Seen], over: Callable[[Seen], bool], *, limit: float | None = None
    ) -> Seen:
        """Look again and again until it is over or the limit (seconds) is reached; gives the last look."""
        end = self._means.monotonic() + (LIMIT if limit is None else limit)
        while True:
            seen = look()
            if over(seen) or self._means.monotonic() >= end:
                return seen
            self._means.sleep(PAUSE)

    def _told(
        self, do: Callable[[Place, Order, Found], Outcome], order: Order, found: Found, *, settled: str
    ) -> Outcome:
        try:
            outcome = do(self._aws.place(order), order, found)
        except Refused as refused:
            return Outcome("skipped", refused.words)
        except FAILURES as error:
            left = self.look(order, found)
            if left.state == settled and not isinstance(error, ClientError):
                # It was done, and only the answer was lost.
                return replace(left, state="done")
            words = f"{reason(error)}; {left.words}"
            return Outcome("failed", words, after=left.after, retry=passing(error))
        if outcome.state == "undone":
            words = f"it was asked for and has not come true: {outcome.words}"
            return Outcome("failed", words, after=outcome.after, retry=True)
        return outcome


def tagging(kind: str, tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """TagSpecifications of something that is made; the tags of AWS itself cannot be given."""
    given = [{"Key": key, "Value": value} for key, value in tags.items() if not key.startswith("aws:")]
    return [{"ResourceType": kind, "Tags": given}]


def token(text: str) -> str:
    """A key against doing a thing twice, of the length that AWS takes."""
    return hashlib.sha256(text.encode()).hexdigest()


def plain(value: Any) -> Any:
    """What AWS answered as JSON values; times become text."""
    return json.loads(json.dumps(value, default=_text))


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def name_of(order: Order) -> str:
    """The name of a log group or a job; where several regions are looked at `@REGION` stands behind it."""
    return order.resource.id.partition("@")[0]
