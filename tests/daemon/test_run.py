"""The real command, as a process of its own: reloaded, taken over, and asked to end."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.daemons import Daemon
from support.receivers import Hook, hook

from stoploss.cli.main import run as command

POLICIES = """
version: 1
settings: {{resolution: 1s, mode: warn, state: "sqlite:///{folder}/state.db"}}
collectors: {{host: {{every: 1s}}}}
notify: {{people: "{url}"}}
policies:
  - name: up
    summary: This machine is there.
    each: host
    when: ['max(host.cpu.utilization, 2s) >= 0%']
    then: [{{alert: {{to: people}}}}]
"""


@pytest.fixture
def folder(tmp_path: Path, receiver: Hook) -> Path:
    """A folder with policies whose alerts go to a receiver on loopback."""
    (tmp_path / "policies.yaml").write_text(POLICIES.format(folder=tmp_path, url=receiver.url()), "utf-8")
    return tmp_path


@pytest.fixture
def receiver() -> Iterator[Hook]:
    """A web server that takes notices."""
    with hook() as running:
        yield running


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[[], Daemon]]:
    """Starts daemons; they are ended in the end."""
    made: list[Daemon] = []

    def begin() -> Daemon:
        made.append(Daemon(folder))
        return made[-1]

    yield begin
    for daemon in made:
        daemon.child.kill()
        daemon.child.wait()


def firing(receiver: Hook) -> int:
    """How many notices of a finding have come."""
    return sum(b'"firing"' in request.body for request in receiver.requests)


@pytest.mark.slow
def test_it_runs_reloads_and_ends_well(folder: Path, receiver: Hook, start: Callable[[], Daemon]) -> None:
    """It tells once, keeps the old policies where a file is broken, takes a good one, and ends with 0."""
    daemon = start()
    daemon.until(lambda: firing(receiver) == 1)
    file = folder / "policies.yaml"
    good = file.read_text()
    file.write_text(good.replace("each: host", "each: hsot"))
    daemon.child.send_signal(signal.SIGHUP)
    daemon.logged("the old policies go on")
    file.write_text(good.replace("This machine is there.", "It is there."))
    daemon.child.send_signal(signal.SIGHUP)
    daemon.logged("policy up has changed")

    assert daemon.kill(signal.SIGTERM) == 0
    assert firing(receiver) == 1
    assert command(["status", "--file", str(file)]) == 4


def test_a_taken_address_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where something else answers there it ends with 2 and says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = command(["run", str(folder / "policies.yaml"), "--listen", place])

    assert ended == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"stoploss: --listen {place}: Address already in use; give another place, or --listen off"
    )


@pytest.mark.slow
def test_a_second_one_waits_and_takes_over(receiver: Hook, start: Callable[[], Daemon]) -> None:
    """While one runs another stands by; when it is killed the other goes on, and tells nobody again."""
    first = start()
    first.until(lambda: firing(receiver) == 1)
    second = start()
    second.logged("standby")
    first.kill()
    second.until(lambda: sum("running:" in line for line in second.texts()) == 2)
    time.sleep(3)

    assert firing(receiver) == 1
