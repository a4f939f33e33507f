"""The sections of a policy file: the closed list of keys of each, with units and defaults."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from stoploss.rules.catalogue import KINDS
from stoploss.rules.models.base import Section
from stoploss.rules.models.fields import (
    BUDGET_LIMIT,
    CONDITION,
    CONDITIONS,
    COUNT,
    DURATION,
    EXPANDABLE,
    GPU_PRICE,
    INTERVAL,
    MONEY_RATE,
    NAME,
    SHARE_FIELD,
    STEPS,
    TEXT,
    TEXTS,
    WASTE,
    choice,
    choices,
)
from stoploss.rules.models.times import DAY, MOMENT, QUIET, SCHEDULE, ZONE
from stoploss.rules.units import Quantity

MODES = ("audit", "warn", "enforce")
SEVERITIES = ("low", "medium", "high", "critical")
CAUSES = ("data", "model", "strategy", "infrastructure", "waste")
PHASES = ("queued", "setup", "loading", "compiling", "training", "evaluating", "checkpointing", "finishing")
PRICE_KINDS = ("on-demand", "spot", "committed", "owned")
CATEGORIES = ("compute", "storage", "network", "logs", "database", "hidden")


class Limits(Section):
    """Caps on what one run may do; 0 means that nothing may be acted on."""

    actions_per_run: Annotated[int | None, COUNT] = Field(
        default=None, description="Steps per run; default 10."
    )
    share_of_population: Annotated[float | None, SHARE_FIELD] = Field(
        default=None, description="Part of a policy's resources that one run may act on; default 20%."
    )
    min_population: Annotated[int | None, COUNT] = Field(
        default=None, description="Below this many resources the share does not apply; default 10."
    )
    gpus_per_run: Annotated[int | None, COUNT] = Field(default=None, description="GPUs per run; default 64.")
    jobs_per_team: Annotated[int | None, COUNT] = Field(default=None, description="Jobs of one team per run.")
    money_per_hour: Annotated[Quantity | None, MONEY_RATE] = Field(
        default=None, description="Price of all that one run may act on; an unknown price is over it."
    )


class Active(Section):
    """When a policy is active; outside of it the policy is evaluated and does nothing."""

    from_: Annotated[str | None, MOMENT] = Field(
        default=None, description="Start: a day, a moment or a time of day."
    )
    until: Annotated[str | None, MOMENT] = Field(default=None, description="End, in the form of `from`.")
    schedule: Annotated[str | None, SCHEDULE] = Field(
        default=None, description="Cron fields; active in the minutes that match."
    )
    timezone: Annotated[str | None, ZONE] = Field(
        default=None, description="Zone of the times; default the set's."
    )
    quiet: Annotated[str | None, QUIET] = Field(
        default=None, description="Times of day in which alerts wait for the end of the range."
    )


class Maintenance(Section):
    """A time in which nothing is acted on."""

    reason: Annotated[str | None, TEXT] = Field(default=None, description="Why.")
    from_: Annotated[str | None, MOMENT] = Field(
        default=None, description="Start: a day, a moment or a time of day."
    )
    until: Annotated[str | None, MOMENT] = Field(default=None, description="End, in the form of `from`.")
    schedule: Annotated[str | None, SCHEDULE] = Field(
        default=None, description="Cron fields; in the minutes that match."
    )
    timezone: Annotated[str | None, ZONE] = Field(
        default=None, description="Zone of the times; default the set's."
    )


class SettingsSection(Section):
    """Settings of the whole set."""

    mode: Annotated[str, choice(*MODES)] = Field(
        default="audit", description="audit touches nothing, warn sends alerts, enforce acts."
    )
    timezone: Annotated[str, ZONE] = Field(default="UTC", description="Zone of times without one.")
    resolution: Annotated[float, INTERVAL] = Field(default=60.0, description="Length of a slot; default 1m.")
    state: Annotated[str, EXPANDABLE] = Field(
        default="sqlite:///stoploss.db", description="Database URL of history, state and ledger."
    )
    limits: Limits | None = Field(default=None, description="Caps on what one run may do.")
    retention: Annotated[float | None, INTERVAL] = Field(
        default=None, description="How long samples are kept."
    )
    heartbeat: Annotated[str | None, EXPANDABLE] = Field(
        default=None, description="URL that is called after every tick, for a dead man's switch."
    )
    maintenance: list[Maintenance] = Field(default=[], description="Times in which nothing is acted on.")


class Prices(Section):
    """Prices that override the built-in price book."""

    gpu_hour: dict[str, Annotated[Quantity, GPU_PRICE]] = Field(
        default={}, description="Part of gpu.model, or `default` -> price; the longest match wins."
    )
    kind: Annotated[str | None, choice(*PRICE_KINDS)] = Field(
        default=None, description="What sort of price this is."
    )


class FixedCost(Section):
    """A cost that is paid whatever happens, shared among resources."""

    placeholders: ClassVar[dict[str, str]] = {"name": "unnamed", "cost": "$0/h"}

    name: Annotated[str, NAME] = Field(description="Its name.")
    cost: Annotated[Quantity, MONEY_RATE] = Field(description="Money per time, such as $500/month.")
    category: Annotated[str, choice(*CATEGORIES)] = Field(
        default="compute", description="Its category of cost."
    )
    share_by: Annotated[str | None, TEXT] = Field(default=None, description="The key by which it is shared.")


class BudgetSection(Section):
    """A limit on use."""

    placeholders: ClassVar[dict[str, str]] = {"name": "unnamed", "each": "job", "limit": "1 GPU-hour"}

    name: Annotated[str, NAME] = Field(description="Its name, unique over all files.")
    each: Annotated[str, choice(*KINDS)] = Field(
        description="The kind of resource that has this budget each."
    )
    limit: Annotated[Quantity, BUDGET_LIMIT] = Field(description="GPU-hours or money.")
    where: Annotated[Any, CONDITION] = Field(default=None, description="Which use counts, by labels.")
    per: Annotated[str, choice("life", "day", "week", "month")] = Field(
        default="life", description="The time after which use counts from 0 again."
    )


class ExemptionSection(Section):
    """A policy does not apply to some resources until a day."""

    placeholders: ClassVar[dict[str, str]] = {
        "policy": "unnamed",
        "where": "",
        "reason": "none",
        "owner": "none",
        "expires": "9999-12-31",
    }

    policy: Annotated[str, NAME] = Field(description="The policy that does not apply.")
    where: Annotated[Any, CONDITION] = Field(description="To which resources it does not apply, by labels.")
    reason: Annotated[str, TEXT] = Field(description="Why.")
    owner: Annotated[str, TEXT] = Field(description="Who answers for it.")
    expires: Annotated[str, DAY] = Field(description="The last day on which it holds.")


class CorrelationSection(Section):
    """Findings joined into one incident."""

    placeholders: ClassVar[dict[str, str]] = {
        "name": "unnamed",
        "cause": "waste",
        "join": "job",
        "all": "unnamed",
    }

    name: Annotated[str, NAME] = Field(description="Its name, unique over all files.")
    cause: Annotated[str, choice(*CAUSES)] = Field(description="The cause that the incident gets.")
    join: Annotated[str, TEXT] = Field(description="The label whose value the findings share.")
    all: Annotated[tuple[str, ...], TEXTS] = Field(description="Policies that must all fire.")
    none: Annotated[tuple[str, ...], TEXTS] = Field(default=(), description="Policies that must not fire.")
    within: Annotated[float, DURATION] = Field(
        default=600.0, description="How far apart they may fire; default 10m."
    )
    then: Annotated[Any, STEPS] = Field(default=None, description="Steps of the incident.")


class PolicySection(Section):
    """One policy."""

    placeholders: ClassVar[dict[str, str]] = {"name": "unnamed", "each": "job"}

    name: Annotated[str, NAME] = Field(description="Its name, unique over all files.")
    summary: Annotated[str, TEXT] = Field(default="", description="One sentence for people.")
    each: Annotated[str, choice(*KINDS)] = Field(description="The kind of resource it is judged on.")
    where: Annotated[Any, CONDITION] = Field(
        default=None, description="Which resources, by labels; default all."
    )
    when: Annotated[Any, CONDITIONS] = Field(default=None, description="Conditions that must all be true.")
    for_: Annotated[float, DURATION] = Field(
        default=0.0, description="How long they must be true; default 0."
    )
    hold: Annotated[float, DURATION] = Field(
        default=0.0, description="How long it keeps firing after that; default 0."
    )
    severity: Annotated[str, choice(*SEVERITIES)] = Field(default="medium", description="How bad it is.")
    cause: Annotated[str | None, choice(*CAUSES)] = Field(default=None, description="The cause it points to.")
    mode: Annotated[str | None, choice(*MODES)] = Field(
        default=None, description="Default: that of settings."
    )
    resolution: Annotated[float | None, INTERVAL] = Field(
        default=None, description="Default: that of settings."
    )
    on_unknown: Annotated[str, choice("report", "alert")] = Field(
        default="report",
        description="alert: send the alert steps also when it is unknown for longer than `for`.",
    )
    min_age: Annotated[float, DURATION] = Field(
        default=0.0, description="The resource must be this old; default 0."
    )
    except_phase: Annotated[tuple[str, ...], choices(*PHASES)] = Field(
        default=(), description="Phases of the job in which it is false."
    )
    active: Active | None = Field(default=None, description="When it is active; default always.")
    waste: Annotated[Quantity | None, WASTE] = Field(
        default=None, description="What is lost while it fires: a share of the price, or money per time."
    )
    limits: Limits | None = Field(default=None, description="Caps of this policy beside those of settings.")
    budget: Annotated[str | None, NAME] = Field(
        default=None, description="The one budget that budget.used means."
    )
    runbook: Annotated[str | None, TEXT] = Field(default=None, description="Where it says what to do.")
    contact: Annotated[str | None, TEXT] = Field(default=None, description="Who to ask.")
    then: Annotated[Any, STEPS] = Field(default=None, description="Steps, in order.")


class PolicyFile(Section):
    """A policy file."""

    version: int = Field(description="The version of the language: 1.", json_schema_extra={"const": 1})
    settings: SettingsSection | None = Field(default=None, description="Settings of the whole set.")
    include: list[str] = Field(default=[], description="pack:NAME, or paths relative to this file.")
    collectors: dict[str, Any] = Field(default={}, description="Collectors with their options.")
    prices: Prices | None = Field(default=None, description="Prices that override the built-in ones.")
    fixed_costs: list[FixedCost] = Field(default=[], description="Costs that are paid whatever happens.")
    budgets: list[BudgetSection] = Field(default=[], description="Limits on use.")
    notify: dict[str, Annotated[str, EXPANDABLE]] = Field(default={}, description="Receivers: name -> URL.")
    protect: list[str] = Field(default=[], description="Resources that are never acted on, by labels.")
    exemptions: list[ExemptionSection] = Field(
        default=[], description="Policies that do not apply somewhere."
    )
    policies: list[PolicySection] = Field(default=[], description="The policies.")
    correlate: list[CorrelationSection] = Field(default=[], description="Findings joined into incidents.")
