"""`stoploss validate`: every mistake of policy files at once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoploss.cli.exits import CLEAN, USAGE, UserError
from stoploss.cli.loading import load_files, policy_files
from stoploss.reports.counts import count

if TYPE_CHECKING:
    from stoploss.rules.loader import LoadResult
    from stoploss.rules.policy import PolicySet

_SERIES = 10_000
_SUFFIXES = {".json": "json", ".sarif": "sarif", ".txt": "text"}


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=str))
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json", "github", "sarif"]),
    default=None,
    help="How to tell what is wrong; default text.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to a file; its suffix picks the format.",
)
@click.option("--strict", is_flag=True, help="Warnings fail too.")
def validate(files: tuple[str, ...], format_: str | None, out: Path | None, strict: bool) -> int:
    """Check policy FILES and tell every mistake at once.

    Without FILES it checks ./policies.yaml. Exit status: 0 good, 2 mistakes (with
    --strict also where there are only warnings).
    """
    from stoploss.reports.diagnostics import counts

    result = load_files(policy_files(files, "validate"))
    errors, warnings, _ = counts(result.diagnostics)
    _tell(result, format_, out)
    return USAGE if errors or (strict and warnings) else CLEAN


def _tell(result: LoadResult, format_: str | None, out: Path | None) -> None:
    from stoploss.reports.diagnostics import renderer

    if out is not None:
        name = format_ or _SUFFIXES.get(out.suffix, "text")
        content = _text(result, colour=False) if name == "text" else renderer(name)(result.diagnostics)
        try:
            out.write_text(content, encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write {out}: {error.strerror}") from None
    if out is None and format_ not in (None, "text"):
        click.echo(renderer(str(format_))(result.diagnostics), nl=False)
    else:
        # The screen keeps the text for people also where a file gets another format.
        click.echo(_text(result, colour=_colour()), nl=False)


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _text(result: LoadResult, *, colour: bool) -> str:
    from stoploss.reports.diagnostics import counts
    from stoploss.reports.diagnostics_text import render

    blocks = render(result.diagnostics, colour=colour)
    told = [
        count(number, word)
        for number, word in zip(counts(result.diagnostics), ("error", "warning", "info"), strict=True)
        if number
    ]
    # Files that could not be read are among those that the diagnostics name.
    files = len({*result.files, *(item.position.file for item in result.diagnostics)})
    summary = f"{', '.join(told)} in {count(files, 'file')}\n" if told else ""
    if result.policies is not None:
        summary += f"ok: {count(len(result.policies.policies), 'policy')} in {count(files, 'file')}\n"
        summary += _largest_window(result.policies)
    return f"{blocks}\n{summary}" if blocks else summary


def _largest_window(policies: PolicySet) -> str:
    """What the longest window costs in memory: one float of 8 bytes per slot and series."""
    from stoploss.rules.lint import windows
    from stoploss.rules.units import format_duration

    found = [
        (round(use.seconds / policy.resolution), use.signal, use.seconds)
        for policy in policies.policies
        for condition in policy.conditions
        for use in windows(condition.root)
    ]
    if not found:
        return ""
    slots, signal, seconds = max(found)
    size = slots * 8 * _SERIES / 1e6
    shown = f"{size:,.1f} MB" if size < 1000 else f"{size / 1000:,.1f} GB"
    window = format_duration(seconds).replace(" ", "")
    return f"largest window: {signal} {window} = {count(slots, 'slot')}, {shown} per {_SERIES:,} series\n"
