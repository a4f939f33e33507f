"""Calls to the API of Kubernetes: few, plain, each with a time limit; failures are told in our own words.

The client is the one of the extra `k8s`, with the options of the collector `kubernetes`. It is asked for
plain JSON, as objects of other groups have no classes, and a deletion must name the one object it means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from stoploss.actions.contract import Means, Refused

COLLECTOR = "kubernetes"

REQUEST_LIMIT = 10.0
"""Seconds that each part of one request may take: to connect, to send, to be answered."""

PAGE = 500
"""Objects of one request."""

MOST_PAGES = 200

MERGE = "application/merge-patch+json"

Entry = Mapping[str, Any]
"""An object of the API, or a part of one."""


class ApiFailure(Exception):
    """The API did not do what it was asked for.

    Attributes:
        words: why, without anything that it answered.
        status: of its answer; 0 where there was none.
    """

    def __init__(self, words: str, status: int = 0) -> None:
        super().__init__(words)
        self.words, self.status = words, status

    @property
    def retry(self) -> bool:
        """Whether asking later is of use."""
        return self.status == 0 or self.status in (409, 429) or self.status >= 500


class Api:
    """One cluster; all methods raise ApiFailure."""

    def __init__(self, client: Any) -> None:
        """`client` sends HTTP requests to the cluster and knows how to log in."""
        self._client = client

    def get(self, path: str) -> Entry | None:
        """An object, or None where there is none."""
        try:
            return self._ask("GET", path)
        except ApiFailure as failure:
            if failure.status == 404:
                return None
            raise

    def list(self, path: str) -> list[Entry]:
        """All objects below a path; none where the cluster does not know such objects."""
        found: list[Entry] = []
        token = ""
        for _ in range(MOST_PAGES):
            try:
                page = self._ask(
                    "GET", path, query={"limit": str(PAGE)} | ({"continue": token} if token else {})
                )
            except ApiFailure as failure:
                if failure.status == 404:
                    return found
                raise
            found += page.get("items") or ()
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                return found
        raise ApiFailure(f"more than {PAGE * MOST_PAGES:,} objects at {path}", 400)

    def patch(self, path: str, body: Entry) -> None:
        """Merge `body` into an object; null takes a field away."""
        self._ask("PATCH", path, body, kind=MERGE)

    def delete(self, path: str, uid: str, grace: int | None = None) -> None:
        """Delete the object of this uid, and what it controls before it; no other of its name."""
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        body["propagationPolicy"] = "Foreground"
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        self._ask("DELETE", path, body)

    def _ask(
        self,
        method: str,
        path: str,
        body: Entry | None = None,
        *,
        query: Mapping[str, str] | None = None,
        kind: str = "application/json",
    ) -> Entry:
        try:
            answer = self._client.request(
                method,
                path,
                params=query,
                content=None if body is None else json.dumps(body),
                headers=None if body is None else {"Content-Type": kind},
            )
            status = int(answer.status_code)
            found = answer.json() if 200 <= status < 300 else None
        except Exception as error:
            # The client has errors of several libraries: of the network, of TLS, of logging in.
            raise ApiFailure(f"the cluster does not answer: {type(error).__name__}") from None
        if isinstance(found, dict):
            return found
        raise ApiFailure(_words(status, method, path), status)


VERBS = {"GET": "read", "PATCH": "change", "DELETE": "delete"}


def _words(status: int, method: str, path: str) -> str:
    verb, what = VERBS[method], _what(path)
    known = {
        401: "the cluster does not know this account",
        403: f"no rights to {verb} {what}",
        404: f"the cluster has no such {what}",
        409: f"the cluster could not {verb} {what}: it was changed meanwhile",
        422: f"the cluster does not accept this change of {what}",
        429: "the cluster has too much to do",
    }
    return known.get(status) or f"the cluster could not {verb} {what}: status {status}"


def _what(path: str) -> str:
    """The plural of a path, with its namespace: `jobs in lab`."""
    parts = path.split("/")
    if "namespaces" not in parts:
        return parts[-1]
    place = parts.index("namespaces")
    return f"{parts[place + 2]} in {parts[place + 1]}"


@contextmanager
def connected(means: Means) -> Iterator[Api]:
    """The cluster that the collector looks at.

    Raises:
        Refused: no collector of it is named, the client is not installed, or it cannot be set up.
    """
    options = means.collectors.get(COLLECTOR)
    if options is None:
        raise Refused(f"no collector {COLLECTOR!r} is named, which says where the cluster is")
    client = _client(options)
    try:
        yield Api(client)
    finally:
        client.close()


def _client(options: Mapping[str, Any]) -> Any:
    try:
        from lightkube import KubeConfig
        from lightkube.config.client_adapter import Client, ConnectionParams
        from lightkube.config.models import User
    except ImportError:
        raise Refused("needs the extra k8s: pip install 'stoploss[k8s]'") from None
    path, context = options.get("kubeconfig"), options.get("context")
    try:
        config = KubeConfig.from_file(path) if path else KubeConfig.from_env()
        single = config.get(context)
        # The client refuses a cluster that needs no user, as a local proxy does.
        single = single and single._replace(user=single.user or User())
        client = single and Client(single, ConnectionParams(timeout=REQUEST_LIMIT))  # type: ignore[arg-type]
    except Exception as error:
        raise Refused(f"the cluster's configuration cannot be used: {type(error).__name__}") from None
    if client is None:
        raise Refused("the kubeconfig names no current context")
    return client
