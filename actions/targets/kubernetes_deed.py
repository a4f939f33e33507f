"""Carries out what was found on Kubernetes: a field that is changed, or objects that are deleted.

A change leaves the order's id on the object, in the same call, so that it is never made twice and is told
from what somebody else does. A deletion names the uid, so that it cannot meet another object of the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stoploss.actions.contract import Found, Means, Order, Outcome, Refused
from stoploss.actions.targets.kubernetes_calls import Api, ApiFailure, Entry, connected
from stoploss.actions.targets.kubernetes_owner import (
    REPLICAS,
    Owner,
    holding,
    living,
    pods_of,
    uid_of,
    value_at,
)

ORDER = "stoploss.dev/order"
"""The annotation with the id of the order that changed an object last."""
WAS_REPLICAS = "stoploss.dev/replicas"
WAS_RUNNING = "stoploss.dev/suspended"
"""Annotations of what is owed a resume: how many replicas it had, or that we suspended it."""

PAUSE = 5.0
"""Seconds between two looks."""
EXTRA = 60.0
"""Seconds beyond the grace that pods may take to be gone."""
SETTLE = 30.0
"""Seconds for which it is watched whether something brings it back."""
CONFLICTS = 4
"""Tries of one change while others write to the same object."""


@dataclass(frozen=True, slots=True)
class Deed:
    """What `found.before` says; the same names, see `as_before`.

    Attributes:
        does: `change` a field, `delete` the object, or delete `pods` of it.
        owner: kind, namespace, name and group of the object.
        uid: of the object.
        place, was, becomes: the field of a change, its value and its new one; None is not there.
        notes: annotations that the change writes beside the order's id; None takes one away.
        noted: what they were, with the order's id; None was not there.
        left: living pods that may be there afterwards; None: it does not matter.
        above: uids below which pods count as its own.
        pods: name and uid of the pods that are deleted.
        gpus: patterns of the resources that count as GPUs, where only pods with them count.
        grace: seconds that its pods may take to end.
        own_grace: seconds that a bare pod is given, instead of its own.
    """

    does: str
    owner: Owner
    uid: str
    grace: float
    above: tuple[str, ...]
    place: tuple[str, ...] = ()
    was: Any = None
    becomes: Any = None
    notes: Mapping[str, str | None] = field(default_factory=dict)
    noted: Mapping[str, str | None] = field(default_factory=dict)
    left: int | None = 0
    pods: tuple[tuple[str, str], ...] = ()
    gpus: tuple[str, ...] = ()
    own_grace: int | None = None

    def as_before(self) -> dict[str, Any]:
        """As JSON values."""
        owner = self.owner
        return {
            "does": self.does,
            "object": [owner.kind, owner.namespace, owner.name, owner.group],
            "uid": self.uid,
            "grace": self.grace,
            "above": list(self.above),
            "place": list(self.place),
            "was": self.was,
            "becomes": self.becomes,
            "notes": dict(self.notes),
            "noted": dict(self.noted),
            "left": self.left,
            "pods": [list(pod) for pod in self.pods],
            "gpus": list(self.gpus),
            "own_grace": self.own_grace,
        }


def of_before(before: Mapping[str, Any]) -> Deed:
    """The other way round."""
    kind, namespace, name, group = before["object"]
    return Deed(
        does=before["does"],
        owner=Owner(kind, namespace, name, group, {}),
        uid=before["uid"],
        grace=before["grace"],
        above=tuple(before["above"]),
        place=tuple(before["place"]),
        was=before["was"],
        becomes=before["becomes"],
        notes=before["notes"],
        noted=before["noted"],
        left=before["left"],
        pods=tuple((name, uid) for name, uid in before["pods"]),
        gpus=tuple(before["gpus"]),
        own_grace=before["own_grace"],
    )


def act(means: Means, order: Order, found: Found) -> Outcome:
    """Do it, unless it is done already; then watch until it is so, and whether it stays so."""
    deed = of_before(found.before)
    try:
        with connected(means) as api:
            outcome = _change(api, order, deed) if deed.does == "change" else _delete(api, deed)
            return outcome or _watch(api, means, order, deed)
    except ApiFailure as failure:
        return Outcome("failed", failure.words, retry=failure.retry)
    except Refused as refused:
        return Outcome("failed", refused.words, retry=True)


def look(means: Means, order: Order, found: Found) -> Outcome:
    """What came of it; changes nothing."""
    try:
        with connected(means) as api:
            return _state(api, order, of_before(found.before))
    except ApiFailure as failure:
        return Outcome("unknown", failure.words, retry=failure.retry)
    except Refused as refused:
        return Outcome("unknown", refused.words, retry=True)


def undo(means: Means, order: Order, found: Found) -> Outcome:
    """Put a changed field back to what it was, unless somebody changed it since."""
    deed = of_before(found.before)
    if deed.does != "change" or not found.undoable:
        return Outcome("failed", f"{deed.owner}: this cannot be taken back")
    try:
        with connected(means) as api:
            return _put_back(api, order, deed)
    except ApiFailure as failure:
        return Outcome("failed", failure.words, retry=failure.retry)
    except Refused as refused:
        return Outcome("failed", refused.words, retry=True)


def _change(api: Api, order: Order, deed: Deed) -> Outcome | None:
    """Change the field; an outcome where that is not to be done."""
    for _ in range(CONFLICTS):
        entry = api.get(deed.owner.path)
        if entry is None or uid_of(entry) != deed.uid:
            return Outcome("skipped", f"{deed.owner} is gone")
        if _order_on(entry) == order.id:
            return None
        now = value_at(entry, deed.place)
        if not _same(now, deed.was):
            return Outcome("skipped", f"{_where(deed)} is {_said(now)} by now; somebody else changed it")
        notes = {**deed.notes, ORDER: order.id}
        if _patch(api, deed, entry, deed.becomes, notes):
            return None
    return Outcome("failed", f"{deed.owner} is changed by others all the time", retry=True)


def _put_back(api: Api, order: Order, deed: Deed) -> Outcome:
    for _ in range(CONFLICTS):
        entry = api.get(deed.owner.path)
        if entry is None or uid_of(entry) != deed.uid:
            return Outcome("skipped", f"{deed.owner} is gone")
        now = value_at(entry, deed.place)
        if _order_on(entry) != order.id:
            if _same(now, deed.was):
                return Outcome("done", f"{_where(deed)} is {_said(now)}, as before")
            return Outcome("skipped", f"{_where(deed)} is {_said(now)} by now; it was changed again since")
        if not _same(now, deed.becomes):
            return Outcome("skipped", f"{_where(deed)} is {_said(now)} by now; somebody else changed it")
        if not _patch(api, deed, entry, deed.was, deed.noted):
            continue
        after = api.get(deed.owner.path)
        if after is not None and _same(value_at(after, deed.place), deed.was):
            return Outcome("done", f"{_where(deed)} is {_said(deed.was)} again", {"value": deed.was})
        return Outcome("failed", f"{_where(deed)} was set again by somebody else")
    return Outcome("failed", f"{deed.owner} is changed by others all the time", retry=True)


def _patch(api: Api, deed: Deed, entry: Entry, value: Any, notes: Mapping[str, str | None]) -> bool:
    """Whether it was taken; not where the object changed since `entry` was read."""
    body: dict[str, Any] = {}
    inner = body
    for name in deed.place[:-1]:
        inner = inner.setdefault(name, {})
    inner[deed.place[-1]] = value
    version = entry["metadata"].get("resourceVersion")
    body["metadata"] = {"uid": deed.uid, "resourceVersion": version, "annotations": dict(notes)}
    try:
        api.patch(deed.owner.path, body)
    except ApiFailure as failure:
        if failure.status == 409:
            return False
        raise
    return True


def _delete(api: Api, deed: Deed) -> Outcome | None:
    """Delete what is there and is not being deleted; an outcome where nothing of it is."""
    base = f"api/v1/namespaces/{deed.owner.namespace}/pods"
    doomed = [(f"{base}/{name}", uid) for name, uid in deed.pods]
    if deed.does == "delete":
        doomed = [(deed.owner.path, deed.uid)]
    there, entry = 0, None
    for path, uid in doomed:
        entry = api.get(path)
        if entry is None or uid_of(entry) != uid:
            continue
        there += 1
        if entry["metadata"].get("deletionTimestamp"):
            continue
        try:
            api.delete(path, uid, deed.own_grace)
        except ApiFailure as failure:
            # It ended, or was made anew, between the two calls; what is there is looked at next.
            if failure.status not in (404, 409):
                raise
    if there or (deed.does == "delete" and entry is None and living(pods_of(api, deed.owner, deed.above))):
        return None
    return Outcome("skipped", f"{deed.owner}: it is gone already")


def _watch(api: Api, means: Means, order: Order, deed: Deed) -> Outcome:
    """Wait until it is done, then for as long as what brings things back may take."""
    end = means.monotonic() + deed.grace + EXTRA
    failures = 0
    done: Outcome | None = None
    while True:
        try:
            state = _state(api, order, deed)
            failures = 0
        except ApiFailure as failure:
            failures += 1
            state = Outcome("failed", failure.words, retry=failure.retry)
            if not failure.retry:
                return state
        if state.state == "done":
            if done is None:
                done, end = state, means.monotonic() + (SETTLE if deed.left is not None else 0.0)
        elif state.state == "skipped" or not state.retry:
            return state
        elif done is not None and not failures:
            return Outcome("failed", f"{deed.owner}: pods of it came back; whoever starts them does so again")
        if means.monotonic() >= end:
            return done if done is not None and not failures else state
        means.sleep(PAUSE)


def _state(api: Api, order: Order, deed: Deed) -> Outcome:
    """How it stands; `retry` where it may still come."""
    if deed.does == "change":
        return _state_of_change(api, order, deed)
    if deed.does == "pods":
        return _state_of_pods(api, deed)
    entry = api.get(deed.owner.path)
    if entry is not None and uid_of(entry) != deed.uid:
        return Outcome("failed", f"{deed.owner} was made anew by somebody else")
    if entry is not None:
        if entry["metadata"].get("deletionTimestamp"):
            return Outcome("failed", f"{deed.owner} is being deleted and is still there", retry=True)
        return Outcome("undone", f"{deed.owner} is there, as before", retry=True)
    return _none_left(api, deed, "is gone")


def _state_of_change(api: Api, order: Order, deed: Deed) -> Outcome:
    entry = api.get(deed.owner.path)
    if entry is None or uid_of(entry) != deed.uid:
        return Outcome("skipped", f"{deed.owner} is gone")
    now = value_at(entry, deed.place)
    if _order_on(entry) != order.id:
        if _same(now, deed.was):
            return Outcome("undone", f"{_where(deed)} is {_said(now)}, as before")
        return Outcome("skipped", f"{_where(deed)} is {_said(now)} by now; somebody else changed it")
    if not _same(now, deed.becomes):
        return Outcome(
            "failed", f"{_where(deed)} is {_said(now)} again: somebody set it back, or it is not known there"
        )
    return _none_left(api, deed, f"has {_said(deed.becomes)} at {'.'.join(deed.place)}")


def _state_of_pods(api: Api, deed: Deed) -> Outcome:
    pods = pods_of(api, deed.owner, deed.above)
    wanted = {uid for _, uid in deed.pods}
    there = [pod for pod in living(pods) if uid_of(pod) in wanted]
    anew = [pod for pod in holding(pods, deed.gpus) if uid_of(pod) not in wanted]
    if len(there) == len(wanted) and not any(pod["metadata"].get("deletionTimestamp") for pod in there):
        return Outcome("undone", f"{deed.owner}: its pods are there, as before", retry=True)
    if there:
        return Outcome("failed", f"{deed.owner}: {_count(len(there))} of it are still there", retry=True)
    if anew:
        return Outcome(
            "failed", f"{deed.owner}: {_count(len(anew))} came back; they are started by somebody else"
        )
    return Outcome("done", f"{deed.owner}: {_count(len(wanted))} of it are gone", {"pods": 0})


def _none_left(api: Api, deed: Deed, words: str) -> Outcome:
    """Whether no more pods are there than may be."""
    if deed.left is None:
        return Outcome("done", f"{deed.owner} {words}")
    count = len(living(pods_of(api, deed.owner, deed.above)))
    if count > deed.left:
        return Outcome(
            "failed", f"{deed.owner} {words}, and {_count(count)} of it are still there", retry=True
        )
    return Outcome("done", f"{deed.owner} {words}; {_count(count)} of it are there", {"pods": count})


def _order_on(entry: Entry) -> str | None:
    note = (entry["metadata"].get("annotations") or {}).get(ORDER)
    return None if note is None else str(note)


def _same(one: Any, other: Any) -> bool:
    """Whether two values of a field mean the same: not suspended is what is not said to be."""
    return (
        (one or None) == (other or None) if isinstance(one, bool) or isinstance(other, bool) else one == other
    )


def _where(deed: Deed) -> str:
    return f"{'.'.join(deed.place)} of {deed.owner}"


def _said(value: Any) -> str:
    return "not set" if value is None else str(value).lower()


def _count(pods: int) -> str:
    return f"{pods} pod{'' if pods == 1 else 's'}"


def notes_of(place: tuple[str, ...], was: Any) -> dict[str, str | None]:
    """Annotations from which a resume knows what it is owed."""
    return {WAS_REPLICAS: str(was)} if place == REPLICAS else {WAS_RUNNING: "true"}


def noted_on(entry: Entry, notes: Mapping[str, str | None]) -> dict[str, str | None]:
    """What is noted on an object now where a change will write."""
    there = entry["metadata"].get("annotations") or {}
    return {name: there.get(name) for name in (*notes, ORDER)}
