"""MLPerf logs."""

from __future__ import annotations

import json

import pytest


def event(key: str, value: object = None, at: int = 0, rank: str = "", **metadata: object) -> str:
    """One line, `at` seconds after a fixed instant."""
    body = {"time_ms": 1_700_000_000_000 + at * 1000, "key": key, "value": value, "metadata": metadata}
    return f"{rank}:::MLLOG {json.dumps(body)}\n"


RUN = (
    event("submission_benchmark", "llama2_70b_lora")
    + event("global_batch_size", 8)
    + event("run_start", at=10)
    + event("tracked_stats", {"throughput": 2.0, "loss": 1.5}, at=20, samples_count=80)
    + event("eval_accuracy", 0.94, at=30, samples_count=160)
    + event("run_stop", at=40, status="success")
)


def test_a_run_with_its_target_and_times(read_text) -> None:
    """Target and direction come from the benchmark, times and status from the run, steps from samples."""
    (log,) = read_text(RUN)

    assert log.facts == {
        "better": "lower",
        "target": 0.925,
        "started": 1_700_000_010,
        "ended": 1_700_000_040,
        "status": "success",
    }
    assert list(log.curves["eval.metric"].steps) == [20]
    assert (log.curves["train.loss"].steps[0], log.curves["train.loss"].times[0]) == (10, 1_700_000_020)
    assert list(log.curves["train.samples_per_second"].values) == [2.0]


def test_the_direction_of_an_unknown_benchmark_is_not_guessed(read_text) -> None:
    """A metric named accuracy says nothing about its direction; a declared target is kept."""
    (log,) = read_text(RUN.replace("llama2_70b_lora", "house_model") + event("target_accuracy", 0.9))

    assert "better" not in log.facts
    assert log.facts["target"] == 0.9


def test_a_declared_target_beats_the_rules(read_text) -> None:
    """What a log declares counts rather than what the rules of its benchmark say."""
    (log,) = read_text(event("target_accuracy", 0.8) + RUN)

    assert log.facts["target"] == 0.8


def test_lines_of_other_ranks_are_not_counted_twice(read_text) -> None:
    """Where all ranks log the same evaluation, that of the rank which began the run counts."""
    lines = [event("run_start", rank="0: ")]
    lines += [event("eval_accuracy", 0.5, rank=f"{rank}: ", step_num=10) for rank in range(4)]
    (log,) = read_text("".join(lines))

    assert list(log.curves["eval.metric"].values) == [0.5]


def test_what_begins_after_a_stop_is_another_run(read_text) -> None:
    """Two runs in one file are two runs, each with its own facts."""
    first, second = read_text(RUN + RUN.replace("0.94", "0.93").replace("success", "aborted"))

    assert (first.facts["status"], second.facts["status"]) == ("success", "aborted")
    assert list(second.curves["eval.metric"].values) == [0.93]


def test_damaged_lines_are_skipped(read_text) -> None:
    """A line that is cut off is noted, and the others are read."""
    (log,) = read_text(RUN + ":::MLLOG {not json\nother text\n")

    assert list(log.curves["eval.metric"].values) == [0.94]
    assert "a damaged MLLOG line was skipped" in log.notes


def test_G_58_a_metric_named_accuracy_that_is_a_loss(real) -> None:
    """In a real log the metric named accuracy is declared lower-is-better by its benchmark."""
    log = real("mllog/llama2_70b_lora_success.mllog.txt")

    assert (log.facts["better"], log.facts["target"]) == ("lower", 0.925)
    assert [round(value, 4) for value in log.curves["eval.metric"].values][::4] == [0.9376, 0.9233]
    assert round(float(log.facts["ended"]) - float(log.facts["started"])) == 1773


@pytest.mark.parametrize(
    ("name", "gpus", "better", "last"),
    [
        ("bert_4xL40S_plateau_aborted", 4, "higher", 0.7194),
        ("resnet_64gpu_plateau_aborted", 64, "higher", 0.7588),
        ("gpt3_512gpu_success", 512, "lower", 2.6888),
    ],
)
def test_real_runs_with_their_gpus(real, name: str, gpus: int, better: str, last: float) -> None:
    """GPUs come from the batch per device or the kind of machine, and the last evaluation is the log's."""
    log = real(f"mllog/{name}.mllog.txt")

    assert (log.facts["gpus"], log.facts["better"]) == (gpus, better)
    assert round(log.curves["eval.metric"].values[-1], 4) == last
    assert log.facts["status"] == ("aborted" if "aborted" in name else "success")


def test_a_real_run_with_rank_prefixes_and_two_metrics(real) -> None:
    """Of two metrics with opposite directions one is read, and neither alone is the target."""
    log = real("mllog/stable_diffusion_4xH100_success.mllog.txt")

    assert len(log.curves["train.loss"].values) == 120
    assert len(log.curves["eval.metric"].values) == 5
    assert "target" not in log.facts
