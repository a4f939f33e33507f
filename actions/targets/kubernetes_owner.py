"""What stands above the pods of a job, as the cluster says now: which object, which pods, how they are.

Kinds that are not in the table are refused: what is done to the pods of a controller that is not
understood comes back, or is lost.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from stoploss.actions.contract import Order, Refused
from stoploss.actions.targets.kubernetes_calls import Api, Entry

SLACK = 60.0
"""Seconds by which the clock of the cluster may be ahead of ours, and a look behind its instant."""

LONGEST_CHAIN = 5

NOT_OWNERS = frozenset({"CronJob", "Node"})
"""Each run of a CronJob is a job of its own, and a node owns its pods only on paper."""

GPUS = ("nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu")

REPLICAS = ("spec", "replicas")
SUSPEND = ("spec", "suspend")
RUN_POLICY = ("spec", "runPolicy", "suspend")

QUEUE = "kueue.x-k8s.io/queue-name"

ENDS = frozenset({"Complete", "Completed", "Succeeded", "Failed"})
RAY_ENDS = frozenset({"Complete", "Failed", "SUCCEEDED", "FAILED", "STOPPED"})

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind is reached and held.

    Attributes:
        groups: its API groups with versions, those tried first that come first.
        plural: its name in paths.
        field: what gives it less: a number of replicas, or whether it is suspended; empty where nothing does.
        below: the kinds that may stand between it and its pods, upper ones first.
    """

    groups: tuple[str, ...]
    plural: str
    field: tuple[str, ...] = ()
    below: tuple[str, ...] = ()

    @property
    def scales(self) -> bool:
        """Whether it has a number of replicas, and nothing to suspend."""
        return self.field == REPLICAS


_KUBEFLOW = ("apis/kubeflow.org/v1",)

KINDS: Mapping[str, Kind] = {
    "Pod": Kind(("api/v1",), "pods"),
    "Job": Kind(("apis/batch/v1",), "jobs", SUSPEND),
    "Deployment": Kind(("apis/apps/v1",), "deployments", REPLICAS, ("ReplicaSet",)),
    "ReplicaSet": Kind(("apis/apps/v1",), "replicasets", REPLICAS),
    "StatefulSet": Kind(("apis/apps/v1",), "statefulsets", REPLICAS),
    "JobSet": Kind(("apis/jobset.x-k8s.io/v1alpha2",), "jobsets", SUSPEND, ("Job",)),
    "PyTorchJob": Kind(_KUBEFLOW, "pytorchjobs", RUN_POLICY),
    "TFJob": Kind(_KUBEFLOW, "tfjobs", RUN_POLICY),
    "XGBoostJob": Kind(_KUBEFLOW, "xgboostjobs", RUN_POLICY),
    "PaddleJob": Kind(_KUBEFLOW, "paddlejobs", RUN_POLICY),
    "JAXJob": Kind(_KUBEFLOW, "jaxjobs", RUN_POLICY),
    "MPIJob": Kind(("apis/kubeflow.org/v2beta1", *_KUBEFLOW), "mpijobs", RUN_POLICY, ("Job",)),
    "TrainJob": Kind(("apis/trainer.kubeflow.org/v1alpha1",), "trainjobs", SUSPEND, ("JobSet", "Job")),
    "RayCluster": Kind(("apis/ray.io/v1",), "rayclusters", SUSPEND),
    "RayJob": Kind(("apis/ray.io/v1",), "rayjobs", SUSPEND, ("RayCluster", "Job")),
}
"""Kinds that can be acted on."""


@dataclass(frozen=True, slots=True)
class Owner:
    """An object above pods.

    Attributes:
        kind: its name in the table.
        namespace, name: where it is.
        group: of its API, as a path.
        entry: the object as the API told it.
    """

    kind: str
    namespace: str
    name: str
    group: str
    entry: Entry

    @property
    def path(self) -> str:
        """Where the API has it."""
        return f"{self.group}/namespaces/{self.namespace}/{KINDS[self.kind].plural}/{self.name}"

    @property
    def uid(self) -> str:
        """What tells it from another of its name."""
        return uid_of(self.entry)

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def uid_of(entry: Entry) -> str:
    """The uid of an object."""
    return str(entry["metadata"].get("uid", ""))


def value_at(entry: Entry, field: Sequence[str]) -> Any:
    """The value of a field, None where it is not there."""
    found: Any = entry
    for name in field:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def owner_of(api: Api, order: Order, namespaces: Collection[str], gpus: Sequence[str]) -> Owner:
    """The object by which a job is held, the topmost of its controllers.

    Args:
        api: of the cluster.
        order: names the job by its labels `namespace`, `owner` and `name`.
        namespaces: that may be looked at; empty: all.
        gpus: patterns of the resources that count as GPUs.

    Raises:
        Refused: it is gone, is another, or is held by what is not understood.
        ApiFailure: the cluster did not tell.
    """
    labels = order.labels
    namespace, kind, name = (labels.get(label, "") for label in ("namespace", "owner", "name"))
    if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
        raise Refused(
            f"nothing says where {order.resource} is: it needs the labels namespace, owner and name"
        )
    if order.resource.id != f"{namespace}/{kind.lower()}/{name}":
        raise Refused(f"the labels of {order.resource} are of another: {namespace}/{kind.lower()}/{name}")
    if namespaces and namespace not in namespaces:
        raise Refused(f"namespace {namespace} is not among those of the collector")
    seen = _named(api, namespace, kind, name)
    made = _seconds(seen.entry["metadata"].get("creationTimestamp"))
    if order.since and made is not None and made > order.since + SLACK:
        raise Refused(f"{seen} was made anew since {order.by or 'the policy'} fired", gone=True)
    top = _topmost(api, seen)
    if top.uid != seen.uid:
        judged = {uid_of(pod) for pod in holding(pods_of(api, seen, (seen.uid,)), gpus)}
        whole = {uid_of(pod) for pod in holding(pods_of(api, top, (top.uid,)), gpus)}
        if whole - judged:
            raise Refused(f"{seen} is only a part of {top}, whose other parts are not judged with it")
    if top.entry["metadata"].get("deletionTimestamp"):
        raise Refused(f"{top} is being deleted already", gone=True)
    return top


def _named(api: Api, namespace: str, kind: str, name: str) -> Owner:
    if kind not in KINDS:
        raise Refused(
            f"does not know how a {kind or 'nameless kind'} is ended; it knows {', '.join(sorted(KINDS))}"
        )
    known = KINDS[kind]
    if kind != "Pod":
        _refuse_namesakes(api, namespace, kind, name)
    for group in known.groups:
        entry = api.get(f"{group}/namespaces/{namespace}/{known.plural}/{name}")
        if entry is not None:
            return Owner(kind, namespace, name, group, entry)
    raise Refused(f"{kind} {namespace}/{name} is gone", gone=True)


def _refuse_namesakes(api: Api, namespace: str, kind: str, name: str) -> None:
    """Other groups have kinds of the same name, as Volcano has a Job."""
    ours = {group.split("/", 1)[1] for group in KINDS[kind].groups}
    for pod in api.list(f"api/v1/namespaces/{namespace}/pods"):
        above = controller(pod) or {}
        group = str(above.get("apiVersion", ""))
        if (above.get("kind"), above.get("name")) == (kind, name) and _group(group) not in map(_group, ours):
            raise Refused(f"does not know how a {kind} of {_group(group)} is ended")


def _group(version: str) -> str:
    return version.rpartition("/")[0]


def _topmost(api: Api, owner: Owner) -> Owner:
    for _ in range(LONGEST_CHAIN):
        above = controller(owner.entry)
        if above is None or above.get("kind") in NOT_OWNERS:
            return owner
        kind, name = str(above.get("kind")), str(above.get("name"))
        if kind not in KINDS:
            raise Refused(
                f"{owner} belongs to {kind} {name}, which would bring it back and is not understood"
            )
        upper = _named(api, owner.namespace, kind, name)
        if upper.uid != above.get("uid"):
            raise Refused(f"{owner} belongs to a {kind} that is gone", gone=True)
        owner = upper
    raise Refused(f"{owner} has too many controllers above it")


def controller(entry: Entry) -> Entry | None:
    """The reference to what directly controls an object."""
    references = entry["metadata"].get("ownerReferences") or ()
    return next((item for item in references if item.get("controller")), None)


def pods_of(api: Api, owner: Owner, above: Collection[str]) -> list[Entry]:
    """The pods below an object, through what stands between.

    Args:
        api: of the cluster.
        owner: the object; it may be gone.
        above: uids below which pods count as its own, besides what stands there now.

    Raises:
        ApiFailure: the cluster did not tell.
    """
    pods = api.list(f"api/v1/namespaces/{owner.namespace}/pods")
    if owner.kind == "Pod":
        return [pod for pod in pods if uid_of(pod) in above]
    uids = above_pods(api, owner, above)
    return [pod for pod in pods if (controller(pod) or {}).get("uid") in uids]


def above_pods(api: Api, owner: Owner, above: Collection[str]) -> set[str]:
    """The uids of an object and of what stands between it and its pods.

    Raises:
        ApiFailure: the cluster did not tell.
    """
    uids = set(above)
    for kind in KINDS[owner.kind].below:
        known = KINDS[kind]
        found = api.list(f"{known.groups[0]}/namespaces/{owner.namespace}/{known.plural}")
        uids |= {uid_of(item) for item in found if (controller(item) or {}).get("uid") in uids}
    return uids


def living(pods: Sequence[Entry]) -> list[Entry]:
    """Pods that are not over, also those that are being deleted."""
    return [pod for pod in pods if value_at(pod, ("status", "phase")) not in ("Succeeded", "Failed")]


def holding(pods: Sequence[Entry], patterns: Sequence[str]) -> list[Entry]:
    """Living pods that have a node and GPUs on it."""
    return [pod for pod in living(pods) if pod["spec"].get("nodeName") and gpus_of(pod, patterns)]


def gpus_of(pod: Entry, patterns: Sequence[str]) -> int:
    """GPUs that a pod asks for: those of all containers, or of the greediest that runs before them."""
    spec = pod["spec"]
    before = [_asked(container, patterns) for container in spec.get("initContainers") or ()]
    return max([sum(_asked(container, patterns) for container in spec.get("containers") or ()), *before])


def _asked(container: Entry, patterns: Sequence[str]) -> int:
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return sum(
        int(value)
        for name, value in asked.items()
        if str(value).isdecimal() and any(fnmatchcase(name, pattern) for pattern in patterns)
    )


def grace_of(pods: Sequence[Entry]) -> float:
    """Seconds that pods take to end once they are asked to."""
    return max((float(pod["spec"].get("terminationGracePeriodSeconds") or 30) for pod in pods), default=30.0)


def is_over(owner: Owner) -> bool:
    """Whether it says itself that it has ended, well or badly."""
    status = owner.entry.get("status") or {}
    if owner.kind == "Pod":
        return status.get("phase") in ("Succeeded", "Failed")
    if owner.kind == "RayJob":
        return not RAY_ENDS.isdisjoint({status.get("jobStatus"), status.get("jobDeploymentStatus")})
    return any(
        item.get("type") in ENDS and item.get("status") == "True" for item in status.get("conditions") or ()
    )


def is_stuck(pod: Entry) -> bool:
    """Whether a part of a living pod failed, and it holds on to what it has all the same."""
    return any(
        value_at(state, ("waiting", "reason")) == "CrashLoopBackOff"
        or value_at(state, ("terminated", "exitCode")) not in (None, 0)
        for state in _states(pod)
    )


def _states(pod: Entry) -> Iterator[Entry]:
    for container in value_at(pod, ("status", "containerStatuses")) or ():
        yield container.get("state") or {}


def is_autoscaled(api: Api, owner: Owner) -> bool:
    """Whether a horizontal autoscaler sets its replicas.

    Raises:
        ApiFailure: the cluster did not tell.
    """
    scalers = api.list(f"apis/autoscaling/v2/namespaces/{owner.namespace}/horizontalpodautoscalers")
    targets = [value_at(item, ("spec", "scaleTargetRef")) or {} for item in scalers]
    return any((item.get("kind"), item.get("name")) == (owner.kind, owner.name) for item in targets)


def _seconds(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
