"""`stoploss prices`: what things cost, says who, and how old that is."""

from __future__ import annotations

import click

from stoploss.cli.exits import CLEAN


@click.command()
@click.argument("policies", nargs=-1, type=click.Path(path_type=str))
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
def prices(policies: tuple[str, ...], format_: str) -> int:
    """List the price book with the source and age of every price.

    With POLICIES, their `prices:` stand in place of the book's, and are marked. What is not
    known is said to be unknown; it is never taken for 0.
    """
    from stoploss.cli import loading
    from stoploss.engine import clock
    from stoploss.engine.costs.book import book_for, shipped
    from stoploss.reports import prices_json, prices_table

    book = shipped()
    if policies:
        loaded = loading.policies(policies, "prices")
        book = book_for(loaded.prices, loaded.currency)
    render = prices_json.render if format_ == "json" else prices_table.render
    click.echo(render(book, clock.now().date()), nl=False)
    return CLEAN
