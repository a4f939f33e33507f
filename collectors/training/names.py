"""Which field names of training logs mean which signal of the catalogue, and in which unit.

Names are compared in one spelling: lower case, and every run of other characters than letters and digits an
underscore, so that `train/loss`, `Train Loss` and `train_loss` are one. Only exact names count; what is not
listed is not read, and said so.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from stoploss.rules.catalogue import SignalKind, catalogue


class Meaning(NamedTuple):
    """What a field holds.

    Attributes:
        signal: name in the catalogue, or one of NO_SIGNALS.
        factor: catalogue units per unit of the field.
        rank: of two fields with one signal the lower rank is read.
        currency: of a cost.
    """

    signal: str
    factor: float = 1.0
    rank: int = 0
    currency: str = ""


STEP, EPOCH, TIME, ELAPSED, PLANNED, COST = "step", "train.epoch", "time", "elapsed", "planned", "cost"

NO_SIGNALS = frozenset({STEP, TIME, ELAPSED, PLANNED, COST})
"""What fields hold besides signals."""

_NAMES: dict[str, str] = {
    STEP: "step global_step steps iteration iter train_step trainer_global_step num_updates n_iter it",
    EPOCH: "epoch current_epoch train_epoch epochs",
    TIME: "timestamp time wall_time walltime datetime date ts created_at logged_at",
    ELAPSED: "train_time",
    PLANNED: "max_steps total_steps train_iters num_training_steps",
    "train.loss": "train_loss_step loss train_loss training_loss loss_train lm_loss train_lm_loss "
    "reduced_train_loss batch_loss trl losses_total_loss train_total_loss epoch_loss train_loss_epoch",
    "eval.loss": "eval_loss val_loss valid_loss validation_loss dev_loss evaluation_loss loss_val loss_eval "
    "loss_valid loss_validation val_loss_epoch tel epoch_val_loss test_loss",
    "eval.metric": "eval_metric eval_accuracy val_accuracy eval_acc val_acc valid_accuracy valid_acc "
    "validation_accuracy validation_acc accuracy_val acc_val accuracy_eval eval_f1 val_f1 eval_auc val_auc "
    "val_map eval_map eval_bleu val_bleu val_acc_epoch val_accuracy_epoch",
    "train.grad_norm": "grad_norm gradient_norm gnorm gradnorm global_grad_norm train_grad_norm "
    "train_gradient_norm total_grad_norm grad_norm_step grad_2_0_norm_total norm",
    "train.lr": "lr learning_rate train_lr train_learning_rate lr_adam lr_adamw lr_sgd lr_group_0 "
    "lr_0 lr_pg1",
    "train.loss_scale": "loss_scale lossscale grad_scale amp_scale train_loss_scale scaler_scale",
    "train.non_finite_share": "non_finite_share nonfinite_share non_finite_fraction nonfinite_fraction "
    "nan_fraction nan_share",
    "train.tokens": "tokens tokens_seen total_tokens num_tokens consumed_tokens num_input_tokens_seen "
    "train_tokens train_num_input_tokens_seen",
    "train.samples": "samples samples_seen total_samples consumed_samples num_samples train_samples",
    "train.batch_size": "global_batch_size batch_size",
    "train.grad_accumulation": "gradient_accumulation_steps grad_accumulation accumulation_steps "
    "grad_accumulation_steps accumulate_grad_batches",
    "train.samples_per_second": "samples_per_second samples_per_sec samples_s samples_sec sample_s "
    "examples_per_second examples_per_sec images_per_second images_per_sec imgs_per_sec img_s",
    "train.tokens_per_second": "tokens_per_second tokens_per_sec tokens_s tokens_sec tok_s tok_sec "
    "tok_per_sec tps",
    "train.step_time": "step_time time_per_step iter_time iteration_time time_per_iteration step_duration "
    "sec_per_step seconds_per_step train_step_time train_step_timing step_avg",
    "train.data_time": "data_time dataload_time data_loading_time data_load_time train_data_time "
    "batch_generator_time",
    "train.mfu": "mfu train_mfu",
    "data.wait_share": "data_wait_share",
    "data.workers": "num_workers dataloader_num_workers loader_workers",
    "data.records": "records_read",
    "data.invalid_records": "invalid_records bad_records dropped_records skipped_records corrupt_records",
    "data.retries": "read_retries preprocess_retries",
}

_CURRENCIES = {"usd": "USD", "dollars": "USD", "eur": "EUR", "euro": "EUR", "gbp": "GBP"}

_SECONDS = {
    "ms": 1e-3,
    "millis": 1e-3,
    "us": 1e-6,
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "seconds": 1.0,
    "min": 60.0,
}

_LONGEST_NAME = 100
"""Characters of a name that can be one of ours."""

KEPT_NON_FINITE = frozenset({"train.loss", "eval.loss", "eval.metric", "train.grad_norm"})
"""Signals whose NaN and infinities are kept; elsewhere such a value says nothing and is left out."""

CORE = frozenset({*KEPT_NON_FINITE, "train.lr"})
"""Signals that make a table or a JSON line a training log."""


def spelled(name: str) -> str:
    """A field's name in the one spelling."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


@lru_cache(maxsize=1)
def _table() -> dict[str, Meaning]:
    found: dict[str, Meaning] = {}
    for signal in catalogue().of_collector("training"):
        if not signal.is_text and signal.kind is not SignalKind.ATTRIBUTE:
            found[spelled(signal.name)] = Meaning(signal.name)
    for name, texts in _NAMES.items():
        for rank, text in enumerate(texts.split()):
            found[text] = Meaning(name, rank=rank)
    for text, currency in _CURRENCIES.items():
        for shape in ("{}", "cost_{}", "total_{}", "{}_total", "total_cost_{}", "spend_{}", "{}_spent"):
            found[shape.format(text)] = Meaning(COST, currency=currency)
    return found


def meaning(name: str) -> Meaning | None:
    """What a field of that name holds; None where it is not known.

    A time may carry its unit as a suffix: `step_time_ms`.
    """
    return _meaning(name) if len(name) <= _LONGEST_NAME else None


@lru_cache(maxsize=4096)
def _meaning(name: str) -> Meaning | None:
    text = spelled(name)
    found = _table().get(text)
    if found is not None:
        return found
    stem, _, suffix = text.rpartition("_")
    timed = _table().get(stem) if suffix in _SECONDS else None
    if timed is not None and timed.signal in (ELAPSED, "train.step_time", "train.data_time"):
        return timed._replace(factor=_SECONDS[suffix])
    return None


def seconds_per(unit: str) -> float | None:
    """Seconds in a unit of time such as `ms`; None where it is no such unit."""
    return _SECONDS.get(unit.lower())
