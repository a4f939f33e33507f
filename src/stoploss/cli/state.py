"""The state that a command reads or writes: which database, who is asking, and errors in one line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo

import click

from stoploss.cli.exits import UserError

if TYPE_CHECKING:
    from stoploss.engine.audit import CollectorStatus
    from stoploss.engine.ledger import Ledger
    from stoploss.rules.policy import PolicySet

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Place:
    """The state's URL, and the time zone in which it is told."""

    url: str
    zone: ZoneInfo


def options(command: F) -> F:
    """Give a command --state and --file."""
    state = click.option("--state", metavar="URL", help="The state's database; default settings.state.")
    file = click.option(
        "--file",
        "files",
        multiple=True,
        metavar="POLICIES",
        help="Policy file that says where the state is; default ./policies.yaml. May be given several times.",
    )
    return state(file(command))


def place(state: str | None, files: tuple[str, ...]) -> Place:
    """Where the state is: --state, else what the policy files say, else the default.

    Raises:
        click.exceptions.Exit: the policy files hold errors, which have been told on stderr.
    """
    from stoploss.cli import loading
    from stoploss.rules.policy import Settings

    settings = Settings()
    if files or (state is None and os.path.exists(loading.DEFAULT_FILE)):
        settings = loading.policies(files, "ledger").settings
    return Place(state or url_of(settings.state), ZoneInfo(settings.timezone))


def url_of(text: str) -> str:
    """A state's URL with its variables filled in.

    Raises:
        UserError: a variable is not set.
    """
    from stoploss.rules.environment import VariableError, expand

    try:
        return expand(text, os.environ)
    except VariableError as error:
        raise UserError(f"settings.state: {error}") from None


@contextmanager
def ledger(url: str, *, read_only: bool = False, create: bool = True) -> Iterator[Ledger]:
    """The ledger of a state, closed again afterwards.

    Raises:
        UserError: it cannot be used, or what is asked of it cannot be decided.
    """
    from stoploss.engine.history.store_errors import StoreError
    from stoploss.engine.ledger import Ledger
    from stoploss.engine.people_schema import DecisionError

    try:
        opened = Ledger(url, read_only=read_only, create=create)
        try:
            yield opened
        finally:
            opened.close()
    except (StoreError, DecisionError) as error:
        raise UserError(str(error)) from None


def person() -> str:
    """Who runs this command, as the system knows them."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def exempted(loaded: PolicySet) -> tuple[PolicySet, tuple[CollectorStatus, ...]]:
    """A policy set with the exemptions that people made since; and what could not be read of them.

    A state that is not there, or in which nothing was decided, exempts nothing.
    """
    scheme, separator, path = loaded.settings.state.partition("sqlite:///")
    if not scheme and separator and not os.path.exists(path.partition("?")[0]):
        # The usual case, told without importing what reads databases.
        return loaded, ()
    from stoploss.engine.history.store_errors import StoreError

    try:
        return _with_exemptions(loaded), ()
    except (StoreError, UserError) as error:
        from stoploss.engine.audit import CollectorStatus

        return loaded, (CollectorStatus("exemptions", ok=False, reason=str(error)),)


def _with_exemptions(loaded: PolicySet) -> PolicySet:
    from stoploss.engine.ledger_schema import META
    from stoploss.engine.people import People
    from stoploss.engine.people_exemptions import with_exemptions
    from stoploss.engine.state_database import has_table
    from stoploss.rules.catalogue import catalogue

    url = url_of(loaded.settings.state)
    if not has_table(url, META.name):
        return loaded
    with ledger(url, read_only=True) as opened:
        return with_exemptions(loaded, People(opened).exemptions(), catalogue())
