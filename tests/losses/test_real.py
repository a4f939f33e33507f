"""The verdicts on real training logs, whole and as a daemon sees them while they grow."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from support.curves import curve, part, prefixes, real

from stoploss.engine.losses.incremental import LiveRun, judge
from stoploss.engine.model import TrainingLog

pytestmark = pytest.mark.real

ALARMS = {"flat", "diverged", "overfit", "degrading", "oscillating", "hung", "non-finite"}

VERDICTS = [
    ("hf/whisper_overfit.trainer_state.json", 0, {"overfit"}),
    ("hf/steady_train_only.trainer_state.json", 0, {"healthy"}),
    ("hf/labels_all_masked.trainer_state.json", 0, {"non-finite"}),
    ("hf/loss_to_zero_stdout.log", 0, {"non-finite"}),
    ("hf/gradnorm_nan_loss_finite.log", 0, {"non-finite"}),
    ("hf/lr_stays_zero.log", 0, {"non-finite"}),
    ("hf/healthy_then_zero_restart.log", 0, {"healthy"}),
    ("hf/healthy_then_zero_restart.log", 1, {"non-finite"}),
    ("hf/grad_blowup_inf_nan.log", 0, {"non-finite"}),
    ("jsonl/slm125m.metrics.jsonl", 0, {"healthy"}),
    ("nanogpt/scaleup1b_steps0-9000.log", 0, {"healthy"}),
    ("nanogpt/adamw_llmc.log", 0, {"healthy"}),
    ("megatron/bloom176b_spike_recovers.log", 0, {"transient-spike"}),
    ("megatron/bloom176b_eval_hang.log", 0, {"hung"}),
    ("megatron/tr8-104B_glitch2.log", 0, {"diverged"}),
    ("megatron/tr8-104B_exp11_spike.log", 0, {"diverged", "transient-spike"}),
    ("megatron/tr1-13B_huge_spike.log", 0, {"transient-spike"}),
    ("mllog/llama2_70b_lora_success.mllog.txt", 0, {"converged"}),
    ("mllog/gpt3_512gpu_success.mllog.txt", 0, {"converged"}),
    ("mllog/stable_diffusion_4xH100_success.mllog.txt", 0, {"healthy"}),
]

HEALTHY = [
    ("hf/steady_train_only.trainer_state.json", 0),
    ("hf/healthy_then_zero_restart.log", 0),
    ("jsonl/slm125m.metrics.jsonl", 0),
    ("nanogpt/scaleup1b_steps0-9000.log", 0),
    ("nanogpt/adamw_llmc.log", 0),
    ("mllog/stable_diffusion_4xH100_success.mllog.txt", 0),
    ("mllog/llama2_70b_lora_success.mllog.txt", 0),
    ("mllog/gpt3_512gpu_success.mllog.txt", 0),
    ("mllog/bert_4xL40S_plateau_aborted.mllog.txt", 0),
    ("mllog/resnet_64gpu_plateau_aborted.mllog.txt", 0),
]


@pytest.mark.parametrize(("name", "run", "right"), VERDICTS)
def test_each_real_log_gets_its_verdict(name: str, run: int, right: set[str]) -> None:
    """The verdict on a whole real log is what a reader of it would say, with evidence."""
    verdict = judge(real(name)[run])

    assert verdict.verdict in right
    assert verdict.evidence


@pytest.mark.parametrize(("name", "run"), HEALTHY)
def test_no_false_alarm_on_any_prefix_of_a_healthy_run(name: str, run: int) -> None:
    """At twenty points of its life no healthy run raises an alarm, a hang included."""
    whole = real(name)[run]
    seen = Counter(judge(log, now=_next_time(whole, log)).verdict for _, log in prefixes(whole))

    assert sum(seen.values()) == 20
    assert not ALARMS & seen.keys()


def _next_time(whole: TrainingLog, cut: TrainingLog) -> float | None:
    """When the next record comes: the longest that a daemon can have waited."""
    for name, kept in cut.curves.items():
        times = whole.curves[name].times
        if name in ("train.loss", "eval.metric") and len(kept.times) < len(times):
            return None if times[len(kept.times)] != times[len(kept.times)] else times[len(kept.times)]
    return None


@pytest.mark.parametrize("name", ["bert_4xL40S_plateau_aborted", "resnet_64gpu_plateau_aborted"])
def test_a_missed_target_is_not_converged(name: str) -> None:
    """A run that ends just short of its target is told the miss, and is not converged."""
    verdict = judge(real(f"mllog/{name}.mllog.txt")[0])

    assert verdict.verdict != "converged"
    assert any("missed by 0.0005656" in line or "missed by 0.00018" in line for line in verdict.evidence)


def test_G_46_overfit_wastes_what_follows_the_best_step() -> None:
    """Training falls, evaluations rise from the first on: overfit since step 1000, 80 % wasted."""
    verdict = judge(real("hf/whisper_overfit.trainer_state.json")[0])

    assert (verdict.verdict, verdict.since_step) == ("overfit", 1000)
    assert verdict.wasted_share == pytest.approx(0.8)
    assert verdict.best is not None
    assert (verdict.best.step, round(verdict.best.value, 3)) == (1000, 0.321)
    assert verdict.numbers.evals_since_best == 4


def test_G_39_a_spike_that_comes_back_is_transient() -> None:
    """A spike from 2.2 to 5.1 that is back in 30 steps is told with the lead of the gradient norm."""
    verdict = judge(real("megatron/bloom176b_spike_recovers.log")[0])

    assert verdict.verdict == "transient-spike"
    assert verdict.grad_norm_lead == 4
    [spike] = verdict.also.spikes
    assert (spike.peak, spike.open) == (pytest.approx(5.098, abs=1e-3), False)
    assert verdict.wasted_share == 0


def test_an_excerpt_that_ends_in_its_spike_says_so() -> None:
    """Three records that end in a spike do not tell whether it comes back, and the evidence says it."""
    verdict = judge(real("megatron/tr8-104B_exp11_spike.log")[0])

    assert any("whether it comes back is not known" in line for line in verdict.evidence)


def test_a_constant_gradient_norm_is_not_measured() -> None:
    """A gradient norm of 0.000 in every record gives no lead and is called not measured."""
    verdict = judge(real("megatron/tr1-13B_huge_spike.log")[0])

    assert verdict.grad_norm_lead is None
    assert any("not measured" in note for note in verdict.also.notes)


def test_G_41_G_42_outliers_of_one_record_are_no_alarm() -> None:
    """A healthy noisy run with more than forty outliers of one record is healthy; they are counted."""
    verdict = judge(real("nanogpt/scaleup1b_steps0-9000.log")[0])

    assert verdict.verdict == "healthy"
    assert 35 <= verdict.also.spike_count <= 55
    assert verdict.numbers.trend == "falling"


def test_G_60_steps_that_go_back_replace_what_they_redo() -> None:
    """A log of several sessions is one curve: later records win, and resumes are counted, not alarmed."""
    verdict = judge(real("jsonl/slm125m.metrics.jsonl")[0])

    assert verdict.verdict == "healthy"
    assert (verdict.points, verdict.also.resumes, verdict.also.redone_records) == (388, 4, 10)


def test_G_58_the_declared_direction_counts_not_the_name() -> None:
    """A metric called accuracy that is declared lower-is-better converges when it falls to its target."""
    verdict = judge(real("mllog/llama2_70b_lora_success.mllog.txt")[0])

    assert verdict.verdict == "converged"
    assert verdict.best == verdict.last


def test_G_30_a_heartbeat_without_steps_is_a_hang() -> None:
    """Signs of life for two hours after the last step, where a step takes 111 s, are a hang."""
    verdict = judge(real("megatron/bloom176b_eval_hang.log")[0])

    assert (verdict.verdict, verdict.since_step) == ("hung", 45_000)
    assert "555 s are allowed" in verdict.evidence[0]


SPIKES = {
    "bloom": ("megatron/bloom176b_spike_recovers.log", 2, 9),
    "tr1": ("megatron/tr1-13B_huge_spike.log", 3, 8),
    "glitch": ("megatron/tr8-104B_glitch2.log", 2, 5),
    "exp11": ("megatron/tr8-104B_exp11_spike.log", 2, 3),
}


@pytest.mark.parametrize("spike", SPIKES)
@pytest.mark.parametrize(
    "host",
    [
        "jsonl/slm125m.metrics.jsonl",
        "nanogpt/adamw_llmc.log",
        "nanogpt/scaleup1b_steps0-9000.log",
        "mllog/stable_diffusion_4xH100_success.mllog.txt",
    ],
)
def test_a_real_spike_on_a_healthy_run_is_found(spike: str, host: str) -> None:
    """A real spike spliced into any part of a healthy run is seen within ten records, none is lost."""
    source, first, last = SPIKES[spike]
    segment = real(source)[0].curves["train.loss"].values
    heights = [value / segment[0] for value in segment[first:last]]
    whole = real(host)[0]
    healthy = whole.curves["train.loss"]

    for share in (0.2, 0.4, 0.6, 0.8, 1.0):
        end = int(len(healthy.values) * share)
        live = LiveRun(replace(whole, curves={"train.loss": part(healthy, 0, end)}, facts={}))
        known = live.verdict().also.spike_count
        level = sorted(healthy.values[end - 9 : end])[4]
        step = max(healthy.steps[:end])
        tail = curve(
            "train.loss", [level * height for height in heights], [step + 1 + k for k in range(len(heights))]
        )
        live.extend(replace(whole, curves={"train.loss": tail}, facts={}))
        found = live.verdict()
        assert found.verdict in ("transient-spike", "diverged"), (share, found)
        assert found.also.spike_count > known
        assert found.since_step is not None
        assert found.since_step - step <= 10
