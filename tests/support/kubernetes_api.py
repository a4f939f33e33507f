"""A Kubernetes API of recorded answers on loopback, and words to build the answers with."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
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
}


class Cluster:
    """A recorded API: lists from memory, in pages, with refusals."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects: dict[str, list[Entry]] = {name: [] for name in PATHS}
        self.refusals: dict[tuple[str, str], int] = {}
        self.page = 500
        self.asked: list[str] = []
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
        namespace = above[-1] if above[-2] == "namespaces" else ""
        base = "/".join(above[:-2] if namespace else above)
        if PATHS.get(name) != base:
            return 404, {"kind": "Status", "status": "Failure", "message": "no such path", "code": 404}
        if status := self.refusals.get((name, namespace)):
            return status, {
                "kind": "Status",
                "status": "Failure",
                "message": f"refused {name}",
                "code": status,
            }
        items = [it for it in self.objects[name] if namespace in ("", it["metadata"].get("namespace"))]
        start = int(query.get("continue", ["0"])[0])
        end = start + min(self.page, int(query["limit"][0]))
        more = {"continue": str(end)} if end < len(items) else {}
        return 200, {"metadata": more, "items": items[start:end]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = cluster.answer(self.path)
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
        entry = {"metadata": metadata(name, keys), "spec": spec | keys.get("spec", {}), "status": status}
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
        entry = {"metadata": metadata(name, keys), "spec": spec | keys.get("spec", {}), "status": status}
        self.objects["jobs"].append(entry)
        return entry


def metadata(name: str, keys: Mapping[str, Any]) -> Entry:
    """The metadata of an object; `namespace`, `labels` and `owner` (kind, name) change it."""
    said: Entry = {
        "name": name,
        "namespace": keys.get("namespace", "lab"),
        "creationTimestamp": EARLIER,
        "labels": keys.get("labels", {}),
    }
    if owner := keys.get("owner"):
        kind, above = owner
        said["ownerReferences"] = [
            {"apiVersion": "v1", "kind": kind, "name": above, "uid": f"{kind}-{above}", "controller": True}
        ]
    return said


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
