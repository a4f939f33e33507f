"""MLPerf's `:::MLLOG` lines, with or without the rank that a launcher puts before them.

`eval_accuracy` is whatever the benchmark calls its quality, a loss for some. Which way is better, and the
target, come from the log where it declares a target, else from the rules of the benchmark that the log names.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from stoploss.collectors.training.lines import LineReader
from stoploss.collectors.training.records import NAN, instant, number

NAME = "mllog"

_LINE = re.compile(r"^\s*(?:\[?([\w.-]{1,40})\]?:\s*)?:::MLLOG\s+(\{.*)$")

QUALITY: Mapping[str, tuple[str, float | None]] = {
    "bert": ("higher", 0.72),
    "resnet": ("higher", 0.759),
    "ssd": ("higher", 0.34),
    "retinanet": ("higher", 0.34),
    "unet3d": ("higher", 0.908),
    "rnnt": ("lower", 0.058),
    "dlrm_dcnv2": ("higher", 0.80275),
    "gnn": ("higher", 0.72),
    "gpt3": ("lower", 2.69),
    "llama2_70b_lora": ("lower", 0.925),
    "llama31_405b": ("lower", 5.6),
    "llama31_8b": ("lower", 3.3),
    # Success needs a low FID and a high CLIP score at once, so that neither is the target.
    "stable_diffusion": ("lower", None),
}
"""Benchmark -> which way its quality is better, and the quality target, as the table of benchmarks in the
MLPerf Training rules (versions 1.0 to 5.1) has them."""

_METRIC = {"stable_diffusion": "FID"}
"""Benchmark -> the one of its several metrics that is read."""

_TARGETS = frozenset({"target", "target_accuracy", "target_eval_accuracy", "eval_target", "quality_target"})
_GPUS = frozenset({"gpus", "num_gpus", "number_of_gpus", "world_size", "number_of_accelerators"})
_BEGINNINGS = frozenset({"cache_clear", "init_start", "submission_benchmark", "run_start"})
_GPUS_PER_DGX = 8


def fits(head: bytes, lines: Sequence[str]) -> bool:
    """Whether a file that begins so is of this format."""
    return any(_LINE.match(line) for line in lines)


class MllogReader(LineReader):
    """Reads MLPerf logs."""

    name = NAME

    def __init__(self, subject: str = "") -> None:
        super().__init__(subject)
        self._forget()

    def _forget(self) -> None:
        self._lead: str | None = None
        self._stopped = self._counts_samples = False
        self._benchmark = ""
        self._batch = self._per_device = self._accumulated = NAN

    def line(self, text: str) -> None:
        """Read one line; others than MLLOG lines say nothing."""
        found = _LINE.match(text)
        if found is None:
            return
        try:
            event = json.loads(found[2])
        except (ValueError, RecursionError):
            self.notes.add("a damaged MLLOG line was skipped")
            return
        key = event.get("key")
        if not isinstance(key, str):
            return
        if self._stopped and key in _BEGINNINGS:
            self.begin_run()
            self._forget()
        metadata = event.get("metadata")
        context = metadata if isinstance(metadata, dict) else {}
        rank = found[1] or ""
        if key == "run_start" and self._lead is None:
            self._lead = rank
        if self._lead in (None, rank):
            self._event(key, event.get("value"), context, instant(event.get("time_ms")))

    def _event(self, key: str, value: Any, context: Mapping[str, Any], time: float) -> None:
        facts = self.facts[self.run]
        if "samples_count" in context:
            self._counts_samples = True
        if key == "run_start":
            if not math.isnan(time):
                facts.setdefault("started", time)
        elif key == "run_stop":
            self._stopped = True
            if not math.isnan(time):
                facts["ended"] = time
            if context.get("status") in ("success", "aborted"):
                facts["status"] = context["status"]
        elif key in ("eval_accuracy", "eval_loss", "train_loss"):
            self._quality(key, value, context, time)
        elif key == "tracked_stats" and isinstance(value, dict):
            fields = {name.replace("throughput", "samples_per_second"): raw for name, raw in value.items()}
            numbers = {name: held for name, raw in fields.items() if (held := number(raw)) is not None}
            self.put_fields(numbers, self._step_of(context), time)
        elif key == "block_stop" and (samples := number(context.get("samples_count"))) is not None:
            self.put("train.samples", samples, self._step_of(context), time)
        else:
            self._declared(key, value, time)

    def _quality(self, key: str, value: Any, context: Mapping[str, Any], time: float) -> None:
        held = number(value)
        if held is None:
            return
        step = self._step_of(context)
        if key != "eval_accuracy":
            self.put(key.replace("_", ".", 1), held, step, time)
            return
        read = _METRIC.get(self._benchmark)
        if read is not None and context.get("metric", read) != read:
            self.notes.add(f"of several metrics {read} is read, {context['metric']} is not")
            return
        self.put("eval.metric", held, step, time)

    def _declared(self, key: str, value: Any, time: float) -> None:
        facts = self.facts[self.run]
        if key == "submission_benchmark" and isinstance(value, str):
            self._benchmark = value
            better, target = QUALITY.get(value, (None, None))
            if better is not None:
                facts["better"] = better
            if target is not None:
                facts.setdefault("target", target)
            return
        if key == "submission_platform" and isinstance(value, str):
            machines = re.match(r"(\d+)\s*x\s*(?:NVIDIA )?DGX", value)
            if machines:
                facts.setdefault("gpus", float(machines[1]) * _GPUS_PER_DGX)
            return
        held = number(value)
        if held is None:
            return
        if key in _TARGETS:
            facts["target"] = held
        elif key in _GPUS:
            facts["gpus"] = held
        elif key == "global_batch_size":
            self._batch = held
            self.put("train.batch_size", held, NAN, time)
        elif key == "d_batch_size":
            self._per_device = held
        elif key == "gradient_accumulation_steps":
            self._accumulated = held
            self.put("train.grad_accumulation", held, NAN, time)
        self._count_gpus()

    def _count_gpus(self) -> None:
        devices = self._batch / (self._per_device or NAN) / (self._accumulated or NAN)
        if devices == devices and devices >= 1 and devices.is_integer():
            self.facts[self.run].setdefault("gpus", devices)

    def _step_of(self, context: Mapping[str, Any]) -> float:
        held = {
            name: number(context.get(name)) for name in ("step_num", "samples_count", "step", "epoch_num")
        }
        if held["step_num"] is not None:
            return held["step_num"]
        # Logs that count samples mean samples by `step` too.
        samples = held["samples_count"]
        if samples is None and self._counts_samples:
            samples = held["step"]
        if samples is not None and self._batch > 0:
            return samples / self._batch
        if held["step"] is not None:
            return held["step"]
        if held["epoch_num"] is not None:
            self.notes.once("the log counts no steps: its epoch_num is taken as steps")
            return held["epoch_num"]
        return NAN


READER = MllogReader
