"""Nodes that forward to a centre over HTTP: nothing is lost, nothing doubled, whatever happens on the way."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from support.toys import BEGIN, Fleet

from stoploss.actions.registry import action_options
from stoploss.api.contract import BusyError
from stoploss.cli.exits import UserError
from stoploss.cli.run import run as command
from stoploss.collectors.registry import option_models
from stoploss.daemon.cycle import Making
from stoploss.daemon.forward import FIRST, LONGEST, Centre, ForwardError, Sender
from stoploss.daemon.live import Live
from stoploss.daemon.service import Clocks, Service
from stoploss.daemon.spool import Bounds, Spool
from stoploss.engine.history.arrivals import load as arrivals
from stoploss.engine.history.looks import Kept, LookStore
from stoploss.engine.history.store import open_store
from stoploss.engine.model import Look, ResourceId, Sample
from stoploss.rules.catalogue import catalogue
from stoploss.rules.loader import load

SOURCES = str(Path(__file__).parents[2] / "src")
TOKEN = "a-token-for-nodes"  # noqa: S105 - of a server on loopback
EVERY = {"gpu": 60.0}


def kept(minute: float, node: str = "a", value: float = 0.5, size: int = 1) -> Kept:
    """A look at some GPUs of a node."""
    at = BEGIN + 60.0 * minute
    samples = [
        Sample(at, ResourceId("gpu", f"{node}/{number}"), "gpu.utilization", value) for number in range(size)
    ]
    return Kept("gpu", at, Look(tuple(samples)))


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    """An empty one."""
    made = Spool(str(tmp_path / "spool.db"))
    yield made
    made.close()


# ---- the spool -----------------------------------------------------------------------------


def test_what_waits_outlives_the_process(tmp_path: Path) -> None:
    """Looks are there again after a restart, oldest first, with the numbers that they had."""
    first = Spool(str(tmp_path / "spool.db"))
    first.put([kept(0), kept(1)], EVERY, BEGIN)
    second = Spool(str(tmp_path / "spool.db"))
    second.put([kept(2)], EVERY, BEGIN)
    found = second.oldest(10, 10**6)

    assert [item.number for item in found] == [1, 2, 3]
    assert [json.loads(item.text)["at"] for item in found] == [BEGIN, BEGIN + 60.0, BEGIN + 120.0]
    assert json.loads(found[0].text)["every"] == 60.0
    assert second.name == first.name


def test_a_number_is_never_given_twice(tmp_path: Path, spool: Spool) -> None:
    """Also when all that waited was taken, and the process began anew."""
    spool.put([kept(0), kept(1)], EVERY, BEGIN)
    spool.done(2)
    again = Spool(str(tmp_path / "spool.db"))
    again.put([kept(2)], EVERY, BEGIN)

    assert [item.number for item in again.oldest(10, 10**6)] == [3]


def test_where_there_is_no_room_the_oldest_go(tmp_path: Path) -> None:
    """A full spool lets go of the oldest looks, counts them for good, and takes new ones."""
    spool = Spool(str(tmp_path / "spool.db"), Bounds(size=2000))
    for minute in range(100):
        spool.put([kept(minute)], EVERY, BEGIN)
    waiting = spool.waiting()
    numbers = [item.number for item in spool.oldest(1000, 10**6)]

    assert 5 < waiting < 30
    assert numbers == list(range(101 - waiting, 101))
    assert spool.dropped == 100 - waiting
    assert Spool(str(tmp_path / "spool.db")).dropped == spool.dropped


def test_what_is_too_old_for_the_centre_goes(spool: Spool) -> None:
    """After nearly three days a look is let go."""
    spool.put([kept(0)], EVERY, BEGIN)
    spool.put([kept(4311)], EVERY, BEGIN + 4311 * 60.0)

    assert [item.number for item in spool.oldest(10, 10**6)] == [2]
    assert spool.dropped == 1


def test_a_batch_is_bounded(spool: Spool) -> None:
    """By looks and by size; a look that is larger than all goes alone."""
    spool.put([kept(minute) for minute in range(10)], EVERY, BEGIN)

    assert len(spool.oldest(4, 10**6)) == 4
    assert 1 < len(spool.oldest(10, 500)) < 5
    assert len(spool.oldest(10, 1)) == 1


def test_a_text_with_half_a_character_is_sent_whole(spool: Spool) -> None:
    """What no JSON may hold is replaced."""
    look = Look((Sample(BEGIN, ResourceId("gpu", "a"), "gpu.model", "H\ud800"),))
    spool.put([Kept("gpu", BEGIN, look)], EVERY, BEGIN)

    assert json.loads(spool.oldest(1, 10**6)[0].text)["samples"][0][3] == [["gpu.model", "H?"]]


# ---- the sender ----------------------------------------------------------------------------


@dataclass
class Receiver:
    """A centre that answers as it is told: each answer a status with headers, else 202."""

    port: int = 0
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    requests: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    refuses: Callable[[dict[str, Any]], bool] = lambda body: False
    hang_up: int = 0
    packed: bool = True
    date: str | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def numbers(self) -> list[list[int]]:
        """The numbers of the looks of each request."""
        return [[look["number"] for look in body["looks"]] for _, body in self.requests]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A running one."""
    state = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            packed = self.headers.get("Content-Encoding") == "gzip"
            headers = {name.lower(): value for name, value in self.headers.items()}
            said = json.loads(gzip.decompress(body) if packed else body)
            state.requests.append((headers, said))
            if state.hang_up:
                state.hang_up -= 1
                self.connection.close()
                return
            status, more = state.answers.pop(0) if state.answers else (202, {})
            if packed and not state.packed:
                status = 415
            elif state.refuses(said):
                status = 400
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def date_time_string(self, timestamp: float | None = None) -> str:
            return state.date or super().date_time_string(timestamp)  # type: ignore[arg-type]

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield state
        server.shutdown()
        thread.join()


def sender(spool: Spool, url: str, said: list[str], token: str | None = TOKEN) -> Sender:
    """A sender as node a; `said` gets what it tells."""
    environ = {} if token is None else {"STOPLOSS_TOKEN": token}
    return Sender(spool, Centre.of(url, "a", None, environ), said.append)


def test_what_waits_is_sent_and_let_go(spool: Spool, receiver: Receiver) -> None:
    """One batch with the token, packed; then nothing waits."""
    said: list[str] = []
    spool.put([kept(0), kept(1)], EVERY, BEGIN)
    one = sender(spool, receiver.url, said)

    assert one.step() == 0.0
    assert one.step() > 0.0
    headers, body = receiver.requests[0]
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["content-encoding"] == "gzip"
    assert (body["version"], body["node"], body["spool"]) == (1, "a", spool.name)
    assert receiver.numbers() == [[1, 2]]
    assert spool.waiting() == 0
    assert said == ["", ""]


def test_a_centre_that_takes_nothing_packed_gets_it_plain(spool: Spool, receiver: Receiver) -> None:
    """Told once that packed bodies are not read, it sends plain ones."""
    receiver.packed = False
    spool.put([kept(0)], EVERY, BEGIN)
    one = sender(spool, receiver.url, [])
    one.step()
    one.step()
    spool.put([kept(1)], EVERY, BEGIN)
    one.step()

    assert [headers.get("content-encoding") for headers, _ in receiver.requests] == ["gzip", None, None]
    assert spool.waiting() == 0


def test_a_lost_answer_is_asked_for_again(spool: Spool, receiver: Receiver) -> None:
    """A batch that was cut off is sent again, with the same numbers."""
    receiver.hang_up, said = 1, list[str]()
    spool.put([kept(0), kept(1)], EVERY, BEGIN)
    one = sender(spool, receiver.url, said)

    assert FIRST / 2 <= one.step() <= FIRST
    assert one.step() == 0.0
    assert receiver.numbers() == [[1, 2], [1, 2]]
    assert "cannot be reached" in said[0]
    assert "2 looks wait" in said[0]
    assert said[1] == ""


def test_nobody_there_is_waited_for_longer_and_longer(spool: Spool) -> None:
    """Without a centre it tries less and less often, down to once a minute, and loses nothing."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{place.getsockname()[1]}"
        spool.put([kept(0)], EVERY, BEGIN)
        one = sender(spool, url, [])
        waits = [one.step() for _ in range(10)]

    assert [LONGEST / 2 <= wait <= LONGEST for wait in waits[-3:]] == [True] * 3
    assert waits[0] <= FIRST
    assert spool.waiting() == 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_centre_is_left_alone_as_long_as_it_asks(
    spool: Spool, receiver: Receiver, status: int
) -> None:
    """Retry-After is honoured, as a number and as a date; nonsense is not."""
    soon = datetime.fromtimestamp(time.time() + 90.0, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    receiver.answers = [(status, {"Retry-After": word}) for word in ("45", soon, "soon")]
    spool.put([kept(0)], EVERY, BEGIN)
    one = sender(spool, receiver.url, [])

    assert 45.0 <= one.step() <= 54.0
    assert 85.0 <= one.step() <= 110.0
    assert one.step() <= 4.0
    assert spool.waiting() == 1


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "the token"), (403, "may not"), (404, "no stoploss"), (302, "elsewhere"), (500, "failed")],
)
def test_what_a_person_must_put_right_loses_nothing(
    spool: Spool, receiver: Receiver, status: int, words: str
) -> None:
    """A wrong token or address is told of, and what waits stays; a redirect is not followed."""
    receiver.answers, said = [(status, {"Location": f"{receiver.url}/other"})], list[str]()
    spool.put([kept(0)], EVERY, BEGIN)
    sender(spool, receiver.url, said).step()

    assert words in said[0]
    assert spool.waiting() == 1
    assert len(receiver.requests) == 1


def test_only_the_look_that_is_wrong_goes(spool: Spool, receiver: Receiver) -> None:
    """A refused batch is halved until the look that is wrong is alone; it is dropped, counted, told."""
    receiver.refuses = lambda body: any(look["number"] == 37 for look in body["looks"])
    spool.put([kept(minute) for minute in range(100)], EVERY, BEGIN)
    said: list[str] = []
    one = sender(spool, receiver.url, said)
    while spool.waiting():
        one.step()
    one.step()
    taken = [number for numbers in receiver.numbers() if 37 not in numbers for number in numbers]

    assert taken == [number for number in range(1, 101) if number != 37]
    assert spool.dropped == 1
    assert said[-1] == "1 looks were dropped, 1 of them refused since the start"


def test_a_centre_that_refuses_all_does_not_empty_the_spool(spool: Spool, receiver: Receiver) -> None:
    """Where look after look is refused it is patient: not the looks are wrong."""
    receiver.refuses = lambda body: True
    spool.put([kept(minute) for minute in range(200)], EVERY, BEGIN)
    one = sender(spool, receiver.url, [])
    waits = [one.step() for _ in range(40)]

    assert waits[-1] == LONGEST
    assert spool.waiting() > 150


def test_a_clock_that_is_wrong_is_told(spool: Spool, receiver: Receiver) -> None:
    """The centre's answer bears its time; where this machine's differs much, that is a problem in words."""
    receiver.date, said = "Tue, 01 Dec 2020 14:00:00 GMT", list[str]()
    spool.put([kept(0)], EVERY, BEGIN)
    sender(spool, receiver.url, said).step()

    assert "ahead of the centre's" in said[0]


@pytest.mark.parametrize(
    ("url", "node", "token", "words"),
    [
        ("ftp://x", "a", None, "no web address"),
        ("http:///x", "a", None, "no web address"),
        ("https://user:secret@x", "a", None, "give the address alone"),
        ("https://x?token=secret", "a", None, "give the address alone"),
        ("https://x", "a/b", None, "no name of a node"),
        ("https://x", "", None, "no name of a node"),
        ("https://x", "a", "two words", "characters that no token has"),
        ("https://x", "a", "", "empty"),
    ],
)
def test_a_wrong_centre_is_refused_without_its_secret(
    url: str, node: str, token: str | None, words: str
) -> None:
    """What cannot be used is told at once, and no secret is in it."""
    with pytest.raises(ForwardError, match=words) as caught:
        Centre.of(url, node, None, {} if token is None else {"STOPLOSS_TOKEN": token})

    assert "secret" not in str(caught.value)


def test_the_token_is_read_from_a_file_each_time(tmp_path: Path) -> None:
    """A token that was changed is used at the next request."""
    file = tmp_path / "token"
    file.write_text("first\n")
    centre = Centre.of("https://x/", "a", str(file), {"STOPLOSS_TOKEN": "other"})
    before = centre.headers()
    file.write_text("second\n")

    assert (before, centre.headers()) == (
        {"Authorization": "Bearer first"},
        {"Authorization": "Bearer second"},
    )
    assert centre.url == "https://x"


def test_the_command_refuses_what_cannot_be_forwarded(tmp_path: Path) -> None:
    """A wrong address, or options without --forward, are bad input."""
    (tmp_path / "p.yaml").write_text(FLEET)
    for arguments in (["--forward", "x"], ["--node", "a"], ["--token-file", "x"]):
        result = CliRunner().invoke(command, [str(tmp_path / "p.yaml"), "--listen", "off", *arguments])

        assert isinstance(result.exception, UserError)
        assert "--forward" in str(result.exception)


# ---- a fleet -------------------------------------------------------------------------------

FLEET = """
version: 1
settings: {mode: audit}
policies:
  - name: idle
    summary: It does nothing.
    each: gpu
    for: 2m
    when: ['max(gpu.utilization, 5m) < 5%']
  - name: silent
    summary: Nobody measures it.
    each: gpu
    when: ['absent(gpu.utilization, 5m)']
"""


class Machine:
    """One stoploss with a collector that sees two idle GPUs, over a clock of the test."""

    def __init__(self, folder: Path, name: str, clock: Fleet) -> None:
        folder.mkdir()
        self.name, self.folder, self.clock = name, folder, clock
        self.looks = 0
        self.start()

    def start(self) -> None:
        """Begin, or begin again."""
        file = self.folder / "policies.yaml"
        file.write_text(FLEET, "utf-8")
        read = load(
            [file],
            catalogue=catalogue(),
            collector_options=option_models(),
            action_options=action_options(),
        )
        assert read.policies is not None, read.diagnostics
        self.service = Service(
            read.policies,
            f"sqlite:///{self.folder}/state.db",
            Clocks(self.clock.now, lambda: self.clock.now().timestamp()),
            environ={},
            live=lambda policies: Live({"gpu": self}, EVERY, (), ()),
            making=Making(actions={}, deliver=self.clock.deliver),
        )

    def look(self, at: float) -> Look:
        """What its collector sees."""
        self.looks += 1
        gpus = [ResourceId("gpu", f"{self.name}/{number}") for number in range(2)]
        samples = [Sample(at, gpu, "gpu.utilization", 0.0, {"host": self.name}) for gpu in gpus]
        samples += [Sample(at, gpu, "gpu.energy", 100.0 * self.looks) for gpu in gpus]
        return Look(tuple(samples), frozenset({"gpu"}))

    def kill(self) -> None:
        """End without a word."""
        self.service.history.close()
        self.service.ledger.close()

    def says(self, gpu: str) -> tuple[str, str]:
        """Of the policies on a GPU: the state of `idle`, or why it is unknown; and the same of `silent`."""
        latest = self.service.latest
        assert latest is not None
        found = {f.policy.name: f.state for f in latest.findings if f.resource.id == gpu}
        found |= {
            u.policy.name: f"unknown: {u.reason}"
            for u in latest.unknown
            if u.resource and u.resource.id == gpu
        }
        return found.get("idle", ""), found.get("silent", "")


@dataclass
class Net:
    """The centre's real HTTP server, which can be cut off for a node, or lose answers."""

    centre: Machine
    port: int = 0
    cut: set[str] = field(default_factory=set)
    busy: int = 0
    lose: int = 0


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    """A centre whose API runs on loopback as it does in the daemon."""
    uvicorn = pytest.importorskip("uvicorn")
    from stoploss.api.app import build
    from stoploss.api.limits import Limits
    from stoploss.api.tokens import made
    from stoploss.daemon.answers import Answers

    clock = Fleet(tmp_path)
    centre = Machine(tmp_path / "centre", "centre", clock)
    state = Net(centre)

    class Through(Answers):
        def take(self, node: str, batch: Any) -> int:
            if state.busy:
                state.busy -= 1
                raise BusyError("busy")
            if node in state.cut:
                raise RuntimeError("cut off")
            # The centre may have been started again since.
            taken = centre.service.nodes.take(node, batch, clock.now())
            if state.lose:
                state.lose -= 1
                raise RuntimeError("the answer is lost")
            return taken

    tokens = made([("nodes", TOKEN, ("ingest",), None)])
    wide = Limits(per_second=1e6, burst=1e6)
    application = build(Through(centre.service, clock.now), tokens, now=clock.now, limits=wide)
    place = socket.socket()
    place.bind(("127.0.0.1", 0))
    state.port = place.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(application, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
    thread.start()
    limit = time.monotonic() + 20.0
    while not server.started:
        assert time.monotonic() < limit
        time.sleep(0.01)
    yield state
    server.should_exit = True
    thread.join()
    place.close()
    centre.kill()


class Node(Machine):
    """A machine that forwards."""

    def __init__(self, folder: Path, name: str, net: Net) -> None:
        self.net = net
        super().__init__(folder, name, net.centre.clock)

    def start(self) -> None:
        """Begin, or begin again, with the spool that there is."""
        super().start()
        self.spool = Spool(str(self.folder / "spool.db"))
        self.service.outlet = lambda looks: self.spool.put(looks, EVERY, self.clock.now().timestamp())
        centre = Centre.of(f"http://127.0.0.1:{self.net.port}", self.name, None, {"STOPLOSS_TOKEN": TOKEN})
        self.sender = Sender(self.spool, centre, lambda why: None)

    def send(self) -> None:
        """Send until nothing waits, or it does not go on."""
        for _ in range(50):
            if self.sender.step() > 0.0:
                return

    def kill(self) -> None:
        """End without a word."""
        super().kill()
        self.spool.close()


def everything(machine: Machine) -> Counter[tuple[str, str, int]]:
    """All cells on its disk."""
    machine.kill()
    store = open_store(f"sqlite:///{machine.folder}/state.db", read_only=True)
    frame = store.read(store.first_slot or 0, store.last_slot or 0)
    store.close()
    return Counter(
        (name, resource.id, int(row) + frame.first)
        for name, plane in frame.planes.items()
        for at, resource in enumerate(plane.series)
        if resource.kind == "gpu"
        for row in np.flatnonzero(plane.status[:, at]).tolist()
    )


@pytest.mark.parametrize(
    ("away", "end"), [(range(11, 23), 32), pytest.param(range(21, 76), 130, marks=pytest.mark.slow)]
)
def test_a_node_that_was_cut_off_loses_and_doubles_nothing(
    tmp_path: Path, net: Net, away: range, end: int
) -> None:
    """While one of three is away its GPUs are unknown, others known; then every sample is there once."""
    nodes = [Node(tmp_path / name, name, net) for name in "abc"]
    centre, clock = net.centre, net.centre.clock
    for minute in range(1, end + 1):
        clock.minutes, clock.seconds = minute, 0.0
        net.cut = {"b"} if minute in away else set()
        net.lose = 1 if minute in (5, away.stop, away.stop + 1) else 0
        net.busy = 1 if minute == away.stop + 2 else 0
        if minute in (away.stop - 8, away.stop + 1):
            nodes[1].kill()
            nodes[1].start()
        if minute in (away.stop - 4, away.stop + 3):
            centre.kill()
            centre.start()
        for machine in (centre, *nodes):
            machine.service.look(["gpu"], clock.now().timestamp())
        for node in nodes:
            node.send()
        clock.seconds = 11.0
        centre.service.tick()
        for node in nodes if minute in (away.stop, end) else ():
            node.service.history.seal(clock.now().timestamp())
        if minute == away.stop - 2:
            nodes[1].service.tick()
            cut = centre.says("b/0"), centre.says("a/0"), centre.says("centre/0"), nodes[1].says("b/0")
            problem = centre.service.vitals.problems["nodes"]

    assert "stale since" in cut[0][0]
    assert "b/gpu did not look" in cut[0][1]
    assert cut[1:] == (("firing", ""), ("firing", ""), ("firing", ""))
    assert problem.startswith(f"b is silent since 2026-12-01 14:{away.start - 1} UTC")
    assert "nodes" not in centre.service.vitals.problems
    assert centre.says("b/0") == ("firing", "")
    firing = {finding.resource.id: finding for finding in centre.service.latest.firing}  # type: ignore[union-attr]
    assert len(firing) == 8
    # It stayed the finding that it was: what came late rewrote nothing.
    assert firing["b/0"].since == firing["a/0"].since

    assert [node.spool.waiting() for node in nodes] == [0, 0, 0]
    there = everything(centre)
    assert there["gpu.utilization", "b/0", round(BEGIN / 60) + away.start] == 1
    for node in nodes:
        seen = everything(node)
        mine = Counter({cell: n for cell, n in there.items() if cell[1].startswith(f"{node.name}/")})
        assert mine == seen
        assert len(seen) == end * 4


POLICIES = """
version: 1
settings: {{resolution: 1s, mode: warn, state: "sqlite:///{folder}/state.db"}}
collectors: {{host: {{every: 1s, name: {name}}}}}
policies:
  - name: up
    summary: This machine is there.
    each: host
    when: ['max(host.cpu.utilization, 2s) >= 0%']
    then: [{{alert: {{to: people}}}}]
notify: {{people: "http://127.0.0.1:9/"}}
"""


@pytest.mark.slow
def test_real_daemons_over_a_centre_that_is_killed(tmp_path: Path) -> None:
    """Three nodes and a centre, killed meanwhile: in the end what the nodes sent is there, once."""
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(f"version: 1\ntokens:\n  - {{name: nodes, token: {TOKEN}, scopes: [ingest]}}\n")
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    running: dict[str, subprocess.Popen[bytes]] = {}

    def begin(name: str) -> None:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "p.yaml").write_text(POLICIES.format(folder=folder, name=name))
        how = ["--listen", f"127.0.0.1:{port}", "--tokens", str(tokens)]
        if name != "centre":
            how = ["--listen", "off", "--forward", f"http://127.0.0.1:{port}", "--node", name]
        with (folder / "log").open("ab") as log:
            running[name] = subprocess.Popen(
                [sys.executable, "-m", "stoploss", "run", "p.yaml", *how],
                cwd=folder,
                stderr=log,
                env={**os.environ, "PYTHONPATH": SOURCES, "STOPLOSS_TOKEN": TOKEN},
            )

    def end(name: str, number: signal.Signals = signal.SIGKILL) -> None:
        child = running.pop(name)
        child.send_signal(number)
        child.wait(30)

    def come(name: str) -> int:
        found = [
            item.number
            for (node, _), item in arrivals(f"sqlite:///{tmp_path}/centre/state.db").items()
            if node == name
        ]
        return max(found, default=0)

    def until(met: Callable[[], bool], seconds: float = 60.0) -> None:
        limit = time.monotonic() + seconds
        while not met():
            assert time.monotonic() < limit, (tmp_path / "centre" / "log").read_text()
            time.sleep(0.2)

    try:
        for name in ("centre", "a", "b", "c"):
            begin(name)
        until(lambda: (tmp_path / "centre" / "state.db").exists() and all(come(name) > 5 for name in "abc"))
        end("centre")
        end("a")
        time.sleep(5)
        begin("a")
        begin("centre")
        before = {name: come(name) for name in "abc"}
        until(lambda: all(come(name) > before[name] + 10 for name in "abc"))
        for name in "abc":
            end(name, signal.SIGTERM)
        for name in "abc":
            spool = Spool(str(tmp_path / name / "state-spool.db"))
            made = max([item.number for item in spool.oldest(10**6, 10**9)], default=0)
            spool.close()
            assert made == 0 or come(name) < made
    finally:
        for name in list(running):
            end(name)
    url = f"sqlite:///{tmp_path}/centre/state.db"
    assert {node for node, _ in arrivals(url)} == set("abc")
    looks = LookStore(url, read_only=True)
    times = Counter((item.node, item.at) for item in looks.read() if item.collector == "host")
    looks.close()
    assert set(times.values()) == {1}
    store = open_store(url, read_only=True)
    frame = store.read(store.first_slot or 0, store.last_slot or 0)
    store.close()
    assert {"a/host", "b/host", "c/host", "host"} <= set(frame.looks)
