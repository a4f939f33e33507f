"""`stoploss signals`: the catalogue, and what is seen here now."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from support.scenes import Scene

from stoploss.collectors.contract import CollectorError, NotHere
from stoploss.collectors.runner import run_collectors
from stoploss.engine.model import UNREADABLE, Bad, Look, Reading, ResourceId, Sample
from stoploss.reports import seen_table
from stoploss.reports.seen import Seen, as_json, seen
from stoploss.rules.catalogue import catalogue
from stoploss.rules.signals import SIGNALS

AT = 1_800_000_000.0


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_signal_is_listed(scene: Scene) -> None:
    """Without a word the table and the JSON hold the whole catalogue, in at most 80 columns."""
    text = scene.run("signals")
    listed = scene.json("signals")["signals"]

    assert {item["name"] for item in listed} == set(catalogue())
    assert [name for name in catalogue() if f"\n  {name} " not in text] == []
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_an_entry_tells_what_there_is_to_know(scene: Scene) -> None:
    """Name, unit, kind, resources, collector and meaning are told of each."""
    [entry] = scene.json("signals", "gpu.power_limit")["signals"]

    assert entry == {
        "name": "gpu.power_limit",
        "family": "GPU",
        "unit": "W",
        "kind": "attribute",
        "resources": ["gpu"],
        "collector": "gpu",
        "meaning": catalogue()["gpu.power_limit"].meaning,
        "values": [],
    }


@pytest.mark.parametrize(
    ("word", "in_it", "not_in_it"),
    [
        ("gpu", "gpu.power", "host.load"),
        ("GPU", "gpu.power", "host.load"),
        ("loss", "loss.verdict", "cost.total"),
        ("Job and process", "process.threads", "gpu.power"),
        ("gpu.memory", "gpu.memory.used", "gpu.power"),
        ("budget", "cost.total", "gpu.power"),
    ],
)
def test_a_family_or_a_prefix_chooses(scene: Scene, word: str, in_it: str, not_in_it: str) -> None:
    """A word chooses the signals that begin with it, or those of the family that bears it."""
    names = {item["name"] for item in scene.json("signals", word)["signals"]}

    assert in_it in names
    assert not_in_it not in names


@pytest.mark.parametrize(
    ("word", "hint"), [("gpx", "did you mean gpu?"), ("gpu.utl", "did you mean gpu.utilization?")]
)
def test_an_unknown_word_names_the_nearest(scene: Scene, word: str, hint: str) -> None:
    """A word that chooses nothing is bad input, with the nearest one."""
    scene.run("signals", word)

    assert scene.status == 2
    assert hint in scene.stderr


def test_now_shows_this_machine(scene: Scene) -> None:
    """The CPUs of this host are read, in the table in human units and in the JSON as numbers."""
    told = scene.json("signals", "host", "--now")
    text = scene.run("signals", "host", "--now")
    [host] = [item for item in told["resources"] if item["kind"] == "host"]
    values = {item["name"]: item["value"] for item in host["signals"]}

    assert values["host.cpu.count"] >= 1
    assert f"host {host['id']}" in text
    assert "nothing was touched" in text
    assert [item["state"] for item in told["collectors"] if item["name"] == "host"] == ["ok"]
    assert scene.status == 0


def test_now_takes_the_collectors_of_a_policy_file(scene: Scene) -> None:
    """A file given to --now says how the collectors look."""
    file = scene.write("p.yaml", GOOD)

    told = scene.json("signals", "host", "--now", file)
    assert [item["id"] for item in told["resources"] if item["kind"] == "host"] == ["node-17"]


def test_now_reads_the_policies_of_this_folder(scene: Scene) -> None:
    """Without a file --now looks as an audit here would."""
    scene.write("policies.yaml", GOOD)

    told = scene.json("signals", "host", "--now")
    assert [item["id"] for item in told["resources"] if item["kind"] == "host"] == ["node-17"]


GOOD = """\
version: 1
collectors: {host: {name: node-17}}
policies: [{name: a, each: host, when: 'max(host.cpu.utilization, 30m) < 5%'}]
"""


def test_now_before_a_prefix_is_explained(scene: Scene) -> None:
    """A prefix that stands where the file belongs is answered with the right order."""
    scene.run("signals", "--now", "gpu")

    assert scene.status == 2
    assert "stoploss signals gpu --now" in scene.stderr


# ---- many resources, some of which cannot be read


@dataclass
class Source:
    """A collector that sees what it is told to see."""

    samples: tuple[Sample, ...] = ()
    error: Exception | None = None

    def look(self, at: float) -> Look:
        """What was told, or the error."""
        if self.error is not None:
            raise self.error
        return Look(self.samples)


def gpus() -> Iterator[Sample]:
    """Eight GPUs: number 3 is split into MIG slices, number 5 is lost."""
    readings: dict[str, Reading] = {
        "gpu.model": "NVIDIA H100 80GB HBM3",
        "gpu.power_limit": 700.0,
        "gpu.utilization": 0.97,
        "gpu.memory.used": 76e9,
        "gpu.power": 650.0,
        "gpu.temperature": 61.0,
    }
    for number in range(8):
        for signal, reading in readings.items():
            if number == 5:
                reading = Bad("GPU is lost")
            elif number == 3 and signal == "gpu.utilization":
                reading = Bad("not supported on MIG")
            yield Sample(
                AT, ResourceId("gpu", f"n1-g{number}"), signal, reading, {"job": "4412", "user": None}
            )


def look(**sources: Source) -> Seen:
    """One look of some sources through the real runner."""
    runs = run_collectors(sources, at=AT, monotonic=time.monotonic)
    return seen(runs, SIGNALS, at=AT, known=("gpu", "network", "training"))


def as_text(told: Seen) -> str:
    """The table as a pipe gets it."""
    return click.unstyle(seen_table.as_text(told, "UTC"))


def test_eight_gpus_stay_readable() -> None:
    """Each GPU is a short block in 80 columns; a slice says what it cannot read, a lost one only that."""
    text = as_text(look(gpu=Source(tuple(gpus()))))
    block = text.partition("gpu n1-g3")[2].partition("\n\n")[0]
    lost = text.partition("gpu n1-g5")[2].partition("\n\n")[0]

    assert "8 gpus" in text
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert block.splitlines() == [
        "  job 4412",
        "  gpu.model       NVIDIA H100 80GB HBM3  gpu.power                       650 W",
        "  gpu.power_limit                 700 W  gpu.temperature                  61 C",
        "  gpu.memory.used                 76 GB",
        "  not read: gpu.utilization (not supported on MIG)",
    ]
    assert lost.splitlines() == ["  job 4412", "  nothing could be read: GPU is lost"]
    assert len(text.splitlines()) < 80


def test_the_json_has_every_reading() -> None:
    """A bad reading is null with its reason, whatever the table leaves out."""
    told = json.loads(as_json(look(gpu=Source(tuple(gpus())))))

    assert len(told["resources"]) == 8
    lost = {item["name"]: item for item in told["resources"][5]["signals"]}
    assert lost["gpu.power"] == {"name": "gpu.power", "value": None, "unit": "W", "reason": "GPU is lost"}
    assert told["collectors"][0]["bad"]["not supported on MIG"] == ["gpu.utilization"]


def test_a_table_ends_and_the_json_goes_on() -> None:
    """Of forty hosts a person is shown eight and told of the others; the JSON has all."""
    many = tuple(Sample(AT, ResourceId("host", f"n{number:02}"), "host.load", 1.0) for number in range(40))
    told = look(host=Source(many))

    assert as_text(told).count("\nhost n") == 8
    assert "… and 32 more hosts; all of them: --format json" in as_text(told)
    assert len(json.loads(as_json(told))["resources"]) == 40


def test_what_was_not_seen_has_a_reason() -> None:
    """Failed, not here, unnamed, unbuilt and derived signals each say why they are missing."""
    told = look(
        gpu=Source(error=CollectorError("driver and library do not match")),
        network=Source(error=NotHere("no /proc/net")),
        host=Source(),
    )
    reasons = {item.collector: item.reason for item in told.unseen}

    assert reasons["gpu"] == "failed: driver and library do not match"
    assert reasons["network"] == "not here: no /proc/net"
    assert reasons["host"] == "looked, and found none"
    assert reasons["training"] == "not named under collectors:"
    assert reasons["aws"] == "no such collector in this version"
    assert reasons["derived"] == "worked out by the engine, not looked at"
    assert "failed    driver and library do not match" in as_text(told)


def test_odd_readings_and_names_are_shown_as_such() -> None:
    """Non-finite curves are named in JSON, unreadable labels are ?, and nothing steers the terminal."""
    job = ResourceId("job", "a\x1b[31m\n")
    told = look(training=Source((Sample(AT, job, "train.loss", float("nan"), {"team": UNREADABLE}),)))
    [resource] = json.loads(as_json(told))["resources"]

    assert resource["labels"] == {"team": "?"}
    assert resource["signals"][0]["value"] is None
    assert resource["signals"][0]["non_finite"] == "nan"
    assert "job a?[31m?  team ?" in as_text(told)
