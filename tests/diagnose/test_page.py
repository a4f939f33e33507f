"""The page of diagnosed runs and the pictures of their curves."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.curves import curve, log

from stoploss.engine.costs.book import shipped
from stoploss.engine.losses.diagnosis import Report, diagnose
from stoploss.engine.model import TrainingLog
from stoploss.reports import diagnose_html, svg_curves
from stoploss.reports.svg_curves import Line, Panel, Scale, Span
from stoploss.rules.declarations import Declarations

NASTY = "<b>\"x\"&'y'</b>\x00\x1b[31m\u202e"
FALLING = [3 * n**-0.3 for n in range(1, 101)]


def page(*logs: TrainingLog, problems: tuple[tuple[str, str], ...] = ()) -> str:
    return diagnose_html.render(Report(diagnose(logs, Declarations(), shipped()), problems))


def broken() -> TrainingLog:
    evals = curve("eval.loss", [2.0, 1.5, 1.2], [30, 60, 90])
    train = curve("train.loss", [*FALLING, *[math.nan] * 9])
    return log({"train.loss": train, "eval.loss": evals, "train.lr": [1e-3] * 109})


def test_the_span_begins_where_the_trouble_did() -> None:
    """The tinted span starts at the step of the anomaly and carries its verdict."""
    text = page(broken())

    start = 100 * (101 - 1) / (109 - 1)
    assert f'<rect class="wrong" x="{start:.2f}%"' in text
    assert re.search(r'<text class="verdict"[^>]*>non-finite</text>', text)
    assert 'class="lost"' in text


def test_train_is_solid_and_validation_dashed() -> None:
    """Training and validation share a panel with a line each, and their names say which is which."""
    text = page(broken())

    assert text.count('class="line train"') == text.count('class="line eval"') == 1
    assert "training, solid" in text
    assert "validation, dashed" in text
    assert ".eval { stroke: var(--idle); stroke-dasharray" in text


@pytest.mark.parametrize(("last", "word"), [(0.1, True), (0.9, False)])
def test_log_scale_where_a_decade_is_spanned(last: float, word: bool) -> None:
    """A loss that spans a decade is drawn in a log scale, which is said."""
    text = page(log({"train.loss": [1.0, 0.95, last]}))

    assert ("log scale" in text) is word


def test_every_picture_has_its_numbers_in_words() -> None:
    """A picture is hidden from screen readers and described; its numbers stand in the table below."""
    text = page(broken())

    assert text.count('role="img"') == 2
    assert text.count('<svg class="curves"') == text.count('role="img"')
    assert "best eval.loss" in text
    assert "persistent: 9 records since" in text


def test_the_page_needs_nothing_else_and_follows_the_theme() -> None:
    """There is no script, request or font, and one set of tokens serves light, dark and print."""
    text = page(broken())

    assert not re.search(r"<script|<link|<img|url\(|https?://", text)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_names_cannot_break_the_page() -> None:
    """Markup and control characters in names and reasons are shown and not obeyed."""
    run = log({"train.loss": FALLING})
    odd = TrainingLog(NASTY, NASTY, "test", run.curves, {}, (NASTY,))

    text = page(odd, problems=((NASTY, NASTY),))

    assert '<b>"x"' not in text
    assert not set("\x00\x1b\u202e") & set(text)


def test_many_runs_stay_one_page() -> None:
    """Of many runs some are pictured, all are listed, and it says so."""
    text = page(*(log({"train.loss": FALLING}) for _ in range(60)))

    assert text.count('<section class="run"') == diagnose_html.PICTURED
    assert "10 more runs stand in the table alone" in text


def test_nothing_at_all_is_a_page() -> None:
    """Without a run the page says that none could be read."""
    assert "No run could be read" in page()


number = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(number, number), min_size=1, max_size=40), number, number)
def test_any_curve_can_be_drawn(points: list[tuple[float, float]], start: float, best: float) -> None:
    """Whatever a log held, the picture is well-formed and stays in its box."""
    line = Line([s for s, _ in points], [v for _, v in points], "train")
    scale = svg_curves.scale_of([line])
    steps = [s for s, _ in points if math.isfinite(s)]
    if scale is None or not steps or not math.isfinite(start):
        return
    panel = Panel(
        (line,), scale, (min(steps), max(steps)), 100, Span(start, max(steps), "flat"), (start, best)
    )

    drawn = ElementTree.fromstring(str(svg_curves.panel(panel)))  # noqa: S314

    for path in drawn.iter("path"):
        for pair in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path.attrib["d"]):
            assert 0 <= float(pair[0]) <= svg_curves.WIDTH
            assert 0 <= float(pair[1]) <= svg_curves.DEEP


@pytest.mark.parametrize("steps", [[-1e308, 0.0, 1e308], [7.0, 7.0, 7.0], [1e16, 1e16 + 2, 1e16 + 4]])
def test_steps_of_any_size_have_an_axis(steps: list[float]) -> None:
    """Steps as large as numbers go, or all the same, make a page."""
    text = page(log({"train.loss": curve("train.loss", [1.0, 0.5, 0.4], steps)}))

    assert "training step" in text


def test_thinning_keeps_peaks() -> None:
    """Of ten thousand points a few hundred are drawn, the highest and the lowest among them."""
    values = [1.0] * 10_000
    values[4321], values[8765] = 9.0, 0.1
    panel = Panel((Line(range(10_000), values, "train"),), Scale(0.1, 9.0, False), (0, 9999), 100)

    path = str(svg_curves.panel(panel))

    assert path.count("L") < 2 * svg_curves.MOST
    assert " 0.00" in path
    assert f" {svg_curves.DEEP}.00" in path
