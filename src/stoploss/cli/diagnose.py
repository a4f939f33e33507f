"""`stoploss diagnose`: the verdict on training logs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoploss.cli import sources
from stoploss.cli.exits import CLEAN, DEGRADED, FINDINGS, USAGE, UserError

if TYPE_CHECKING:
    from stoploss.engine.losses.diagnosis import Report
    from stoploss.engine.model import TrainingLog
    from stoploss.rules.declarations import Declarations

FORMATS = {".txt": "table", ".json": "json", ".html": "html"}
"""Suffix of a file -> the format that it picks."""


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=str))
@click.option(
    "--config",
    type=click.Path(path_type=str),
    metavar="FILE",
    help="YAML with prices, and per run targets, GPUs, budgets, and patterns for text of your own.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(FORMATS.values())),
    default="table",
    show_default=True,
    help="On stdout.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"Also write to a file; its suffix ({', '.join(FORMATS)}) picks the format.",
)
def diagnose(paths: tuple[str, ...], config: str | None, format_: str, out: Path | None) -> int:
    """Say how the training runs in PATHS go: verdict, cause, cost and what to do.

    A path is a training log, or a folder of them: TensorBoard, Hugging Face, Lightning,
    MLPerf, Megatron, MLflow, JSON lines, CSV, and text of keys and values.

    Exit status: 0 all are well, 1 anomalies, 2 nothing could be read, 4 something could not.
    """
    if out is not None and out.suffix.lower() not in FORMATS:
        raise UserError(f"--out {out}: the suffix says the format; use one of {', '.join(FORMATS)}")
    report = run(paths, config)
    if out is not None:
        _write(report, out)
    text = _renderer(format_)(report)
    click.echo(text, nl=False, color=sys.stdout.isatty() if format_ == "table" else None)
    return status(report)


def run(paths: Sequence[str], config: str | None) -> Report:
    """Read and judge all runs.

    Raises:
        click.exceptions.Exit: the file of declarations holds mistakes, which have been told on stderr.
    """
    from stoploss.engine.costs.book import book_for
    from stoploss.engine.losses.diagnosis import Report, diagnose
    from stoploss.rules.declarations import Declarations

    declarations = Declarations() if config is None else _declarations(config)
    logs, problems = _read(paths, declarations.patterns)
    book = book_for(declarations.prices, declarations.currency)
    runs = diagnose(logs, declarations, book, _written_now(logs))
    return Report(runs, tuple(problems))


def status(report: Report) -> int:
    """The exit status; a run without a curve could not be judged, which counts as not read."""
    unread = bool(report.problems) or not all(run.judged for run in report.runs)
    if not any(run.judged for run in report.runs):
        return USAGE
    if unread:
        return DEGRADED
    return FINDINGS if any(run.anomalous for run in report.runs) else CLEAN


def _declarations(path: str) -> Declarations:
    from stoploss.reports.diagnostics_text import render
    from stoploss.rules.declarations import load

    loaded, diagnostics = load(path)
    if diagnostics:
        click.echo(render(diagnostics), err=True, nl=False)
    if loaded is None:
        click.echo("nothing was diagnosed", err=True)
        raise click.exceptions.Exit(USAGE)
    return loaded


def _read(paths: Sequence[str], patterns: Sequence[str]) -> tuple[list[TrainingLog], list[tuple[str, str]]]:
    from stoploss.collectors.training import read
    from stoploss.collectors.training.records import ReadProblem
    from stoploss.collectors.walking import shown

    logs: list[TrainingLog] = []
    problems: list[ReadProblem] = []
    seen: set[str] = set()
    with sources.progress("reading") as advance:
        for number, path in enumerate(paths):
            # One path given twice is one log; it must not count twice in sums.
            real = os.path.realpath(path)
            if real in seen:
                continue
            seen.add(real)

            def tell(done: int, total: int, number: int = number) -> None:
                advance((number + (done / total if total else 1.0)) / len(paths))

            logs += read(path, patterns=patterns, progress=tell, problems=problems)
    return logs, [(shown(item.path), item.message) for item in problems]


def _written_now(logs: Sequence[TrainingLog]) -> dict[str, float]:
    """The time, for each log that a process has open to write."""
    from stoploss.collectors import log_owners
    from stoploss.engine import clock

    real = {log.source: os.path.realpath(log.source) for log in logs}
    writers = log_owners.writers(frozenset(real.values()))
    at = clock.now().timestamp()
    return {source: at for source, path in real.items() if path in writers.of}


def _renderer(name: str) -> Callable[[Report], str]:
    function: Callable[[Report], str] = importlib.import_module(f"stoploss.reports.diagnose_{name}").render
    return function


def _write(report: Report, out: Path) -> None:
    name = FORMATS[out.suffix.lower()]
    text = _renderer(name)(report)
    try:
        out.write_text(
            click.unstyle(text) if name == "table" else text, encoding="utf-8", errors="backslashreplace"
        )
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from None
