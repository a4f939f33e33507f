"""What has gone wrong elsewhere: missing, failing and lying signals, through the real command."""

from __future__ import annotations

import pytest
from support.scenes import Scene, policy, reasons, recording, states

IDLE = "max(gpu.utilization, 30m) < 5%"
UTIL = "gpu.utilization"


def test_P_A1_an_empty_window_is_not_idle(scene: Scene) -> None:
    """A GPU with no reading of its load is unknown with "0 of 30 samples", and nothing fires."""
    signals = recording({("gpu", "a", UTIL): [0] * 40, ("gpu", "b", "gpu.power"): [60] * 40})
    result = scene.audit(policy(IDLE), signals)

    assert states(result) == {"a": "firing"}
    [unknown] = result["unknown"]
    assert (unknown["resource"]["id"], unknown["samples"], unknown["of"]) == ("b", 0, 30)
    assert unknown["reason"] == "gpu.utilization: never seen on this gpu"


@pytest.mark.parametrize("condition", [IDLE, f"not (max({UTIL}, 30m) >= 5%)", f"avg({UTIL}, 30m) == 0%"])
def test_P_A4_three_samples_of_thirty_do_not_decide(scene: Scene, condition: str) -> None:
    """A window that is covered for less than 80 % is unknown, also under not."""
    values = [0] + [None] * 27 + [0, 0, 0]
    signals = recording({("gpu", "a", UTIL): values, ("gpu", "b", UTIL): [50] * 31})
    result = scene.audit(policy(condition), signals)

    assert states(result) == {}
    assert reasons(result) == {"a": "gpu.utilization: 3 of 30 samples, needs 24"}
    assert scene.status == 0


@pytest.mark.parametrize("text", ["n/a", "", "None", "nan", "[Unknown Error]"])
@pytest.mark.parametrize("condition", [f"{UTIL} < 5%", f"not ({UTIL} >= 5%)"])
def test_P_A5_a_reading_that_is_no_number_is_not_zero(scene: Scene, text: str, condition: str) -> None:
    """Text where a number belongs is unknown with the text as its reason, and degrades the run."""
    signals = recording({("gpu", "a", UTIL): [0.9, text]})
    result = scene.audit(policy(condition), signals)

    assert states(result) == {}
    assert result["unknown"][0]["code"] == "bad"
    assert scene.status == 4


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_P_A6_a_loss_that_is_not_a_number_is_the_worst_loss(scene: Scene, value: str) -> None:
    """`train.loss > 10` fires on NaN and infinity, and the number is told as non-finite."""
    signals = recording({("job", "j", "train.loss"): [2.0, 1.9, *[value] * 7]})
    result = scene.audit(policy("train.loss > 10", each="job", **{"for": "5m"}), signals)

    assert states(result) == {"j": "firing"}
    evidence = result["findings"][0]["evidence"][0]
    assert evidence["value"] is None
    assert evidence["non_finite"] == "inf"


def test_P_A10_a_counter_that_resets_is_not_negative(scene: Scene) -> None:
    """100, 160, 10, 40 gained 100: 60, then 10 after the reset, then 30; nothing is extrapolated."""
    signals = recording({("host", "h", "network.bytes"): [100, 160, 10, 40]})
    result = scene.audit(policy("increase(network.bytes, 4m) == 100 B", each="host"), signals)

    assert result["findings"][0]["evidence"][0]["value"] == 100


def test_P_A10_a_run_that_rewinds_gains_nothing_by_it(scene: Scene) -> None:
    """A resumed run's step goes back; that is no reset from zero."""
    signals = recording({("job", "j", "train.step"): [7570, 7580, 7520, 7530]})
    result = scene.audit(policy("increase(train.step, 4m) == 20", each="job"), signals)

    assert states(result) == {"j": "firing"}


def test_P_A11_a_gap_while_firing_is_one_finding(scene: Scene) -> None:
    """Five minutes without data: the same finding id, and "stale since" while it lasts."""
    idle = [0] * 40
    before = scene.audit(policy(IDLE), recording({("gpu", "a", UTIL): idle, ("gpu", "b", UTIL): [0.5] * 40}))
    gap = recording({("gpu", "a", UTIL): idle, ("gpu", "b", UTIL): [0.5] * 45})
    during = scene.audit(policy(IDLE), gap)
    back = recording({("gpu", "a", UTIL): [*idle, *[None] * 5, 0], ("gpu", "b", UTIL): [0.5] * 46})
    after = scene.audit(policy(IDLE), back)

    ids = {result["findings"][0]["id"] for result in (before, during, after)}
    assert len(ids) == 1
    assert during["findings"][0]["stale_since"] == "2026-01-01T00:41:00Z"
    assert after["findings"][0]["stale_since"] is None
    assert states(after) == {"a": "firing"}


@pytest.mark.parametrize(
    ("op", "fires"), [(">=", True), (">", False), ("==", True), ("<", False), ("<=", True)]
)
def test_P_C12_a_value_on_the_threshold(scene: Scene, op: str, fires: bool) -> None:
    """80 % of a budget is >= 80 % and not > 80 %."""
    signals = recording({("job", "j", "budget.used"): [0.8] * 3})
    result = scene.audit(policy(f"budget.used {op} 80%", each="job"), signals)

    assert (states(result) == {"j": "firing"}) is fires


def test_P_C12_an_average_is_summed_exactly(scene: Scene) -> None:
    """31 samples of one decimal that average exactly 5.0 are not below 5, in every slot."""
    values = [4.9, 5.1] * 80 + [5.0]
    signals = recording({("gpu", "a", "gpu.temperature"): values})
    window = "avg(gpu.temperature, 31m)"
    below = scene.audit(policy(f"{window} < 5 C"), signals)
    at = scene.audit(policy(f"{window} == 5 C"), signals)

    assert states(below) == {}
    assert states(at) == {"a": "firing"}


def test_P_D23_an_empty_label_is_absent_and_absent_is_no_error(scene: Scene) -> None:
    """In CSV an empty cell is absent: has() and == are false, != is true, and nothing is unknown."""
    signals = recording(
        {("gpu", "a", UTIL): [0] * 3, ("gpu", "b", UTIL): [0] * 3},
        labels={"a": {"team": ""}, "b": {"team": "x"}},
    )
    found = {
        condition: sorted(states(scene.audit(policy(condition), signals)))
        for condition in ("has(team)", "not has(team)", 'team == "x"', 'team != "x"')
    }

    assert found == {
        "has(team)": ["b"],
        "not has(team)": ["a"],
        'team == "x"': ["b"],
        'team != "x"': ["a"],
    }


def test_P_D23_a_label_that_cannot_be_read_is_unknown(scene: Scene) -> None:
    """`?` is neither absent nor present: not even `not has()` is true."""
    signals = recording({("gpu", "a", UTIL): [0] * 3}, labels={"a": {"team": "?"}})
    result = scene.audit(policy("not has(team)"), signals)

    assert states(result) == {}
    assert reasons(result) == {"a": "label team cannot be read"}


def test_G_1_an_error_reading_is_not_idle(scene: Scene) -> None:
    """One job's readings fail, another's four GPUs are at zero: only the other fires."""
    values: dict[tuple[str, str, str], list[object]] = {("gpu", "bad", UTIL): ["ERR!"] * 130}
    values |= {("gpu", f"g{n}", UTIL): [0] * 130 for n in range(4)}
    labels = {"bad": {"job": "j1"}} | {f"g{n}": {"job": "j2"} for n in range(4)}
    result = scene.audit(
        policy("max(gpu.utilization, 2h) == 0%", each="job"), recording(values, labels=labels)
    )

    assert states(result) == {"j2": "firing"}
    assert reasons(result) == {"j1": "gpu.utilization: ERR! (gpu bad)"}


def test_G_3_used_first_and_idle_later(scene: Scene) -> None:
    """An hour at 90 %, then idle: the window slides, the first hour is forgotten."""
    result = scene.audit(policy(IDLE), recording({("gpu", "a", UTIL): [0.9] * 60 + [0] * 40}))

    assert states(result) == {"a": "firing"}


def test_G_4_memory_held_and_no_work_is_idle(scene: Scene) -> None:
    """A ghost: 17.3 GiB held, duty 0 but for one blip in six hours."""
    duty = [0.0] * 300 + [0.076] + [0.0] * 300
    memory = [18_575_000_000] * len(duty)
    signals = recording({("gpu", "a", UTIL): duty, ("gpu", "a", "gpu.memory.used"): memory})
    result = scene.audit(policy(["p99(gpu.utilization, 6h) < 5%", "gpu.memory.used > 1 GB"]), signals)

    assert states(result) == {"a": "firing"}


def test_G_6_a_hole_in_the_data_is_not_idleness(scene: Scene) -> None:
    """Ten hours without samples, then one zero: a 2 h window is unknown."""
    hole = [0.9] * 10 + [None] * 600 + [0]
    signals = recording({("gpu", "a", UTIL): hole, ("gpu", "b", UTIL): [0.9] * 611})
    result = scene.audit(policy("max(gpu.utilization, 2h) < 5%"), signals)

    assert states(result) == {}
    assert reasons(result) == {"a": "gpu.utilization: 1 of 120 samples, needs 96"}


def test_G_8_one_idle_gpu_of_eight_does_not_make_the_job_idle(scene: Scene) -> None:
    """Every GPU of a job has to agree; any() asks for one."""
    values = {("gpu", f"g{n}", UTIL): [0.0 if n == 0 else 0.95] * 40 for n in range(8)}
    signals = recording(values, labels={f"g{n}": {"job": "j"} for n in range(8)})

    assert states(scene.audit(policy(IDLE, each="job"), signals)) == {}
    assert states(scene.audit(policy(f"any({IDLE})", each="job"), signals)) == {"j": "firing"}
    assert states(scene.audit(policy(f"most({IDLE}, 75%)", each="job"), signals)) == {}


@pytest.mark.parametrize("grace", [{"min_age": "15m"}, {"except_phase": "[setup]"}])
def test_G_11_setup_is_not_idleness(scene: Scene, grace: dict[str, str]) -> None:
    """A node that installs packages for 12 minutes is not idle within its grace or declared phase."""
    values: dict[tuple[str, str, str], list[object]] = {
        ("gpu", "g", UTIL): [0] * 12,
        ("job", "j", "job.phase"): ["setup"] * 12,
    }
    signals = recording(values, labels={"g": {"job": "j"}, "j": {}})
    text = "max(gpu.utilization, 10m) < 5%"

    assert states(scene.audit(policy(text, each="job"), signals)) == {"j": "firing"}
    assert states(scene.audit(policy(text, each="job", **grace), signals)) == {}


def test_a_new_tenant_inherits_nothing(scene: Scene) -> None:
    """When a GPU's job changes, the episode ends and the window starts young."""
    head, *rows = recording({("gpu", "a", UTIL): [0] * 60}, labels={"a": {"job": "old"}}).splitlines()
    changed = [row.replace("old", "new") if number >= 50 else row for number, row in enumerate(rows)]
    result = scene.audit(policy(IDLE), "\n".join([head, *changed]) + "\n")

    assert states(result) == {}
    assert reasons(result) == {"a": "gpu.utilization: young, 10 of 30 samples"}
