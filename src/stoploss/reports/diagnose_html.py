"""Diagnosed runs as one page of HTML that needs nothing else: no script, no request, no font.

Each run has its curves one above the other over the same steps, and their numbers beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from stoploss import __version__
from stoploss.engine.losses.diagnosis import Diagnosis, Report
from stoploss.engine.losses.facts import number
from stoploss.engine.model import Curve
from stoploss.reports import diagnose_view as view
from stoploss.reports import svg, svg_curves
from stoploss.reports.pages import template
from stoploss.reports.svg_curves import Line, Panel, Span

PICTURED = 50
"""Runs with curves, those with anomalies first; the others stand in the table."""
SHOWN = 500
"""Runs in the table; all of them are in the json."""

_PANELS = (
    ("loss", (("train.loss", "train"), ("eval.loss", "eval")), 160),
    ("metric", (("eval.metric", "eval"),), 96),
    ("gradient norm", (("train.grad_norm", "beside"),), 56),
    ("learning rate", (("train.lr", "beside"),), 56),
)
_NAMES = {"train.loss": "training, solid", "eval.loss": "validation, dashed", "eval.metric": "validation"}


@dataclass(frozen=True, slots=True)
class Picture:
    """One panel in words and lines.

    Attributes:
        name: what it shows.
        keys: its lines by name.
        low, high: the range, as numbers for people.
        scale: `log scale`, or nothing.
        drawn: the picture.
    """

    name: str
    keys: tuple[str, ...]
    low: str
    high: str
    scale: str
    drawn: Markup


@dataclass(frozen=True, slots=True)
class Card:
    """One run with its curves; `axis` is None where there is no curve."""

    run: Diagnosis
    id: str
    pictures: tuple[Picture, ...]
    axis: Markup | None


def render(report: Report) -> str:
    """The page."""
    ranked = sorted(report.runs, key=lambda run: (not run.anomalous, run.judged))
    cards = [_card(run, f"r{at}") for at, run in enumerate(ranked[:PICTURED])]
    ids = {id(card.run): card.id for card in cards}
    page = template("diagnose.html.j2").render(
        report=report,
        rows=[(run, ids.get(id(run))) for run in ranked[:SHOWN]],
        cards=cards,
        more=max(0, len(ranked) - SHOWN),
        unpictured=max(0, len(ranked) - len(cards)),
        view=view,
        version=__version__,
    )
    return page.rstrip() + "\n"


def _card(run: Diagnosis, name: str) -> Card:
    curves = {signal: _with_steps(curve) for signal, curve in run.log.curves.items()}
    drawn = [signal for _, lines, _ in _PANELS for signal, _ in lines if signal in curves]
    steps = [step for signal in drawn for step in curves[signal].steps if math.isfinite(step)]
    if not steps:
        return Card(run, name, (), None)
    bounds = (min(steps), max(steps))
    pictures = tuple(_pictures(run, curves, bounds))
    return Card(run, name, pictures, svg.axis(_ticks(bounds)) if pictures else None)


def _with_steps(curve: Curve) -> Curve:
    """A curve whose log counts no steps counts its records."""
    if any(math.isfinite(step) for step in curve.steps):
        return curve
    return replace(curve, steps=type(curve.steps)("d", range(len(curve.values))))


def _pictures(run: Diagnosis, curves: dict[str, Curve], bounds: tuple[float, float]) -> Iterator[Picture]:
    first = True
    for name, members, height in _PANELS:
        lines = tuple(
            Line(curves[signal].steps, curves[signal].values, stroke)
            for signal, stroke in members
            if signal in curves
        )
        target = number(run.log.facts, "target") if "eval.metric" in curves and name == "metric" else None
        goal = () if target is None else (Line((0.0,), (target,), ""),)
        scale = svg_curves.scale_of((*lines, *goal)) if lines else None
        if scale is None:
            continue
        signals = [signal for signal, _ in members if signal in curves]
        best = run.verdict.best if run.verdict.curve in signals else None
        span = _span(run, bounds)
        if span is not None and not first:
            span = Span(span.start, span.end, "")
        panel = Panel(
            lines,
            scale,
            bounds,
            height,
            span,
            None if best is None else (best.step, best.value),
            target,
        )
        first = False
        yield Picture(
            name,
            tuple(_NAMES[signal] for signal in signals if signal in _NAMES),
            view.number(scale.low),
            view.number(scale.high),
            "log scale" if scale.log else "",
            svg_curves.panel(panel),
        )


def _span(run: Diagnosis, bounds: tuple[float, float]) -> Span | None:
    """From where the trouble began to the end of the run; a passing spike ends where it was over."""
    verdict = run.verdict
    if not run.anomalous or verdict.since_step is None:
        return None
    end = bounds[1]
    if verdict.verdict == "transient-spike":
        end = next((s.end for s in verdict.also.spikes if s.step == verdict.since_step), end)
    return Span(verdict.since_step, end, verdict.verdict)


def _ticks(bounds: tuple[float, float]) -> Sequence[tuple[float, str]]:
    """At most six round steps with their places."""
    first, last = bounds
    if last <= first:
        return [(0.5, view.step(first))]
    if not math.isfinite(last - first):
        return []
    unit = 10.0 ** math.floor(math.log10(last - first))
    size = next(n * unit for n in (0.2, 0.5, 1.0, 2.0) if (last - first) / (n * unit) <= 5 or n == 2.0)
    start = math.ceil(first / size)
    ticks = [at * size for at in range(start, math.floor(last / size) + 1)]
    return [((tick - first) / (last - first), view.step(round(tick, 9))) for tick in ticks]
