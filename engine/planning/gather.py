"""What an audit knows of its findings, as facts for the guards; and the plan of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from stoploss.engine.costs.accounts import Accounts
from stoploss.engine.costs.waste import TrueSlots
from stoploss.engine.evaluation.evaluator import Episode, Evaluator, RowStatus
from stoploss.engine.evaluation.explain import Explainer
from stoploss.engine.model import ResourceId
from stoploss.engine.planning.model import ALERT, Candidate, Decision, Facts, Situation, Standing
from stoploss.engine.planning.pace import Pace, Pacer
from stoploss.engine.planning.plan import plan
from stoploss.engine.planning.recent import recent
from stoploss.engine.planning.sight import Sight
from stoploss.engine.planning.storms import LASTS, Turn, freeze
from stoploss.engine.planning.watched import Sighted, Watchers, refusing
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.policy import PolicySet

if TYPE_CHECKING:
    from stoploss.engine.findings import Finding, UnknownFinding

Found = Sequence[tuple[RowStatus, "Finding"]]


class Planner:
    """Takes what each resolution found; makes one plan of it at the end."""

    def __init__(
        self,
        policies: PolicySet,
        catalogue: Catalogue,
        accounts: Accounts,
        before: Mapping[str, float] | None = None,
    ) -> None:
        """Begin; `before` is the true time that findings had in slots that the frames do not hold."""
        self._before = before or {}
        self.true_seconds: dict[str, float] = {}
        self._policies, self._catalogue, self._accounts = policies, catalogue, accounts
        self._candidates: dict[str, Candidate] = {}
        self._population: dict[str, int] = {}
        self._fleet: dict[str, int] = {}
        self._turns: list[Turn] = []
        self._recent: dict[str, int] = {}
        self._watchers = Watchers(policies)

    def take(
        self,
        evaluator: Evaluator,
        explainer: Explainer,
        true: TrueSlots,
        *,
        rows: Sequence[RowStatus],
        episodes: Sequence[Episode],
        found: Found,
    ) -> None:
        """Take one resolution at its newest slot; `episodes` are all that began or ended in its frame."""
        prices = self._accounts.prices(explainer.frame.resolution)
        sight = Sight(explainer, self._catalogue, prices, self._policies.protect)
        self._watchers.take(sight, Pacer(explainer, prices, self._catalogue))
        last, resolution = explainer.frame.last, explainer.frame.resolution
        for number, policy in enumerate(evaluator.policies):
            here = {c.resource for c in evaluator.rows(number) if c.start <= last < c.end}
            self._population[policy.name] = len(here)
            self._fleet[policy.each] = len(here)
        self._turns.extend(_turns(sight, rows))
        self._recent |= recent(episodes, rows, explainer.frame)
        sight.firing(found)
        for row, finding in found:
            if finding.state == "pending" or not finding.policy.steps:
                continue
            acts = any(step.action != ALERT for _, step in finding.policy.numbered)
            since, at = row.fired, evaluator.world.tables[row.policy.each]
            place = at.index[(row.column.resource, row.column.start)]
            assert since is not None, "what fires has a slot in which it fired"
            # The slot in which it fires is the zero of `after`.
            slots = true.of(row.policy.name, place, since + 1, max(0, last - since))
            seconds = float(slots.sum()) * resolution + self._before.get(finding.id, 0.0)
            self.true_seconds[finding.id] = seconds
            self._candidates[finding.id] = Candidate(
                finding.id,
                finding.policy,
                finding.resource,
                sight.facts(row, finding) if acts else Facts(exempt=sight.exempt(row, finding)[0]),
                seconds,
                finding.state == "firing" and finding.stale_since is None,
                finding.waste.saves_per_hour if finding.waste else None,
                finding.waste.currency if finding.waste else None,
            )

    def decisions(
        self, at: datetime, unknown: Iterable[UnknownFinding], standing: Standing | None = None
    ) -> tuple[Decision, ...]:
        """The plan of everything that was taken; an unknown that is to be told gets its alerts."""
        settings = self._policies.settings
        standing = refusing(standing or Standing(), self._candidates.values())
        situation = Situation(
            at,
            settings.timezone,
            settings.limits,
            settings.maintenance,
            self._population,
            self._recent or None,
            freeze=self.freeze(at),
            standing=standing,
        )
        firing = {(item.policy.name, item.resource) for item in self._candidates.values()}
        told = [
            Candidate(None, item.policy, item.resource, true_seconds=float("inf"), running=False)
            for item in unknown
            if item.alert and item.resource is not None and (item.policy.name, item.resource) not in firing
        ]
        found = plan([*self._candidates.values(), *told], situation)
        self._watchers.look(found, standing, at, situation.freeze)
        return found

    @property
    def paces(self) -> Mapping[ResourceId, Pace]:
        """How dear and how fast the jobs are of what the plan would shrink, move or keep less of."""
        return self._watchers.paces

    @property
    def watched(self) -> Mapping[ResourceId, Sighted]:
        """How it is with what was acted on, where that may cost more than it saves."""
        return self._watchers.watched

    def notes(self, at: datetime) -> tuple[str, ...]:
        """That destructive steps are frozen, told once."""
        frozen = self.freeze(at)
        return () if frozen is None else (f"destructive steps are {frozen}",)

    def freeze(self, at: datetime) -> str | None:
        """Why destructive steps are frozen, or None."""
        return freeze(self._turns, self._fleet, at.timestamp())


def _turns(sight: Sight, rows: Iterable[RowStatus]) -> Iterable[Turn]:
    """Resources that a policy with a destructive step sees turn idle or unknown in the last while."""
    frame = sight.explainer.frame
    first = frame.last - LASTS / frame.resolution
    for row in rows:
        if not any(step.destructive for _, step in row.policy.numbered):
            continue
        unknown, since = row.unknown_since, row.since
        if unknown is not None and unknown > max(first, row.column.start):
            slot = unknown
        elif since is not None and since > max(first, row.column.start) and sight.was_well(row, since):
            slot = since
        else:
            continue
        yield Turn(row.column.resource, frame.time_of(slot), sight.common_labels(row.column))
