"""A cycle over the collectors, actions and receivers of this installation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from stoploss.daemon.live import Live
from stoploss.engine import clock
from stoploss.engine.execution.cycle import Cycle, Tools
from stoploss.means import actions_of, means_of
from stoploss.rules.catalogue import catalogue

if TYPE_CHECKING:
    from stoploss.actions.contract import Means
    from stoploss.engine.ledger import Ledger
    from stoploss.rules.policy import PolicySet


def cycle_of(
    policies: PolicySet,
    ledger: Ledger,
    live: Live,
    *,
    folder: str,
    environ: Mapping[str, str],
    submit: Callable[[Callable[[], None]], object] = lambda work: work(),
) -> Cycle:
    """A cycle that looks, acts and tells for real.

    Args:
        policies: what is evaluated.
        ledger: the state.
        live: the collectors, and what they saw.
        folder: below which actions keep what they move away.
        environ: variables, for addresses and programs.
        submit: runs a step, at once or beside others.

    Raises:
        StoreError: the state cannot be read.
    """
    from stoploss.actions.alert import Receivers, alert, recipient

    means = means_of(policies, folder=folder, environ=environ)
    receivers = Receivers(policies.notify, environ)
    tools = Tools(
        frames=live.frame,
        look=lambda: _look(live),
        actions=actions_of(means),
        lacks=partial(_lacks, means),
        deliver=lambda name, notice: alert(receivers, name, notice, now=clock.now()),
        recipient=partial(recipient, receivers),
        now=clock.now,
        submit=submit,
    )
    return Cycle(policies, catalogue(), ledger, tools)


def _look(live: Live) -> None:
    live.look(clock.now().timestamp(), clock.monotonic)


def _lacks(means: Means, path: str) -> str | None:
    if means.checkpoints is None:
        return "no collector of checkpoints is named"
    try:
        return means.checkpoints.lacks(path)
    except OSError as error:
        return f"it cannot be read ({type(error).__name__})"
