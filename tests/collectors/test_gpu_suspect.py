"""Readings of a GPU that cannot be true, and those that only look odd."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_driver import MIB, NOT_SUPPORTED, gpu, idle, look, looks, scenario

from stoploss.collectors.gpu_suspect import FROZEN_LOOKS, LATCHED, NO_POWER, Watch
from stoploss.engine.model import Bad, Reading

FROZEN = Bad("suspect: the same to the last digit over 10 looks while others moved")
TOO_MUCH = Bad("suspect: more memory in use than there is")

readings = st.one_of(st.floats(0, 1000), st.sampled_from([0.0, 1.0]), st.just(Bad("not supported")))
SIGNALS = ("power", "energy", "power_limit", "utilization", "processes", "temperature")
gpus = st.fixed_dictionaries({f"gpu.{signal}": readings for signal in SIGNALS})


def powers(values: list[float], temperatures: list[float]) -> list[Reading]:
    """What becomes of these powers, seen at successive looks beside these temperatures."""
    watch = Watch()
    return [
        watch.check({"gpu.power": power, "gpu.temperature": temperature})["gpu.power"]
        for power, temperature in zip(values, temperatures, strict=True)
    ]


def test_a_power_that_stays_the_same_while_others_move_is_unknown() -> None:
    """From the tenth look on a frozen power is suspect, through the real driver call too."""
    seen = looks(*[scenario(gpu(power=633121, temperature=50 + number)) for number in range(12)])

    assert [one["gpu0", "power"] for one in seen] == [633.121] * 9 + [FROZEN] * 3


def test_a_power_that_moves_again_is_known_again() -> None:
    """The first other value ends the doubt."""
    seen = powers([71.15] * FROZEN_LOOKS + [71.16], [float(number) for number in range(FROZEN_LOOKS + 1)])

    assert seen[-2:] == [FROZEN, 71.16]


def test_a_gpu_on_which_nothing_moves_is_not_doubted() -> None:
    """Where no other reading moves either there is nothing to tell a dead sensor from a resting GPU."""
    assert powers([71.15] * 20, [40.0] * 20) == [71.15] * 20


def test_a_sensor_of_whole_watts_is_not_doubted() -> None:
    """A power without digits after the point may stay the same for long."""
    assert powers([9.0] * 20, [float(number) for number in range(20)]) == [9.0] * 20


def test_a_gap_starts_the_count_anew() -> None:
    """A bad reading between equal ones ends the run of looks."""
    watch = Watch()
    values: list[Reading] = [71.15] * 9 + [Bad("unknown error")] + [71.15] * 9
    seen = [
        watch.check({"gpu.power": value, "gpu.temperature": float(number)})["gpu.power"]
        for number, value in enumerate(values)
    ]

    assert seen == values


def test_an_energy_counter_that_stands_still_is_unknown() -> None:
    """Energy is a counter that every live GPU moves; one that stands still is suspect."""
    watch = Watch()
    seen = [
        watch.check({"gpu.energy": 2.0, "gpu.utilization": number / 100})["gpu.energy"]
        for number in range(11)
    ]

    assert seen == [2.0] * 9 + [FROZEN] * 2


@pytest.mark.parametrize(
    ("changes", "right"),
    [
        ({}, LATCHED),
        ({"power": 76000}, LATCHED),
        ({"power": 160000}, 1.0),
        ({"processes": "7:1"}, 1.0),
        ({"processes": "!4"}, 1.0),
        ({"power": NOT_SUPPORTED}, 1.0),
        ({"utilization": 99}, 0.99),
    ],
)
def test_full_utilization_at_idle_power_without_a_process_is_unknown(
    changes: dict[str, object], right: object
) -> None:
    """100% is latched where power is that of an idle GPU and no process is there; else it is what it is."""
    keys = {**idle(utilization=100), **changes}

    assert look(scenario(keys))["gpu0", "utilization"] == right


def test_idle_power_is_learnt() -> None:
    """A GPU that was seen idle is measured by that, not by its limit."""
    seen = looks(
        scenario(idle()),
        scenario(idle(utilization=100, power=76000)),
        scenario(idle(utilization=100, power=77000)),
    )

    assert [one["gpu0", "utilization"] for one in seen] == [0.0, LATCHED, 1.0]


def test_no_power_on_a_gpu_with_a_limit_is_unknown() -> None:
    """0 W is no reading of a GPU that has a power limit."""
    assert look(scenario(idle(power=0)))["gpu0", "power"] == NO_POWER
    assert look(scenario(idle(power=0, power_limit=NOT_SUPPORTED)))["gpu0", "power"] == 0.0


def test_more_memory_in_use_than_there_is_is_unknown() -> None:
    """Memory in use beyond the size is suspect, and so is the share; the size stays known."""
    seen = look(scenario(gpu(memory_total=1000 * MIB, memory_used=1001 * MIB)))

    assert seen["gpu0", "memory.used"] == seen["gpu0", "memory.utilization"] == TOO_MUCH
    assert seen["gpu0", "memory.total"] == 1000.0 * MIB


def test_a_power_over_its_limit_is_no_contradiction() -> None:
    """GPUs do draw more than their limit for a moment."""
    assert look(scenario(gpu(power=228820, power_limit=210000)))["gpu0", "power"] == 228.82


@given(st.lists(gpus, max_size=25))
def test_doubt_only_ever_makes_unknown(series: list[dict[str, Reading]]) -> None:
    """Whatever a GPU says, a reading stays as it is or becomes bad, and a bad one is never made good."""
    watch = Watch()
    for one in series:
        checked = watch.check(one)

        assert checked.keys() == one.keys()
        for signal, reading in one.items():
            assert checked[signal] == reading or (
                isinstance(checked[signal], Bad) and not isinstance(reading, Bad)
            )
