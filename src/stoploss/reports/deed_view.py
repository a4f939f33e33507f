"""What is told of a thing that was done, whatever the format: then, now, and what can be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo

from stoploss.engine.execution.history_of import Act, History
from stoploss.engine.people_schema import Request
from stoploss.reports.pasted import joined

ENDS = ("terminate",)
"""Actions after which a job does not run any more."""


@dataclass(frozen=True, slots=True)
class Hand:
    """What the policy files of now say of a policy of then.

    Attributes:
        state: same, changed, gone, unread (they hold errors), or none where there are no files.
        words: the same for people.
        summary: what the policy is about, where it is the same.
    """

    state: str
    words: str
    summary: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What is told, and how.

    Attributes:
        history: what the ledger keeps.
        hand: the policy as the files have it now.
        zone: of times for people.
        waiting: questions of this finding that wait for an answer now.
        options: of commands that are offered, such as `--state URL`.
    """

    history: History
    hand: Hand
    zone: tzinfo
    waiting: tuple[Request, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """Something that can be done now, with its command where there is one."""

    words: str
    command: tuple[str, ...] = ()


def offers(view: View) -> tuple[Offer, ...]:
    """What can be done now, as far as the ledger tells."""
    history = view.history
    found = [Offer(*_answer(request, word)) for request in view.waiting for word in ("approve", "reject")]
    ended = next((act for act in reversed(history.acts) if _ended(act)), None)
    if ended is not None and history.saved:
        path = ended.relied_on or history.saved[-1].path
        saved = next((item for item in reversed(history.saved) if item.path == path), history.saved[-1])
        step = "" if saved.step is None else f" (step {saved.step})"
        found.append(Offer(f"start the run again from {saved.path}{step}; it was not looked at now"))
    for act in history.acts:
        name = f"{act.intent.action} of {act.intent.resource} (line {act.intent.seq})"
        if act.undoable:
            found.append(Offer(f"take back {name}", ("undo", str(act.intent.seq))))
        elif act.state == "done" and act.undone is None and act.intent.action not in ("snapshot",):
            found.append(Offer(f"{name} cannot be taken back"))
    coming = history.decided and history.decided[-1].verdict in ("would", "held")
    if ended is None and history.job is not None and (coming or view.waiting):
        keep = ("keep", history.job, "--for", "4h", "--reason", "…")
        found.append(Offer(f"keep job {history.job} running", keep))
    return tuple(found)


def command_of(view: View, item: Offer) -> str:
    """The command of an offer, quoted for a shell; empty where it has none."""
    return joined(item.command, view.options) if item.command else ""


def _answer(request: Request, word: str) -> tuple[str, tuple[str, ...]]:
    reason = ("--reason", "…") if word == "reject" else ()
    return f"{word} {request.wanted.action}, which waits for an answer", (word, request.id, *reason)


def _ended(act: Act) -> bool:
    return act.intent.action in ENDS and act.state == "done" and act.undone is None
