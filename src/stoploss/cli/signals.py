"""`stoploss signals`: the catalogue, and what is seen of it on this machine now."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from stoploss.cli.exits import CLEAN, DEGRADED, UserError

if TYPE_CHECKING:
    from stoploss.rules.catalogue import Signal
    from stoploss.rules.policy import PolicySet


@click.command()
@click.argument("which", required=False, metavar="[FAMILY|PREFIX]")
@click.option(
    "--now",
    "now",
    is_flag=False,
    flag_value="",
    metavar="[POLICIES]",
    help="Look at this machine and show what is read, with the collectors of POLICIES "
    "(default ./policies.yaml, if it is there).",
)
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
def signals(which: str | None, now: str | None, format_: str) -> int:
    """List the signals that policies can name; with --now, what is seen of them here.

    \b
    stoploss signals
    stoploss signals gpu
    stoploss signals network --now
    stoploss signals --now policies.yaml --format json

    Exit status: 0 good, 2 bad input, 4 a collector failed.
    """
    chosen = matching(which)
    if now is None:
        from stoploss.reports import signals_table

        listing = signals_table.as_json(chosen) if format_ == "json" else signals_table.as_text(chosen)
        click.echo(listing, nl=False)
        return CLEAN
    from stoploss.cli import sources
    from stoploss.reports import seen
    from stoploss.reports.seen_table import as_text

    policies = _policies(now, which)
    look = sources.glance(policies)
    told = seen.seen(look.runs, chosen, at=look.at, unbuilt=look.unbuilt, known=look.known, notes=look.notes)
    if format_ == "json":
        click.echo(seen.as_json(told), nl=False)
    else:
        click.echo(as_text(told, policies.settings.timezone), nl=False)
    return DEGRADED if look.failed else CLEAN


def matching(which: str | None) -> tuple[Signal, ...]:
    """The signals whose names begin with a word, or whose family it names; all without a word.

    Raises:
        UserError: there are none; the message names the nearest word.
    """
    from stoploss.rules.diagnostics import suggestion
    from stoploss.rules.signals import FAMILIES, SIGNALS

    if which is None:
        return SIGNALS
    word = which.strip().lower()
    found = tuple(
        signal
        for title, family in FAMILIES.items()
        for signal in family
        if word and (word in (title.lower(), *title.lower().split()) or signal.name.startswith(word))
    )
    if not found:
        words = {signal.name.partition(".")[0] for signal in SIGNALS} | {title.lower() for title in FAMILIES}
        names = {signal.name for signal in SIGNALS}
        hint = suggestion(word, names if "." in word else words, listing=40)
        raise UserError(f"no signal begins with {which!r}, and no family is called so; {hint}")
    return found


def _policies(file: str, which: str | None) -> PolicySet:
    from stoploss.cli import loading
    from stoploss.rules.policy import PolicySet

    if file:
        if which is None and not os.path.exists(file):
            raise UserError(
                f"no policy file {file!r}; for the signals that begin so: stoploss signals {file} --now"
            )
        return loading.policies((file,), "signals")
    if os.path.exists(loading.DEFAULT_FILE):
        return loading.policies((), "signals")
    return PolicySet(())
