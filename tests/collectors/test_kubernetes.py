"""The kubernetes collector and the real client, against a recorded API on loopback; no cluster runs."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.kubernetes_api import (
    AT,
    BEFORE,
    EARLIER,
    Cluster,
    Entry,
    claim,
    labels,
    metadata,
    readings,
    terminated,
)

pytest.importorskip("lightkube", reason="the extra k8s is not installed")

from stoploss.collectors.contract import CollectorError, Context, NotHere
from stoploss.collectors.registry import load
from stoploss.engine.model import Bad, ResourceId


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A recorded API without objects."""
    made = Cluster(tmp_path)
    yield made
    made.close()


def test_pods_of_one_job_are_one_job(cluster: Cluster) -> None:
    """Pods below one Job add up their GPUs and nodes, and carry the labels that options name."""
    cluster.job("bert", spec={"activeDeadlineSeconds": 7200})
    for number in range(2):
        cluster.pod(
            f"bert-{number}",
            gpus=4,
            node=f"n{number}",
            owner=("Job", "bert"),
            labels={"example.org/team": "vision", "workload": "train"},
        )
    look = cluster.collector(labels={"team": "example.org/team", "class": "workload", "user": "u"}).look(AT)

    assert readings(look) == {
        "lab/job/bert": {
            "job.state": "running",
            "job.exit_reason": "none",
            "job.time_limit": 7200.0,
            "job.gpus": 8.0,
            "job.nodes": 2.0,
            "job.queue_time": 1800.0,
            "job.attempts": 1.0,
            "job.runtime": 1800.0,
            "job.since_end": 0.0,
        }
    }
    assert labels(look, "lab/job/bert") == {
        "team": "vision",
        "class": "train",
        "user": None,
        "namespace": "lab",
        "name": "bert",
        "owner": "Job",
        "scheduler": "kubernetes",
        "host": "n0,n1",
    }


def test_the_owner_is_the_topmost_controller(cluster: Cluster) -> None:
    """Chains end at a Deployment, a JobSet or the pod itself; runs of a CronJob stay apart."""
    above = metadata("web-7", {"owner": ("Deployment", "web")})
    cluster.objects["replicasets"].append({"metadata": above, "spec": {"selector": {}}})
    cluster.job("set-a", owner=("JobSet", "set"))
    cluster.job("nightly-1", owner=("CronJob", "nightly"))
    cluster.pod("web-7-x", owner=("ReplicaSet", "web-7"))
    cluster.pod("set-a-x", owner=("Job", "set-a"))
    cluster.pod("nightly-1-x", owner=("Job", "nightly-1"))
    cluster.pod("torch-0", owner=("PyTorchJob", "torch"))
    cluster.pod("alone")
    found = readings(cluster.collector().look(AT))

    assert sorted(found) == [
        "lab/deployment/web",
        "lab/job/nightly-1",
        "lab/jobset/set",
        "lab/pod/alone",
        "lab/pytorchjob/torch",
    ]


def test_pods_without_a_gpu_are_left_out(cluster: Cluster) -> None:
    """Only what asks for a GPU is a job, MIG slices included."""
    cluster.pod("cpu", gpus=0)
    cluster.job("cpu-job", gpus=0)
    slices = {"containers": [{"name": "m", "resources": {"requests": {"nvidia.com/mig-1g.5gb": "2"}}}]}
    cluster.pod("mig", gpus=0, spec=slices)
    found = readings(cluster.collector().look(AT))

    assert {name: told["job.gpus"] for name, told in found.items()} == {"lab/pod/mig": 2.0}


@pytest.mark.parametrize(
    ("phase", "status", "state", "reason"),
    [
        ("Pending", {}, "queued", "none"),
        ("Succeeded", terminated("Completed"), "ended", "completed"),
        ("Failed", terminated("Error"), "failed", "failed"),
        ("Failed", terminated("OOMKilled"), "failed", "out-of-memory"),
        ("Failed", {"reason": "DeadlineExceeded"}, "failed", "timeout"),
        ("Failed", {"reason": "Evicted"}, "failed", "preempted"),
        ("Failed", {"reason": "NodeLost"}, "failed", "node-failure"),
        (
            "Failed",
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
                ]
            },
            "failed",
            "preempted",
        ),
    ],
)
def test_a_phase_is_a_state_and_a_reason(
    cluster: Cluster, phase: str, status: Entry, state: str, reason: str
) -> None:
    """The phase of a pod by itself, and why it ended, are the state and exit reason of the job."""
    cluster.pod("p", phase, status=status)
    told = readings(cluster.collector().look(AT))["lab/pod/p"]

    assert (told["job.state"], told["job.exit_reason"]) == (state, reason)
    assert told["job.gpus"] == 0.0
    assert told["job.attempts"] == (0.0 if phase == "Pending" else 1.0)


def test_a_pod_that_is_not_heard_from_is_a_bad_reading(cluster: Cluster) -> None:
    """A pod in phase Unknown makes the state a bad reading, and its GPUs still count."""
    cluster.pod("p", "Unknown")
    told = readings(cluster.collector().look(AT))["lab/pod/p"]

    assert told["job.state"] == Bad("the node of a pod is not heard from")
    assert told["job.gpus"] == 1.0


def test_a_job_that_will_try_again_is_queued(cluster: Cluster) -> None:
    """A failed pod of a Job that goes on waits for the next attempt; failures are counted."""
    job = cluster.job("bert", status={"failed": 1})
    cluster.pod("bert-1", "Failed", owner=("Job", "bert"), status=terminated("OOMKilled"))
    looking = cluster.collector()
    waiting = readings(looking.look(AT))["lab/job/bert"]
    job["status"] |= {
        "failed": 3,
        "conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": BEFORE}],
    }
    failed = readings(looking.look(AT))["lab/job/bert"]

    assert (waiting["job.state"], waiting["job.exit_reason"], waiting["job.attempts"]) == (
        "queued",
        "none",
        1.0,
    )
    assert (failed["job.state"], failed["job.exit_reason"]) == ("failed", "out-of-memory")
    assert (failed["job.attempts"], failed["job.since_end"]) == (3.0, 1800.0)


@pytest.mark.parametrize(
    ("keys", "state", "reason"),
    [
        ({"spec": {"suspend": True}}, "suspended", "none"),
        ({}, "queued", "none"),
        ({"done": "Complete"}, "ended", "completed"),
        ({"done": "Failed:BackoffLimitExceeded"}, "failed", "failed"),
        ({"done": "Failed:DeadlineExceeded"}, "failed", "timeout"),
    ],
)
def test_a_job_without_pods_is_told_by_itself(
    cluster: Cluster, keys: Mapping[str, Any], state: str, reason: str
) -> None:
    """A Job that asks for GPUs is told also while none of its pods is there."""
    spec = keys.get("spec", {})
    cluster.job("bert", labels={"team": "vision"}, **(dict(keys) | {"spec": spec}))
    look = cluster.collector().look(AT)
    told = readings(look)["lab/job/bert"]

    assert (told["job.state"], told["job.exit_reason"], told["job.gpus"]) == (state, reason, 0.0)
    assert labels(look, "lab/job/bert")["team"] == "vision"


def test_restarts_of_containers_are_attempts(cluster: Cluster) -> None:
    """Each restart of a container in a living pod is one more attempt."""
    cluster.pod("p", status=terminated("Error", restarts=3))

    assert readings(cluster.collector().look(AT))["lab/pod/p"]["job.attempts"] == 4.0


def test_a_long_list_is_read_page_by_page(cluster: Cluster) -> None:
    """Lists that the API cuts are followed to their end by the token that it gives."""
    cluster.page = 3
    for number in range(10):
        cluster.pod(f"p{number}")

    assert len(readings(cluster.collector().look(AT))) == 10
    assert sum("/pods?" in target for target in cluster.asked) == 4


def test_a_forbidden_namespace_leaves_the_others(cluster: Cluster) -> None:
    """A namespace that may not be read is named in a note, and the others are told."""
    cluster.pod("a", namespace="open")
    cluster.pod("b", namespace="closed")
    cluster.refusals["pods", "closed"] = 403
    look = cluster.collector(namespaces=["open", "closed"]).look(AT)

    assert list(readings(look)) == ["open/pod/a"]
    assert look.notes == ("Pod of namespace closed: not allowed",)


def test_no_namespace_at_all_fails_the_look(cluster: Cluster) -> None:
    """Where nothing may be read the look fails with every reason."""
    cluster.refusals["pods", ""] = 403

    with pytest.raises(CollectorError, match="Pod of all namespaces: not allowed"):
        cluster.collector().look(AT)


def test_what_could_not_be_read_is_not_gone(cluster: Cluster) -> None:
    """A job is gone when its namespace was read without it, not while the namespace fails."""
    for place in ("one", "two"):
        cluster.pod("p", namespace=place)
    looking = cluster.collector(namespaces=["one", "two"])
    looking.look(AT)
    cluster.objects["pods"].clear()
    cluster.refusals["pods", "two"] = 500
    first = looking.look(AT + 60)
    cluster.refusals.clear()
    second = looking.look(AT + 120)

    assert readings(first) == {"one/pod/p": {"resource.present": 0.0}}
    assert first.notes == ("Pod of namespace two: refused pods",)
    assert readings(second) == {"two/pod/p": {"resource.present": 0.0}}


def test_owners_that_fail_now_do_not_rename_jobs(cluster: Cluster) -> None:
    """Where Jobs may not be listed pods go by their controller; where that only fails, nothing is told."""
    cluster.job("set-a", owner=("JobSet", "set"))
    cluster.pod("set-a-x", owner=("Job", "set-a"))
    cluster.refusals["jobs", ""] = 403
    look = cluster.collector().look(AT)
    cluster.refusals["jobs", ""] = 500

    assert list(readings(look)) == ["lab/job/set-a"]
    assert look.notes == ("Job of all namespaces: not allowed",)
    with pytest.raises(CollectorError, match="Job of all namespaces: refused jobs"):
        cluster.collector().look(AT)


def test_a_job_that_ended_long_ago_is_not_told(cluster: Cluster) -> None:
    """After `forget` an ended job is gone, although its pods are still there."""
    cluster.pod("p", "Succeeded", status=terminated("Completed"))
    looking = cluster.collector(forget="30m")
    first = readings(looking.look(AT))["lab/pod/p"]

    assert (first["job.since_end"], first["job.runtime"]) == (600.0, 1200.0)
    assert readings(looking.look(AT + 1800)) == {"lab/pod/p": {"resource.present": 0.0}}


def test_claims_are_volumes(cluster: Cluster) -> None:
    """A claim counts the nodes that mount it, and remembers when it was last seen attached."""
    cluster.objects["persistentvolumeclaims"] += [claim("data"), claim("old")]
    mount = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
    cluster.pod("a", gpus=0, spec=mount)
    cluster.pod("b", gpus=0, spec=mount)
    looking = cluster.collector()
    first = looking.look(AT)
    cluster.objects["pods"].clear()
    second = readings(looking.look(AT + 60), "volume")

    assert readings(first, "volume") == {
        "lab/data": {
            "storage.attachments": 1.0,
            "storage.references": 1.0,
            "storage.since_detached": 0.0,
            "storage.capacity": 100 * 2**30,
        },
        "lab/old": {
            "storage.attachments": 0.0,
            "storage.references": 1.0,
            "storage.since_detached": Bad("not seen attached yet"),
            "storage.capacity": 100 * 2**30,
        },
    }
    assert (second["lab/data"]["storage.attachments"], second["lab/data"]["storage.since_detached"]) == (
        0.0,
        60.0,
    )
    assert labels(first, "lab/data") == {
        "team": "vision",
        "user": None,
        "class": None,
        "namespace": "lab",
        "storage_class": "ssd",
        "volume": "pv-data",
    }


def test_a_released_volume_has_no_references(cluster: Cluster) -> None:
    """A volume that its claim let go is told with the time since then; a bound one is not told twice."""
    for name, phase in (("pv-1", "Released"), ("pv-2", "Bound")):
        cluster.objects["persistentvolumes"].append(
            {
                "metadata": {"name": name},
                "spec": {"capacity": {"storage": "1Ti"}},
                "status": {"phase": phase, "lastPhaseTransitionTime": EARLIER},
            }
        )
    found = readings(cluster.collector().look(AT), "volume")

    assert found == {
        "pv-1": {
            "storage.attachments": 0.0,
            "storage.references": 0.0,
            "storage.since_detached": 3600.0,
            "storage.capacity": float(2**40),
        }
    }


def test_claims_that_may_not_be_listed_cost_only_volumes(cluster: Cluster) -> None:
    """Without the right to list claims the jobs are told, and a note says what is missing."""
    cluster.pod("p")
    cluster.refusals["persistentvolumeclaims", ""] = 403
    look = cluster.collector().look(AT)

    assert {item.resource for item in look.samples} == {ResourceId("job", "lab/pod/p")}
    assert look.notes == ("PersistentVolumeClaim of all namespaces: not allowed",)


def test_no_configuration_is_not_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where neither a pod's account nor a kubeconfig is found there is nothing to look at."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    with pytest.raises(NotHere, match="no cluster is configured"):
        load().build("kubernetes", {}, Context("n1")).look(AT)


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        (None, {}, "not found"),
        (": [", {}, "the kubeconfig cannot be read"),
        ("{clusters: [], contexts: []}", {}, "No current context"),
        ("{clusters: [], contexts: []}", {"context": "x"}, "Context 'x' not found"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_fails(
    tmp_path: Path, text: str | None, options: Mapping[str, object], reason: str
) -> None:
    """A kubeconfig that was named and cannot be used fails the look with the reason."""
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    given = {"kubeconfig": str(path), **options}

    with pytest.raises(CollectorError, match=reason):
        load().build("kubernetes", given, Context("n1")).look(AT)


def test_a_cluster_that_is_down_fails_the_look(cluster: Cluster, tmp_path: Path) -> None:
    """A server that refuses connections fails the look and is asked again at the next one."""
    path = Path(cluster.config())
    path.write_text(path.read_text().replace(str(cluster.server.server_address[1]), "1"))

    with pytest.raises(CollectorError, match="Pod of all namespaces: ConnectError"):
        load().build("kubernetes", {"kubeconfig": str(path)}, Context("n1")).look(AT)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the client is not installed the message names the extra."""
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "lightkube":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)

    with pytest.raises(CollectorError, match=r"pip install 'stoploss\[k8s\]'"):
        load().build("kubernetes", {}, Context("n1"))
