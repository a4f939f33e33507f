"""The state that a command reads or writes: which database, who is asking, and errors in one line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo

import click

from stoploss.cli.exits import UserError

if TYPE_CHECKING:
    from stoploss.engine.audit import CollectorStatus
    from stoploss.engine.ledger import Ledger
    from stoploss.engine.planning.model import Standing
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


@dataclass(frozen=True, slots=True)
class Decided:
    """What the state says of a policy set.

    Attributes:
        policies: with the exemptions that people made since.
        standing: tells what was decided and done about findings; None where nothing was yet.
        unread: what could not be read, as a collector that failed.
    """

    policies: PolicySet
    standing: Callable[[Sequence[str]], Standing] | None = None
    unread: tuple[CollectorStatus, ...] = ()


def decided(loaded: PolicySet) -> Decided:
    """What people decided and what was done; only read.

    A state that is not there, or in which nothing was decided, says nothing. One that cannot be read
    lets nothing be destroyed.
    """
    scheme, separator, path = loaded.settings.state.partition("sqlite:///")
    if not scheme and separator and not os.path.exists(path.partition("?")[0]):
        # The usual case, told without importing what reads databases.
        return Decided(loaded)
    from stoploss.engine.history.store_errors import StoreError

    try:
        return _decided(loaded)
    except (StoreError, UserError) as error:
        from stoploss.engine.audit import CollectorStatus
        from stoploss.engine.planning.model import Standing

        why = str(error)
        unread = CollectorStatus("exemptions", ok=False, reason=why)
        return Decided(loaded, lambda findings: Standing(unreadable=why), (unread,))


def _decided(loaded: PolicySet) -> Decided:
    from stoploss.engine import clock
    from stoploss.engine.execution.standing import standing_of
    from stoploss.engine.ledger_schema import META
    from stoploss.engine.people import People
    from stoploss.engine.people_exemptions import with_exemptions
    from stoploss.engine.state_database import has_table
    from stoploss.rules.catalogue import catalogue

    url = url_of(loaded.settings.state)
    if not has_table(url, META.name):
        return Decided(loaded)
    with ledger(url, read_only=True) as opened:
        exempted = with_exemptions(loaded, People(opened).exemptions(), catalogue())

    def standing(findings: Sequence[str]) -> Standing:
        with ledger(url, read_only=True) as opened:
            return standing_of(opened, findings, now=clock.now())

    return Decided(exempted, standing)
