"""What real GPUs answered nvidia-smi, told again by the fake driver and read by the collector."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.fake_driver import LOST, MIB, MISMATCH, NOT_SUPPORTED, UNKNOWN_ERROR, Seen, idle, look, scenario

from stoploss.engine.model import Bad

DATA = Path(__file__).parents[3] / "shared" / "data" / "gpu"

pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"no captures of real GPUs at {DATA}")

ON_MIG = Bad("not supported on MIG")
UNSUPPORTED = Bad("not supported")

COLUMNS = {
    "name": "name",
    "uuid": "uuid",
    "pcie.link.width.current": "pcie.width",
    "pstate": "pstate",
    "clocks_event_reasons.active": "throttle",
    "memory.total": "memory.total",
    "memory.used": "memory.used",
    "utilization.gpu": "utilization",
    "utilization.memory": "utilization.memory",
    "utilization.encoder": "encoder",
    "utilization.decoder": "decoder",
    "ecc.errors.corrected.volatile.total": "ecc.corrected",
    "ecc.errors.uncorrected.volatile.total": "ecc.uncorrected",
    "remapped_rows.correctable": "remapped.corrected",
    "remapped_rows.uncorrectable": "remapped.uncorrected",
    "temperature.gpu": "temperature",
    "temperature.memory": "field.82",
    "power.draw": "power",
    "enforced.power.limit": "power_limit",
    "clocks.current.sm": "clock.sm",
    "clocks.current.memory": "clock.memory",
    "mig.mode.current": "mig",
}
"""Columns of `nvidia-smi --query-gpu`, and the driver's keys that they come from."""

XML = {
    "product_name": "name",
    "uuid": "uuid",
    "performance_state": "pstate",
    "fb_memory_usage/total": "memory.total",
    "fb_memory_usage/used": "memory.used",
    "utilization/gpu_util": "utilization",
    "utilization/memory_util": "utilization.memory",
    "utilization/encoder_util": "encoder",
    "utilization/decoder_util": "decoder",
    "pci/pci_gpu_link_info/link_widths/current_link_width": "pcie.width",
    "pci/replay_counter": "pcie.replays",
    "pci/tx_util": "pcie.sent",
    "pci/rx_util": "pcie.received",
    "temperature/gpu_temp": "temperature",
    "temperature/memory_temp": "field.82",
    "power_readings/power_draw": "power",
    "power_readings/power_limit": "power_limit",
    "gpu_power_readings/power_draw": "power",
    "gpu_power_readings/current_power_limit": "power_limit",
    "clocks/sm_clock": "clock.sm",
    "clocks/mem_clock": "clock.memory",
    "mig_mode/current_mig": "mig",
}
"""Elements of `nvidia-smi -x -q` of both schemas, and the driver's keys that they come from."""

WORDS = {"Disabled": 0, "Enabled": 1}
FACTORS = {"MiB": MIB, "W": 1000}


def answered(text: str) -> object:
    """What the driver must have answered where nvidia-smi shows this text."""
    if text in ("N/A", "[N/A]"):
        return NOT_SUPPORTED
    if text in ("ERR!", "[Unknown Error]"):
        return UNKNOWN_ERROR
    if text in WORDS:
        return WORDS[text]
    if text.startswith("0x"):
        return text
    measured = re.fullmatch(r"P?(\d+(?:\.\d+)?)x?(?: (\S+))?", text)
    if measured is None:
        return text
    return round(float(measured[1]) * FACTORS.get(measured[2] or "", 1))


def keys_of(shown: Mapping[str, str], columns: Mapping[str, str]) -> dict[str, object]:
    """The driver's keys behind what nvidia-smi shows; a unit in a column's name goes with its values."""
    found: dict[str, object] = {}
    for column, text in shown.items():
        name, _, unit = column.partition(" [")
        if name in columns:
            value = text if not unit or not text.replace(".", "").isdigit() else f"{text} {unit.rstrip(']')}"
            found[columns[name]] = answered(value)
    return found


def sections(name: str) -> dict[tuple[str, str], list[str]]:
    """The sections of a capture by state (idle, load, capabilities) and title."""
    text = (DATA / "smi" / name).read_text("utf-8")
    parts = re.split(r"^#{40,}\n# (\w+) :: ([^\n]*)\n(?:# [^\n]*\n)*#{40,}\n", text, flags=re.MULTILINE)
    return {
        (state, title.split(" (")[0]): body.splitlines()
        for state, title, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    }


def capture(name: str, state: str) -> Seen:
    """What the collector reads where the driver is in a state that was captured."""
    found = sections(name)
    head, row = found[state, "query-gpu"][:2]
    keys = keys_of(dict(zip(head.split(", "), row.split(", "), strict=True)), COLUMNS)
    apps = [line.split(", ") for line in found[state, "query-compute-apps"][1:] if line]
    held = {pid: int(memory.split()[0]) * MIB for *_, pid, _, memory in apps}
    keys["processes"] = " ".join(f"{pid}:{memory}" for pid, memory in held.items()) or "-"
    if keys["mig"]:
        profiles = re.findall(r"MIG (\S+) +Device", "\n".join(found["capabilities", "list"]))
        parts = list(slices(found[state, "query"]))
        keys |= {
            "migs": 7,
            **{f"mig{place}.{key}": value for place, part in enumerate(parts) for key, value in part},
        }
        keys |= {f"mig{n}.name": f"{keys['name']} MIG {profile}" for n, profile in enumerate(profiles)}
    return look(scenario(keys))


def slices(lines: list[str]) -> Iterator[list[tuple[str, object]]]:
    """The keys of each MIG device of `nvidia-smi -q`, with the processes of its instance."""
    text = "\n".join(lines)
    owners = re.findall(
        r"GPU instance ID +: (\d+)\n.*\n +Process ID +: (\d+)\n(?:.*\n){2}.*: (\d+) MiB", text
    )
    for part in text.split("    MIG Device\n")[1:]:
        values = dict(re.findall(r"^ +(\S[^:\n]*?) +: (.*)$", part.split("Shared BAR1")[0], re.MULTILINE))
        instance = values["GPU Instance ID"]
        held = [f"{pid}:{int(memory) * MIB}" for own, pid, memory in owners if own == instance]
        yield [
            ("uuid", f"MIG-{values['Index']}"),
            ("instance", instance),
            ("memory.total", answered(values["Total"])),
            ("memory.used", answered(values["Used"])),
            ("processes", " ".join(held) or "-"),
        ]


def from_xml(name: str) -> Seen:
    """What the collector reads where the driver answers as in an XML capture."""
    root = ElementTree.parse(DATA / "smi-xml" / name).getroot()  # noqa: S314
    gpus = []
    for card in root.iter("gpu"):
        shown = {path: (card.findtext(path) or "").strip() for path in XML if card.find(path) is not None}
        keys = keys_of(shown, XML) | {"processes": "-"}
        for place, part in enumerate(card.findall("mig_devices/mig_device")):
            keys |= {
                "migs": 7,
                f"mig{place}.uuid": f"MIG-{place}",
                f"mig{place}.instance": part.findtext("gpu_instance_id"),
                f"mig{place}.memory.total": answered(part.findtext("fb_memory_usage/total") or ""),
                f"mig{place}.memory.used": answered(part.findtext("fb_memory_usage/used") or ""),
                f"mig{place}.processes": "-",
            }
        gpus.append(keys)
    return look(scenario(*gpus))


PLAIN = "linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt"
SPLIT = "linux-x86_64__nvidia-h100-mig__590.48.01.txt"


def test_an_idle_h100() -> None:
    """Idle: 0% is known and 0, 70 W, nothing in memory, no process."""
    seen = capture(PLAIN, "idle")

    assert seen["gpu0", "utilization"] == 0.0
    assert seen["gpu0", "power"] == 69.85
    assert seen["gpu0", "memory.used"] == 0.0
    assert seen["gpu0", "processes"] == 0.0
    assert seen["gpu0", "throttle_reason"] == "none"
    assert seen["gpu0", "remapped_rows"] == 0.0


def test_a_busy_h100() -> None:
    """Under load: 100%, 632 W of 700 W, 19,818 MiB held by three processes."""
    seen = capture(PLAIN, "load")

    assert seen["gpu0", "utilization"] == 1.0
    assert seen["gpu0", "power"] == 631.95
    assert seen["gpu0", "power_limit"] == 700.0
    assert seen["gpu0", "memory.used"] == 19818.0 * MIB
    assert seen["gpu0", "processes"] == 3.0
    assert seen["gpu0", "clock.sm"] == 1980.0


@pytest.mark.parametrize(("state", "power", "used"), [("idle", 71.15, 59.0), ("load", 433.78, 11125.0)])
def test_G_9_a_split_h100_is_told_by_power_and_memory(state: str, power: float, used: float) -> None:
    """Utilization is unknown idle and busy alike; power and memory tell the two apart."""
    seen = capture(SPLIT, state)

    assert seen["gpu0", "utilization"] == seen["gpu0", "encoder.utilization"] == ON_MIG
    assert seen["gpu0", "power"] == power
    assert seen["gpu0", "memory.used"] == used * MIB
    assert seen["gpu0", "remapped_rows"] == ON_MIG
    assert seen["gpu0", "mig"] == "enabled"


def test_G_9_the_slices_of_a_split_h100() -> None:
    """Four slices with their profiles and memory; the processes are those of the instance they run in."""
    seen, busy = capture(SPLIT, "idle"), capture(SPLIT, "load")

    names = [f"gpu0/mig{place}" for place in range(4)]
    assert seen.names == ["gpu0", *names]
    assert [seen.labels[name]["profile"] for name in names] == ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]
    assert [seen[name, "memory.used"] for name in names] == [value * MIB for value in (26.0, 17.0, 9.0, 9.0)]
    assert [seen[name, "processes"] for name in names] == [0.0] * 4
    assert {seen[name, "utilization"] for name in names} == {ON_MIG}
    assert busy["gpu0", "processes"] == sum(busy[name, "processes"] for name in names) == 3.0


def test_an_old_card_without_a_power_sensor() -> None:
    """The older XML schema: power N/A is unknown, utilization 0% is 0, what is not told is unknown."""
    seen = from_xml("gtx-1070-ti.xml")

    assert seen["gpu0", "model"] == "GeForce GTX 1070 Ti"
    assert seen["gpu0", "power"] == UNSUPPORTED
    assert seen["gpu0", "utilization"] == 0.0
    assert seen["gpu0", "memory.used"] == 42.0 * MIB
    assert seen["gpu0", "performance_state"] == "P8"
    assert seen["gpu0", "ecc.uncorrected"] == UNSUPPORTED
    assert seen["gpu0", "memory.temperature"] == UNSUPPORTED
    assert seen["gpu0", "sm_active"] == Bad("needs DCGM or GPM")


def test_split_a100s() -> None:
    """The newer XML schema: power is in another place, utilization of a split A100 is unknown."""
    seen = from_xml("a100-sxm4-v12.xml")

    assert seen["gpu0", "power"] == 67.03
    assert seen["gpu0", "power_limit"] == 500.0
    assert seen["gpu0", "utilization"] == ON_MIG
    assert seen["gpu0", "memory.temperature"] == 44.0
    assert seen["gpu0", "pcie.sent"] == 4_000_000.0
    assert seen["gpu0", "pcie.received"] == 0.0
    assert seen["gpu0/mig0", "memory.total"] == 19968.0 * MIB
    assert seen["gpu0/mig3", "memory.used"] == 12.0 * MIB
    assert seen.names[:5] == ["gpu0", *(f"gpu0/mig{place}" for place in range(4))]


def test_G_19_a_power_of_ERR_is_unknown() -> None:
    """Power `ERR!` is unknown and not 0 W; utilization 0% and memory beside it are known."""
    line = (DATA / "odd" / "smi_power_ERR.txt").read_text("utf-8")
    _, thermal, memory, use, _ = (part.strip() for part in line.split("|"))
    power, limit = re.search(r"(\S+) / (\d+)W", thermal).groups()  # type: ignore[union-attr]
    used, total = (int(part.removesuffix("MiB")) * MIB for part in memory.split(" / "))

    keys = idle(power=answered(power), power_limit=int(limit) * 1000, memory_total=total, memory_used=used)
    seen = look(scenario(keys | {"utilization": int(use.split("%")[0])}))

    assert seen["gpu0", "power"] == Bad("unknown error")
    assert seen["gpu0", "power_limit"] == 250.0
    assert seen["gpu0", "utilization"] == 0.0
    assert seen["gpu0", "memory.used"] == 593.0 * MIB


def test_one_unknown_field_of_ten_costs_only_itself() -> None:
    """An unknown power limit is unknown; the GPU is busy at 100% and draws more than its nominal limit."""
    head, row = (DATA / "odd" / "smi_query_unknown_error.csv").read_text("utf-8").splitlines()[:2]
    keys = keys_of(dict(zip(head.split(", "), row.split(", "), strict=True)), COLUMNS)

    seen = look(scenario({"uuid": "GPU-0", **keys}))

    assert seen["gpu0", "power_limit"] == Bad("unknown error")
    assert seen["gpu0", "utilization"] == 1.0
    assert seen["gpu0", "memory.active"] == 0.37
    assert seen["gpu0", "power"] == 228.82
    assert seen["gpu0", "temperature"] == 56.0
    assert seen["gpu0", "clock.memory"] == 6800.0


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("smi_device_handle_unknown_error.txt", "GPU cannot be reached: unknown error"),
        ("smi_gpu_is_lost.txt", "GPU is lost"),
    ],
)
def test_G_21_a_handle_that_cannot_be_had_is_a_lost_gpu(name: str, reason: str) -> None:
    """Where nvidia-smi stops at one line, that GPU is lost and no other GPU of the host is idle."""
    line = (DATA / "odd" / name).read_text("utf-8")
    why = LOST if "GPU is lost" in line else UNKNOWN_ERROR
    assert "Unable to determine the device handle" in line

    seen = look(scenario(*(idle(number) if number != 3 else {"handle": why} for number in range(8))))

    assert seen["gpu3", "utilization"] == Bad(reason)
    assert {seen[f"gpu{n}", "utilization"] for n in range(8) if n != 3} == {
        Bad("another GPU of this host is lost: gpu3")
    }


def test_G_22_a_driver_that_does_not_fit() -> None:
    """The line that nvidia-smi prints with status 18 is a failure of the whole look."""
    line = (DATA / "odd" / "smi_driver_mismatch.rc18.txt").read_text("utf-8")

    seen = look(scenario(idle(), init=MISMATCH))

    assert seen.error == ("CollectorError", "NVML cannot be opened: driver/library version mismatch")
    assert seen.error[1].split(": ")[1] in line.lower()
