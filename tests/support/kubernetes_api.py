"""A Kubernetes API on loopback: recorded answers, writes kept in memory, and words to build both with."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from stoploss.collectors.contract import Collector, Context
from stoploss.collectors.registry import load
from stoploss.engine.model import LabelValue, Look, Reading

AT = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
EARLIER = "2026-03-01T11:00:00Z"
BEFORE = "2026-03-01T11:30:00Z"

Entry = dict[str, Any]

PATHS = {
    "pods": "/api/v1",
    "persistentvolumeclaims": "/api/v1",
    "persistentvolumes": "/api/v1",
    "jobs": "/apis/batch/v1",
    "replicasets": "/apis/apps/v1",
    "deployments": "/apis/apps/v1",
    "statefulsets": "/apis/apps/v1",
    "horizontalpodautoscalers": "/apis/autoscaling/v2",
    "jobsets": "/apis/jobset.x-k8s.io/v1alpha2",
    "pytorchjobs": "/apis/kubeflow.org/v1",
    "rayclusters": "/apis/ray.io/v1",
    "rayjobs": "/apis/ray.io/v1",
}

GROUPS = {
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "ReplicaSet": "apps/v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "PyTorchJob": "kubeflow.org/v1",
    "RayCluster": "ray.io/v1",
    "RayJob": "ray.io/v1",
}


class Cluster:
    """An API in memory: lists in pages, refusals, and writes with what controllers do after them.

    Attributes:
        written: every write that was taken, as method and path.
        refused_writes: (method, plural) -> the status that such writes are answered with.
        after_write: called after each write that was taken; what somebody else does then.
        lost_answers: writes that are still taken, and whose answer is lost.
        slow: whether pods stay while they are being deleted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects: dict[str, list[Entry]] = {name: [] for name in PATHS}
        self.refusals: dict[tuple[str, str], int] = {}
        self.page = 500
        self.asked: list[str] = []
        self.written: list[tuple[str, str]] = []
        self.refused_writes: dict[tuple[str, str], int] = {}
        self.after_write: Callable[[], None] = lambda: None
        self.lost_answers = 0
        self.slow = False
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def close(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def answer(self, target: str) -> tuple[int, Entry]:
        """Status and body of a request."""
        self.asked.append(target)
        url, query = urlsplit(target), parse_qs(urlsplit(target).query)
        *above, name = url.path.split("/")
        if above[-3] == "namespaces":
            entry = self.find(url.path)
            return (404, failure(404, "not found")) if entry is None else (200, entry)
        namespace = above[-1] if above[-2] == "namespaces" else ""
        base = "/".join(above[:-2] if namespace else above)
        if PATHS.get(name) != base:
            return 404, failure(404, "no such path")
        if status := self.refusals.get((name, namespace)):
            return status, failure(status, f"refused {name}")
        items = [it for it in self.objects[name] if namespace in ("", it["metadata"].get("namespace"))]
        start = int(query.get("continue", ["0"])[0])
        end = start + min(self.page, int(query["limit"][0]))
        more = {"continue": str(end)} if end < len(items) else {}
        return 200, {"metadata": more, "items": items[start:end]}

    def find(self, path: str) -> Entry | None:
        """The object at a path."""
        *above, namespace, plural, name = path.split("/")
        if PATHS.get(plural) != "/".join(above[:-1]):
            return None
        named = (it for it in self.objects[plural] if it["metadata"]["name"] == name)
        return next((it for it in named if it["metadata"].get("namespace") == namespace), None)

    def write(self, method: str, path: str, body: Entry) -> tuple[int, Entry]:
        """Status and body of a change."""
        plural = path.split("/")[-2]
        entry = self.find(path)
        if status := self.refused_writes.get((method, plural)):
            return status, failure(status, "secret words of the cluster")
        if entry is None:
            return 404, failure(404, "not found")
        meta = entry["metadata"]
        given = body.get("preconditions") or body.get("metadata") or {}
        if any(given.get(key) not in (None, meta.get(key)) for key in ("uid", "resourceVersion")):
            return 409, failure(409, "the object has been modified")
        self.written.append((method, path))
        if method == "DELETE":
            self._remove(plural, entry)
        else:
            merge(entry, body)
            meta["resourceVersion"] = str(int(meta.get("resourceVersion", "1")) + 1)
            self._settle(entry)
        self.after_write()
        return 200, entry

    def _remove(self, plural: str, entry: Entry) -> None:
        below = self.below(entry["metadata"]["uid"])
        if self.slow and (below or plural == "pods"):
            for item in (entry, *below):
                item["metadata"]["deletionTimestamp"] = BEFORE
            return
        for item in (entry, *below):
            for found in self.objects.values():
                found[:] = [it for it in found if it is not item]

    def _settle(self, entry: Entry) -> None:
        """What the controller does: no pods while suspended, and no more than there are replicas."""
        spec = entry["spec"]
        suspended = spec.get("suspend") or spec.get("runPolicy", {}).get("suspend")
        workers = spec.get("pytorchReplicaSpecs", {}).get("Worker", {}).get("replicas")
        most = 0 if suspended else spec.get("replicas", workers)
        pods = [it for it in self.below(entry["metadata"]["uid"]) if "containers" in it["spec"]]
        for pod in pods[len(pods) if most is None else most :]:
            self._remove("pods", pod)

    def below(self, uid: str) -> list[Entry]:
        """All objects below another."""
        found = [it for items in self.objects.values() for it in items if uid in owners(it)]
        return [*found, *(more for it in found for more in self.below(it["metadata"]["uid"]))]

    def add(self, kind: str, name: str, **keys: Any) -> Entry:
        """Add another object, such as a Deployment: `spec`, `status`, and as `pod`."""
        said = metadata(name, {"uid": f"{kind}-{name}"} | keys)
        entry = {
            "kind": kind,
            "metadata": said,
            "spec": keys.get("spec", {}),
            "status": keys.get("status", {}),
        }
        self.objects[f"{kind.lower()}s"].append(entry)
        return entry

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._tell(*cluster.answer(self.path))

            def do_PATCH(self) -> None:
                self._write()

            def do_DELETE(self) -> None:
                self._write()

            def _write(self) -> None:
                given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = cluster.write(self.command, self.path, given)
                if cluster.lost_answers:
                    cluster.lost_answers -= 1
                    self.close_connection = True
                    return
                self._tell(*answer)

            def _tell(self, status: int, body: Entry) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler

    def config(self) -> str:
        """A kubeconfig that leads here; returns its path."""
        server = f"http://127.0.0.1:{self.server.server_address[1]}"
        path = self.folder / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "current-context": "here",
                    "clusters": [{"name": "here", "cluster": {"server": server}}],
                    "contexts": [{"name": "here", "context": {"cluster": "here"}}],
                }
            )
        )
        return str(path)

    def collector(self, **options: object) -> Collector:
        """The collector as a policy file makes it."""
        given = {"kubeconfig": self.config(), **options}
        return load().build("kubernetes", given, Context("n1"))

    def pod(self, name: str, phase: str = "Running", *, gpus: int = 1, **keys: Any) -> Entry:
        """Add a pod: `owner` (kind, name), `node`, `labels`, `namespace`, `status` and `spec` change it."""
        node = keys.get("node", None if phase == "Pending" else "n1")
        placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": BEFORE}
        status = {"phase": phase, "conditions": [placed] if node else []} | keys.get("status", {})
        if node:
            status.setdefault("startTime", BEFORE)
        limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        spec = {"containers": [{"name": "main", "resources": {"limits": limits}}], "nodeName": node}
        said = metadata(name, {"uid": f"Pod-{name}"} | keys)
        entry = {"metadata": said, "spec": spec | keys.get("spec", {}), "status": status}
        self.objects["pods"].append(entry)
        return entry

    def job(self, name: str, *, gpus: int = 1, **keys: Any) -> Entry:
        """Add a Job: as `pod`, with `done` for its last condition."""
        template = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]}
        spec = {"template": {"metadata": {"labels": keys.get("labels", {})}, "spec": template}}
        status: Entry = {"startTime": BEFORE} | keys.get("status", {})
        if done := keys.get("done"):
            kind, _, reason = done.partition(":")
            status["conditions"] = [
                {
                    "type": kind,
                    "status": "True",
                    "reason": reason,
                    "lastTransitionTime": "2026-03-01T11:50:00Z",
                }
            ]
        said = metadata(name, {"uid": f"Job-{name}"} | keys)
        entry = {"metadata": said, "spec": spec | keys.get("spec", {}), "status": status}
        self.objects["jobs"].append(entry)
        return entry


def metadata(name: str, keys: Mapping[str, Any]) -> Entry:
    """The metadata of an object; `namespace`, `labels`, `uid` and `owner` (kind, name) change it."""
    said: Entry = {
        "name": name,
        "uid": keys.get("uid", name),
        "resourceVersion": "1",
        "namespace": keys.get("namespace", "lab"),
        "creationTimestamp": EARLIER,
        "labels": keys.get("labels", {}),
    }
    if owner := keys.get("owner"):
        kind, above = owner
        reference = {"kind": kind, "name": above, "uid": f"{kind}-{above}", "controller": True}
        said["ownerReferences"] = [{"apiVersion": keys.get("group", GROUPS.get(kind, "v1")), **reference}]
    return said


def owners(entry: Entry) -> list[str]:
    """The uids that an object names as its owners."""
    return [item["uid"] for item in entry["metadata"].get("ownerReferences", ())]


def merge(entry: Entry, patch: Entry) -> None:
    """Merge a patch into an object as RFC 7386 says."""
    for key, value in patch.items():
        if value is None:
            entry.pop(key, None)
        elif isinstance(value, dict):
            merge(entry.setdefault(key, {}), value)
        else:
            entry[key] = value


def failure(status: int, words: str) -> Entry:
    """What the API answers where it refuses."""
    return {"kind": "Status", "status": "Failure", "message": words, "code": status}


def terminated(reason: str, at: str = "2026-03-01T11:50:00Z", restarts: int = 0) -> Entry:
    """The status of a pod whose container ended."""
    state = {"terminated": {"exitCode": 1, "reason": reason, "finishedAt": at}}
    container = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": restarts}
    return {"containerStatuses": [container | {"state": state}]}


def readings(look: Look, kind: str = "job") -> dict[str, dict[str, Reading]]:
    """Resource -> signal -> reading."""
    found: dict[str, dict[str, Reading]] = {}
    for item in look.samples:
        if item.resource.kind == kind:
            found.setdefault(item.resource.id, {})[item.signal] = item.reading
    return found


def labels(look: Look, resource: str) -> Mapping[str, LabelValue]:
    """The labels of a resource."""
    return next(item.labels for item in look.samples if item.resource.id == resource and item.labels)


def claim(name: str, phase: str = "Bound") -> Entry:
    """A claim of 100 GiB."""
    spec = {"storageClassName": "ssd", "volumeName": f"pv-{name}"}
    return {
        "metadata": metadata(name, {"labels": {"team": "vision"}}),
        "spec": spec,
        "status": {"phase": phase, "capacity": {"storage": "100Gi"}},
    }
