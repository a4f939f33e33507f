"""`stoploss diagnose`: real logs, exit statuses, and whatever else a path may hold."""

from __future__ import annotations

import json
import math
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from support.curves import REAL
from support.scenes import Scene
from support.unprivileged import unprivileged

HEALTHY = "".join(json.dumps({"step": n, "loss": 3 * n**-0.3}) + "\n" for n in range(1, 101))
BROKEN = HEALTHY + "".join(f'{{"step": {n}, "loss": NaN}}\n' for n in range(101, 110))

RIGHT: dict[str, set[str]] = {
    "hf/whisper_overfit.trainer_state": {"overfit"},
    "hf/steady_train_only.trainer_state": {"healthy"},
    "hf/labels_all_masked.trainer_state": {"non-finite"},
    "hf/loss_to_zero_stdout": {"non-finite"},
    "hf/gradnorm_nan_loss_finite": {"non-finite"},
    "hf/lr_stays_zero": {"non-finite"},
    "hf/healthy_then_zero_restart#1": {"healthy"},
    "hf/healthy_then_zero_restart#2": {"non-finite"},
    "hf/grad_blowup_inf_nan": {"non-finite"},
    "jsonl/slm125m.metrics": {"healthy"},
    "nanogpt/scaleup1b_steps0-9000": {"healthy"},
    "nanogpt/adamw_llmc": {"healthy"},
    "megatron/bloom176b_spike_recovers": {"transient-spike"},
    "megatron/bloom176b_eval_hang": {"hung"},
    "megatron/tr8-104B_glitch2": {"diverged"},
    "megatron/tr8-104B_exp11_spike": {"diverged", "transient-spike"},
    "megatron/tr1-13B_huge_spike": {"transient-spike"},
    "mllog/llama2_70b_lora_success.mllog": {"converged"},
    "mllog/gpt3_512gpu_success.mllog": {"converged"},
    "mllog/stable_diffusion_4xH100_success.mllog": {"healthy"},
}

CONFIG = """
version: 1
prices: {gpu-hour: {L40S: $1/GPU-hour}}
runs:
  - {match: "*bert*", gpu: L40S, budget: 5.69 GPU-hours}
  - {match: "*llama2*", gpus: 8, budget: 3.94 GPU-hours}
"""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All real logs as one JSON, by name of the run."""
    if not REAL.exists():
        pytest.skip(f"real training logs are not on this machine: {REAL}")
    import contextlib
    import io

    from stoploss.cli.main import run

    config = tmp_path_factory.mktemp("config") / "runs.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = run(["diagnose", str(REAL), "--config", str(config), "--format", "json"])
    result = json.loads(out.getvalue())
    return {"status": status, **{item["run"]: item for item in result["runs"]}}


@pytest.mark.real
def test_every_real_log_gets_its_verdict(real: dict[str, Any]) -> None:
    """The verdict on each real log is what a reader of it would say."""
    wrong = {
        name: real[name]["verdict"] for name, right in RIGHT.items() if real[name]["verdict"] not in right
    }

    assert wrong == {}
    assert real["status"] == 1


@pytest.mark.real
def test_runs_that_missed_their_target_are_not_converged(real: dict[str, Any]) -> None:
    """A run that ended just short of its target is not converged, and its evidence says by how much."""
    bert, resnet = (real[f"mllog/{name}_plateau_aborted.mllog"] for name in ("bert_4xL40S", "resnet_64gpu"))

    assert {bert["verdict"], resnet["verdict"]} & {"converged"} == set()
    assert "missed by 0.0005656" in bert["evidence"][-1]
    assert "missed by 0.00018" in resnet["evidence"][-1]


@pytest.mark.real
def test_G_46_overfit_keeps_the_best_checkpoint(real: dict[str, Any]) -> None:
    """An overfit run is wasted from its best evaluation on, and may stop once that checkpoint is kept."""
    run = real["hf/whisper_overfit.trainer_state"]

    assert (run["since_step"], run["wasted_share"], run["cause"]) == (1000, 0.8, "model")
    assert run["best"] == {"step": 1000, "value": pytest.approx(0.321, abs=1e-4)}
    assert run["advice"][0]["change"] == "stop, once the checkpoint of step 1000 is kept safe"


@pytest.mark.real
def test_G_58_a_loss_by_another_name_converges_downwards(real: dict[str, Any]) -> None:
    """A metric that is declared to be better when lower has converged below its target, whatever its name."""
    run = real["mllog/llama2_70b_lora_success.mllog"]

    assert run["verdict"] == "converged"
    assert run["last"]["value"] < 0.925


@pytest.mark.real
def test_G_63_a_budget_line_with_its_projection_and_the_miss(real: dict[str, Any]) -> None:
    """From 80 % of a budget on a run that has not converged gets an alert with a projection and the miss."""
    budget = real["mllog/bert_4xL40S_plateau_aborted.mllog"]["budget"]

    assert budget["alert"] is True
    assert budget["share"] == pytest.approx(1.0, abs=0.001)
    assert "at 80%" in budget["line"]
    assert "at that pace it would be met at" in budget["line"]
    assert budget["line"].endswith("missed by .0006")


@pytest.mark.real
def test_G_64_a_converged_run_raises_no_budget_alert(real: dict[str, Any]) -> None:
    """A run whose target is met gets no alert, but the advice to stop and keep the best checkpoint."""
    run = real["mllog/llama2_70b_lora_success.mllog"]

    assert run["budget"]["alert"] is False
    assert run["advice"][0]["id"] == "stop-and-keep-the-best"


@pytest.mark.real
def test_G_65_a_cost_counter_that_resets_adds_up(real: dict[str, Any]) -> None:
    """Money that a log counts anew in each session is added up over all of them."""
    cost = real["jsonl/slm125m.metrics"]["cost"]

    assert round(cost["amount"], 2) == 15.31
    assert cost["currency"] == "USD"


@pytest.mark.real
@pytest.mark.parametrize(
    ("run", "gpu_hours"),
    [
        ("bert_4xL40S_plateau_aborted", 5.69),
        ("llama2_70b_lora_success", 3.94),
        ("gpt3_512gpu_success", 447.7),
    ],
)
def test_gpu_hours_of_real_runs(real: dict[str, Any], run: str, gpu_hours: float) -> None:
    """GPU-hours are the GPUs, logged or declared, times the time from start to end."""
    assert real[f"mllog/{run}.mllog"]["cost"]["gpu_hours"] == pytest.approx(gpu_hours, abs=0.01)


@pytest.mark.real
def test_a_declared_price_turns_gpu_hours_into_money(real: dict[str, Any]) -> None:
    """A run whose GPU model has a price costs GPU-hours times that price."""
    assert real["mllog/bert_4xL40S_plateau_aborted.mllog"]["cost"]["amount"] == pytest.approx(5.69, abs=0.01)
    assert real["mllog/resnet_64gpu_plateau_aborted.mllog"]["cost"]["amount"] is None


def test_the_contract(scene: Scene) -> None:
    """Every key of the contract stands in the JSON of each run, and the JSON is strict."""
    scene.write("a.jsonl", BROKEN)

    text = scene.run("diagnose", str(scene.folder), "--format", "json")
    result = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))

    keys = (
        "run source format verdict since_step points best last sudden synchronous persistent evidence cause"
    )
    keys += " advice also wasted_share cost"
    assert result["version"] == 1
    assert set(keys.split()) <= set(result["runs"][0])
    assert result["runs"][0]["last"] == {"step": 109, "value": None, "non_finite": "nan"}


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({"a.jsonl": HEALTHY}, 0),
        ({"a.jsonl": HEALTHY, "b.jsonl": BROKEN}, 1),
        ({"a.jsonl": ""}, 2),
    ],
)
def test_exit_status(scene: Scene, files: dict[str, str], status: int) -> None:
    """0 where all is well, 1 with an anomaly, 2 where nothing could be read."""
    scene.run("diagnose", *(scene.write(name, text) for name, text in files.items()))

    assert scene.status == status


def test_some_unreadable_is_4(scene: Scene) -> None:
    """Where one path could be read and another not the status is 4, and a line says why."""
    out = scene.run("diagnose", scene.write("a.jsonl", BROKEN), str(scene.folder / "gone.jsonl"))

    assert scene.status == 4
    assert "gone.jsonl: no such file or folder" in " ".join(out.split())


def test_one_path_twice_is_one_run(scene: Scene) -> None:
    """A log that is named twice is judged and counted once."""
    path = scene.write("a.jsonl", HEALTHY)

    assert len(scene.json("diagnose", path, path)["runs"]) == 1


def test_table_has_one_line_a_run_in_80_columns(scene: Scene) -> None:
    """The table has a line per run, anomalies first and explained, and fits a terminal."""
    scene.write("good.jsonl", HEALTHY)
    scene.write("bad.jsonl", BROKEN)

    lines = scene.run("diagnose", str(scene.folder)).splitlines()

    rows = [line for line in lines if line.startswith(("healthy", "non-finite"))]
    assert [row.split()[0] for row in rows] == ["non-finite", "healthy"]
    assert rows[0].split()[-1] == "bad"
    assert any("cause: undecided between strategy and data" in line for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("suffix", ["txt", "json", "html"])
def test_out_picks_the_format(scene: Scene, suffix: str) -> None:
    """The suffix of --out picks the format, and the table stays on stdout."""
    path = scene.write("a.jsonl", HEALTHY)
    out = scene.folder / f"report.{suffix}"

    table = scene.run("diagnose", path, "--out", str(out))

    assert table.startswith("stoploss diagnose")
    begins = {"txt": "stoploss", "json": "{", "html": "<!DOCTYPE"}
    assert out.read_text(encoding="utf-8").startswith(begins[suffix])


def test_an_unknown_suffix_is_refused_first(scene: Scene) -> None:
    """A suffix without a format is told before anything is read."""
    scene.run("diagnose", "gone", "--out", "report.pdf")

    assert scene.status == 2
    assert ".html" in scene.stderr


def test_mistakes_of_the_config_are_all_told(scene: Scene) -> None:
    """Mistakes in the file of declarations are told with their places, and nothing is judged."""
    config = scene.write("c.yaml", "version: 1\nruns:\n  - {mach: x, gpus: many}\npatterns: ['(']\n")

    out = scene.run("diagnose", scene.write("a.jsonl", HEALTHY), "--config", config)

    assert (scene.status, out) == (2, "")
    assert "c.yaml:3:6" in scene.stderr
    assert "many" in scene.stderr
    assert "regular expression" in scene.stderr


def test_a_pattern_reads_text_of_ones_own(scene: Scene) -> None:
    """A declared pattern makes a log of text that no format fits."""
    lines = "".join(f"it#{n} >> cost is {3 * n**-0.3:.4f} units\n" for n in range(1, 60))
    config = scene.write("c.yaml", "version: 1\npatterns: ['it#(?P<step>\\d+) >> cost is (?P<loss>\\S+)']\n")

    result = scene.json("diagnose", scene.write("own.txt", lines), "--config", config)

    assert (result["runs"][0]["verdict"], result["runs"][0]["points"]) == ("healthy", 59)


def test_a_declared_target_decides(scene: Scene) -> None:
    """A target that is declared for a run makes it converged."""
    rows = "".join(json.dumps({"step": n, "eval_f1": 1 - 1 / n}) + "\n" for n in range(1, 12))
    config = scene.write("c.yaml", "version: 1\nruns: [{match: 'a*', target: 0.9, better: higher}]\n")

    result = scene.json("diagnose", scene.write("a.jsonl", rows), "--config", config)

    assert result["runs"][0]["verdict"] == "converged"


def test_odd_paths_each_get_a_line(scene: Scene) -> None:
    """Links in circles, pipes, folders of rubbish and odd names each get a clear line, never a traceback."""
    loop, pipe, rubbish = (scene.folder / name for name in ("loop", "pipe", "rub\x1bbish"))
    loop.symlink_to(loop)
    os.mkfifo(pipe)
    rubbish.mkdir()
    (rubbish / "deep").symlink_to(rubbish)
    (rubbish / "x.bin").write_bytes(bytes(range(256)) * 10)

    out = scene.run("diagnose", str(loop), str(pipe), str(rubbish))

    assert scene.status == 2
    assert "internal error" not in scene.stderr
    assert "\x1b" not in out
    told = " ".join(out.split())
    assert told.count("no file") + told.count("no such file") + told.count("no training log") == 3


@pytest.mark.parametrize("seed", range(12))
def test_random_bytes_are_never_an_internal_error(scene: Scene, seed: int) -> None:
    """Random bytes, alone or over a good log, end in a status of the list."""
    dice = random.Random(seed)
    data = bytearray(HEALTHY.encode() if seed % 2 else b"")
    for _ in range(40):
        at = dice.randrange(len(data) + 1)
        data[at : at + dice.randrange(4)] = dice.randbytes(dice.randrange(60))
    (scene.folder / "x.log").write_bytes(bytes(data[: dice.randrange(1, len(data) + 1)]))

    for form in ("table", "json", "html"):
        scene.run("diagnose", str(scene.folder / "x.log"), "--format", form)
        assert scene.status in (0, 1, 2, 4), scene.stderr


def test_folder_without_rights(scene: Scene, open_folder: Path) -> None:
    """A folder that may not be read is told by name; what lies beside it is judged."""
    (open_folder / "a.jsonl").write_text(HEALTHY, encoding="utf-8")
    shut = open_folder / "shut"
    shut.mkdir()
    shut.chmod(0o700 if os.geteuid() == 0 else 0)

    with unprivileged():
        out = scene.run("diagnose", str(open_folder))

    assert scene.status == 4
    assert "shut: permission denied" in " ".join(out.split())


@pytest.mark.parametrize("open_", [True, False])
def test_only_a_log_that_is_open_can_hang(scene: Scene, open_: bool) -> None:
    """A log whose last step is long ago is hung while a process has it open, and has ended otherwise."""
    start = time.time() - 9000
    rows = [{"step": n, "loss": 3 * n**-0.3, "time": start + n} for n in range(1, 101)]
    path = scene.folder / "a.jsonl"

    with path.open("w", encoding="utf-8") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
        file.flush()
        if not open_:
            file.close()
        result = scene.json("diagnose", str(path))

    assert result["runs"][0]["verdict"] == ("hung" if open_ else "healthy")


def test_nothing_infinite_in_numbers(scene: Scene) -> None:
    """Losses that are infinite from the start are told as such, and nothing breaks."""
    rows = "".join(f'{{"step": {n}, "loss": {"Infinity" if n % 2 else 1e308}}}\n' for n in range(1, 40))

    result = scene.json("diagnose", scene.write("a.jsonl", rows))

    assert result["runs"][0]["verdict"] != "healthy"
    assert math.isfinite(result["runs"][0]["points"])
