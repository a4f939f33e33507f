"""What has gone wrong elsewhere: small curves with a known right verdict."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from support.curves import curve, log

from stoploss.engine.losses.incremental import LiveRun, judge
from stoploss.engine.losses.stragglers import stragglers

NAN, INF = math.nan, math.inf
HOUR = 3600.0


def _clocked(gaps: list[float], start: float = 1e9) -> list[float]:
    return list(start + np.cumsum(gaps))


def _falling(count: int, noise: float = 0.02, seed: int = 0) -> list[float]:
    random = np.random.default_rng(seed)
    return list((1 + 4 * np.arange(1, count + 1) ** -0.5) * (1 + noise * random.normal(size=count)))


@pytest.mark.parametrize("broken", [NAN, INF, -INF])
def test_P_A6_a_loss_that_is_no_number_is_an_alarm(broken: float) -> None:
    """A loss that turns NaN or infinite is non-finite since then, and never the best."""
    verdict = judge(log({"train.loss": [5, 4, 3, 2, broken, broken]}))

    assert (verdict.verdict, verdict.since_step, verdict.since_index) == ("non-finite", 5, 4)
    assert verdict.best is not None
    assert verdict.best.value == 2
    assert verdict.persistent == 2


def test_G_31_a_slow_first_step_is_no_measure() -> None:
    """A first step of 82 s is neither a hang nor the longest step that later ones are measured by."""
    times = _clocked([82, *[1.7] * 400])
    run = log({"train.loss": curve("train.loss", _falling(401), times=times)})

    assert judge(run, now=times[-1] + 200).verdict == "healthy"
    assert judge(run, now=times[-1] + 305).verdict == "hung"


def test_G_32_a_pause_to_save_is_no_hang() -> None:
    """Pauses of 400 s for a checkpoint every hundred steps of 105 s set the measure for later ones."""
    gaps = [105.0 + (400 if k % 100 == 99 else 0) for k in range(300)]
    times = _clocked(gaps)
    run = log({"train.loss": curve("train.loss", _falling(300), times=times)})

    assert judge(run, now=times[-1] + 505).verdict == "healthy"
    assert judge(run, now=times[-1] + 5 * 505 + 1).verdict == "hung"


@pytest.mark.parametrize("facts", [{"status": "success"}, {"ended": 2e9}, {"total_steps": 300.0}])
def test_a_run_that_ended_does_not_hang(facts: dict[str, str | float]) -> None:
    """Silence after the end, or after the last planned step, is no hang."""
    times = _clocked([10.0] * 300)
    run = log({"train.loss": curve("train.loss", _falling(300), times=times)}, **facts)

    assert judge(run, now=times[-1] + HOUR).verdict == "healthy"


def test_without_a_clock_there_is_no_hang() -> None:
    """A log without times is judged in steps, and no instant makes it hang."""
    assert judge(log({"train.loss": _falling(300)}), now=2e9).verdict == "healthy"


def test_a_hang_tells_the_share_of_time_it_wasted() -> None:
    """A run of 3,000 s that has been silent for 1,000 s more has wasted a quarter."""
    times = _clocked([10.0] * 301)
    run = log({"train.loss": curve("train.loss", _falling(301), times=times)})

    assert judge(run, now=times[-1] + 1000).wasted_share == pytest.approx(0.25)


def test_G_34_a_new_straggler_is_found_from_its_time() -> None:
    """Of four workers the one that is much slower in the last sixth is a straggler since then."""
    random = np.random.default_rng(1)
    times = np.arange(6000.0)
    workers = {f"w{k}": (times, 57 + random.normal(0, 4, 6000)) for k in range(3)}
    slow = np.where(times >= 5000, 964.0, 57.0) + random.normal(0, 4, 6000)
    workers["w3"] = (times, slow)

    [found] = stragglers(workers)
    assert (found.worker, found.lasting) == ("w3", True)
    assert found.since == pytest.approx(5000, abs=250)
    assert found.factor == pytest.approx(964 / 57, rel=0.1)


def test_a_worker_that_was_always_slow_is_no_news() -> None:
    """Two groups of unlike GPUs differ throughout, a step that grows on all is no straggler either."""
    times = np.arange(600.0)
    growth = np.where(times > 300, 2.0, 1.0)
    workers = {"fast": (times, 50 * growth), "slow": (times, 300 * growth), "other": (times, 50 * growth)}

    assert stragglers(workers) == ()


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "right"), [("job_1", {("6", False)}), ("job_4", {("5", True), ("6", True)})]
)
def test_G_34_real_stragglers(name: str, right: set[tuple[str, bool]]) -> None:
    """Recorded step times give the workers that slowed down, and whether they stayed slow."""
    path = Path(__file__).parents[3] / "shared" / "data" / "gpu" / "workers" / f"{name}_norm.csv"
    if not path.exists():
        pytest.skip(f"recorded step times are not on this machine: {path}")
    table = np.genfromtxt(path, delimiter=",", skip_header=1)
    workers = {}
    for worker in np.unique(table[:, 1]):
        rows = table[table[:, 1] == worker]
        rows = rows[np.argsort(rows[:, 3], kind="stable")]
        workers[f"{worker:g}"] = (rows[:, 3], rows[:, 4])

    assert {(found.worker, found.lasting) for found in stragglers(workers)} == right


def test_G_48_a_loss_of_zero_beside_nan_is_not_convergence() -> None:
    """Loss 0.0 with a gradient norm and evaluation of NaN is non-finite from the first step."""
    run = log({"train.loss": [0.0] * 3, "train.grad_norm": [NAN] * 3, "eval.loss": [NAN, NAN]})

    verdict = judge(run)
    assert (verdict.verdict, verdict.wasted_share, verdict.best) == ("non-finite", 1.0, None)
    assert any("exactly 0" in line for line in verdict.evidence)


def test_G_49_a_nan_gradient_beside_a_finite_loss_is_no_training() -> None:
    """A finite loss with a gradient norm of NaN at each step and a learning rate of 0 is non-finite."""
    run = log({"train.loss": [4.42, 4.41], "train.grad_norm": [NAN, NAN], "train.lr": [0.0, 0.0]})

    verdict = judge(run)
    assert verdict.verdict == "non-finite"
    assert any("learning rate is 0" in line for line in verdict.evidence)


def test_G_50_a_share_of_lost_steps_shows_what_the_loss_hides() -> None:
    """A loss that the logger keeps finite is non-finite where a third of the steps is reported lost."""
    curves = {"train.loss": [1.0, 1.0, 1.0], "train.non_finite_share": [0.33, 0.33, 0.33]}

    assert judge(log(curves)).verdict == "non-finite"
    assert judge(log({"train.loss": [1.0, 1.0, 1.0]})).verdict != "non-finite"


@pytest.mark.parametrize("broken", [NAN, INF])
def test_G_51_one_bad_record_that_comes_back_is_counted(broken: float) -> None:
    """A single non-finite loss among finite ones is a count, not a verdict."""
    values = [*_falling(40), broken, *_falling(80, seed=1)[40:]]

    verdict = judge(log({"train.loss": values}))
    assert verdict.verdict == "healthy"
    assert verdict.also.non_finite == 1


def test_an_infinite_gradient_while_the_loss_scale_seeks_its_level_is_normal() -> None:
    """A few infinite gradient norms beside finite losses are how a loss scale finds its level."""
    run = log({"train.loss": [5, 4.9, 4.8], "train.grad_norm": [INF, INF, INF]})

    assert judge(run).verdict == "warming-up"


def test_losses_that_go_missing_while_the_loss_scale_halves_are_non_finite() -> None:
    """A field that is no longer written while the loss scale falls is a loss that is not finite."""
    scale = [2.0**16] * 40 + [2.0 ** (15 - k) for k in range(8)]
    run = log({"train.loss": _falling(40), "train.loss_scale": scale})

    verdict = judge(run)
    assert (verdict.verdict, verdict.since_step) == ("non-finite", 41)


def test_a_bad_record_every_other_step_is_non_finite() -> None:
    """Losses that are NaN again and again are non-finite, though each time a finite one follows."""
    values = [value for fine in _falling(20) for value in (fine, NAN, fine)]

    assert judge(log({"train.loss": values})).verdict == "non-finite"


def test_G_54_one_record_read_three_times_counts_once() -> None:
    """A watcher that reads the newest record again and again adds nothing to its patience."""
    live = LiveRun(log({"train.loss": [3.0, 2.0], "eval.loss": curve("eval.loss", [0.5, 0.6], [1, 2])}))
    for _ in range(3):
        live.extend(log({"train.loss": curve("train.loss", [2.0], [2])}))
        live.extend(log({"eval.loss": curve("eval.loss", [0.6], [2])}))

    verdict = live.verdict()
    assert (verdict.points, verdict.numbers.evals_since_best) == (2, 1)
    assert (verdict.also.duplicates, verdict.also.redone_records) == (3, 0)


def test_G_55_nan_is_never_an_improvement() -> None:
    """Evaluations of .5, NaN, .6 keep .5 as the best, count one bad record and raise no alarm."""
    evaluations = curve("eval.loss", [0.5, NAN, 0.6], [10, 20, 30])

    verdict = judge(log({"train.loss": _falling(30), "eval.loss": evaluations}))
    assert verdict.best is not None
    assert (verdict.best.step, verdict.best.value) == (10, 0.5)
    assert (verdict.also.non_finite, verdict.verdict) == (1, "healthy")


def test_G_62_a_metric_without_a_direction_is_not_judged() -> None:
    """A metric that no one says the direction of is left alone, said so, and never overfit."""
    run = log(
        {"train.loss": _falling(60), "eval.metric": curve("eval.metric", [5, 6, 7, 8, 9], range(10, 60, 10))}
    )

    verdict = judge(run)
    assert verdict.verdict == "healthy"
    assert verdict.curve == "train.loss"
    assert any("does not say whether lower or higher" in note for note in verdict.also.notes)


def test_G_62_no_curve_at_all_cannot_be_told() -> None:
    """A log without a loss and without an evaluation is cannot-tell, a known value."""
    assert judge(log({})).verdict == "cannot-tell"
    assert judge(log({"train.lr": [1e-3, 1e-3]})).verdict == "cannot-tell"


def test_a_spike_that_stays_is_divergence() -> None:
    """Five records far above the level are diverged since the first of them, with how fast it came."""
    values = [*_falling(100), 4.0, 6.0, 8.0, 9.0, 9.5, 9.7]
    evaluations = curve("eval.loss", [2.5, 1.9, 1.7, 8.0], [25, 50, 100, 105])

    verdict = judge(log({"train.loss": values, "eval.loss": evaluations}))
    assert (verdict.verdict, verdict.since_step) == ("diverged", 101)
    assert (verdict.sudden, verdict.synchronous, verdict.persistent) == (1, 4, 6)
    assert verdict.wasted_share == pytest.approx(5 / 106)


def test_a_loss_that_creeps_up_is_found_without_a_spike() -> None:
    """A loss that rises slowly is degrading first, and diverged once it has doubled."""
    rise = [1.4 * 1.004**k * (1 + 0.01 * math.sin(k * k)) for k in range(400)]
    values = [*_falling(100), *rise]

    assert judge(log({"train.loss": values[:190]})).verdict == "degrading"
    assert judge(log({"train.loss": values})).verdict == "diverged"


def test_training_and_evaluation_that_worsen_together_are_degrading() -> None:
    """Evaluations that rise while the training loss does not fall are degrading, not overfit."""
    random = np.random.default_rng(3)
    train = [*_falling(100), *(1.42 + 0.02 * random.normal(size=100))]
    evaluations = curve("eval.loss", [3, 2, 1.6, 1.5, 1.65, 1.8, 1.9, 2.0], range(25, 201, 25))

    verdict = judge(log({"train.loss": train, "eval.loss": evaluations}))
    assert (verdict.verdict, verdict.since_step, verdict.synchronous) == ("degrading", 100, 0)


def test_a_plateau_is_flat_since_it_began() -> None:
    """A loss that fell for a quarter of the run and stands still since is flat from about there."""
    random = np.random.default_rng(4)
    level = 1 + 4 * np.minimum(np.arange(1, 801), 200) ** -0.5
    verdict = judge(log({"train.loss": list(level * (1 + 0.01 * random.normal(size=800)))}))

    assert verdict.verdict == "flat"
    assert verdict.since_step is not None
    assert 120 <= verdict.since_step <= 280
    assert verdict.wasted_share == pytest.approx(0.75, abs=0.1)


def test_a_plateau_between_drops_of_the_learning_rate_is_not_flat() -> None:
    """A plateau after a drop of the learning rate is part of such a schedule until it outlasts the others."""
    random = np.random.default_rng(5)
    level = np.concatenate((np.full(300, 2.0), np.full(300, 1.5), np.full(900, 1.4)))
    level[:300] += 3 * np.exp(-np.arange(300) / 60)
    values = level * (1 + 0.01 * random.normal(size=1500))
    rate = np.repeat([0.1, 0.01, 0.001], (300, 300, 900))

    def at(count: int) -> str:
        return judge(log({"train.loss": list(values[:count]), "train.lr": list(rate[:count])})).verdict

    assert at(700) == "healthy"
    assert at(740) == "healthy"
    assert at(1500) == "flat"


@pytest.mark.parametrize("period", [2, 24])
def test_swings_are_oscillating(period: int) -> None:
    """A loss that jumps from record to record, or swings slowly, around one level is oscillating."""
    random = np.random.default_rng(6)
    steps = np.arange(400)
    values = 2 + 0.6 * np.cos(2 * np.pi * steps / period) + 0.05 * random.normal(size=400)

    assert judge(log({"train.loss": list(values)})).verdict == "oscillating"


def test_noise_around_a_fall_is_not_oscillating() -> None:
    """Independent noise of 25 % on a falling loss is healthy."""
    assert judge(log({"train.loss": _falling(400, noise=0.25)})).verdict == "healthy"


def test_a_target_that_is_met_is_converged() -> None:
    """A declared target of a declared direction that is met makes the run converged since that step."""
    metric = curve("eval.metric", [0.5, 0.7, 0.8, 0.79], [10, 20, 30, 40])
    verdict = judge(log({"eval.metric": metric}, better="higher", target=0.75))

    assert (verdict.verdict, verdict.since_step) == ("converged", 30)


def test_the_forecast_brackets_the_target() -> None:
    """Of a loss that falls by a power law the forecast interval holds the step that meets the target."""
    steps = np.arange(100, 20_001, 100)
    values = 8 * steps**-0.1 * (1 + 0.002 * np.random.default_rng(7).normal(size=len(steps)))
    target = 8 * 40_000**-0.1
    run = log({"eval.loss": curve("eval.loss", list(values), list(steps))}, target=float(target))

    ahead = judge(run).numbers.forecast
    assert ahead is not None
    assert ahead.low < ahead.steps < ahead.high
    assert ahead.steps == pytest.approx(20_000, rel=0.35)


def test_a_flat_curve_has_no_forecast() -> None:
    """Where the trend does not lead to the target no number is made up."""
    run = log({"eval.loss": [2.0, 2.0, 2.0, 2.0, 2.0, 2.0]}, target=1.0)

    assert judge(run).numbers.forecast is None


def test_speed_is_told_against_the_runs_own_past() -> None:
    """Steps that take twice as long as before give half the speed, a pause for a save changes nothing."""
    gaps = [10.0] * 180 + [20.0] * 20
    gaps[190] = 900.0
    run = log({"train.loss": curve("train.loss", _falling(200), times=_clocked(gaps))})

    numbers = judge(run).numbers
    assert numbers.steps_per_hour == pytest.approx(180)
    assert numbers.speed_ratio == pytest.approx(0.5)


def test_strategy_evidence_is_told_beside_the_verdict() -> None:
    """A spike at the end of warm-up and a learning rate that rises late are told, and are no verdict."""
    rate = [min(1, k / 50) * 1e-3 for k in range(1, 61)]
    values = [*_falling(50), 6, 7, 8, 9, 9, 9, 9, 9, 9, 9]
    warm = judge(log({"train.loss": values, "train.lr": rate}))
    late = judge(log({"train.loss": _falling(90), "train.lr": [1e-3] * 30 + [1e-4] * 30 + [5e-4] * 30}))

    assert warm.verdict == "diverged"
    assert any("end of warm-up" in line for line in warm.strategy)
    assert any("rose to 0.0005 at step 61" in line for line in late.strategy)


def test_a_schedule_that_is_over_is_told() -> None:
    """A learning rate below 1 % of its peak with steps left says that the rest buys little."""
    rate = [1e-3 * max(0.0, 1 - k / 90) for k in range(90)] + [1e-6] * 10
    verdict = judge(log({"train.loss": _falling(100), "train.lr": rate}, total_steps=200.0))

    assert any("100 steps left" in line for line in verdict.strategy)


def test_a_climbing_learning_rate_is_warming_up() -> None:
    """While the learning rate climbs, a loss that has not moved is warming up and not flat."""
    rate = [1e-6 * k for k in range(1, 101)]

    assert judge(log({"train.loss": [2.3] * 100, "train.lr": rate})).verdict == "warming-up"


def test_swings_that_look_like_spikes_are_oscillating() -> None:
    """A calm fall that turns into swings of forty records is oscillating, though each crest is a spike."""
    swings = [1.3 + 0.5 * math.sin(k / 6) for k in range(300)]

    assert judge(log({"train.loss": [*_falling(300), *swings]})).verdict == "oscillating"


@pytest.mark.parametrize("values", [[1e300] * 3 + [2.0] * 60, [2.0] * 60 + [1e300] * 6, [0.0] * 100])
def test_extreme_losses_get_a_verdict(values: list[float]) -> None:
    """Losses whose squares are infinite, or that are all 0, are judged without a warning."""
    assert judge(log({"train.loss": values})).verdict in ("healthy", "diverged", "flat")
