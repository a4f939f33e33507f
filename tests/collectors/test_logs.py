"""The logs collector: counting over rotation and truncation, shares, owners, and logs that fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.scenes import START, Scene, policy
from support.unprivileged import unprivileged

from stoploss.collectors import log_files
from stoploss.collectors.contract import CollectorError, Context
from stoploss.collectors.logs import FIRST_GAP, LogsCollector, build
from stoploss.collectors.logs_options import Options
from stoploss.engine.model import UNREADABLE, Bad, Look, Reading

AT = 2_000_000_000.0


class Machine:
    """Logs in a folder, a collector looking at them every minute, and what happens meanwhile."""

    def __init__(self, folder: Path, *patterns: str, **options: Any) -> None:
        self.folder = folder
        self.at = AT - 60
        self.slept: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None
        paths = [f"{folder}/{pattern}" for pattern in patterns or ("*.log",)]
        context = Context(hostname="n1", sleep=self.sleep)
        made = build(Options.model_validate({"paths": paths, **options}), context)
        assert isinstance(made, LogsCollector)
        self.collector = made

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.meanwhile()

    def write(self, name: str, data: str | bytes) -> None:
        """Append to a log."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data.encode() if isinstance(data, str) else data)

    def look(self) -> Look:
        """The next look, a minute later."""
        self.at += 60
        return self.collector.look(self.at)

    def seen(self, name: str = "a.log") -> dict[str, Reading]:
        """What the next look reads of one log."""
        return readings(self.look(), f"{self.folder}/{name}")


def readings(look: Look, path: str) -> dict[str, Reading]:
    return {item.signal: item.reading for item in look.samples if item.resource.id == f"n1:{path}"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def lines(count: int, text: str = "INFO step {}") -> str:
    return "".join(text.format(number) + "\n" for number in range(count))


def test_a_log_is_counted_from_look_to_look(machine: Machine) -> None:
    """Bytes and lines count what is there at first and what comes; the rate is of the last minute."""
    machine.write("a.log", "INFO one\nINFO two\n")
    first = machine.seen()
    machine.write("a.log", "x" * 599 + "\n")
    second = machine.seen()
    third = machine.seen()

    assert [seen["logs.bytes"] for seen in (first, second, third)] == [18.0, 618.0, 618.0]
    assert [seen["logs.lines"] for seen in (first, second, third)] == [2.0, 3.0, 3.0]
    assert [seen["logs.rate"] for seen in (first, second, third)] == [0.0, 10.0, 0.0]
    assert third["logs.size"] == 618.0


def test_the_first_look_knows_the_rate(machine: Machine) -> None:
    """A single look takes two readings one second apart, so it knows how fast a log grows."""
    machine.write("a.log", "INFO one\n")
    machine.meanwhile = lambda: machine.write("a.log", "x" * 500)

    seen = machine.seen()
    machine.seen()

    assert machine.slept == [FIRST_GAP]
    assert seen["logs.rate"] == 500.0
    assert seen["logs.bytes"] == 509.0


def test_a_log_that_is_new_has_no_rate_yet(machine: Machine) -> None:
    """What a log held when it was first found was not all written in the last minute."""
    machine.write("a.log", "INFO one\n")
    machine.look()
    machine.write("b.log", lines(100))

    assert machine.seen("b.log")["logs.rate"] == Bad("looked at only once so far")
    assert machine.seen("b.log")["logs.rate"] == 0.0


def test_a_renamed_log_goes_on_counting(machine: Machine) -> None:
    """After rotation the rest of the old file and all of the new one are added."""
    machine.write("a.log", lines(10))
    before = machine.seen()
    machine.write("a.log", "rest of the old\n")
    (machine.folder / "a.log").rename(machine.folder / "a.log.1")
    machine.write("a.log", "new\n")
    after = machine.seen()

    assert float(after["logs.bytes"]) - float(before["logs.bytes"]) == 20.0  # type: ignore[arg-type]
    assert float(after["logs.lines"]) - float(before["logs.lines"]) == 2.0  # type: ignore[arg-type]
    assert after["logs.size"] == float(sum(path.stat().st_size for path in machine.folder.iterdir()))


def test_a_truncated_log_never_counts_backwards(machine: Machine) -> None:
    """A log that was cut short adds what it holds now."""
    machine.write("a.log", lines(10))
    before = machine.seen()
    os.truncate(machine.folder / "a.log", 0)
    emptied = machine.seen()
    machine.write("a.log", "INFO again\n")
    after = machine.seen()

    assert emptied["logs.bytes"] == before["logs.bytes"]
    assert emptied["logs.rate"] == 0.0
    assert float(after["logs.bytes"]) - float(before["logs.bytes"]) == 11.0  # type: ignore[arg-type]
    assert float(after["logs.lines"]) == 11.0  # type: ignore[arg-type]


def test_a_rotated_file_is_no_log_of_its_own(tmp_path: Path) -> None:
    """Files that rotation has set aside belong to their log, also where the pattern fits them."""
    machine = Machine(tmp_path, "*.log*")
    for name in ("a.log", "a.log.1", "a.log-20260101.gz", "b.log.7"):
        machine.write(name, "INFO x\n")

    look = machine.look()

    assert {item.labels["path"] for item in look.samples if item.labels} == {
        f"{tmp_path}/a.log",
        f"{tmp_path}/b.log.7",
    }
    assert readings(look, f"{tmp_path}/a.log")["logs.size"] == 21.0


def test_shares_are_of_what_is_new(machine: Machine) -> None:
    """Shares are of the new lines, and stay while nothing is written; an empty log has none."""
    machine.write("a.log", "")
    empty = machine.seen()
    machine.write("a.log", "DEBUG x 1\nDEBUG x 2\nERROR y\nINFO z\n")
    first = machine.seen()
    quiet = machine.seen()
    machine.write("a.log", "INFO z\n")
    last = machine.seen()

    names = ("logs.debug_share", "logs.error_share", "logs.repeat_ratio")
    assert [empty[name] for name in names] == [0.0, 0.0, 0.0]
    assert [first[name] for name in names] == [quiet[name] for name in names] == [0.5, 0.25, 0.25]
    assert [last[name] for name in names] == [0.0, 0.0, 0.0]


def test_a_line_is_judged_when_it_has_its_end(machine: Machine) -> None:
    """A line that is written in two halves counts once, by the whole of it."""
    machine.write("a.log", "INFO a\nERR")
    first = machine.seen()
    machine.write("a.log", "OR b\n")
    second = machine.seen()

    assert (first["logs.lines"], first["logs.error_share"]) == (1.0, 0.0)
    assert (second["logs.lines"], second["logs.error_share"]) == (2.0, 1.0)


def test_of_much_text_a_sample_is_read(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a flood only the newest part is read, and the lines are estimated from it."""
    monkeypatch.setattr(log_files, "SAMPLE", 4096)
    machine.write("a.log", "x")
    machine.look()
    machine.write("a.log", "\n" + "DEBUG 0123456789 repeated\n" * 10_000)

    seen = machine.seen()

    assert seen["logs.bytes"] == 260_002.0
    assert seen["logs.lines"] == pytest.approx(10_000, rel=0.01)
    assert seen["logs.debug_share"] == 1.0
    assert float(seen["logs.repeat_ratio"]) > 0.99  # type: ignore[arg-type]


def test_a_huge_line_is_no_trouble(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line longer than a sample is counted when it ends."""
    monkeypatch.setattr(log_files, "SAMPLE", 1000)
    machine.write("a.log", "INFO a\n" + "x" * 50_000)
    first = machine.seen()
    machine.write("a.log", "x\nINFO b\n")
    second = machine.seen()

    assert first["logs.bytes"] == 50_007.0
    assert float(second["logs.lines"]) >= float(first["logs.lines"])  # type: ignore[arg-type]
    assert second["logs.bytes"] == 50_016.0


@pytest.mark.parametrize("data", ["INFO a\n".encode("utf-16"), b"\x7fELF\0\0\0\n\0", b"INFO a\n\0\0INFO b\n"])
def test_what_is_no_text_has_a_size_and_no_lines(machine: Machine, data: bytes) -> None:
    """A binary file or one in UTF-16 is a bad reading of its text alone; other logs are read."""
    machine.write("a.log", data)
    machine.write("b.log", b"INFO latin \xe9\xff\n")

    look = machine.look()

    seen = readings(look, f"{machine.folder}/a.log")
    assert seen["logs.bytes"] == float(len(data))
    assert seen["logs.lines"] == seen["logs.debug_share"] == Bad("holds NUL bytes, so it is no text")
    assert readings(look, f"{machine.folder}/b.log")["logs.lines"] == 1.0


def test_a_log_that_is_denied_costs_only_itself(open_folder: Path) -> None:
    """Without the right to read a log its text is a bad reading; its size and its neighbours are told."""
    machine = Machine(open_folder)
    machine.write("a.log", "INFO a\n")
    machine.write("b.log", "INFO b\n")
    (open_folder / "a.log").chmod(0o600 if os.geteuid() == 0 else 0)

    with unprivileged():
        look = machine.look()

    seen = readings(look, f"{open_folder}/a.log")
    assert seen["logs.size"] == 7.0
    assert seen["logs.lines"] == seen["logs.repeat_ratio"] == Bad("permission denied")
    assert readings(look, f"{open_folder}/b.log")["logs.lines"] == 1.0


def test_a_named_log_that_is_not_there_is_a_bad_reading(tmp_path: Path) -> None:
    """A path without signs is one log; while it is not there its readings are bad, and then it is read."""
    machine = Machine(tmp_path, "a.log")
    before = machine.seen()
    machine.write("a.log", "INFO a\n")
    after = machine.seen()

    assert before["logs.bytes"] == before["logs.rate"] == Bad("no such file or directory")
    assert after["logs.bytes"] == 7.0


def test_a_named_log_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """A path without signs below a missing folder is a bad reading, beside logs that are read."""
    machine = Machine(tmp_path, "gone/a.log", "*.log")
    machine.write("b.log", "INFO b\n")

    look = machine.look()

    assert readings(look, f"{tmp_path}/gone/a.log")["logs.bytes"] == Bad("no such file or directory")
    assert readings(look, f"{tmp_path}/b.log")["logs.bytes"] == 7.0


def test_a_log_cut_short_while_it_is_read(tmp_path: Path) -> None:
    """A file shorter than it was a moment ago gives what it holds."""
    path = tmp_path / "a.log"
    path.write_text("INFO a\n")

    assert log_files.Piece(str(path), 0, 5000).newest(1000) == (b"", 4000)
    assert log_files.Piece(str(path), 0, 5000).newest(9000) == (b"INFO a\n", 0)


def test_a_look_without_time_to_read_estimates_lines(machine: Machine) -> None:
    """When the time is up the bytes are still counted, and lines as they were per byte until then."""
    machine.write("a.log", lines(100, "0123456789"))
    log = log_files.Log(f"{machine.folder}/a.log")
    log.follow(lambda: False)
    machine.write("a.log", lines(50, "0123456789"))

    log.follow(lambda: True)

    assert (log.total, log.lines) == (1650, 150)


def test_a_pattern_that_fits_nothing_is_told(machine: Machine) -> None:
    """A pattern without a log makes a note; a folder that is not there is a failure."""
    assert machine.look().notes == (f"logs: {machine.folder}/*.log: no log fits",)
    with pytest.raises(CollectorError, match="no such file or directory"):
        Machine(machine.folder / "gone").look()


def test_a_log_that_is_removed_is_forgotten(machine: Machine) -> None:
    """A log found by a pattern is no longer told when it is gone."""
    machine.write("a.log", "INFO a\n")
    machine.write("b.log", "INFO b\n")
    machine.look()
    (machine.folder / "a.log").unlink()

    look = machine.look()

    assert {item.resource.id for item in look.samples} == {f"n1:{machine.folder}/b.log"}
    assert look.inventories == {"log"}


def test_a_named_pipe_is_no_log(tmp_path: Path) -> None:
    """A pipe in place of a log is not waited for."""
    machine = Machine(tmp_path, "a.log")
    os.mkfifo(tmp_path / "a.log")

    assert machine.seen()["logs.bytes"] == Bad("no regular file")


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("runs/*/x.log", ["runs/a/x.log", "runs/b/x.log"]),
        ("runs/**/x.log", ["runs/a/deep/er/x.log", "runs/a/x.log", "runs/b/x.log"]),
        ("runs/a/*", ["runs/a/x.log", "runs/a/y.out"]),
        ("runs/[ab]/?.out", ["runs/a/y.out"]),
        ("runs/a/**", ["runs/a/deep/er/x.log", "runs/a/x.log", "runs/a/y.out"]),
        ("runs/a/x.log", ["runs/a/x.log"]),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, fits: list[str]) -> None:
    """`*` stays within a name, `**` stands for any folders, and only what can fit is walked."""
    machine = Machine(tmp_path, pattern)
    for name in ("runs/a/x.log", "runs/a/deep/er/x.log", "runs/a/y.out", "runs/b/x.log", "x.log"):
        machine.write(name, "INFO\n")

    found = {str(item.labels["path"]) for item in machine.look().samples if item.labels}

    assert sorted(found) == [f"{tmp_path}/{name}" for name in fits]


def test_two_patterns_on_one_log_tell_it_once(tmp_path: Path) -> None:
    """A log that two patterns fit is one resource."""
    machine = Machine(tmp_path, "*.log", "a.*")
    machine.write("a.log", "INFO\n")

    look = machine.look()

    assert len([item for item in look.samples if item.signal == "logs.bytes"]) == 1


def test_folders_name_the_job(tmp_path: Path) -> None:
    """The option `job` says which folder names the job."""
    machine = Machine(tmp_path, "*/x.log", job=f"{tmp_path}/{{job}}")
    machine.write("run7/x.log", "INFO\n")

    [labels] = {tuple(sorted((item.labels or {}).items())) for item in machine.look().samples}  # type: ignore[type-var]

    assert dict(labels) == {"job": "run7", "host": "n1", "path": f"{tmp_path}/run7/x.log"}


def test_the_process_that_writes_names_the_job(machine: Machine) -> None:
    """A log belongs to the job of the process that writes it, also after that has ended."""
    machine.write("a.log", "")
    program = f"f = open({str(machine.folder / 'a.log')!r}, 'a'); print(flush=True); input()"
    environment = {**os.environ, "STOPLOSS_JOB": "run9"}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        during = machine.look().samples[0].labels
        process.communicate(b"\n")
    after = machine.look().samples[0].labels

    assert during is not None
    assert after is not None
    assert during["job"] == after["job"] == "run9"


def test_a_reader_does_not_own_a_log(machine: Machine) -> None:
    """A process that only reads a log is not its owner."""
    machine.write("a.log", "INFO\n")

    with (machine.folder / "a.log").open():
        labels = machine.look().samples[0].labels

    assert labels is not None
    assert labels["job"] in (None, UNREADABLE)


def test_the_last_write_is_told(machine: Machine) -> None:
    """The time since the newest line is that since the newest write, never below 0."""
    machine.write("a.log", "INFO\n")
    os.utime(machine.folder / "a.log", (AT, AT - 90))

    assert machine.seen()["logs.last_written"] == 90.0


@pytest.mark.parametrize(
    "options", [{}, {"paths": []}, {"paths": ["*.log"]}, {"paths": ["/a"], "job": "/runs"}]
)
def test_options_are_closed_and_typed(options: dict[str, object]) -> None:
    """No patterns, relative ones, and templates without a job are refused."""
    with pytest.raises(ValidationError):
        Options.model_validate(options)


def test_a_log_flood_is_named_with_its_rate(machine: Machine, scene: Scene) -> None:
    """A log that writes 2 MB a minute of one line fires, and its finding names log and rate."""
    table = ["time,resource,kind,signal,value"]
    for minute in range(1, 16):
        machine.write("a.log", f"WARNING retry {minute % 9} of 9\n" * 100_000)
        machine.write("b.log", f"INFO step {minute}\n")
        for item in machine.look().samples:
            if not isinstance(item.reading, Bad):
                row = (START + 60 * minute, item.resource.id, "log", item.signal, item.reading)
                table.append(",".join(map(str, row)))

    rules = policy(["rate(logs.bytes, 10m) > 20 kB/s", "avg(logs.repeat_ratio, 10m) > 80%"], each="log")
    [finding] = scene.audit(rules, "\n".join(table) + "\n")["findings"]

    assert finding["resource"]["id"] == f"n1:{machine.folder}/a.log"
    assert finding["evidence"][0]["value"] == pytest.approx(21 * 100_000 / 60)
