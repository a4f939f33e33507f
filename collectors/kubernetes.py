"""Jobs of a Kubernetes cluster that ask for GPUs, and the volumes that are claimed.

Needs the extra `k8s` (`pip install 'stoploss[k8s]'`) and the right to list pods, Jobs, ReplicaSets and
persistent volume claims, of all namespaces or of those that are named. It changes nothing. In a pod it
uses the pod's account; elsewhere the kubeconfig.

- Every pod that asks for a GPU counts. Pods are one job where the same controller stands above them:
  pod, ReplicaSet, Deployment, or pod, Job, JobSet. A job is named `NAMESPACE/KIND/NAME`, such as
  `research/job/bert`, and keeps the name when its pods are replaced. Each run of a CronJob is a job of
  its own. Processes that the collector `process` finds in a pod are named by the pod: give them
  `STOPLOSS_JOB` to meet the job.
- Labels: those of `labels` from the pod, `namespace`, `name`, `owner` (the kind), `scheduler`
  (`kubernetes`) and `host` (the nodes, with commas).
- `job.state`: running while one pod runs; queued while pods wait for a place or a Job will try again;
  suspended as its Job says; then failed where a part failed, else ended. A pod whose node is not heard
  from makes bad readings.
- `job.exit_reason` comes from the pods: OOMKilled is `out-of-memory`, a passed deadline `timeout`, an
  eviction or a preemption `preempted`, a node that was lost or shut down `node-failure`.
- `job.gpus` counts pods that have a node and are not over; a slice of a GPU counts as one.
  `job.attempts` counts restarts of containers and failed pods of a Job, and the start before them.
- A volume is a claim, `NAMESPACE/CLAIM`, or, where all namespaces are looked at, a volume that no claim
  holds any more. `storage.attachments` counts nodes with pods that mount it and are not over,
  `storage.references` is 1 while a claim is bound. Labels: `namespace`, `storage_class`, `volume`.

A namespace that may not be read, or fails, leaves the others as they are; a note names it. Where none
can be read the look fails. Where Jobs or ReplicaSets may not be listed, pods are told by what stands
directly above them. Where no cluster is configured there is nothing to look at.

Right:

```yaml
collectors:
  kubernetes: {namespaces: [research, vision], labels: {team: example.org/team, class: workload}}
```

Wrong, because labels are pairs of names:

```yaml
collectors:
  kubernetes: {labels: [team]}
```
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stoploss.collectors import kubernetes_jobs as jobs
from stoploss.collectors.contract import Collector, CollectorError, Context, NotHere
from stoploss.collectors.kubernetes_jobs import Key, Member
from stoploss.collectors.kubernetes_options import Options
from stoploss.engine.model import Bad, LabelValue, Look, Reading, ResourceId, Sample

NAME = "kubernetes"

REQUEST_LIMIT = 3.0
"""Seconds that one request may take."""

PAGE = 500
"""Objects of one request."""

ALL = "*"

_NEVER_ATTACHED = Bad("not seen attached yet")


class _Refused(Exception):
    """The cluster does not give a list; the text says why."""

    def __init__(self, reason: str, *, forbidden: bool) -> None:
        super().__init__(reason)
        self.forbidden = forbidden


@dataclass(slots=True)
class _Found:
    """What one look found, namespace by namespace."""

    members: dict[Key, list[Member]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[Key, int] = field(default_factory=lambda: defaultdict(int))
    claims: list[Any] = field(default_factory=list)
    volumes: list[Any] = field(default_factory=list)
    mounted: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    notes: list[str] = field(default_factory=list)
    unread: set[tuple[str, str]] = field(default_factory=set)


@dataclass(slots=True)
class KubernetesCollector:
    """One cluster.

    Attributes:
        options: what the policy file says.
        connect: makes the client; raises NotHere or CollectorError where there is no cluster.
        client: the client, once it was made.
        seen: jobs and volumes of the looks before, with their namespaces.
        attached: when each volume was last seen attached.
    """

    options: Options
    connect: Callable[[Options], Any]
    client: Any = None
    seen: dict[ResourceId, str] = field(default_factory=dict)
    attached: dict[ResourceId, float] = field(default_factory=dict)

    def look(self, at: float) -> Look:
        """See the contract."""
        if self.client is None:
            self.client = self.connect(self.options)
        found = _Found()
        places = self.options.namespaces or (ALL,)
        refused = [why for place in places if (why := self._read(place, found))]
        if len(refused) == len(places):
            raise CollectorError("; ".join(refused))
        found.notes += refused
        shown: dict[ResourceId, str] = {}
        samples = [*self._jobs(found, at, shown), *self._volumes(found, at, shown)]
        for resource, namespace in self.seen.items():
            if resource in shown:
                continue
            if {(ALL, resource.kind), (namespace, resource.kind)}.isdisjoint(found.unread):
                samples.append(Sample(at, resource, "resource.present", 0.0))
            else:
                shown[resource] = namespace
        self.seen = shown
        self.attached = {volume: time for volume, time in self.attached.items() if volume in shown}
        return Look(tuple(samples), notes=tuple(found.notes))

    def _read(self, place: str, found: _Found) -> str | None:
        """Read one namespace; returns why that cannot be done."""
        from lightkube.resources.apps_v1 import ReplicaSet
        from lightkube.resources.batch_v1 import Job
        from lightkube.resources.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod

        try:
            pods = self._list(Pod, place)
            owners = self._optional(Job, place, found), self._optional(ReplicaSet, place, found)
        except _Refused as error:
            found.unread |= {(place, "job"), (place, "volume")}
            return str(error)
        self._gather(pods, owners, found)
        try:
            found.claims += self._list(PersistentVolumeClaim, place)
            if place == ALL:
                found.volumes += self._list(PersistentVolume, place)
        except _Refused as error:
            found.unread.add((place, "volume"))
            found.notes.append(str(error))
        return None

    def _optional(self, kind: Any, place: str, found: _Found) -> list[Any]:
        """A list that may be forbidden for good; when it only fails now, names of jobs would change."""
        try:
            return self._list(kind, place)
        except _Refused as error:
            if not error.forbidden:
                raise
            found.notes.append(str(error))
            return []

    def _list(self, kind: Any, place: str) -> list[Any]:
        from lightkube import ApiError
        from lightkube.core.resource import NamespacedResource

        namespace = place if issubclass(kind, NamespacedResource) else None
        where = "all namespaces" if place == ALL else f"namespace {place}"
        try:
            return list(self.client.list(kind, namespace=namespace, chunk_size=PAGE))
        except ApiError as error:
            code = error.status.code
            words = "not allowed" if code == 403 else error.status.message or f"status {code}"
            raise _Refused(f"{kind.__name__} of {where}: {words}", forbidden=code == 403) from None
        except Exception as error:
            # The client has errors of several libraries: of the network, of TLS, of what it cannot read.
            words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise _Refused(f"{kind.__name__} of {where}: {words}", forbidden=False) from None

    def _gather(self, pods: list[Any], owners: tuple[list[Any], list[Any]], found: _Found) -> None:
        batch = {(item.metadata.namespace, "Job", item.metadata.name): item for item in owners[0]}
        known = {key: item.metadata.ownerReferences for key, item in batch.items()}
        known |= {
            (item.metadata.namespace, "ReplicaSet", item.metadata.name): item.metadata.ownerReferences
            for item in owners[1]
        }
        unseen = dict(batch)
        for pod in pods:
            meta = pod.metadata
            over = bool(pod.status) and pod.status.phase in ("Succeeded", "Failed")
            for volume in pod.spec.volumes or ():
                if volume.persistentVolumeClaim and pod.spec.nodeName and not over:
                    claim = (meta.namespace, volume.persistentVolumeClaim.claimName)
                    found.mounted[claim].add(pod.spec.nodeName)
            if gpus := jobs.gpus_of(pod.spec, self.options.gpus):
                owner = jobs.top_owner(meta.namespace, ("Pod", meta.name), meta.ownerReferences, known)
                above = jobs.controller(meta.namespace, meta.ownerReferences)
                unseen.pop(above, None)  # type: ignore[arg-type]
                job = batch.get(above) if above else None
                found.members[owner].append(jobs.of_pod(pod, owner, job, gpus))
        for (namespace, kind, name), job in batch.items():
            if not jobs.gpus_of(job.spec.template.spec, self.options.gpus):
                continue
            owner = jobs.top_owner(namespace, (kind, name), job.metadata.ownerReferences, known)
            found.failures[owner] += (job.status and job.status.failed) or 0
            if (namespace, kind, name) in unseen:
                found.members[owner].append(jobs.of_job(job, owner))

    def _jobs(self, found: _Found, at: float, shown: dict[ResourceId, str]) -> Iterator[Sample]:
        for key, members in sorted(found.members.items()):
            namespace, kind, name = key
            ended = jobs.ended_at(members)
            if ended is not None and at - ended > self.options.forget:
                continue
            resource = ResourceId("job", f"{namespace}/{kind.lower()}/{name}")
            shown[resource] = namespace
            pod = members[0].labels
            nodes = sorted({member.node for member in members if member.node})
            labels: dict[str, LabelValue] = {
                label: pod.get(source) for label, source in self.options.labels.items()
            }
            labels |= {"namespace": namespace, "name": name, "owner": kind, "scheduler": NAME}
            labels["host"] = ",".join(nodes) or None
            for signal, reading in jobs.readings(members, found.failures[key], at):
                yield Sample(at, resource, signal, reading, labels)

    def _volumes(self, found: _Found, at: float, shown: dict[ResourceId, str]) -> Iterator[Sample]:
        for claim in found.claims:
            namespace, name = claim.metadata.namespace, claim.metadata.name
            resource = ResourceId("volume", f"{namespace}/{name}")
            shown[resource] = namespace
            nodes = found.mounted[namespace, name]
            if nodes:
                self.attached[resource] = at
            bound = bool(claim.status) and claim.status.phase == "Bound"
            since: Reading = at - self.attached[resource] if resource in self.attached else _NEVER_ATTACHED
            capacity = claim.status.capacity if claim.status else None
            labels: dict[str, LabelValue] = {
                label: (claim.metadata.labels or {}).get(source)
                for label, source in self.options.labels.items()
            }
            labels |= {
                "namespace": namespace,
                "storage_class": claim.spec.storageClassName,
                "volume": claim.spec.volumeName,
            }
            told = (float(len(nodes)), float(bound), since, _size(capacity))
            yield from _volume_samples(at, resource, told, labels)
        for volume in found.volumes:
            status = volume.status
            if not status or status.phase not in ("Available", "Released", "Failed"):
                continue
            resource = ResourceId("volume", volume.metadata.name)
            shown[resource] = ALL
            freed = jobs.seconds(status.lastPhaseTransitionTime)
            idle: Reading = Bad("this version does not tell it") if freed is None else max(at - freed, 0.0)
            parts: dict[str, LabelValue] = {"namespace": None, "storage_class": volume.spec.storageClassName}
            told = (0.0, 0.0, idle, _size(volume.spec.capacity))
            yield from _volume_samples(at, resource, told, parts | {"volume": volume.metadata.name})


def _volume_samples(
    at: float, resource: ResourceId, told: tuple[Reading, ...], labels: dict[str, LabelValue]
) -> Iterator[Sample]:
    names = ("storage.attachments", "storage.references", "storage.since_detached", "storage.capacity")
    for signal, reading in zip(names, told, strict=True):
        yield Sample(at, resource, signal, reading, labels)


def _size(capacity: Any) -> Reading:
    text = str((capacity or {}).get("storage", ""))
    try:
        return jobs.quantity(text)
    except ValueError:
        return Bad("its size is not told")


def connect(options: Options) -> Any:
    """A client of the cluster that the options, the pod's account or the kubeconfig name.

    Raises:
        NotHere: none is configured.
        CollectorError: the configuration cannot be used.
    """
    from lightkube import Client, KubeConfig
    from lightkube.config.models import User
    from lightkube.core.exceptions import ConfigError

    try:
        config = KubeConfig.from_file(options.kubeconfig) if options.kubeconfig else KubeConfig.from_env()
    except ConfigError as error:
        if options.kubeconfig:
            raise CollectorError(str(error)) from None
        raise NotHere("no cluster is configured: neither a pod's account nor a kubeconfig") from None
    except Exception as error:
        raise CollectorError(f"the kubeconfig cannot be read: {type(error).__name__}") from None
    try:
        single = config.get(options.context)
        if single is None:
            raise CollectorError("the kubeconfig names no current context")
        # The client refuses a cluster that needs no user, as a local proxy does.
        single = single._replace(user=single.user or User())
        return Client(config=single, timeout=REQUEST_LIMIT)  # type: ignore[arg-type]
    except ConfigError as error:
        raise CollectorError(str(error)) from None
    except KeyError as error:
        raise CollectorError(f"the kubeconfig does not hold {error}") from None


def build(options: Options, context: Context) -> Collector:
    """The running collector.

    Raises:
        CollectorError: the extra `k8s` is not installed.
    """
    try:
        import lightkube  # noqa: F401
    except ImportError:
        raise CollectorError("needs the extra k8s: pip install 'stoploss[k8s]'") from None
    return KubernetesCollector(options, connect)
