"""Whether a save fits into the notice of a reclaim, and what a reclaim takes."""

from __future__ import annotations

import pytest

from stoploss.engine.spot import HARD_OFF, MARGIN, NOTICES, fit, lost_gpu_hours, save_time

SIZE = 2.3e12
"""Bytes of the checkpoint of a model of 176 billion parameters with its optimizer."""


def test_G_76_a_fast_file_system_fits_into_the_notice() -> None:
    """2.3 TB at 57 GB/s are 40 s of the 120 s of AWS."""
    found = fit(save_time(SIZE, 57e9))

    assert found.save == pytest.approx(40, abs=0.5)
    assert found.fits
    assert found.words == "a save takes 40s of 2m of notice: it fits"


def test_G_76_a_slow_file_system_does_not() -> None:
    """At 10 GB/s it takes 230 s: periodic checkpoints are what is left, at a shorter interval."""
    found = fit(save_time(SIZE, 10e9))

    assert (found.save, found.fits) == (230.0, False)
    assert "it does not fit, so rely on periodic checkpoints and shorten their interval" in found.words


def test_G_76_google_cloud_may_end_it_after_eleven_seconds() -> None:
    """A save of 20 s fits into the 30 s that are announced, and not into the 11 s that were seen."""
    assert fit(20, NOTICES["gcp"]).fits
    assert not fit(20, HARD_OFF).fits
    assert fit(8, HARD_OFF).fits


def test_G_79_what_a_reclaim_takes() -> None:
    """64 GPUs, and the newest checkpoint outside is 50 minutes old: 53.3 GPU-hours."""
    assert lost_gpu_hours(64, 50 * 60) == pytest.approx(53.3, abs=0.05)
    assert lost_gpu_hours(64, 0) == 0


def test_the_rest_of_a_notice_is_left_alone() -> None:
    """Of two minutes 90 s count, as in the policy `reclaim-will-not-fit`."""
    assert fit(NOTICES["aws"] * (1 - MARGIN)).fits
    assert not fit(90.1).fits
    assert fit(119, margin=0).fits


@pytest.mark.parametrize("bandwidth", [0, -1, float("nan")])
def test_nothing_is_written_without_a_bandwidth(bandwidth: float) -> None:
    """A speed that is none is an error, not a save that fits."""
    with pytest.raises(ValueError, match="bandwidth"):
        save_time(SIZE, bandwidth)
