"""Checkpoints in a folder, as training programs leave them, and a collector looking at them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from stoploss.collectors import checkpoints
from stoploss.collectors.checkpoints_options import Options
from stoploss.collectors.contract import Context
from stoploss.engine.model import Look, Reading

AT = 2_000_000_000.0
PICKLE = b"\x80\x02}q\x00."


def collector(*paths: object, **options: Any) -> checkpoints.CheckpointsCollector:
    """A collector of host n1, made as the registry makes it."""
    given = {"paths": [path if isinstance(path, dict) else str(path) for path in paths], **options}
    made = checkpoints.build(Options.model_validate(given), Context(hostname="n1"))
    assert isinstance(made, checkpoints.CheckpointsCollector)
    return made


def put(path: Path, data: bytes | str = PICKLE, *, ago: float = 3600.0) -> None:
    """A file last written `ago` seconds before the look."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    os.utime(path, (AT - ago, AT - ago))


def hugging_face(folder: Path, step: int, *, ago: float = 3600.0, best: str | None = None) -> Path:
    """A whole checkpoint of Hugging Face; its files were written within 20 seconds."""
    path = folder / f"checkpoint-{step}"
    put(path / "optimizer.pt", ago=ago + 20)
    put(path / "trainer_state.json", json.dumps({"best_model_checkpoint": best, "z": 1}), ago=ago)
    return path


def of(look: Look, name: str) -> dict[str, Reading]:
    """Signal -> reading of one resource."""
    return {item.signal: item.reading for item in look.samples if item.resource.id == name}


def labels(look: Look, name: str) -> dict[str, object]:
    """The labels of one resource."""
    return dict(next(item.labels or {} for item in look.samples if item.resource.id == name))


def having(look: Look, signal: str, value: object) -> list[str]:
    """The resources of which a signal reads this."""
    return [item.resource.id for item in look.samples if item.signal == signal and item.reading == value]
