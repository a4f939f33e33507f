"""Who has been told what: so that nobody is told twice, and everybody once that it is over.

The memory is a value. `step` says what is to be told now; `told` and `failed` say how that went, and
give the memory that is kept. It is written as JSON and read back, so that a restart resends nothing.

- A finding is told once to each recipient, and again after `repeat` while it lasts.
- Those of one policy for one recipient that are due together are one group: one message.
- It is told once that a finding is over, to those who were told of it.
- A finding that is over and back within the interval is not told again before the interval has
  passed; then once, with how often it came back.
- What could not be delivered is due again at the next step, or, where another try is of no use, an
  hour later. An end that cannot be delivered is given up after a day.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

INTERVAL = 3600.0
"""Seconds within which a finding that comes back is folded, where its step has no `repeat`."""
PUSH_BACK = 3600.0
"""Seconds before a receiver is tried again for which another try is of no use."""
GIVE_UP = 86400.0
"""Seconds after which an end is no longer told."""

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A finding that fires, and somebody who is to know of it.

    Attributes:
        finding: its id.
        recipient: who is told, in words that are the same whenever the address is.
        policy, resource: what it is about; a finding that comes back has another id and these.
        repeat: seconds after which it is told again; None is once.
        receiver, labels, severity: what its end is told with, when the finding is no more.
    """

    finding: str
    recipient: str
    policy: str
    resource: str
    repeat: float | None = None
    receiver: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    severity: str = "medium"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a recipient knows of a finding; times are seconds since the epoch.

    Attributes:
        told: when it was last delivered that it fires; None: not yet.
        open: the recipient believes that it fires.
        ended: when it was over; None while it lasts.
        not_before: when to try again.
        returns: how often it came back untold.
    """

    wanted: Wanted
    told: float | None = None
    open: bool = False
    ended: float | None = None
    not_before: float = 0.0
    returns: int = 0

    @property
    def interval(self) -> float:
        """Seconds within which it is told once."""
        return INTERVAL if self.wanted.repeat is None else self.wanted.repeat


@dataclass(frozen=True, slots=True)
class Group:
    """One message: what fires and what is over, of one policy for one recipient.

    Attributes:
        recipient, policy: of all of it.
        firing, resolved: ids of findings.
        returns: how often they came back since they were last told.
        lasting: others of the group that were told before and still fire.
    """

    recipient: str
    policy: str
    firing: tuple[str, ...]
    resolved: tuple[str, ...]
    returns: int = 0
    lasting: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The same for every message of the group, so that a receiver can join them."""
        return f"stoploss:{self.policy}:{self.recipient}"


@dataclass(frozen=True, slots=True)
class Memory:
    """What all recipients know, by finding and recipient."""

    entries: Mapping[_Key, Entry] = field(default_factory=dict)

    def wanted(self, finding: str, recipient: str) -> Wanted:
        """What a group's finding is about.

        Raises:
            KeyError: nothing is known of it.
        """
        return self.entries[finding, recipient].wanted

    def as_json(self) -> list[dict[str, Any]]:
        """The memory as JSON values."""
        return [asdict(entry) for entry in self.entries.values()]

    @classmethod
    def from_json(cls, rows: Iterable[Mapping[str, Any]]) -> Memory:
        """A memory that `as_json` wrote.

        Raises:
            ValueError: it is not one. Nothing is guessed, as a lost memory tells everything again.
        """
        try:
            entries = [Entry(**{**row, "wanted": Wanted(**row["wanted"])}) for row in rows]
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a memory of alerts: {error}") from None
        return cls({_key(entry.wanted): entry for entry in entries})


def step(
    memory: Memory, wanted: Iterable[Wanted], now: float, silent: Collection[str] = ()
) -> tuple[Memory, tuple[Group, ...]]:
    """What is to be told at `now`, seconds since the epoch.

    `wanted` is everything that fires and is alerted on now. What is left out is over, but for policies
    that are `silent`: nobody is told anything of those, and what was told stays as it is.
    """
    current = {_key(item): item for item in wanted}
    entries: dict[_Key, Entry] = {}
    for key, entry in memory.entries.items():
        item = current.pop(key, None)
        if item is None and entry.wanted.policy in silent:
            entries[key] = entry
        elif item is not None:
            returns = entry.returns + (entry.ended is not None)
            # The policy may have been edited since.
            entries[key] = replace(entry, wanted=item, ended=None, returns=returns)
        else:
            ended = now if entry.ended is None else entry.ended
            entries[key] = replace(entry, ended=ended, not_before=0.0 if ended == now else entry.not_before)
    former = {_about(entry.wanted): entry for entry in entries.values() if entry.ended is not None}
    for key, item in current.items():
        last = former.pop(_about(item), None)
        if last is None:
            entries[key] = Entry(item)
        else:
            del entries[_key(last.wanted)]
            entries[key] = Entry(item, told=last.told, open=last.open, returns=last.returns + 1)
    entries = {key: entry for key, entry in entries.items() if not _over(entry, now)}
    spoken = [entry for entry in entries.values() if entry.wanted.policy not in silent]
    return Memory(entries), tuple(_groups(spoken, now))


def told(memory: Memory, group: Group, now: float) -> Memory:
    """The memory after a group has been delivered at `now`."""
    entries = dict(memory.entries)
    for entry in _of(memory, group, group.firing):
        entries[_key(entry.wanted)] = replace(entry, told=now, open=True, not_before=0.0, returns=0)
    for entry in _of(memory, group, group.resolved):
        entries[_key(entry.wanted)] = replace(entry, open=False)
    return Memory(entries)


def failed(memory: Memory, group: Group, now: float, *, retry: bool) -> Memory:
    """The memory after a group could not be delivered at `now`; `retry`: another try is of use."""
    if retry:
        return memory
    entries = dict(memory.entries)
    for entry in _of(memory, group, (*group.firing, *group.resolved)):
        entries[_key(entry.wanted)] = replace(entry, not_before=now + PUSH_BACK)
    return Memory(entries)


def _key(wanted: Wanted) -> _Key:
    return wanted.finding, wanted.recipient


def _of(memory: Memory, group: Group, findings: Iterable[str]) -> Iterable[Entry]:
    keys = ((finding, group.recipient) for finding in findings)
    return [memory.entries[key] for key in keys if key in memory.entries]


def _about(wanted: Wanted) -> tuple[str, str, str]:
    return wanted.recipient, wanted.policy, wanted.resource


def _over(entry: Entry, now: float) -> bool:
    """Whether nothing is left to be told or folded."""
    if entry.ended is None:
        return False
    if entry.open:
        return now - entry.ended > GIVE_UP
    return _passed(entry, now)


def _due(entry: Entry, now: float) -> bool:
    if now < entry.not_before:
        return False
    if entry.ended is not None:
        return entry.open
    if entry.told is None:
        return True
    return (entry.wanted.repeat is not None or entry.returns > 0) and _passed(entry, now)


def _passed(entry: Entry, now: float) -> bool:
    return entry.told is None or now - entry.told >= entry.interval


def _groups(entries: Iterable[Entry], now: float) -> Iterable[Group]:
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.wanted.recipient, entry.wanted.policy), []).append(entry)
    for (recipient, policy), members in groups.items():
        due = [entry for entry in members if _due(entry, now)]
        if due:
            firing = tuple(entry.wanted.finding for entry in due if entry.ended is None)
            ended = tuple(entry.wanted.finding for entry in due if entry.ended is not None)
            lasting = tuple(
                entry.wanted.finding
                for entry in members
                if entry.ended is None and entry.told is not None and entry not in due
            )
            yield Group(recipient, policy, firing, ended, sum(entry.returns for entry in due), lasting)
