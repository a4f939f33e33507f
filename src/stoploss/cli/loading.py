"""Policies for a command: loaded, or every mistake told and the command ended."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from stoploss.cli.exits import USAGE, UserError

if TYPE_CHECKING:
    from stoploss.rules.loader import LoadResult
    from stoploss.rules.policy import PolicySet

DEFAULT_FILE = "policies.yaml"


def policy_files(files: Sequence[str], command: str) -> tuple[str, ...]:
    """The files given, else this folder's policies.yaml.

    Raises:
        UserError: none was given and there is none here.
    """
    if files:
        return tuple(files)
    if not os.path.exists(DEFAULT_FILE):
        raise UserError(
            f"no file given, and there is no ./{DEFAULT_FILE}; "
            f"name one: stoploss {command} FILE, or write one: stoploss init"
        )
    return (DEFAULT_FILE,)


def load_files(files: Sequence[str]) -> LoadResult:
    """Load policy files with the collectors and actions of this installation."""
    from stoploss.actions.registry import action_options
    from stoploss.collectors.registry import option_models
    from stoploss.engine.clock import now
    from stoploss.rules.catalogue import catalogue
    from stoploss.rules.loader import load

    return load(
        files,
        catalogue=catalogue(),
        collector_options=option_models(),
        action_options=action_options(),
        today=now().date(),
        environ=os.environ,
    )


def policies(files: Sequence[str], command: str) -> PolicySet:
    """The policy set of some files.

    Raises:
        click.exceptions.Exit: the files hold errors, which have been told on stderr.
    """
    result = load_files(policy_files(files, command))
    if result.policies is None:
        from stoploss.reports.diagnostics_text import render
        from stoploss.rules.diagnostics import Severity

        errors = [item for item in result.diagnostics if item.severity is Severity.ERROR]
        click.echo(render(errors), err=True, nl=False)
        told = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
        click.echo(f"{told}; nothing was evaluated", err=True)
        raise click.exceptions.Exit(USAGE)
    return result.policies
