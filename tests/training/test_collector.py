"""The collector of training logs: newest values per job, each record once, whatever happens to the file."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.scenes import Scene
from support.unprivileged import unprivileged

from stoploss.collectors.contract import CollectorError, Context
from stoploss.collectors.training.collector import TrainingCollector, build
from stoploss.collectors.training.options import Options
from stoploss.engine.losses.signals import conclude
from stoploss.engine.model import UNREADABLE, Bad, Look, Reading

AT = time.time()


def collector(*paths: object, concluding: bool = False, **options: Any) -> TrainingCollector:
    """A collector of host n1, made as the registry makes it."""
    said = {"paths": [str(path) for path in paths], **options}
    context = Context(hostname="n1", conclude=conclude if concluding else None)
    made = build(Options.model_validate(said), context)
    assert isinstance(made, TrainingCollector)
    return made


def readings(look: Look, job: str) -> dict[str, Reading]:
    """Signal -> reading of one job."""
    return {item.signal: item.reading for item in look.samples if item.resource.id == job}


def rows(*steps: int, **fields: float) -> str:
    """JSON lines of a falling loss."""
    return "".join(json.dumps({"step": n, "loss": 3 * n**-0.3, **fields}) + "\n" for n in steps)


def lost(start: int, end: int) -> str:
    """JSON lines of a loss that is no number, from a step up to and without another."""
    return "".join(f'{{"step": {n}, "loss": NaN}}\n' for n in range(start, end))


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
    return path


def test_the_newest_value_of_each_signal(tmp_path: Path) -> None:
    """A look tells the newest record, and the job and labels that the folders name."""
    put(tmp_path / "vision/vit/train.jsonl", rows(*range(1, 21), lr=1e-3, max_steps=100))

    look = collector(tmp_path, job=f"{tmp_path}/{{team}}/{{job}}").look(AT)

    assert {item.resource.kind for item in look.samples} == {"job"}
    assert look.samples[0].labels == {
        "team": "vision",
        "job": "vit",
        "host": "n1",
        "run_dir": str(tmp_path / "vision" / "vit"),
    }
    assert {item.time for item in look.samples} == {AT}
    assert readings(look, "vit") == {
        "train.loss": pytest.approx(3 * 20**-0.3),
        "train.lr": 1e-3,
        "train.step": 20.0,
        "train.steps_planned": 100.0,
        "train.resumes": 0.0,
        "train.redone_steps": 0.0,
        "train.non_finite_share": 0.0,
    }


def test_a_log_is_followed(tmp_path: Path) -> None:
    """What is added between looks is read, a half-written line waits, what stands still is repeated."""
    path = put(tmp_path / "a/train.jsonl", rows(1, 2))
    looker = collector(tmp_path)
    steps = []

    for added in ("", rows(3), '{"step": 4, "lo', 'ss": 1.0}\n', ""):
        put(path, added)
        steps.append(readings(looker.look(AT), "a")["train.step"])

    assert steps == [2.0, 3.0, 3.0, 4.0, 4.0]


def test_a_resume_is_counted(tmp_path: Path) -> None:
    """Steps that go back are a resume, and the steps between are done a second time."""
    put(tmp_path / "a/train.jsonl", rows(10, 20, 30, 20, 30, 40))

    seen = readings(collector(tmp_path).look(AT), "a")

    assert (seen["train.resumes"], seen["train.redone_steps"], seen["train.step"]) == (1.0, 10.0, 40.0)


def test_a_rotated_log_goes_on(tmp_path: Path) -> None:
    """A log that is moved away and begun anew is read to its end, and each record counts once."""
    path = put(tmp_path / "a/train.jsonl", rows(1, 2, 3))
    looker = collector(tmp_path, concluding=True)
    looker.look(AT)

    put(path, rows(4))
    path.rename(tmp_path / "a/train.jsonl.1")
    put(path, rows(5))
    looker.look(AT)

    run = looker._followers[0].tails[str(path)].logs()[0]
    assert list(run.curves["train.loss"].steps) == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_share_of_records_that_are_not_finite(tmp_path: Path) -> None:
    """Of the records since the look before the share that is no number is told; nothing new is 0."""
    path = put(tmp_path / "a/train.jsonl", rows(1, 2))
    looker = collector(tmp_path)
    shares = []

    for added in ("", '{"step": 3, "loss": NaN}\n' + rows(4), ""):
        put(path, added)
        shares.append(readings(looker.look(AT), "a")["train.non_finite_share"])

    assert shares == [0.0, 0.5, 0.0]


def test_a_loss_that_is_no_number_stays_one(tmp_path: Path) -> None:
    """A curve's NaN is a reading, not a bad one."""
    put(tmp_path / "a/train.jsonl", rows(1) + '{"step": 2, "loss": NaN, "lr": NaN}\n')

    seen = readings(collector(tmp_path).look(AT), "a")

    assert isinstance(seen["train.loss"], float)
    assert math.isnan(seen["train.loss"])
    assert "train.lr" not in seen


def test_the_verdict_is_on_every_record(tmp_path: Path) -> None:
    """One look at a long log gives the verdict on all of it, not on its newest record."""
    put(tmp_path / "a/train.jsonl", rows(*range(1, 101)) + lost(101, 106))

    seen = readings(collector(tmp_path, concluding=True).look(AT), "a")

    assert seen["loss.verdict"] == "non-finite"
    assert "loss.verdict" not in readings(collector(tmp_path).look(AT), "a")


def test_what_is_over_is_not_hung(tmp_path: Path) -> None:
    """A log that nobody has open any more is judged as it ended."""
    lines = [{"step": n, "loss": 3 * n**-0.3, "time": AT - 9000 + n} for n in range(1, 101)]
    put(tmp_path / "a/train.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    seen = readings(collector(tmp_path, concluding=True).look(AT), "a")

    assert seen["loss.verdict"] == "healthy"


def test_a_writer_names_the_job_and_can_hang(tmp_path: Path) -> None:
    """The process that has a log open to write names its job, and a silence of a living run is a hang."""
    path = tmp_path / "train.jsonl"
    program = (
        "import json, sys, time\n"
        "log = open(sys.argv[1], 'w')\n"
        "for n in range(1, 101):\n"
        "    print(json.dumps({'step': n, 'loss': 3 * n**-.3, 'time': float(sys.argv[2]) + n}), file=log)\n"
        "log.flush()\nprint(flush=True)\ntime.sleep(60)\n"
    )
    command = [sys.executable, "-c", program, str(path), str(AT - 9000)]
    environment = os.environ | {"STOPLOSS_JOB": "run-7", "STOPLOSS_TEAM": "vision"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            look = collector(tmp_path, concluding=True).look(AT)
        finally:
            process.kill()

    assert readings(look, "run-7")["loss.verdict"] == "hung"
    assert look.samples[0].labels is not None
    assert look.samples[0].labels["team"] == "vision"


def test_several_logs_of_one_job_are_one(tmp_path: Path) -> None:
    """Training and evaluation in two files are one job; of one signal in two formats the newest counts."""
    put(tmp_path / "a/train.jsonl", rows(10, 20))
    put(tmp_path / "a/eval.csv", "step,eval_loss,train_loss\n10,0.9,9.9\n20,0.8,9.9\n")
    os.utime(tmp_path / "a/eval.csv", (AT - 60, AT - 60))

    seen = readings(collector(tmp_path).look(AT), "a")

    assert seen["eval.loss"] == 0.8
    assert seen["train.loss"] == pytest.approx(3 * 20**-0.3)


def test_the_folder_in_which_a_run_is_asked(tmp_path: Path) -> None:
    """It is that of the log, also of what `stoploss.track` writes below it; of two it is unreadable."""
    put(tmp_path / "a/train.jsonl", rows(1, 2))
    put(tmp_path / "a/.stoploss/track.jsonl", rows(1, 2))
    put(tmp_path / "b/one/train.jsonl", rows(1, 2))
    put(tmp_path / "b/two/train.jsonl", rows(1, 2))

    samples = collector(tmp_path, job=f"{tmp_path}/{{job}}").look(AT).samples

    assert {item.resource.id: (item.labels or {}).get("run_dir") for item in samples} == {
        "a": str(tmp_path / "a"),
        "b": UNREADABLE,
    }


def test_the_last_run_of_a_file_counts(tmp_path: Path) -> None:
    """Of a file that holds two runs the newer one is the job's."""
    lines = ["{'loss': 1.0, 'epoch': 0.5}", "{'train_runtime': 9.0, 'train_loss': 1.0, 'epoch': 1.0}"]
    put(tmp_path / "a/out.log", "\n".join([*lines, "{'loss': 7.0, 'epoch': 0.5}", ""]))

    assert readings(collector(tmp_path).look(AT), "a")["train.loss"] == 7.0


def test_an_old_log_is_over(tmp_path: Path) -> None:
    """A log that was not written for longer than max-age is told nothing of."""
    path = put(tmp_path / "a/train.jsonl", rows(1, 2))
    os.utime(path, (AT - 7200, AT - 7200))

    assert collector(tmp_path, **{"max-age": "1h"}).look(AT).samples == ()
    assert collector(tmp_path, **{"max-age": "3h"}).look(AT).samples


def test_an_unreadable_log_is_a_bad_reading(tmp_path: Path, open_folder: Path) -> None:
    """A log that may not be opened makes bad readings of its job alone; a file that is no log is nothing."""
    put(open_folder / "a/train.jsonl", rows(1, 2))
    put(open_folder / "c/notes.txt", "nothing of a log\n")
    shut = put(open_folder / "b/train.jsonl", rows(1, 2))
    shut.chmod(0o600 if os.geteuid() == 0 else 0)

    with unprivileged():
        look = collector(open_folder).look(AT)

    assert readings(look, "b")["train.loss"] == Bad("permission denied")
    assert readings(look, "a")["train.step"] == 2.0
    assert readings(look, "c") == {}


def test_a_path_that_is_a_file(tmp_path: Path) -> None:
    """A single file may be named; its job is called like it."""
    path = put(tmp_path / "bert.jsonl", rows(1, 2))

    assert readings(collector(path).look(AT), "bert")["train.step"] == 2.0


def test_nothing_there_is_a_failure(tmp_path: Path) -> None:
    """Where none of the paths exists the look fails with the reason; one that does is enough."""
    with pytest.raises(CollectorError, match=r"no such file or directory.*gone"):
        collector(tmp_path / "gone").look(AT)

    look = collector(tmp_path / "gone", tmp_path).look(AT)
    assert any("gone" in note for note in look.notes)


def test_a_path_that_goes_away(tmp_path: Path) -> None:
    """The jobs of a path that cannot be read any more are bad readings, not silence."""
    put(tmp_path / "one/a/train.jsonl", rows(1, 2))
    put(tmp_path / "two/b/train.jsonl", rows(1, 2))
    looker = collector(tmp_path / "one", tmp_path / "two")
    looker.look(AT)

    (tmp_path / "one").rename(tmp_path / "gone")
    look = looker.look(AT)

    assert readings(look, "a")["train.loss"] == Bad("no such file or directory")
    assert readings(look, "b")["train.step"] == 2.0


def test_a_log_that_vanishes_is_not_told(tmp_path: Path) -> None:
    """A log that was deleted is nothing of its job any more."""
    path = put(tmp_path / "a/train.jsonl", rows(1, 2))
    looker = collector(tmp_path)
    looker.look(AT)

    path.unlink()

    assert looker.look(AT).samples == ()


def test_patterns_of_ones_own(tmp_path: Path) -> None:
    """A pattern in the options reads a text that no format fits; one that cannot be used is refused."""
    put(tmp_path / "a/own.txt", "it#7 >> cost is 1.25 units\n")

    look = collector(tmp_path, patterns=[r"it#(?P<step>\d+) >> cost is (?P<loss>\S+)"]).look(AT)

    assert readings(look, "a")["train.loss"] == 1.25
    with pytest.raises(ValidationError, match="no signal is named"):
        collector(tmp_path, patterns=["(?P<nonsense>x)"])


def test_paths_begin_at_the_root() -> None:
    """A path that depends on where the program was started is refused."""
    with pytest.raises(ValidationError, match="paths"):
        collector("runs")


def test_a_policy_on_a_live_log(scene: Scene, tmp_path: Path) -> None:
    """An audit of this machine fires on the verdict of a log after one look."""
    put(tmp_path / "runs/a/train.jsonl", rows(*range(1, 60)) + lost(60, 65))
    policies = scene.write(
        "p.yaml",
        "version: 1\n"
        f"collectors: {{training: {{paths: [{tmp_path}/runs]}}}}\n"
        "policies:\n  - {name: broken, each: job, when: ['loss.verdict == \"non-finite\"']}\n",
    )

    result = scene.json("audit", policies)

    assert [item["resource"]["id"] for item in result["findings"]] == ["a"]
    assert UNREADABLE not in result["findings"][0]["resource"]["labels"].values()
