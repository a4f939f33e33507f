"""The simulated fleet: the same bytes for the same seed, and every scene really there."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from stoploss.rules.catalogue import catalogue

SCRIPT = Path(__file__).parents[2] / "examples" / "fleet" / "generate.py"
LAST = "2026-11-30T00:00:00Z"
SLOTS = 7 * 288

Row = dict[str, str]
Table = dict[tuple[str, str], list[Row]]


def write(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the generator."""
    command = [sys.executable, str(SCRIPT), "--out", str(out), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A week of the fleet."""
    out = tmp_path_factory.mktemp("fleet")
    result = write(out, "--seed", "7")
    assert result.returncode == 0, result.stderr
    assert "Simulated data" in result.stdout
    return out


@pytest.fixture(scope="module")
def table(folder: Path) -> Table:
    """Rows by resource and signal."""
    rows: Table = defaultdict(list)
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as lines:
            for row in csv.DictReader(lines):
                rows[row["resource"], row["signal"]].append(row)
    return rows


def floats(rows: list[Row]) -> list[float]:
    """The values of numeric rows."""
    return [float(row["value"]) for row in rows]


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    """The same seed gives the same bytes, and another seed does not."""
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        assert write(tmp_path / name, "--seed", seed, "--days", "1", "--every", "15m").returncode == 0

    first, again, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "abc"
    )

    assert first == again
    assert first != other


def test_size_stays_small(folder: Path) -> None:
    """A week takes less than 40 MB."""
    assert sum(path.stat().st_size for path in folder.iterdir()) < 40e6


@pytest.mark.parametrize("option", [("--every", "7m"), ("--every", "5"), ("--days", "0")])
def test_bad_options_are_told(tmp_path: Path, option: tuple[str, str]) -> None:
    """An interval that does not divide a day, or no day at all, ends with status 2 and a reason."""
    result = write(tmp_path, *option)

    assert result.returncode == 2
    assert option[0] in result.stderr


def test_every_row_fits_the_catalogue_and_says_simulated(table: Table) -> None:
    """Signals are known, sit on kinds that carry them, and no row hides that it is simulated."""
    signals = catalogue()
    for (_, name), rows in table.items():
        assert {row["label.origin"] for row in rows} == {"simulated"}
        assert {row["kind"] for row in rows} <= set(signals[name].resources)
        if signals[name].values:
            assert {row["value"] for row in rows} <= set(signals[name].values)


def test_thirty_two_gpus_until_the_last_instant(table: Table) -> None:
    """Each of 32 GPUs is looked at until the end of the week."""
    last = {
        resource
        for (resource, name), rows in table.items()
        if name == "gpu.power" and rows[-1]["time"] == LAST
    }

    assert len(last) == 32


def test_healthy_job_is_busy(table: Table) -> None:
    """The pre-training job never idles, and its steps go back once and then on."""
    assert min(floats(table["n1-g0", "gpu.utilization"])) > 0.7
    steps = floats(table["llm-pretrain", "train.step"])
    backwards = [late - early for early, late in pairwise(steps) if late < early]

    assert len(backwards) == 1
    assert steps[-1] == max(steps)


def test_G_3_works_first_and_idles_later(table: Table) -> None:
    """The search job works for more than a day, then holds memory and does nothing."""
    use = floats(table["n4-g0", "gpu.utilization"])
    memory = floats(table["n4-g0", "gpu.memory.used"])

    assert min(use[:288]) > 0.7
    assert max(use[-288:]) == 0
    assert min(memory[-90:]) > 60e9


def test_bursty_job_works_in_every_half_hour(table: Table) -> None:
    """The bursty job is idle in most looks but in no six in a row."""
    use = floats(table["n4-g3", "gpu.utilization"])

    assert sum(value < 0.05 for value in use) > len(use) / 2
    assert all(max(use[index : index + 6]) > 0.5 for index in range(len(use) - 5))


def test_G_29_hung_collective(table: Table) -> None:
    """Before the end a job shows full utilization at idle power, and its step stands still."""
    assert min(floats(table["n3-g2", "gpu.utilization"])[-60:]) == 1
    assert max(floats(table["n3-g2", "gpu.power"])[-60:]) < 0.35 * 700
    assert len(set(floats(table["moe-allreduce", "train.step"])[-60:])) == 1
    assert max(floats(table["n3-g2", "gpu.tensor_active"])[-20:]) == 0


def test_G_6_a_host_is_silent_for_five_hours(table: Table) -> None:
    """One host and all its GPUs say nothing for five hours; the others go on."""
    for resource, name in (("n4", "host.cpu.utilization"), ("n4-g1", "gpu.power")):
        assert len(table[resource, name]) == SLOTS - 60

    assert len(table["n1", "host.cpu.utilization"]) == SLOTS


def test_G_9_mig_has_power_but_no_utilization(table: Table) -> None:
    """A split GPU gives N/A for utilization while power and memory are numbers."""
    assert {row["value"] for row in table["n4-g6", "gpu.utilization"]} == {"N/A"}
    assert {row["value"] for row in table["n4-g6", "gpu.mig"]} == {"enabled"}
    assert min(floats(table["n4-g6", "gpu.power"])) > 50


def test_job_that_ended_holds_its_gpu(table: Table) -> None:
    """After the end of a job its GPU is still held and does nothing."""
    assert table["bert-finetune", "job.state"][-1]["value"] == "ended"
    assert floats(table["bert-finetune", "job.gpus_held"])[-1] == 1
    assert floats(table["bert-finetune", "job.since_end"])[-1] > 86400
    assert max(floats(table["n4-g2", "gpu.utilization"])[-288:]) == 0
    assert table["n4-g2", "gpu.power"][-1]["label.job"] == "bert-finetune"


def test_G_8_one_of_eight_is_idle(table: Table) -> None:
    """One GPU of an eight-GPU job never works while the seven others do."""
    assert max(floats(table["n2-g7", "gpu.utilization"])) == 0
    assert all(min(floats(table[f"n2-g{gpu}", "gpu.utilization"])) > 0.7 for gpu in range(7))


def test_diverged_loss_and_its_log(table: Table) -> None:
    """A loss becomes NaN and stays so, and at the same time its log floods."""
    losses = [row["value"] for row in table["audio-gan", "train.loss"]]
    rate = floats(table["audio-gan.log", "logs.rate"])

    assert set(losses[-288:]) == {"nan"}
    assert losses[0] != "nan"
    assert min(rate[-288:]) > 1e6 > max(rate[:288])
    assert table["audio-gan", "loss.verdict"][-1]["value"] == "non-finite"


def test_G_63_budget_at_85_percent_without_convergence(table: Table) -> None:
    """A job has used 85 % of its budget without converging; another one has converged first."""
    assert floats(table["llm-pretrain", "budget.used"])[-1] == pytest.approx(0.85)
    assert table["llm-pretrain", "loss.verdict"][-1]["value"] == "healthy"
    assert table["bert-finetune", "loss.verdict"][-1]["value"] == "converged"


def test_what_lies_about(table: Table) -> None:
    """A stale checkpoint, an orphaned volume, a volume out of inodes, and an oversized instance."""
    assert floats(table["vit-search/step-2000", "checkpoint.age"])[-1] > 30 * 86400
    assert floats(table["vit-search/step-2000", "checkpoint.newest"])[-1] == 0
    assert floats(table["vol-old-scratch", "storage.attachments"])[-1] == 0
    assert floats(table["vol-old-scratch", "storage.since_detached"])[-1] > 30 * 86400
    assert floats(table["vol-samples", "storage.inodes.utilization"])[-1] > 0.95
    assert max(floats(table["i-0ab3", "instance.cpu.utilization"])) < 0.2
    assert max(floats(table["i-0cd4", "instance.cpu.utilization"])) > 0.6


def test_retransmits_come_with_the_hang(table: Table) -> None:
    """The host of the hung job sends more than 1 % of its segments again; another host does not."""

    def share(host: str) -> float:
        again, sent = (floats(table[host, f"network.{name}"]) for name in ("retransmits", "segments_sent"))
        return (again[-1] - again[-7]) / (sent[-1] - sent[-7])

    assert share("n3") > 0.01 > share("n1")
    assert table["n3", "network.retransmits"][-1]["label.job"] == "moe-allreduce"
