"""Questions to a Prometheus server by its HTTP API, and what its answers say."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stoploss.collectors.contract import CollectorError
from stoploss.collectors.prometheus_options import Options
from stoploss.engine.model import Bad

TIME_LIMIT = 4.0
"""Seconds that one answer is waited for at a look."""

HISTORY_TIME_LIMIT = 60.0
"""Seconds that one answer about the past is waited for."""

AT_ONCE = 4
"""Questions that are asked side by side."""

LARGEST = 128 * 2**20
"""Bytes of an answer."""

_LONGEST_WORDS = 160
_ERRORS = {
    "bad_data": "it refuses the query",
    "execution": "it cannot answer the query",
    "timeout": "the query takes too long",
    "canceled": "the query takes too long",
    "unavailable": "it is not ready",
    "internal": "it failed within",
    "not_found": "it knows no such call",
}


class QueryFailed(Exception):
    """A question has no answer; the text says why, without secrets."""


@dataclass(frozen=True, slots=True)
class Series:
    """One value of one series; `labels` hold its name as `__name__` where it has one."""

    labels: Mapping[str, str]
    value: float

    @property
    def name(self) -> str:
        """The metric."""
        return self.labels.get("__name__", "")

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """What makes the series this one, apart from the metric."""
        return tuple(sorted((name, text) for name, text in self.labels.items() if name != "__name__"))


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said to one question.

    Attributes:
        series: the values.
        warnings: what it warns of: that a part of the answer is missing, or that a query is doubtful.
    """

    series: tuple[Series, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def partial(self) -> bool:
        """Whether a part of the answer may be missing."""
        return any(not text.startswith("PromQL") for text in self.warnings)


Answers = Mapping[str, "Answer | Bad"]
"""Question -> its answer, or why there is none."""


def parse(data: bytes, result: str) -> tuple[list[Any], tuple[str, ...]]:
    """The entries of an answer of the type `result` (vector or matrix), and its warnings.

    Raises:
        QueryFailed: it is an error, or none of the server's answers.
    """
    try:
        body = json.loads(data)
        status = body["status"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise QueryFailed("the answer is not one of a Prometheus server") from None
    if status != "success":
        raise QueryFailed(_refusal(body))
    try:
        found = body["data"]
        if found["resultType"] != result:
            raise QueryFailed(f"the query gives a {str(found['resultType'])[:20]}, not a {result}")
        entries = found["result"]
        warnings = body.get("warnings") or ()
        return list(entries), tuple(" ".join(str(text).split())[:_LONGEST_WORDS] for text in warnings)
    except (KeyError, TypeError):
        raise QueryFailed("the answer is not one of a Prometheus server") from None


def _refusal(body: Mapping[str, Any]) -> str:
    kind = body.get("errorType")
    words = _ERRORS.get(kind, "it answers with an error") if isinstance(kind, str) else "it answers oddly"
    if kind not in ("bad_data", "execution"):
        return words
    # Here the server speaks of the query, which whoever wrote it has to mend.
    return f"{words}: {' '.join(str(body.get('error', '')).split())[:_LONGEST_WORDS]}"


def vector(data: bytes) -> Answer:
    """The answer to a question about one instant.

    Raises:
        QueryFailed: it is an error, or cannot be read.
    """
    entries, warnings = parse(data, "vector")
    try:
        found = tuple(Series(_labels(item), _number(item.get("value"))) for item in entries)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise QueryFailed("the answer is not one of a Prometheus server") from None
    return Answer(found, warnings)


def matrix(data: bytes) -> tuple[dict[float, list[Series]], tuple[str, ...]]:
    """Instant -> values, and the warnings, of the answer to a question about a span of time.

    Raises:
        QueryFailed: it is an error, or cannot be read.
    """
    entries, warnings = parse(data, "matrix")
    found: dict[float, list[Series]] = {}
    try:
        for item in entries:
            labels = _labels(item)
            for pair in item.get("values") or ():
                found.setdefault(float(pair[0]), []).append(Series(labels, _number(pair)))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise QueryFailed("the answer is not one of a Prometheus server") from None
    return found, warnings


def _labels(item: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(text) for name, text in item["metric"].items()}


def _number(pair: Sequence[Any] | None) -> float:
    # A native histogram has no value of its own.
    return float("nan") if pair is None else float(pair[1])


@dataclass(slots=True)
class Server:
    """One server, asked with what the options say; secrets are read anew at each look."""

    options: Options
    _pool: Any = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The server in words."""
        return urlsplit(self.options.url).netloc

    def ask(self, questions: Mapping[str, str], at: float) -> dict[str, Answer | Bad]:
        """What each query gives at an instant, in seconds since the epoch.

        Raises:
            CollectorError: a token, password or certificate cannot be read.
        """
        headers, unreachable = self._headers(), list[str]()

        def ask(query: str) -> Answer | Bad:
            if unreachable:
                return Bad(unreachable[0])
            fields = {"query": query, "time": f"{at:.3f}", "timeout": f"{TIME_LIMIT:g}s"}
            try:
                return vector(self._post("query", fields, headers, TIME_LIMIT))
            except _Unreachable as error:
                unreachable.append(str(error))
                return Bad(str(error))
            except QueryFailed as error:
                return Bad(str(error))

        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="collector prometheus") as threads:
            return dict(zip(questions, threads.map(ask, questions.values()), strict=True))

    def ask_range(
        self, questions: Mapping[str, str], begin: float, end: float, step: float
    ) -> Iterator[tuple[float, dict[str, Answer | Bad]]]:
        """What each query gives at each instant from `begin` to `end`, `step` seconds apart.

        Raises:
            CollectorError: a token, password or certificate cannot be read.
        """
        headers, step = self._headers(), max(round(step, 3), 0.001)
        found: dict[str, tuple[dict[float, list[Series]], tuple[str, ...]] | Bad] = {}
        for key, query in questions.items():
            span = {"start": f"{begin:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
            try:
                data = self._post("query_range", {"query": query, **span}, headers, HISTORY_TIME_LIMIT)
                found[key] = matrix(data)
            except QueryFailed as error:
                found[key] = Bad(str(error))
        for number in range(int((end - begin) / step + 1e-6) + 1):
            at = begin + number * step
            near = round(at, 3)
            yield (
                at,
                {
                    key: item if isinstance(item, Bad) else Answer(tuple(item[0].get(near, ())), item[1])
                    for key, item in found.items()
                },
            )

    def _post(self, path: str, fields: Mapping[str, str], headers: Mapping[str, str], limit: float) -> bytes:
        import urllib3

        if self._pool is None:
            self._pool = urllib3.PoolManager(
                maxsize=AT_ONCE, retries=False, cert_reqs="CERT_REQUIRED", ca_certs=self.options.ca_file
            )
        try:
            answer = self._pool.request(
                "POST",
                f"{self.options.url}/api/v1/{path}",
                fields=dict(fields),
                encode_multipart=False,
                headers=dict(headers),
                timeout=urllib3.Timeout(connect=TIME_LIMIT, read=limit),
                redirect=False,
                preload_content=False,
            )
            try:
                data: bytes = answer.read(LARGEST + 1, decode_content=True)
            finally:
                answer.release_conn() if answer.length_remaining == 0 else answer.close()
        except urllib3.exceptions.HTTPError as error:
            raise _Unreachable(self._why(error)) from None
        if len(data) > LARGEST:
            raise QueryFailed(f"{self.name} answers more than {LARGEST >> 20} MiB")
        if answer.status != 200:
            raise QueryFailed(self._refused(answer.status, data))
        return data

    def _refused(self, status: int, data: bytes) -> str:
        if status in (401, 403):
            return f"{self.name} does not let us ask (status {status})"
        try:
            parse(data, "vector")
        except QueryFailed as error:
            if "not one of" not in str(error):
                return f"{self.name}: {error} (status {status})"
        return f"{self.name} answers with status {status}"

    def _why(self, error: Exception) -> str:
        """Words of our own, as the library's hold the address."""
        from urllib3 import exceptions

        if isinstance(error, exceptions.NewConnectionError):
            return f"{self.name} cannot be reached"
        if isinstance(error, exceptions.TimeoutError):
            return f"{self.name} did not answer in time"
        if isinstance(error, exceptions.SSLError):
            return f"the certificate of {self.name} is not accepted"
        return f"the connection to {self.name} broke ({type(error).__name__})"

    def _headers(self) -> dict[str, str]:
        import urllib3

        options = self.options
        if options.ca_file is not None and not os.access(options.ca_file, os.R_OK):
            raise CollectorError(f"the certificates cannot be read from {options.ca_file}")
        headers = {"User-Agent": "stoploss", "Accept-Encoding": "gzip"}
        if options.tenant:
            headers["X-Scope-OrgID"] = options.tenant
        token = _secret("the token", options.token_env, options.token_file)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        elif options.user is not None:
            password = _secret("the password", options.password_env, options.password_file) or ""
            headers |= urllib3.make_headers(basic_auth=f"{options.user}:{password}")
        return headers


class _Unreachable(QueryFailed):
    """The server as a whole does not answer; asking it more would only take time."""


def _secret(what: str, variable: str | None, path: str | None) -> str | None:
    """A secret; None where none is named."""
    if variable is not None:
        found = os.environ.get(variable, "")
        place = f"the variable {variable}"
    elif path is not None:
        place = path
        try:
            found = Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            raise CollectorError(f"{what} cannot be read from {path}") from None
    else:
        return None
    secret = found.strip()
    if not secret or not secret.isprintable():
        raise CollectorError(f"{place} holds no secret of one line for {what}")
    return secret
