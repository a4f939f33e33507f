"""A slow and obvious account of what may never be done, kept beside a fleet while it lives.

It counts minutes on a clock of its own that never goes back, believes only what was really seen, told and
decided, and writes down a fault for each call that it cannot justify.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from stoploss.engine.ledger import Ledger
from stoploss.engine.model import UNREADABLE, Look, Notice, Order, ResourceId, Sample
from support.toys import BEGIN, MINUTE, Fleet, Reply

DESTRUCTIVE = ("terminate", "downscale")
WINDOW = 5
DAY = 24 * 60
_NAMED = re.compile(r"\bjob (\w+) · (?!\w+ failed|\w+ needs)")


@dataclass(frozen=True)
class Rule:
    """One step: what, how many minutes after it fires, and what it asks for."""

    action: str
    after: int = 0
    approve: bool = False
    unsaved: bool = False
    options: tuple[tuple[str, str], ...] = ()
    to: str = "owner"

    def text(self) -> str:
        """As a policy file has it."""
        said = {"after": f"{self.after}m"} | dict(self.options)
        said |= {"approve": "required"} if self.approve else {}
        said |= {"snapshot": "not-needed"} if self.unsaved else {}
        said |= {"to": self.to} if self.action == "alert" else {}
        return f"{self.action}: {{{', '.join(f'{name}: {value}' for name, value in said.items())}}}"


@dataclass(frozen=True)
class Rules:
    """A policy file: its mode, its policies on jobs that do nothing, and its caps."""

    policies: dict[str, tuple[Rule, ...]]
    mode: str = "enforce"
    actions: int = 100
    share: float = 1.0
    gpus: int = 1000
    per_team: int = 100

    def text(self) -> str:
        """As a policy file."""
        limits = (
            f"actions-per-run: {self.actions}, share-of-population: {self.share:.0%}, min-population: 0, "
            f"gpus-per-run: {self.gpus}, jobs-per-team: {self.per_team}"
        )
        lines = ["version: 1", f"settings: {{mode: {self.mode}, limits: {{{limits}}}}}"]
        lines += ["prices: {gpu-hour: {default: $2.00/GPU-hour}}", "protect: ['label.keep == \"true\"']"]
        lines += ["policies:"]
        for name, steps in self.policies.items():
            lines += [f"  - name: {name}", "    each: job", "    waste: 100%", "    for: 2m"]
            lines += [f"    when: ['max(gpu.utilization, {WINDOW}m) < 5%']", "    then:"]
            lines += [f"      - {step.text()}" for step in steps]
        return "\n".join(lines) + "\n"


ALERT = Rule("alert")
SAVE = Rule("snapshot", 2)
END = Rule("terminate", 4)
SHRINK = Rule("downscale", 3, options=(("gpus", "1"),))
CHAIN = (ALERT, SAVE, END)
ASKS = (ALERT, SAVE, Rule("terminate", 4, approve=True))
VARIANTS = (
    Rules({"idle": CHAIN}),
    Rules({"idle": ASKS}),
    Rules({"idle": (ALERT, SAVE, Rule("terminate", 4, approve=True, options=(("grace", "1m"),)))}),
    Rules({"idle": (ALERT, Rule("terminate", 6, unsaved=True))}),
    Rules({"idle": (Rule("alert", to="boss"), SAVE, END)}),
    Rules({"idle": (ALERT, SAVE, SHRINK, END)}, actions=2),
    Rules({"idle": CHAIN, "small": (ALERT, SAVE, SHRINK)}),
    Rules({"idle": (SAVE, Rule("alert", 2), Rule("terminate", 5))}, gpus=4),
    Rules(
        {"idle": (ALERT, Rule("downscale", 3, unsaved=True, options=SHRINK.options), Rule("terminate", 9))}
    ),
    Rules({"idle": CHAIN}, share=0.5),
    Rules({"idle": CHAIN}, per_team=1),
    Rules({"idle": CHAIN}, actions=0),
    Rules({"idle": CHAIN}, mode="warn"),
    Rules({"idle": CHAIN}, mode="audit"),
)


@dataclass
class Seen:
    """What the looks said of one job: by real minute, and the last."""

    minutes: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    last: str = "never"
    labels: dict[str, Any] = field(default_factory=dict)
    well: int = -1
    worked: int = -1
    turned: int | None = None


@dataclass
class Model(Fleet):
    """A fleet that is watched; `faults_found` is what it did and may not do.

    Attributes:
        real: minutes that have passed, whatever the clock says.
        half: jobs of whose two GPUs one works.
        twice: names that two users gave a job.
    """

    real: int = 0
    half: set[str] = field(default_factory=set)
    twice: set[str] = field(default_factory=set)
    rules: Rules = VARIANTS[0]
    paused: bool = False
    exempt: set[tuple[str, str]] = field(default_factory=set)
    kept: dict[str, int] = field(default_factory=dict)
    approved: dict[tuple[str, str, str], int] = field(default_factory=dict)
    rejected: dict[tuple[str, str], int] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=lambda: defaultdict(Seen))
    heard: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    kept_at: dict[str, int] = field(default_factory=dict)
    begun: list[tuple[str, str]] = field(default_factory=list)
    count: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    faults_found: list[str] = field(default_factory=list)
    acting: bool = False
    state: Ledger | None = None

    # ---- what happens ------------------------------------------------------------------

    def look(self, minutes: int | None = None) -> None:
        """See every running job that is not silent, each with two GPUs."""
        at = BEGIN + self.minutes * MINUTE
        samples = []
        for job in self.running():
            how = "silent" if job in self.silent else "busy" if job in self.busy else "idle"
            how = "half" if how == "idle" and job in self.half else how
            self._note(job, how)
            if how == "silent":
                continue
            for number in range(2):
                resource = ResourceId("gpu", f"{job}/{number}")
                said = {"job": job, "class": "train", "team": "vision", "user": "ann"} | self.labels.get(
                    job, {}
                )
                said |= {"user": "bob"} if number and job in self.twice else {}
                works = how == "busy" or (how == "half" and number == 0)
                samples.append(Sample(at, resource, "gpu.utilization", 0.9 if works else 0.0, said))
                samples.append(Sample(at, resource, "gpu.model", "H100"))
        whole = not any(job in self.silent for job in self.running())
        self.buffer.add("gpu", Look(tuple(samples), frozenset({"gpu"} if whole else ())), slot_time=at)

    def _note(self, job: str, how: str) -> None:
        seen = self.seen[job]
        seen.last = how
        if how == "silent":
            return
        seen.minutes[self.real].add(how)
        seen.labels = {"class": "train"} | self.labels.get(job, {}) | {"twice": job in self.twice}
        if how != "idle":
            seen.well, seen.worked, seen.turned = self.real, self.real, None
        elif seen.turned is None and self._idle(job):
            # Only what was known to be well right before has turned.
            steady = seen.worked >= 0 and self.real - seen.worked == WINDOW
            seen.turned = self.real if steady else -1

    def start(self, *jobs: str) -> None:
        """Let jobs run."""
        super().start(*jobs)
        for job in jobs:
            self.seen[job] = Seen(well=self.real)

    def deliver(self, receiver: str, notice: Notice) -> Reply:
        """Remember who heard of which job when."""
        if self.paused:
            self.fault(f"told {receiver} while paused")
        if self.rules.mode == "audit":
            self.fault(f"told {receiver} in mode audit")
        reply = super().deliver(receiver, notice)
        if reply.delivered and notice.event == "firing":
            jobs = set(_NAMED.findall(notice.text))
            if re.search(r"^and \d+ more", notice.text, re.MULTILINE):
                jobs |= set(self.running())
            for job in jobs:
                self.heard[receiver, job].append(self.real)
        return reply

    def fault(self, text: str) -> None:
        """Something was done that may not be."""
        self.faults_found.append(f"minute {self.minutes} (real {self.real}): {text}")

    # ---- what may be done --------------------------------------------------------------

    def calling(self, order: Order) -> None:
        """A call that changes something: each rule that it breaks is a fault."""
        job, action = order.resource.id, order.action
        self.count[action] += 1
        if self.acting:
            self.begun.append((action, job))
        policy = order.by.removeprefix("policy ")
        steps = self.rules.policies.get(policy, ())
        for why in self._wrong(job, order, policy):
            self.fault(f"{action} {job}: {why}")
        if action in DESTRUCTIVE:
            step = next((at for at, item in enumerate(steps) if item.action == action), None)
            for why in self._destroys(job, order, steps, step):
                self.fault(f"{action} {job}: {why}")
        if action == "snapshot":
            self.kept_at[job] = self.real

    def _wrong(self, job: str, order: Order, policy: str) -> list[str]:
        seen = self.seen[job]
        assert self.state is not None, "a cycle runs"
        intents = [(entry.evidence or {}).get("order", {}).get("id") for entry in self.state.open_intents()]
        found = {
            "no intent was written": order.id not in intents,
            "paused": self.paused,
            "mode": self.rules.mode != "enforce",
            "protected": seen.labels.get("keep") not in (None, "false"),
            "exempt": (policy, job) in self.exempt,
            "class unknown": seen.labels.get("class") in (None, "", "unknown", UNREADABLE),
            "rejected": self.rejected.get((job, order.action), -1) > seen.well,
        }
        return [why for why, wrong in found.items() if wrong]

    def _destroys(self, job: str, order: Order, steps: tuple[Rule, ...], number: int | None) -> list[str]:
        seen = self.seen[job]
        if number is None:
            return ["no step of the policy says so"]
        rule = steps[number]
        found = {
            f"last seen {seen.last}": seen.last != "idle",
            "not idle for the whole window": not self._idle(job),
            "not of a class that may be ended": seen.labels.get("class") != "train",
            "its name is that of two jobs": bool(seen.labels.get("twice")),
            "kept": self.kept.get(job, -1) > self.minutes,
            "a storm": self._storm(),
            "its owner was not told": not self._told(job, steps[:number], rule),
            "not approved": rule.approve and not self._approved(job, order),
            "not saved in this episode": not rule.unsaved and not self._saved(job),
        }
        return [why for why, wrong in found.items() if wrong]

    def _idle(self, job: str) -> bool:
        minutes = self.seen[job].minutes
        return all(minutes.get(self.real - ago, set()) == {"idle"} for ago in range(WINDOW))

    def _told(self, job: str, before: tuple[Rule, ...], rule: Rule) -> bool:
        """Whether one who is to be told before has known for as long as lies between the two steps."""
        well = self.seen[job].well
        return any(
            alert.action == "alert"
            and any(well < at <= self.real - (rule.after - alert.after) for at in self.heard[alert.to, job])
            for alert in before
        )

    def _approved(self, job: str, order: Order) -> bool:
        at = self.approved.get((job, order.action, str(dict(order.parameters))), -1)
        return self.seen[job].well < at and self.real - at < DAY

    def _saved(self, job: str) -> bool:
        there = (self.folder / "saved" / job).exists()
        return there and self.kept_at.get(job, -1) > self.seen[job].well

    def _storm(self) -> bool:
        """Whether more than three that are idle now turned so within ten minutes of the last hour."""
        turns = sorted(
            at for job in self.running() if (at := self.seen[job].turned) is not None and at > self.real - 60
        )
        return any(sum(first <= at <= first + 10 for at in turns) > 3 for first in turns if first >= 0)

    # ---- a round, and the end ----------------------------------------------------------

    def round(self, cycle: Any) -> Any:
        """One step of a cycle; afterwards its calls are held against the caps."""
        self.begun, self.acting = [], True
        # A job that a label has named once counts for as long as its history is kept.
        population = sum(bool(seen.minutes) for seen in self.seen.values())
        try:
            return cycle.step()
        finally:
            self.acting = False
            jobs = {job for _, job in self.begun}
            ends = {job for action, job in self.begun if action in DESTRUCTIVE}
            caps = {
                "one resource, two steps": len(self.begun) > len(jobs),
                "actions per run": len(self.begun) > self.rules.actions,
                "GPUs per run": 2 * len(ends) > self.rules.gpus,
                "jobs per team": len(ends) > self.rules.per_team,
                "share": len(jobs) > int(self.rules.share * population + 1e-9),
            }
            for why, wrong in caps.items():
                if wrong:
                    self.fault(f"over the caps: {why}: {self.begun}")

    def ended_well(self) -> list[str]:
        """All faults, with what the files and the ledger say in the end."""
        assert self.state is not None, "a cycle ran"
        found = [*self.faults_found, *(f"done twice: {line}" for line in self.lines("again"))]
        return found + [f"ledger: {fault}" for fault in self.state.verify()]
