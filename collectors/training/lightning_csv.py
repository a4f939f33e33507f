"""`metrics.csv` of Lightning's CSV logger: training and validation stand on rows of their own, and share a
step.

The logger writes one table for all that was ever logged, so most cells are empty; a name with `_step` holds
single steps, and is read rather than the mean with `_epoch`.
"""

from __future__ import annotations

from collections.abc import Sequence

from stoploss.collectors.training import names
from stoploss.collectors.training.generic_csv import TableReader, cells_of, header_of

NAME = "lightning_csv"


def fits(head: bytes, lines: Sequence[str]) -> bool:
    """Whether a file that begins so is of this format."""
    found = header_of(lines[0]) if lines else None
    if found is None or found[0] != "," or any(name != name.strip() for name in lines[0].split(",")):
        return False
    spelled = {names.spelled(name) for name in found[1]}
    if not {"epoch", "step"} <= spelled:
        return False
    return any("" in cells_of(line, ",") for line in lines[1:])


class LightningReader(TableReader):
    """Reads the table of the CSV logger."""

    name = NAME


READER = LightningReader
