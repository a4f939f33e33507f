"""Jobs on Kubernetes: ended, given less, given back, and started again, always through their controller.

What is done is described by `kubernetes_deed`; here it is decided what that is, and what is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from stoploss.actions.contract import Found, Means, Order, Outcome, Refused
from stoploss.actions.targets import kubernetes_deed as deeds
from stoploss.actions.targets.kubernetes_calls import COLLECTOR, Api, ApiFailure, Entry, connected
from stoploss.actions.targets.kubernetes_deed import WAS_REPLICAS, WAS_RUNNING, Deed, noted_on, notes_of
from stoploss.actions.targets.kubernetes_owner import (
    GPUS,
    KINDS,
    QUEUE,
    Owner,
    above_pods,
    grace_of,
    holding,
    is_autoscaled,
    is_over,
    is_stuck,
    living,
    owner_of,
    pods_of,
    uid_of,
    value_at,
)

WORKERS = ("spec", "pytorchReplicaSpecs", "Worker", "replicas")
LEAST_WORKERS = ("spec", "elasticPolicy", "minReplicas")
ROLE = "training.kubeflow.org/replica-type"


class _Target:
    """What the four have in common."""

    def __init__(self, means: Means) -> None:
        """Take over what is needed; the cluster is asked only when there is an order."""
        self._means = means
        options: Mapping[str, Any] = means.collectors.get(COLLECTOR) or {}
        self._namespaces = tuple(options.get("namespaces") or ())
        self._gpus = tuple(options.get("gpus") or GPUS)

    def find(self, order: Order) -> Found:
        """Look at the controller of the job as it is now; changes nothing.

        Raises:
            Refused: it is gone, is not understood, or there is nothing to do.
        """
        try:
            with connected(self._means) as api:
                owner = owner_of(api, order, self._namespaces, self._gpus)
                return self._find(api, order, owner)
        except ApiFailure as failure:
            raise Refused(failure.words) from None

    def act(self, order: Order, found: Found) -> Outcome:
        """See the contract."""
        return deeds.act(self._means, order, found)

    def look(self, order: Order, found: Found) -> Outcome:
        """See the contract."""
        return deeds.look(self._means, order, found)

    def undo(self, order: Order, found: Found) -> Outcome:
        """See the contract."""
        return deeds.undo(self._means, order, found)

    def _find(self, api: Api, order: Order, owner: Owner) -> Found:
        raise NotImplementedError

    def _pods(self, api: Api, owner: Owner) -> tuple[tuple[str, ...], list[Entry]]:
        """The uids that stand above the pods, and the pods that are not over."""
        above = above_pods(api, owner, (owner.uid,))
        return tuple(sorted(above)), living(pods_of(api, owner, above))

    def _less(self, api: Api, owner: Owner) -> Found:
        """Suspend it, or leave it no replicas."""
        kind = KINDS[owner.kind]
        if not kind.field:
            raise Refused(f"{owner} is a bare pod, which can be ended but not suspended")
        was = value_at(owner.entry, kind.field)
        if kind.scales:
            if was == 0:
                raise Refused(f"{owner} has no replicas")
            was = 1 if was is None else was
        else:
            _refuse_queued(owner)
            if was:
                raise Refused(f"{owner} is suspended already")
            if owner.kind == "RayJob" and not value_at(owner.entry, ("spec", "shutdownAfterJobFinishes")):
                raise Refused(f"{owner} cannot be suspended: it does not set shutdownAfterJobFinishes")
        above, pods = self._pods(api, owner)
        notes = notes_of(kind.field, was)
        deed = Deed(
            "change",
            owner,
            owner.uid,
            grace_of(pods),
            above,
            place=kind.field,
            was=was,
            becomes=0 if kind.scales else True,
            notes=notes,
            noted=noted_on(owner.entry, notes),
        )
        verb = f"would scale {owner} from {was} to 0" if kind.scales else f"would suspend {owner}"
        return Found(f"{verb}, {self._with(pods)}", deed.as_before(), undoable=True)

    def _with(self, pods: Sequence[Entry]) -> str:
        named = holding(pods, self._gpus)
        return f"with {_some(len(pods), 'pod')}, {len(named)} of them with GPUs"


class End(_Target):
    """Ends a job: a pod and a controller of one run are deleted, what is kept running is scaled to 0."""

    def _find(self, api: Api, order: Order, owner: Owner) -> Found:
        if is_over(owner):
            raise Refused(f"{owner} has ended", gone=True)
        if KINDS[owner.kind].scales or order.parameters.get("how") == "stop":
            return self._less(api, owner)
        above, pods = self._pods(api, owner)
        grace = grace_of(pods)
        own = None
        if owner.kind == "Pod":
            with suppress(KeyError):
                own = math.ceil(float(order.parameters["grace"]))
                grace = float(own)
        deed = Deed("delete", owner, owner.uid, grace, above, own_grace=own)
        return Found(f"would delete {owner}, {self._with(pods)}", deed.as_before())


class Scale(_Target):
    """Gives a job less: fewer replicas where they are its own to choose, else it is suspended."""

    def _find(self, api: Api, order: Order, owner: Owner) -> Found:
        if is_over(owner):
            raise Refused(f"{owner} has ended", gone=True)
        if KINDS[owner.kind].scales and is_autoscaled(api, owner):
            raise Refused(f"{owner} has an autoscaler, which would bring it back")
        if order.parameters.get("gpus"):
            raise Refused(f"{owner}: a number of GPUs cannot be set on Kubernetes; set replicas")
        replicas = order.parameters.get("replicas")
        if not replicas:
            return self._less(api, owner)
        return self._fewer(api, owner, int(replicas))

    def _fewer(self, api: Api, owner: Owner, replicas: int) -> Found:
        field = KINDS[owner.kind].field
        above, pods = self._pods(api, owner)
        beside = 0
        if owner.kind == "PyTorchJob":
            field, least = WORKERS, value_at(owner.entry, LEAST_WORKERS)
            if value_at(owner.entry, ("spec", "elasticPolicy")) is None:
                raise Refused(f"{owner} is not elastic, and cannot go on with fewer workers")
            if replicas < (least or 1):
                raise Refused(f"{owner} needs {least or 1} workers at least")
            beside = sum((pod["metadata"].get("labels") or {}).get(ROLE) != "worker" for pod in pods)
        elif not KINDS[owner.kind].scales:
            raise Refused(f"the replicas of {owner} cannot be changed while it runs")
        was = value_at(owner.entry, field)
        was = 1 if was is None else was
        if replicas >= was:
            raise Refused(f"{owner} has {_some(was, 'replica')}, and {replicas} is no less")
        notes = {} if field == WORKERS else notes_of(field, was)
        deed = Deed(
            "change",
            owner,
            owner.uid,
            grace_of(pods),
            above,
            place=field,
            was=was,
            becomes=replicas,
            notes=notes,
            noted=noted_on(owner.entry, notes),
            left=replicas + beside,
        )
        words = f"would scale {owner} from {was} to {replicas}, {self._with(pods)}"
        return Found(words, deed.as_before(), undoable=True)


class Release(_Target):
    """Frees the GPUs that pods of a job hold though it has ended or failed."""

    def _find(self, api: Api, order: Order, owner: Owner) -> Found:
        above, pods = self._pods(api, owner)
        held = [pod for pod in holding(pods, self._gpus) if not pod["metadata"].get("deletionTimestamp")]
        if not held:
            raise Refused(f"no pod of {owner} holds a GPU", gone=True)
        if not is_over(owner):
            if not all(map(is_stuck, held)):
                raise Refused(f"{owner} has not ended: pods of it run")
            if KINDS[owner.kind].scales:
                raise Refused(f"{owner} keeps its pods running, and is never over")
            if owner.kind != "Pod":
                # Pods that are deleted under a controller that goes on are made again.
                return self._less(api, owner)
        named = tuple((str(pod["metadata"]["name"]), uid_of(pod)) for pod in held)
        deed = Deed("pods", owner, owner.uid, grace_of(held), above, pods=named, gpus=self._gpus)
        return Found(f"would delete {_some(len(named), 'pod')} of {owner} with GPUs", deed.as_before())


class Resume(_Target):
    """Starts again what was suspended or scaled down by us, once: as it was before."""

    def _find(self, api: Api, order: Order, owner: Owner) -> Found:
        kind = KINDS[owner.kind]
        notes = owner.entry["metadata"].get("annotations") or {}
        note = WAS_REPLICAS if kind.scales else WAS_RUNNING
        if not kind.field or note not in notes:
            raise Refused(f"{owner} is owed no resume: it was not stopped by us, or was started again since")
        now = value_at(owner.entry, kind.field)
        was: Any = False
        if kind.scales:
            text = str(notes[note])
            if not text.isdecimal() or (now or 0) >= int(text):
                raise Refused(f"{owner} has {_some(now or 0, 'replica')} by now; it is owed no more")
            was = int(text)
        elif not now:
            raise Refused(f"{owner} is not suspended any more")
        else:
            _refuse_queued(owner)
        deed = Deed(
            "change",
            owner,
            owner.uid,
            0.0,
            (owner.uid,),
            place=kind.field,
            was=now,
            becomes=was,
            notes={note: None},
            noted=noted_on(owner.entry, {note: None}),
            left=None,
        )
        verb = f"scale {owner} from {now} to {was}" if kind.scales else f"let {owner} run again"
        return Found(f"would {verb}", deed.as_before())


def _refuse_queued(owner: Owner) -> None:
    """A queue suspends and starts what is in it, by its own reasons."""
    if QUEUE in (owner.entry["metadata"].get("labels") or {}):
        raise Refused(f"{owner} is in a queue of Kueue, which alone says when it runs")


def _some(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
