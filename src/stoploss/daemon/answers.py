"""What the API asks of a running service."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stoploss.api.contract import CollectorHealth, Health
from stoploss.daemon.heartbeat import well
from stoploss.engine.model import ResourceId
from stoploss.rules.catalogue import catalogue

if TYPE_CHECKING:
    from datetime import datetime

    from stoploss.daemon.service import Service
    from stoploss.engine.audit import Audit
    from stoploss.engine.history.frame import Frame
    from stoploss.engine.ledger import Ledger
    from stoploss.rules.policy import PolicySet

LOSSES = ("train.loss", "eval.loss")


class Answers:
    """A service as `stoploss.api.contract.Service`; what is dear to reckon is reckoned once a tick."""

    def __init__(self, service: Service, now: Callable[[], datetime]) -> None:
        self._service, self._now = service, now
        self._kept: dict[str, tuple[int, Any]] = {}

    @property
    def policies(self) -> PolicySet:
        """The policy set in force."""
        return self._service.policies

    @property
    def ledger(self) -> Ledger:
        """The ledger, open for writing."""
        return self._service.ledger

    def latest(self) -> Audit | None:
        """The result of the newest tick; None before the first."""
        return self._service.latest

    def health(self) -> Health:
        """How it is."""
        vitals, now = self._service.vitals, self._now()
        collectors = {
            name: CollectorHealth(seen.ok, seen.reason, max(0.0, now.timestamp() - seen.at), seen.seconds)
            for name, seen in list(vitals.collectors.items())
        }
        return Health(
            vitals.started,
            now,
            well(self._service),
            self._service.policies.settings.resolution,
            vitals.last_tick,
            vitals.tick_seconds,
            vitals.ticks,
            vitals.missed,
            collectors=collectors,
            problems=tuple(f"{about}: {why}" for about, why in sorted(vitals.problems.items())),
        )

    def take(self, node: str, batch: Mapping[str, Any]) -> int:
        """Take the samples of a node; returns how many.

        Raises:
            ValueError: the batch is wrong.
            BusyError: too many wait already.
        """
        return self._service.nodes.take(node, batch, self._now())

    def curves(self, job: str) -> Mapping[str, Sequence[tuple[float, float]]]:
        """Losses and cumulative cost of a job, as far as slots are held."""
        frame = self._service.history.frame(self._service.policies.settings.resolution)
        resource, found = ResourceId("job", job), dict[str, list[tuple[float, float]]]()
        for name in LOSSES:
            plane = frame.planes.get(name)
            if plane is None or resource not in plane.series:
                continue
            column = plane.values[:, plane.series.index(resource)]
            points = [
                (frame.time_of(frame.first + at), float(value))
                for at, value in enumerate(column.tolist())
                if value == value
            ]
            if points:
                found[name] = points
        cost = self._once("accrual", lambda: self._costs_of_jobs(frame)).get(job)
        if not cost and (rows := [days for key, days in self._service.past.days.items() if key.job == job]):
            # Of a job that is not held any more the sum is known.
            spent = sum(day.money for days in rows for day in days)
            cost = [(frame.time_of(slot), spent) for slot in range(frame.first, frame.last + 1)]
        if cost:
            found["cost"] = cost
        return found

    def saved(self) -> Mapping[str, float]:
        """Money that was saved so far by price kind."""
        from stoploss.engine.execution.saved import saved

        def reckon() -> Mapping[str, float]:
            return saved(self.ledger.entries(kinds=("intent", "result", "note")), self._now())

        found: Mapping[str, float] = self._once("saved", reckon)
        return found

    def costs(self) -> Mapping[str, Any]:
        """The statement of costs; empty while nothing was seen."""
        from stoploss.engine.costs.statement import statement
        from stoploss.reports import costs_json

        def reckon() -> Mapping[str, Any]:
            frame = self._service.history.frame(self._service.policies.settings.resolution)
            if not frame.slots:
                return {}
            told: Mapping[str, Any] = json.loads(
                costs_json.render(statement(frame, self._service.policies, catalogue()))
            )
            return told

        found: Mapping[str, Any] = self._once("costs", reckon)
        return found

    def _costs_of_jobs(self, frame: Frame) -> dict[str, list[tuple[float, float]]]:
        import numpy as np

        from stoploss.engine.costs.accrual import accrue
        from stoploss.engine.costs.book import book_for
        from stoploss.engine.costs.priced import Prices

        if not frame.slots:
            return {}
        policies = self._service.policies
        book = book_for(policies.prices, policies.currency)
        accrual = accrue(frame, Prices(frame, book, catalogue()), policies.fixed_costs, self._service.past)
        money: dict[str, Any] = {}
        for stream in accrual.streams:
            if stream.key.job in accrual.there:
                total = np.cumsum(stream.money) + stream.before_money
                money[stream.key.job] = money.get(stream.key.job, 0.0) + total
        times = [frame.time_of(frame.first + at) for at in range(frame.slots)]
        return {job: list(zip(times, total.tolist(), strict=True)) for job, total in money.items()}

    def _once(self, name: str, reckon: Callable[[], Any]) -> Any:
        """What was reckoned since the newest tick, else reckoned now."""
        tick = self._service.vitals.ticks
        kept = self._kept.get(name)
        if kept is None or kept[0] != tick:
            self._kept[name] = kept = tick, reckon()
        return kept[1]
