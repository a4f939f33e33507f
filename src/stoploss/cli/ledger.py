"""`stoploss ledger`: what was decided and done, and whether the record of it is whole."""

from __future__ import annotations

import click

from stoploss.cli import state as states
from stoploss.cli.exits import CLEAN, FINDINGS, UserError

_FORMAT = click.option(
    "--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True
)


@click.group()
def ledger() -> None:
    """What was decided and done, by whom and why; read only."""


@ledger.command("list")
@states.options
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Such as decision; may be repeated.")
@click.option("--episode", metavar="ID", help="Lines of one finding.")
@click.option("--policy", metavar="NAME", help="Lines of one policy.")
@click.option("--resource", metavar="RESOURCE", help="Lines of one resource, such as 'job 4412'.")
@click.option("--last", type=click.IntRange(min=1), default=50, show_default=True, help="The newest so many.")
@_FORMAT
def list_(
    state: str | None,
    files: tuple[str, ...],
    kinds: tuple[str, ...],
    episode: str | None,
    policy: str | None,
    resource: str | None,
    last: int,
    format_: str,
) -> int:
    """List lines, the newest last.

    Exit status: 0, 2 where there is no ledger or a line is damaged.
    """
    from stoploss.engine.ledger_schema import KINDS
    from stoploss.reports import ledger_json, ledger_table
    from stoploss.rules.diagnostics import suggestion

    for kind in kinds:
        if kind not in KINDS:
            raise UserError(f"--kind {kind}: {suggestion(kind, KINDS)}")
    place = states.place(state, files)
    with states.ledger(place.url, read_only=True) as opened:
        found = opened.entries(kinds=kinds, episode=episode, policy=policy, resource=resource, last=last)
        if format_ == "json":
            click.echo(ledger_json.lines(found), nl=False)
        else:
            click.echo(ledger_table.lines(found, place.zone), nl=False)
    return CLEAN


@ledger.command()
@states.options
@click.option("--head", metavar="COUNT:HASH", help="A head that you kept elsewhere; it must still fit.")
@_FORMAT
def verify(state: str | None, files: tuple[str, ...], head: str | None, format_: str) -> int:
    """Check the chain of hashes; print its head.

    Keep the head elsewhere: only it finds a chain that was written anew.

    Exit status: 0 whole, 1 something is wrong with it, 2 it cannot be read.
    """
    from stoploss.engine.ledger import Head
    from stoploss.reports import ledger_json, ledger_table

    try:
        kept = None if head is None else Head.parse(head)
    except ValueError as error:
        raise UserError(f"--head: {error}") from None
    place = states.place(state, files)
    with states.ledger(place.url, read_only=True) as opened:
        faults, end = opened.verify(kept), opened.head()
        render = ledger_json.verdict if format_ == "json" else ledger_table.verdict
        click.echo(render(opened.name, faults, end), nl=False)
    return FINDINGS if faults else CLEAN
