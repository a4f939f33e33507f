"""How often healthy random runs raise an alarm while they grow."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from support.curves import prefixes
from support.healthy_curves import healthy

from stoploss.engine.losses.incremental import judge

ALARMS = {"flat", "diverged", "overfit", "degrading", "oscillating", "hung", "non-finite"}


def alarms(curves: int, seed: int) -> tuple[int, Counter[tuple[str, str]]]:
    """Checks made, and alarms by verdict and family, over twenty prefixes of each of many curves."""
    random = np.random.default_rng(seed)
    found: Counter[tuple[str, str]] = Counter()
    for _ in range(curves):
        run = healthy(random)
        for _share, log in prefixes(run.log):
            verdict = judge(log).verdict
            if verdict in ALARMS:
                found[verdict, run.family] += 1
    return 20 * curves, found


def test_few_false_alarms_on_random_healthy_runs() -> None:
    """Fewer than 1 % of the checks of a hundred random healthy runs raise an alarm."""
    checks, found = alarms(100, seed=1)

    assert found.total() < 0.01 * checks, found


@pytest.mark.slow
def test_the_rate_over_two_thousand_runs() -> None:
    """Over 2,000 runs x 20 prefixes the rate is under 0.5 %, and under 0.2 % apart from true plateaus."""
    checks, found = alarms(2000, seed=20260101)

    plateaus = found["flat", "step"]
    assert found.total() < 0.005 * checks, found
    assert found.total() - plateaus < 0.002 * checks, found
    assert not any(verdict in ("hung", "non-finite") for verdict, _ in found)
