"""`stoploss completion`: what makes a shell complete commands and options."""

from __future__ import annotations

import click

from stoploss.cli.exits import CLEAN, UserError

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print the lines that make SHELL complete commands, options and their values.

    \b
    bash:  stoploss completion bash > ~/.local/share/bash-completion/completions/stoploss
    zsh:   stoploss completion zsh > a folder of $fpath/_stoploss
    fish:  stoploss completion fish > ~/.config/fish/completions/stoploss.fish

    Exit status: 0, 2 bad usage.
    """
    from click.shell_completion import get_completion_class

    from stoploss.cli.main import cli

    found = get_completion_class(shell)
    if found is None:
        raise UserError(f"this version of click does not know {shell}")
    # `source` asks the bash that is here for its version, and complains on stderr; the lines are the same.
    made = found(cli, {}, "stoploss", "_STOPLOSS_COMPLETE")
    click.echo(made.source_template % made.source_vars())
    return CLEAN
