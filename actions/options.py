"""The options of the built-in actions, without the actions: light enough to validate policies with."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from stoploss.rules.models.fields import ARGUMENTS, COUNT, DURATION, PLACE, POWER, SHARE_FIELD, TEXT, choice
from stoploss.rules.models.steps import ChangingOptions, DestructiveOptions, RepeatableOptions


class AlertOptions(RepeatableOptions):
    """Tell somebody; sent once, and again after `repeat`."""


class SnapshotOptions(RepeatableOptions, ChangingOptions):
    """Have the job write a checkpoint, or keep the scene of a failed one."""

    what: Annotated[str, choice("job", "checkpoint", "volume", "scene")] = Field(
        default="job", description="What is kept; scene: last log lines, stacks, configuration."
    )
    timeout: Annotated[float, DURATION] = Field(
        default=600.0, description="How long it may take; default 10m."
    )
    path: Annotated[str | None, PLACE] = Field(
        default=None,
        description="Folder that a copy is made in, or s3://BUCKET/FOLDER; beside the state by default.",
    )
    command: Annotated[tuple[str, ...] | None, ARGUMENTS] = Field(
        default=None, description="A program of yours, with its arguments, that has the job save."
    )


class TierOptions(ChangingOptions):
    """Move data to cheaper storage."""

    storage_class: Annotated[str | None, TEXT] = Field(
        default=None, description="Storage class of the bucket."
    )
    path: Annotated[str | None, TEXT] = Field(default=None, description="Folder on the cheaper file system.")


class DownscaleOptions(DestructiveOptions):
    """Give a resource less; without an option, the next smaller size."""

    power_cap: Annotated[float | None, POWER] = Field(
        default=None, description="Power limit per GPU, such as 300W."
    )
    gpus: Annotated[int | None, COUNT] = Field(default=None, description="GPUs that are left.")
    replicas: Annotated[int | None, COUNT] = Field(default=None, description="Replicas that are left.")
    instance_type: Annotated[str | None, TEXT] = Field(
        default=None, description="The instance type to change to."
    )


class TerminateOptions(DestructiveOptions):
    """End a job or an instance."""

    grace: Annotated[float, DURATION] = Field(
        default=60.0, description="Time between asking it to end and ending it; default 1m."
    )
    how: Annotated[str, choice("stop", "terminate")] = Field(
        default="terminate", description="stop: an instance can be started again."
    )


class PruneOptions(DestructiveOptions):
    """Delete checkpoints that nobody needs; never the newest, the best, or one in use."""

    keep: Annotated[int, COUNT] = Field(
        default=2, description="Newest checkpoints that stay; never fewer than 2."
    )
    older_than: Annotated[float | None, DURATION] = Field(
        default=None, description="Only what is older than this."
    )


class RetainOptions(DestructiveOptions):
    """Shorten the retention of logs, or sample them."""

    retention: Annotated[float | None, DURATION] = Field(default=None, description="How long logs stay.")
    sample: Annotated[float | None, SHARE_FIELD] = Field(
        default=None, description="Part of the lines that is kept."
    )


class ReleaseOptions(DestructiveOptions):
    """Give back what is left over: unattached volumes, temporary folders, dead containers."""

    what: Annotated[str | None, choice("volume", "temporary", "container", "allocation")] = Field(
        default=None, description="What is given back; by default what the policy is about."
    )


class ResumeOptions(ChangingOptions):
    """Start again what a spot reclaim or a stop has interrupted, from its newest complete checkpoint."""

    replicas: Annotated[int | None, COUNT] = Field(
        default=None, description="Instances that the Auto Scaling group keeps then, at least."
    )
    command: Annotated[tuple[str, ...] | None, ARGUMENTS] = Field(
        default=None, description="A program of yours, with its arguments, that starts it again."
    )
    timeout: Annotated[float, DURATION] = Field(
        default=300.0, description="How long the program may take; default 5m."
    )


class ExecOptions(DestructiveOptions):
    """Run a program of yours; a list of arguments, never a shell line."""

    command: Annotated[tuple[str, ...], ARGUMENTS] = Field(description="The program and its arguments.")
    timeout: Annotated[float, DURATION] = Field(
        default=300.0, description="How long it may take; default 5m."
    )
