"""The signals that the engine works out itself: verdicts, repeated failures, costs and budgets."""

from __future__ import annotations

from collections.abc import Callable

from stoploss.engine.attempts import with_attempts
from stoploss.engine.costs.derived import prepared
from stoploss.engine.costs.past import Past
from stoploss.engine.history.frame import Frame
from stoploss.engine.losses.signals import with_verdicts
from stoploss.engine.resumes import with_resumes
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.policy import PolicySet


def derived(
    policies: PolicySet, frames: Callable[[float], Frame], catalogue: Catalogue, past: Past | None = None
) -> tuple[PolicySet, Callable[[float], Frame]]:
    """Policies ready to be evaluated, and frames with every derived signal that they name.

    `frames` yields the frame of a resolution in seconds, `past` is what was used in slots that they do not
    hold. Budgets come last: they ask for verdicts.
    """
    frames = with_verdicts(policies, frames, catalogue)
    frames = with_attempts(policies, frames, catalogue)
    frames = with_resumes(policies, frames, catalogue)
    return prepared(policies, frames, catalogue, past)
