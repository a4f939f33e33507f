"""What is known of a resource that a step would be about: read from a frame, slot by slot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from stoploss.engine.costs.billing import Billing
from stoploss.engine.costs.book import NoPrice
from stoploss.engine.costs.priced import Prices
from stoploss.engine.evaluation.columns import Column
from stoploss.engine.evaluation.evaluator import RowStatus
from stoploss.engine.evaluation.explain import Explainer
from stoploss.engine.evaluation.kleene import FALSE, TRUE, UNKNOWN
from stoploss.engine.evaluation.readings import Unknown
from stoploss.engine.model import UNREADABLE, ResourceId
from stoploss.engine.planning.asked import at_level, some, whole
from stoploss.engine.planning.checkpoints import Checkpoint, prunable
from stoploss.engine.planning.model import Facts
from stoploss.engine.planning.storms import SHARED
from stoploss.rules.catalogue import Catalogue, path
from stoploss.rules.conditions.typed import CheckedCondition

if TYPE_CHECKING:
    from stoploss.engine.findings import Finding

COVERAGE = 90
"""Percent of a window that must be covered where a step is destructive."""
STORED = frozenset({"volume", "bucket", "checkpoint", "log"})
"""Kinds that do no work and have no class."""
OWNED = ("gpu", "host", "process")
ENDS = {"host": {"process", "host"}, "instance": {"process", "host"}}
"""Failure domains that a step on a kind ends; on a job it ends its processes."""


class Sight:
    """Facts of the resources of one frame."""

    def __init__(
        self, explainer: Explainer, catalogue: Catalogue, prices: Prices, protect: Sequence[CheckedCondition]
    ) -> None:
        self.explainer, self._catalogue, self._protect = explainer, catalogue, protect
        self._strict = Explainer(explainer.frame, explainer.world, percent=COVERAGE)
        self._prices, self._billing = prices, Billing(explainer.world, prices)
        self._firing: dict[str, set[ResourceId]] = {}
        self._checkpoints: dict[str, list[Checkpoint]] | None = None
        self._names: dict[str, dict[str, set[str]]] | None = None

    def firing(self, found: Iterable[tuple[RowStatus, Finding]]) -> None:
        """Take over which resources each policy fires on, and is true of now."""
        for row, finding in found:
            if finding.state == "firing" and row.truth == TRUE:
                self._firing.setdefault(row.policy.name, set()).add(row.column.resource)

    def facts(self, row: RowStatus, finding: Finding) -> Facts:
        """All that the guards of a finding's steps ask for."""
        column, slot = row.column, self.explainer.frame.last
        job = column.resource.id if column.resource.kind == "job" else column.owner
        exempt, unreadable = self.exempt(row, finding)
        kept, gone = self._kept(row, job)
        return Facts(
            protected=self.protected(column),
            exempt=exempt,
            unreadable=unreadable,
            stale=_stale(row, finding),
            thin=self._thin(row),
            part=self._part(row),
            workload=column.resource.kind not in STORED,
            workload_class=self._label(column.resource, "class"),
            stage=self._label(column.resource, "stage"),
            jobs=self._jobs(job),
            ends_work=column.resource.kind in ("job", "experiment", "team") or self._busy(column),
            saved=job is not None and self._saved(row, job, finding),
            kept=kept,
            checkpoints=gone,
            gpus=self._gpus(column),
            job=job,
            team=self._label(column.resource, "team"),
            price_per_hour=self._price(column, slot),
            save_seconds=self._number("checkpoint.save_time", job),
            at_risk_seconds=self._number("checkpoint.since_last", job),
        )

    # ---- protection and exemption ------------------------------------------------------

    def exempt(self, row: RowStatus, finding: Finding) -> tuple[str | None, str | None]:
        """Why a finding is exempt, or why that cannot be read."""
        exemption = finding.exemption
        if exemption is None:
            return None, None
        slot = self.explainer.frame.last
        if self.explainer.explain(exemption.where.root, row.column, slot).truth == UNKNOWN:
            return None, "whether it is exempt cannot be read"
        return f"exempt through {exemption.expires}: {exemption.reason}", None

    def protected(self, column: Column) -> str | None:
        """Protected itself, or through what it holds: a host that runs a protected job."""
        slot, kind = self.explainer.frame.last, column.resource.kind
        below = kind != "gpu" and path("gpu", kind) is not None
        columns = [column, *(self.explainer.members("gpu", column, slot) if below else ())]
        for condition in self._protect:
            truths = [
                self.explainer.explain(at_level(condition.root, item.resource.kind), item, slot).truth
                for item in columns
            ]
            if TRUE in truths:
                return f"protected: {condition.text}"
            if UNKNOWN in truths:
                return f"whether it is protected cannot be read: {condition.text}"
        return None

    # ---- the condition -----------------------------------------------------------------

    def was_well(self, row: RowStatus, slot: int) -> bool:
        """Whether a row was known to be false in the slot before."""
        when = row.policy.when
        before = slot - 1
        if when is None or before < max(self.explainer.frame.first, row.column.start):
            return False
        return self.explainer.explain(when, row.column, before).truth == FALSE

    def _thin(self, row: RowStatus) -> str | None:
        """What is missing of the whole condition at the coverage that a destructive step needs."""
        if row.policy.when is None or row.truth != TRUE:
            return None
        found = self._strict.explain(row.policy.when, row.column, self.explainer.frame.last)
        if found.truth == TRUE:
            return None
        reason = found.unknown.text if found.unknown is not None else "not true"
        return f"at {COVERAGE}% coverage: {reason}"

    def _part(self, row: RowStatus) -> str | None:
        """Why the condition does not hold for the whole job."""
        column, slot = row.column, self.explainer.frame.last
        kind = column.resource.kind
        if kind in OWNED and column.owner is not None:
            for job in self.explainer.owners("job", column, slot):
                members = self.explainer.members(kind, job, slot)
                true = self._firing.get(row.policy.name, set())
                number = sum(member.resource in true for member in members)
                if number < len(members):
                    return f"holds for {number} of {len(members)} {kind}s of {job.resource}"
        when = row.policy.when
        if when is None or row.truth != TRUE or not some(when, negated=False):
            return None
        if self.explainer.explain(whole(when, negated=False), column, slot).truth == TRUE:
            return None
        return f"does not hold for the {kind} as a whole"

    # ---- the job -----------------------------------------------------------------------

    def _label(self, resource: ResourceId, name: str) -> str | None:
        value = self.explainer.world.label_at(resource, name, self.explainer.frame.last)
        return value if isinstance(value, str) and value and value != "unknown" else None

    def common_labels(self, column: Column) -> dict[str, str]:
        """Labels of a resource, or those that all of its GPUs share."""
        slot, kind = self.explainer.frame.last, column.resource.kind
        found = {name: value for name in SHARED if (value := self._label(column.resource, name))}
        if kind != "gpu" and path("gpu", kind) is not None:
            gpus = self.explainer.members("gpu", column, slot)
            for name in SHARED:
                values = {self._label(gpu.resource, name) for gpu in gpus}
                value = next(iter(values)) if len(values) == 1 else None
                if value is not None:
                    found.setdefault(name, value)
        return found

    def _jobs(self, job: str | None) -> int:
        """How many jobs go by a name: those of different users or clusters are not one."""
        if self._names is None:
            self._names = self._named()
        return max([1, *map(len, self._names.get(job or "", {}).values())])

    def _named(self) -> dict[str, dict[str, set[str]]]:
        """Job -> the users and the clusters that its GPUs and processes name."""
        slot, world = self.explainer.frame.last, self.explainer.world
        names: dict[str, dict[str, set[str]]] = {}
        for kind in ("gpu", "process"):
            for column in world.tables[kind].columns:
                if column.owner is None or not column.start <= slot < column.end:
                    continue
                said = names.setdefault(column.owner, {"user": set(), "cluster": set()})
                labels = world.labels_at(column.resource, slot)
                for name, values in said.items():
                    value = labels.get(name)
                    if isinstance(value, str) and value:
                        values.add(value)
        return names

    def _busy(self, column: Column) -> bool:
        """Whether acting on a GPU, host or instance takes it from a job."""
        if column.owner is not None:
            return True
        slot, kind = self.explainer.frame.last, column.resource.kind
        if kind not in ("host", "instance"):
            return False
        return any(gpu.owner is not None for gpu in self.explainer.members("gpu", column, slot))

    def _gpus(self, column: Column) -> int:
        slot, kind = self.explainer.frame.last, column.resource.kind
        if kind == "gpu":
            return 1
        if path("gpu", kind) is not None and (gpus := self.explainer.members("gpu", column, slot)):
            return len(gpus)
        if kind != "job":
            return 0
        counted = self._number("job.gpus", column.resource.id) or self._number(
            "job.gpus_held", column.resource.id
        )
        return round(counted or 0)

    def _price(self, column: Column, slot: int) -> float | None:
        every = np.ones(self.explainer.frame.slots, dtype=np.bool_)
        charges = self._billing.charges(column, slot, every)
        if isinstance(charges, NoPrice):
            return None
        return sum(charge.per_hour for charge in charges if charge.start <= slot < charge.end)

    def _number(self, signal: str, job: str | None) -> float | None:
        if job is None or signal not in self._catalogue:
            return None
        found = self.explainer.world.tables["job"].by_resource.get(ResourceId("job", job))
        return self._fresh(signal, self.explainer.world.tables["job"].columns[found[-1]]) if found else None

    def _fresh(self, signal: str, column: Column) -> float | None:
        read = self.explainer.readings.bare(self._catalogue[signal], column, self.explainer.frame.last)
        return None if isinstance(read, Unknown) else read

    # ---- checkpoints -------------------------------------------------------------------

    def _kept(self, row: RowStatus, job: str | None) -> tuple[str | None, tuple[str, ...]]:
        """Why a checkpoint, or all of a job's, must stay; and which of a job's may go."""
        prune = next((step for _, step in row.policy.numbered if step.action == "prune"), None)
        if prune is None:
            return None, ()
        resource = row.column.resource
        owner = self._label(resource, "job") if resource.kind == "checkpoint" else job
        mine = self._of_job(owner)
        gone, stays = prunable(mine, prune.options.get("keep") or 2, prune.options.get("older-than"))
        if resource.kind == "checkpoint":
            return (None, ()) if resource.id in gone else (stays.get(resource.id, "its job is not known"), ())
        return (None if gone else "no checkpoint may be deleted", gone)

    def _saved(self, row: RowStatus, job: str, finding: Finding) -> bool:
        """Whether a complete checkpoint, begun after the episode, outlives what the step ends."""
        ends = ENDS.get(row.column.resource.kind, {"process"})
        begun = self.explainer.frame.time_of(self.explainer.frame.last) - finding.since.timestamp()
        saving = self._number("checkpoint.save_time", job) or 0.0
        return any(
            item.complete
            and item.domain is not None
            and item.domain not in ends
            and item.age is not None
            and item.age + saving < begun
            for item in self._of_job(job)
        )

    def _of_job(self, job: str | None) -> list[Checkpoint]:
        if self._checkpoints is None:
            self._checkpoints = {}
            slot = self.explainer.frame.last
            for column in self.explainer.world.tables["checkpoint"].columns:
                owner = self._label(column.resource, "job")
                if owner is not None and column.start <= slot < column.end:
                    self._checkpoints.setdefault(owner, []).append(self._checkpoint(column))
        return self._checkpoints.get(job or "", [])

    def _checkpoint(self, column: Column) -> Checkpoint:
        def flag(signal: str) -> bool | None:
            value = self._fresh(signal, column)
            return None if value is None else value > 0

        slot, world = self.explainer.frame.last, self.explainer.world
        milestone = world.label_at(column.resource, "milestone", slot)
        domain = self._fresh("checkpoint.failure_domain", column)
        plane = self.explainer.frame.planes.get("checkpoint.failure_domain")
        return Checkpoint(
            column.resource.id,
            self._fresh("checkpoint.step", column),
            flag("checkpoint.complete"),
            flag("checkpoint.newest"),
            flag("checkpoint.best"),
            flag("checkpoint.references"),
            None if milestone is UNREADABLE else milestone not in (None, "", "false", "no"),
            self._fresh("checkpoint.age", column),
            plane.words[int(domain)] if plane is not None and domain is not None else None,
        )


def _stale(row: RowStatus, finding: Finding) -> str | None:
    """Why the condition is not known to be true at this moment."""
    if finding.stale_since is not None:
        return f"unknown now: stale since {finding.stale_since:%Y-%m-%d %H:%M} UTC"
    return None if row.truth == TRUE else "not true now: cleared, and held for a while"
