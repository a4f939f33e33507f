"""Finding formats by content, folders of many files, and input that is no log at all."""

from __future__ import annotations

import importlib
import os
import random
import socket
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoploss.collectors import training
from stoploss.collectors.training.reading import CHUNK
from stoploss.collectors.training.records import ReadProblem

SAMPLES = {
    "mllog": b'0: :::MLLOG {"time_ms": 1700000000000, "key": "eval_accuracy", "value": 0.5}\n',
    "hf_state": b'{\n  "epoch": 1.0,\n  "log_history": [\n    {"loss": 1.5, "step": 1}\n  ]\n}',
    "hf_stdout": b"{'loss': 1.5, 'grad_norm': nan, 'epoch': 0.5}\n",
    "megatron": b" iteration       10/    100 | lm loss: 2.0E+00 | grad norm: 0.5 |\n",
    "jsonl": b'{"step": 1, "loss": NaN}\n{"step": 2, "loss": 1.5}\n',
    "lightning_csv": b"epoch,step,train_loss,val_loss\n0,9,1.5,\n0,9,,2.5\n",
    "generic_csv": b"step , loss\n1 , 1.5\n",
    "mlflow": b"1700000000000 1.5 1\n1700000001000 nan 2\n",
    "keyvalue": b"step:1/10 train_loss:1.5 train_time:10ms step_avg:nanms\n",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_formats_are_found_by_content(name: str) -> None:
    """Each format is told from the others by a few lines."""
    assert training.detect(SAMPLES[name]) == name


@pytest.mark.parametrize("name", SAMPLES)
def test_a_byte_order_mark_changes_nothing(name: str) -> None:
    """A mark of UTF-8 at the beginning hides no format."""
    assert training.detect(b"\xef\xbb\xbf" + SAMPLES[name]) == name


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"\n\n",
        b"hello world\n",
        b'{"name": "package", "version": "1.0"}\n',
        b'{"lr": 0.001, "batch_size": 8}\n',
        b'{"text": "the loss was great", "label": 1}\n',
        b"name,size\na,1\n",
        b"step,name\n1,a\n",
        b"\x7fELF\x02\x01\x01" + b"\0" * 40,
        b"\x80\x02}q\0." * 10,
        b"import torch\nloss = model(x)\nfor step in range(10): pass\n",
        b"10 20 30\n",
    ],
)
def test_other_files_are_none_of_ours(other: bytes) -> None:
    """Text, data sets, code and binaries are no training logs."""
    assert training.detect(other) is None


def test_a_long_preamble_hides_no_log(tmp_path: Path) -> None:
    """Records are found after some hundred kilobytes of other text."""
    path = tmp_path / "log"
    path.write_bytes(b"loading a shard of the data set\n" * 10_000 + SAMPLES["megatron"])

    (log,) = training.read(path)

    assert log.format == "megatron"


def test_a_folder_gives_all_it_can(tmp_path: Path) -> None:
    """Every log in a folder and below is read, each with a name of its own; all else is passed over."""
    for index, data in enumerate(SAMPLES.values()):
        folder = tmp_path / f"run{index}" / "metrics"
        folder.mkdir(parents=True)
        (folder / "loss").write_bytes(data)
    (tmp_path / "weights.bin").write_bytes(random.Random(1).randbytes(5000))
    (tmp_path / "empty.log").touch()
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    problems: list[ReadProblem] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))

        logs = training.read(tmp_path, problems=problems)

    assert {log.format for log in logs} == set(SAMPLES)
    assert len({log.run for log in logs}) == len(logs)
    assert problems == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.touch(), "empty"),
        (lambda path: path.write_text("hello\n"), "no known format"),
        (lambda path: path.mkdir(), "no training log among 0 files"),
        (lambda path: os.mkfifo(path), "no file"),
        (lambda path: path.symlink_to(path), "no file"),
    ],
    ids=["missing", "empty", "unknown", "empty folder", "pipe", "link to itself"],
)
def test_what_is_no_log_is_a_problem_and_no_error(tmp_path: Path, make, words: str) -> None:
    """A path without a log is told with its reason."""
    path = tmp_path / "x"
    make(path)
    problems: list[ReadProblem] = []

    assert training.read(path, problems=problems) == ()
    assert [problem.path for problem in problems] == [str(path)]
    assert words in problems[0].message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can lend a file to nobody")
def test_a_file_without_rights_is_a_problem() -> None:
    """A file that may not be read is told with its reason, and the others are read."""
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[2])\n"
        "from stoploss.collectors import training\n"
        # Modules are loaded where needed, which nobody may not.
        "training.read(sys.argv[1]); os.seteuid(65534)\n"
        "problems = []\n"
        "print(len(training.read(sys.argv[1], problems=problems)), problems[0].message)\n"
    )
    source = str(Path(__file__).parents[2] / "src")
    # A folder of its own: the test runner's folders let nobody through.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "good").write_bytes(SAMPLES["jsonl"])
        (folder / "secret").write_bytes(SAMPLES["jsonl"])
        (folder / "secret").chmod(0)
        done = subprocess.run([sys.executable, "-c", code, name, source], capture_output=True, text=True)

    assert done.stdout == "1 permission denied\n", done.stderr


def test_progress_is_told(tmp_path: Path) -> None:
    """Whoever waits is told the bytes that are read, up to all of them."""
    (tmp_path / "a").write_bytes(SAMPLES["jsonl"] * 10_000)
    told: list[tuple[int, int]] = []

    training.read(tmp_path, progress=lambda done, total: told.append((done, total)))

    size = len(SAMPLES["jsonl"]) * 10_000
    assert told[0] == (CHUNK, size)
    assert told[-1] == (size, size)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("jsonl", 1 << 25),
        ("hf_state", 1 << 25),
        ("keyvalue", 1 << 25),
        ("generic_csv", 1 << 25),
        pytest.param("jsonl", 1 << 30, marks=pytest.mark.slow),
    ],
)
def test_a_huge_line_takes_little_memory(tmp_path: Path, name: str, size: int) -> None:
    """A file of one line of up to a gigabyte is read with bounded memory, up to where it is sound."""
    path = tmp_path / "x"
    head = {"hf_state": b'{"log_history": [{"step": 1, "loss": 2.5}, "'}.get(name, SAMPLES[name])
    path.write_bytes(head)
    with path.open("ab") as file:
        file.write(b"a" * (1 << 20))
        file.truncate(size)
    tracemalloc.start()
    try:
        (log,) = training.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert log.curves["train.loss"].values[-1] in (1.5, 2.5)
    assert log.notes != ()
    assert peak < 32 << 20


@pytest.mark.parametrize("name", list(training.READERS))
@settings(max_examples=25, deadline=None)
@given(data=st.binary(max_size=300), cut=st.integers(0, 200))
def test_no_bytes_stop_a_reader(name: str, data: bytes, cut: int) -> None:
    """Random bytes, alone or behind the beginning of a real log, raise nothing in any reader."""
    reader = importlib.import_module(training.READERS[name]).READER("loss")
    reader.feed(SAMPLES.get(name, b"")[:cut] + data)
    reader.feed(data)
    reader.end()
    reader.restart()
    reader.feed(data)

    assert all(len(record) == 5 for record in reader.take())


ODD = st.sampled_from(
    ["nan", "-inf", "1e999", "9" * 400, " ", "{}", "[", '"', "'", "\\", "\x00", "\ufffd", "{'", "1_0", "٣"]
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), st.lists(st.tuples(st.integers(0, 80), ODD), min_size=1, max_size=4))
def test_odd_values_in_real_logs_stop_nothing(name: str, changes: list[tuple[int, str]]) -> None:
    """A log with odd text put into it is read, or is not known any more; it raises nothing."""
    data = bytearray(SAMPLES[name] * 3)
    for at, text in changes:
        data[at:at] = text.encode()
    pieces = [bytes(data)]
    reader = training.reader_for(pieces)
    if reader is not None:
        reader.feed(bytes(data))
        reader.end()

        assert all(isinstance(record.value, float) for record in reader.take())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_pieces_do_not_matter(name: str, sizes: list[int]) -> None:
    """A log that comes in pieces of any sizes gives the records of the whole."""
    data = SAMPLES[name] * (1 if name == "hf_state" else 4)
    whole, parts = training.reader_for([data]), training.reader_for([data])
    assert whole is not None
    assert parts is not None
    whole.feed(data)
    at = 0
    for size in sizes:
        parts.feed(data[at : at + size])
        at += size
    parts.feed(data[at:])
    whole.end()
    parts.end()

    assert list(map(str, parts.take())) == list(map(str, whole.take()))
    assert parts.facts == whole.facts


def test_zeros_in_a_torn_log_are_passed_over(tmp_path: Path) -> None:
    """Zeros that a crash left in the middle of a text spoil the line that they are in, and no other."""
    path = tmp_path / "log"
    path.write_bytes(SAMPLES["jsonl"] * 20 + b"\0" * 50 + SAMPLES["jsonl"] * 20)

    (log,) = training.read(path)

    assert len(log.curves["train.loss"].values) == 79


def test_logs_of_one_stem_have_names_of_their_own(tmp_path: Path) -> None:
    """Two logs in a folder that differ only in their endings are not given one name."""
    (tmp_path / "metrics.csv").write_bytes(SAMPLES["generic_csv"])
    (tmp_path / "metrics.jsonl").write_bytes(SAMPLES["jsonl"])

    assert {log.run for log in training.read(tmp_path)} == {"metrics.csv", "metrics.jsonl"}


@pytest.mark.parametrize(
    "line",
    [
        "valid loss at " * 70_000,
        "iteration " * 100_000,
        "iteration" + " " * 1_000_000,
        "{'loss'" * 140_000,
        "{'loss':" + " " * 1_000_000,
        "train " * 170_000,
        "iteration 1/ 2 | lm loss: 1 a" + " " * 1_000_000 + "b",
        "a" * 1_000_000,
        "[" * 1_000_000,
        '{"a":' * 200_000,
        '"' * 1_000_000,
        ":::MLLOG " + "{" * 1_000_000,
    ],
    ids=lambda line: line[:24],
)
def test_no_line_takes_long(line: str) -> None:
    """A line that is made to keep readers busy is done with in no more than its length."""
    for module in map(importlib.import_module, training.READERS.values()):
        reader = module.READER("loss")
        reader.feed(SAMPLES.get(module.NAME, b""))
        reader.feed(line.encode() + b"\n")
        module.fits(line[:65536].encode(), [line[:65536]])

        assert len(reader.take()) < 10
