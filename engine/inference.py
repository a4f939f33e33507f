"""Findings joined into incidents: which policies fire together on one job, host or team.

A correlation asks for findings of several policies (`all`) that share the value of a label,
now or within a while, and for none of others. What is unknown among the others blocks the
incident from being decided; it is then listed as undecided, and never as certain.

The joining is done by durable-rules, one ruleset for all correlations. It is driven from one
thread and with texts only: its timer threads and its reading of numbers are not to be relied
on. Numbers and time stay on our side: a fact is (correlation, policy, value) for a policy that
fires, and what fires is decided by the evaluator. Where the library cannot be had, a hash
join does the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stoploss.rules.policy import Correlation


@dataclass(frozen=True, slots=True)
class Signal:
    """What one policy says of one resource at the instant of the join.

    Attributes:
        policy: its name.
        labels: label -> value of the resource, own and inherited; `job`, `host`, … included.
        finding: id of the finding, None for an unknown one and for one that is over.
        fired_ago: seconds since it last fired; 0 while it fires; None when unknown.
    """

    policy: str
    labels: dict[str, str]
    finding: str | None
    fired_ago: float | None

    @property
    def unknown(self) -> bool:
        """Whether it could not be told if the policy fires."""
        return self.fired_ago is None


@dataclass(frozen=True, slots=True)
class Incident:
    """A correlation that holds for one value of its label.

    `undecided` is true when a policy that must not fire is unknown.
    """

    correlation: Correlation
    value: str
    findings: tuple[str, ...]
    undecided: bool


Fact = tuple[str, str, str]
"""Correlation, policy, value of the joined label."""


class Matcher(Protocol):
    """Finds (correlation, value) pairs for which all of `wanted` are there and none of `barred`."""

    def match(self, wanted: Iterable[Fact], barred: Iterable[Fact]) -> set[tuple[str, str]]:
        """The pairs that hold."""
        ...


class HashJoin:
    """The plain matcher: per correlation the values that every policy of `all` shares."""

    def __init__(self, correlations: Sequence[Correlation]) -> None:
        self._correlations = correlations

    def match(self, wanted: Iterable[Fact], barred: Iterable[Fact]) -> set[tuple[str, str]]:
        """The pairs that hold."""
        values: dict[tuple[str, str], set[str]] = {}
        for correlation, policy, value in wanted:
            values.setdefault((correlation, policy), set()).add(value)
        blocked = {(correlation, value) for correlation, _, value in barred}
        found: set[tuple[str, str]] = set()
        for item in self._correlations:
            shared = set.intersection(*(values.get((item.name, policy), set()) for policy in item.all))
            found |= {(item.name, value) for value in shared if (item.name, value) not in blocked}
        return found


class DurableRules:
    """The same by durable-rules.

    Raises:
        ImportError: the library is not installed here.
    """

    def __init__(self, correlations: Sequence[Correlation]) -> None:
        from durable.engine import Host, MessageNotHandledException, MessageObservedException

        class SingleThreaded(Host):  # type: ignore[misc]
            def _run(self) -> None:
                """Start none of the library's timer threads: they are not safe beside ours."""

        self._observed, self._unhandled = MessageObservedException, MessageNotHandledException
        self._fired: list[tuple[str, str]] = []
        self._ids = itertools.count()
        self._host = SingleThreaded() if correlations else None
        if self._host is not None:
            self._host.set_rulesets({_RULESET: dict(self._rules(correlations))})

    def _rules(self, correlations: Sequence[Correlation]) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, item in enumerate(correlations):
            same = {"value": {"f0": "value"}}
            patterns: list[dict[str, Any]] = []
            for at, policy in enumerate(dict.fromkeys(item.all)):
                key = {"key": _key(item.name, policy)}
                patterns.append({f"f{at}": {"$and": [key, same]} if at else key})
            barring = {"$and": [{"key": _key(item.name, None)}, same]}
            patterns.append({"barred$not": barring})
            yield f"r{number}", {"all": patterns, "run": self._recorder(item.name)}

    def _recorder(self, name: str) -> Any:
        def record(context: Any) -> None:
            # Only this: what goes wrong in a callback is swallowed by the library.
            self._fired.append((name, context.f0.value))

        return record

    def match(self, wanted: Iterable[Fact], barred: Iterable[Fact]) -> set[tuple[str, str]]:
        """The pairs that hold; leaves no fact behind."""
        if self._host is None:
            return set()
        self._fired.clear()
        # What bars comes first: a negation that arrives late is not honoured.
        keys = [(_key(c, None), value) for c, _, value in barred]
        keys += [(_key(c, policy), value) for c, policy, value in wanted]
        facts = [self._assert(key, value) for key, value in dict.fromkeys(keys)]
        found = set(self._fired)
        for fact in facts:
            self._quietly(self._host.retract_fact, fact)
        return found

    def _assert(self, key: str, value: str) -> dict[str, str]:
        assert self._host is not None
        while True:
            # Ids are hashed to 32 bits; one that collides is taken for a repeat, so try another.
            fact = {"id": str(next(self._ids)), "sid": "0", "key": key, "value": value}
            try:
                self._host.assert_fact(_RULESET, fact)
            except self._observed:
                continue
            except self._unhandled:
                pass
            return fact

    def _quietly(self, retract: Any, fact: dict[str, str]) -> None:
        try:
            retract(_RULESET, fact)
        except (self._observed, self._unhandled):
            return


_RULESET = "correlate"


def _key(correlation: str, policy: str | None) -> str:
    return f"{correlation}|{policy}" if policy is not None else f"{correlation}|!"


def matcher(correlations: Sequence[Correlation]) -> Matcher:
    """durable-rules where it can be had, else the hash join."""
    try:
        return DurableRules(correlations)
    except ImportError:
        return HashJoin(correlations)


def incidents(
    correlations: Sequence[Correlation], signals: Sequence[Signal], using: Matcher
) -> list[Incident]:
    """The incidents of one instant, in the order of correlations and values."""
    wanted: dict[Fact, list[str]] = {}
    firing: set[Fact] = set()
    unsure: set[Fact] = set()
    for item in correlations:
        for signal in signals:
            value = signal.labels.get(item.join)
            if value is None or signal.policy not in (*item.all, *item.none):
                continue
            fact = (item.name, signal.policy, value)
            recent = signal.fired_ago is not None and signal.fired_ago <= item.within
            if recent and signal.policy in item.all:
                wanted.setdefault(fact, []).extend([signal.finding] if signal.finding else [])
            if signal.policy in item.none:
                (firing if recent else unsure if signal.unknown else set()).add(fact)
    decided = using.match(wanted, firing | unsure)
    possible = using.match(wanted, firing)
    return [
        Incident(item, value, _findings(item, value, wanted), undecided=(item.name, value) not in decided)
        for item in correlations
        for value in sorted(value for name, value in possible if name == item.name)
    ]


def _findings(item: Correlation, value: str, wanted: dict[Fact, list[str]]) -> tuple[str, ...]:
    ids = [found for policy in item.all for found in wanted.get((item.name, policy, value), [])]
    return tuple(dict.fromkeys(ids))
