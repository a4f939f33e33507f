"""What the ledger says of steps: the newest intent of each, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import Found, Order, Outcome
from stoploss.engine.planning.model import ALERT, StepKey

if TYPE_CHECKING:
    from stoploss.engine.findings import Finding

WAITS = (timedelta(minutes=5), timedelta(minutes=15), timedelta(hours=1), timedelta(hours=4))
"""How long after a failure a step is tried again: after the first, the second, …; then not any more."""
UNDO = "undo"
"""The action of lines about taking a step back."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One step of one finding as it was carried out last.

    Attributes:
        key: the finding, and the number of the step.
        intent: what was to be done.
        result: what came of it; None while it is open.
        tries: how often it was begun.
        undone: the line by which it was taken back, else None.
        told: of an alert, whom it reached, and when first; whoever was told that it is over is not told.
        receivers: the same by the names of receivers, and whom each of them meant.
    """

    key: StepKey
    intent: Entry
    result: Entry | None = None
    tries: int = 1
    undone: Entry | None = None
    told: Mapping[str, datetime] = field(default_factory=dict)
    receivers: Mapping[str, str] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether it was done and verified; an alert: whether it reached all whom it tells."""
        if self.intent.action == ALERT:
            return len(self.told) >= int((self.intent.evidence or {}).get("recipients", 1))
        return self.result is not None and self.result.verdict == "done"

    @property
    def at(self) -> datetime:
        """When it was done; an alert: when the last was reached for the first time."""
        if self.intent.action == ALERT and self.told:
            return max(self.told.values())
        return (self.result or self.intent).at

    @property
    def saved(self) -> str | None:
        """The path of the checkpoint that it had verified, if that was begun in the episode.

        A copy may be of an older one: what the run has done since would be lost with it.
        """
        if not self.done or self.intent.action != "snapshot" or self.result is None:
            return None
        after = (self.result.evidence or {}).get("after", {})
        path, began = after.get("path"), after.get("began")
        since = (self.intent.evidence or {}).get("order", {}).get("since")
        if not isinstance(path, str) or not isinstance(began, int | float) or since is None:
            return None
        return path if began >= since else None

    def next_try(self) -> datetime | None:
        """When it may be tried again after it failed; None: not any more in this episode."""
        result = self.result
        if result is None or not (result.evidence or {}).get("retry") or self.tries > len(WAITS):
            return None
        if (result.evidence or {}).get("state") == "undone":
            # Nothing was done, so nothing is there that would have to settle.
            return result.at
        return result.at + WAITS[self.tries - 1]


def deeds(ledger: Ledger, findings: Iterable[str]) -> dict[StepKey, Deed]:
    """The newest deed of each step of some findings.

    Raises:
        StoreError: the ledger cannot be read.
    """
    found: dict[StepKey, Deed] = {}
    by_line: dict[int, StepKey] = {}
    for entry in ledger.entries(kinds=("intent", "result", "note"), episodes=tuple(findings)):
        if entry.kind == "note":
            found |= {
                key: replace(deed, told={who: at for who, at in deed.told.items() if who != entry.target})
                for key, deed in found.items()
                if entry.action == ALERT and key[0] == entry.episode
            }
            continue
        if entry.kind == "intent":
            key = entry.episode or "", int((entry.evidence or {}).get("step", 0))
            by_line[entry.seq or 0] = key
            if entry.action != UNDO:
                found[key] = _begun(found.get(key), key, entry)
            continue
        key = by_line.get(entry.intent or 0, ("", 0))
        deed = found.get(key)
        if deed is None:
            continue
        if entry.action == UNDO:
            found[key] = replace(deed, undone=entry) if entry.verdict == "done" else deed
        else:
            told = dict(deed.told)
            if entry.action == ALERT and entry.verdict == "done":
                told.setdefault(entry.target or "", entry.at)
            newest = deed.intent.seq == entry.intent
            found[key] = replace(deed, result=entry if newest else deed.result, told=told)
    return found


def _begun(before: Deed | None, key: StepKey, intent: Entry) -> Deed:
    """A step that is begun, once more where it is the same action as before."""
    whom = {str(name): intent.target or "" for name in (intent.evidence or {}).get("receivers", ())}
    if before is None or before.intent.action != intent.action:
        return Deed(key, intent, receivers=whom)
    return Deed(key, intent, tries=before.tries + 1, told=before.told, receivers={**before.receivers, **whom})


def intent_evidence(step: int, order: Order, found: Found, conditions: Iterable[Mapping[str, Any]]) -> Any:
    """What a line must hold so that its order can be looked at again after a crash, and explained."""
    return {
        "step": step,
        "order": {
            "id": order.id,
            "labels": dict(order.labels),
            "by": order.by,
            "since": order.since,
            "saved": order.saved,
        },
        "found": {
            "words": found.words,
            "before": dict(found.before),
            "undoable": found.undoable,
            "place": found.place,
        },
        "conditions": list(conditions),
    }


def conditions_of(finding: Finding) -> list[dict[str, Any]]:
    """The evidence of a finding as JSON values."""
    return [
        {"condition": item.condition, "value": item.value, "unit": item.unit, "note": item.note}
        for item in finding.evidence
    ]


def order_of(intent: Entry) -> tuple[Order, Found] | None:
    """The order of a line and what it was to act on; None for a line that holds none, as an alert's."""
    said = intent.evidence or {}
    if "found" not in said or intent.resource is None or intent.action is None:
        return None
    order, found = said["order"], said["found"]
    return (
        Order(
            order["id"],
            said.get("of", intent.action),
            intent.resource,
            intent.parameters,
            order["labels"],
            order["by"],
            order["since"],
            order["saved"],
        ),
        Found(found["words"], found["before"], found["undoable"], found["place"]),
    )


def result_of(intent: Entry, outcome: Outcome, *, at: datetime) -> Entry:
    """The line that says what came of an intent."""
    verdicts = {"done": "done", "skipped": "skipped"}
    return Entry(
        at=at,
        kind="result",
        intent=intent.seq,
        episode=intent.episode,
        policy=intent.policy,
        policy_hash=intent.policy_hash,
        resource=intent.resource,
        action=intent.action,
        target=intent.target,
        verdict=verdicts.get(outcome.state, "failed"),
        why=outcome.words,
        evidence={
            "state": outcome.state,
            "after": dict(outcome.after),
            "retry": outcome.retry or outcome.state in ("undone", "skipped"),
        },
        who=intent.who,
    )
