"""What the Kubernetes API writes, without a client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stoploss.collectors import kubernetes_jobs as texts


def container(**asked: str) -> Any:
    """A container that asks for GPUs."""
    return SimpleNamespace(resources=SimpleNamespace(requests=None, limits={"nvidia.com/gpu": asked["gpus"]}))


def test_what_runs_before_does_not_add_up() -> None:
    """A pod needs the GPUs of all its containers, or of the greediest that runs before them."""
    both = [container(gpus="1"), container(gpus="2")]
    for first, gpus in (("1", 3), ("8", 8)):
        spec = SimpleNamespace(containers=both, initContainers=[container(gpus=first)])

        assert texts.gpus_of(spec, ["nvidia.com/gpu"]) == gpus


def test_a_circle_of_owners_ends() -> None:
    """Owners that own each other are followed only so far."""
    above = {name: [SimpleNamespace(controller=True, kind="Job", name=other)] for name, other in ("ab", "ba")}
    known = {("lab", "Job", name): references for name, references in above.items()}

    assert texts.top_owner("lab", ("Pod", "p"), above["a"], known)[:2] == ("lab", "Job")


@pytest.mark.parametrize(
    ("text", "number"), [("2", 2.0), ("500m", 0.5), ("100Gi", 100 * 2.0**30), ("1e3", 1000.0)]
)
def test_quantities_have_units(text: str, number: float) -> None:
    """Numbers of the API are read with their suffixes."""
    assert texts.quantity(text) == number


@pytest.mark.parametrize("text", ["", "Gi", "1 GB", "-1"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """Text that is no quantity is refused."""
    with pytest.raises(ValueError, match="not a quantity"):
        texts.quantity(text)
