"""Whether two frames are the same."""

from __future__ import annotations

import numpy as np

from stoploss.engine.history.frame import Frame


def assert_same(one: Frame, other: Frame) -> None:
    """Two frames are equal to the last bit."""
    assert (one.resolution, one.first, one.slots) == (other.resolution, other.first, other.slots)
    assert list(one.planes) == list(other.planes)
    for name, plane in one.planes.items():
        twin = other.planes[name]
        assert (plane.signal, plane.series, plane.words) == (twin.signal, twin.series, twin.words)
        for attribute in ("values", "status", "cadence", "increase"):
            left, right = getattr(plane, attribute), getattr(twin, attribute)
            assert (left is None) == (right is None), (name, attribute)
            if left is not None:
                np.testing.assert_array_equal(left, right)
    assert one.resources == other.resources
    assert {k: v.tolist() for k, v in one.looks.items()} == {k: v.tolist() for k, v in other.looks.items()}
    assert (one.look_cadence, one.look_reasons) == (other.look_cadence, other.look_reasons)
    assert (one.reasons, one.late) == (other.reasons, other.late)
