"""A cycle over the collectors, actions and receivers of this installation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from stoploss.daemon.live import Live
from stoploss.engine import clock
from stoploss.engine.execution.cycle import Cycle, Tools
from stoploss.means import actions_of, means_of
from stoploss.rules.catalogue import catalogue

if TYPE_CHECKING:
    from stoploss.actions.contract import Means
    from stoploss.engine.carry import Carry
    from stoploss.engine.execution.alerting import Delivered
    from stoploss.engine.history.frame import Frame
    from stoploss.engine.ledger import Ledger
    from stoploss.engine.model import Action, Notice
    from stoploss.rules.policy import PolicySet


@dataclass(frozen=True, slots=True)
class Making:
    """What a cycle is made with; what is None is as on this machine.

    Attributes:
        submit: runs a step, at once or beside others.
        carry: the end of an audit of earlier slots.
        frames, look: where samples come from.
        actions: name -> makes the action.
        deliver: sends a notice to a receiver.
        lacks: why one may not rely on the checkpoint at a path.
        now: the present instant.
    """

    submit: Callable[[Callable[[], None]], object] = lambda work: work()
    carry: Callable[[], Carry | None] = lambda: None
    frames: Callable[[float], Frame] | None = None
    look: Callable[[], None] | None = None
    actions: Mapping[str, Callable[[], Action]] | None = None
    deliver: Callable[[str, Notice], Delivered] | None = None
    lacks: Callable[[str], str | None] | None = None
    now: Callable[[], datetime] = clock.now


def cycle_of(
    policies: PolicySet,
    ledger: Ledger,
    live: Live,
    *,
    folder: str,
    environ: Mapping[str, str],
    making: Making | None = None,
) -> Cycle:
    """A cycle that looks, acts and tells for real.

    Args:
        policies: what is evaluated.
        ledger: the state.
        live: the collectors, and what they saw.
        folder: below which actions keep what they move away.
        environ: variables, for addresses and programs.
        making: what is not as on this machine.

    Raises:
        StoreError: the state cannot be read.
    """
    from stoploss.actions.alert import Receivers, alert, recipient

    made = making or Making()
    means = means_of(policies, folder=folder, environ=environ)
    receivers = Receivers(policies.notify, environ)
    tools = Tools(
        frames=made.frames or live.frame,
        look=made.look or partial(_look, live),
        actions=actions_of(means) if made.actions is None else made.actions,
        lacks=made.lacks or partial(_lacks, means),
        deliver=made.deliver or (lambda name, notice: alert(receivers, name, notice, now=made.now())),
        recipient=partial(recipient, receivers),
        now=made.now,
        submit=made.submit,
        carry=made.carry,
    )
    return Cycle(policies, catalogue(), ledger, tools)


def _look(live: Live) -> None:
    live.look(clock.now().timestamp(), clock.monotonic)


def _lacks(means: Means, path: str) -> str | None:
    from stoploss.actions.targets.job_copy import BUCKET

    if path.startswith(BUCKET):
        from stoploss.actions.targets import bucket_copy

        return bucket_copy.lacks(means, path)
    if means.checkpoints is None:
        return "no collector of checkpoints is named"
    try:
        return means.checkpoints.lacks(path)
    except OSError as error:
        return f"it cannot be read ({type(error).__name__})"
