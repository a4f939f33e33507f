"""`stoploss costs`: what was used and paid, by category and by what it bought."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from stoploss.cli import sources
from stoploss.cli.exits import CLEAN, DEGRADED

if TYPE_CHECKING:
    from stoploss.rules.policy import PolicySet


@click.command()
@click.argument("policies", nargs=-1, type=click.Path(path_type=str))
@sources.signals_option
@click.option("--at", metavar="TIME", help="Reckon up to this instant of the recording.")
@click.option(
    "--by",
    type=click.Choice(["team", "job", "category", "goodput"]),
    help="One table by this; default categories, goodput and budgets.",
)
@click.option(
    "--format", "format_", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True
)
def costs(
    policies: tuple[str, ...], signals: tuple[str, ...], at: str | None, by: str | None, format_: str
) -> int:
    """Say what was used and paid, by category and by what it bought; touch nothing.

    POLICIES give prices, fixed costs, budgets and the time zone; without them, and without
    ./policies.yaml, the price book serves. A price that is not known is said to be unknown.

    Exit status: 0, 2 bad input, 3 internal error, 4 a collector failed or a file could not be read.
    """
    from stoploss.engine.costs.statement import statement
    from stoploss.reports import costs_csv, costs_json, costs_table
    from stoploss.rules.catalogue import catalogue

    loaded = _loaded(policies)
    source = sources.source_of(loaded, signals, at=at, watch=None)
    told = statement(source.frames(loaded.settings.resolution), loaded, catalogue())
    if format_ == "json":
        click.echo(costs_json.render(told), nl=False)
    elif format_ == "csv":
        click.echo(costs_csv.render(told, by), nl=False)
    else:
        click.echo(costs_table.render(told, loaded.settings.timezone, by), nl=False)
    return CLEAN if all(item.ok for item in source.collectors) else DEGRADED


def _loaded(files: tuple[str, ...]) -> PolicySet:
    from stoploss.cli import loading
    from stoploss.rules.policy import PolicySet

    if not files and not os.path.exists(loading.DEFAULT_FILE):
        return PolicySet(())
    return loading.policies(files, "costs")
