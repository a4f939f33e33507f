"""Everything that can befall a watched fleet, each as one call, by chance or by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from stoploss.engine.ledger import Ledger
from stoploss.engine.model import UNREADABLE
from stoploss.engine.people import People
from stoploss.engine.people_schema import DecisionError
from support.model import VARIANTS, Model

LABELS: tuple[tuple[str, Any], ...] = (
    ("class", "train"),
    ("class", "train"),
    ("class", ""),
    ("class", "serve"),
    ("class", UNREADABLE),
    ("keep", "true"),
    ("keep", "false"),
    ("keep", "false"),
    ("keep", UNREADABLE),
    ("team", "speech"),
    ("twice", "yes"),
    ("twice", ""),
)
FAULTS = ("fail", "raise", "lie", "")
ACTIONS = ("snapshot", "terminate", "downscale")
HOWS = ("idle", "idle", "idle", "busy", "half", "silent")


class Crash(BaseException):
    """The end of a process."""


class Trial:
    """A watched fleet, a cycle over it, and what befalls them."""

    def __init__(self, folder: Path, jobs: str) -> None:
        self.jobs, self.left = list(jobs), 0
        self.model = Model(folder, point=self._point)
        self.model.start(*jobs)
        self.cycle: Any = None
        self._begin()

    def _point(self) -> None:
        if self.left > 0:
            self.left -= 1
            if self.left == 0:
                raise Crash

    def _begin(self) -> None:
        """A process starts: another cycle over the same state, which looks what was left open."""
        self.end()
        self.model.state = Ledger(self.model.url, environ={})
        self.cycle = self.model.cycle(self.model.rules.text())
        self.cycle.reconcile()

    def end(self) -> None:
        """The process is over."""
        if self.model.state is not None:
            self.model.state.close()
        if self.cycle is not None:
            self.cycle._ledger.close()

    def _guarded(self, work: Callable[[], object]) -> None:
        """Where a crash comes, a new process goes on."""
        while True:
            try:
                work()
            except Crash:
                work = self._begin
            else:
                return

    @property
    def people(self) -> People:
        """Decisions of people."""
        assert self.model.state is not None, "a cycle runs"
        return People(self.model.state)

    # ---- what befalls it ---------------------------------------------------------------

    def minutes(self, number: int) -> None:
        """Minutes pass, each with a look and a step."""
        for _ in range(number):
            self.model.minutes += 1
            self.model.real += 1
            self.model.look()
            self._guarded(lambda: self.model.round(self.cycle))

    def gap(self, minutes: int) -> None:
        """The machine sleeps."""
        self.model.minutes += minutes
        self.model.real += minutes

    def back(self, minutes: int) -> None:
        """The clock is put back."""
        self.model.minutes = max(0, self.model.minutes - minutes)

    def behave(self, job: str, how: str) -> None:
        """A job works, stops, works on one GPU, or is not seen."""
        for name in ("busy", "half", "silent"):
            getattr(self.model, name).discard(job)
            if how == name:
                getattr(self.model, name).add(job)

    def label(self, job: str, name: str, value: Any) -> None:
        """A job is labelled."""
        if name == "twice":
            (self.model.twice.add if value else self.model.twice.discard)(job)
        else:
            self.model.labels.setdefault(job, {})[name] = value

    def fault(self, action: str, job: str, kind: str) -> None:
        """An action fails on a job from now on."""
        self.model.faults.pop((action, job), None)
        if kind:
            self.model.faults[action, job] = kind

    def receiver(self, name: str, reached: bool) -> None:
        """A receiver can be reached, or not."""
        (self.model.undeliverable.discard if reached else self.model.undeliverable.add)(name)

    def answer(self, choice: int, yes: bool) -> None:
        """A person answers one question that was asked."""
        asked = self.people.requests()
        if not asked:
            return
        request, now = asked[choice % len(asked)], self.model.now()
        wanted = request.wanted
        key = wanted.resource.id, wanted.action
        try:
            if yes:
                self.people.approve(request.id, who="ann", now=now)
                if request.asked.timestamp() >= 0:
                    self.model.approved[(*key, str(dict(wanted.parameters)))] = self.model.real
            else:
                self.people.reject(request.id, who="ann", now=now, reason="no")
                self.model.approved.pop((*key, str(dict(wanted.parameters))), None)
        except DecisionError:
            return

    def keep(self, job: str, minutes: int) -> None:
        """A person keeps a job."""
        self.people.keep(
            job, timedelta(minutes=minutes), who="ann", now=self.model.now(), reason="still needed"
        )
        self.model.kept[job] = self.model.minutes + minutes

    def exempt(self, policy: str, job: str) -> None:
        """A person exempts a job from a policy."""
        said = {"expires": "2027-01-31", "reason": "by design", "owner": "ann", "who": "ann"}
        self.people.exempt(policy, f'job == "{job}"', now=self.model.now(), **said)
        self.model.exempt.add((policy, job))

    def pause(self, on: bool) -> None:
        """A person pauses everything, or lets it go on."""
        if on:
            self.people.pause(who="ann", now=self.model.now(), reason="outage")
        else:
            self.people.resume(who="ann", now=self.model.now())
        self.model.paused = on

    def reload(self, number: int) -> None:
        """Another policy file."""
        self.model.rules = VARIANTS[number % len(VARIANTS)]
        self._guarded(self._begin)

    def crash(self, at: int) -> None:
        """The process ends at the n-th place from now."""
        self.left = at

    def lose(self, job: str) -> None:
        """What a job has saved is gone."""
        (self.model.folder / "saved" / job).unlink(missing_ok=True)

    def start(self) -> None:
        """For each job that has ended another one is started."""
        for at, job in enumerate(self.jobs):
            if job not in self.model.running():
                self.jobs[at] = f"{job[0]}{int(job[1:] or 0) + 1}"
                self.model.start(self.jobs[at])

    # ---- by chance ---------------------------------------------------------------------

    def befall(self, draw: random.Random) -> None:
        """One of these, by chance."""
        job = draw.choice(self.jobs)
        chances: dict[str, tuple[int, Callable[[], None]]] = {
            "minutes": (60, lambda: self.minutes(1)),
            "behave": (9, lambda: self.behave(job, draw.choice(HOWS))),
            "start": (6, self.start),
            "answer": (5, lambda: self.answer(draw.randrange(8), draw.random() < 0.8)),
            "label": (4, lambda: self.label(job, *draw.choice(LABELS))),
            "fault": (4, lambda: self.fault(draw.choice(ACTIONS), job, draw.choice(FAULTS))),
            "crash": (4, lambda: self.crash(draw.randint(1, 12))),
            "receiver": (3, lambda: self.receiver(draw.choice(("owner", "boss")), draw.random() < 0.7)),
            "pause": (3, lambda: self.pause(draw.random() < 0.25)),
            "reload": (2, lambda: self.reload(draw.randrange(len(VARIANTS)))),
            "lose": (2, lambda: self.lose(job)),
            "keep": (1, lambda: self.keep(job, draw.randint(1, 40))),
            "back": (1, lambda: self.back(draw.randint(1, 15))),
            "gap": (1, lambda: self.gap(draw.randint(2, 200))),
        }
        if draw.random() < 0.004:
            self.exempt("idle", job)
        names = list(chances)
        name = draw.choices(names, [chances[item][0] for item in names])[0]
        chances[name][1]()
