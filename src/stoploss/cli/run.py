"""`stoploss run`: the daemon."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from stoploss.cli.exits import CLEAN, UserError

if TYPE_CHECKING:
    from stoploss.rules.policy import PolicySet


@click.command()
@click.argument("policies", nargs=-1, type=click.Path(path_type=str))
@click.option("--state", metavar="URL", help="The state's database; default settings.state.")
@click.option("--verbose", is_flag=True, help="Log more.")
def run(policies: tuple[str, ...], state: str | None, verbose: bool) -> int:
    """Look, evaluate, tell and act by POLICIES, until it is asked to stop.

    Without POLICIES it reads ./policies.yaml. In mode audit it does nothing but write down
    what it would do. One runs on a state; a second waits and takes over when it ends.

    SIGHUP, or a change of a policy file, reloads; files with errors change nothing. SIGTERM
    and Ctrl-C end it well.

    Exit status: 0 it was asked to stop, 2 bad input, 3 internal error.
    """
    from stoploss.cli import loading
    from stoploss.cli.state import url_of
    from stoploss.daemon import logs
    from stoploss.daemon.runner import Runner
    from stoploss.engine.history.store_errors import StoreError
    from stoploss.engine.masking import Masker

    loaded = loading.policies(policies, "run")
    _complete(loaded)
    logs.begin(Masker(os.environ).text, verbose=verbose)
    url = state or url_of(loaded.settings.state)
    names = loading.policy_files(policies, "run")
    runner = Runner(url, loaded.files, lambda: _again(names), os.environ)
    try:
        runner.run(loaded)
    except StoreError as error:
        raise UserError(str(error)) from None
    return CLEAN


def _again(names: tuple[str, ...]) -> PolicySet | None:
    """The policy set as its files are now; what is wrong with them is logged."""
    import logging

    from stoploss.cli import loading
    from stoploss.rules.diagnostics import Severity

    result = loading.load_files(names)
    for item in result.diagnostics:
        if item.severity is Severity.ERROR:
            place = item.position
            logging.getLogger("stoploss.daemon").error(
                "%s:%d:%d: %s [%s]", place.file, place.line, place.column, item.message, item.code
            )
    if result.policies is None:
        return None
    try:
        _complete(result.policies)
    except UserError as error:
        logging.getLogger("stoploss.daemon").error("%s", error)  # noqa: TRY400 - told in words
        return None
    return result.policies


def _complete(loaded: PolicySet) -> None:
    """Raises UserError where an address names a variable that is not set: nobody would be told."""
    from stoploss.rules.environment import VariableError, unset

    missing = []
    for name, address in loaded.notify.items():
        try:
            missing += [f"notify: {name}: ${{{item.name}}} is not set" for item in unset(address, os.environ)]
        except VariableError as error:
            missing.append(f"notify: {name}: {error}")
    if missing:
        raise UserError("; ".join(missing) + "; set it, or give a default as ${NAME:-default}")
