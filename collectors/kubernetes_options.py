"""The options of the collector `kubernetes`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stoploss.collectors.contract import CollectorOptions, Interval


class Options(CollectorOptions):
    """What `collectors: kubernetes:` takes."""

    default_every: ClassVar[float] = 60.0
    every: Interval = Field(default=60.0, description="time between two looks")
    namespaces: tuple[str, ...] = Field(default=(), description="namespaces to look at; all without")
    kubeconfig: str | None = Field(
        default=None,
        min_length=1,
        description="path of a kubeconfig; else the pod's account, else `KUBECONFIG`",
    )
    context: str | None = Field(default=None, min_length=1, description="context of the kubeconfig")
    labels: dict[str, str] = Field(
        default={"team": "team", "user": "user", "class": "class"},
        description="label -> the pod's label that gives it",
    )
    gpus: tuple[str, ...] = Field(
        default=("nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu"),
        min_length=1,
        description="patterns of the resources that count as GPUs",
    )
    forget: Interval = Field(default=86400.0, description="how long a job is still shown after its end")
