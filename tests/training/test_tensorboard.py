"""Event files, as tensorboardX writes them and as others do."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest

from stoploss.collectors import training
from stoploss.collectors.training.tensorboard import EventReader, masked_crc

writers = pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")


def frame(event: bytes, *, crc: bool = True) -> bytes:
    """An event with its length and checksums."""
    length = struct.pack("<Q", len(event))
    sums = (masked_crc(length), masked_crc(event)) if crc else (0, 0)
    return length + struct.pack("<I", sums[0]) + event + struct.pack("<I", sums[1])


def message(number: int, body: bytes) -> bytes:
    """A field that holds bytes shorter than 128."""
    return bytes([number << 3 | 2, len(body)]) + body


def tensor_event(step: int, tag: str, tensor: bytes, time: float = 1.7e9) -> bytes:
    """An event with one scalar as a tensor."""
    value = message(1, tag.encode()) + message(8, tensor)
    return b"\x09" + struct.pack("<d", time) + bytes([0x10, step]) + message(5, message(1, value))


def written(folder: Path) -> Path:
    """The file of a run that tensorboardX wrote."""
    with writers.SummaryWriter(str(folder)) as writer:
        for step in range(5):
            writer.add_scalar("train/loss", 5 - step, step, walltime=1_700_000_000 + step)
            writer.add_scalar("train/learning_rate", 0.5, step)
            writer.add_histogram("weights", [1.0, 2.0, 3.0], step)
        writer.add_scalar("eval/loss", math.nan, 4)
        writer.add_text("note", "hello", 4)
    (path,) = folder.iterdir()
    return path


def test_scalars_that_tensorboardx_wrote(tmp_path: Path) -> None:
    """Scalars come with steps, times and values that are not numbers; pictures and texts are passed over."""
    (log,) = training.read(written(tmp_path / "run"))

    assert log.format == "tensorboard"
    assert list(log.curves["train.loss"].values) == [5, 4, 3, 2, 1]
    assert list(log.curves["train.loss"].steps) == [0, 1, 2, 3, 4]
    assert log.curves["train.loss"].times[1] == 1_700_000_001
    assert list(log.curves["train.lr"].values) == [0.5] * 5
    assert math.isnan(log.curves["eval.loss"].values[0])
    assert log.notes == ()


@pytest.mark.parametrize(
    "tensor",
    [
        b"\x08\x01" + message(4, struct.pack("<f", 2.5)),
        b"\x08\x02" + message(4, struct.pack("<d", 2.5)),
        b"\x08\x01" + message(2, b"") + message(5, struct.pack("<f", 2.5)),
        b"\x08\x01" + b"\x2d" + struct.pack("<f", 2.5),
        b"\x08\x02" + message(6, struct.pack("<d", 2.5)),
        b"\x08\x13" + message(4, struct.pack("<e", 2.5)),
    ],
    ids=["float content", "double content", "packed float", "single float", "packed double", "half content"],
)
@pytest.mark.parametrize("crc", [True, False])
def test_scalars_as_tensors(read_text, tensor: bytes, crc: bool) -> None:
    """A scalar may be a tensor of one number in any of its spellings, with or without checksums."""
    (log,) = read_text(frame(tensor_event(7, "loss", tensor), crc=crc))

    assert (log.curves["train.loss"].steps[0], log.curves["train.loss"].values[0]) == (7, 2.5)


def test_negative_and_large_steps(read_text) -> None:
    """A step is a signed number of 64 bits."""
    event = b"\x09" + struct.pack("<d", 1.7e9) + b"\x10" + b"\xff" * 9 + b"\x01"
    value = message(1, b"loss") + b"\x15" + struct.pack("<f", 1.0)
    (log,) = read_text(frame(event + message(5, message(1, value))))

    assert list(log.curves["train.loss"].steps) == [-1]


def test_every_cut_gives_the_whole_events_before_it(tmp_path: Path) -> None:
    """A file that is cut off anywhere gives the events that are whole, and none twice when it goes on."""
    data = written(tmp_path / "run").read_bytes()
    whole = EventReader()
    whole.feed(data)
    expected = [str(record) for record in whole.take()]
    for cut in range(0, len(data), 13):
        reader = EventReader()
        reader.feed(data[:cut])
        first = [str(record) for record in reader.take()]
        reader.feed(data[cut:])

        assert first == expected[: len(first)]
        assert first + [str(record) for record in reader.take()] == expected


def test_damage_ends_the_file_with_a_note(tmp_path: Path) -> None:
    """What comes before a damaged length is read, and a note says where the damage is."""
    path = written(tmp_path / "run")
    good = path.read_bytes()
    path.write_bytes(good + b"\x17" * 40)

    (log,) = training.read(path)

    assert list(log.curves["train.loss"].values) == [5, 4, 3, 2, 1]
    assert log.notes == (f"damaged at byte {len(good):,}; what follows was left out",)


def test_event_files_of_one_folder_are_one_run(tmp_path: Path) -> None:
    """A resumed run writes another file beside the first; both are one curve in order of their names."""
    loss = b"\x08\x01" + message(4, struct.pack("<f", 2.5))
    for index in (1, 2):
        body = frame(tensor_event(index, "loss", loss))
        (tmp_path / f"events.out.tfevents.{index}").write_bytes(body)

    (log,) = training.read(tmp_path)

    assert list(log.curves["train.loss"].steps) == [1, 2]


def test_training_and_validation_in_folders_of_their_own(tmp_path: Path) -> None:
    """Writers that keep both apart in folders use one tag for both, and the folder tells them apart."""
    for name, value in (("train", 2.5), ("validation", 3.5)):
        (tmp_path / "run" / name).mkdir(parents=True)
        tensor = b"\x08\x01" + message(4, struct.pack("<f", value))
        (tmp_path / "run" / name / "events.v2").write_bytes(frame(tensor_event(1, "epoch_loss", tensor)))

    (log,) = training.read(tmp_path)

    assert log.run == "run"
    assert (log.curves["train.loss"].values[0], log.curves["eval.loss"].values[0]) == (2.5, 3.5)
