"""The state on a real PostgreSQL: all that is kept, standby, and a server that is started anew."""

from __future__ import annotations

import gc
import json
import math
import os
import random
import shutil
import string
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from support.months import Life, life
from support.postgres import Postgres, postgres
from support.receivers import hook
from support.toys import Fleet

from stoploss.daemon.carried import load_carry
from stoploss.daemon.lock import StateLock
from stoploss.engine.history.looks import Kept, LookStore
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.history.store import SampleStore
from stoploss.engine.history.store_errors import StoreError
from stoploss.engine.ledger import Ledger
from stoploss.engine.model import Look, ResourceId, Sample
from stoploss.engine.people import People
from stoploss.engine.people_schema import Wanted
from stoploss.engine.vitals import load_vitals
from stoploss.rules.catalogue import catalogue

pytestmark = [pytest.mark.slow, pytest.mark.real]

NOW = datetime(2026, 12, 1, 14, tzinfo=UTC)
SOURCES = str(Path(__file__).parents[2] / "src")


class Fleets(Fleet):
    """A fleet whose state is on a server."""

    server = ""

    @property
    def url(self) -> str:
        return self.server


@pytest.fixture(scope="module")
def running() -> Iterator[Postgres]:
    """One server for all."""
    folder = Path(tempfile.mkdtemp(prefix="stoploss-postgres-"))
    folder.chmod(0o755)
    try:
        with postgres(folder) as found:
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    """Connections that a test left open are closed, without a word, when nobody holds them any more."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def server(running: Postgres) -> Postgres:
    """A server that runs, whatever the test before did to it."""
    running.stop()
    running.start()
    return running


def lived(folder: Path, url: str | None, steps: int, seed: int = 3) -> Life:
    """A life that is killed now and then, its state on a server or in a file."""
    folder.mkdir()
    fleet = Fleets(folder) if url is not None else Fleet(folder)
    if url is not None:
        assert isinstance(fleet, Fleets)
        fleet.server = url
    one = life(fleet, seed, datetime(2026, 10, 24, 12, tzinfo=UTC))
    draw = random.Random(seed)
    for _ in range(steps):
        one.pass_(lambda: one.kill() if draw.random() < 0.05 else None)
    return one


def test_a_life_on_a_server_is_that_in_a_file(tmp_path: Path, server: Postgres) -> None:
    """Ledger, alerts, looks, slots of two resolutions: all that comes out is the same."""
    url = server.database()
    there, here = lived(tmp_path / "server", url, 60), lived(tmp_path / "file", None, 60)
    mine, other = there.told(), here.told()
    service = there.service
    assert service is not None

    assert mine == other
    assert mine["calls"]
    assert there.restarts > 2
    assert service.history.frame(3600.0).slots > 10
    assert service.vitals.problems == {}
    vitals, carry = load_vitals(url), load_carry(url)
    assert vitals is not None
    assert vitals.ticks == service.vitals.ticks
    assert carry is not None
    there.kill()
    here.kill()


def test_a_server_that_is_started_anew_loses_nothing(tmp_path: Path, server: Postgres) -> None:
    """Gone for six looks: it is told, nothing is done meanwhile, and nothing is missing afterwards."""
    there = lived(tmp_path / "server", server.database(), 40)
    service, fleet = there.service, there.fleet
    assert service is not None
    before = fleet.lines("calls")
    server.stop()
    problems = []
    for _ in range(6):
        with pytest.raises(AssertionError):
            there.pass_()
        problems.append(dict(service.vitals.problems))
    while_gone = fleet.lines("calls")
    server.start()
    there.pass_()

    # A connection that was open is told to be broken, once.
    words = ("its server does not answer", "its server broke the connection")
    for place in ("state", "samples"):
        assert all(any(word in item[place] for word in words) for item in problems), problems
    assert while_gone == before
    assert service.vitals.problems == {}
    frame = service.history.frame(900.0)
    assert (frame.looks["gpu"][-7:] > 0).all()
    kept = sorted({kept.at for kept in LookStore(fleet.url, read_only=True).read()})
    assert [b - a for a, b in pairwise(kept)][-6:] == [900.0] * 6
    assert service.ledger.verify() == ()
    there.kill()


def test_what_people_decide(server: Postgres) -> None:
    """Requests with their answers, keeps, exemptions and a pause, with names as long as they come."""
    name = "ü" * 5000
    people = People(Ledger(server.database(), environ={}))
    wanted = Wanted(
        episode="f-1",
        policy="idle",
        policy_hash="abc",
        resource=ResourceId("job", name),
        action="terminate",
        target="slurm",
        parameters={"grace": 1e308, "note": name},
    )
    asked = people.ask(wanted, now=NOW)
    people.approve(asked.id, who="ann", now=NOW)
    people.pause(reason="maintenance", who="ann", now=NOW)

    [request] = people.requests()
    assert request.wanted == wanted
    assert request.state(NOW + timedelta(hours=23)) == "approved"
    assert people.paused() is not None


def test_numbers_and_names_of_every_kind(server: Postgres) -> None:
    """1e308, NaN and infinities come back as they were; names that no database holds are told apart."""
    url = server.database()
    draw = random.Random(1)
    # Random, so that nothing can compress it: an index of the server holds 2,700 bytes.
    long = "/" + "".join(draw.choice(string.ascii_letters) for _ in range(4095))
    samples = [
        Sample(NOW.timestamp(), ResourceId("job", "a"), "train.loss", value)
        for value in (1e308, math.nan, math.inf, -math.inf)
    ]
    samples += [
        Sample(NOW.timestamp(), ResourceId("job", long), "train.loss", -1e308, {"user": long}),
        Sample(
            NOW.timestamp(), ResourceId("job", "nul\0surrogate\udcff"), "train.loss", 5e-324, {"user": "\0"}
        ),
    ]
    look = Look(tuple(samples), frozenset({"job"}))
    looks = LookStore(url)
    looks.append([Kept("training", NOW.timestamp(), look)])
    [kept] = looks.read()
    assert kept.look is not None
    buffer = SampleBuffer(catalogue(), {"training": 60.0})
    buffer.add("training", kept.look, slot_time=NOW.timestamp())
    frame = buffer.frame(60.0)
    store = SampleStore(url, 60.0)
    store.append(frame)
    read = SampleStore(url, 60.0).read(frame.first, frame.last)

    assert repr(kept.look.samples[:4]) == repr(look.samples[:4])
    assert read.planes["train.loss"].values.tobytes() == frame.planes["train.loss"].values.tobytes()
    assert read.planes["train.loss"].status.tobytes() == frame.planes["train.loss"].status.tobytes()
    assert len(read.resources) == 3
    names = sorted(resource.id for resource in read.resources)
    assert names[0].startswith("/")
    assert len(names[0].encode()) <= 2000
    assert names[1:] == ["a", "nul\\x00surrogate\\xff"]


def test_the_lock_goes_with_its_connection(server: Postgres) -> None:
    """Two cannot hold it; after the server was started anew it is taken again by whoever asks first."""
    url = server.database()
    first, second = StateLock(url), StateLock(url)
    assert first.take()
    assert not second.take()
    assert first.kept()
    server.stop()
    with pytest.raises(StoreError, match="does not answer"):
        first.kept()
    server.start()

    assert second.take()
    assert not first.kept()
    second.release()
    assert first.kept()
    first.release()


def test_another_server_is_told_in_words(server: Postgres) -> None:
    """A wrong name, a wrong port and a wrong database are each told without a traceback or a password."""
    url = server.database()
    for wrong, words in (
        (url.replace(f":{server.port}", ":1"), "its server does not answer"),
        (url.replace("/state", "/other"), 'database "other'),
    ):
        with pytest.raises(StoreError, match=words) as told:
            Ledger(wrong.replace("postgres@", "postgres:hunter2@"), environ={})
        assert "hunter2" not in str(told.value)
        assert "\n" not in str(told.value)


POLICIES = """
version: 1
settings: {{resolution: 1s, mode: warn, state: "{url}"}}
collectors: {{host: {{every: 1s}}}}
notify: {{people: "{hook}"}}
policies:
  - name: up
    summary: This machine is there.
    each: host
    when: ['max(host.cpu.utilization, 2s) >= 0%']
    then: [{{alert: {{to: people}}}}]
"""


def started(folder: Path, log: str) -> subprocess.Popen[bytes]:
    """The real command."""
    words = [sys.executable, "-m", "stoploss", "run", str(folder / "policies.yaml"), "--listen", "off"]
    with (folder / log).open("wb") as errors:
        return subprocess.Popen(words, stderr=errors, cwd=folder, env={**os.environ, "PYTHONPATH": SOURCES})


def texts(folder: Path, log: str) -> str:
    lines = (folder / log).read_text().splitlines()
    return "\n".join(json.loads(line)["text"] for line in lines if line[:1] == "{")


def until(folder: Path, log: str, text: str, seconds: float = 30.0) -> None:
    limit = time.monotonic() + seconds
    while text not in texts(folder, log):
        assert time.monotonic() < limit, (folder / log).read_text()
        time.sleep(0.1)


def test_standby_and_a_server_that_is_started_anew(tmp_path: Path, server: Postgres) -> None:
    """A second one waits; the server's restart leaves exactly one at work, and people were told once."""
    with hook() as receiver:
        text = POLICIES.format(url=server.database(), hook=receiver.url())
        (tmp_path / "policies.yaml").write_text(text)
        first = started(tmp_path, "first")
        second = None
        try:
            until(tmp_path, "first", "running:")
            second = started(tmp_path, "second")
            until(tmp_path, "second", "standby")
            limit = time.monotonic() + 30
            while not receiver.requests:
                assert time.monotonic() < limit
                time.sleep(0.1)
            server.stop()
            time.sleep(3)
            server.start()
            time.sleep(8)
            running = [
                texts(tmp_path, name).count("running:")
                - texts(tmp_path, name).count("another stoploss has taken over")
                for name in ("first", "second")
            ]
            assert sorted(running) == [0, 1], (texts(tmp_path, "first"), texts(tmp_path, "second"))
            assert "does not answer" in texts(tmp_path, "first") or "broke" in texts(tmp_path, "first")
            for child in (first, second):
                child.terminate()
                assert child.wait(20) == 0
        finally:
            for child in (first, second):
                if child is not None:
                    child.kill()
                    child.wait()
        assert sum(b'"firing"' in request.body for request in receiver.requests) == 1
