"""`stoploss digest`: a week in a few lines for each team."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

import click

from stoploss.cli import sources
from stoploss.cli import state as states
from stoploss.cli.exits import CLEAN, DEGRADED, UserError, read_option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stoploss.actions.contract import Result
    from stoploss.engine.ledger import Ledger
    from stoploss.engine.ledger_schema import Entry
    from stoploss.engine.model import ResourceId
    from stoploss.engine.people import People
    from stoploss.reports.digest import Digest, Team
    from stoploss.rules.policy import PolicySet

SOON = timedelta(days=14)
"""Exemptions that end within this time are told."""
_Dearest = dict[tuple["str | None", str, str], float]
"""Team, currency and resource -> the largest amount."""
_Step = tuple["str | None", "str | None", "str | None"]
"""Episode, action and target."""
NO_PROMISE = frozenset({"snapshot", "exec", "resume"})
"""Actions that by themselves save nothing."""


@click.command()
@click.option("--team", metavar="TEAM", help="Only this team.")
@click.option("--since", metavar="SPAN", default="7d", show_default=True, help="How far it looks back.")
@click.option("--send", is_flag=True, help="Tell the receiver of notify: that is named as the team.")
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
@sources.signals_option
@states.options
def digest(
    team: str | None,
    since: str,
    send: bool,
    format_: str,
    signals: tuple[str, ...],
    state: str | None,
    files: tuple[str, ...],
) -> int:
    """Say what was found, done, promised and brought in a week, and what waits: team by team.

    All of it comes from the ledger; costs from --signals, where they are given. Twelve lines a team
    at most; what is not known is said to be unknown. Without --send nobody is told.

    Exit status: 0, 2 bad input or no ledger, 4 a message was not delivered.
    """
    from stoploss.engine import clock
    from stoploss.reports import digest as report
    from stoploss.rules.units import parse_duration

    span = read_option("--since", since, parse_duration)
    place = states.place(state, files)
    loaded = _loaded(files, needed=send or bool(signals))
    now = clock.now()
    told = _Gathering(loaded, now - timedelta(seconds=span), now, _costs(loaded, signals)).digest(
        place.url, team
    )
    results = _sent(told, loaded, place) if send else None
    if format_ == "json":
        sent = None if results is None else {name: _result(item) for name, item in results.items()}
        click.echo(report.as_json(told, sent), nl=False)
    else:
        click.echo(report.as_text(told, place.zone), nl=False)
        for name, item in (results or {}).items():
            words = item.words if item.delivered else f"not delivered: {item.words}"
            click.echo(f"{name}: {words}", err=True)
    return CLEAN if all(item.delivered for item in (results or {}).values()) else DEGRADED


def _loaded(files: tuple[str, ...], *, needed: bool) -> PolicySet:
    from stoploss.cli import loading
    from stoploss.rules.policy import PolicySet

    if needed or files or os.path.exists(loading.DEFAULT_FILE):
        return loading.policies(files, "digest --file")
    return PolicySet(())


@dataclass(frozen=True, slots=True)
class _Costs:
    """What recorded signals cost, by team, and whose the jobs in them are."""

    spent: Mapping[str, object]
    teams: Mapping[str, str]
    recorded: bool = False


def _costs(loaded: PolicySet, signals: tuple[str, ...]) -> _Costs:
    if not signals:
        return _Costs({}, {})
    from stoploss.engine.costs.statement import NOBODY, statement
    from stoploss.reports.digest import Spent
    from stoploss.rules.catalogue import catalogue

    source = sources.source_of(loaded, signals, at=None, watch=None)
    made = statement(source.frames(loaded.settings.resolution), loaded, catalogue())
    spent = {
        name: Spent(
            dict(sums.money), made.currency or "USD", sums.gpu_hours, sums.useful_hours, sums.unpriced_hours
        )
        for name, sums in made.grouped("team").items()
        if name != NOBODY["team"]
    }
    teams = {line.key.job: line.key.team for line in made.entries if line.key.job and line.key.team}
    return _Costs(spent, teams, recorded=True)


class _Gathering:
    """Reads a ledger once and gives each team its part."""

    def __init__(self, loaded: PolicySet, since: datetime, now: datetime, costs: _Costs) -> None:
        self._loaded, self._since, self._now, self._costs = loaded, since, now, costs
        self._teams: dict[str | None, Team] = {}
        self._of_episode: dict[str, str] = {}
        self._of_resource: dict[str, str] = {f"job {job}": team for job, team in costs.teams.items()}

    def digest(self, url: str, only: str | None) -> Digest:
        """The digest of every team, or of one.

        Raises:
            UserError: there is no ledger, or it cannot be read.
        """
        from stoploss.engine.people import People
        from stoploss.reports.digest import Digest

        with states.ledger(url, read_only=True) as opened:
            people = People(opened)
            recent = opened.entries(since=self._since)
            requests = [item for item in people.requests() if item.state(self._now) == "waiting"]
            episodes = {entry.episode for entry in recent} | {item.wanted.episode for item in requests}
            lines = opened.entries(episodes=sorted(name for name in episodes if name))
            self._learn(lines)
            self._findings(recent)
            self._acts(lines)
            asked = {(item.wanted.episode, item.wanted.action, item.wanted.target) for item in requests}
            self._undone(recent, lines, {*asked})
            for request in requests:
                self._waiting(request, lines)
            self._kept(people, opened)
            self._exempt(people)
            pause = people.paused()
        if only is not None:
            self._team(only)
        for name, spent in self._costs.spent.items():
            self._team(name).spent = spent  # type: ignore[assignment]
        chosen = [
            item
            for name, item in sorted(self._teams.items(), key=lambda pair: (pair[0] is None, pair[0] or ""))
            if only is None or name == only
        ]
        return Digest(
            self._since, self._now, chosen, None if pause is None else pause.reason, self._costs.recorded
        )

    def _team(self, name: str | None) -> Team:
        from stoploss.reports.digest import Team

        return self._teams.setdefault(name, Team(name))

    # ---- whose it is -------------------------------------------------------------------

    def _learn(self, lines: Sequence[Entry]) -> None:
        """Whose episodes and resources are, by the labels that lines remember."""
        from stoploss.engine.execution.history_of import labels_in

        for entry in lines:
            team = labels_in(entry).get("team")
            if entry.resource is not None and entry.resource.kind == "team":
                team = entry.resource.id
            if not isinstance(team, str) or team in ("", "?"):
                continue
            if entry.episode is not None:
                self._of_episode[entry.episode] = team
            if entry.resource is not None:
                self._of_resource[str(entry.resource)] = team

    def _whose(self, episode: str | None, resource: ResourceId | None) -> Team:
        name = self._of_episode.get(episode or "") or self._of_resource.get(str(resource))
        return self._team(name)

    # ---- what was ----------------------------------------------------------------------

    def _findings(self, recent: Sequence[Entry]) -> None:
        seen: set[str] = set()
        for entry in recent:
            if entry.episode is None or entry.policy is None or entry.episode in seen:
                continue
            seen.add(entry.episode)
            _count(self._whose(entry.episode, entry.resource).findings, entry.policy)

    def _acts(self, lines: Sequence[Entry]) -> None:
        """Results of that time, each with its intent."""
        from stoploss.engine.execution.deeds import UNDO
        from stoploss.engine.planning.model import ALERT

        intents = {entry.seq: entry for entry in lines if entry.kind == "intent"}
        back = {
            (entry.evidence or {}).get("line")
            for entry in lines
            if entry.kind == "intent" and entry.action == UNDO and self._worked(entry, lines)
        }
        dearest: _Dearest = {}
        for entry in lines:
            if entry.at < self._since:
                continue
            team = self._whose(entry.episode, entry.resource)
            if entry.kind == "note" and entry.got is not None and entry.action != ALERT:
                team.measured += 1
                _add(team.brought, entry.currency or "USD", entry.got)
            if entry.kind != "result":
                continue
            intent = intents.get(entry.intent)
            if entry.action == ALERT:
                team.told += entry.verdict == "done"
                team.untold += entry.verdict == "failed"
            elif entry.action == UNDO:
                team.undone += entry.verdict == "done"
            elif intent is not None:
                self._act(team, intent, entry, back, dearest)
        for (name, currency, _), amount in dearest.items():
            _add(self._team(name).promised, currency, amount)

    def _undone(self, recent: Sequence[Entry], lines: Sequence[Entry], waiting: set[_Step]) -> None:
        """Steps that only the mode, or a guard, kept from being done, as was last said of each."""
        from stoploss.engine.planning.model import ALERT

        over = waiting | {
            _step(entry) for entry in lines if entry.kind == "result" and entry.verdict == "done"
        }
        last = {_step(entry): entry for entry in recent if entry.kind == "decision" and entry.action != ALERT}
        dearest: _Dearest = {}
        for step, entry in last.items():
            if step in over or entry.verdict not in ("would", "held", "blocked"):
                continue
            team = self._whose(entry.episode, entry.resource)
            _count(team.would if entry.verdict == "would" else team.held, entry.action or "unknown")
            if entry.promised is not None and entry.currency is not None:
                key = team.name, entry.currency, str(entry.resource)
                dearest[key] = max(dearest.get(key, 0.0), entry.promised)
        for (name, currency, _), amount in dearest.items():
            _add(self._team(name).would_save, currency, amount)

    @staticmethod
    def _worked(intent: Entry, lines: Sequence[Entry]) -> bool:
        return any(entry.intent == intent.seq and entry.verdict == "done" for entry in lines)

    def _act(
        self,
        team: Team,
        intent: Entry,
        result: Entry,
        back: set[object],
        dearest: _Dearest,
    ) -> None:
        action = intent.action or "unknown"
        if result.verdict == "skipped":
            return
        _count(team.done if result.verdict == "done" else team.failed, action)
        if result.verdict != "done" or action in NO_PROMISE or intent.seq in back:
            return
        if intent.promised is None or intent.currency is None:
            team.unpriced += 1
            return
        # Of one resource one saving is had, whatever was done to it one after the other.
        key = team.name, intent.currency, str(intent.resource)
        dearest[key] = max(dearest.get(key, 0.0), intent.promised)

    # ---- what is -----------------------------------------------------------------------

    def _waiting(self, request: object, lines: Sequence[Entry]) -> None:
        from stoploss.engine.people_schema import Request
        from stoploss.reports.digest import Asked

        assert isinstance(request, Request), "what people are asked"
        wanted = request.wanted
        same = [
            entry
            for entry in lines
            if entry.episode == wanted.episode
            and entry.promised is not None
            and (entry.action, entry.target) == (wanted.action, wanted.target)
        ]
        newest = same[-1] if same else None
        asked = Asked(
            request.id,
            f"{wanted.action} {wanted.resource}",
            newest.promised if newest else None,
            newest.currency if newest else None,
        )
        waits = self._whose(wanted.episode, wanted.resource).waits
        waits.append(asked)
        waits.sort(key=lambda item: -(item.per_hour or 0.0))

    def _kept(self, people: People, opened: Ledger) -> None:
        from stoploss.reports.digest import Until

        for keep in people.keeps(now=self._now):
            name = f"job {keep.job}"
            if name not in self._of_resource:
                self._learn(opened.entries(kinds=("intent",), resource=name, last=20))
            team = self._team(self._of_resource.get(name))
            team.kept.append(Until(name, f"{keep.until:%Y-%m-%d %H:%M} UTC", keep.who, keep.reason))

    def _exempt(self, people: People) -> None:
        """Exemptions that end soon: to the team that owns them, or that they name."""
        from stoploss.reports.digest import Until

        made = [
            (item.policy, item.where, item.expires, item.owner, item.reason) for item in people.exemptions()
        ]
        made += [
            (item.policy, item.where.text, item.expires, item.owner, item.reason)
            for item in self._loaded.exemptions
        ]
        today = self._now.date()
        for policy, where, expires, owner, reason in made:
            if not today <= date.fromisoformat(expires) <= today + SOON:
                continue
            known = {*self._of_episode.values(), *self._of_resource.values()}
            named = [team for team in sorted(known) if f'"{team}"' in where or f"'{team}'" in where]
            whose: list[str | None] = [owner] if owner in known else [*named] or [None]
            for team in whose:
                self._team(team).exempt.append(Until(f"{policy} where {where}", expires, owner, reason))


def _step(entry: Entry) -> _Step:
    return entry.episode, entry.action, entry.target


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


def _add(amounts: dict[str, float], currency: str, amount: float) -> None:
    amounts[currency] = amounts.get(currency, 0.0) + amount


def _sent(told: Digest, loaded: PolicySet, place: states.Place) -> dict[str, Result]:
    """Tell each team; what has no team is told to nobody."""
    from stoploss.actions.alert import Receivers, alert
    from stoploss.engine.model import Notice
    from stoploss.reports.digest import lines

    if not loaded.notify:
        raise UserError("the policies name no receiver; write one for each team under notify:")
    receivers = Receivers(loaded.notify, os.environ)
    results = {}
    for team in told.teams:
        if team.name is None:
            continue
        notice = Notice(
            event="digest",
            key=f"digest {team.name} {told.until:%Y-%m-%d}",
            policy="digest",
            resource=f"team {team.name}",
            severity="low",
            at=told.until,
            lines=lines(told, team, place.zone),
            labels={"team": team.name},
        )
        results[team.name] = alert(receivers, team.name, notice, now=told.until)
    return results


def _result(item: Result) -> dict[str, object]:
    return {"delivered": item.delivered, "retry": item.retry, "words": item.words}
