"""What may be asked: the result in its parts, the ledger, costs, and decisions of people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from stoploss.api import ledger_pages
from stoploss.api.calls import Call
from stoploss.api.listing import closed, listed, part, place_of
from stoploss.engine.canonical import named
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import ResourceId
from stoploss.engine.people_schema import Keep, Pause, Request, RuntimeExemption
from stoploss.reports import ledger_json
from stoploss.reports.audit_json import instant
from stoploss.rules.policy import Exemption

Item = Mapping[str, Any]


def audit(call: Call) -> dict[str, Any]:
    """The whole result, as `stoploss audit --format json` says it."""
    return call.seen.said


def findings(call: Call) -> dict[str, Any]:
    """Findings, as they stand in the audit."""
    return _chosen(call, "findings", lambda item: str(item["id"]), ("policy", "state", "severity"))


def incidents(call: Call) -> dict[str, Any]:
    """Incidents."""
    return _chosen(call, "incidents", lambda item: str(item["id"]))


def plan(call: Call) -> dict[str, Any]:
    """The decisions of the plan."""
    found = _chosen(call, "decisions", lambda item: str(item["id"]), ("policy", "verdict"))
    return {**found, "totals": call.seen.said["totals"]}


def unknown(call: Call) -> dict[str, Any]:
    """What could not be decided."""

    def name(item: Item) -> str:
        resource = item["resource"] or {}
        return named("u", item["policy"], str(resource), str(item["condition"]), item["reason"])

    return _chosen(call, "unknown", name, ("policy", "code"))


def _chosen(call: Call, key: str, name: Callable[[Item], str], filters: Sequence[str] = ()) -> dict[str, Any]:
    said = call.seen.said
    wanted = [(word, call.query[word]) for word in filters if word in call.query]
    items: list[Item] = [item for item in said[key] if all(item[word] == value for word, value in wanted)]
    shown, after = part(items, call.query["limit"], call.query.get("cursor"), name)
    return listed(key, shown, after, at=said["at"], mode=said["mode"])


def ledger(call: Call) -> dict[str, Any]:
    """Lines of the ledger, the newest first."""
    cursor = call.query.get("cursor")
    wanted = [
        (name, call.query[name]) for name in ("kind", "episode", "policy", "resource") if name in call.query
    ]
    entries, after = lines(
        call, call.query["limit"], None if cursor is None else place_of(cursor), wanted=wanted
    )
    return listed(
        "lines",
        [ledger_json.as_dict(entry) for entry in entries],
        None if after is None else closed(after, ""),
    )


def lines(
    call: Call, limit: int, before: int | None = None, *, wanted: Sequence[tuple[str, str]] = ()
) -> tuple[list[Entry], int | None]:
    """Lines of the ledger that the caller may see, the newest first.

    Raises:
        StoreError: the ledger cannot be read.
    """

    def shown(entry: Entry) -> bool:
        return call.seen.whose.of(entry.resource, entry.episode) == call.team

    return ledger_pages.before(
        call.service.ledger, before, limit, wanted=wanted, shown=None if call.team is None else shown
    )


def costs(call: Call) -> dict[str, Any]:
    """The statement of costs."""
    return {"version": 1, "total": None, **call.seen.costs}


def approvals(call: Call) -> dict[str, Any]:
    """Requests to people, the newest first."""
    state = call.query.get("state")
    items = [item for item in requests(call) if state is None or item.state(call.now) == state]
    shown, after = part(items, call.query["limit"], call.query.get("cursor"), lambda item: item.id)
    return listed("approvals", [request(item, call.now) for item in shown], after)


def requests(call: Call) -> tuple[Request, ...]:
    """The requests that the caller may see, the newest first.

    Raises:
        StoreError: the state cannot be read.
    """
    whose = call.seen.whose
    return tuple(
        item
        for item in call.people.requests()
        if call.seen.mine(whose.of(item.wanted.resource, item.wanted.episode))
    )


def request(item: Request, now: datetime) -> dict[str, Any]:
    """A request as JSON values."""
    wanted = item.wanted
    return {
        "id": item.id,
        "state": item.state(now),
        "finding": wanted.episode,
        "policy": wanted.policy,
        "resource": resource(wanted.resource),
        "action": wanted.action,
        "target": wanted.target,
        "parameters": dict(wanted.parameters),
        "asked": instant(item.asked),
        "answered": None if item.answered is None else instant(item.answered),
        "who": item.who,
        "reason": item.reason,
    }


def keeps(call: Call) -> dict[str, Any]:
    """Jobs that are kept now."""
    items = [
        item for item in call.people.keeps(now=call.now) if call.seen.mine(call.seen.whose.job(item.job))
    ]
    shown, after = part(
        items, call.query["limit"], call.query.get("cursor"), lambda item: named("k", item.job)
    )
    return listed("keeps", [kept(item) for item in shown], after)


def kept(item: Keep) -> dict[str, Any]:
    """A keep as JSON values."""
    return {**asdict(item), "since": instant(item.since), "until": instant(item.until)}


def exemptions(call: Call) -> dict[str, Any]:
    """Exemptions, those of the policy files first; those that have expired included."""
    items = [_written(item) for item in call.service.policies.exemptions if call.team is None]
    items += [
        exempted(item) for item in call.people.exemptions() if call.team is None or own(item.where, call.team)
    ]
    shown, after = part(items, call.query["limit"], call.query.get("cursor"), lambda item: str(item["id"]))
    return listed("exemptions", shown, after)


def scoped(where: str, team: str) -> str:
    """A condition that holds for resources of one team alone."""
    return f'team == "{team}" and ({where})'


def own(where: str, team: str) -> bool:
    """Whether an exemption was made for resources of one team alone."""
    return where.startswith(scoped("", team).removesuffix(")"))


def exempted(item: RuntimeExemption) -> dict[str, Any]:
    """An exemption that a person made, as JSON values."""
    return {**asdict(item), "since": instant(item.since), "source": "state"}


def _written(item: Exemption) -> dict[str, Any]:
    return {
        "id": named("e", item.policy, item.where.text, item.expires, str(item.position)),
        "policy": item.policy,
        "where": item.where.text,
        "reason": item.reason,
        "owner": item.owner,
        "expires": item.expires,
        "who": None,
        "since": None,
        "source": "file",
    }


def pause(call: Call) -> dict[str, Any]:
    """Whether anything is carried out."""
    return paused(call.people.paused())


def paused(item: Pause | None) -> dict[str, Any]:
    """A pause, or that there is none, as JSON values."""
    said = {"version": 1, "paused": item is not None}
    if item is None:
        return {**said, "reason": None, "since": None, "who": None}
    since = None if item.since is None else instant(item.since)
    return {**said, "reason": item.reason, "since": since, "who": item.who}


def resource(item: ResourceId) -> dict[str, str]:
    """A resource as JSON values."""
    return {"kind": item.kind, "id": item.id}
