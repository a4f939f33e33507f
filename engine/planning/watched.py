"""The jobs of steps that may cost more than they save: their pace now, and whether they may be touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from stoploss.engine.evaluation.columns import Column, World
from stoploss.engine.evaluation.kleene import FALSE
from stoploss.engine.history.frame import slot_of
from stoploss.engine.model import ResourceId
from stoploss.engine.planning.model import WATCHED, Candidate, Decision, Standing, Watched
from stoploss.engine.planning.pace import Pace, Pacer
from stoploss.engine.planning.schedule import maintenance
from stoploss.engine.planning.sight import Sight
from stoploss.rules.policy import PolicySet

APART = timedelta(minutes=5)
"""Time between the two looks that must agree."""
GONE = timedelta(minutes=30)
"""A job of which nothing was there for this long has ended; one that is started anew is away for less."""
MEMBERS = ("gpu", "instance", "process", "host")


@dataclass(frozen=True, slots=True)
class Sighted:
    """A job after a step that is watched.

    Attributes:
        now, earlier: its pace, and that of five minutes before; None where too little was seen since.
        ended: the job is over; `now` is that of its end.
        spared: why nothing may be done to it by itself; None where it may.
    """

    now: Pace | None = None
    earlier: Pace | None = None
    ended: bool = False
    spared: str | None = None


class Watchers:
    """Takes each resolution, and looks at what is to be watched in the finest of them."""

    def __init__(self, policies: PolicySet) -> None:
        self._policies = policies
        self._sights: list[tuple[Sight, Pacer]] = []
        self.paces: Mapping[ResourceId, Pace] = {}
        self.watched: Mapping[ResourceId, Sighted] = {}

    def take(self, sight: Sight, pacer: Pacer) -> None:
        """Take one resolution."""
        self._sights.append((sight, pacer))

    def look(
        self, decisions: Iterable[Decision], standing: Standing, at: datetime, freeze: str | None
    ) -> None:
        """Take the paces of what is about to be done, and of what was done."""
        acted = {d.resource for d in decisions if d.action in WATCHED and d.verdict == "would"}
        self.paces = {r: pace for r in sorted(acted) if (pace := self._before(r, standing)) is not None}
        self.watched = {
            resource: replace(self._after(resource, item), spared=self._spared(item, standing, at) or freeze)
            for resource, item in standing.watched.items()
        }

    def _before(self, resource: ResourceId, standing: Standing) -> Pace | None:
        _, pacer = self._finest()
        former = standing.watched.get(resource)
        since = None if former is None else former.since
        return pacer.pace(resource, pacer.job_of(resource), slot=pacer.explainer.frame.last, since=since)

    def _after(self, resource: ResourceId, item: Watched) -> Sighted:
        if not self._sights:
            return Sighted()
        _, pacer = self._finest()
        frame = pacer.explainer.frame
        until = slot_of(item.until.timestamp(), frame.resolution)
        ended = item.job is not None and self._ended(ResourceId("job", item.job), pacer)
        last = pacer.last_step(item.job) if ended and item.job is not None else None
        slot = min(frame.last, until, frame.last if last is None else last)
        if slot < frame.first:
            return Sighted(ended=ended)
        before = max(frame.first, slot - pacer.explainer.slots(APART.total_seconds()))
        return Sighted(
            pacer.pace(resource, item.job, slot=slot, since=item.since),
            pacer.pace(resource, item.job, slot=before, since=item.since),
            ended,
        )

    def _ended(self, job: ResourceId, pacer: Pacer) -> bool:
        """Whether nothing of a job has been there for a while."""
        column, explainer = pacer.column(job), pacer.explainer
        if column is None:
            return False
        limit = explainer.frame.last - explainer.slots(GONE.total_seconds())
        if column.end <= limit:
            return True
        ends = [_end(explainer.world, kind, column) for kind in MEMBERS]
        return any(end is not None for end in ends) and all(end is None or end <= limit for end in ends)

    def _spared(self, item: Watched, standing: Standing, at: datetime) -> str | None:
        """Why nothing may be done by itself to what was acted on."""
        settings = self._policies.settings
        if standing.unreadable is not None:
            return f"what people decided cannot be read: {standing.unreadable}"
        if standing.clock is not None:
            return standing.clock
        if item.job is not None and item.job in standing.kept:
            return f"kept {standing.kept[item.job]}"
        closed = maintenance(settings.maintenance, at, settings.timezone)
        if closed is not None or not self._sights:
            return closed or "it is not seen"
        sight, pacer = self._finest()
        column = pacer.column(item.resource)
        if column is None:
            return "it is not seen"
        today = at.astimezone(ZoneInfo(settings.timezone)).date()
        return sight.protected(column) or self._exempt(item, column, sight, today)

    def _exempt(self, item: Watched, column: Column, sight: Sight, today: date) -> str | None:
        """Whether a policy must not touch it any more; what cannot be read is exempt."""
        for exemption in self._policies.exemptions:
            if exemption.policy != item.policy or date.fromisoformat(exemption.expires) < today:
                continue
            root = exemption.where.root
            if sight.explainer.explain(root, column, sight.explainer.frame.last).truth != FALSE:
                return f"exempt through {exemption.expires}: {exemption.reason}"
        return None

    def _finest(self) -> tuple[Sight, Pacer]:
        return min(self._sights, key=lambda item: item[0].explainer.frame.resolution)


def _end(world: World, kind: str, job: Column) -> int | None:
    """The end of the newest stretch in which something of a kind was a job's; None where nothing ever was."""
    entries = world.entries(kind, "job")
    at = world.tables["job"].index[job.resource, job.start]
    ends = entries.end[entries.upper == at]
    return int(ends.max()) if len(ends) else None


def refusing(standing: Standing, candidates: Iterable[Candidate]) -> Standing:
    """The standing in which a step that backfired on a resource is refused for it, in later episodes too."""
    if not standing.backfired:
        return standing
    said = {
        (item.finding or "", action, str(item.resource)): f"by stoploss: {why}"
        for item in candidates
        for (resource, action), why in standing.backfired.items()
        if resource == item.resource
    }
    return replace(standing, rejected=said | dict(standing.rejected))
