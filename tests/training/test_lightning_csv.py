"""Tables of Lightning's CSV logger."""

from __future__ import annotations

TABLE = """epoch,lr-AdamW,step,train_loss_epoch,train_loss_step,val_acc,val_loss
,0.001,9,,,,
0,,9,,2.5,,
0,,19,,2.25,,
0,,19,,,0.5,3.0
0,,19,2.4,,,
1,,29,,nan,,
"""


def test_training_and_validation_on_rows_of_their_own(read_text) -> None:
    """Rows of training and of validation share the step, and empty cells are no values."""
    (log,) = read_text(TABLE)

    assert log.format == "lightning_csv"
    assert list(log.curves["train.loss"].steps) == [9, 19, 29]
    assert list(log.curves["train.loss"].values)[:2] == [2.5, 2.25]
    assert (log.curves["eval.loss"].steps[0], log.curves["eval.loss"].values[0]) == (19, 3.0)
    assert list(log.curves["eval.metric"].values) == [0.5]
    assert list(log.curves["train.lr"].values) == [0.001]


def test_means_over_an_epoch_are_not_mixed_with_steps(read_text) -> None:
    """The mean over an epoch is left out where single steps are logged, and a note says so."""
    (log,) = read_text(TABLE)

    assert 2.4 not in log.curves["train.loss"].values
    assert "fields not read: train_loss_epoch" in log.notes


def test_a_mean_over_an_epoch_is_read_where_there_is_nothing_else(read_text) -> None:
    """A table that holds only means over epochs gives these."""
    (log,) = read_text("epoch,step,train_loss_epoch,val_loss\n0,9,2.5,\n0,9,,3.0\n")

    assert list(log.curves["train.loss"].values) == [2.5]
