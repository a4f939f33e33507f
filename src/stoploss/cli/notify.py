"""`stoploss notify`: can the receivers be reached?"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from stoploss.cli.exits import CLEAN, DEGRADED, UserError

if TYPE_CHECKING:
    from stoploss.actions.contract import Result
    from stoploss.rules.policy import PolicySet


@click.command()
@click.argument("policies", nargs=-1)
@click.option("--test", "test", is_flag=True, help="Send one message; without it nothing is sent.")
@click.option("--to", "names", multiple=True, metavar="NAME", help="Only this receiver; may be repeated.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    help="A label for addresses such as mailto:{user}@example.org; default user: you.",
)
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
def notify(
    policies: tuple[str, ...], test: bool, names: tuple[str, ...], labels: tuple[str, ...], format_: str
) -> int:
    """Send one test message to each receiver of `notify:`, and say whether it was delivered.

    Exit status: 0 all delivered, 2 bad usage, 4 one was not delivered.
    """
    from stoploss.cli import loading
    from stoploss.cli.state import person

    if not test:
        raise UserError("nothing was sent; to send one message to each receiver, say: stoploss notify --test")
    loaded = loading.policies(policies, "notify --test")
    chosen = _chosen(loaded, names)
    results = _sent(loaded, chosen, {"user": person()} | _labels(labels))
    click.echo(_json(results) if format_ == "json" else _table(results))
    return CLEAN if all(item.delivered for item in results.values()) else DEGRADED


def _chosen(loaded: PolicySet, names: tuple[str, ...]) -> tuple[str, ...]:
    from stoploss.rules.diagnostics import suggestion

    if not loaded.notify:
        raise UserError("the policies name no receiver; write one under notify:")
    for name in names:
        if name not in loaded.notify:
            raise UserError(f"no receiver {name!r} under notify:; {suggestion(name, loaded.notify)}")
    return tuple(dict.fromkeys(names)) or tuple(loaded.notify)


def _labels(texts: tuple[str, ...]) -> dict[str, str]:
    labels = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UserError(f"--label {text!r} is not of the form NAME=VALUE, such as user=alice")
        labels[name] = value
    return labels


def _sent(loaded: PolicySet, names: tuple[str, ...], labels: dict[str, str]) -> dict[str, Result]:
    from dataclasses import replace

    from stoploss.actions.alert import Receivers, alert
    from stoploss.engine import clock
    from stoploss.engine.alerts import trial

    receivers = Receivers(loaded.notify, os.environ)
    results = {}
    for name in names:
        now = clock.now()
        notice = replace(trial(name, at=now), labels=labels)
        results[name] = alert(receivers, name, notice, now=now)
    return results


def _table(results: dict[str, Result]) -> str:
    width = max(map(len, results))
    return "\n".join(
        f"{name:<{width}}  {item.words if item.delivered else f'not delivered: {item.words}'}"
        for name, item in results.items()
    )


def _json(results: dict[str, Result]) -> str:
    rows = [
        {"name": name, "delivered": item.delivered, "retry": item.retry, "words": item.words}
        for name, item in results.items()
    ]
    return json.dumps({"version": 1, "receivers": rows}, indent=2, ensure_ascii=False)
