"""Names, markers and headers of checkpoints: whole, cut short and garbage."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoploss.collectors import checkpoint_layouts as layouts
from stoploss.collectors.checkpoint_layouts import Name, TrainerState

CUT = TrainerState(problem="trainer_state.json is cut short")


def safetensors(data: int, header: dict[str, object] | None = None) -> bytes:
    """A file of safetensors whose only tensor takes `data` bytes."""
    entry = {"dtype": "F32", "shape": [data // 4], "data_offsets": [0, data]}
    text = json.dumps({"w": entry, "__metadata__": {"a": "b"}} if header is None else header).encode()
    return struct.pack("<Q", len(text)) + text + b"\0" * data


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("checkpoint-500", Name("huggingface", 500)),
        ("global_step1200", Name("deepspeed", 1200)),
        ("iter_0000100", Name("megatron", 100)),
        ("epoch=3-step=400.ckpt", Name("lightning", 400, 3)),
        ("step-900", Name("folder", 900)),
        ("epoch_2", Name("folder", None, 2)),
        ("ckpt_7", Name("folder", 7)),
        ("tmp-checkpoint-500", Name("huggingface", 500, unfinished=True)),
        ("iter_0000100.tmp", Name("megatron", 100, unfinished=True)),
        ("checkpoint-5.orbax-checkpoint-tmp-17", None),
        ("checkpoints", None),
        ("stepwise-3", None),
        ("step-", None),
    ],
)
def test_folders_are_known_by_their_names(name: str, told: Name | None) -> None:
    """A folder's name tells layout and step, with leading zeros as a number; others are no checkpoint."""
    assert layouts.folder(name) == told


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("model_100.pt", Name("pytorch", 100)),
        ("ckpt-00900.pth", Name("pytorch", 900)),
        ("epoch=3-step=400.ckpt", Name("lightning", 400, 3)),
        ("epoch=3-step=400-v1.ckpt", Name("lightning", 400, 3)),
        ("last.ckpt", Name("lightning")),
        ("model_epoch_10.pt", Name("pytorch", None, 10)),
        ("model.safetensors", Name("safetensors")),
        ("step_20.safetensors", Name("safetensors", 20)),
        ("llama3.pt", Name("pytorch")),
        ("model_100.pt.tmp", Name("pytorch", 100, unfinished=True)),
        ("optimizer.pt", None),
        ("rng_state_0.pth", None),
        ("model-00001-of-00005.safetensors", None),
        ("mp_rank_00_model_states.pt", None),
        ("notes.txt", None),
    ],
)
def test_files_are_known_by_their_names(name: str, told: Name | None) -> None:
    """A file's name tells layout, step or epoch; parts of checkpoints are none by themselves."""
    assert layouts.file(name) == told


def problem(path: Path, data: bytes) -> str | None:
    path.write_bytes(data)
    return layouts.weights_problem(str(path), len(data))


def test_a_zip_that_is_cut_short_is_seen(tmp_path: Path) -> None:
    """A PyTorch file is whole when its archive has its end, also behind a comment."""
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"x" * 5000)
    data = path.read_bytes()
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"comment"

    assert layouts.weights_problem(str(path), path.stat().st_size) is None
    assert problem(path, data) is None
    assert problem(path, data[:-30]) == "is cut short"
    assert problem(path, b"") == "is empty"
    assert problem(path, b"\x80\x02}q\x00.") is None
    assert problem(path, b"<html>") == "has no header of PyTorch"


def test_a_safetensors_file_that_is_cut_short_is_seen(tmp_path: Path) -> None:
    """A safetensors file is whole when its header can be read and all its data is there."""
    path = tmp_path / "a.safetensors"
    data = safetensors(400)

    assert problem(path, data) is None
    assert problem(path, data[:-1]) == "is cut short"
    assert problem(path, data[:20]) == "is cut short"
    assert problem(path, data[:5]) == "is cut short"
    assert problem(path, safetensors(0, {})) is None
    assert problem(path, struct.pack("<Q", 4) + b"abcdefgh") == "has no header of safetensors"
    assert problem(path, safetensors(8, {"w": {"shape": [1]}})) == "has no header of safetensors"


@given(st.binary(max_size=200))
def test_garbage_is_a_problem_and_never_an_error(data: bytes) -> None:
    """Whatever bytes stand where a header should be, the answer is words."""
    length = int.from_bytes(data[:8], "little")

    said = layouts.safetensors_problem(length, data[8 : 8 + length], len(data))

    assert said is None or said in ("is cut short", "has no header of safetensors")
    assert layouts.index_shards(data) is None
    layouts.tracked(data)
    assert layouts.trainer_state(data, data).best is None


def test_an_index_lists_its_shards() -> None:
    """The shards of an index are those that its map names, each once."""
    text = json.dumps({"metadata": {}, "weight_map": {"a": "m-1.bin", "b": "m-2.bin", "c": "m-1.bin"}})

    assert layouts.index_shards(text.encode()) == {"m-1.bin", "m-2.bin"}
    assert layouts.index_shards(text[:-9].encode()) is None


@pytest.mark.parametrize(
    ("text", "step"),
    [(b"global_step1200", 1200), (b"0000300\n", 300), (b"release", None), (b"", None), (b"a1b2", None)],
)
def test_trackers_name_a_step(text: bytes, step: int | None) -> None:
    """A tracker names a step, or nothing that is one."""
    assert layouts.tracked(text) == step


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"best_model_checkpoint": "/o/checkpoint-500/", "z": []}', TrainerState("checkpoint-500")),
        ('{"best_model_checkpoint": null, "log_history": [{"loss": NaN}]}', TrainerState()),
        ('{"epoch": 1}\n', TrainerState()),
        ('{"best_model_checkpoint": "checkpoint-5", "log_his', CUT),
        ("", CUT),
    ],
)
def test_trainer_state_names_the_best(text: str, told: TrainerState) -> None:
    """The best checkpoint is known by its own name, and a file cut short is a problem."""
    assert layouts.trainer_state(text.encode(), text.encode()[-16:]) == told
