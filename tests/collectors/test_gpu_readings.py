"""What the gpu collector makes of the driver's numbers, refusals and words."""

from __future__ import annotations

import pytest
from support import fake_driver
from support.fake_driver import (
    LOST,
    MIB,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN_ERROR,
    gpu,
    look,
    looks,
    scenario,
)

from stoploss.engine.model import Bad
from stoploss.rules.catalogue import catalogue

SIGNALS = {signal.name for signal in catalogue().of_collector("gpu")}

BUSY: dict[str, object] = {
    "model": "NVIDIA H100 80GB HBM3",
    "driver": "590.48.01",
    "performance_state": "P0",
    "utilization": 0.97,
    "memory.active": 0.11,
    "memory.total": 81559.0 * MIB,
    "memory.used": 20000.0 * MIB,
    "memory.utilization": 20000 / 81559,
    "power": 633.12,
    "power_limit": 700.0,
    "energy": 2.0,
    "temperature": 59.0,
    "memory.temperature": 55.0,
    "clock.sm": 1980.0,
    "clock.memory": 2619.0,
    "throttled": 0.0,
    "throttle_reason": "none",
    "engine_active": 0.965,
    "sm_active": 0.8825,
    "sm_occupancy": 0.415,
    "tensor_active": 0.33125,
    "encoder.utilization": 0.0,
    "decoder.utilization": 0.0,
    "pcie.received": 6_346_000.0,
    "pcie.sent": 3_092_000.0,
    "pcie.width": 16.0,
    "pcie.replays": 9.0,
    "nvlink.received": 1024 * 1024.0,
    "nvlink.sent": 2048 * 1024.0,
    "nvlink.errors": 0.0,
    "ecc.corrected": 0.0,
    "ecc.uncorrected": 0.0,
    "remapped_rows": 0.0,
    "xid": "none",
    "xid_errors": 0.0,
    "processes": 1.0,
    "mig": "disabled",
}


def test_a_busy_gpu_is_read_in_catalogue_units() -> None:
    """Every signal of GPUs is read at the first look, in the unit of the catalogue."""
    seen = look(scenario(gpu()))

    assert {f"gpu.{signal}" for signal in BUSY} == SIGNALS
    assert {signal: seen["gpu0", signal] for signal in BUSY} == BUSY


def test_a_first_look_waits_once_and_later_ones_do_not() -> None:
    """What needs two readings takes both at the first look, 100 ms apart, and one at every later look."""
    told = fake_driver.driver().ask([scenario(gpu())] * 3)

    assert told["slept"] == [0.1]


def test_a_gpu_without_anything_to_measure_waits_for_nothing() -> None:
    """Where no reading needs two, the first look does not wait."""
    told = fake_driver.driver().ask([scenario(gpu(gpm=None, **{"field.91": 0}))])

    assert told["slept"] == []


def test_no_inventory_is_claimed() -> None:
    """Other hosts have GPUs too, so that a GPU which is not seen here is not gone for it."""
    (told,) = fake_driver.driver().ask([scenario(gpu())])["looks"]

    assert told["inventories"] == []
    assert {kind for _, kind, *_ in told["samples"]} == {"gpu"}


@pytest.mark.parametrize(
    ("changes", "signal", "reason"),
    [
        ({"power": NOT_SUPPORTED}, "power", "not supported"),
        ({"power": NO_PERMISSION}, "power", "no permission"),
        ({"power": UNKNOWN_ERROR}, "power", "unknown error"),
        ({"power": "!13"}, "power", "not supported by this driver"),
        ({"power": "!10"}, "power", "timeout"),
        ({"energy": NOT_SUPPORTED}, "energy", "not supported"),
        ({"memory.total": NOT_SUPPORTED}, "memory.utilization", "not supported"),
        ({"mig": NOT_SUPPORTED}, "mig", "not supported"),
        ({"throttle": NOT_SUPPORTED}, "throttle_reason", "not supported"),
        ({"fields": NOT_SUPPORTED}, "memory.temperature", "not supported"),
        ({"events": NOT_SUPPORTED}, "xid", "not supported"),
        ({"events": NOT_SUPPORTED}, "xid_errors", "not supported"),
        ({"xid": UNKNOWN_ERROR}, "xid_errors", "unknown error"),
        ({"field.91": NOT_SUPPORTED}, "nvlink.sent", "not supported"),
        ({"field.91": 0}, "nvlink.sent", "no NVLink"),
        ({"field.38": NOT_SUPPORTED}, "nvlink.errors", "not supported"),
    ],
)
def test_what_is_refused_is_bad_with_its_reason(changes: dict[str, object], signal: str, reason: str) -> None:
    """A refusal is a bad reading of its own signals with its reason, never 0, and spoils nothing else."""
    seen = look(scenario({**gpu(), **changes}))

    assert seen["gpu0", signal] == Bad(reason)
    assert seen["gpu0", "utilization"] == 0.97


@pytest.mark.parametrize("raw", [2**32 - 1, 0x7FFFFFF0, 0x7FFFFFF2])
@pytest.mark.parametrize(
    ("key", "signal"),
    [
        ("power", "power"),
        ("utilization", "utilization"),
        ("temperature", "temperature"),
        ("clock.sm", "clock.sm"),
        ("pcie.sent", "pcie.sent"),
        ("pcie.replays", "pcie.replays"),
        ("ecc.uncorrected", "ecc.uncorrected"),
        ("field.82", "memory.temperature"),
        ("memory.used", "memory.used"),
    ],
)
def test_G_25_a_sentinel_is_no_number(key: str, signal: str, raw: int) -> None:
    """The largest integer and the blanks of the data center tools are bad readings that name them."""
    assert look(scenario({**gpu(), key: raw}))["gpu0", signal] == Bad(f"sentinel value {raw}")


@pytest.mark.parametrize(
    ("key", "raw", "signal"),
    [
        ("energy", 2**64 - 1, "energy"),
        ("memory.total", 2**64 - 1, "memory.total"),
        ("utilization", 101, "utilization"),
        ("temperature", 255, "temperature"),
        ("pcie.width", 0, "pcie.width"),
        ("power_limit", 0, "power_limit"),
        ("field.82", 0, "memory.temperature"),
        ("gpm.2", "nan", "sm_active"),
        ("mig", 7, "mig"),
    ],
)
def test_G_25_what_is_physically_impossible_is_no_number(key: str, raw: object, signal: str) -> None:
    """A number outside what can be is a bad reading that names it."""
    assert look(scenario({**gpu(), key: raw}))["gpu0", signal] == Bad(f"sentinel value {raw}")


def test_an_unknown_performance_state_is_bad() -> None:
    """The driver's own word for an unknown performance state is no state P32."""
    assert look(scenario(gpu(pstate=32)))["gpu0", "performance_state"] == Bad("unknown state")


@pytest.mark.parametrize("changes", [{"gpm": None}, {"gpm": NOT_SUPPORTED}, {"gpm.2": None}])
def test_G_23_without_measured_shares_utilization_and_power_remain(changes: dict[str, object]) -> None:
    """A GPU that cannot measure its multiprocessors says what it needs; utilization and power are known."""
    keys = {name: value for name, value in {**gpu(), **changes}.items() if value is not None}

    seen = look(scenario(keys))

    assert seen["gpu0", "sm_active"] == Bad("needs DCGM or GPM")
    assert seen["gpu0", "utilization"] == 0.97
    assert seen["gpu0", "power"] == 633.12


def test_G_26_xid_errors_are_counted_between_looks_and_the_newest_is_kept() -> None:
    """Each error counts at one look, by its GPU; its number stays until there is a newer one."""
    gpus = gpu(0, xid="13"), gpu(1), gpu(2, xid="94 79")

    first, second = looks(scenario(*gpus), scenario(gpu(0), gpu(1), gpu(2)))

    assert [first[f"gpu{n}", "xid"] for n in range(3)] == ["13", "none", "79"]
    assert [first[f"gpu{n}", "xid_errors"] for n in range(3)] == [1.0, 0.0, 2.0]
    assert [second[f"gpu{n}", "xid"] for n in range(3)] == ["13", "none", "79"]
    assert [second[f"gpu{n}", "xid_errors"] for n in range(3)] == [0.0, 0.0, 0.0]


def test_G_26_the_error_that_cost_a_gpu_is_still_told() -> None:
    """Of a lost GPU the Xid error that was heard is known, and only that."""
    keys = gpu(xid="79", all=LOST)

    seen = look(scenario(keys))

    assert seen["gpu0", "xid"] == "79"
    assert seen["gpu0", "ecc.uncorrected"] == Bad("GPU is lost")


def test_G_26_a_constant_ecc_counter_is_a_level() -> None:
    """Errors that happened before the first look are told at every look, so that a level can alert."""
    text = scenario(gpu(**{"ecc.uncorrected": 2, "ecc.corrected": 5, "remapped.uncorrected": 1}))

    for seen in looks(text, text):
        assert seen["gpu0", "ecc.uncorrected"] == 2.0
        assert seen["gpu0", "ecc.corrected"] == 5.0
        assert seen["gpu0", "remapped_rows"] == 1.0


@pytest.mark.parametrize(
    ("bits", "why", "share"),
    [
        (0x0, "none", 0.0),
        (0x1, "none", 0.0),
        (0x2, "other", 0.0),
        (0x4, "power", 1.0),
        (0x88, "power", 1.0),
        (0x8, "hardware", 1.0),
        (0x20, "thermal", 1.0),
        (0x44, "thermal", 1.0),
        (0x100, "other", 0.0),
    ],
)
def test_throttling_names_the_foremost_reason(bits: int, why: str, share: float) -> None:
    """Heat comes before power, power before other hardware; idleness holds nothing back."""
    seen = look(scenario(gpu(throttle=bits)))

    assert seen["gpu0", "throttle_reason"] == why
    assert seen["gpu0", "throttled"] == share


def test_nvlink_errors_of_newer_gpus_add_up_over_links() -> None:
    """Where the totals are refused, replays, recoveries and CRC errors of all links are summed."""
    totals = {f"field.{total}": NOT_SUPPORTED for total in (38, 45, 52, 59)}
    links = {f"field.{kind}{link}": 1 for kind in (161, 162, 163) for link in ("", ".1", ".2")}

    seen = look(scenario({**gpu(), **totals, **links, "field.91": 3}))

    assert seen["gpu0", "nvlink.errors"] == 9.0


def test_an_nvlink_counter_that_went_back_is_no_rate() -> None:
    """A counter below its last value was reset, and makes no rate."""
    _, seen = looks(scenario(gpu(**{"field.138": 900})), scenario(gpu(**{"field.138": 10})))

    assert seen["gpu0", "nvlink.sent"] == Bad("the counter was reset")
    assert seen["gpu0", "nvlink.received"] == 1024 * 1024.0


def test_an_older_driver_tells_its_memory_too() -> None:
    """A driver without the newer call for memory is asked by the older one."""
    assert look(scenario(gpu(), old=1))["gpu0", "memory.used"] == 20000.0 * MIB
