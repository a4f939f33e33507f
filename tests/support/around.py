"""What goes on around a daemon: a node that sends samples, runs that log, people who read and decide.

Each is a thread that goes on while the daemon is killed and started again, and notes what was
acknowledged: what an answer of 2xx was given to has to be there for ever after.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoploss.daemon.forward import encoded
from stoploss.engine.history.looks import Kept, plain
from stoploss.engine.model import Look, ResourceId, Sample

PAST = 30
"""Seconds before its first sample that a node had already seen."""
AT_ONCE = 10
"""Looks of a batch; more could be larger than what the daemon takes at once."""
WELL, HOT, WIDE = 3, 4, 24
"""Jobs that work, GPUs of them that are hot, and how many GPUs each of these jobs has."""
LOADED, SICK = 16, 4
"""Runs on the daemon's machine that log all the time, and how many of them have a bad loss."""
SPOOL = "0123456789abcdef"
PAGES = (
    "/v1/findings?limit=1000",
    "/v1/audit",
    "/v1/plan",
    "/v1/ledger?limit=200",
    "/metrics",
    "/v1/costs",
    "/healthz",
)


@dataclass
class Asked:
    """An answer: its status, and its body."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class Around:
    """All that goes on.

    Attributes:
        folder: of the runs.
        port: where the daemon answers; None while it does not.
        wanted: how many jobs are to do nothing by now; half as many are to learn nothing.
        idle: jobs that the node sees do nothing, each from its first sample on.
        lossy: jobs of which it sees a bad loss.
        sent: number of a look -> its instant and the jobs in it.
        acked: numbers of looks that were acknowledged.
        answers: job -> what was answered about it, acknowledged.
        since: (policy, resource) -> what was read of it: id and since.
        odd: answers that should never be given.
        reads: answers that were read.
        late_spared, late_kept: a job is exempt, and one is kept, of which nothing was seen before.
    """

    folder: Path
    port: Callable[[], int | None]
    wanted: int = 0
    idle: list[str] = field(default_factory=list)
    lossy: list[str] = field(default_factory=list)
    sent: dict[int, tuple[float, tuple[str, ...]]] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    answers: dict[str, str] = field(default_factory=dict)
    since: dict[tuple[str, str], set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))
    odd: list[str] = field(default_factory=list)
    reads: int = 0
    late_spared: bool = False
    late_kept: bool = False
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def begin(self) -> None:
        """Let it go on from now on."""
        parts = (self._node, self._runs, self._reader, self._decider)
        self._threads = [threading.Thread(target=part, daemon=True) for part in parts]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let it stop."""
        self._over.set()
        for thread in self._threads:
            thread.join(20)

    def ask(self, method: str, path: str, body: bytes | None = None) -> Asked | None:
        """Ask the daemon; None where there is no whole answer, as it is killed just then."""
        port = self.port()
        if port is None:
            return None
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            headers = {"X-Stoploss": "1", "Content-Type": "application/json"}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            asked = Asked(answer.status, answer.read())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        if asked.status >= 500 and asked.status != 503:
            self.odd.append(f"{method} {path}: {asked.status} {asked.body[:300]!r}")
        return asked

    def post(self, path: str, **said: Any) -> Asked | None:
        """Say something; None where there is no whole answer."""
        return self.ask("POST", path, json.dumps(said).encode())

    # ---- the node ----------------------------------------------------------------------

    def _node(self) -> None:
        newest, number, waits = int(time.time()) - PAST, 0, dict[int, bytes]()
        while not self._over.wait(0.1):
            while newest < int(time.time()):
                newest, number = newest + 1, number + 1
                if self.wanted > len(self.idle):
                    self.idle.append(f"i{len(self.idle)}")
                if self.wanted > 2 * len(self.lossy):
                    self.lossy.append(f"r{len(self.lossy)}")
                self.sent[number] = float(newest), self._jobs()
                waits[number] = told(number, float(newest), self._jobs(), self.lossy)
            some = sorted(waits)[:AT_ONCE]
            if not some:
                continue
            asked = self.ask("POST", "/v1/samples", encoded("n1", SPOOL, [waits[at].decode() for at in some]))
            if asked is not None and asked.status == 202:
                self.acked |= set(some)
                for at in some:
                    del waits[at]
            elif asked is not None and asked.status not in (429, 503):
                self.odd.append(f"samples: {asked.status} {asked.body[:300]!r}")

    def _jobs(self) -> tuple[str, ...]:
        """The jobs that idle; two of them come only when somebody has spoken for them."""
        late = ["late-spared"] * self.late_spared + ["late-kept"] * self.late_kept
        return (*self.idle, "kept", "spared", *late)

    # ---- the runs ----------------------------------------------------------------------

    def _runs(self) -> None:
        step = 0
        while not self._over.wait(0.1):
            step += 1
            for number in range(LOADED):
                self._log(f"l{number}", step, 9.0 if number < SICK else 1.0 / step)

    def _log(self, job: str, step: int, loss: float) -> None:
        place = self.folder / "runs" / job
        place.mkdir(parents=True, exist_ok=True)
        with (place / "run.jsonl").open("a") as log:
            log.write(json.dumps({"step": step, "loss": loss, "time": time.time()}) + "\n")

    # ---- people ------------------------------------------------------------------------

    def _reader(self) -> None:
        while True:
            for page in PAGES:
                if self._over.wait(0.1):
                    return
                asked = self.ask("GET", page)
                if asked is None or asked.status != 200:
                    continue
                self.reads += 1
                if page.startswith("/v1/findings"):
                    self._note(asked.json["findings"])
                elif page.startswith("/v1/") and asked.json.get("version") != 1:
                    self.odd.append(f"{page}: {asked.body[:300]!r}")

    def _note(self, findings: list[dict[str, Any]]) -> None:
        for item in findings:
            if item["state"] in ("firing", "holding"):
                about = f"{item['resource']['kind']} {item['resource']['id']}"
                self.since[item["policy"], about].add((item["id"], item["since"]))

    def _decider(self) -> None:
        """Spare a job, keep one, and answer for others: `answered` says how."""
        while not self._over.wait(0.3):
            if not self.late_spared:
                said = {"where": 'job == "late-spared"', "until": "2099-01-31", "owner": "ann"}
                asked = self.post("/v1/exempt", policy="idle", reason="it may idle", **said)
                self.late_spared = asked is not None and asked.status == 200
            if not self.late_kept:
                said = {"job": "late-kept", "for": "4h", "reason": "it is still needed"}
                asked = self.post("/v1/keep", **said)
                self.late_kept = asked is not None and asked.status == 200
            asked = self.ask("GET", "/v1/approvals?state=waiting&limit=1000")
            for item in asked.json["approvals"] if asked is not None and asked.status == 200 else ():
                word = answered(item["resource"]["id"])
                if word is None:
                    continue
                asked = self.post(f"/v1/approvals/{item['id']}/{word}", reason="looked at")
                # Written just before a kill, so that nobody heard of it, it is decided already.
                if asked is not None and asked.status in (200, 409):
                    self.answers[item["resource"]["id"]] = word


def answered(job: str) -> str | None:
    """What is answered where a job is asked about; None where nobody says a word."""
    return {0: "approve", 1: "reject", 2: "approve"}.get(int(job[1:]) % 4)


def told(number: int, at: float, idle: Iterable[str], lossy: Iterable[str]) -> bytes:
    """A look of the node as it sends it: the power of every GPU is the number of the look."""
    samples, common = [], {"class": "train", "team": "vision", "user": "ann"}
    for job, count, use in [(f"w{n}", WIDE, 0.5) for n in range(WELL)] + [(job, 1, 0.0) for job in idle]:
        labels = {"job": job, **common}
        for gpu in range(count):
            resource = ResourceId("gpu", f"{job}/{gpu}")
            value = 0.95 if job == "w0" and gpu < HOT else use
            samples.append(Sample(at, resource, "gpu.utilization", value, labels))
            samples.append(Sample(at, resource, "gpu.power", float(number), labels))
            samples.append(Sample(at, resource, "gpu.model", "H100", labels))
    for job in lossy:
        samples.append(Sample(at, ResourceId("job", job), "train.loss", 9.0, {"job": job, **common}))
    kept = Kept("gpu", at, Look(tuple(samples), frozenset({"gpu"})), None, "n1", 2.0)
    return json.dumps({**plain(kept), "number": number, "collector": "gpu", "at": at}).encode()
