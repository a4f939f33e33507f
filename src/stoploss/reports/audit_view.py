"""What a page says about an audit, as texts: the words and sums, without the markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from markupsafe import Markup

from stoploss.engine.audit import Audit
from stoploss.engine.costs.model import Amount, Waste
from stoploss.engine.costs.money import figure, money
from stoploss.engine.evaluation.kleene import FALSE, TRUE
from stoploss.engine.findings import Evidence, Finding
from stoploss.engine.model import ResourceId
from stoploss.reports import svg
from stoploss.reports.counts import count
from stoploss.rules.policy import Policy, Step
from stoploss.rules.units import SYMBOLS, format_duration, format_value

SHOWN = 200
"""Findings on the page, the dearest first; all of them are in csv and json."""
GROUPS = 100
"""Groups of unknowns, and policies, on the page."""
PARTS = 6
"""Parts of a stacked bar; the others are one part more."""
TRUTHS = {TRUE: "true", FALSE: "false"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the large figures at the top: what it is, its value, and what to know about it."""

    label: str
    value: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a whole: its name, its amount, its share of all, and the opacity of its colour."""

    name: str
    amount: str
    share: str
    tint: float


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A whole cut by policy, team or cause."""

    title: str
    unit: str
    bar: Markup
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """A condition, what it came to, and on how many samples."""

    condition: str
    value: str
    samples: str


@dataclass(frozen=True, slots=True)
class Row:
    """A finding."""

    finding: Finding
    word: str
    per_hour: str
    so_far: str
    age: str
    since: str
    notes: tuple[str, ...]
    facts: tuple[Fact, ...]
    cost: str


@dataclass(frozen=True, slots=True)
class Group:
    """Unknowns of one policy for one reason."""

    policy: str
    reason: str
    count: int
    names: str


@dataclass(frozen=True, slots=True)
class View:
    """The page."""

    audit: Audit
    when: str
    scope: str
    figures: tuple[Figure, ...]
    breakdowns: tuple[Breakdown, ...]
    states: str
    rows: tuple[Row, ...]
    priced: bool
    more: int
    saves: tuple[str, ...]
    steps: tuple[tuple[str, tuple[str, ...]], ...]
    unknown: tuple[Group, ...]
    more_unknown: int
    unpriced: tuple[tuple[str, int], ...]
    prices: tuple[str, ...]
    policies: tuple[Policy, ...]


def view(audit: Audit) -> View:
    """Everything that the page says."""
    zone = ZoneInfo(audit.timezone)
    ranked = sorted(audit.findings, key=_rank)
    groups = _unknown(audit)
    states = Counter(_state(finding) for finding in audit.findings)
    firing = audit.firing
    return View(
        audit,
        _time(audit.at, zone),
        ", ".join(count(number, kind) for kind, number in audit.resources.items()) or "no resources",
        _figures(audit),
        _breakdowns(audit),
        " · ".join(f"{states[word]:,} {word}" for word in ("firing", "pending", "exempt") if states[word]),
        tuple(_row(audit, finding, zone) for finding in ranked[:SHOWN]),
        any(finding.waste is not None for finding in ranked),
        max(0, len(ranked) - SHOWN),
        tuple(
            f"{money(amount.saves_per_hour, audit.totals.currency)}/h{_of_kind(audit.totals.by_kind, kind)}"
            for kind, amount in _kinds(audit)
            if amount.saves_per_hour
        ),
        _steps(firing),
        tuple(groups[:GROUPS]),
        max(0, len(groups) - GROUPS),
        tuple(_unpriced(firing).most_common(GROUPS)),
        tuple(sorted({_price(f.waste) for f in firing if f.waste is not None and f.waste.source}))[:GROUPS],
        audit.policies[:GROUPS],
    )


def _state(finding: Finding) -> str:
    if finding.exemption is not None:
        return "exempt"
    return "pending" if finding.state == "pending" else "firing"


def _rank(finding: Finding) -> tuple[int, bool, float]:
    """Firing before pending before exempt, then by money, what has no price last."""
    per_hour = finding.waste.per_hour if finding.waste else None
    order = ("firing", "pending", "exempt").index(_state(finding))
    return order, per_hour is None, -(per_hour or 0.0)


def _kinds(audit: Audit) -> list[tuple[str, Amount]]:
    return sorted(audit.totals.by_kind.items(), key=lambda item: (-item[1].per_hour, item[0]))


def _of_kind(kinds: Mapping[str, Amount], kind: str) -> str:
    return f" {kind}" if len(kinds) > 1 else ""


# ---- the figures -----------------------------------------------------------------------


def _figures(audit: Audit) -> tuple[Figure, ...]:
    kinds, firing = _kinds(audit), audit.firing
    currency = audit.totals.currency
    missing = _missing(audit)
    unknown = Figure("not known", f"{len(audit.unknown):,}", ("checks that could not be decided",))
    if not firing:
        # Nothing is only nothing where everything could be decided.
        word = "nothing known" if audit.unknown or audit.degraded else "nothing"
        note = ("no policy fires",)
        return Figure("burning now", word, note), Figure("so far", word, note), unknown
    if not kinds:
        return Figure("burning now", "unknown", missing), Figure("so far", "unknown", missing), unknown
    (kind, first), *others = kinds
    now = [f"{money(a.per_hour, currency)}/h {name}, not added" for name, a in others]
    so_far = [f"{money(a.so_far, currency)} {name}, not added" for name, a in others]
    return (
        Figure("burning now", f"{money(first.per_hour, currency)}/h", (f"at {kind} prices", *now, *missing)),
        Figure("so far", money(first.so_far, currency), ("since each finding began", *so_far)),
        unknown,
    )


def _missing(audit: Audit) -> tuple[str, ...]:
    without = audit.totals.without_price
    if without:
        return (f"the cost of {count(without, 'finding')} is unknown",)
    return () if audit.totals.by_kind else ("no policy that fires says what it wastes",)


def _breakdowns(audit: Audit) -> tuple[Breakdown, ...]:
    """By policy, team and cause: in money where there is any, else in findings."""
    totals, firing = audit.totals, audit.firing
    if totals.by_kind:
        sums: list[Mapping[str, float]] = [totals.by_policy, totals.by_team, totals.by_cause]
        unit = f"{SYMBOLS.get(totals.currency, totals.currency)}/h"
    else:
        sums = [
            Counter(finding.policy.name for finding in firing),
            Counter(finding.labels.get("team", "no team") for finding in firing),
            Counter(finding.cause or "undecided" for finding in firing),
        ]
        unit = "findings"
    titles = ("By policy", "By team", "By cause")
    return tuple(
        _breakdown(title, unit, amounts) for title, amounts in zip(titles, sums, strict=True) if amounts
    )


def _breakdown(title: str, unit: str, amounts: Mapping[str, float]) -> Breakdown:
    parts = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))
    if len(parts) > PARTS + 1:
        rest = parts[PARTS:]
        parts = [*parts[:PARTS], (f"{len(rest)} others", sum(amount for _, amount in rest))]
    total = sum(amount for _, amount in parts)
    return Breakdown(
        title,
        unit,
        svg.stacked_bar([amount for _, amount in parts]),
        tuple(
            Part(
                name,
                f"{amount:,.0f}" if unit == "findings" else figure(amount),
                f"{amount / total:.0%}" if total else "0%",
                svg.tint(number),
            )
            for number, (name, amount) in enumerate(parts)
        ),
    )


# ---- the findings ----------------------------------------------------------------------


def _row(audit: Audit, finding: Finding, zone: ZoneInfo) -> Row:
    state, waste = _state(finding), finding.waste
    return Row(
        finding,
        finding.policy.severity if state == "firing" else state,
        _amount(waste, waste.per_hour if waste else None),
        _amount(waste, waste.so_far if waste else None),
        format_duration(max(0.0, (audit.at - finding.since).total_seconds())),
        _time(finding.since, zone),
        tuple(_notes(finding, zone)),
        tuple(_fact(item) for item in finding.evidence),
        _cost(waste),
    )


def _amount(waste: Waste | None, value: float | None) -> str:
    if waste is None:
        return "–"
    return "unknown" if value is None else money(value, waste.currency)


def _notes(finding: Finding, zone: ZoneInfo) -> Iterator[str]:
    if finding.exemption is not None:
        yield f"exempt through {finding.exemption.expires}: {finding.exemption.reason}"
    if finding.expired is not None:
        yield f"its exemption expired {finding.expired.expires}"
    if finding.stale_since is not None:
        yield f"nothing is known of it since {_time(finding.stale_since, zone)}"
    if finding.state == "holding":
        yield "cleared, and held for a while"


def _fact(item: Evidence) -> Fact:
    if isinstance(item.value, str):
        value = item.value
    elif item.value is not None:
        value = format_value(item.value, item.unit or "1")
    else:
        value = TRUTHS.get(item.truth, "unknown")
    samples = "" if item.samples is None or item.of is None else f"{item.samples} of {item.of} samples"
    return Fact(item.condition, value, samples)


def _cost(waste: Waste | None) -> str:
    """How the amount came about, or why there is none."""
    if waste is None:
        return ""
    if waste.missing:
        return f"cost unknown: {waste.missing}"
    return " · ".join(part for part in (waste.how, _price(waste)) if part)


def _price(waste: Waste) -> str:
    return (waste.source or "") + (f" ({waste.kind})" if waste.kind else "")


def _steps(firing: Iterable[Finding]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What the policies that fire would do, and which of them say the same."""
    steps: dict[str, dict[str, None]] = {}
    for finding in firing:
        if finding.policy.steps:
            words = ", ".join(_step(step) for step in finding.policy.steps)
            steps.setdefault(words, {})[finding.policy.name] = None
    return tuple((words, tuple(names)) for words, names in steps.items())


def _step(step: Step) -> str:
    after = f" after {format_duration(step.after)}" if step.after else ""
    return step.action + after + (" with approval" if step.approve else "")


# ---- what is not known -----------------------------------------------------------------


def _unknown(audit: Audit) -> list[Group]:
    groups: dict[tuple[str, str], list[ResourceId | None]] = {}
    for item in audit.unknown:
        groups.setdefault((item.policy.name, item.reason), []).append(item.resource)
    return [
        Group(policy, reason, len(resources), _names(resources))
        for (policy, reason), resources in groups.items()
    ]


def _names(resources: Sequence[ResourceId | None]) -> str:
    named = [str(resource) for resource in resources if resource is not None]
    rest = len(named) - 3
    return ", ".join(named[:3]) + (f" and {rest:,} more" if rest > 0 else "")


def _unpriced(firing: Iterable[Finding]) -> Counter[str]:
    return Counter(f.waste.missing for f in firing if f.waste is not None and f.waste.missing)


def _time(when: datetime, zone: ZoneInfo) -> str:
    local = when.astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M} {local.tzname()}"
