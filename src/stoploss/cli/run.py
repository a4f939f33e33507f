"""`stoploss run`: the daemon."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from stoploss.cli.exits import CLEAN, UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoploss.daemon.service import Service
    from stoploss.rules.policy import PolicySet


LISTEN = "127.0.0.1:9199"
"""Where answers are given where nobody says so."""


@click.command()
@click.argument("policies", nargs=-1, type=click.Path(path_type=str))
@click.option("--state", metavar="URL", help="The state's database; default settings.state.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where the page, the API and /metrics are: 127.0.0.1:9199 where the extra web is installed; `off` "
    "for nowhere.",
)
@click.option(
    "--tokens",
    "tokens_file",
    type=click.Path(path_type=str),
    help="File with the tokens of the API; needed to listen beyond this machine.",
)
@click.option(
    "--forward",
    metavar="URL",
    help="Send what is seen here to the stoploss at URL; the token is in STOPLOSS_TOKEN or --token-file.",
)
@click.option("--token-file", type=click.Path(path_type=str), help="File with the token for --forward.")
@click.option("--node", metavar="NAME", help="Name of this machine for --forward; default its hostname.")
@click.option("--verbose", is_flag=True, help="Log more.")
def run(
    policies: tuple[str, ...],
    state: str | None,
    listen: str | None,
    tokens_file: str | None,
    forward: str | None,
    token_file: str | None,
    node: str | None,
    verbose: bool,
) -> int:
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
    runner = Runner(
        url,
        loaded.files,
        lambda: _again(names),
        os.environ,
        _serving(listen, tokens_file),
        _forwarding(forward, token_file, node),
    )
    try:
        runner.run(loaded)
    except StoreError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserError(f"--listen {listen or LISTEN}: {why}; give another place, or --listen off") from None
    return CLEAN


def _serving(listen: str | None, file: str | None) -> Callable[[Service], Callable[[], None]] | None:
    """What begins to answer; None where nothing is to answer, or nobody said so and nothing can.

    Raises:
        UserError: the address or the tokens are wrong, or the extra is missing.
    """
    if listen == "off":
        return None
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        if listen is None and file is None:
            return None
        missing = "answering needs the extra web: pip install 'stoploss[web]', or --listen off"
        raise UserError(missing) from None
    from stoploss.api import tokens as api_tokens
    from stoploss.daemon.serving import Listen, serve

    try:
        place = Listen.parse(listen or LISTEN)
        tokens = api_tokens.Tokens() if file is None else api_tokens.read(file, os.environ)
    except (ValueError, api_tokens.TokensError) as error:
        raise UserError(f"--listen: {error}" if file is None else f"{error}") from None
    why = api_tokens.refuse_to_bind(place.host, tokens)
    if why is not None:
        raise UserError(why)
    return lambda service: serve(service, place, tokens)


def _forwarding(
    url: str | None, token_file: str | None, node: str | None
) -> Callable[[Service], Callable[[], None]] | None:
    """What begins to forward; None where no centre is named.

    Raises:
        UserError: the centre, the token or the name is wrong.
    """
    import socket

    from stoploss.daemon.forward import Centre, Forward, ForwardError

    if url is None:
        if token_file or node:
            raise UserError("--token-file and --node go with --forward URL")
        return None
    try:
        return Forward(Centre.of(url, node or socket.gethostname(), token_file, os.environ))
    except ForwardError as error:
        raise UserError(f"--forward: {error}") from None


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
