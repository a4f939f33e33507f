"""A running stoploss made of dataclasses, for the API to ask."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient
from support.audits import AT, audit, exemption, finding, policy, unknown, waste

from stoploss.api.app import build
from stoploss.api.contract import BusyError, CollectorHealth, Health
from stoploss.api.limits import Limits
from stoploss.api.tokens import Tokens, made
from stoploss.engine.audit import Audit
from stoploss.engine.costs.model import Amount, Totals
from stoploss.engine.heatmap import HeatMap, HeatRow
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import ResourceId
from stoploss.engine.people import People
from stoploss.engine.people_schema import Wanted
from stoploss.engine.planning.model import Decision
from stoploss.rules.policy import PolicySet

NOW = AT + timedelta(seconds=20)
SECRET = "s3cr3t-of-the-database"  # noqa: S105
ADMIN, READER, APPROVER, NODES = (
    "admin-0123456789",
    "reader-0123456789",
    "approver-0123456789",
    "nodes-0123456789",
)
VISION, SPEECH = "vision-0123456789", "speech-0123456789"
WIDE = Limits(per_second=1e6, burst=1e6, wrong_per_second=1e6, wrong_burst=1e6)


def tokens() -> Tokens:
    """One token of each sort."""
    return made(
        [
            ("admin", ADMIN, ("read", "approve", "ingest", "admin"), None),
            ("reader", READER, ("read",), None),
            ("approver", APPROVER, ("read", "approve"), None),
            ("nodes", NODES, ("ingest",), None),
            ("vision", VISION, ("read", "approve"), "vision"),
            ("speech", SPEECH, ("read", "approve"), "speech"),
        ]
    )


@dataclass
class Stub:
    """What the API asks, with answers that a test sets."""

    ledger: Ledger
    policies: PolicySet
    result: Audit | None
    moment: datetime = NOW
    wellness: Health | None = None
    busy: bool = False
    taken: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    statement: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def latest(self) -> Audit | None:
        return self.result

    def health(self) -> Health:
        collectors = {
            "gpu": CollectorHealth(ok=True, age_seconds=12.0, seconds=0.2),
            "checkpoints": CollectorHealth(ok=False, reason="permission denied: /ckpt/b", age_seconds=70.0),
        }
        return self.wellness or Health(
            started=AT - timedelta(days=1),
            now=self.moment,
            ready=True,
            interval_seconds=60.0,
            last_tick=AT,
            tick_seconds=0.4,
            ticks=1440,
            missed=2,
            collectors=collectors,
        )

    def take(self, node: str, batch: Mapping[str, Any]) -> int:
        if self.busy:
            raise BusyError("2,000 batches wait")
        samples = batch.get("samples", [])
        if not isinstance(samples, list):
            raise ValueError("samples is no list; send [...]")  # noqa: TRY004
        self.taken.append((node, batch))
        return len(samples)

    def curves(self, job: str) -> Mapping[str, Sequence[tuple[float, float]]]:
        return self.lines.get(job, {})

    def saved(self) -> Mapping[str, float]:
        return {"on-demand": 1234.5}

    def costs(self) -> Mapping[str, Any]:
        return self.statement


def world() -> Audit:
    """Two teams with a job each, and a GPU of which nobody knows whose it is."""
    idle = policy(severity="high", contact="ml-platform")
    a = finding("n1/0", idle, id="f-a", owner="4412", labels={"team": "vision"}, waste=waste(28.8))
    b = finding("n2/0", idle, id="f-b", owner="4398", labels={"team": "speech"}, waste=waste(19.2))
    c = finding("n3/0", idle, id="f-c", labels={}, waste=waste(2.0))
    said = audit([a, b, c], [unknown("n1/0"), unknown("n2/0"), unknown("n9/9")])
    return replace(
        said,
        decisions=tuple(_decision(item.id, item.resource) for item in (a, b, c)),
        heat=HeatMap(
            (AT.timestamp() - 7200, AT.timestamp() - 3600),
            3600.0,
            (
                HeatRow("n2/0", "4398", "n2", (0.5, None)),
                HeatRow("n1/0", "4412", "n1", (0.9, 0.01)),
                HeatRow("n3/0", None, "n3", (0.2, 0.2)),
            ),
        ),
        totals=Totals(
            by_kind={"on-demand": Amount(50.0, 500.0, 40.0)},
            by_policy={"idle-gpu": 50.0},
            by_team={"vision": 28.8, "speech": 19.2, "no team": 2.0},
        ),
        notes=("n2 of team speech was silent",),
    )


def _decision(name: str, resource: ResourceId) -> Decision:
    return Decision(
        f"d-{name}",
        name,
        "idle-gpu",
        ("idle-gpu",),
        resource,
        2,
        "terminate",
        str(resource),
        {"grace": 120.0},
        AT,
        "held",
        ("needs approval",),
        28.8,
    )


STATEMENT: Mapping[str, Any] = {
    "version": 1,
    "from": "2026-11-24T00:00:00Z",
    "to": "2026-12-01T00:00:00Z",
    "currency": "USD",
    "total": {"gpu_hours": 200.0, "useful_gpu_hours": 150.0},
    "by_team": {"vision": {"gpu_hours": 120.0, "useful_gpu_hours": 110.0}, "speech": {"gpu_hours": 80.0}},
    "by_job": {"4412": {"gpu_hours": 120.0}, "4398": {"gpu_hours": 80.0}},
    "by_category": {"compute": {"gpu_hours": 200.0}},
    "budgets": [
        {"budget": "b", "resource": {"kind": "team", "id": "speech"}},
        {"budget": "b", "resource": {"kind": "team", "id": "vision"}},
    ],
    "lines": [{"job": "4412", "team": "vision"}, {"job": "4398", "team": "speech"}],
}


def stub(folder: Path) -> Stub:
    """A running stoploss with a ledger of its own, a question per finding, and curves of both jobs."""
    ledger = Ledger(f"sqlite:///{folder}/state.db", environ={"DB_PASSWORD": SECRET})
    result = world()
    for item in result.decisions:
        assert item.finding is not None
        People(ledger).ask(
            Wanted(
                episode=item.finding,
                policy="idle-gpu",
                policy_hash="0" * 16,
                resource=item.resource,
                action="terminate",
                target=str(item.resource),
                parameters={"grace": 120.0},
            ),
            now=AT,
        )
    ledger.append(
        Entry(
            at=AT,
            kind="decision",
            resource=ResourceId("job", "4412"),
            verdict="held",
            promised=28.8,
            currency="USD",
        )
    )
    points = [(AT.timestamp() - 60.0 * n, 1.0 / (n + 1)) for n in reversed(range(50))]
    lines = {job: {"train.loss": points, "cost": points} for job in ("4412", "4398")}
    policies = PolicySet(("policies.yaml",), policies=result.policies, exemptions=(exemption(),))
    return Stub(ledger, policies, result, statement=STATEMENT, lines=lines)


def request_of(service: Stub, finding_id: str) -> str:
    """The id of the question about a finding."""
    return next(item.id for item in People(service.ledger).requests() if item.wanted.episode == finding_id)


def client(service: Stub, guard: Tokens | None = None, limits: Limits = WIDE, **keys: Any) -> TestClient:
    """Somebody on this machine who asks; without tokens where none are given."""
    application = build(service, guard or Tokens(), now=lambda: service.moment, limits=limits)
    return TestClient(
        application, **{"base_url": "http://127.0.0.1:8000", "client": ("127.0.0.1", 50000)} | keys
    )


def bearer(token: str) -> dict[str, str]:
    """The header of a token."""
    return {"Authorization": f"Bearer {token}"}


LOCAL = {"X-Stoploss": "1"}
"""What writes carry where there are no tokens."""
