"""Signals of training: the raw curves and speeds, and what is concluded from them."""

from __future__ import annotations

from stoploss.rules.signals.family import Family

_TRAINING = Family(("job",), "training")
_LOSS = Family(("job",), "derived")

VERDICTS = (
    "warming-up",
    "healthy",
    "transient-spike",
    "converged",
    "flat",
    "oscillating",
    "overfit",
    "degrading",
    "diverged",
    "non-finite",
    "hung",
    "cannot-tell",
)
"""Verdicts on a loss curve."""

SIGNALS = (
    _TRAINING.curve("train.loss", "Training loss.", better="lower"),
    _TRAINING.curve("eval.loss", "Validation loss.", better="lower"),
    _TRAINING.curve(
        "eval.metric",
        "Validation metric; higher is better unless the run declares otherwise.",
        better="higher",
    ),
    _TRAINING.curve(
        "train.grad_norm", "Norm of the gradient; leads the loss by a few records.", better="lower"
    ),
    _TRAINING.counter("train.step", "1", "Optimiser steps done; goes back when a run resumes.", rewinds=True),
    _TRAINING.counter("train.epoch", "1", "Epochs begun; goes back when a run resumes.", rewinds=True),
    _TRAINING.counter("train.tokens", "1", "Tokens seen; goes back when a run resumes.", rewinds=True),
    _TRAINING.counter("train.samples", "1", "Samples seen; goes back when a run resumes.", rewinds=True),
    _TRAINING.attribute("train.steps_planned", "1", "Steps that the run is meant to do."),
    _TRAINING.gauge("train.progress", "share", "Share of the planned steps that is done."),
    _TRAINING.gauge("train.time_left", "s", "Time to the planned end at the present speed."),
    _TRAINING.gauge("train.lr", "1", "Learning rate."),
    _TRAINING.gauge(
        "train.loss_scale", "1", "Loss scale of mixed precision; halves when gradients overflow."
    ),
    _TRAINING.gauge(
        "train.non_finite_share", "share", "Share of steps whose loss or gradient was not finite."
    ),
    _TRAINING.gauge("train.batch_size", "1", "Samples per step over all ranks."),
    _TRAINING.gauge("train.grad_accumulation", "1", "Micro-batches per step."),
    _TRAINING.gauge("train.samples_per_second", "1/s", "Samples per second over all ranks."),
    _TRAINING.gauge("train.tokens_per_second", "1/s", "Tokens per second over all ranks."),
    _TRAINING.gauge("train.step_time", "s", "Time per step."),
    _TRAINING.gauge("train.data_time", "s", "Time per step spent waiting for data."),
    _TRAINING.gauge("train.comm_share", "share", "Share of the step spent in communication."),
    _TRAINING.gauge("train.rank_lag", "share", "How much slower the slowest rank is than the median rank."),
    _TRAINING.gauge("train.scaling_efficiency", "share", "Speed per GPU against the same job on one host."),
    _TRAINING.gauge("train.mfu", "share", "Model FLOPS against the peak of the GPUs."),
    _TRAINING.counter("train.resumes", "1", "Times the run went on from a checkpoint."),
    _TRAINING.counter("train.redone_steps", "1", "Steps done a second time after a resume."),
    _LOSS.state("loss.verdict", "Verdict on the loss curves.", VERDICTS),
    _LOSS.state(
        "loss.trend", "Where the training loss is heading.", ("falling", "flat", "rising", "cannot-tell")
    ),
    _LOSS.gauge("loss.spike", "1", "Newest training loss as a multiple of the median before it."),
    _LOSS.gauge("loss.gap", "share", "How far the validation loss lies above the training loss."),
    _LOSS.gauge(
        "loss.since_best", "s", "Time since the best evaluation, or the best loss where none is made."
    ),
    _LOSS.gauge("loss.steps_since_best", "1", "Steps since the best evaluation."),
    _LOSS.gauge("loss.evals_since_best", "1", "Evaluations since the best one."),
    _LOSS.gauge(
        "loss.forecast.steps_to_target", "1", "Steps until the declared target is met, if the trend holds."
    ),
    _LOSS.gauge(
        "loss.forecast.time_to_target", "s", "Time until the declared target is met, if the trend holds."
    ),
)
