"""What a Prometheus server knows: GPUs, hosts, jobs of a cluster, and whatever a query gives.

It needs the address of the server and the right to query it, and changes nothing. A token or a
password is read from a variable or a file at each look, and never shown. Redirects are not followed.

- `dcgm` reads dcgm-exporter. A GPU is named `HOST/gpuINDEX`, as the collector `gpu` names it, with the
  label `uuid`. A MIG slice is named `HOST/gpuINDEX/giINSTANCE`, because the exporter does not tell the
  number that NVML gives it. The host is the first of the labels in `host`. The label `job` is the one
  of a Slurm job (`hpc_job`) or that of the pod, and unreadable where several share the GPU. `gpu.xid` is
  the newest Xid error; how many there were is not told. `gpu.memory.active` is the profiling counter
  where that is told.
- `node` reads node_exporter. A host is named by a label in `host`, or else by its `nodename`. Shares of time
  are over the last `lookback`. Bytes are those of interfaces that are hardware by their names; bonds,
  bridges and those of containers are left out, and ports of InfiniBand are added. File systems are volumes,
  `HOST:PATH`. The collector `host` tells pressure over ten seconds, this one over `lookback`.
- `kube` reads kube-state-metrics. Pods that ask for GPUs are jobs, named `NAMESPACE/KIND/NAME` as the
  collector `kubernetes` names them, with `job.state`, `job.gpus` and `job.nodes`. It also names the jobs of
  GPUs by their pods; a pod that it does not tell makes the label `job` unreadable. Leave `kube` out of
  `which` where there is no kube-state-metrics: pods are jobs then.
- `queries` give any other signal that is a number, in the unit of the catalogue (`times` converts:
  0.01 makes a share of percent). `id` names the resource from labels of the series. The age of a series
  that is named alone is known; for anything else give `newest`, such as
  `min by (job) (timestamp(my_loss))`, or it is as old as the server lets it be.

A sample that is older than `lookback` is no reading: the signal is bad, the old value is never said again.
Where a target does not answer (`up` is 0) all that it told before is bad, so that a GPU behind a dead
exporter is unknown and never idle. A target that is not scraped any more, or a series that is gone, is not
told. As long as an exporter that answers leaves out a GPU that it told before, the host's other GPUs
are neither idle nor busy, as for the collector `gpu`.

Several series for one signal of one resource (two exporters, two clusters, a relabelled target) make it bad
and name both; `match` picks one cluster. GPUs without a UUID, number or host are left out, and a note says
so. NaN and the blanks of DCGM are bad readings; only curves keep NaN. Where the server cannot answer one
question, what it concerned is bad; where it answers none, the look fails.

Right:

```yaml
collectors:
  prometheus:
    url: https://prometheus.example.org
    token-env: PROMETHEUS_TOKEN
    match: {cluster: west}
    queries:
      - {signal: train.loss, query: my_loss, id: "{namespace}/job/{job_name}", labels: {team: team}}
```

Wrong, because secrets do not belong into an address:

```yaml
collectors:
  prometheus: {url: "https://me:secret@prometheus.example.org"}
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from stoploss.collectors import prometheus_gpu as gpu
from stoploss.collectors import prometheus_kube as kube
from stoploss.collectors import prometheus_node as node
from stoploss.collectors.contract import Collector, CollectorError, Context
from stoploss.collectors.prometheus_calls import Answer, Answers, Server
from stoploss.collectors.prometheus_custom import Custom, custom
from stoploss.collectors.prometheus_options import Options
from stoploss.collectors.prometheus_scene import Scene, Selector, Target, Told, settled, target_of
from stoploss.engine.model import UNREADABLE, Bad, LabelValue, Look, ResourceId, Sample

NAME = "prometheus"

MOST_POINTS = 11_000
"""Points of one series that the server gives at most."""

CHUNK = 500
"""Instants that are asked for at once; more would only take memory."""

EXPORTERS = {"dcgm": "dcgm-exporter", "node": "node_exporter", "kube": "kube-state-metrics"}

_Known = dict[ResourceId, dict[str, Told]]
"""Resource -> signal -> how it was told when it was told last."""

_NO_LONGER = Bad("its exporter does not tell this GPU any more")


@dataclass(slots=True)
class PrometheusCollector:
    """One server.

    Attributes:
        options: what the policy file says.
        queries: the user's own.
        server: asks.
        nodes: what is kept of hosts.
        known: part and target -> what it told at the last look at which it could.
    """

    options: Options
    queries: tuple[Custom, ...]
    server: Server
    nodes: node.Nodes = field(default_factory=node.Nodes)
    known: dict[tuple[str, Target | None], _Known] = field(default_factory=dict)

    def look(self, at: float) -> Look:
        """See the contract."""
        return self._seen(at, self.server.ask(self._questions(), at))

    def history(self, begin: float, end: float, step: float) -> Iterator[Look]:
        """The looks that would have been made from `begin` to `end` (seconds), `step` seconds apart.

        To be used before the first look, the oldest instant first; nothing is told of instants of which
        the server holds nothing.

        Raises:
            CollectorError: the server does not answer.
            ValueError: the step is not above 0.
        """
        if step <= 0:
            raise ValueError("the step must be above 0")
        span = step * (min(CHUNK, MOST_POINTS) - 1)
        while begin <= end + 1e-6:
            for at, answers in self.server.ask_range(self._questions(), begin, min(begin + span, end), step):
                look = self._seen(at, answers)
                if look.samples:
                    yield look
            begin += span + step

    def _questions(self) -> dict[str, str]:
        selector, asked = Selector(self.options.match), dict[str, str]()
        asked["targets"] = selector.of("up")
        if "dcgm" in self.options.which:
            asked |= gpu.questions(selector)
        if "node" in self.options.which:
            asked |= node.questions(selector, self.options.oldest)
        if "kube" in self.options.which:
            asked |= kube.questions(selector)
        for query in self.queries:
            asked |= query.questions()
        return asked

    def _seen(self, at: float, answers: Answers) -> Look:
        refused = {answer.reason: None for answer in answers.values() if isinstance(answer, Bad)}
        if all(isinstance(answer, Bad) for answer in answers.values()):
            raise CollectorError("; ".join(refused))
        scene = Scene(at, self.options, _targets(answers["targets"]))
        for answer in answers.values():
            for text in answer.warnings if isinstance(answer, Answer) else ():
                scene.note(f"the server warns: {text}")
        told: list[tuple[str, Told]] = []
        failed: dict[str, Bad] = {}
        for part, ask in self._parts(answers, scene).items():
            concerned = [answer for key, answer in answers.items() if key.partition(" ages")[0] == part]
            concerned += [answer for key, answer in answers.items() if key == f"{part} rates"]
            bad = next((answer for answer in concerned if isinstance(answer, Bad)), None)
            if isinstance(answers["targets"], Bad):
                # Without its targets a dead exporter could not be told from a live one.
                bad = bad or answers["targets"]
            if bad is not None:
                failed[part] = bad
                scene.note(f"{EXPORTERS.get(part, part)}: {bad.reason}")
                continue
            told += [(part, item) for item in ask()]
            if part in EXPORTERS and not any(
                answer.series for answer in concerned if isinstance(answer, Answer)
            ):
                scene.note(f"no series of {EXPORTERS[part]}")
        partial = any(isinstance(answer, Answer) and answer.partial for answer in answers.values())
        found = settled(self._remembered(told, failed, scene, partial=partial))
        samples = tuple(Sample(at, item.resource, item.signal, item.reading, item.labels) for item in found)
        return Look(samples, notes=tuple(scene.notes))

    def _parts(self, answers: Answers, scene: Scene) -> dict[str, Callable[[], Iterable[Told]]]:
        """Part -> what reads its answers, which are whole when it is called."""

        def of(key: str) -> Answer:
            answer = answers.get(key, Answer())
            assert isinstance(answer, Answer)
            return answer

        parts: dict[str, Callable[[], Iterable[Told]]] = {}
        cluster: list[kube.Cluster] = []
        if "kube" in self.options.which:
            whole = isinstance(answers["kube"], Answer) and isinstance(answers["kube ages"], Answer)
            cluster += [kube.cluster(of("kube"), of("kube ages"), scene)] if whole else [kube.Cluster()]
            parts["kube"] = lambda: kube.told(cluster[0], scene)

        def job_of(namespace: str, pod: str) -> LabelValue:
            if not cluster:
                return f"{namespace}/pod/{pod}"
            job = cluster[0].job((namespace, pod))
            if job is None:
                scene.note("jobs of GPUs are unreadable where kube-state-metrics does not tell their pods")
            return UNREADABLE if job is None else job

        if "dcgm" in self.options.which:
            parts["dcgm"] = lambda: gpu.told(of("dcgm"), of("dcgm ages"), scene, job_of)
        if "node" in self.options.which:
            parts["node"] = lambda: self.nodes.told(of("node"), of("node ages"), of("node rates"), scene)
        for query in self.queries:
            parts[query.place] = _asked(query, answers, scene)
        return parts

    def _remembered(
        self, told: list[tuple[str, Told]], failed: Mapping[str, Bad], scene: Scene, *, partial: bool
    ) -> list[Told]:
        """What was told, with bad readings for what could not be, and GPUs beside lost ones in doubt."""
        now: dict[tuple[str, Target | None], _Known] = {}
        found: list[Told] = []
        for part, item in told:
            now.setdefault((part, item.target), {}).setdefault(item.resource, {})[item.signal] = item
            # What carries times of the exporter's own outlives it on the server.
            silent = _silent(item.target, scene)
            found.append(item if silent is None else _blind(item, silent))
        heard = {(item.resource, item.signal) for item in found}
        missing: set[ResourceId] = set()
        for key, before in self.known.items():
            part, target = key
            silent = _silent(target, scene)
            if part in failed:
                why, kept = failed[part], before
            elif silent is not None:
                why, kept = silent, before
            elif part == "dcgm" and key in now and not partial:
                why, kept = _NO_LONGER, _lost(before, now[key])
                missing |= kept.keys()
            else:
                continue
            now.setdefault(key, {}).update({name: old for name, old in kept.items() if name not in now[key]})
            found += [
                _blind(item, why)
                for signals in kept.values()
                for item in signals.values()
                if (item.resource, item.signal) not in heard
            ]
        self.known = now
        for resource in sorted(missing):
            scene.note(f"{resource.id}: {_NO_LONGER.reason}")
        return gpu.beside_lost(found, missing) if missing else found


def _asked(query: Custom, answers: Answers, scene: Scene) -> Callable[[], Iterable[Told]]:
    def ask() -> Iterable[Told]:
        values, ages = answers[query.place], answers.get(f"{query.place} ages")
        assert isinstance(values, Answer)
        return query.told(values, ages if isinstance(ages, Answer) else None, scene)

    return ask


def _targets(answer: Answer | Bad) -> dict[Target, tuple[bool, Mapping[str, str]]]:
    if isinstance(answer, Bad):
        return {}
    # Relabelled twins of a target are one: while one answers, the exporter is alive.
    found: dict[Target, tuple[bool, Mapping[str, str]]] = {}
    for item in answer.series:
        target = target_of(item.labels)
        found[target] = (item.value == 1 or found.get(target, (False, {}))[0], item.labels)
    return found


def _silent(target: Target | None, scene: Scene) -> Bad | None:
    """Why nothing of a target can be believed; None where it answers, or is not known."""
    if target is None or scene.targets.get(target, (True, {}))[0]:
        return None
    return Bad(f"{target[1]} does not answer")


def _lost(before: _Known, now: _Known) -> _Known:
    """Whole GPUs that are not told any more, of hosts of which others are."""
    hosts = {resource.id.partition("/gpu")[0] for resource in now}
    return {
        resource: signals
        for resource, signals in before.items()
        if resource not in now
        and resource.id.partition("/gpu")[0] in hosts
        and not any("parent" in item.labels for item in signals.values())
    }


def _blind(item: Told, why: Bad) -> Told:
    """What was told before, as a bad reading; who uses it is not known either."""
    labels = dict(item.labels)
    if "job" in labels:
        labels["job"] = UNREADABLE
    return Told(item.resource, item.signal, why, labels, item.source, item.target)


def build(options: Options, context: Context) -> Collector:
    """The running collector.

    Raises:
        CollectorError: a query does not fit the catalogue.
    """
    queries = tuple(custom(number, query) for number, query in enumerate(options.queries, 1))
    return PrometheusCollector(options, queries, Server(options))
