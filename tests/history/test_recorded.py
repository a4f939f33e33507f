"""Recorded signals: CSV, JSON lines and Parquet as frames."""

from __future__ import annotations

import gzip
import json
import math
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.same_frames import assert_same

from stoploss.engine.history.assemble import FrameTooLarge
from stoploss.engine.history.frame import (
    BAD,
    FAILED,
    LOOKED,
    MINUS_INFINITY,
    NOT_A_NUMBER,
    PLUS_INFINITY,
    VALID,
    Frame,
)
from stoploss.engine.history.recorded import Recording, read_recorded
from stoploss.engine.history.samples import SampleBuffer
from stoploss.engine.model import UNREADABLE, Look, ResourceId, Sample
from stoploss.rules.catalogue import KINDS, Catalogue, Signal, SignalKind
from stoploss.rules.catalogue import catalogue as shipped_catalogue

K = SignalKind
CATALOGUE = Catalogue(
    (
        Signal("gpu.utilization", K.GAUGE, "share", ("gpu",), "m", "gpu"),
        Signal("gpu.model", K.ATTRIBUTE, "text", ("gpu",), "m", "gpu"),
        Signal("job.state", K.STATE, "text", ("job",), "m", "slurm", values=("running", "failed")),
        Signal("job.retries", K.EVENT, "1", ("job",), "m", "slurm"),
        Signal("train.step", K.COUNTER, "1", ("job",), "m", "training", rewinds=True),
        Signal("train.loss", K.CURVE, "1", ("job",), "m", "training", better="lower"),
        Signal("eval.metric", K.CURVE, "1", ("job",), "m", "training", better="higher"),
        Signal("resource.present", K.GAUGE, "1", KINDS, "m", "inventory"),
        Signal("collector.success", K.GAUGE, "1", ("collector",), "m", "runner"),
    )
)
HEADER = "time,resource,kind,signal,value"
GPU = ResourceId("gpu", "0")


def read(folder: Path, *files: tuple[str, str | bytes], timezone: str = "UTC") -> Recording:
    """Write files and read them together."""
    for name, text in files:
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_recorded([folder / name for name, _ in files], catalogue=CATALOGUE, timezone=timezone)


def table(*rows: str, header: str = HEADER) -> tuple[str, str]:
    """A CSV file of these rows."""
    return "a.csv", "\n".join((header, *rows, ""))


def told(recording: Recording) -> list[str]:
    """Problems as `line: message [code]`."""
    return [f"{p.position.line}: {p.message} [{p.code}]" for p in recording.problems]


def reason(frame: Frame, signal: str, row: int = 0, column: int = 0) -> str:
    """Why a reading is bad."""
    return frame.reasons[frame.planes[signal].status[row, column] - BAD]


# --- times


def test_P_B10_times_of_every_form_meet(tmp_path: Path) -> None:
    """Offsets, zone names, epoch seconds and naive times may stand in one file; naive ones are told once."""
    recording = read(
        tmp_path,
        table(
            "2026-12-01T14:00:00Z,0,gpu,gpu.utilization,0.1",
            "2026-12-01T16:01:00+02:00,0,gpu,gpu.utilization,0.2",
            "1796133720,0,gpu,gpu.utilization,0.3",
            "1796133780.0,0,gpu,gpu.utilization,0.4",
            "2026-12-01 15:04:00,0,gpu,gpu.utilization,0.5",
            "2026-12-01 15:05:00,0,gpu,gpu.utilization,0.6",
        ),
        timezone="Europe/Berlin",
    )

    assert recording.problems == ()
    frame = recording.frame(60.0)
    assert frame.planes["gpu.utilization"].values[:, 0].tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert len(recording.notes) == 1
    assert "Europe/Berlin" in recording.notes[0]
    assert "line 6" in recording.notes[0]


def test_unreadable_times_are_counted_with_the_first_place(tmp_path: Path) -> None:
    """Rows whose time cannot be read are skipped and told as one problem."""
    recording = read(
        tmp_path,
        table("60,0,gpu,gpu.utilization,0.1", "noon,0,gpu,gpu.utilization,1", ",0,gpu,gpu.utilization,1"),
    )

    assert told(recording) == ["3: time 'noon' cannot be read; 2 rows skipped [recorded-bad-time]"]
    assert recording.samples == 1


def test_milliseconds_are_not_taken_for_seconds(tmp_path: Path) -> None:
    """A number in milliseconds is refused with a hint, not read as the year 58888."""
    recording = read(tmp_path, table("1796133600000,0,gpu,gpu.utilization,0.1"))

    assert "milliseconds" in " ".join(problem.fix or "" for problem in recording.problems)


def test_order_duplicates_and_a_clock_going_back_are_all_right(tmp_path: Path) -> None:
    """Rows may come in any order; of two rows of one series and instant the later one counts."""
    recording = read(
        tmp_path,
        table(
            "180,0,gpu,gpu.utilization,0.3",
            "60,0,gpu,gpu.utilization,0.9",
            "120,0,gpu,gpu.utilization,0.2",
            "60,0,gpu,gpu.utilization,0.1",
        ),
    )

    assert recording.problems == ()
    assert recording.samples == 3
    assert recording.frame(60.0).planes["gpu.utilization"].values[:, 0].tolist() == [0.1, 0.2, 0.3]


# --- values


@pytest.mark.parametrize("text", ["N/A", "[N/A]", "ERR!", "[Unknown Error]", "12.5 W", "--"])
def test_P_A5_G19_text_for_a_number_is_a_bad_reading(tmp_path: Path, text: str) -> None:
    """A text where a number belongs is a bad reading that quotes it, never 0."""
    frame = read(tmp_path, table(f"60,0,gpu,gpu.utilization,{text}")).frame(60.0)

    assert math.isnan(frame.planes["gpu.utilization"].values[0, 0])
    assert reason(frame, "gpu.utilization") == text


def test_blank_value_is_a_bad_reading(tmp_path: Path) -> None:
    """An empty cell is a reading that could not be taken."""
    frame = read(tmp_path, table("60,0,gpu,gpu.utilization,", "60,1,job,job.state,")).frame(60.0)

    assert (reason(frame, "gpu.utilization"), reason(frame, "job.state")) == ("blank", "blank")


@pytest.mark.parametrize(
    ("text", "status"), [("nan", NOT_A_NUMBER), ("inf", PLUS_INFINITY), ("-inf", MINUS_INFINITY)]
)
def test_P_A6_non_finite_curve_is_the_worst_value(tmp_path: Path, text: str, status: int) -> None:
    """A loss that is not finite is stored as the worst with its kind; the worst depends on the direction."""
    frame = read(
        tmp_path,
        table(
            f"60,1,job,train.loss,{text}", f"60,1,job,eval.metric,{text}", f"60,0,gpu,gpu.utilization,{text}"
        ),
    ).frame(60.0)

    assert (frame.planes["train.loss"].values[0, 0], frame.planes["train.loss"].status[0, 0]) == (
        math.inf,
        status,
    )
    assert (frame.planes["eval.metric"].values[0, 0], frame.planes["eval.metric"].status[0, 0]) == (
        -math.inf,
        status,
    )
    assert reason(frame, "gpu.utilization") == "not a number"


def test_state_outside_its_list_is_a_bad_reading(tmp_path: Path) -> None:
    """A state that is not in the closed list is named in the reason; texts are kept as words."""
    frame = read(
        tmp_path,
        table("60,1,job,job.state,sleeping", "120,1,job,job.state,running", "60,0,gpu,gpu.model,N/A"),
    ).frame(60.0)

    assert reason(frame, "job.state") == "unknown value sleeping"
    assert frame.planes["job.state"].words == ("running",)
    assert frame.planes["gpu.model"].words == ("N/A",)
    assert frame.planes["gpu.model"].status[0, 0] == VALID


def test_reasons_beyond_the_limit_share_one(tmp_path: Path) -> None:
    """More distinct reasons than a status byte can tell apart end in one common reason."""
    rows = [f"{60 * (i + 1)},0,gpu,gpu.utilization,bad {i:04}" for i in range(300)]
    frame = read(tmp_path, table(*rows)).frame(60.0)

    assert len(frame.reasons) == 240
    assert reason(frame, "gpu.utilization", 0) == "bad 0000"
    assert reason(frame, "gpu.utilization", 299) == "bad reading (other)"


# --- labels


def test_labels_are_present_absent_or_unreadable(tmp_path: Path) -> None:
    """In CSV an empty cell is absent and `?` unreadable."""
    frame = read(
        tmp_path,
        table("60,0,gpu,gpu.utilization,0.1,a,,?", header=f"{HEADER},label.job,label.team,label.user"),
    ).frame(60.0)

    assert frame.resources[GPU].changes[0].labels == {"job": "a", "team": None, "user": UNREADABLE}


def test_P_D23_json_tells_empty_from_absent(tmp_path: Path) -> None:
    """In JSON an empty text is present, null is absent, and a missing key says nothing."""
    rows = [
        {
            "time": 60,
            "resource": "0",
            "kind": "gpu",
            "signal": "gpu.utilization",
            "value": 1,
            "labels": {"job": ""},
        },
        {"time": 120, "resource": "0", "kind": "gpu", "signal": "gpu.utilization", "value": 1},
        {
            "time": 180,
            "resource": "0",
            "kind": "gpu",
            "signal": "gpu.utilization",
            "value": 1,
            "label.job": None,
        },
        {
            "time": 240,
            "resource": "0",
            "kind": "gpu",
            "signal": "gpu.utilization",
            "value": 1,
            "label.job": "?",
        },
    ]
    frame = read(tmp_path, ("a.jsonl", "\n".join(map(json.dumps, rows)))).frame(60.0)

    changes = frame.resources[GPU].changes
    assert [(c.slot, dict(c.labels)) for c in changes] == [
        (1, {"job": ""}),
        (3, {"job": None}),
        (4, {"job": UNREADABLE}),
    ]


def test_labels_of_one_slot_are_merged(tmp_path: Path) -> None:
    """Within a slot present beats unreadable beats absent, and the latest text wins; else labels stay."""
    frame = read(
        tmp_path,
        table(
            "10,0,gpu,gpu.utilization,0.1,a,?",
            "20,0,gpu,gpu.utilization,0.1,b,",
            "30,0,gpu,gpu.utilization,0.1,?,",
            "40,0,gpu,gpu.utilization,0.1,,",
            "70,0,gpu,gpu.utilization,0.1,b,?",
            "130,0,gpu,gpu.utilization,0.1,,?",
            header=f"{HEADER},label.job,label.team",
        ),
    ).frame(60.0)

    assert [(c.slot, dict(c.labels)) for c in frame.resources[GPU].changes] == [
        (1, {"job": "b", "team": UNREADABLE}),
        (3, {"job": None, "team": UNREADABLE}),
    ]


def test_resource_without_labels_has_one_change_with_none(tmp_path: Path) -> None:
    """A resource of which no label was told begins with no labels."""
    frame = read(tmp_path, table("60,0,gpu,gpu.utilization,0.1")).frame(60.0)

    assert [(c.slot, dict(c.labels)) for c in frame.resources[GPU].changes] == [(1, {})]


# --- cadence, looks, presence


def test_cadence_is_given_or_the_median_gap_of_its_kind_and_signal(tmp_path: Path) -> None:
    """`every` sets a series' cadence; the others take the median gap, rounded up to slots."""
    rows = [f"{60 + 90 * i},0,gpu,gpu.utilization,0.1," for i in range(5)]
    rows += ["60,1,gpu,gpu.utilization,0.1,5m", "60,2,gpu,gpu.utilization,0.1,"]
    rows += ["60,1,job,train.step,5,"]
    frame = read(tmp_path, table(*rows, header=f"{HEADER},every")).frame(60.0)

    assert frame.planes["gpu.utilization"].cadence.tolist() == [2, 5, 2]
    assert frame.planes["train.step"].cadence.tolist() == [1]


def test_cadence_does_not_depend_on_until(tmp_path: Path) -> None:
    """A part of a recording has the columns and cadences of the whole, but only resources seen so far."""
    rows = [f"{300 * i},0,gpu,gpu.utilization,0.1" for i in range(1, 6)] + ["1500,1,gpu,gpu.utilization,0.1"]
    recording = read(tmp_path, table(*rows))

    part = recording.frame(60.0, until=659.0)

    assert part.last == 10
    assert part.planes["gpu.utilization"].values.shape == (6, 2)
    assert part.planes["gpu.utilization"].cadence.tolist() == [5, 5]
    assert part.look_cadence == recording.frame(60.0).look_cadence == {"gpu": 5}
    assert list(part.resources) == [GPU]


def test_until_after_the_last_sample_shows_silence(tmp_path: Path) -> None:
    """A frame reaches to `until`, so that what has gone silent is seen as stale."""
    frame = read(tmp_path, table("60,0,gpu,gpu.utilization,0.1")).frame(60.0, until=300.0)

    assert frame.planes["gpu.utilization"].status[:, 0].tolist() == [VALID, 0, 0, 0, 0]


def test_collector_looked_where_it_gave_any_sample_unless_told_otherwise(tmp_path: Path) -> None:
    """Any sample shows a look; collector.success overrides, with its text as the reason."""
    frame = read(
        tmp_path,
        table(
            "60,0,gpu,gpu.utilization,0.1",
            "120,1,gpu,gpu.utilization,0.1",
            "240,gpu,collector,collector.success,0",
            "300,gpu,collector,collector.success,timeout",
            "300,slurm,collector,collector.success,1",
        ),
    ).frame(60.0)

    assert frame.looks["gpu"].tolist() == [LOOKED, LOOKED, 0, FAILED, FAILED]
    assert frame.looks["slurm"].tolist() == [0, 0, 0, 0, LOOKED]
    assert frame.look_reasons == {"gpu": "timeout"}


def test_absence_lasts_until_the_next_reading(tmp_path: Path) -> None:
    """resource.present 0 begins an absence; a reading, also a bad one, ends it."""
    recording = read(
        tmp_path,
        table(
            "60,0,gpu,gpu.utilization,0.1",
            "120,0,gpu,resource.present,0",
            "180,0,gpu,resource.present,0",
            "240,0,gpu,gpu.utilization,N/A",
            "300,0,gpu,resource.present,0",
        ),
    )

    assert recording.frame(60.0).resources[GPU].absences == ((2, 4), (5, None))
    assert recording.frame(60.0, until=180.0).resources[GPU].absences == ((2, None),)


# --- problems


def test_unknown_signal_is_told_once_with_its_count_and_the_nearest_name(tmp_path: Path) -> None:
    """Rows of a signal outside the catalogue are skipped and told once per name."""
    recording = read(
        tmp_path,
        table(
            "60,0,gpu,gpu.utilisation,0.1",
            "60,0,gpu,gpu.utilization,0.1",
            "120,0,gpu,gpu.utilisation,0.1",
        ),
    )

    assert told(recording) == [
        "2: unknown signal 'gpu.utilisation'; 2 rows skipped [recorded-unknown-signal]"
    ]
    assert recording.problems[0].fix == "did you mean gpu.utilization?"
    assert recording.samples == 1


def test_kinds_are_checked(tmp_path: Path) -> None:
    """An unknown kind, a kind that the signal does not belong to, and a missing resource are told."""
    recording = read(
        tmp_path,
        table(
            "60,0,gpus,gpu.utilization,0.1",
            "60,0,job,gpu.utilization,0.1",
            "60,,gpu,gpu.utilization,0.1",
            "60,0,gpu,gpu.utilization,0.1",
        ),
    )

    assert told(recording) == [
        "2: unknown kind 'gpus'; 1 row skipped [recorded-unknown-kind]",
        "3: gpu.utilization is no signal of kind job; 1 row skipped [recorded-wrong-kind]",
        "4: a row without a resource; 1 row skipped [recorded-bad-row]",
    ]


def test_bad_rows_do_not_spoil_the_others(tmp_path: Path) -> None:
    """A row with too few cells, an open quote, or a huge line is skipped alone."""
    huge = "60,0,gpu,gpu.utilization," + "9" * 1_500_000
    recording = read(
        tmp_path,
        table(
            "60,0,gpu,gpu.utilization,0.1",
            "60,0,gpu",
            '120,"0,gpu,gpu.utilization,0.1',
            huge,
            "",
            "180,0,gpu,gpu.utilization,0.3",
            "soon,0,gpu,gpu.utilization,0.3",
        ),
    )

    assert told(recording) == [
        "3: 3 cells instead of 5; 1 row skipped [recorded-bad-row]",
        "4: a quote that is not closed; 1 row skipped [recorded-bad-row]",
        "5: a line of more than 1,000,000 bytes is skipped [recorded-long-line]",
        "8: time 'soon' cannot be read; 1 row skipped [recorded-bad-time]",
    ]
    assert recording.samples == 2


def test_json_lines_that_are_none_do_not_spoil_the_others(tmp_path: Path) -> None:
    """A line that is no object, or lacks a key, is skipped; a cut last line is told as such."""
    good = '{"time": 60, "resource": "0", "kind": "gpu", "signal": "gpu.utilization", "value": NaN, "x": 1}'
    recording = read(tmp_path, ("a.jsonl", f'{good}\n[1]\n\n{{"time": 5}}\n{good[:40]}'))

    assert told(recording) == [
        "1: columns that are not read: x [recorded-extra-column]",
        "2: a line that is no JSON object; 1 row skipped [recorded-bad-row]",
        "4: a row without resource, kind, signal, value; 1 row skipped [recorded-bad-row]",
        "5: the last line is cut off and skipped [recorded-truncated]",
    ]
    assert recording.samples == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "1: the file holds no rows [recorded-empty]"),
        (HEADER.encode() + b"\n", "1: the file holds no rows [recorded-empty]"),
        (b"time,resource,kind,value\n", "1: no column signal [recorded-missing-column]"),
        (
            b"time;resource;kind;signal;value\n",
            "1: no column time, resource, kind, signal, value [recorded-missing-column]",
        ),
        (b"time,time,resource,kind,signal,value\n", "1: column time stands twice [recorded-missing-column]"),
        (
            HEADER.encode() + b"\n60,\xe9,gpu,gpu.utilization,1\n",
            "2: byte 35 is not UTF-8 (0xe9) [recorded-encoding]",
        ),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, content: bytes, expected: str) -> None:
    """A file that gives nothing is told with the reason, and the other file is read."""
    good = "b.csv", f"{HEADER}\n60,0,gpu,gpu.utilization,0.1\n"
    recording = read(tmp_path, ("a.csv", content), good)

    assert told(recording) == [expected]
    assert recording.samples == 1


def test_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    """A spreadsheet's UTF-8 file reads like any other."""
    text = f"\ufeff{HEADER}\r\n60,0,gpu,gpu.utilization,0.1\r\n"

    assert read(tmp_path, ("a.csv", text)).problems == ()


def test_missing_file_and_unknown_format_are_told_together(tmp_path: Path) -> None:
    """Every file that cannot be read is told at once."""
    (tmp_path / "notes.txt").write_text("x")
    recording = read_recorded(
        [tmp_path / "no.csv", tmp_path / "notes.txt"], catalogue=CATALOGUE, timezone="UTC"
    )

    assert [problem.code for problem in recording.problems] == ["recorded-unreadable"] * 2


def test_P_D28_nothing_read_is_an_error(tmp_path: Path) -> None:
    """A folder without recordings is an error, not an empty table."""
    recording = read_recorded([tmp_path], catalogue=CATALOGUE, timezone="UTC")

    assert [problem.code for problem in recording.problems] == ["recorded-nothing"]
    assert recording.frame(60.0).slots == 0
    assert (recording.first_time, recording.last_time) == (None, None)


def test_stray_time_is_refused_before_memory_is_asked_for(tmp_path: Path) -> None:
    """A row of the year 1970 among rows of today does not ask for 29 million slots of every series."""
    rows = [f"1796133600,{i},gpu,gpu.utilization,0.1" for i in range(100)]
    recording = read(tmp_path, table("60,0,gpu,gpu.utilization,0.1", *rows))

    with pytest.raises(FrameTooLarge, match="coarser resolution"):
        recording.frame(60.0)


def test_cut_gzip_file_gives_what_it_has(tmp_path: Path) -> None:
    """A gzip file that is cut off is read as far as it goes, and the cut is told."""
    rows = [f"{60 * i},{random.Random(i).random()},gpu,gpu.utilization,0.1" for i in range(1, 20_000)]
    packed = gzip.compress("\n".join((HEADER, *rows, "")).encode())
    recording = read(tmp_path, ("a.csv.gz", packed[: len(packed) // 2]))

    assert "recorded-truncated" in [problem.code for problem in recording.problems]
    assert 1_000 < recording.samples < 15_000


def test_parquet_without_polars_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where polars is not installed the message says what to install."""
    monkeypatch.setitem(sys.modules, "polars", None)
    recording = read(tmp_path, ("a.parquet", b"PAR1"))

    assert told(recording) == ["1: reading Parquet needs polars [recorded-needs-extra]"]
    assert recording.problems[0].fix == "pip install 'stoploss[parquet]'"


def test_progress_ends_at_one(tmp_path: Path) -> None:
    """Progress grows to 1."""
    name, text = table("60,0,gpu,gpu.utilization,0.1")
    (tmp_path / name).write_text(text)
    shares: list[float] = []
    read_recorded([tmp_path], catalogue=CATALOGUE, timezone="UTC", progress=shares.append)

    assert shares == sorted(shares)
    assert shares[-1] == 1.0


# --- formats and cuts


def test_documented_examples_give_the_same_frame(tmp_path: Path) -> None:
    """The examples of the page about recorded signals read without a problem, and mean the same."""
    page = (Path(__file__).parents[2] / "docs/recorded-signals.md").read_text()
    frames = []
    for language in ("csv", "jsonl"):
        path = tmp_path / f"example.{language}"
        path.write_text(page.split(f"```{language}\n")[1].split("```")[0])
        recording = read_recorded([path], catalogue=shipped_catalogue(), timezone="UTC")
        assert told(recording) == []
        frames.append(recording.frame(60.0))

    assert_same(*frames)


def test_live_looks_and_recorded_rows_fold_to_the_same_frame(tmp_path: Path) -> None:
    """What a collector sees live becomes the frame that its recording becomes."""
    rows = [(60 * i, f"{i % 2}", "N/A" if i == 5 else str(i / 10)) for i in range(2, 12)]
    text = [f"{time},{name},gpu,gpu.utilization,{value},j,60s" for time, name, value in rows]
    recorded = read(tmp_path, table(*text, header=f"{HEADER},label.job,every")).frame(60.0)
    buffer = SampleBuffer(CATALOGUE, {"gpu": 60.0})
    for time, name, value in rows:
        sample = Sample(time, ResourceId("gpu", name), "gpu.utilization", value, {"job": "j"})
        buffer.add("gpu", Look((sample,)), slot_time=time)

    assert_same(recorded, buffer.frame(60.0))


def test_every_format_gives_the_same_frame(tmp_path: Path) -> None:
    """CSV, JSON lines, gzip and Parquet of the same readings are the same."""
    polars = pytest.importorskip("polars", reason="needs the extra parquet")
    rows = [
        {
            "time": f"2026-12-01T14:{i:02}:00+00:00",
            "resource": str(i % 3),
            "kind": "gpu",
            "signal": "gpu.utilization",
            "value": "N/A" if i == 7 else str(i / 10),
            "every": "3m",
            "label.job": "a" if i < 20 else None,
        }
        for i in range(30)
    ]
    lines = [",".join(rows[0]), *(",".join(cell or "" for cell in row.values()) for row in rows)]
    text = "\n".join(lines) + "\n"
    (tmp_path / "p").mkdir()
    polars.DataFrame(rows).with_columns(polars.col("time").str.to_datetime(time_zone="UTC")).write_parquet(
        tmp_path / "p/a.parquet"
    )
    frames = [
        read(tmp_path, ("a.csv", text)).frame(60.0),
        read(tmp_path, ("a.csv.gz", gzip.compress(text.encode()))).frame(60.0),
        read(tmp_path, ("a.jsonl", "\n".join(map(json.dumps, rows)))).frame(60.0),
        read_recorded([tmp_path / "p"], catalogue=CATALOGUE, timezone="UTC").frame(60.0),
    ]

    for frame in frames[1:]:
        assert_same(frames[0], frame)
    assert frames[0].planes["gpu.utilization"].cadence.tolist() == [3, 3, 3]


SERIES = st.sampled_from(
    [
        ("0", "gpu", "gpu.utilization"),
        ("1", "gpu", "gpu.utilization"),
        ("0", "gpu", "gpu.model"),
        ("j", "job", "job.state"),
        ("j", "job", "train.step"),
        ("j", "job", "train.loss"),
        ("j", "job", "resource.present"),
        ("gpu", "collector", "collector.success"),
    ]
)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 1200),
        SERIES,
        st.sampled_from(["0", "1", "0.25", "7", "nan", "N/A", "", "running", "failed"]),
        st.sampled_from(["", "?", "a", "b"]),
        st.sampled_from(["", "60s", "3m"]),
    ).map(lambda row: ",".join((str(row[0]), *row[1], *row[2:]))),
    min_size=1,
    max_size=40,
)


def frame_of(parts: list[list[str]], until: float | None = None, *, backwards: bool = False) -> Frame:
    """Write each part as a file and read all of them."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{index}.csv" for index in range(len(parts))]
        for path, rows in zip(paths, parts, strict=True):
            path.write_text("\n".join((f"{HEADER},label.job,every", *rows, "")))
        given_paths = paths[::-1] if backwards else paths
        recording = read_recorded(given_paths, catalogue=CATALOGUE, timezone="UTC")
    return recording.frame(60.0, until=until)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(0, 40), st.booleans())
def test_files_cut_anywhere_give_the_same_frame(rows: list[str], cut: int, backwards: bool) -> None:
    """Two files that together hold the rows of one give exactly its frame, named in any order."""
    assert_same(frame_of([rows]), frame_of([rows[:cut], rows[cut:]], backwards=backwards))


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(0, 1260))
def test_part_is_the_beginning_of_the_whole(rows: list[str], until: int) -> None:
    """A frame until some time equals the whole one's slots up to then."""
    whole, part = frame_of([rows]), frame_of([rows], float(until))
    last = min(part.last, whole.last)

    for name, plane in whole.cut(whole.first, max(last, whole.first - 1)).planes.items():
        twin = part.planes[name]
        np.testing.assert_array_equal(plane.status, twin.status[: len(plane.status)])
        np.testing.assert_array_equal(plane.values, twin.values[: len(plane.values)])
        np.testing.assert_array_equal(plane.cadence, twin.cadence)
    assert part.look_cadence == whole.look_cadence
    for resource, presence in part.resources.items():
        known = whole.resources[resource]
        assert presence.first == known.first
        assert presence.changes == tuple(change for change in known.changes if change.slot <= part.last)


def test_half_a_surrogate_pair_is_no_text(tmp_path: Path) -> None:
    """A JSON escape that is no character spoils its own line only."""
    rest = '"kind": "gpu", "signal": "gpu.utilization", "value": 0.5}'
    good = '{"time": 60, "resource": "\\ud83d\\ude00", ' + rest
    bad = good.replace("\\ud83d\\ude00", "\\ud83d")
    path = tmp_path / "a.jsonl"
    path.write_text(f"{bad}\n{good}\n", encoding="utf-8")

    recording = read_recorded([path], catalogue=shipped_catalogue(), timezone="UTC")

    assert recording.samples == 1
    assert [(item.code, item.position.line) for item in recording.problems] == [("recorded-bad-row", 1)]
