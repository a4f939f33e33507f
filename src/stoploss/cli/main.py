"""The `stoploss` command: a group whose subcommands are imported when they are used."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence

import click

from stoploss import __version__
from stoploss.cli.exits import INTERNAL, USAGE, UserError

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module:function, one-line help shown by --help without importing the module)
    "init": ("stoploss.cli.init:init", "Write a first policies.yaml for what is found here."),
    "validate": ("stoploss.cli.validate:validate", "Check policy files and tell every mistake at once."),
    "schema": ("stoploss.cli.schema:schema", "Print the JSON Schema of policy files, for editors."),
    "explain": (
        "stoploss.cli.explain:explain",
        "Explain a word, why a policy fired, or why a step was done.",
    ),
    "audit": ("stoploss.cli.audit:audit", "One dry pass over this machine or a recording; touches nothing."),
    "diagnose": (
        "stoploss.cli.diagnose:diagnose",
        "The verdict on training logs: what is wrong, why, what it cost.",
    ),
    "signals": ("stoploss.cli.signals:signals", "List the signals, and what is seen of them here now."),
    "doctor": ("stoploss.cli.doctor:doctor", "Check what stoploss needs here, and say what is missing."),
    "costs": ("stoploss.cli.costs:costs", "What was used and paid, and what it bought."),
    "prices": ("stoploss.cli.prices:prices", "The price book: what things cost, says who, and since when."),
    "requests": ("stoploss.cli.requests:requests", "What waits for an answer, with the commands to give it."),
    "run": ("stoploss.cli.run:run", "Look, evaluate, tell and act, until it is asked to stop."),
    "status": ("stoploss.cli.status:status", "Whether the daemon runs, and how it is."),
    "approve": ("stoploss.cli.approve:approve", "Let one step be done that waits for an approval."),
    "reject": ("stoploss.cli.reject:reject", "Let one step not be done; it is not asked again."),
    "keep": ("stoploss.cli.keep:keep", "Keep a job from being ended or shrunk for a while; says the cost."),
    "exempt": ("stoploss.cli.exempt:exempt", "Exempt resources from a policy until a day."),
    "pause": ("stoploss.cli.pause:pause", "Carry out nothing until --resume: the kill switch."),
    "undo": ("stoploss.cli.undo:undo", "Put back what a step changed, as it was before."),
    "notify": ("stoploss.cli.notify:notify", "Send a test message to each receiver; say whether it came."),
    "ledger": ("stoploss.cli.ledger:ledger", "What was decided and done, and whether the record is whole."),
    "digest": ("stoploss.cli.digest:digest", "What was found, done and saved in a week, team by team."),
    "completion": ("stoploss.cli.completion:completion", "Print what makes a shell complete commands."),
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and help, and imports one when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), function)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Answer an unknown command with the nearest one."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            from stoploss.rules.diagnostics import suggestion

            ctx.fail(f"no command {name!r}; {suggestion(name, COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(__version__, prog_name="stoploss")
def cli() -> None:
    """A stop-loss order for training runs.

    Reads policies and signals, says what burns money now and why, and never acts on what it
    does not know. Exit status: 0 clean, 1 findings, 2 bad input, 3 internal error, 4 something
    could not be read.
    """


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status."""
    try:
        result = cli.main(args=list(arguments), prog_name="stoploss", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        click.echo("stoploss: stopped", err=True)
        return 130
    except KeyboardInterrupt:
        click.echo("stoploss: stopped", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return USAGE
    except UserError as error:
        click.echo(f"stoploss: {error}", err=True)
        return error.status
    except BrokenPipeError:
        # The reader (head, less) has gone; point stdout elsewhere so that exit does not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("STOPLOSS_DEBUG"):
            traceback.print_exc()
        click.echo(
            f"stoploss: internal error: {type(error).__name__}: {error}\n"
            "This is a fault of stoploss. Run again with STOPLOSS_DEBUG=1 for the details to report.",
            err=True,
        )
        return INTERNAL
    return result if isinstance(result, int) else 0
