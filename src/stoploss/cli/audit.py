"""`stoploss audit`: one dry pass that writes nothing and sends nothing."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoploss.cli import loading, sources, state
from stoploss.cli.exits import CLEAN, DEGRADED, FINDINGS, UserError
from stoploss.reports.audit_formats import FORMATS, format_of, renderer

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoploss.engine.audit import Audit
    from stoploss.engine.findings import Finding
    from stoploss.rules.policy import PolicySet


@click.command()
@click.argument("policies", nargs=-1, type=click.Path(path_type=str))
@sources.signals_option
@click.option(
    "--at", metavar="TIME", help="Evaluate at this instant of the recording (ISO, or epoch seconds)."
)
@click.option("--watch", metavar="DURATION", help="Look at this machine for so long, such as 30m.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(FORMATS)),
    default="table",
    show_default=True,
    help="On stdout.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"Also write to a file; its suffix ({', '.join(item.suffix for item in FORMATS.values())}) "
    "picks the format, and the table stays on stdout.",
)
@click.option("--plan", is_flag=True, help="Only what would be done, when, and what stops it.")
def audit(
    policies: tuple[str, ...],
    signals: tuple[str, ...],
    at: str | None,
    watch: str | None,
    format_: str,
    out: Path | None,
    plan: bool,
) -> int:
    """Say what POLICIES find, on this machine or in recorded signals; touch nothing.

    Without POLICIES it reads ./policies.yaml. Without --signals it takes one look at this
    machine, so that conditions over a window stay unknown; --watch looks for a while.

    Exit status: 0 nothing fires, 1 findings, 2 bad input, 3 internal error, 4 a collector
    failed or a resource could not be read.
    """
    if out is not None and format_of(out) is None:
        suffixes = ", ".join(item.suffix for item in FORMATS.values())
        raise UserError(f"--out {out}: the suffix says the format; use one of {suffixes}")
    if plan and format_ not in ("table", "json"):
        raise UserError(
            f"--plan goes with --format table or json, not {format_}; html holds the plan as well"
        )
    loaded = loading.policies(policies, "audit")
    result = run(loaded, signals, at=at, watch=watch)
    if out is not None:
        _write(result, out)
    if plan:
        _echo_plan(result, format_)
    elif format_ == "table":
        from stoploss.reports import audit_table

        follow_up = _follow_up(result, policies, signals, at)
        click.echo(audit_table.render(result, follow_up=follow_up), nl=False, color=sys.stdout.isatty())
    else:
        click.echo(renderer(format_)(result), nl=False)
    if result.degraded:
        return DEGRADED
    return FINDINGS if result.firing else CLEAN


def _echo_plan(result: Audit, format_: str) -> None:
    from stoploss.reports import audit_json, audit_table

    text = audit_json.render_plan(result) if format_ == "json" else audit_table.render_plan(result)
    click.echo(text, nl=False, color=sys.stdout.isatty())


def run(loaded: PolicySet, signals: tuple[str, ...], *, at: str | None, watch: str | None) -> Audit:
    """The audit of a policy set over recorded signals, or over a look at this machine.

    Raises:
        UserError: an option cannot be read, or does not go with another.
    """
    from stoploss.engine import clock
    from stoploss.engine.audit import audit as evaluate
    from stoploss.engine.masking import Masker
    from stoploss.rules.catalogue import catalogue

    decided = state.decided(loaded)
    source = sources.source_of(loaded, signals, at=at, watch=watch)
    with sources.progress("evaluating") as advance:
        result = evaluate(
            decided.policies,
            source.frames,
            catalogue(),
            now=clock.now(),
            progress=advance,
            standing=decided.standing,
        )
    known = {status.name for status in source.collectors}
    failed = tuple(status for status in result.collectors if status.name not in known)
    notes = [*result.notes, *source.notes]
    if source.kind == "live" and not watch and any(item.why == "young" for item in result.unknown):
        notes.append("one look cannot fill a window; stoploss audit --watch 30m looks for longer")
    # The slot of a live look has not ended yet; nobody wants to read an instant to come.
    when = min(result.at, clock.now()) if source.kind == "live" else result.at
    collectors = (*source.collectors, *failed, *decided.unread)
    mask = Masker(os.environ).text
    result = replace(result, findings=tuple(_masked(item, mask) for item in result.findings))
    return replace(result, at=when, collectors=collectors, notes=tuple(notes), samples=source.samples)


def _masked(finding: Finding, mask: Callable[[str], str]) -> Finding:
    """A finding whose labels hold no secret."""
    return replace(finding, labels={name: mask(value) for name, value in finding.labels.items()})


def _follow_up(
    result: Audit, policies: tuple[str, ...], signals: tuple[str, ...], at: str | None
) -> str | None:
    """The command that explains the first finding, or the first unknown."""
    about = next(iter(result.firing), None) or next((u for u in result.unknown if u.resource), None)
    if about is None or about.resource is None:
        return None
    words = ["stoploss", "explain", "--policy", about.policy.name, "--resource", str(about.resource)]
    for file in policies:
        words += ["--file", file]
    for path in signals:
        words += ["--signals", path]
    if at is not None:
        words += ["--at", at]
    return shlex.join(words)


def _write(result: Audit, out: Path) -> None:
    """Write the audit to a file in the format that its suffix picks."""
    name = format_of(out)
    assert name is not None, "the suffix is checked before anything is evaluated"
    text = renderer(name)(result)
    try:
        # CSV ends its lines as its standard says, and a file name that is no UTF-8 stops nothing.
        out.write_text(
            click.unstyle(text) if name == "table" else text,
            encoding="utf-8",
            errors="backslashreplace",
            newline="",
        )
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from None
