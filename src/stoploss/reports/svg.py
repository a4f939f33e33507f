"""Small pictures as inline SVG: a stacked bar, a bullet, a heat map and its axis.

They hold numbers only, never names: what they show is said in words where they are placed.
Widths are shares of whatever place they are given, so that text beside them keeps its size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

LEVELS = 10
"""Steps between empty and full."""

Cells = Sequence[Sequence[float | None]]


def stacked_bar(parts: Sequence[float]) -> Markup:
    """One bar of full width, cut in the proportions of `parts`; each part is paler than the one before."""
    total = sum(parts)
    pieces, at = [], 0.0
    for number, part in enumerate(parts):
        share = 100 * part / total if total else 0.0
        pieces.append(
            f'<rect class="part" x="{at:.2f}%" width="{share:.2f}%" height="16"'
            f' fill-opacity="{tint(number)}"/>'
        )
        at += share
    return _svg("".join(pieces), 'class="bar" height="16"')


def tint(number: int) -> float:
    """The opacity of part `number` of a stacked bar."""
    return max(0.15, round(1 - 0.14 * number, 2))


def bullet(value: float, mark: float) -> Markup:
    """A bar that is full at 1, filled up to `value`, with a tick at `mark`."""
    filled, tick = (100 * min(1.0, max(0.0, share)) for share in (value, mark))
    return _svg(
        '<rect y="4" width="100%" height="8" class="trough"/>'
        f'<rect y="4" width="{filled:.2f}%" height="8" class="part"/>'
        f'<line x1="{tick:.2f}%" x2="{tick:.2f}%" y1="0" y2="16" class="mark"/>',
        'class="bar" height="16"',
    )


def heat_rows(cells: Cells, *, idle_below: float, row_height: int) -> Markup:
    """Rows of shares, one hue from empty to full; cells below `idle_below` are outlined together.

    An unknown cell is not painted: the hatching beneath shows.
    """
    width = max((len(row) for row in cells), default=0)
    levels: dict[int, list[str]] = {}
    for y, row in enumerate(cells):
        for x, length, level in _runs([_level(value) for value in row]):
            levels.setdefault(0, []).append(f"M{x} {y}h{length}v1h-{length}z")
            if level:
                levels.setdefault(level, []).append(f"M{x} {y}h{length}v1h-{length}z")
    shapes = [
        f'<path class="{"full" if level else "empty"}" fill-opacity="{level / LEVELS if level else 1}"'
        f' d="{"".join(path)}"/>'
        for level, path in sorted(levels.items())
    ]
    outline = "".join(
        _outline([[value is not None and value < idle_below for value in row] for row in cells])
    )
    if outline:
        shapes.append(f'<path class="idle" d="{outline}"/>')
    return _svg(
        "".join(shapes),
        f'class="heat" viewBox="0 0 {width} {len(cells)}" preserveAspectRatio="none"'
        f' height="{len(cells) * row_height}"',
    )


def axis(ticks: Sequence[tuple[float, str]]) -> Markup:
    """Words at shares of the width; `ticks` hold digits and month names only."""
    words = []
    for share, text in ticks:
        anchor = "start" if share < 0.06 else "end" if share > 0.94 else "middle"
        words.append(
            f'<line x1="{share:.2%}" x2="{share:.2%}" y2="4" class="mark"/>'
            f'<text x="{share:.2%}" y="18" text-anchor="{anchor}">{text}</text>'
        )
    return _svg("".join(words), 'class="axis" height="24"')


def _svg(inside: str, attributes: str) -> Markup:
    # Every part is made of numbers and fixed words in this module.
    return Markup(f'<svg width="100%" {attributes} aria-hidden="true">{inside}</svg>')  # noqa: S704


def _level(value: float | None) -> int | None:
    return None if value is None else round(LEVELS * min(1.0, max(0.0, value)))


def _runs(levels: Sequence[int | None]) -> Iterator[tuple[int, int, int]]:
    """Start, length and level of each stretch of equal known cells."""
    start = 0
    for at in range(1, len(levels) + 1):
        if at == len(levels) or levels[at] != levels[start]:
            level = levels[start]
            if level is not None:
                yield start, at - start, level
            start = at


def _outline(inside: Sequence[Sequence[bool]]) -> Iterator[str]:
    """Line pieces along the border of the cells that are true."""
    height, width = len(inside), max((len(row) for row in inside), default=0)

    def at(x: int, y: int) -> bool:
        return 0 <= y < height and 0 <= x < len(inside[y]) and inside[y][x]

    for y in range(height + 1):
        for x, length, edge in _runs([int(at(x, y) != at(x, y - 1)) for x in range(width)]):
            if edge:
                yield f"M{x} {y}h{length}"
    for x in range(width + 1):
        for y, length, edge in _runs([int(at(x, y) != at(x - 1, y)) for y in range(height)]):
            if edge:
                yield f"M{x} {y}v{length}"
