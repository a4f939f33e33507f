"""`stoploss explain`: what a word means, why a policy fires or does not, or why something was done."""

from __future__ import annotations

import json
import re
import sys

import click

from stoploss.cli.exits import CLEAN, UserError

ID = re.compile(r"[1-9][0-9]{0,17}|[foa]-[0-9a-f]{12}")
"""The number of a line, or a finding, an order or a request; in this form it is never a word."""


@click.command()
@click.argument("word", required=False)
@click.option("--policy", metavar="NAME", help="The policy to explain.")
@click.option("--resource", metavar="ID", help="The resource to explain it on, such as 'job 4412' or 4412.")
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="POLICIES",
    help="Policy file of that policy; default ./policies.yaml. May be given several times.",
)
@click.option("--state", metavar="URL", help="The state's database, for an ID; default settings.state.")
@click.option(
    "--signals", multiple=True, metavar="PATH", help="Recorded signals; default a look at this machine."
)
@click.option("--at", metavar="TIME", help="The instant of the recording (ISO, or epoch seconds).")
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
def explain(
    word: str | None,
    policy: str | None,
    resource: str | None,
    files: tuple[str, ...],
    state: str | None,
    signals: tuple[str, ...],
    at: str | None,
    format_: str,
) -> int:
    """Explain WORD: a signal, a function, a key, an error code, or a policy of a pack.

    WORD may be the number of a line of the ledger, a finding (f-…), an order (o-…), a request (a-…) or
    a resource ('job 4412'): then it is told why something was done, from what was written down then.

    With --policy and --resource: the tree of conditions with values, counts, since when, and
    what is missing.

    \b
    stoploss explain gpu.utilization
    stoploss explain 'job 4412'
    stoploss explain --policy idle-gpu --resource 'job 4412' --signals recordings/
    """
    if policy or resource:
        if word:
            raise UserError("explain takes either a WORD, or --policy with --resource")
        if resource is None:
            raise UserError("--policy and --resource go together")
        if policy is None:
            return _explain_deed(resource, files, state, format_, resource=True)
        return _explain_row(policy, resource, files, signals, at=at, format_=format_)
    if word is None:
        raise UserError(
            "explain needs a WORD, such as gpu.utilization, increase, hold or unknown-key; "
            "an id of the ledger, or --policy NAME --resource ID"
        )
    name = word.strip()
    if ID.fullmatch(name):
        return _explain_deed(name, files, state, format_)
    if _is_resource(name):
        return _explain_deed(name, files, state, format_, resource=True)
    return explain_word(name, format_)


def _is_resource(text: str) -> bool:
    """Whether a text is a kind and an id, such as `job 4412`; no word holds a blank."""
    from stoploss.rules.catalogue import catalogue

    kind, blank, name = text.partition(" ")
    return bool(blank and name) and any(kind in signal.resources for signal in catalogue().values())


def _explain_deed(
    name: str, files: tuple[str, ...], state: str | None, format_: str, *, resource: bool = False
) -> int:
    from stoploss.cli.explain_deed import Where, explain_deed

    return explain_deed(name, Where(state, files), format_, resource=resource)


def explain_word(word: str, format_: str) -> int:
    """Print every meaning of a word.

    Raises:
        UserError: the word has no meaning; the message names the nearest one.
    """
    from stoploss.reports.words import as_json, as_text, known_words, look_up
    from stoploss.rules.diagnostics import did_you_mean

    meanings = look_up(word)
    if not meanings:
        near = did_you_mean(word, known_words())
        hint = (
            f"did you mean {near}?"
            if near
            else "words are signals, functions, keys and error codes, and policies of packs"
        )
        raise UserError(f"no word {word!r}; {hint}")
    if format_ == "json":
        click.echo(json.dumps(as_json(word, meanings), ensure_ascii=False, indent=2))
    else:
        click.echo(as_text(meanings))
    return CLEAN


def _explain_row(
    name: str,
    resource: str,
    files: tuple[str, ...],
    signals: tuple[str, ...],
    *,
    at: str | None,
    format_: str,
) -> int:
    from stoploss.cli import loading
    from stoploss.cli.sources import source_of
    from stoploss.engine.costs.book import book_for
    from stoploss.engine.costs.priced import with_prices
    from stoploss.engine.derived import derived
    from stoploss.engine.explanation import UnknownResource, explain_row
    from stoploss.reports import explanation
    from stoploss.rules.catalogue import catalogue
    from stoploss.rules.diagnostics import suggestion

    loaded = loading.policies(files, "explain --file")
    policy = next((item for item in loaded.policies if item.name == name), None)
    if policy is None:
        names = [item.name for item in loaded.policies]
        raise UserError(f"no policy {name!r} in {', '.join(loaded.files)}; {suggestion(name, names)}")
    source = source_of(loaded, signals, at=at, watch=None)
    try:
        book = book_for(loaded.prices, loaded.currency)
        loaded, frames = derived(loaded, source.frames, catalogue())
        policy = next(item for item in loaded.policies if item.name == name)
        frames = with_prices(loaded, frames, book, catalogue())
        told = explain_row(policy, resource, frames(policy.resolution), catalogue())
    except UnknownResource as error:
        hint = suggestion(resource, error.names) if error.names else f"no {policy.each} was seen at all"
        raise UserError(f"no {policy.each} {resource!r} under policy {name}; {hint}") from None
    if format_ == "json":
        click.echo(explanation.as_json(told), nl=False)
    else:
        click.echo(explanation.as_text(told, loaded.settings.timezone), nl=False, color=sys.stdout.isatty())
    return CLEAN
