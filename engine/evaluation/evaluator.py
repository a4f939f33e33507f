"""The evaluator: policies of one resolution over frames, slot after slot.

`advance` takes any number of slots and continues from the carried state: one whole
recording, the same recording in pieces, and one tick after the other give the same truths
and the same episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stoploss.engine.evaluation import carried
from stoploss.engine.evaluation.base import Judgement
from stoploss.engine.evaluation.columns import Column, World
from stoploss.engine.evaluation.compile import judgement, longest_window
from stoploss.engine.evaluation.context import Context
from stoploss.engine.evaluation.implied import OPEN
from stoploss.engine.evaluation.kleene import FALSE, OUTSIDE, TRUE, UNKNOWN, Truths
from stoploss.engine.evaluation.lifecycle import STATES, Lifecycle, Transition
from stoploss.engine.history.frame import Frame
from stoploss.rules.catalogue import Catalogue, path
from stoploss.rules.conditions import typed
from stoploss.rules.policy import Policy

BLOCK_ELEMENTS = 150_000
"""Slots x series of one block: small enough for the cache, large enough to hide Python."""
BLOCK_SLOTS = 8
"""Slots of the smallest block: with very many series the work per block outweighs the cache."""
DAY = 86_400.0

Observer = Callable[[int, int, Truths, Truths], None]
"""Called per policy and block with (policy index, first slot, truths, states at the block's end)."""


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode of a policy on a row begins or ends (see `lifecycle.Transition`)."""

    policy: Policy
    column: Column
    event: str
    slot: int
    since: int


@dataclass(frozen=True, slots=True)
class RowStatus:
    """A row of a policy at the newest slot.

    `state` is inactive, pending, firing or holding; `truth` is that of the newest slot;
    `since` the first true slot of the stretch or episode, `fired` the slot it fired in, and
    `unknown_since` the first slot of a running unknown stretch. None where there is none.
    """

    policy: Policy
    column: Column
    state: str
    truth: int
    since: int | None
    fired: int | None
    unknown_since: int | None


class _Rule:
    """One policy compiled."""

    def __init__(self, context: Context, policy: Policy, lost_slots: int) -> None:
        self.policy = policy
        self.table = context.world.tables[policy.each]
        self.context = context
        self.when: Judgement | None = judgement(context, policy.when, policy.each) if policy.when else None
        self.where = judgement(context, policy.where.root, policy.each) if policy.where else None
        self.phase = self._phase_test() if policy.except_phase else None
        self.min_age = context.slots(policy.min_age) if policy.min_age else 0
        pending = context.slots(policy.for_seconds) if policy.for_seconds else 0
        hold = context.slots(policy.hold_seconds) if policy.hold_seconds else 0
        self.lifecycle = Lifecycle.empty(pending, hold, lost_slots)

    def _phase_test(self) -> Judgement | None:
        if path(self.policy.each, "job") is None:
            return None
        signal = self.context.catalogue["job.phase"]
        test = typed.TextTest("in", typed.TextSignal(signal, "job"), self.policy.except_phase, "job", "")
        return judgement(self.context, test, self.policy.each)

    def truths(self) -> Truths:
        """The truths of the block, OUTSIDE where the row is not there or not selected."""
        context, table = self.context, self.table
        shape = (context.last - context.first + 1, len(table))
        if self.when is None:
            truth = np.full(shape, TRUE, dtype=np.int8)
        else:
            truth = np.broadcast_to(self.when.evaluate(), shape)
        index = context.index()
        if self.phase is not None:
            truth = np.where(self.phase.evaluate() == TRUE, np.int8(FALSE), truth)
        if self.min_age and len(table) and table.start.max() + self.min_age - 1 > context.first:
            truth = np.where(index - table.start + 1 >= self.min_age, truth, np.int8(FALSE))
        if self.where is not None:
            selected = self.where.evaluate()
            if (selected != TRUE).any():
                truth = np.where(selected == UNKNOWN, np.int8(UNKNOWN), truth)
                truth = np.where(selected == FALSE, np.int8(OUTSIDE), truth)
        if len(table) and (table.start.max() > context.first or table.end.min() != OPEN):
            truth = np.where((index >= table.start) & (index < table.end), truth, np.int8(OUTSIDE))
        return truth


class Evaluator:
    """Policies of one resolution with their carried state."""

    def __init__(
        self,
        policies: Sequence[Policy],
        catalogue: Catalogue,
        *,
        resolution: float = 60.0,
        percent: int = 80,
        observer: Observer | None = None,
    ) -> None:
        self.resolution = resolution
        self.policies = tuple(policies)
        longest = max([resolution, *(longest_window(policy.when) for policy in policies if policy.when)])
        self._longest = -int(-(longest / resolution) // 1)
        self._lost = max(1, round(DAY / resolution))
        self._observer = observer
        self._context = Context(catalogue, resolution, self._longest + 1, percent)
        self._rules = [_Rule(self._context, policy, self._lost) for policy in self.policies]
        self._waiting: dict[str, dict[carried.RowKey, carried.RowState]] = {}
        self._carried: int | None = None
        self.last: int | None = None

    @property
    def longest(self) -> int:
        """Slots of the longest window."""
        return self._longest

    @property
    def world(self) -> World:
        """The columns and relations seen so far."""
        return self._context.world

    def advance(self, frame: Frame) -> list[Episode]:
        """Evaluate the slots of a frame, after those of the frames before.

        Slots between the newest one and the frame's first count as slots in which nobody
        looked. Returns the episodes that began or ended, in order of time.

        Raises:
            ValueError: the frame begins before the newest slot, or has another resolution.
        """
        return self._advance(frame, lifecycles=True)

    def warm(self, frame: Frame) -> None:
        """Fill the windows from stored samples without moving any lifecycle."""
        self._advance(frame, lifecycles=False)

    def _advance(self, frame: Frame, *, lifecycles: bool) -> list[Episode]:
        if frame.resolution != self.resolution:
            raise ValueError(f"a frame of {frame.resolution} s in an evaluator of {self.resolution} s")
        if self.last is not None and frame.first <= self.last:
            raise ValueError(f"slot {frame.first} was already evaluated")
        if not frame.slots:
            return []
        episodes: list[Episode] = []
        if self.last is not None and frame.first > self.last + 1:
            self._gap(frame, episodes, lifecycles)
        self._grow(frame)
        step = self._block_slots()
        for first in range(frame.first, frame.last + 1, step):
            last = min(frame.last, first + step - 1)
            self._block(first, last, frame.cut(first, last), episodes, lifecycles)
        return episodes

    def _gap(self, frame: Frame, episodes: list[Episode], lifecycles: bool) -> None:
        """Slots that nobody looked in; beyond the longest memory nothing changes any more."""
        assert self.last is not None
        gap_last = min(frame.first - 1, self.last + max(self._longest, self._lost) + 1)
        step = self._block_slots()
        for first in range(self.last + 1, gap_last + 1, step):
            self._block(first, min(gap_last, first + step - 1), None, episodes, lifecycles)

    def _block_slots(self) -> int:
        widest = max([1, *(series.columns for series in self._context.series.values())])
        return min(max(BLOCK_SLOTS, BLOCK_ELEMENTS // widest), self._context.capacity - self._longest)

    def _grow(self, frame: Frame) -> None:
        """Make room for new series and rows."""
        widest = max([1, *(len(plane.series) for plane in frame.planes.values())])
        wanted = self._longest + min(frame.slots, max(BLOCK_SLOTS, BLOCK_ELEMENTS // widest))
        if not wanted <= self._context.capacity <= 2 * wanted:
            self._context.resize(wanted, frame.first - 1)
        if self._context.update(frame):
            for rule in self._rules:
                rule.lifecycle.widen(len(rule.table), frame.first)
                self._attach(rule)
            # What found no row is of something that is not known any more.
            self._waiting = {}

    def _block(
        self, first: int, last: int, frame: Frame | None, episodes: list[Episode], lifecycles: bool
    ) -> None:
        self._context.push(first, last - first + 1, frame)
        found: list[Episode] = []
        for number, rule in enumerate(self._rules):
            truth = rule.truths()
            if not lifecycles:
                continue
            transitions = rule.lifecycle.advance(first, truth)
            found.extend(self._episode(rule, transition) for transition in transitions)
            if self._observer is not None:
                self._observer(number, first, truth, rule.lifecycle.states())
        episodes.extend(sorted(found, key=lambda episode: episode.slot))
        self.last = last

    def _episode(self, rule: _Rule, transition: Transition) -> Episode:
        column = rule.table.columns[transition.row]
        return Episode(rule.policy, column, transition.event, transition.slot, transition.since)

    def status(self) -> Iterator[RowStatus]:
        """Every row that is selected, or in an episode, at the newest slot."""
        for rule in self._rules:
            life = rule.lifecycle
            states = life.states()
            for row in np.flatnonzero((life.truth != OUTSIDE) | life.firing):
                since, fired = int(life.since[row]), int(life.fired[row])
                firing = bool(life.firing[row])
                unknown = int(life.known[row]) + 1 if life.truth[row] == UNKNOWN else None
                yield RowStatus(
                    rule.policy,
                    rule.table.columns[row],
                    STATES[states[row]],
                    int(life.truth[row]),
                    since if since >= 0 else None,
                    fired if firing else None,
                    unknown,
                )

    def rows(self, policy: int) -> list[Column]:
        """All rows of a policy, in the order of the observer's arrays."""
        return self._rules[policy].table.columns

    def carry(self) -> dict[str, Any]:
        """The state of all lifecycles as JSON-ready data, keyed so that other edits keep it."""
        states: dict[str, Mapping[carried.RowKey, carried.RowState]] = {}
        for rule in self._rules:
            there = {} if self.last is None else carried.rows(rule.lifecycle, rule.table.columns, self.last)
            states[rule.policy.key] = {**self._waiting.get(rule.policy.key, {}), **there}
        return carried.to_json(self.resolution, self.last, states)

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take over lifecycles carried earlier; a policy whose condition changed starts anew.

        Raises:
            ValueError: the data has another version or resolution.
        """
        self._waiting, self._carried = carried.from_json(data, self.resolution), data.get("slot")
        for rule in self._rules:
            self._attach(rule)

    def _attach(self, rule: _Rule) -> None:
        waiting = self._waiting.get(rule.policy.key)
        if waiting:
            carried.attach(rule.lifecycle, rule.table.columns, waiting, self._carried)
