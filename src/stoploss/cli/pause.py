"""`stoploss pause`: the kill switch."""

from __future__ import annotations

import click

from stoploss.cli import state as states
from stoploss.cli.exits import CLEAN, DEGRADED, UserError


@click.command()
@click.option("--resume", is_flag=True, help="Take the pause back.")
@click.option("--reason", help="Why; it is written into the ledger.")
@states.options
def pause(resume: bool, reason: str | None, state: str | None, files: tuple[str, ...]) -> int:
    """Carry out nothing until --resume; what is found is still told and written down.

    A file named `pause` beside the state does the same. Where the state cannot be written, this
    command makes that file.

    Exit status: 0, 2 bad usage, 4 still paused by the file, or paused by the file alone.
    """
    place = states.place(state, files)
    return _resume(place.url, reason) if resume else _pause(place.url, reason or "no reason given")


def _pause(url: str, reason: str) -> int:
    from stoploss.engine import clock
    from stoploss.engine.history.store_errors import file_of, parsed
    from stoploss.engine.people import People, pause_file

    try:
        with states.ledger(url) as opened:
            People(opened).pause(who=states.person(), now=clock.now(), reason=reason)
    except UserError as error:
        from stoploss.engine.history.store_errors import StoreError

        try:
            file = pause_file(file_of(parsed(url)))
            file.touch()
        except (StoreError, OSError) as worse:
            raise UserError(f"{error}; nor can the pause file be made ({worse}); nothing is paused") from None
        click.echo(f"stoploss: {error}", err=True)
        click.echo(f"paused by the file {file} alone; remove it to go on")
        return DEGRADED
    click.echo("paused: nothing is carried out until stoploss pause --resume")
    return CLEAN


def _resume(url: str, reason: str | None) -> int:
    from stoploss.engine import clock
    from stoploss.engine.people import People

    with states.ledger(url, create=False) as opened:
        people = People(opened)
        former = people.resume(who=states.person(), now=clock.now(), reason=reason)
        left = people.paused()
    if left is not None:
        click.echo(f"still paused: {left.reason}; remove it to go on")
        return DEGRADED
    click.echo("resumed" if former else "it was not paused")
    return CLEAN
