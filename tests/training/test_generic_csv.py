"""Tables of text."""

from __future__ import annotations

import math

import pytest


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_padded_tables_with_any_separator(read_text, separator: str) -> None:
    """Names and cells may be padded, and separated by comma, semicolon or tab."""
    rows = (("  step", "  train loss ", "lr"), (" 1", " 2.5", " nan"), (" 2", " -inf ", "1e-3 "))
    (log,) = read_text("\r\n".join(separator.join(row) for row in rows))

    assert log.format == "generic_csv"
    assert list(log.curves["train.loss"].values) == [2.5, -math.inf]
    assert list(log.curves["train.lr"].values) == [0.001]


def test_a_header_further_down_begins_other_columns(read_text) -> None:
    """A run that goes on in the same file may write its header again, with other columns."""
    (log,) = read_text("step,loss\n1,5\nstep,lr,loss\n1,0.1,4\n")

    assert list(log.curves["train.loss"].values) == [5, 4]


def test_rows_that_are_cut_off_are_left_out(read_text) -> None:
    """A row with fewer cells than names is left out and noted; the others are read."""
    (log,) = read_text("step,loss,lr\n1,5,0.1\n2,4\n3,3,0.1\n")

    assert list(log.curves["train.loss"].steps) == [1, 3]
    assert any("another number of cells" in note for note in log.notes)


def test_epochs_are_steps_where_there_are_no_others(read_text) -> None:
    """A table of epochs counts in epochs, and says so."""
    (log,) = read_text("epoch,loss,val_loss\n0,3,4\n1,2,3\n")

    assert list(log.curves["eval.loss"].steps) == [0, 1]
    assert "the log counts no steps: epochs are taken as steps" in log.notes


def test_quoted_cells_and_times(read_text) -> None:
    """Cells may be quoted, and a column of times is the clock of the record."""
    (log,) = read_text('"time","step","loss"\n"2026-01-01 00:00:10","1","2.5"\n')

    assert list(log.curves["train.loss"].times) == [1767225610]


def test_utf_16_is_read(read_text) -> None:
    """A table that a spreadsheet wrote in UTF-16 is read like others."""
    (log,) = read_text("step,loss\n1,2.5\n".encode("utf-16"))

    assert list(log.curves["train.loss"].values) == [2.5]


def test_bytes_of_another_encoding_do_no_harm(read_text) -> None:
    """A column in an unknown encoding leaves the others readable, and a note tells of it."""
    (log,) = read_text("step,loss,note\n1,2.5,größe\n".encode("latin-1"))

    assert list(log.curves["train.loss"].values) == [2.5]
    assert any("no text in this encoding" in note for note in log.notes)
