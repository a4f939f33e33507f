"""What an alert says: at most twelve lines, facts first, money first, then what to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from stoploss.engine.alert_memory import Wanted
from stoploss.engine.costs.model import Waste
from stoploss.engine.costs.money import money
from stoploss.engine.evaluation.kleene import TRUE
from stoploss.engine.findings import Evidence, Finding, UnknownFinding
from stoploss.engine.incidents import Incident
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import Notice, ResourceId
from stoploss.engine.planning.model import ALERT, Decision
from stoploss.rules.policy import Policy
from stoploss.rules.units import format_duration, format_value

LINES = 12
LONGEST = 300
"""Characters of one line."""
EXEMPT_DAYS = 7
FIRING, RESOLVED, TEST = "firing", "resolved", "test"


def firing(
    finding: Finding,
    decisions: Iterable[Decision] = (),
    incident: Incident | None = None,
    *,
    at: datetime,
    zone: ZoneInfo,
) -> Notice:
    """What is told of a finding.

    Args:
        finding: what fires.
        decisions: the plan; those of other resources are left out.
        incident: the one that it belongs to, else None.
        at: the instant of the audit.
        zone: of the times in the text.
    """
    mine = [item for item in decisions if item.resource == finding.resource and item.action != ALERT]
    policy = finding.policy
    truths = [item for item in finding.evidence if item.truth == TRUE]
    others = [item for item in finding.evidence if item.truth != TRUE]
    lines = [
        f"{policy.name}: {finding.resource} · {_burn(finding.waste)}",
        policy.summary,
        f"owner: {_owner(finding)}",
        f"cost: {_cost(finding.waste)}",
        f"since: {_since(finding.since, at, zone)}",
        f"cause: {_cause(finding, incident)}",
        f"for: {_evidence(truths) or 'nothing that could be measured'}",
        f"against: {_against(others, incident)}",
        f"next: {_next(mine, at, zone)}",
        *_commands(finding, mine, at),
    ]
    return _notice(FIRING, finding, at, lines)


def resolved(finding: Finding, *, at: datetime, zone: ZoneInfo) -> Notice:
    """What is told when a finding is over: `finding` as it last was, `at` when it ended."""
    lost = "" if finding.waste is None else f" · {_so_far(finding.waste)}"
    lines = [
        f"resolved: {finding.policy.name}: {finding.resource}{lost}",
        f"from {_instant(finding.since, at, zone)} to {_instant(at, at, zone)} {_zone(at, zone)}, "
        f"{_age(at - finding.since)}",
    ]
    return _notice(RESOLVED, finding, at, lines)


def ended(item: Wanted, *, at: datetime) -> Notice:
    """What is told when a finding is over of which only the memory is left, as after a restart."""
    lines = (f"resolved: {item.policy}: {item.resource}",)
    return Notice(
        RESOLVED, item.finding, item.policy, item.resource, item.severity, at, _lines(lines), item.labels
    )


def undecided(item: UnknownFinding, *, at: datetime) -> Notice:
    """What is told of a policy that could not be decided for too long."""
    about = str(item.resource or f"every {item.policy.each}")
    lines = [
        f"{item.policy.name}: {about} · not known, so nothing is done",
        item.policy.summary,
        f"condition: {item.condition}" if item.condition else "",
        f"why: {item.reason}",
        _explain(item.policy.name, item.resource) if item.resource else "",
    ]
    key = f"unknown:{item.policy.name}:{about}"
    return Notice(FIRING, key, item.policy.name, about, item.policy.severity, at, _lines(lines))


def failure(decision: Decision, policy: Policy, waiting: Sequence[Decision], *, at: datetime) -> Notice:
    """What is told of a step that could not be done; `waiting` are the steps that need it."""
    about = str(decision.resource)
    held = ", ".join(dict.fromkeys(item.action for item in waiting))
    lines = [
        f"{policy.name}: {about} · {decision.action} failed, so nothing more is done",
        f"why: {decision.why}",
        f"waiting for it: {held}" if held else "",
        _explain(policy.name, decision.resource),
        shlex.join(["stoploss", "ledger", "list", "--resource", about]),
    ]
    key = f"failed:{decision.finding}:{decision.step}"
    return Notice(FIRING, key, policy.name, about, policy.severity, at, _lines(lines))


def backfired(intent: Entry, told: tuple[str, str], severity: str, *, at: datetime) -> Notice:
    """What is told of a step that made things dearer: `told` is what came of it, and why it stays."""
    about, policy = str(intent.resource), intent.policy or ""
    words, why = told
    lines = [
        f"{policy}: {about} · {intent.action} made it dearer",
        words,
        f"not taken back: {why}",
        shlex.join(["stoploss", "undo", str(intent.seq)]),
        shlex.join(["stoploss", "ledger", "list", "--resource", about]),
    ]
    return Notice(FIRING, f"backfired:{intent.seq}", policy, about, severity, at, _lines(lines))


def question(decision: Decision, policy: Policy, *, at: datetime, zone: ZoneInfo) -> Notice:
    """What is told of a step that a person has to decide."""
    request, about = decision.request, str(decision.resource)
    assert request is not None, "only what is asked has a question"
    saves = decision.saves_per_hour
    lines = [
        f"{policy.name}: {about} · {decision.action} needs a decision",
        policy.summary,
        f"why: {decision.why}",
        f"saves: {saves:,.2f}/h" if saves is not None else "",
        f"until: {_instant(request.valid_until, at, zone)} {_zone(at, zone)}",
        shlex.join(["stoploss", "approve", request.id, "--reason", "checked"]),
        shlex.join(["stoploss", "reject", request.id, "--reason", "still needed"]),
        _explain(policy.name, decision.resource),
    ]
    return Notice(FIRING, f"ask:{request.id}", policy.name, about, policy.severity, at, _lines(lines))


def incident(item: Incident, *, at: datetime) -> Notice:
    """What is told of findings that are one fact."""
    about = f"{item.label} {item.value}"
    lines = [f"{item.name}: {about} · {item.cause}", item.why, f"policies: {', '.join(item.policies)}"]
    return Notice(FIRING, item.id, item.name, about, "high", at, _lines(lines))


def storm(why: str, *, at: datetime) -> Notice:
    """What is told when much of a fleet turns idle or unknown at once."""
    lines = [f"storm: destructive steps are {why}", "Nothing is ended while it lasts; alerts go on."]
    return Notice(FIRING, "storm", "storm", "the fleet", "critical", at, _lines(lines))


def joined(key: str, notices: Sequence[Notice], *, more: str = "") -> Notice:
    """Several notices of one policy as one; `key` is the group's, `more` a last line.

    It fires while any of them does. One notice alone keeps its text.
    """
    open_ = [item for item in notices if item.event == FIRING]
    first = (open_ or notices)[0]
    event = FIRING if open_ else RESOLVED
    if len(notices) == 1:
        lines = _lines((*first.lines[: LINES - bool(more)], more))
        return Notice(event, key, first.policy, first.resource, first.severity, first.at, lines, first.labels)
    told = [item.title.removeprefix(f"{first.policy}: ") for item in (*open_, *_ended(notices))]
    room = LINES - 2 - bool(more)
    rest = [f"and {len(told) - room} more: stoploss audit"] if len(told) > room else []
    counts = (f"{len(open_)} firing", f"{len(notices) - len(open_)} resolved")
    title = f"{first.policy}: {', '.join(text for text in counts if not text.startswith('0 '))}"
    lines = _lines((title, *told[:room], *rest, more))
    about = f"{len(notices)} resources"
    return Notice(event, key, first.policy, about, first.severity, first.at, lines, first.labels)


def trial(receiver: str, *, at: datetime) -> Notice:
    """The message that shows whether a receiver can be reached."""
    lines = (
        "stoploss: a test message",
        f"It was sent to the receiver {receiver} by stoploss notify --test. Nothing is wrong.",
    )
    return Notice(TEST, "stoploss-test", "test", "none", "low", at, _lines(lines))


def _ended(notices: Iterable[Notice]) -> list[Notice]:
    return [item for item in notices if item.event != FIRING]


def _notice(event: str, finding: Finding, at: datetime, lines: Iterable[str]) -> Notice:
    policy, about = finding.policy, str(finding.resource)
    return Notice(event, finding.id, policy.name, about, policy.severity, at, _lines(lines), finding.labels)


def _lines(lines: Iterable[str]) -> tuple[str, ...]:
    """One line each, whatever labels and reasons hold; empty ones left out."""
    plain = (" ".join("".join(c if c.isprintable() else " " for c in line).split()) for line in lines)
    return tuple(line if len(line) <= LONGEST else line[: LONGEST - 1] + "…" for line in plain if line)[
        :LINES
    ]


def _burn(waste: Waste | None) -> str:
    if waste is None:
        return "no waste is named"
    if waste.per_hour is None:
        return "cost unknown"
    return f"{money(waste.per_hour, waste.currency)}/h, {_so_far(waste)}"


def _so_far(waste: Waste) -> str:
    return "cost unknown" if waste.so_far is None else f"{money(waste.so_far, waste.currency)} so far"


def _cost(waste: Waste | None) -> str:
    if waste is None:
        return "the policy names no waste"
    if waste.per_hour is None:
        return f"unknown: {waste.missing or 'no price'}"
    return f"{waste.how or _burn(waste)}" + (f" ({waste.source})" if waste.source else "")


def _owner(finding: Finding) -> str:
    said = [finding.labels[name] for name in ("user", "team") if finding.labels.get(name, "?") != "?"]
    return ", ".join(item for item in said if item) or "unknown"


def _cause(finding: Finding, incident: Incident | None) -> str:
    if incident is None:
        return finding.cause or "undecided"
    between = f" between {' and '.join(incident.between)}" if incident.between else ""
    return f"{incident.cause}{between}: {incident.why}"


def _against(others: Sequence[Evidence], incident: Incident | None) -> str:
    unknown = [f"{name} is not known" for name in incident.unknown] if incident else []
    return " · ".join(text for text in (_evidence(others), *unknown) if text) or "nothing"


def _evidence(items: Iterable[Evidence]) -> str:
    return " · ".join(_told(item) for item in items)


def _told(item: Evidence) -> str:
    if item.value is None:
        return f"{item.condition}: unknown" if item.truth != TRUE else item.condition
    shown = item.value if isinstance(item.value, str) else format_value(item.value, item.unit or "1")
    return f"{item.condition}: {shown}" + (f" ({item.note})" if item.note else "")


def _next(decisions: Sequence[Decision], at: datetime, zone: ZoneInfo) -> str:
    steps = []
    for item in decisions:
        if item.verdict in ("done", "skipped"):
            continue
        when = "" if item.due is None else " now" if item.due <= at else f" {_instant(item.due, at, zone)}"
        steps.append(f"{item.action}{when}" + (f" ({item.verdict}: {item.why})" if item.whys else ""))
    if not steps:
        return "nothing is done by itself"
    return ", ".join(dict.fromkeys(steps)) + f" {_zone(at, zone)}"


def _commands(finding: Finding, decisions: Sequence[Decision], at: datetime) -> list[str]:
    """Three at most, each quoted: a name may hold what a shell would run."""
    resource, policy = finding.resource, finding.policy.name
    job = resource.id if resource.kind == "job" else finding.labels.get("job", "")
    request = next((item.request for item in decisions if item.request is not None), None)
    until = (at + timedelta(days=EXEMPT_DAYS)).date().isoformat()
    commands = [_explain(policy, resource)]
    if job and job != "?":
        commands.append(shlex.join(["stoploss", "keep", job, "--for", "4h", "--reason", "still needed"]))
    if request is not None:
        commands.append(shlex.join(["stoploss", "approve", request.id, "--reason", "checked"]))
    else:
        escaped = resource.id.replace("\\", "\\\\").replace('"', '\\"')
        where = f'id == "{escaped}"'
        said = ["--where", where, "--until", until, "--reason", "by design", "--owner", _owner(finding)]
        commands.append(shlex.join(["stoploss", "exempt", policy, *said]))
    return commands


def _explain(policy: str, resource: ResourceId) -> str:
    return shlex.join(["stoploss", "explain", "--policy", policy, "--resource", str(resource)])


def _since(since: datetime, at: datetime, zone: ZoneInfo) -> str:
    return f"{_instant(since, at, zone)} {_zone(at, zone)} ({_age(at - since)})"


def _instant(when: datetime, at: datetime, zone: ZoneInfo) -> str:
    """The time of day, with its date where that is another day."""
    local = when.astimezone(zone)
    return f"{local:%H:%M}" if local.date() == at.astimezone(zone).date() else f"{local:%Y-%m-%d %H:%M}"


def _zone(at: datetime, zone: ZoneInfo) -> str:
    return at.astimezone(zone).tzname() or str(zone)


def _age(age: timedelta) -> str:
    return format_duration(max(0.0, age.total_seconds()))
