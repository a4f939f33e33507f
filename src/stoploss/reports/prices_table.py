"""The price book for a person at a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from datetime import date

from stoploss.engine.costs.book import BOOK_CURRENCY, OLD_DAYS, Book, age_days
from stoploss.engine.costs.money import price_text

WIDTH = 80
UNKNOWN = "unknown"


def render(book: Book, today: date) -> str:
    """The book as text: the policies' own prices first, then the tables, each with its sources."""
    age = age_days(book.month, today)
    lines = [
        f"stoploss prices · book of {book.month}, {age} {'day' if age == 1 else 'days'} old · {BOOK_CURRENCY}"
    ]
    if age > OLD_DAYS:
        lines += textwrap.wrap(
            f"note: the book is older than {OLD_DAYS} days; give your own prices under prices:", WIDTH
        )
    if book.currency != BOOK_CURRENCY:
        note = (
            f"note: the policies are in {book.currency} and nothing is converted, so that the prices "
            f"of the book do not count; give prices: in {book.currency}"
        )
        lines += textwrap.wrap(note, WIDTH)
    for part in (_own(book), _gpus(book), _instances(book), _storage(book), _rates(book)):
        if part:
            lines += ["", *part]
    if book.problems:
        lines += ["", *(f"note: {problem}" for problem in book.problems)]
    return "\n".join(lines) + "\n"


def _own(book: Book) -> list[str]:
    if not book.own:
        return []
    rows = [
        (f"gpu-hour {key}", price_text(price, "GPU-hour", book.currency), book.own_kind)
        for key, price in book.own
    ]
    return ["YOUR PRICES", *_columns(rows, "<><")]


def _gpus(book: Book) -> list[str]:
    own = dict(book.own)
    rows = [("GPU", "$/GPU-h", "MEMORY", "FP16", "BF16", "TENSOR", "TDP", "")]
    for row in book.gpus:
        key = book.own_key(row.name)
        rows.append(
            (
                row.name,
                _number(row.price) if key is None else f"{_number(own[key])} *",
                f"{row.memory_gb:g} GB",
                _plain(row.fp16_tflops),
                _plain(row.bf16_tflops),
                "yes" if row.tensor_cores else "no",
                f"{row.tdp_w:g} W",
                "" if key is None else f"* yours ({key})",
            )
        )
    notes = ["FP16 and BF16 are peak dense TFLOPS."]
    return [*_columns(rows, "<>>>><><"), *notes, *_sources([(r.source, r.month) for r in book.gpus])]


def _instances(book: Book) -> list[str]:
    rows = [("INSTANCE", "$/h", "SPOT", "SAVES", "GPUS", "VCPUS", "RAM GiB", "Gbit/s")]
    for row in book.instances.values():
        saving = row.spot_saving
        rows.append(
            (
                row.type,
                _number(row.price),
                _number(row.spot),
                UNKNOWN if saving is None else f"{saving:.0%}",
                f"{row.gpus} {row.gpu}" if row.gpu else "-",
                str(row.vcpus),
                f"{row.memory_gib:g}",
                UNKNOWN if row.network_gbit is None else f"{row.network_gbit:g}",
            )
        )
    listed = [(row.source, row.month) for row in book.instances.values()]
    spot = "A spot price is that of the dearest zone; it moves, so its saving is a guide."
    return [*_columns(rows, "<>>><>>>"), spot, *_sources(listed)]


def _storage(book: Book) -> list[str]:
    rows = [("STORAGE", "$/GiB-month", "FOR", "TIER")]
    rows += [
        (row.name, _number(row.price), ", ".join(row.kinds), row.tier or "by name only")
        for row in book.storages
    ]
    return [*_columns(rows, "<><<"), *_sources([(row.source, row.month) for row in book.storages])]


def _rates(book: Book) -> list[str]:
    rows = [("DATA", "$/GiB", "WHAT FOR")]
    rows += [(row.name, _number(row.price), row.meaning) for row in book.rates.values()]
    return [*_columns(rows, "<><"), *_sources([(row.source, row.month) for row in book.rates.values()])]


def _sources(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Every source once, with its month."""
    told = ", ".join(dict.fromkeys(f"{source} [{month}]" for source, month in rows))
    yield from textwrap.wrap(f"Sources: {told}", WIDTH, subsequent_indent="  ")


def _number(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    whole, _, cents = f"{value:.5f}".rstrip("0").partition(".")
    return f"{int(whole):,}.{cents:0<2}"


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _columns(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(sides))]
    cells = (
        (f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        for row in rows
    )
    return ["  ".join(line).rstrip() for line in cells]
