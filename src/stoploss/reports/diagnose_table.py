"""Diagnosed runs for a person at a terminal of 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import click

from stoploss.engine.losses.diagnosis import Diagnosis, Report
from stoploss.reports import diagnose_view as view

WIDTH = 80
SHOWN = 200
"""Runs and unreadable paths that a person is shown; all of them are in the json."""
COLOURS = {"high": "red", "medium": "yellow", "low": "cyan"}
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def render(report: Report) -> str:
    """The report as text; colours are styles that a pipe strips."""
    lines = [f"stoploss diagnose · {view.heading(report)}"]
    totals = view.totals(report)
    lines += ["", *_wrapped("COST  ", " · ".join(totals))] if totals else []
    if report.runs:
        lines += ["", f"{'VERDICT':<15} {'SINCE':>9} {'BEST':>9} {'WASTED':>7}  {'CAUSE':<16} RUN"]
        for run in sorted(report.runs, key=lambda run: (not run.anomalous, run.judged))[:SHOWN]:
            lines += _run(run)
        if len(report.runs) > SHOWN:
            lines.append(f"… and {len(report.runs) - SHOWN:,} more; all of them: --format json")
    lines += _budgets(report)
    lines += _unreadable(report)
    if report.runs and not any(view.has_clock(run) for run in report.runs):
        lines += ["", "no log holds a clock: everything is told in steps"]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _run(run: Diagnosis) -> Iterator[str]:
    verdict = run.verdict
    word = verdict.verdict.ljust(15)
    colour = COLOURS.get(view.SEVERITY.get(verdict.verdict, ""))
    name = _plain(run.log.run)
    yield (
        f"{click.style(word, fg=colour) if colour else word} {_since(verdict.since_step):>9} "
        f"{view.value(verdict.best):>9} {view.share(verdict.wasted_share):>7}  "
        f"{run.cause.name if run.cause else '-':<16} {_end(name, WIDTH - 62)}"
    )
    if not run.anomalous:
        return
    yield from _wrapped("  ", "; ".join(verdict.evidence))
    if run.cause is not None:
        yield from _wrapped("  ", run.cause.sentence)
    for item in run.advice:
        yield from _wrapped("  do: ", item.change)


def _since(step: float | None) -> str:
    """A step in nine characters."""
    shown = view.step(step)
    return shown if len(shown) <= 9 else f"{step:.3g}"


def _budgets(report: Report) -> Iterator[str]:
    told = [run for run in report.runs if run.budget is not None]
    if told:
        yield from ("", click.style("BUDGET", bold=True))
    for run in told:
        assert run.budget is not None
        mark = click.style("alert", fg="red") if run.budget.alert else "ok"
        text = textwrap.wrap(f"{_plain(run.log.run)}: {run.budget.line}", WIDTH - 7)
        yield f"{mark}{' ' * (7 - len(click.unstyle(mark)))}{text[0]}"
        yield from (f"{'':7}{line}" for line in text[1:])


def _unreadable(report: Report) -> Iterator[str]:
    if report.problems:
        yield from ("", click.style("NOT READ", bold=True))
    for path, reason in report.problems[:SHOWN]:
        yield from _wrapped("", f"{_plain(path)}: {_plain(reason)}")
    if len(report.problems) > SHOWN:
        yield f"… and {len(report.problems) - SHOWN:,} more; all of them: --format json"


def _wrapped(start: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start))


def _plain(text: str) -> str:
    return _UNSEEN.sub("\ufffd", text)


def _end(text: str, width: int) -> str:
    """The end of a name, which tells more than its beginning."""
    return text if len(text) <= width else "…" + text[1 - width :]
