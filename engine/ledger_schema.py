"""Tables of the ledger, and how a line becomes text and hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, String, Table, Text

from stoploss.engine.canonical import canonical
from stoploss.engine.masking import Masker
from stoploss.engine.model import ResourceId
from stoploss.rules.conditions.typed import CheckedCondition
from stoploss.rules.diagnostics import Position
from stoploss.rules.policy import Policy

SCHEMA = 3
"""Version of these tables; a ledger with a greater one is left alone.

1 had no memory of alerts, 2 no index by kind and time.
"""

METADATA = MetaData()
META = Table(
    "ledger_meta",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)
HEAD = Table(
    "ledger_head",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("count", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
)
LINES = Table(
    "ledger_lines",
    METADATA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    # The body is what is hashed; the columns after it repeat parts of it, to search by.
    Column("body", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("time", Float(53), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("episode", Text, index=True),
    Column("policy", Text),
    Column("resource", Text, index=True),
    Column("intent", BigInteger, index=True),
)
# What was begun lately is asked for at every tick, and a ledger grows for years.
Index("ledger_lines_kind_time", LINES.c.kind, LINES.c.time)
SEARCHED = ("time", "kind", "episode", "policy", "resource", "intent")

KINDS = (
    "intent",
    "result",
    "decision",
    "approval",
    "rejection",
    "keep",
    "exemption",
    "pause",
    "resume",
    "note",
)
START = "0" * 64
"""What the first line is chained to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the ledger.

    Attributes:
        at: when it was written; with a time zone.
        kind: one of `KINDS`.
        episode: id of the finding that it is about.
        policy, policy_hash: the policy's name, and `policy_hash` of it as it stood then.
        action, target, parameters: what is or was to be done, where and how.
        verdict: what came of it, in the words of a decision: would, done, blocked, held, failed, skipped.
        why: for people.
        evidence: JSON values that show why; kept as long as the line.
        promised, got: money per hour in `currency` that it was to save, and that it did save.
        who: the person or program that decided.
        intent: of a result, the line number of its intent.
        seq, previous, hash: line number from 1 and its place in the chain; set when it is written.
    """

    at: datetime
    kind: str
    episode: str | None = None
    policy: str | None = None
    policy_hash: str | None = None
    resource: ResourceId | None = None
    action: str | None = None
    target: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    verdict: str | None = None
    why: str | None = None
    evidence: Any = None
    promised: float | None = None
    got: float | None = None
    currency: str | None = None
    who: str | None = None
    intent: int | None = None
    seq: int | None = None
    previous: str | None = None
    hash: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r} is no kind of line; use one of {', '.join(KINDS)}")
        if self.at.tzinfo is None:
            raise ValueError("`at` has no time zone")
        if (self.kind == "result") != (self.intent is not None):
            raise ValueError("a result names the line of its intent, and nothing else does")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong with the chain; `line` is None where it is not about one line.

    `kind` is tampered, truncated, reordered, missing, bad-previous or bad-head.
    """

    kind: str
    line: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the chain: how many lines, and the hash of the last. Kept elsewhere, it proves them."""

    count: int
    hash: str

    def __str__(self) -> str:
        return f"{self.count}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read COUNT:HASH.

        Raises:
            ValueError: it is not of that form.
        """
        count, _, digest = text.strip().partition(":")
        if not (count.isascii() and count.isdecimal()) or len(digest) != 64 or set(digest) - _HEX:
            raise ValueError(f"{text!r} is no head; write it as `stoploss ledger verify` prints it")
        return cls(int(count), digest)


_HEX = frozenset("0123456789abcdef")


def digest(previous: str, body: str) -> str:
    """The hash of a line with this body after a line with the hash `previous`."""
    return hashlib.sha256(f"{previous}{body}".encode("utf-8", "backslashreplace")).hexdigest()


def row_of(entry: Entry, seq: int, previous: str, masker: Masker) -> dict[str, Any]:
    """An entry as a row, without secrets."""
    said = {f.name: getattr(entry, f.name) for f in fields(entry) if f.name not in ("at", "kind", "resource")}
    if entry.resource is not None:
        said["resource"] = {"kind": entry.resource.kind, "id": entry.resource.id}
    for name in ("seq", "previous", "hash"):
        del said[name]
    values = {name: masker.plain(v) for name, v in said.items() if v is not None and v != {}}
    values |= {"seq": seq, "at": entry.at.astimezone(UTC).isoformat(), "kind": entry.kind}
    body = canonical(values)
    row = {"seq": seq, "body": body, "previous": previous, "hash": digest(previous, body)}
    return row | searched(values)


def searched(values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that repeat parts of a body."""
    resource = values.get("resource")
    return {
        "time": datetime.fromisoformat(values["at"]).timestamp(),
        "kind": values["kind"],
        "episode": values.get("episode"),
        "policy": values.get("policy"),
        "resource": f"{resource['kind']} {resource['id']}" if resource else None,
        "intent": values.get("intent"),
    }


def entry_of(row: Any) -> Entry:
    """The entry of a row.

    Raises:
        ValueError, TypeError, KeyError: the body is damaged.
    """
    values = json.loads(row.body)
    values["at"] = datetime.fromisoformat(values["at"])
    if "resource" in values:
        values["resource"] = ResourceId(**values["resource"])
    return Entry(**{**values, "seq": row.seq, "previous": row.previous, "hash": row.hash})


def policy_hash(policy: Policy) -> str:
    """A hash of everything that a policy says, wherever it stands in its file."""
    return hashlib.sha256(canonical(_said(policy)).encode()).hexdigest()[:16]


def _said(value: Any) -> Any:
    if isinstance(value, CheckedCondition):
        return value.canonical
    if isinstance(value, Policy):
        # The tree of `when` has its one spelling in `canonical`.
        return {
            f.name: _said(getattr(value, f.name)) for f in fields(value) if f.name not in ("position", "when")
        }
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
        return {name: _said(part) for name, part in parts.items() if not isinstance(part, Position)}
    if isinstance(value, Mapping):
        return {str(name): _said(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_said(item) for item in value]
    if isinstance(value, Set):
        return sorted(str(item) for item in value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
