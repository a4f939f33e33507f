"""`stoploss schema`: the JSON Schema of policy files."""

from __future__ import annotations

from pathlib import Path

import click

from stoploss.cli.exits import UserError


@click.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file.")
def schema(out: Path | None) -> int:
    """Print the JSON Schema of policy files (draft 2020-12).

    An editor with a YAML language server uses it when the file begins with
    `# yaml-language-server: $schema=stoploss.schema.json`.
    """
    import json

    from stoploss.actions.registry import action_options
    from stoploss.collectors.registry import option_models
    from stoploss.rules.models.schema import json_schema

    text = json.dumps(json_schema(option_models(), action_options()), indent=2, ensure_ascii=False) + "\n"
    if out is None:
        click.echo(text, nl=False)
        return 0
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from None
    return 0
