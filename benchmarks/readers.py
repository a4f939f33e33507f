"""Measure how fast each format of training log is read, in MB/s.

`python benchmarks/readers.py [--only FORMAT] [--lines N]`. Files of a fixed content are made in a temporary
folder and read whole; the best of three rounds counts. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from stoploss.collectors import training
from stoploss.collectors.training.tensorboard import masked_crc

ROUNDS = 3


def _loss(step: int) -> float:
    return 2.0 + 8.0 / (1 + step % 1000)


def _jsonl(step: int) -> str:
    row = {"step": step, "loss": _loss(step), "lr": 1e-4, "tokens": step * 524288, "usd": step * 0.0031}
    return json.dumps(row) + "\n"


def _hf_stdout(step: int) -> str:
    row = {"loss": _loss(step), "grad_norm": 0.5, "learning_rate": 1e-4, "epoch": step / 1e6}
    return f"{row}\n"


def _lightning(step: int) -> str:
    return f"{step // 1000},1e-4,{step},,{_loss(step)},,\n"


def _csv(step: int) -> str:
    return f" {step} , {_loss(step)} , 0.0001 , 0.5 \n"


def _mllog(step: int) -> str:
    stats = {"throughput": 519.75, "loss": _loss(step), "lr": 1.79e-05}
    event = {"time_ms": 1_700_000_000_000 + step, "key": "tracked_stats", "value": stats}
    return f":::MLLOG {json.dumps({**event, 'metadata': {'file': 'train.py', 'step_num': step}})}\n"


def _megatron(step: int) -> str:
    return (
        f" iteration {step:8d}/ 1000000 | consumed samples: {step * 2048:12d} | "
        "elapsed time per iteration (ms): "
        f"2200.1 | learning rate: 1.000E-04 | global batch size:  2048 | lm loss: {_loss(step):E} | "
        "loss scale: 4096.0 | grad norm: 0.500 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 |\n"
    )


def _keyvalue(step: int) -> str:
    return f"step:{step}/1000000 train_loss:{_loss(step):.4f} train_time:{step * 1700}ms step_avg:1700.00ms\n"


def _mlflow(step: int) -> str:
    return f"{1_700_000_000_000 + step} {_loss(step)} {step}\n"


TEXT: Mapping[str, tuple[str, Callable[[int], str], str]] = {
    "jsonl": ("", _jsonl, ""),
    "hf_stdout": ("", _hf_stdout, ""),
    "lightning_csv": (
        "epoch,lr-Adam,step,train_loss_epoch,train_loss_step,val_acc,val_loss\n",
        _lightning,
        "",
    ),
    "generic_csv": (" step , loss , lr , grad_norm \n", _csv, ""),
    "mllog": ("", _mllog, ""),
    "megatron": ("", _megatron, ""),
    "keyvalue": ("", _keyvalue, ""),
    "mlflow": ("", _mlflow, ""),
}


def _state(lines: int) -> bytes:
    rows = [{"loss": _loss(i), "learning_rate": 1e-4, "epoch": i / 1e5, "step": i} for i in range(lines)]
    return json.dumps({"log_history": rows, "max_steps": lines}, indent=2).encode()


def _events(lines: int) -> bytes:
    parts = []
    for step in range(lines):
        value = b"\x0a\x0atrain/loss\x15" + struct.pack("<f", _loss(step))
        summary = bytes([0x0A, len(value)]) + value
        event = b"\x09" + struct.pack("<d", 1.7e9 + step) + b"\x10" + _varint(step)
        event += bytes([0x2A, len(summary)]) + summary
        length = struct.pack("<Q", len(event))
        parts += [length, struct.pack("<I", masked_crc(length)), event, struct.pack("<I", masked_crc(event))]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def content(name: str, lines: int) -> bytes:
    """A log of that format with as many records."""
    if name == "tensorboard":
        return _events(lines)
    if name == "hf_state":
        return _state(lines)
    head, line, foot = TEXT[name]
    return (head + "".join(map(line, range(1, lines + 1))) + foot).encode()


def main() -> None:
    """Print one line a format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(training.READERS))
    parser.add_argument("--lines", type=int, default=50_000)
    options = parser.parse_args()
    print(f"{'FORMAT':<14}  {'MB/s':>6}  {'RECORDS/s':>10}  {'MB':>6}")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "metrics").mkdir()
        path = Path(folder) / "metrics" / "loss"
        for name in [options.only] if options.only else training.READERS:
            path.write_bytes(content(name, options.lines))
            best = float("inf")
            for _ in range(ROUNDS):
                begun = time.perf_counter()
                logs = training.read(path)
                best = min(best, time.perf_counter() - begun)
            found = logs[0].format if logs else "nothing"
            size = path.stat().st_size / 1e6
            remark = "" if found == name else f"  read as {found}"
            print(f"{name:<14}  {size / best:6.1f}  {options.lines / best:10,.0f}  {size:6.1f}{remark}")


if __name__ == "__main__":
    main()
