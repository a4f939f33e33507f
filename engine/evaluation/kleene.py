"""Three-valued truth as small integers, and comparison of numbers with exact ties.

False, unknown and true are 0, 1 and 2, so that Kleene's and is the minimum, or the maximum,
and not the difference from two.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Truths = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

FALSE, UNKNOWN, TRUE = 0, 1, 2
OUTSIDE = 3
"""Only in lifecycles: the row does not exist, or `where` does not select it."""

WORDS = {FALSE: "false", UNKNOWN: "unknown", TRUE: "true", OUTSIDE: "outside"}

TOLERANCE = 1e-9
"""Numbers within this part of the right side are equal."""


def truth(condition: Bools, known: Bools) -> Truths:
    """True or false where known, else unknown; the arguments broadcast."""
    result = np.where(condition, np.int8(TRUE), np.int8(FALSE))
    return np.where(known, result, np.int8(UNKNOWN))


def compare(op: str, left: Floats, right: Floats) -> Bools:
    """`left op right` element by element; numbers within 1e-9 of the right side are equal.

    An infinity equals only itself. A NaN compares false; callers mark it unknown.
    """
    with np.errstate(invalid="ignore"):
        slack = np.where(np.isinf(right), 0.0, TOLERANCE * np.abs(right))
        equal = (left == right) | (np.abs(left - right) <= slack)
        result: Bools
        match op:
            case "==":
                result = equal
            case "!=":
                result = ~equal
            case "<":
                result = (left < right) & ~equal
            case "<=":
                result = (left < right) | equal
            case ">":
                result = (left > right) & ~equal
            case ">=":
                result = (left > right) | equal
            case _:
                raise ValueError(op)
    return result


def needed(window: int, percent: int = 80) -> int:
    """How many of a window's slots must be covered: the percentage, rounded up."""
    return -(-percent * window // 100)
