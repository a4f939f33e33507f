"""Caps on what one run may do, and surges.

Steps that would be done at the same instant are one run. A cap that is exceeded blocks the whole
of what it counts, since whatever makes more match than ever does not make some of them right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stoploss.engine.planning.model import Draft, Situation

DEFAULTS: Mapping[str, Any] = {
    "actions-per-run": 10,
    "share-of-population": 0.2,
    "min-population": 10,
    "gpus-per-run": 64,
}
SURGE = 3
"""More than this many resources, and more than this many times the largest recent number."""


@dataclass(frozen=True, slots=True)
class Group:
    """What one run would do: all of it, or what one policy would."""

    drafts: tuple[Draft, ...]
    limits: Mapping[str, Any]
    population: int | None = None

    def exceeded(self) -> Iterator[tuple[str, frozenset[int]]]:
        """Each cap that is exceeded, in words, with the positions of the drafts that it stops."""
        for found in (self._actions, self._share, self._gpus, self._teams, self._money):
            yield from found()

    def _destructive(self) -> list[tuple[int, Draft]]:
        return [(at, draft) for at, draft in enumerate(self.drafts) if draft.step.destructive]

    def _actions(self) -> Iterator[tuple[str, frozenset[int]]]:
        cap, number = self.limits.get("actions-per-run"), len(self.drafts)
        if cap is not None and number > cap:
            yield f"{number} > {cap} actions per run", frozenset(range(number))

    def _share(self) -> Iterator[tuple[str, frozenset[int]]]:
        share, population = self.limits.get("share-of-population"), self.population
        if share is None or population is None:
            return
        # Nothing allowed means nothing, however few there are.
        if population < self.limits.get("min-population", 0) and share > 0:
            return
        most = math.floor(share * population + 1e-9)
        number = len({draft.candidate.resource for draft in self.drafts})
        if number > most:
            told = f"{number} > {most} resources per run ({share:.4g} of {population})"
            yield told, frozenset(range(len(self.drafts)))

    def _gpus(self) -> Iterator[tuple[str, frozenset[int]]]:
        cap, drafts = self.limits.get("gpus-per-run"), self._destructive()
        number = sum({d.candidate.resource: d.candidate.facts.gpus for _, d in drafts}.values())
        # A cap of 0 means that nothing may be acted on that holds a GPU; without one it has no say.
        if cap is not None and number > cap:
            yield f"{number} > {cap} GPUs per run", _places(drafts, lambda d: d.candidate.facts.gpus > 0)

    def _teams(self) -> Iterator[tuple[str, frozenset[int]]]:
        cap, teams = self.limits.get("jobs-per-team"), dict[str | None, set[str]]()
        if cap is None:
            return
        drafts = [(at, d) for at, d in self._destructive() if d.candidate.facts.job is not None]
        for _, draft in drafts:
            facts = draft.candidate.facts
            teams.setdefault(facts.team, set()).add(str(facts.job))
        for team, jobs in sorted(teams.items(), key=lambda item: item[0] or ""):
            if len(jobs) > cap:
                who = f"of team {team}" if team is not None else "of no team"
                told = f"{len(jobs)} > {cap} jobs {who} per run"
                yield told, _places(drafts, _of_team(team))

    def _money(self) -> Iterator[tuple[str, frozenset[int]]]:
        cap, drafts = self.limits.get("money-per-hour"), self._destructive()
        if cap is None or not drafts:
            return
        prices = {d.candidate.resource: d.candidate.facts.price_per_hour for _, d in drafts}
        most = cap.value * 3600.0
        every = frozenset(at for at, _ in drafts)
        if any(price is None for price in prices.values()):
            yield f"an unknown price counts as over {cap.text or f'{most:g}/h'} per run", every
        elif (total := math.fsum(price or 0.0 for price in prices.values())) > most * (1 + 1e-9) or not most:
            yield f"{total:,.2f} > {most:,.2f} per hour and run", every


def capped(drafts: Sequence[Draft], situation: Situation) -> list[Draft]:
    """The drafts, those blocked or held that would be too many; alerts never are."""
    out = _surges(drafts, situation)
    runs: dict[Any, list[int]] = {}
    for at, draft in enumerate(out):
        if draft.verdict == "would" and not draft.alert:
            runs.setdefault(draft.due, []).append(at)
    settings = {**DEFAULTS, **situation.limits}
    # All caps see the same run: what one of them stops still counts for the others.
    stops: dict[int, dict[str, None]] = {}
    for places in runs.values():
        for numbers, group in _groups(places, out, settings, situation):
            for why, stopped in group.exceeded():
                for at in stopped:
                    stops.setdefault(numbers[at], {})[f"would be blocked: {why}"] = None
    for at, whys in stops.items():
        for why in whys:
            out[at] = out[at].block(why)
    return out


def _groups(
    places: Sequence[int], drafts: Sequence[Draft], settings: Mapping[str, Any], situation: Situation
) -> Iterator[tuple[Sequence[int], Group]]:
    """The whole run under the caps of the settings, and what each policy does under its own."""
    yield places, Group(tuple(drafts[at] for at in places), settings)
    policies: dict[str, list[int]] = {}
    for at in places:
        policies.setdefault(drafts[at].candidate.policy.name, []).append(at)
    shares = {name: settings[name] for name in ("share-of-population", "min-population")}
    for name, numbers in policies.items():
        mine = tuple(drafts[at] for at in numbers)
        limits = {**shares, **mine[0].candidate.policy.limits}
        yield numbers, Group(mine, limits, situation.population.get(name, 0))


def _surges(drafts: Iterable[Draft], situation: Situation) -> list[Draft]:
    """Many more than lately is held until a person says that it is right."""
    drafts = list(drafts)
    if situation.recent is None:
        return drafts
    matched: dict[str, set[object]] = {}
    for draft in drafts:
        if draft.step.destructive and draft.verdict in ("would", "held"):
            matched.setdefault(draft.candidate.policy.name, set()).add(draft.candidate.resource)
    for at, draft in enumerate(drafts):
        name = draft.candidate.policy.name
        number, most = len(matched.get(name, ())), situation.recent.get(name, 0)
        if (
            draft.step.destructive
            and draft.verdict in ("would", "held")
            and number > SURGE
            and number > SURGE * most
            and draft.request_id not in situation.standing.approved
        ):
            why = f"surge: {number} resources, at most {most} in the last 24 h; needs approval"
            drafts[at] = draft.hold(why, asks=True)
    return drafts


def _places(drafts: Iterable[tuple[int, Draft]], test: Callable[[Draft], bool]) -> frozenset[int]:
    return frozenset(at for at, draft in drafts if test(draft))


def _of_team(team: str | None) -> Callable[[Draft], bool]:
    return lambda draft: draft.candidate.facts.team == team
