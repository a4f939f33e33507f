"""A secret of the environment is nowhere to be found, whatever fails."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.receivers import hook
from support.scenes import Scene, recording
from support.toys import Act, Fleet, Reply

from stoploss.actions.alert import Receivers, alert, recipient
from stoploss.engine.execution.cycle import Cycle, Tools
from stoploss.engine.ledger import Ledger
from stoploss.engine.model import Found, Notice, Order, Outcome
from stoploss.means import actions_of, means_of
from stoploss.rules.catalogue import catalogue

SECRET = "hunter2-0123456789abcdef"  # noqa: S105
TEXT = """
version: 1
settings: {mode: enforce, limits: {share-of-population: 100%, actions-per-run: 100, gpus-per-run: 1000}}
notify:
  owner: "${HOOK}/hook/${NAME_TOKEN}?key=${NAME_TOKEN}"
  dead: "http://127.0.0.1:9/${NAME_TOKEN}"
policies:
  - name: idle
    each: job
    for: 2m
    when: ['max(gpu.utilization, 5m) < 5%']
    then:
      - alert: {to: owner}
      - alert: {to: [owner, dead], on-failure: continue}
      - snapshot: {on-failure: continue}
      - exec: {snapshot: not-needed, command: [/bin/sh, -c, 'echo "$0"; exit 3', "${NAME_TOKEN}"]}
"""


class Loud(Act):
    """An action that says the secret in everything that it says and fails with."""

    def find(self, order: Order) -> Found:
        """With the secret in words and in what it remembers."""
        found = super().find(order)
        return Found(f"{found.words} {SECRET}", {**found.before, "password": SECRET, "note": SECRET})

    def act(self, order: Order, found: Found) -> Outcome:
        """Fails with the secret."""
        if self.fleet.faults.get((self.name, order.resource.id)) == "raise":
            raise RuntimeError(SECRET)
        return Outcome(
            "failed", f"curl https://ann:{SECRET}@example.org failed", {"token": SECRET}, retry=True
        )


@pytest.mark.parametrize("labels", [{"api_key": SECRET}, {"team": SECRET}], ids=["key", "team"])
def test_no_byte_of_state_notices_or_logs_holds_it(
    labels: dict[str, str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In an address, a label, an argument, and in what fails: the state, notices and logs hold none."""
    caplog.set_level(logging.DEBUG)
    fleet = Fleet(tmp_path / "fleet")
    fleet.folder.mkdir()
    fleet.start("a", "b")
    fleet.labels = {"a": {"note": SECRET, "url": f"https://ann:{SECRET}@h/"}, "b": labels}
    fleet.faults = {("snapshot", "a"): "raise"}
    notices: list[Notice] = []
    with hook() as server:
        environ = {
            "NAME_TOKEN": SECRET,
            "HOOK": f"http://127.0.0.1:{server.port}",
            "PATH": os.environ["PATH"],
        }
        cycle = secretive(fleet, environ, notices)
        for status in (200, 500, 200):
            server.status = status
            fleet.run(cycle, 12)
        bodies = b"".join(request.body for request in server.requests)
    (tmp_path / "told").write_text(json.dumps([(item.lines, item.key) for item in notices]))
    (tmp_path / "sent").write_bytes(bodies)
    (tmp_path / "log").write_text(caplog.text + "".join(capfd.readouterr()))
    done = {entry.action for entry in Ledger(fleet.url, environ={}).entries(kinds=("intent",))}

    assert {"alert", "snapshot", "exec"} <= done
    assert len(notices) > 2
    assert holding(tmp_path) == []


def secretive(fleet: Fleet, environ: Mapping[str, str], notices: list[Notice]) -> Cycle:
    """A cycle with real receivers and a real `exec`, and loud other actions."""
    policies = fleet.cycle(TEXT).policies
    means = means_of(policies, folder=str(fleet.folder / "kept"), environ=environ)
    (fleet.folder / "kept").mkdir(exist_ok=True)
    receivers = Receivers(policies.notify, environ)

    def deliver(name: str, notice: Notice) -> Reply:
        notices.append(notice)
        how = alert(receivers, name, notice, now=fleet.now())
        return Reply(how.delivered, how.retry, how.words)

    tools = Tools(
        frames=lambda resolution: fleet.buffer.frame(resolution),
        look=fleet.look,
        actions={
            "snapshot": lambda: Loud(fleet, "snapshot"),
            "terminate": lambda: Loud(fleet, "terminate"),
            "exec": actions_of(means)["exec"],
        },
        lacks=fleet.lacks,
        deliver=deliver,
        recipient=lambda name, labels: recipient(receivers, name, labels),
        now=fleet.now,
    )
    return Cycle(policies, catalogue(), Ledger(fleet.url, environ=environ), tools)


def holding(folder: Path) -> list[str]:
    """The files below a folder that hold the secret in some spelling."""
    spellings = [SECRET.encode(), SECRET.encode("utf-16-le"), SECRET.encode().hex().encode()]
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and any(text in path.read_bytes() for text in spellings)
    ]


@pytest.mark.parametrize("form", ["table", "json", "html", "csv", "sarif", "junit"])
def test_no_report_holds_it(scene: Scene, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """An address and an argument that name the variable stand in no report with its value."""
    monkeypatch.setenv("NAME_TOKEN", SECRET)
    monkeypatch.setenv("HOOK", "http://127.0.0.1:9")
    labels = {"a": {"job": "j", "class": "train"}}
    signals = recording({("gpu", "a", "gpu.utilization"): [0] * 40}, labels=labels)
    files = scene.write("policies.yaml", TEXT), scene.write("signals.csv", signals)
    out = scene.run("audit", files[0], "--signals", files[1], "--format", form)

    assert "idle" in out
    assert SECRET not in out + scene.stderr


@pytest.mark.parametrize(
    "form",
    ["table", "junit", "json", "html", "csv", "sarif"],
)
def test_no_report_holds_a_label_that_holds_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """A label whose value is that of a secret variable is masked there too."""
    monkeypatch.setenv("NAME_TOKEN", SECRET)
    monkeypatch.setenv("HOOK", "http://127.0.0.1:9")
    labels = {"a": {"job": "j", "class": "train", "note": SECRET, "team": SECRET}}
    signals = recording({("gpu", "a", "gpu.utilization"): [0] * 40}, labels=labels)
    files = scene.write("policies.yaml", TEXT), scene.write("signals.csv", signals)
    out = scene.run("audit", files[0], "--signals", files[1], "--format", form)

    assert SECRET not in out + scene.stderr
