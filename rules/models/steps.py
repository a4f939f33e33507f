"""The keys that steps of `then:` have in common."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from stoploss.rules.models.base import Section
from stoploss.rules.models.fields import DURATION, INTERVAL, STEPS, TEXTS, choice


class RequireAck(Section):
    """Somebody has to answer within a time, else the steps in `then` follow."""

    placeholders: ClassVar[dict[str, str]] = {"within": "1h"}

    within: Annotated[float, INTERVAL] = Field(description="How long there is to answer.")
    then: Annotated[Any, STEPS] = Field(default=None, description="The steps if nobody answers.")


class StepOptions(Section):
    """What every step takes."""

    after: Annotated[float, DURATION] = Field(default=0.0, description="True time since firing; default 0.")
    to: Annotated[tuple[str, ...], TEXTS] = Field(
        default=(), description="Who hears of this step: names of `notify:`, `owner` among them."
    )
    require_ack: RequireAck | None = Field(default=None, description="An answer that somebody must give.")
    on_failure: Annotated[str | None, choice("hold", "continue")] = Field(
        default=None, description="Whether a failure of this step holds the later ones (default) or not."
    )


class RepeatableOptions(StepOptions):
    """A step that may be done again while the policy fires."""

    repeat: Annotated[float | None, INTERVAL] = Field(
        default=None, description="Do it again after this time while the policy fires."
    )


class ChangingOptions(StepOptions):
    """A step that changes something, and so may need approval."""

    approve: Annotated[str | None, choice("required")] = Field(
        default=None, description="`required`: a person approves it before it is done."
    )


class DestructiveOptions(ChangingOptions):
    """A step that ends or deletes something, and so needs a verified snapshot."""

    snapshot: Annotated[str | None, choice("required", "not-needed")] = Field(
        default=None, description="`not-needed`: do it without a verified snapshot."
    )


COMMON_KEYS = frozenset({"after", "repeat", "approve", "snapshot", "require_ack", "on_failure", "to"})
"""Field names that belong to the step; every other field is an option of the action."""
