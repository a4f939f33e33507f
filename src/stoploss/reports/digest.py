"""What a stretch of time was for a team: at most twelve lines for people, and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any

from stoploss.engine.costs.money import money
from stoploss.reports.audit_json import instant
from stoploss.reports.counts import count

WIDTH = 80
MOST_LINES = 12
INDENT = 10
"""Columns of the word before what is said."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A step that waits for an answer; money per hour in `currency`, None is unknown."""

    id: str
    words: str
    per_hour: float | None
    currency: str | None


@dataclass(frozen=True, slots=True)
class Until:
    """Something that holds until an instant or a day: a keep or an exemption."""

    words: str
    until: str
    who: str
    reason: str


@dataclass(frozen=True, slots=True)
class Spent:
    """What the recorded signals cost: money by price kind, GPU-hours, and how many of them were useful."""

    money: Mapping[str, float]
    currency: str
    gpu_hours: float
    useful_hours: float
    unpriced_hours: float


@dataclass(slots=True)
class Team:
    """One team's part. `name` is None for what no team is known of.

    Attributes:
        findings: policy -> how many were true in that time.
        done: action -> how often it was done.
        failed: action -> how often it failed.
        would: action -> how often only the mode keeps it from being done.
        held: action -> how often a guard holds it back, beside those that wait for an answer.
        would_save: currency -> money per hour that both would save; of one resource the largest.
        undone: how many steps were taken back.
        promised: currency -> money per hour that the steps were to save; of one resource the largest.
        unpriced: steps that were done and of which no promise is known.
        brought: currency -> money per hour that was measured.
        measured: steps of which it was measured.
        told, untold: messages that arrived, and that did not.
        waits: what waits for an answer, the dearest first.
        kept, exempt: what is spared now; exemptions where they end soon.
        spent: what the signals cost; None where none are given, or none are of this team.
    """

    name: str | None
    findings: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    would: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    would_save: dict[str, float] = field(default_factory=dict)
    undone: int = 0
    promised: dict[str, float] = field(default_factory=dict)
    unpriced: int = 0
    brought: dict[str, float] = field(default_factory=dict)
    measured: int = 0
    told: int = 0
    untold: int = 0
    waits: list[Asked] = field(default_factory=list)
    kept: list[Until] = field(default_factory=list)
    exempt: list[Until] = field(default_factory=list)
    spent: Spent | None = None

    @property
    def title(self) -> str:
        """Whose it is, in words."""
        return "no team known" if self.name is None else self.name


@dataclass(frozen=True, slots=True)
class Digest:
    """All teams from `since` to `until`.

    `paused` says why nothing is carried out now, `recorded` whether signals were given.
    """

    since: datetime
    until: datetime
    teams: Sequence[Team]
    paused: str | None = None
    recorded: bool = False


def lines(digest: Digest, team: Team, zone: tzinfo) -> tuple[str, ...]:
    """A team's part, the first line its title."""
    begin, end = (f"{when.astimezone(zone):%Y-%m-%d}" for when in (digest.since, digest.until))
    said = [_title(team.title, begin, end)]
    said.append(_line("found", _counted(team.findings, "finding", "nothing")))
    said.append(_line("done", _done(team)))
    if team.done:
        said.append(_line("saved", _saved(team)))
    if team.would or team.held:
        amount = f"would save {_amounts(team.would_save)}" if team.would_save else ""
        said.append(_line("not done", amount, _undone(team)))
    if team.told or team.untold:
        lost = f", {team.untold} not delivered" if team.untold else ""
        said.append(_line("told", f"{count(team.told, 'message')}{lost}"))
    if team.waits:
        said.append(_line("waits", *_waits(team.waits)))
    if team.kept:
        said.append(
            _line("kept", "", [f"{item.words} until {item.until} by {item.who}" for item in team.kept])
        )
    if team.exempt:
        said.append(
            _line("exempt", "", [f"{item.words} ends {item.until} ({item.who})" for item in team.exempt])
        )
    if digest.paused is not None:
        said.append(_line("paused", f"nothing is carried out: {digest.paused}"))
    said.append(_line("costs", _spent(digest, team)))
    unknown = _unknown(team)
    if unknown:
        said.append(_line("unknown", "", unknown))
    assert len(said) <= MOST_LINES, "one line for each word"
    return tuple(said)


def as_text(digest: Digest, zone: tzinfo) -> str:
    """All teams, with an empty line between two."""
    if not digest.teams:
        return f"stoploss digest · nothing was found or done since {digest.since.astimezone(zone):%Y-%m-%d}\n"
    return "\n\n".join("\n".join(lines(digest, team, zone)) for team in digest.teams) + "\n"


def as_json(digest: Digest, sent: Mapping[str, Any] | None = None) -> str:
    """The same for programs; null is unknown."""
    data: dict[str, Any] = {
        "version": 1,
        "since": instant(digest.since),
        "until": instant(digest.until),
        "paused": digest.paused,
        "teams": [_values(team) for team in digest.teams],
    }
    if sent is not None:
        data["sent"] = sent
    return json.dumps(data, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _values(team: Team) -> dict[str, Any]:
    spent = team.spent
    return {
        "team": team.name,
        "found": team.findings,
        "done": team.done,
        "failed": team.failed,
        "undone": team.undone,
        "would": team.would,
        "held": team.held,
        "would_save_per_hour": team.would_save or None,
        "promised_per_hour": team.promised or None,
        "without_promise": team.unpriced,
        "brought_per_hour": team.brought or None,
        "measured": team.measured,
        "told": team.told,
        "not_delivered": team.untold,
        "waits": [
            {"id": item.id, "step": item.words, "saves_per_hour": item.per_hour, "currency": item.currency}
            for item in team.waits
        ],
        "kept": [_until(item) for item in team.kept],
        "exempt": [_until(item) for item in team.exempt],
        "costs": None
        if spent is None
        else {
            "money": dict(spent.money) or None,
            "currency": spent.currency,
            "gpu_hours": spent.gpu_hours,
            "useful_gpu_hours": spent.useful_hours,
            "gpu_hours_without_price": spent.unpriced_hours,
        },
    }


def _until(item: Until) -> dict[str, str]:
    return {"what": item.words, "until": item.until, "who": item.who, "reason": item.reason}


def _title(name: str, begin: str, end: str) -> str:
    return _cut(_plain(f"stoploss digest · {name} · {begin} to {end}"))


def _line(word: str, said: str, items: Sequence[str] = ()) -> str:
    """One line of at most 80 columns; of items as many as there is room for, and how many more there are."""
    start = f"{word:<{INDENT}}{said}"
    plain = [_plain(item) for item in items]
    for shown in range(len(plain), 0, -1):
        more = f", and {len(plain) - shown} more" if shown < len(plain) else ""
        whole = f"{start}{': ' if said else ''}{', '.join(plain[:shown])}{more}"
        if len(whole) <= WIDTH or shown == 1:
            return _cut(whole, more)
    return _cut(_plain(start))


def _cut(text: str, tail: str = "") -> str:
    if len(text) <= WIDTH:
        return text
    body = text.removesuffix(tail) if tail else text
    return body[: WIDTH - 1 - len(tail)] + "…" + tail


def _plain(text: str) -> str:
    # What others wrote must not steer the terminal, nor add lines.
    return "".join(c if c.isprintable() else "�" for c in text)


def _counted(counts: Mapping[str, int], word: str, none: str) -> str:
    if not counts:
        return none
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return f"{count(sum(counts.values()), word)}: " + ", ".join(f"{name} {n}" for name, n in ranked)


def _done(team: Team) -> str:
    parts = [_counted(team.done, "step", "nothing")]
    if team.failed:
        which = ", ".join(f"{name} {n}" for name, n in sorted(team.failed.items()))
        parts.append(f"tries that failed: {which}")
    if team.undone:
        parts.append(f"{team.undone} taken back")
    return "; ".join(parts)


def _undone(team: Team) -> list[str]:
    told = []
    for counts, word in ((team.held, "guard"), (team.would, "mode")):
        told += [f"{name} {n} ({word})" for name, n in sorted(counts.items())]
    return told


def _amounts(amounts: Mapping[str, float], end: str = "/h") -> str:
    return " + ".join(f"{money(amount, currency)}{end}" for currency, amount in sorted(amounts.items()))


def _saved(team: Team) -> str:
    promised = f"promised {_amounts(team.promised)}" if team.promised else "what was promised is not known"
    if not team.measured:
        return f"{promised}; what it brought was not measured"
    brought = _amounts(team.brought) if team.brought else "an unknown amount"
    return f"{promised}; {count(team.measured, 'step')} measured: {brought}"


def _waits(waits: Sequence[Asked]) -> tuple[str, list[str]]:
    known: dict[str, float] = {}
    for item in waits:
        if item.per_hour is not None and item.currency is not None:
            known[item.currency] = known.get(item.currency, 0.0) + item.per_hour
    amount = f", {_amounts(known)}" if known else ""
    return f"{len(waits)} for an answer{amount}", [f"{item.words} ({item.id})" for item in waits]


def _spent(digest: Digest, team: Team) -> str:
    spent = team.spent
    if spent is None:
        return (
            "not known: none of the signals is of this team"
            if digest.recorded
            else "not known: give --signals"
        )
    kinds = [f"{money(amount, spent.currency)} {kind}" for kind, amount in sorted(spent.money.items())]
    useful = f", {spent.useful_hours / spent.gpu_hours:.0%} useful" if spent.gpu_hours else ""
    return f"{', '.join(kinds) or 'no price is known'} for {spent.gpu_hours:,.1f} GPU-hours{useful}"


def _unknown(team: Team) -> list[str]:
    told: list[tuple[bool, Callable[[], str]]] = [
        (bool(team.unpriced), lambda: f"what {count(team.unpriced, 'step')} save"),
        (
            any(item.per_hour is None for item in team.waits),
            lambda: f"what {sum(item.per_hour is None for item in team.waits)} of those that wait would save",
        ),
        (
            team.spent is not None and team.spent.unpriced_hours > 0,
            lambda: f"the price of {team.spent.unpriced_hours if team.spent else 0:,.1f} GPU-hours",
        ),
        (team.name is None, lambda: "whose these are: no line holds the label team"),
    ]
    return [say() for holds, say in told if holds]
