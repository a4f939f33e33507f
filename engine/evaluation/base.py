"""What every compiled condition yields for a block of slots.

Truths are int8 arrays of slots x columns of the node's level; one row stands for all slots
where nothing varies in time. Numbers are (values, known) of the same shapes, in base units.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from stoploss.engine.evaluation.context import Context
from stoploss.engine.evaluation.kleene import UNKNOWN, Bools, Floats, Truths


class Numbers(ABC):
    """A node that yields numbers."""

    @abstractmethod
    def evaluate(self) -> tuple[Floats, Bools]:
        """Values and where they are known."""


class Judgement(ABC):
    """A node that yields truths."""

    @abstractmethod
    def evaluate(self) -> Truths:
        """Truths of the block."""


def grown_up(context: Context, truths: Truths, level: str, window: int) -> Truths:
    """Unknown where a column is younger than the window."""
    mature = context.mature(level, window)
    return truths if mature is None else np.where(mature, truths, np.int8(UNKNOWN))
