"""Jobs on Kubernetes are ended, given less and started again, against an API on loopback; no cluster runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.kubernetes_api import AT, Cluster, Entry

pytest.importorskip("lightkube", reason="the extra k8s is not installed")

from stoploss.actions import downscale, release, resume, terminate
from stoploss.actions.contract import Action, Means
from stoploss.actions.targets import kubernetes_calls
from stoploss.engine.model import Found, Order, Outcome, Refused, ResourceId

BUILDS = {item.NAME: item.build for item in (downscale, release, resume, terminate)}


@dataclass
class Bench:
    """A cluster, and orders about what is in it; `slept` stands for time that passes.

    Attributes:
        cluster: the API.
        options: of the collector.
        asleep: called at each pause; what happens meanwhile.
        slept: seconds of all pauses.
    """

    cluster: Cluster
    options: dict[str, Any]
    asleep: Callable[[], None] = lambda: None
    slept: float = 0.0
    orders: int = field(default=0)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.slept += seconds
        self.asleep()

    def action(self, name: str) -> Action:
        """An action as the daemon makes it."""
        means = Means("n1", lambda: AT, lambda: self.slept, self.sleep, {}, {"kubernetes": self.options})
        return BUILDS[name](means)

    def order(self, action: str, owner: str, name: str, **parameters: Any) -> Order:
        """An order about a job in the namespace lab."""
        self.orders += 1
        labels = {"scheduler": "kubernetes", "namespace": "lab", "owner": owner, "name": name}
        job = ResourceId("job", f"lab/{owner.lower()}/{name}")
        return Order(f"o{self.orders}", action, job, parameters, labels, "policy idle", since=AT)

    def find(self, order: Order) -> Found:
        """Look, and give it back as the ledger does."""
        found = self.action(order.action).find(order)
        return Found(found.words, json.loads(json.dumps(found.before)), found.undoable, found.place)

    def act(self, order: Order, found: Found) -> Outcome:
        """Act."""
        return self.action(order.action).act(order, found)

    def look(self, order: Order, found: Found) -> Outcome:
        """Look afterwards."""
        return self.action(order.action).look(order, found)

    def undo(self, order: Order, found: Found) -> Outcome:
        """Take it back."""
        return self.action(order.action).undo(order, found)

    def refused(self, order: Order) -> Refused:
        """Why an order is refused, without anything being written."""
        with pytest.raises(Refused) as caught:
            self.find(order)
        assert self.cluster.written == []
        return caught.value

    @property
    def names(self) -> list[str]:
        """The pods that are there."""
        return [pod["metadata"]["name"] for pod in self.cluster.objects["pods"]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One server for all tests of this file."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture
def bench(server: Cluster) -> Bench:
    """The server with nothing in it."""
    for found in server.objects.values():
        found.clear()
    server.refusals, server.refused_writes, server.written, server.asked = {}, {}, [], []
    server.after_write, server.lost_answers, server.slow, server.page = (lambda: None), 0, False, 500
    return Bench(server, {"kubeconfig": server.config(), "context": None, "namespaces": ()})


def job(bench: Bench, **keys: Any) -> Entry:
    """A Job with two pods, and a pod of somebody else."""
    made = bench.cluster.job("bert", **keys)
    for number in range(2):
        bench.cluster.pod(f"bert-{number}", gpus=4, owner=("Job", "bert"))
    bench.cluster.pod("other")
    return made


def deployment(bench: Bench, replicas: int = 2) -> Entry:
    """A Deployment with its ReplicaSet and pods."""
    made = bench.cluster.add("Deployment", "web", spec={"replicas": replicas})
    bench.cluster.add("ReplicaSet", "web-7", owner=("Deployment", "web"), spec={})
    for number in range(replicas):
        bench.cluster.pod(f"web-7-{number}", owner=("ReplicaSet", "web-7"))
    return made


def test_a_job_is_deleted_with_its_pods(bench: Bench) -> None:
    """A Job is deleted by its uid, in the foreground, and is done once its pods are gone and stay so."""
    job(bench)
    order = bench.order("terminate", "Job", "bert", grace=60.0)
    found = bench.find(order)
    outcome = bench.act(order, found)

    assert found.words == "would delete Job lab/bert, with 2 pods, 2 of them with GPUs"
    assert not found.undoable
    assert outcome.state == "done"
    assert outcome.after == {"pods": 0}
    assert bench.cluster.written == [("DELETE", "/apis/batch/v1/namespaces/lab/jobs/bert")]
    assert bench.names == ["other"]
    assert bench.slept >= 30


@pytest.mark.parametrize("action", ["terminate", "downscale", "release"])
def test_find_and_look_change_nothing(bench: Bench, action: str) -> None:
    """Looking before and after asks only for objects, and says that nothing has changed."""
    job(bench, done="Failed") if action == "release" else job(bench)
    before = json.dumps(bench.cluster.objects)
    order = bench.order(action, "Job", "bert")
    state = bench.look(order, bench.find(order)).state

    assert state == "undone"
    assert json.dumps(bench.cluster.objects) == before
    assert bench.cluster.written == []


def test_a_bare_pod_is_given_its_grace(bench: Bench) -> None:
    """A pod that nobody controls is deleted itself, with the grace of the step."""
    bench.cluster.pod("alone")
    order = bench.order("terminate", "Pod", "alone", grace=20.0)
    found = bench.find(order)

    assert found.before["own_grace"] == 20
    assert bench.act(order, found).state == "done"
    assert bench.names == []


def test_a_job_is_stopped_so_that_it_can_go_on(bench: Bench) -> None:
    """`how: stop` suspends a Job, which an undo lets run again, leaving no trace."""
    made = job(bench)
    order = bench.order("terminate", "Job", "bert", how="stop")
    found = bench.find(order)
    outcome = bench.act(order, found)
    suspended = made["spec"]["suspend"], dict(made["metadata"]["annotations"])
    undone = bench.undo(order, found)

    assert (outcome.state, found.undoable) == ("done", True)
    assert suspended == (True, {"stoploss.dev/order": "o1", "stoploss.dev/suspended": "true"})
    assert undone.state == "done"
    assert "suspend" not in made["spec"]
    assert made["metadata"]["annotations"] == {}
    assert bench.undo(order, found).state == "done"
    assert len(bench.cluster.written) == 2


def test_a_deployment_is_scaled_to_none(bench: Bench) -> None:
    """What keeps pods running is scaled to 0, remembers its replicas, and gets them back by an undo."""
    made = deployment(bench)
    order = bench.order("terminate", "Deployment", "web")
    found = bench.find(order)
    outcome = bench.act(order, found)
    scaled = made["spec"]["replicas"], made["metadata"]["annotations"]["stoploss.dev/replicas"]

    assert found.words == "would scale Deployment lab/web from 2 to 0, with 2 pods, 2 of them with GPUs"
    assert outcome.state == "done"
    assert scaled == (0, "2")
    assert bench.names == []
    assert bench.undo(order, found).state == "done"
    assert made["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("kind", "field"), [("JobSet", "suspend"), ("PyTorchJob", "runPolicy"), ("RayCluster", "suspend")]
)
def test_controllers_of_other_groups_are_suspended(bench: Bench, kind: str, field: str) -> None:
    """Less, without a number, suspends a controller as its kind has it."""
    made = bench.cluster.add(kind, "big")
    bench.cluster.pod("big-0", owner=(kind, "big"))
    order = bench.order("downscale", kind, "big")
    outcome = bench.act(order, bench.find(order))

    assert outcome.state == "done"
    assert made["spec"][field] in (True, {"suspend": True})
    assert bench.names == []


def test_fewer_replicas(bench: Bench) -> None:
    """A number of replicas below the present one is set, and the rest of the pods stay."""
    made = deployment(bench, 3)
    order = bench.order("downscale", "Deployment", "web", replicas=1)
    found = bench.find(order)

    assert bench.act(order, found).state == "done"
    assert (made["spec"]["replicas"], bench.names) == (1, ["web-7-0"])
    assert bench.look(order, found).state == "done"


def test_an_elastic_job_gets_fewer_workers(bench: Bench) -> None:
    """An elastic PyTorchJob goes on with fewer workers, and not with fewer than it says it needs."""
    spec = {"elasticPolicy": {"minReplicas": 2}, "pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}
    made = bench.cluster.add("PyTorchJob", "big", spec=spec)
    role = {"training.kubeflow.org/replica-type": "worker"}
    for number in range(4):
        bench.cluster.pod(f"big-{number}", owner=("PyTorchJob", "big"), labels=role)
    few = bench.refused(bench.order("downscale", "PyTorchJob", "big", replicas=1))
    order = bench.order("downscale", "PyTorchJob", "big", replicas=2)
    outcome = bench.act(order, bench.find(order))

    assert few.words == "PyTorchJob lab/big needs 2 workers at least"
    assert outcome.state == "done"
    assert made["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 2


@pytest.mark.parametrize(
    ("kind", "spec", "parameters", "words"),
    [
        ("PyTorchJob", {}, {"replicas": 1}, "is not elastic"),
        ("Deployment", {"replicas": 2}, {"replicas": 2}, "2 is no less"),
        ("Deployment", {"replicas": 0}, {}, "has no replicas"),
        ("Deployment", {"replicas": 2}, {"gpus": 1}, "set replicas"),
        ("JobSet", {}, {"replicas": 1}, "cannot be changed while it runs"),
        ("JobSet", {"suspend": True}, {}, "is suspended already"),
        ("RayJob", {}, {}, "does not set shutdownAfterJobFinishes"),
        ("Pod", {}, {}, "can be ended but not suspended"),
    ],
)
def test_what_cannot_have_less_is_refused(
    bench: Bench, kind: str, spec: Entry, parameters: dict[str, int], words: str
) -> None:
    """A step that would gain nothing, or harm what cannot go on with less, is refused in words."""
    bench.cluster.add(kind, "big", spec=spec)

    assert words in bench.refused(bench.order("downscale", kind, "big", **parameters)).words


def test_an_autoscaler_is_not_fought(bench: Bench) -> None:
    """What an autoscaler scales is not scaled by hand; where that cannot be seen it is not either."""
    deployment(bench)
    target = {"kind": "Deployment", "name": "web"}
    bench.cluster.add("HorizontalPodAutoscaler", "web", spec={"scaleTargetRef": target})
    scaled = bench.refused(bench.order("downscale", "Deployment", "web", replicas=1))
    bench.cluster.refusals["horizontalpodautoscalers", "lab"] = 403
    hidden = bench.refused(bench.order("downscale", "Deployment", "web", replicas=1))

    assert scaled.words == "Deployment lab/web has an autoscaler, which would bring it back"
    assert hidden.words == "no rights to read horizontalpodautoscalers in lab"


def test_a_queue_is_not_fought(bench: Bench) -> None:
    """A Job in a queue of Kueue is not suspended behind its back, but may be deleted."""
    job(bench, labels={"kueue.x-k8s.io/queue-name": "q"})

    assert "Kueue" in bench.refused(bench.order("downscale", "Job", "bert")).words
    assert bench.find(bench.order("terminate", "Job", "bert")).words.startswith("would delete")


def test_unknown_controllers_are_refused(bench: Bench) -> None:
    """A kind that is not understood, at or above the job, and a namesake of another group are refused."""
    bench.cluster.pod("n", owner=("Notebook", "n"))
    bench.cluster.add("StatefulSet", "s", owner=("Notebook", "n"), spec={"replicas": 1})
    bench.cluster.pod("v-0", owner=("Job", "v"), group="batch.volcano.sh/v1alpha1")
    bench.cluster.job("v")
    words = [
        bench.refused(bench.order("terminate", kind, name)).words
        for kind, name in (("Notebook", "n"), ("StatefulSet", "s"), ("Pod", "n"), ("Job", "v"))
    ]

    assert "does not know how a Notebook is ended" in words[0]
    assert "belongs to Notebook n, which would bring it back" in words[1]
    assert "belongs to Notebook n" in words[2]
    assert words[3] == "does not know how a Job of batch.volcano.sh is ended"


def test_a_child_is_acted_on_through_its_controller(bench: Bench) -> None:
    """Of a ReplicaSet its Deployment is scaled, and a part of a JobSet is not the whole of it."""
    made = deployment(bench)
    order = bench.order("terminate", "ReplicaSet", "web-7")
    outcome = bench.act(order, bench.find(order))
    bench.cluster.written.clear()
    bench.cluster.add("JobSet", "set")
    for part in ("a", "b"):
        bench.cluster.job(f"set-{part}", owner=("JobSet", "set"))
        bench.cluster.pod(f"set-{part}-0", owner=("Job", f"set-{part}"))

    assert (outcome.state, made["spec"]["replicas"]) == ("done", 0)
    assert "only a part of JobSet lab/set" in bench.refused(bench.order("terminate", "Job", "set-a")).words


def test_a_run_of_a_cronjob_is_ended_by_itself(bench: Bench) -> None:
    """The CronJob above a Job goes on; only this run of it ends."""
    job(bench, owner=("CronJob", "nightly"))
    order = bench.order("terminate", "Job", "bert")

    assert bench.act(order, bench.find(order)).state == "done"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda job: job["metadata"].update(creationTimestamp="2026-03-01T12:30:00Z"), "made anew"),
        (lambda job: job["metadata"].update(deletionTimestamp="2026-03-01T12:00:00Z"), "being deleted"),
        (lambda job: job["status"].update(conditions=[{"type": "Complete", "status": "True"}]), "has ended"),
        (lambda job: job["metadata"].update(name="gone"), "is gone"),
    ],
)
def test_what_is_no_more_is_told_as_gone(bench: Bench, change: Callable[[Entry], None], words: str) -> None:
    """A Job that ended, is gone, or was made anew since the policy fired is nothing to act on any more."""
    change(job(bench))
    refused = bench.refused(bench.order("terminate", "Job", "bert"))

    assert refused.gone
    assert words in refused.words


@pytest.mark.parametrize("action", ["terminate", "downscale"])
def test_another_object_of_the_name_is_left_alone(bench: Bench, action: str) -> None:
    """Where the uid changed between finding and acting nothing is written."""
    made = job(bench)
    order = bench.order(action, "Job", "bert")
    found = bench.find(order)
    made["metadata"]["uid"] = "another"

    assert bench.act(order, found).state == "skipped"
    assert bench.cluster.written == []


def test_what_somebody_else_changed_is_left_alone(bench: Bench) -> None:
    """A number that changed since it was found is not overwritten, nor by an undo."""
    made = deployment(bench, 3)
    order = bench.order("downscale", "Deployment", "web", replicas=1)
    stale = bench.find(order)
    made["spec"]["replicas"] = 2
    skipped = bench.act(order, stale)
    found = bench.find(order)
    done = bench.act(order, found)
    made["spec"]["replicas"] = 5

    assert (skipped.state, done.state) == ("skipped", "done")
    assert skipped.words == "spec.replicas of Deployment lab/web is 2 by now; somebody else changed it"
    assert bench.undo(order, found).state == "skipped"
    assert made["spec"]["replicas"] == 5


@pytest.mark.parametrize(
    ("action", "status", "retry", "words"),
    [
        ("terminate", 403, False, "no rights to delete jobs in lab"),
        ("downscale", 403, False, "no rights to change jobs in lab"),
        ("downscale", 422, False, "the cluster does not accept this change of jobs in lab"),
        ("downscale", 409, True, "Job lab/bert is changed by others all the time"),
        ("terminate", 429, True, "the cluster has too much to do"),
        ("terminate", 503, True, "the cluster could not delete jobs in lab: status 503"),
    ],
)
def test_failures_are_outcomes(bench: Bench, action: str, status: int, retry: bool, words: str) -> None:
    """What the API refuses is told in our words, with whether trying again is of use."""
    job(bench)
    order = bench.order(action, "Job", "bert")
    found = bench.find(order)
    method = "DELETE" if action == "terminate" else "PATCH"
    bench.cluster.refused_writes[method, "jobs"] = status

    assert bench.act(order, found) == Outcome("failed", words, retry=retry)


def test_what_cannot_be_read_is_refused_or_unknown(bench: Bench) -> None:
    """Without the right to read pods nothing is found, and nothing is known afterwards."""
    job(bench)
    order = bench.order("terminate", "Job", "bert")
    found = bench.find(order)
    bench.cluster.objects["jobs"].clear()
    bench.cluster.refusals["pods", "lab"] = 403

    assert bench.look(order, found).state == "unknown"
    assert bench.refused(order).words == "no rights to read pods in lab"


@pytest.mark.parametrize(("action", "how"), [("terminate", "terminate"), ("terminate", "stop")])
def test_nothing_is_done_twice_after_a_crash(bench: Bench, action: str, how: str) -> None:
    """Where the answer to the one write was lost, looking finds it done and acting again writes nothing."""
    job(bench)
    order = bench.order(action, "Job", "bert", how=how)
    found = bench.find(order)
    bench.cluster.lost_answers = 1
    lost = bench.act(order, found)
    seen = bench.look(order, found)
    again = bench.act(order, found)

    assert (lost.state, lost.retry) == ("failed", True)
    assert seen.state == "done"
    assert again.state in ("done", "skipped")
    assert len(bench.cluster.written) == 1


def test_a_crash_while_pods_end(bench: Bench) -> None:
    """While pods still end a look says so, and acting again waits for them without a second deletion."""
    job(bench)
    order = bench.order("terminate", "Job", "bert")
    found = bench.find(order)
    bench.cluster.slow = True

    def crash() -> None:
        raise KeyboardInterrupt

    bench.asleep = crash
    with pytest.raises(KeyboardInterrupt):
        bench.act(order, found)
    seen = bench.look(order, found)

    def end() -> None:
        for items in bench.cluster.objects.values():
            items[:] = [item for item in items if "deletionTimestamp" not in item["metadata"]]

    bench.asleep = end
    again = bench.act(order, found)

    assert (seen.state, seen.retry) == ("failed", True)
    assert again.state == "done"
    assert len(bench.cluster.written) == 1


def test_pods_that_do_not_end_are_told(bench: Bench) -> None:
    """Waiting is bounded by the grace of the pods and a minute."""
    job(bench)
    order = bench.order("downscale", "Job", "bert")
    found = bench.find(order)
    bench.cluster.slow = True
    outcome = bench.act(order, found)

    assert (outcome.state, outcome.retry) == ("failed", True)
    assert outcome.words == "Job lab/bert has true at spec.suspend, and 2 pods of it are still there"
    assert 90 <= bench.slept <= 100


def test_what_comes_back_is_reported_and_not_fought(bench: Bench) -> None:
    """A Job that somebody makes anew, and one that is set to run again, are failures without a second try."""
    job(bench)
    order = bench.order("terminate", "Job", "bert")
    found = bench.find(order)

    def anew() -> None:
        if not bench.cluster.objects["jobs"]:
            bench.cluster.job("bert", uid="another")

    bench.asleep = anew
    deleted = bench.act(order, found)
    bench.cluster.objects["jobs"].clear()
    made = job(bench)
    order = bench.order("downscale", "Job", "bert")
    found = bench.find(order)
    bench.asleep = lambda: made["spec"].update(suspend=False)
    suspended = bench.act(order, found)

    assert deleted == Outcome("failed", "Job lab/bert was made anew by somebody else")
    assert (suspended.state, suspended.retry) == ("failed", False)
    assert "somebody set it back" in suspended.words
    assert len(bench.cluster.written) == 2


def test_pods_that_come_back_are_reported(bench: Bench) -> None:
    """Pods that appear again while the controller is scaled to 0 are a failure without a second try."""
    deployment(bench)
    order = bench.order("terminate", "Deployment", "web")
    found = bench.find(order)

    def back() -> None:
        if not bench.cluster.objects["pods"]:
            bench.cluster.pod("web-7-9", owner=("ReplicaSet", "web-7"))

    bench.asleep = back
    outcome = bench.act(order, found)

    assert outcome.state == "failed"
    assert not outcome.retry
    assert "came back" in outcome.words


def test_release_frees_what_an_ended_job_holds(bench: Bench) -> None:
    """Of a failed PyTorchJob the pods that still run are deleted; those that are over hold nothing."""
    bench.cluster.add("PyTorchJob", "big", status={"conditions": [{"type": "Failed", "status": "True"}]})
    bench.cluster.pod("big-0", "Failed", owner=("PyTorchJob", "big"))
    bench.cluster.pod("big-1", owner=("PyTorchJob", "big"))
    order = bench.order("release", "PyTorchJob", "big", what="allocation")
    found = bench.find(order)
    bench.cluster.lost_answers = 1
    lost = bench.act(order, found)

    assert found.words == "would delete 1 pod of PyTorchJob lab/big with GPUs"
    assert lost.retry
    assert bench.look(order, found).state == "done"
    assert bench.names == ["big-0"]
    assert bench.act(order, found).state == "skipped"
    assert [path for _, path in bench.cluster.written] == ["/api/v1/namespaces/lab/pods/big-1"]
    bench.cluster.written.clear()
    assert bench.refused(order).gone


def test_release_of_a_job_that_goes_on_failing(bench: Bench) -> None:
    """A Job whose pods only crash is suspended; deleted pods would be made again."""
    made = bench.cluster.job("bert")
    crashing = {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
    bench.cluster.pod("bert-0", owner=("Job", "bert"), status=crashing)
    order = bench.order("release", "Job", "bert")
    found = bench.find(order)

    assert bench.act(order, found).state == "done"
    assert made["spec"]["suspend"] is True
    assert found.undoable


def test_release_leaves_what_runs(bench: Bench) -> None:
    """A job that has not ended keeps its pods, and one without GPUs has nothing to give."""
    job(bench)
    bench.cluster.job("cpu", done="Failed")

    assert "has not ended" in bench.refused(bench.order("release", "Job", "bert")).words
    assert bench.refused(bench.order("release", "Job", "cpu")).gone


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_resume_once(bench: Bench, kind: str) -> None:
    """What was stopped by us is started as it was, exactly once; after that nothing is owed."""
    made = job(bench) if kind == "Job" else deployment(bench)
    name = made["metadata"]["name"]
    stop = bench.order("terminate", kind, name, how="stop")
    bench.act(stop, bench.find(stop))
    order = bench.order("resume", kind, name)
    found = bench.find(order)
    bench.cluster.lost_answers = 1
    states = [bench.act(order, found).state, bench.look(order, found).state, bench.act(order, found).state]

    assert states == ["failed", "done", "done"]
    assert made["spec"].get("suspend", False) is False
    assert made["spec"].get("replicas", 2) == 2
    assert made["metadata"]["annotations"] == {"stoploss.dev/order": order.id}
    assert len(bench.cluster.written) == 2
    bench.cluster.written.clear()
    assert "owed no resume" in bench.refused(bench.order("resume", kind, name)).words


def test_resume_leaves_what_others_stopped(bench: Bench) -> None:
    """A Job that somebody else suspended is not ours to start."""
    job(bench, spec={"suspend": True})

    assert "owed no resume" in bench.refused(bench.order("resume", "Job", "bert")).words


def test_two_steps_are_taken_back_one_by_one(bench: Bench) -> None:
    """An undo puts back what an earlier step had noted, so that it can be taken back too."""
    made = deployment(bench, 3)
    first = bench.order("downscale", "Deployment", "web", replicas=2)
    found = bench.find(first)
    bench.act(first, found)
    second = bench.order("downscale", "Deployment", "web")
    later = bench.find(second)
    bench.act(second, later)

    assert bench.undo(first, found).state == "skipped"
    assert [bench.undo(second, later).state, bench.undo(first, found).state] == ["done", "done"]
    assert made["spec"]["replicas"] == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"namespace": "other"}, "the labels of job lab/job/bert are of another: other/job/bert"),
        ({"name": "../../pods/x"}, "nothing says where job lab/job/bert is"),
        ({"namespace": "?"}, "nothing says where job lab/job/bert is"),
    ],
)
def test_labels_that_do_not_fit_are_refused(bench: Bench, change: dict[str, str], words: str) -> None:
    """A job is found by labels that fit its name, and that are names."""
    job(bench)
    order = bench.order("terminate", "Job", "bert")
    changed = Order("o", "terminate", order.resource, {}, {**order.labels, **change})

    assert words in bench.refused(changed).words


def test_only_namespaces_of_the_collector(bench: Bench) -> None:
    """Nothing is done outside the namespaces that the policy file names."""
    job(bench)
    bench.options["namespaces"] = ("research",)

    assert "not among those" in bench.refused(bench.order("terminate", "Job", "bert")).words


def test_a_cluster_that_cannot_be_reached(bench: Bench, tmp_path: Path) -> None:
    """Without a collector, a configuration or an answer an order is refused, in words without addresses."""
    order = bench.order("terminate", "Job", "bert")
    bench.options["kubeconfig"] = str(tmp_path / "none")
    missing = bench.refused(order).words
    path = tmp_path / "config"
    config = json.loads(Path(bench.cluster.config()).read_text())
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    path.write_text(json.dumps(config))
    bench.options["kubeconfig"] = str(path)

    assert missing == "the cluster's configuration cannot be used: ConfigError"
    assert bench.refused(order).words == "the cluster does not answer: ConnectError"
    with pytest.raises(Refused, match="no collector 'kubernetes' is named"):
        kubernetes_calls.connected(Means("n1", float, float, float, {})).__enter__()


def test_without_the_extra_the_fix_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the client is not installed an order is refused with the line that installs it."""
    monkeypatch.setitem(sys.modules, "lightkube", None)

    assert "pip install 'stoploss[k8s]'" in bench.refused(bench.order("terminate", "Job", "bert")).words
