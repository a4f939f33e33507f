"""What checkpoints look like: names, marker files, and headers that tell whole from cut short."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from stoploss.collectors.walking import read_unnoticed, words_of

WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")
"""Endings of files whose header can be read."""

SINGLE = (".pt", ".pth", ".ckpt", ".safetensors")
"""Endings of files that are checkpoints by themselves."""

PARTS = re.compile(
    r"(optimizer|scheduler|scaler|rng_state|random_states|training_args|.*_optim_states|.*_model_states)"
    r"[\w.-]*|.*-\d+-of-\d+\.[a-z]+|__\d+_\d+\.distcp"
)
"""Files that are only a part of a checkpoint."""

INDEX = re.compile(r".*\.(safetensors|bin)\.index(\.[\w-]+)?\.json")
"""Files that list the shards of a model."""

TRAINER_STATE = "trainer_state.json"

MARKERS = frozenset(
    {TRAINER_STATE, "random_states_0.pkl", ".metadata", "_SUCCESS", "COMPLETE", "COMPLETED", ".complete"}
)
"""Files that are written last, or nearly so."""

DEEPSPEED, MEGATRON = "latest", "latest_checkpointed_iteration.txt"
"""Files beside checkpoints that name the newest one that is whole."""

LONGEST_HEADER = 16 << 20
"""Bytes of a safetensors header or an index that are parsed."""

ZIP_TAIL = 65_557
"""Bytes at the end of a zip archive in which its directory ends."""

_UNFINISHED = re.compile(r"^\.?tmp[-_.]|[._-](?:tmp|incomplete|partial|saving)(?:[._-].*)?$")
_FOLDERS = (
    ("deepspeed", re.compile(r"global_step(\d+)")),
    ("megatron", re.compile(r"iter_(\d+)")),
    ("huggingface", re.compile(r"checkpoint-(\d+)")),
    ("lightning", re.compile(r"(?:.*step=(\d+).*|.*epoch=\d+.*|last(?:-v\d+)?)\.ckpt")),
    ("folder", re.compile(r"(?:(?:global_)?step|ckpt|checkpoint|iter|iteration)[-_=]?(\d+)")),
    ("folder", re.compile(r"epoch[-_=]?\d+(?:[-_](?:global_?)?step[-_=]?(\d+))?")),
)
_STEP = re.compile(r"(?:step|iter(?:ation)?)s?[-_=]?(\d+)", re.IGNORECASE)
_EPOCH = re.compile(r"epoch[-_=]?(\d+)", re.IGNORECASE)
_LAST = re.compile(r"(?:^|[-_.]|model|ckpt|checkpoint)(\d+)$")
_BEST = re.compile(rb'"best_model_checkpoint":\s*(null|"(?:[^"\\]|\\.)*")')


@dataclass(frozen=True, slots=True)
class Name:
    """What a name tells: the layout, the step or the epoch, and whether it says `unfinished`."""

    layout: str
    step: int | None = None
    epoch: int | None = None
    unfinished: bool = False


def folder(name: str) -> Name | None:
    """What the name of a folder tells, or None where it is no checkpoint's."""
    plain = _UNFINISHED.sub("", name)
    for layout, pattern in _FOLDERS:
        match = pattern.fullmatch(plain)
        if match is not None:
            step = int(match[1]) if match[1] else None
            epoch = _EPOCH.search(plain)
            return Name(layout, step, int(epoch[1]) if epoch else None, unfinished=plain != name)
    return None


def file(name: str) -> Name | None:
    """What the name of a file tells, or None where it is no checkpoint by itself."""
    plain = _UNFINISHED.sub("", name)
    if not plain.endswith(SINGLE) or PARTS.fullmatch(plain):
        return None
    stem, _, ending = plain.rpartition(".")
    layout = "safetensors" if ending == "safetensors" else "pytorch"
    if ending == "ckpt" and re.fullmatch(r"(?:.*[-_])?(?:epoch|step)=.*|last(?:-v\d+)?", stem):
        layout = "lightning"
    step, epoch = _STEP.search(stem), _EPOCH.search(stem)
    if step is None and epoch is None:
        step = _LAST.search(stem)
    return Name(
        layout, int(step[1]) if step else None, int(epoch[1]) if epoch else None, unfinished=plain != name
    )


def weights_problem(path: str, size: int) -> str | None:
    """What is wrong with a file of weights, judged by its header; None where nothing is.

    Raises:
        OSError: it cannot be read.
    """
    if size == 0:
        return "is empty"
    if path.endswith(".safetensors"):
        length = int.from_bytes(read_unnoticed(path, 8), "little")
        header = read_unnoticed(path, min(length, LONGEST_HEADER), 8) if length < size else b""
        return safetensors_problem(length, header, size)
    head = read_unnoticed(path, 4)
    if head != b"PK\x03\x04":
        return pickle_problem(head)
    if read_unnoticed(path, 22, -22).startswith(b"PK\x05\x06"):
        return None
    return None if b"PK\x05\x06" in read_unnoticed(path, ZIP_TAIL, -ZIP_TAIL) else "is cut short"


def pickle_problem(head: bytes) -> str | None:
    """What is wrong with a file of weights that is no zip archive, by its first bytes."""
    # Saved by an old PyTorch, or in its old format: a pickle, which does not tell its length.
    return None if head[:1] == b"\x80" else "has no header of PyTorch"


def safetensors_problem(length: int, header: bytes, size: int) -> str | None:
    """What is wrong with a safetensors file, by its header.

    Args:
        length: bytes of the header, as the file says.
        header: the header as far as it was read.
        size: bytes of the file.
    """
    if 8 + length > size:
        return "is cut short"
    if length > LONGEST_HEADER:
        return None if header.startswith(b"{") else "has no header of safetensors"
    try:
        tensors = json.loads(header)
        ends = [entry["data_offsets"][1] for name, entry in tensors.items() if name != "__metadata__"]
        data = max(ends, default=0)
        return "is cut short" if 8 + length + data > size else None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return "has no header of safetensors"


def index_shards(text: bytes) -> frozenset[str] | None:
    """The shards that an index lists, or None where it is none."""
    try:
        listed = json.loads(text)["weight_map"].values()
        # A shard lies beside its index; a path that leads elsewhere is none.
        return frozenset(str(name) for name in listed if "/" not in str(name))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def tracked(text: bytes) -> int | None:
    """The step that a file such as `latest` names, or None where it names none."""
    match = re.fullmatch(rb"\D*(\d{1,18})\s*", text)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class TrainerState:
    """What a trainer_state.json tells: its best checkpoint, if any, and what is wrong with the file."""

    best: str | None = None
    problem: str | None = None


def trainer_state(head: bytes, tail: bytes) -> TrainerState:
    """What a trainer_state.json tells, whose keys are sorted, by its beginning and its end."""
    if not tail.rstrip().endswith(b"}") or not head.lstrip().startswith(b"{"):
        return TrainerState(problem=f"{TRAINER_STATE} is cut short")
    match = _BEST.search(head)
    if match is None or match[1] == b"null":
        return TrainerState()
    try:
        return TrainerState(str(json.loads(match[1])).rstrip("/").rpartition("/")[2])
    except ValueError:
        return TrainerState()


def read_trainer_state(path: str) -> TrainerState:
    """What a trainer_state.json tells; one that cannot be read has that as its problem."""
    try:
        return trainer_state(read_unnoticed(path, 65_536), read_unnoticed(path, 16, -16))
    except OSError as error:
        return TrainerState(problem=f"{TRAINER_STATE}: {words_of(error)}")
