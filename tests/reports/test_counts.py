"""Numbers with their words."""

from __future__ import annotations

import pytest

from stoploss.reports.counts import count


@pytest.mark.parametrize(
    ("number", "word", "told"),
    [
        (1, "policy", "1 policy"),
        (2, "policy", "2 policies"),
        (0, "gpu", "0 gpus"),
        (7, "process", "7 processes"),
        (3, "day", "3 days"),
        (1024, "gpu", "1,024 gpus"),
    ],
)
def test_a_number_has_its_word(number: int, word: str, told: str) -> None:
    """One is one; more take the plural, thousands are set apart."""
    assert count(number, word) == told
