"""What people decide: approve, reject, keep, exempt, pause.

Each decision and its line in the ledger are written in one transaction, so that there is never one
without the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from stoploss.engine.canonical import canonical
from stoploss.engine.ledger import PART, Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import ResourceId
from stoploss.engine.people_schema import (
    EXEMPTIONS,
    KEEPS,
    PAUSE,
    REQUESTS,
    VALID,
    DecisionError,
    Keep,
    Pause,
    Request,
    RuntimeExemption,
    Wanted,
    exemption_id,
    instant,
    request_of,
    request_row,
)

KEEP_CAP = timedelta(hours=24)
"""The longest that a job is kept at one word; the owner may say it again."""

PAUSE_FILE = "pause"


class People:
    """Decisions of people in a ledger's database."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def ask(self, wanted: Wanted, *, now: datetime) -> Request:
        """Ask for an approval, unless it is asked or answered already.

        What was rejected is not asked again in its episode, with whatever parameters; what nobody
        answered for 24 h is, and so is an approval that has run out.

        Raises:
            StoreError: the state cannot be written.
        """
        parameters = canonical(self._ledger.masker.plain(wanted.parameters))
        row = request_row(wanted, parameters, now)
        with self._ledger.writing() as connection:
            query = select(REQUESTS).where(
                REQUESTS.c.episode == wanted.episode,
                REQUESTS.c.action == wanted.action,
                REQUESTS.c.target == wanted.target,
            )
            asked = [request_of(found._asdict()) for found in connection.execute(query)]
            for request in asked:
                same = request.id == row["id"]
                if request.answer == "rejected" or (same and request.state(now) != "expired"):
                    return request
            connection.execute(delete(REQUESTS).where(REQUESTS.c.id == row["id"]))
            connection.execute(insert(REQUESTS), row)
            request = request_of(row)
            why = f"needs approval: stoploss approve {request.id}"
            self._tell(connection, request, Entry(at=now, kind="decision", verdict="held", why=why))
        return request

    def requests(self, *, episodes: Sequence[str] | None = None) -> tuple[Request, ...]:
        """Every request, the newest first; with `episodes` only those about one of them.

        Raises:
            StoreError: the state cannot be read.
        """
        query = select(REQUESTS).order_by(REQUESTS.c.asked.desc(), REQUESTS.c.id)
        if episodes is None:
            return tuple(request_of(row._asdict()) for row in self._rows(query))
        # In parts, as a statement takes a limited number of values.
        parts = (episodes[at : at + PART] for at in range(0, len(episodes), PART))
        rows = [row for part in parts for row in self._rows(query.where(REQUESTS.c.episode.in_(part)))]
        rows.sort(key=lambda row: (-row.asked, row.id))
        return tuple(request_of(row._asdict()) for row in rows)

    def approve(self, name: str, *, who: str, now: datetime, reason: str | None = None) -> Request:
        """Approve one request, for 24 h.

        Raises:
            DecisionError: there is none of that id that waits.
            StoreError: the state cannot be written.
        """
        return self._answer(name, Entry(at=now, kind="approval", who=who, why=reason))

    def reject(self, name: str, *, who: str, now: datetime, reason: str) -> Request:
        """Reject one request, or take an approval back; it is not asked again in its episode.

        Raises:
            DecisionError: there is none of that id that could be rejected, or no reason is given.
            StoreError: the state cannot be written.
        """
        _given(reason=reason)
        return self._answer(name, Entry(at=now, kind="rejection", who=who, why=reason))

    def keep(
        self,
        job: str,
        span: timedelta,
        *,
        who: str,
        now: datetime,
        reason: str,
        cap: timedelta = KEEP_CAP,
        per_hour: float | None = None,
        currency: str | None = None,
    ) -> Keep:
        """Keep a job from being ended or shrunk for a while.

        The newest word counts, also where it is shorter than the one before. `per_hour` is what the job
        costs per hour in `currency`, None where that is not known.

        Raises:
            DecisionError: the span is none or longer than `cap`, or there is no reason.
            StoreError: the state cannot be written.
        """
        _given(job=job, reason=reason)
        if not timedelta() < span <= cap:
            raise DecisionError(f"a job is kept for {_hours(cap)} at most, and for more than nothing")
        text = self._ledger.masker.text
        kept = Keep(job, now, now + span, text(reason), who)
        row = {
            "job": job,
            "since": now.timestamp(),
            "until": kept.until.timestamp(),
            "reason": kept.reason,
            "who": who,
        }
        said: dict[str, Any] = {"until": kept.until}
        if per_hour is not None:
            said |= {"per_hour": per_hour, "cost": round(kept.cost(per_hour), 6)}
        with self._ledger.writing() as connection:
            connection.execute(delete(KEEPS).where(KEEPS.c.job == job))
            connection.execute(insert(KEEPS), row)
            entry = Entry(
                at=now,
                kind="keep",
                resource=ResourceId("job", job),
                parameters=said,
                why=reason,
                who=who,
                currency=currency if per_hour is not None else None,
            )
            self._ledger.append_within(connection, entry)
        return kept

    def kept(self, job: str, *, now: datetime) -> Keep | None:
        """The keep that holds for a job now.

        Raises:
            StoreError: the state cannot be read; then nothing may be ended.
        """
        return next((keep for keep in self.keeps(now=now) if keep.job == job), None)

    def keeps(self, *, now: datetime) -> tuple[Keep, ...]:
        """Every keep that holds now.

        Raises:
            StoreError: the state cannot be read; then nothing may be ended.
        """
        return tuple(
            Keep(row.job, instant(row.since), instant(row.until), row.reason, row.who)
            for row in self._rows(select(KEEPS).order_by(KEEPS.c.job))
            if now.timestamp() < row.until
        )

    def exempt(
        self, policy: str, where: str, *, expires: str, reason: str, owner: str, who: str, now: datetime
    ) -> RuntimeExemption:
        """Exempt resources from a policy, through the day `expires` (ISO date).

        Raises:
            DecisionError: something is not given, or `expires` is no day.
            StoreError: the state cannot be written.
        """
        _given(policy=policy, where=where, expires=expires, reason=reason, owner=owner)
        try:
            # Compact and week forms are dates as well, and are kept in one spelling.
            expires = date.fromisoformat(expires).isoformat()
        except ValueError:
            raise DecisionError(f"{expires!r} is no day; write one such as 2027-01-31") from None
        text = self._ledger.masker.text
        made = RuntimeExemption(
            id=exemption_id(policy, where, expires),
            policy=policy,
            where=where,
            reason=text(reason),
            owner=text(owner),
            expires=expires,
            who=who,
            since=now,
        )
        row = {name: getattr(made, name) for name in ("id", "policy", "reason", "owner", "expires", "who")}
        with self._ledger.writing() as connection:
            connection.execute(delete(EXEMPTIONS).where(EXEMPTIONS.c.id == made.id))
            connection.execute(
                insert(EXEMPTIONS), {**row, "condition": text(where), "since": now.timestamp()}
            )
            said = {"id": made.id, "where": where, "owner": owner, "expires": expires}
            entry = Entry(at=now, kind="exemption", policy=policy, parameters=said, why=reason, who=who)
            self._ledger.append_within(connection, entry)
        return made

    def exemptions(self) -> tuple[RuntimeExemption, ...]:
        """Every exemption, those that have expired included, the oldest first.

        Raises:
            StoreError: they cannot be read; then nothing may be ended.
        """
        query = select(EXEMPTIONS).order_by(EXEMPTIONS.c.since, EXEMPTIONS.c.id)
        return tuple(
            RuntimeExemption(
                id=row.id,
                policy=row.policy,
                where=row.condition,
                reason=row.reason,
                owner=row.owner,
                expires=row.expires,
                who=row.who,
                since=instant(row.since),
            )
            for row in self._rows(query)
        )

    def pause(self, *, who: str, now: datetime, reason: str) -> Pause:
        """Carry out nothing from now on.

        Raises:
            StoreError: the state cannot be written; the pause file still can.
        """
        text = self._ledger.masker.text(reason)
        row = {"id": 1, "since": now.timestamp(), "reason": text, "who": who}
        with self._ledger.writing() as connection:
            connection.execute(delete(PAUSE))
            connection.execute(insert(PAUSE), row)
            self._ledger.append_within(connection, Entry(at=now, kind="pause", why=reason, who=who))
        return Pause(text, now, who)

    def resume(self, *, who: str, now: datetime, reason: str | None = None) -> Pause | None:
        """Take a pause back; returns it, None where there was none. A pause file stays.

        Raises:
            StoreError: the state cannot be written.
        """
        with self._ledger.writing() as connection:
            row = connection.execute(select(PAUSE)).first()
            if row is None:
                return None
            connection.execute(delete(PAUSE))
            self._ledger.append_within(connection, Entry(at=now, kind="resume", why=reason, who=who))
        return Pause(row.reason, instant(row.since), row.who)

    def paused(self) -> Pause | None:
        """The pause in force, in the state or by its file.

        Raises:
            StoreError: the state cannot be read; then nothing may be carried out.
        """
        for row in self._rows(select(PAUSE)):
            return Pause(row.reason, instant(row.since), row.who)
        file = pause_file(self._ledger.file)
        try:
            there = file.exists()
        except OSError as error:
            # Whoever laid it there wanted nothing to be done.
            return Pause(f"whether the file {file} is there cannot be told ({error.strerror})")
        return Pause(f"the file {file} is there") if there else None

    def _answer(self, name: str, entry: Entry) -> Request:
        answer = "approved" if entry.kind == "approval" else "rejected"
        with self._ledger.writing() as connection:
            query = select(REQUESTS).where(REQUESTS.c.id == name).with_for_update()
            row = connection.execute(query).one_or_none()
            if row is None:
                raise DecisionError(f"there is no request {name}; {self._waiting(connection, entry.at)}")
            state = request_of(row._asdict()).state(entry.at)
            if state == "expired":
                raise DecisionError(
                    f"request {name} is older than {_hours(VALID)}; it is asked again when its step is due"
                )
            if state == "rejected" or (state == "approved" and answer == "approved"):
                raise DecisionError(f"request {name} was {state} already, by {row.who}")
            reason = None if entry.why is None else self._ledger.masker.text(entry.why)
            said = {
                "answer": answer,
                "answered": entry.at.timestamp(),
                "who": entry.who,
                "reason": reason,
            }
            connection.execute(REQUESTS.update().where(REQUESTS.c.id == name).values(**said))
            request = request_of({**row._asdict(), **said})
            self._tell(connection, request, entry)
        return request

    def _waiting(self, connection: Connection, now: datetime) -> str:
        found = [request_of(row._asdict()) for row in connection.execute(select(REQUESTS))]
        names = [request.id for request in found if request.state(now) == "waiting"]
        return f"waiting: {', '.join(sorted(names))}" if names else "none waits"

    def _tell(self, connection: Connection, request: Request, entry: Entry) -> None:
        """Write the line of a request into the ledger."""
        wanted = request.wanted
        line = Entry(
            at=entry.at,
            kind=entry.kind,
            episode=wanted.episode,
            policy=wanted.policy,
            policy_hash=wanted.policy_hash,
            resource=wanted.resource,
            action=wanted.action,
            target=wanted.target,
            parameters=wanted.parameters,
            verdict=entry.verdict,
            why=entry.why,
            who=entry.who,
            evidence={"request": request.id},
        )
        self._ledger.append_within(connection, line)

    def _rows(self, query: Any) -> list[Row[Any]]:
        with self._ledger.reading() as connection:
            return list(connection.execute(query))


def pause_file(state: Path | None) -> Path:
    """The file that pauses while it is there: beside the state's file, else in the working folder."""
    return (Path() if state is None else state.parent) / PAUSE_FILE


def _given(**texts: str) -> None:
    for name, text in texts.items():
        if not text.strip():
            raise DecisionError(f"there is no {name}; give one")


def _hours(span: timedelta) -> str:
    return f"{span / timedelta(hours=1):g} h"
