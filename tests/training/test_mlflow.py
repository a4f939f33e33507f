"""MLflow's file store."""

from __future__ import annotations

import math
from pathlib import Path

from stoploss.collectors import training

META = (
    "run_name: brave-fox-1\nrun_id: 0123abcd\nstatus: 3\nstart_time: 1700000000000\nend_time: 1700000600000\n"
)


def store(folder: Path) -> Path:
    """A run with two metrics of training and one of validation."""
    run = folder / "mlruns" / "0" / "0123abcd"
    (run / "metrics" / "val").mkdir(parents=True)
    (run / "meta.yaml").write_text(META)
    (run / "metrics" / "loss").write_text("1700000010000 2.5 1\n1700000020000 nan 2\n")
    (run / "metrics" / "lr").write_text("1700000010000 0.001 1\n")
    (run / "metrics" / "val" / "loss").write_text("1700000020000 3.5 2\n")
    return run


def test_the_files_of_a_run_are_one_log(tmp_path: Path) -> None:
    """Each file is a curve with steps and times; the file beside them tells when and how it ended."""
    store(tmp_path)

    (log,) = training.read(tmp_path)

    assert (log.run, log.format) == ("brave-fox-1", "mlflow")
    assert (log.curves["train.loss"].values[0], log.curves["train.loss"].times[0]) == (2.5, 1_700_000_010)
    assert math.isnan(log.curves["train.loss"].values[1])
    assert list(log.curves["eval.loss"].steps) == [2]
    assert list(log.curves["train.lr"].values) == [0.001]
    assert log.facts == {"started": 1_700_000_000, "ended": 1_700_000_600, "status": "success"}


def test_one_metric_alone_is_read(tmp_path: Path) -> None:
    """The file of one metric is enough."""
    (log,) = training.read(store(tmp_path) / "metrics" / "loss")

    assert set(log.curves) == {"train.loss"}


def test_a_run_that_goes_on_has_no_end(tmp_path: Path) -> None:
    """A status of running declares neither success nor an end."""
    run = store(tmp_path)
    (run / "meta.yaml").write_text("status: 1\nstart_time: 1700000000000\nend_time: null\n")

    (log,) = training.read(run)

    assert log.facts == {"started": 1_700_000_000}
