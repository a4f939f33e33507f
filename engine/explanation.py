"""Why one policy fires, or does not, on one resource: its row, its tree and its history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from stoploss.engine.evaluation.columns import Column
from stoploss.engine.evaluation.evaluator import Episode, Evaluator, RowStatus
from stoploss.engine.evaluation.explain import Explainer
from stoploss.engine.evaluation.explain_numbers import Explained
from stoploss.engine.history.frame import Frame
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.policy import Policy


@dataclass(frozen=True, slots=True)
class Explanation:
    """One row of a policy at the newest slot.

    Attributes:
        column: the resource, its owner and since when it is judged.
        status: its state, or None where `where` does not select it.
        where: the tree of `where`, or None without one.
        when: the tree of `when`, or None without conditions.
        episodes: what began and ended on this row before.
        at: the end of the newest slot.
        resolution: seconds per slot.
    """

    policy: Policy
    column: Column
    status: RowStatus | None
    where: Explained | None
    when: Explained | None
    episodes: tuple[Episode, ...]
    at: datetime
    resolution: float

    def time_of(self, slot: int) -> datetime:
        """The end of a slot."""
        return datetime.fromtimestamp(slot * self.resolution, UTC)


class UnknownResource(LookupError):
    """No row of the policy bears that name; `names` are those there are."""

    def __init__(self, names: list[str]) -> None:
        super().__init__("no such resource")
        self.names = names


def explain_row(policy: Policy, resource: str, frame: Frame, catalogue: Catalogue) -> Explanation:
    """Explain a policy on the newest row of a resource.

    `resource` is an id, or kind and id with a blank or slash between them.

    Raises:
        UnknownResource: the policy has no row of that name.
    """
    evaluator = Evaluator([policy], catalogue, resolution=policy.resolution)
    episodes = evaluator.advance(frame)
    columns = [column for column in evaluator.rows(0) if column.start <= frame.last < column.end]
    wanted = {resource, resource.partition(" ")[2], resource.partition("/")[2]} - {""}
    exact = [column for column in columns if resource in (column.resource.id, str(column.resource))]
    found = exact or [
        column
        for column in columns
        if column.resource.id in wanted and resource.startswith(column.resource.kind)
    ]
    if not found:
        raise UnknownResource(sorted({column.resource.id for column in columns}))
    column = found[-1]
    explainer = Explainer(frame, evaluator.world)
    slot = frame.last
    status = next((row for row in evaluator.status() if row.column == column), None)
    return Explanation(
        policy,
        column,
        status,
        explainer.explain(policy.where.root, column, slot) if policy.where else None,
        explainer.explain(policy.when, column, slot) if policy.when else None,
        tuple(episode for episode in episodes if episode.column.resource == column.resource),
        datetime.fromtimestamp(frame.time_of(slot), UTC),
        frame.resolution,
    )
