"""Following a log that grows, is truncated, rotated, replaced or half written."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoploss.collectors import training
from stoploss.collectors.training.tail import Tail
from stoploss.engine.model import TrainingLog


def row(step: int, loss: float | None = None) -> str:
    """A line of JSON."""
    return json.dumps({"step": step, "loss": float(step if loss is None else loss)}) + "\n"


def rows(steps: Iterable[int]) -> str:
    """Lines of JSON."""
    return "".join(map(row, steps))


def steps(tail: Tail) -> list[int]:
    """The steps of the records that are new."""
    return [int(record.step) for record in tail.feed()]


def all_steps(tail: Tail) -> list[int]:
    """The steps of all that was given, as the logs have them."""
    return [int(step) for log in tail.logs() for step in log.curves["train.loss"].steps]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of three steps."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(rows([1, 2, 3]))
    return path


def append(path: Path, text: str) -> None:
    """Go on writing."""
    with path.open("a") as file:
        file.write(text)


def test_a_log_that_grows_gives_each_record_once(path: Path) -> None:
    """Only what is new is given; a look at an unchanged file gives nothing."""
    tail = Tail(path)

    assert steps(tail) == [1, 2, 3]
    assert steps(tail) == []
    append(path, rows([4, 5]))
    assert steps(tail) == [4, 5]
    assert all_steps(tail) == [1, 2, 3, 4, 5]


def test_a_half_written_line_waits(path: Path) -> None:
    """A line without its end is not read before the rest has come."""
    tail = Tail(path)
    tail.feed()
    append(path, row(4)[:14])

    assert steps(tail) == []
    append(path, row(4)[14:] + row(5))
    assert steps(tail) == [4, 5]


def test_a_half_written_character_waits(tmp_path: Path) -> None:
    """A character of several bytes may be cut in the middle."""
    path = tmp_path / "log"
    line = '{"step": 1, "loss": 2.0, "note": "größe"}\n'.encode()
    cut = line.index("ö".encode()) + 1
    path.write_bytes(row(0).encode() + line[:cut])
    tail = Tail(path)

    assert steps(tail) == [0]
    path.write_bytes(row(0).encode() + line)
    assert steps(tail) == [1]
    assert tail.logs()[0].notes == ("fields not read: note",) or tail.logs()[0].notes == ()


def test_a_log_that_is_not_there_yet(tmp_path: Path) -> None:
    """A missing file, an empty one and one of no known format are problems that pass."""
    path = tmp_path / "log"
    tail = Tail(path)

    assert steps(tail) == []
    assert tail.problem == "no such file or directory"
    path.touch()
    assert steps(tail) == []
    assert tail.problem == "the file is empty"
    path.write_text("starting\n")
    assert steps(tail) == []
    assert tail.problem == "no known format of training log yet"
    append(path, rows([1]))
    assert steps(tail) == [1]
    assert tail.problem is None


def test_a_rotated_log_goes_on(path: Path) -> None:
    """What was written before the file was moved away is read, and then the new file."""
    tail = Tail(path)
    tail.feed()
    append(path, rows([4]))
    path.rename(path.with_suffix(".1"))
    path.write_text(rows([5, 6]))

    assert steps(tail) == [4, 5, 6]
    append(path, rows([7]))
    assert steps(tail) == [7]
    assert all_steps(tail) == [1, 2, 3, 4, 5, 6, 7]
    assert len(tail.logs()) == 1


def test_a_truncated_log_goes_on(path: Path) -> None:
    """A file that was emptied and written again goes on in the same run."""
    tail = Tail(path)
    tail.feed()
    path.write_text(rows([4]))

    assert steps(tail) == [4]
    path.write_text("")
    assert steps(tail) == []
    append(path, rows(range(5, 30)))
    assert steps(tail) == list(range(5, 30))


def test_a_log_that_was_cut_back_gives_only_what_is_new(path: Path) -> None:
    """A file that is cut back to an earlier step gives the redone steps, and not those before them."""
    tail = Tail(path)
    tail.feed()
    path.write_text(rows([1, 2]))

    assert steps(tail) == []
    append(path, row(3, 3.5) + row(4))
    assert steps(tail) == [3, 4]
    assert all_steps(tail) == [1, 2, 3, 3, 4]


def test_a_copy_put_in_place_of_the_log_is_known_again(path: Path) -> None:
    """A longer copy under the same name, as a synchronisation makes it, gives only what is new."""
    tail = Tail(path)
    tail.feed()
    copy = path.with_suffix(".tmp")
    copy.write_text(rows([1, 2, 3, 4]))
    os.replace(copy, path)

    assert steps(tail) == [4]


def test_a_table_that_is_written_anew_with_more_columns(tmp_path: Path) -> None:
    """A table that is written again from its beginning with another header gives only what is new."""
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n1,5\n2,4\n")
    tail = Tail(path)
    tail.feed()
    path.write_text("step,loss,lr\n1,5,\n2,4,\n3,3,0.1\n")

    assert [(record.signal, record.step) for record in tail.feed()] == [("train.loss", 3), ("train.lr", 3)]


def test_a_state_that_is_saved_again_gives_its_new_rows(tmp_path: Path) -> None:
    """A document that is written whole each time, also when it is found half written, gives new rows once."""
    path = tmp_path / "trainer_state.json"

    def state(count: int) -> str:
        history = [{"step": step, "loss": 9.0 - step} for step in range(1, count + 1)]
        return json.dumps({"log_history": history, "max_steps": 9})

    path.write_text(state(2))
    tail = Tail(path)

    assert steps(tail) == [1, 2]
    path.write_text(state(4)[:95])
    assert steps(tail) == [3]
    path.write_text(state(4))
    assert steps(tail) == [4]
    assert all_steps(tail) == [1, 2, 3, 4]
    assert tail.logs()[0].facts == {"total_steps": 9}


def test_events_that_are_half_written_wait(tmp_path: Path) -> None:
    """Event files are followed by whole events, also where their room was reserved with zeros."""
    writers = pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    with writers.SummaryWriter(str(tmp_path / "run")) as writer:
        for step in range(4):
            writer.add_scalar("loss", step, step)
    (source,) = (tmp_path / "run").iterdir()
    data = source.read_bytes()
    path = tmp_path / "events"
    tail = Tail(path)
    given = []
    for cut in (len(data) // 3, len(data) // 2, len(data) - 5):
        path.write_bytes(data[:cut] + b"\0" * (len(data) - cut))
        given += steps(tail)
    path.write_bytes(data)

    assert given + steps(tail) == [0, 1, 2, 3]


def test_a_large_log_is_read_over_several_looks(path: Path) -> None:
    """A look reads no more than it is allowed to, and the next goes on."""
    path.write_text(rows(range(200)))
    tail = Tail(path)
    looks = []
    while records := tail.feed(limit=1000):
        looks.append(len(records))

    assert sum(looks) == 200
    assert max(looks) < 60


def test_money_is_counted_on_over_a_rotation(tmp_path: Path) -> None:
    """What a log declares so far is not forgotten when its file is rotated."""
    path = tmp_path / "log"
    path.write_text('{"step": 1, "loss": 1, "usd": 2.0}\n')
    tail = Tail(path)
    tail.feed()
    path.rename(tmp_path / "log.1")
    path.write_text('{"step": 2, "loss": 1, "usd": 0.5}\n')
    tail.feed()

    assert tail.logs()[0].facts["cost"] == 2.5


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["grow", "half", "rotate", "copy", "look"]), max_size=25))
def test_whatever_happens_each_record_is_given_once(
    tmp_path_factory: pytest.TempPathFactory, what: list[str]
) -> None:
    """Growing, half-written lines, rotations and copies in any order give every record once and in order."""
    folder = tmp_path_factory.mktemp("tail")
    path = folder / "log"
    path.write_text(row(0))
    tail, given, step, rotations, waiting = Tail(path), [], 1, 0, ""
    for action in [*what, "grow", "look"]:
        if action in ("grow", "half"):
            text = waiting + row(step)
            cut = len(text) if action == "grow" else len(text) - 7
            append(path, text[:cut])
            waiting, step = text[cut:], step + 1
        elif action == "rotate":
            append(path, waiting)
            given += steps(tail)
            rotations += 1
            path.rename(folder / f"log.{rotations}")
            path.write_text(row(step))
            waiting, step = "", step + 1
        elif action == "copy":
            (folder / "copy").write_bytes(path.read_bytes())
            os.replace(folder / "copy", path)
        else:
            given += steps(tail)

    assert given == list(range(step))


def test_the_last_line_of_a_finished_log_needs_no_end(path: Path) -> None:
    """Once nothing more is written the last line is read without its end, once."""
    append(path, row(4).rstrip())
    tail = Tail(path)

    assert steps(tail) == [1, 2, 3]
    assert [record.step for record in tail.end()] == [4]
    assert tail.end() == ()


def test_another_kind_of_log_under_the_old_name(path: Path) -> None:
    """A file that is replaced by a log of another format is a new log."""
    tail = Tail(path)
    tail.feed()
    path.write_text("step,loss\n7,5\n")

    assert steps(tail) == [7]
    assert (tail.format, all_steps(tail)) == ("generic_csv", [7])


SHARED = Path(__file__).parents[3] / "shared" / "data" / "loss"
REAL = sorted(path for path in SHARED.glob("*/*") if path.stat().st_size < 100_000)


@pytest.mark.skipif(not REAL, reason="the real logs are not on this machine")
def test_real_logs_that_grow_are_read_as_those_that_are_there(tmp_path: Path) -> None:
    """Every real log, written bit by bit and followed, tells in the end what it tells when read at once."""
    chance = random.Random(5)
    for index, source in enumerate(REAL):
        data, at = source.read_bytes(), 0
        path = tmp_path / str(index) / source.name
        path.parent.mkdir()
        tail = Tail(path)
        while at < len(data):
            at += chance.randint(1, len(data) // 5 + 2)
            path.write_bytes(data[:at])
            tail.feed()
        tail.end()

        assert [told(log) for log in tail.logs()] == [told(log) for log in training.read(source)]


def told(log: TrainingLog) -> str:
    """All that a log holds, in an order of its own."""
    return f"{log.run} {log.format} {sorted(log.facts.items())} {sorted(log.curves.items())} {log.notes}"
