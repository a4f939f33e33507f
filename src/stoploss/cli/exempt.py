"""`stoploss exempt`: a policy does not apply to some resources until a day."""

from __future__ import annotations

from datetime import date
from zoneinfo import ZoneInfo

import click

from stoploss.cli import state as states
from stoploss.cli.exits import CLEAN, UserError


@click.command()
@click.argument("policy")
@click.option("--where", required=True, metavar="CONDITION", help="To which resources, by labels.")
@click.option("--until", required=True, metavar="DAY", help="The last day on which it holds: 2027-01-31.")
@click.option("--reason", required=True, help="Why.")
@click.option("--owner", required=True, help="Who answers for it.")
@states.options
def exempt(
    policy: str, where: str, until: str, reason: str, owner: str, state: str | None, files: tuple[str, ...]
) -> int:
    """Exempt resources from POLICY through a day; from the next on it applies again.

    POLICY is one of the policy files (--file, else ./policies.yaml), whose state keeps the exemption.
    """
    from stoploss.cli import loading
    from stoploss.engine import clock
    from stoploss.engine.people import People
    from stoploss.engine.people_exemptions import selection
    from stoploss.engine.people_schema import DecisionError
    from stoploss.reports import ledger_table
    from stoploss.rules.catalogue import catalogue
    from stoploss.rules.diagnostics import suggestion

    loaded = loading.policies(files, "exempt")
    zone = ZoneInfo(loaded.settings.timezone)
    now = clock.now()
    try:
        known = selection(where, policy, loaded, catalogue()) is not None
    except DecisionError as error:
        raise UserError(f"--where {error}") from None
    if not known:
        raise UserError(f"no policy {policy!r}; {suggestion(policy, [p.name for p in loaded.policies])}")
    try:
        day = date.fromisoformat(until)
    except ValueError:
        raise UserError(f"--until {until!r} is no day; write one such as 2027-01-31") from None
    if day < now.astimezone(zone).date():
        raise UserError(f"--until {until} is over; an exemption holds through its last day")
    with states.ledger(state or states.url_of(loaded.settings.state)) as opened:
        made = People(opened).exempt(
            policy, where, expires=until, reason=reason, owner=owner, who=states.person(), now=now
        )
    click.echo(ledger_table.exempted(made), nl=False)
    return CLEAN
