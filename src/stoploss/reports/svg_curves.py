"""Curves over training steps as inline SVG: lines, the span in which something is wrong, the best point.

They hold numbers and the fixed words of verdicts only. Lines are drawn in a box that takes the
width it is given; words and dots are placed by shares of it, so that they keep their size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, DEEP = 1000, 100
"""Units of the box in which lines are drawn."""

MOST = 600
"""Points drawn of a line; of more the highest and lowest of each stretch are kept."""


@dataclass(frozen=True, slots=True)
class Line:
    """A curve: steps and values, and the name of its stroke (a CSS class)."""

    steps: Sequence[float]
    values: Sequence[float]
    stroke: str


@dataclass(frozen=True, slots=True)
class Scale:
    """The range of a panel; `log` where it spans a decade or more of positive values."""

    low: float
    high: float
    log: bool

    def share(self, value: float) -> float:
        """The height of a value, 0 at the bottom and 1 at the top."""
        if not self.log:
            return _between(self.low, self.high, value)
        if value <= 0:
            return 0.0
        return _between(math.log10(self.low), math.log10(self.high), math.log10(value))


def _between(low: float, high: float, at: float) -> float:
    """Where a number lies between two others, as a share; 0.5 where they are the same."""
    # Halves, because the distance of two of the largest numbers is infinite.
    width = high / 2 - low / 2
    return min(1.0, max(0.0, (at / 2 - low / 2) / width)) if width > 0 else 0.5


def scale_of(lines: Sequence[Line], *, may_be_log: bool = True) -> Scale | None:
    """The range of all finite values; None where there is none."""
    values = [value for line in lines for value in line.values if math.isfinite(value)]
    if not values:
        return None
    low, high = min(values), max(values)
    return Scale(low, high, may_be_log and low > 0 and high >= 10 * low)


@dataclass(frozen=True, slots=True)
class Span:
    """Steps in which something is wrong, and the word for it, written at its start."""

    start: float
    end: float
    word: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: its lines, what is marked, and the height in pixels.

    Attributes:
        steps: first and last step of the whole run.
        span: tinted.
        best: (step, value) that gets a ring.
        target: value that gets a dotted line.
    """

    lines: tuple[Line, ...]
    scale: Scale
    steps: tuple[float, float]
    height: int
    span: Span | None = None
    best: tuple[float, float] | None = None
    target: float | None = None


def panel(of: Panel) -> Markup:
    """The picture of a panel."""
    inside = [_tint(of)]
    shapes = "".join(_path(line, of) for line in of.lines)
    box = f'viewBox="0 0 {WIDTH} {DEEP}" preserveAspectRatio="none" width="100%" height="100%"'
    inside.append(f"<svg {box}>{shapes}</svg>")
    inside += [_lost(line, of) for line in of.lines]
    if of.target is not None and of.scale.low <= of.target <= of.scale.high:
        y = 100 * (1 - of.scale.share(of.target))
        inside.append(f'<line class="target" x1="0" x2="100%" y1="{y:.2f}%" y2="{y:.2f}%"/>')
    if of.best is not None and math.isfinite(of.best[1]):
        x, y = 100 * _along(of.best[0], of.steps), 100 * (1 - of.scale.share(of.best[1]))
        inside.append(f'<circle class="best" cx="{x:.2f}%" cy="{y:.2f}%" r="4"/>')
    inside.append(_word(of))
    # Every part is made of numbers and fixed words in this module.
    return Markup(  # noqa: S704
        f'<svg class="curves" width="100%" height="{of.height}" aria-hidden="true">{"".join(inside)}</svg>'
    )


def _along(step: float, steps: tuple[float, float]) -> float:
    return _between(steps[0], steps[1], step)


def _tint(of: Panel) -> str:
    if of.span is None:
        return ""
    start, end = (100 * _along(step, of.steps) for step in (of.span.start, of.span.end))
    return f'<rect class="wrong" x="{start:.2f}%" width="{max(0.4, end - start):.2f}%" height="100%"/>'


def _word(of: Panel) -> str:
    if of.span is None or not of.span.word:
        return ""
    start = _along(of.span.start, of.steps)
    # Near the right edge the word stands before the span, where there is room.
    anchor, gap = ("end", -6) if start > 0.7 else ("start", 6)
    place = f'x="{100 * start:.2f}%" dx="{gap}" y="16" text-anchor="{anchor}"'
    return f'<text class="verdict" {place}>{of.span.word}</text>'


def _lost(line: Line, of: Panel) -> str:
    """Short ticks at the top where a value is not finite; at most a hundred."""
    steps = [s for s, v in zip(line.steps, line.values, strict=True) if not math.isfinite(v)]
    places = sorted({round(100 * _along(step, of.steps), 1) for step in steps if math.isfinite(step)})
    return "".join(
        f'<line class="lost" x1="{x:.1f}%" x2="{x:.1f}%" y1="0" y2="8"/>'
        for x in places[:: len(places) // 100 + 1]
    )


def _path(line: Line, of: Panel) -> str:
    """One path; it is broken where a value is not finite or steps go back."""
    pieces, pen, before = [], "M", -math.inf
    for step, value in _thinned(line):
        if not math.isfinite(value) or not math.isfinite(step):
            pen = "M"
            continue
        if step < before:
            pen = "M"
        x, y = WIDTH * _along(step, of.steps), DEEP * (1 - of.scale.share(value))
        pieces.append(f"{pen}{x:.1f} {y:.2f}")
        pen, before = "L", step
    if len(pieces) == 1:
        pieces.append("h2")
    return f'<path class="line {line.stroke}" d="{"".join(pieces)}"/>' if pieces else ""


def _thinned(line: Line) -> list[tuple[float, float]]:
    points = list(zip(line.steps, line.values, strict=True))
    if len(points) <= MOST:
        return points
    size = -(-len(points) // (MOST // 2))
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        finite = [n for n, point in enumerate(stretch) if math.isfinite(point[1])]
        if len(finite) < len(stretch):
            kept += stretch[:1] if not finite else [stretch[finite[0]], (math.nan, math.nan)]
        if finite:
            low = min(finite, key=lambda n: stretch[n][1])
            high = max(finite, key=lambda n: stretch[n][1])
            kept += [stretch[n] for n in sorted({low, high})]
    return kept
