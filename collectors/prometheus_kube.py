"""Jobs that ask for GPUs, as kube-state-metrics tells them, named as the collector `kubernetes` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stoploss.collectors.prometheus_calls import Answer
from stoploss.collectors.prometheus_scene import Metric, Scene, Selector, Target, Told, exported, target_of
from stoploss.collectors.prometheus_scene import words as source_of
from stoploss.engine.model import Bad, LabelValue, Reading, ResourceId

NAME = "kube"

GPUS = "nvidia_com_gpu|nvidia_com_mig_.*|amd_com_gpu"
"""Resources that count as GPUs, as kube-state-metrics writes them."""

REQUESTS, PHASE, INFO = "kube_pod_container_resource_requests", "kube_pod_status_phase", "kube_pod_info"
VERDICTS = {"kube_job_complete": "ended", "kube_job_failed": "failed"}
OWNERS = {"kube_job_owner": ("Job", "job_name"), "kube_replicaset_owner": ("ReplicaSet", "replicaset")}
LABELS = "kube_pod_labels"

_LONGEST_CHAIN = 10
_NO_OWNER = frozenset({"", "<none>", "CronJob", "Node"})
"""Each run of a CronJob is a job of its own, and a node owns its pods only on paper."""

_PHASES = {"Running": "running", "Pending": "queued", "Succeeded": "ended", "Failed": "failed"}
_ORDER = ("running", "unknown", "queued", "failed", "ended")

Pod = tuple[str, str]
"""Namespace and name."""


def questions(selector: Selector) -> dict[str, str]:
    """What the server is asked."""
    names = (INFO, LABELS, *VERDICTS, *OWNERS)
    return {
        "kube": f"{selector.any_of(names)}"
        f" or {selector.of(REQUESTS, f'resource=~{GPUS!r}')}"
        f" or ({selector.of(PHASE)} == 1)",
        # One age a target: it tells all of its metrics at once.
        "kube ages": f"min by (job, instance) (timestamp({selector.of(INFO)}))",
    }


@dataclass(slots=True)
class Cluster:
    """What kube-state-metrics says of pods and of what stands above them.

    Attributes:
        above: object (namespace, kind, name) -> kind and name of its controller.
        pods: pod -> its node, or nothing.
        phases: pod -> phases that are told.
        gpus: pod -> GPUs by container and resource.
        verdicts: Job -> how it ended, or an empty text while it has not.
        labels: pod -> labels of kube_pod_labels.
        sources: pod -> the series that tell of it, by target.
        doubled: pods of which two targets tell.
    """

    above: dict[tuple[str, str, str], tuple[str, str]] = field(default_factory=dict)
    pods: dict[Pod, str] = field(default_factory=dict)
    phases: dict[Pod, set[str]] = field(default_factory=dict)
    gpus: dict[Pod, dict[tuple[str, str], float | Bad]] = field(default_factory=dict)
    verdicts: dict[Pod, str] = field(default_factory=dict)
    labels: dict[Pod, Mapping[str, str]] = field(default_factory=dict)
    sources: dict[Pod, dict[Target, str]] = field(default_factory=dict)

    def owner(self, pod: Pod) -> tuple[str, str] | None:
        """Kind and name of the last controller above a pod; None for a pod that is not told."""
        if pod not in self.pods:
            return None
        namespace, name = pod
        key = ("Pod", name)
        for _ in range(_LONGEST_CHAIN):
            above = self.above.get((namespace, *key))
            if above is None or above[0] in _NO_OWNER:
                break
            key = above
        return key

    def job(self, pod: Pod) -> str | None:
        """Name of the job that a pod is a part of; None for a pod that is not told."""
        owner = self.owner(pod)
        return None if owner is None else f"{pod[0]}/{owner[0].lower()}/{owner[1]}"


def cluster(values: Answer, ages: Answer, scene: Scene) -> Cluster:
    """What is told; what is too old is a bad reading of the pods that it is about."""
    newest = {target_of(item.labels): item.value for item in ages.series}
    found = Cluster()
    for item in values.series:
        value = scene.judged(item.value, newest.get(target_of(item.labels)))
        _add(found, Metric(item.name, item.labels, value))
    return found


def _add(found: Cluster, item: Metric) -> None:
    labels = item.labels
    namespace = exported(labels, "namespace")
    pod = namespace, exported(labels, "pod")
    if item.name in OWNERS:
        kind, label = OWNERS[item.name]
        found.above[namespace, kind, labels.get(label, "")] = (
            labels.get("owner_kind", ""),
            labels.get("owner_name", ""),
        )
    elif item.name in VERDICTS:
        job = namespace, exported(labels, "job_name")
        found.verdicts.setdefault(job, "")
        if labels.get("condition") == "true" and item.value == 1:
            found.verdicts[job] = VERDICTS[item.name]
    elif item.name == INFO:
        found.pods[pod] = exported(labels, "node")
        found.above[namespace, "Pod", pod[1]] = (
            labels.get("created_by_kind", ""),
            labels.get("created_by_name", ""),
        )
    elif item.name == LABELS:
        found.labels[pod] = labels
    elif item.name == PHASE:
        found.phases.setdefault(pod, set()).add(labels.get("phase", ""))
    elif item.name == REQUESTS:
        part = exported(labels, "container"), labels.get("resource", "")
        found.gpus.setdefault(pod, {})[part] = item.value
        found.sources.setdefault(pod, {})[item.target] = source_of(item)


def told(found: Cluster, scene: Scene) -> Iterator[Told]:
    """State, GPUs and nodes of every job that asks for GPUs."""
    jobs: dict[tuple[str, str, str], list[Pod]] = {}
    for pod in sorted(found.gpus):
        owner = found.owner(pod)
        if owner is None:
            scene.note("kube-state-metrics tells of pods with GPUs but not all of what they are a part of")
            continue
        jobs.setdefault((pod[0], *owner), []).append(pod)
    shown = {name for labels in found.labels.values() for name in labels}
    for (namespace, kind, name), pods in jobs.items():
        resource = ResourceId("job", f"{namespace}/{kind.lower()}/{name}")
        sources = {target: text for pod in pods for target, text in found.sources[pod].items()}
        labels: dict[str, LabelValue] = {}
        if (given := found.labels.get(pods[0])) is not None:
            # A label that no pod has may only not be exported.
            mapped = scene.options.labels.items()
            labels |= {label: given.get(source) or None for label, source in mapped if source in shown}
        nodes = sorted({found.pods[pod] for pod in pods if found.pods[pod] and not _over(found, pod)})
        labels |= {"namespace": namespace, "name": name, "owner": kind, "scheduler": "kubernetes"}
        labels["host"] = ",".join(nodes) or None
        readings = _readings(found, pods, nodes)
        if len(sources) > 1:
            twice = Bad(f"told twice: {', '.join(sorted(sources.values()))}")
            readings = dict.fromkeys(readings, twice)
        target, source = next(iter(sorted(sources.items())))
        for signal, reading in readings.items():
            yield Told(resource, signal, reading, labels, source, target)


def _over(found: Cluster, pod: Pod) -> bool:
    return bool(found.phases.get(pod, set()) & {"Succeeded", "Failed"})


def _readings(found: Cluster, pods: Sequence[Pod], nodes: Sequence[str]) -> dict[str, Reading]:
    values = [value for pod in pods for value in found.gpus[pod].values()]
    bad = next((value for value in values if isinstance(value, Bad)), None)
    if bad is not None:
        return dict.fromkeys(("job.state", "job.gpus", "job.nodes"), bad)
    if any(not found.phases.get(pod) for pod in pods):
        unphased = Bad("the phase of a pod is not told")
        return dict.fromkeys(("job.state", "job.gpus", "job.nodes"), unphased)
    states = {_state(found, pod) for pod in pods}
    state = next(word for word in _ORDER if word in states)
    held = [pod for pod in pods if found.pods[pod] and not _over(found, pod)]
    gpus = sum(value for pod in held for value in found.gpus[pod].values() if not isinstance(value, Bad))
    return {
        "job.state": Bad("the node of a pod is not heard from") if state == "unknown" else state,
        "job.gpus": float(gpus),
        "job.nodes": float(len(nodes)),
    }


def _state(found: Cluster, pod: Pod) -> str:
    phases = found.phases[pod]
    state = _PHASES.get(next(iter(phases)), "unknown") if len(phases) == 1 else "unknown"
    kind, name = found.above.get((pod[0], "Pod", pod[1]), ("", ""))
    if state in ("ended", "failed") and kind == "Job" and (pod[0], name) in found.verdicts:
        # Without a verdict the Job will try again, or has more to run.
        return found.verdicts[pod[0], name] or "queued"
    return state
