"""stoploss while it runs: looks and ticks, called by whoever keeps the time."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from stoploss.daemon.again import again
from stoploss.daemon.carried import Damaged, load_carry, save_carry
from stoploss.daemon.cycle import Making, cycle_of
from stoploss.daemon.history import History, Needs, kept_of
from stoploss.daemon.live import live_of
from stoploss.daemon.nodes import Nodes
from stoploss.daemon.trouble import Trouble
from stoploss.engine.costs.past import RETENTION, Past
from stoploss.engine.history.looks import Kept
from stoploss.engine.history.store_errors import StoreError, file_of, parsed
from stoploss.engine.ledger import Ledger
from stoploss.engine.vitals import Seen, Vitals, load_vitals, save_vitals
from stoploss.means import FOLDER
from stoploss.rules.units import format_duration

if TYPE_CHECKING:
    from stoploss.daemon.live import Live
    from stoploss.engine.audit import Audit
    from stoploss.engine.carry import Carry
    from stoploss.engine.execution.cycle import Cycle, Cycled
    from stoploss.engine.execution.executor import Round
    from stoploss.rules.policy import PolicySet

LOG = logging.getLogger("stoploss.daemon")

CARRY_EVERY = timedelta(minutes=30)
"""How much is evaluated again at most: with the first slot of each such stretch all until then is settled.

When the service was started, stopped or reloaded has no part in it, and changes nothing that comes out.
"""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The time: the present instant, and seconds on a clock that never goes back."""

    now: Callable[[], datetime]
    monotonic: Callable[[], float]


class Service:
    """One policy set over one state. `look` and `tick` may be called from different threads."""

    def __init__(
        self,
        policies: PolicySet,
        url: str,
        clocks: Clocks,
        *,
        environ: Mapping[str, str],
        live: Callable[[PolicySet], Live] = live_of,
        making: Making | None = None,
        held: Callable[[], bool] = lambda: True,
    ) -> None:
        """Take up the work where it was left.

        Args:
            policies: what is evaluated.
            url: of the state.
            clocks: the time.
            environ: variables, for addresses and programs.
            live: makes the collectors of a policy set.
            making: how actions and receivers are made; for real by default.
            held: whether the right to write to the state is still held.

        Raises:
            StoreError: the state cannot be used.
        """
        self._held, self._trouble = held, Trouble()
        self.ticked: tuple[float, float] | None = None
        self.url, self._clocks, self._environ = url, clocks, environ
        self._making = making or Making()
        self.vitals = Vitals(clocks.now())
        self._ticking = threading.Lock()
        self._live_of = live
        self.policies, self.live = policies, live(policies)
        self.ledger = Ledger(url, environ=environ)
        self.vitals.sealed = self._sealed_before()
        self.history = History(url, Needs.of(policies), self.live.every, self.vitals.sealed)
        self.nodes = Nodes(self.history)
        self.outlet: Callable[[Sequence[Kept]], None] | None = None
        self._carry = self._carried()
        self._note_unbuilt()
        self._latest: Cycled | None = None
        self.cycle = self._cycle()
        self._reconciled = False
        self._rounds: deque[Round] = deque(maxlen=100)

    def _sealed_before(self) -> dict[float, int]:
        """Resolution -> the newest slot that the service before this one sealed, where that is known.

        The time of its last tick does not say it: the clock may have been put back before that.
        """
        try:
            before = load_vitals(self.url)
        except StoreError:
            return {}
        return {} if before is None else before.sealed

    def _carried(self) -> Carry | None:
        """What was carried on; where that is damaged, what the stored slots come to."""
        try:
            return load_carry(self.url)
        except Damaged as error:
            LOG.error("%s; the stored slots are evaluated again", error)  # noqa: TRY400 - told in words
            carry, since = again(self.policies, self.history)
            begun = "there are none" if since is None else f"they begin {since:%Y-%m-%d %H:%M %Z}"
            words = f"{error}; the stored slots were evaluated again ({begun})"
            words += ": what began or was used before them is not known any more"
            LOG.warning("%s", words)
            self.vitals.problems["carry"] = words
            return carry

    def _note_unbuilt(self) -> None:
        for status in self.live.unbuilt:
            LOG.error("collector %s does not look: %s", status.name, status.reason)
            self.vitals.problems[f"collector {status.name}"] = f"it does not look: {status.reason}"

    def _cycle(self) -> Cycle:
        making = replace(
            self._making,
            frames=self.history.frame,
            look=self._look_now,
            carry=lambda: self._carry,
            now=self._clocks.now,
        )
        return cycle_of(
            self.policies, self.ledger, self.live, folder=self.folder, environ=self._environ, making=making
        )

    @property
    def folder(self) -> str:
        """Where actions keep what they move away: beside the state."""
        file = file_of(parsed(self.url))
        return os.path.join(os.path.dirname(os.path.abspath(file)) if file else os.getcwd(), FOLDER)

    @property
    def latest(self) -> Audit | None:
        """What the newest tick came to; None before the first."""
        return None if self._latest is None else self._latest.result

    @property
    def past(self) -> Past:
        """What was used in slots that are not held any more."""
        return Past() if self._carry is None else self._carry.past

    # ---- looks -------------------------------------------------------------------------

    def look(self, names: Collection[str] | None = None, at: float | None = None) -> None:
        """Let collectors look, and keep what they saw.

        Args:
            names: of those that look; all by default.
            at: the scheduled instant in seconds since the epoch; now by default.
        """
        when = self._clocks.now().timestamp() if at is None else at
        runs = self.live.runs(when, self._clocks.monotonic, names)
        for run in runs:
            self.vitals.collectors[run.name] = Seen(run.ok, run.reason, when, run.duration_s)
        kept = kept_of(runs)
        with self._problem("samples"):
            self.history.take(kept)
        self._pass_on(kept)

    def _pass_on(self, kept: Sequence[Kept]) -> None:
        """Give what was seen to whoever forwards it; that it cannot be kept there stops nothing here."""
        with self._problem("spool"):
            if self.outlet is not None:
                self.outlet(kept)

    def fill(self) -> None:
        """Take from collectors that know the past what this state does not hold; for full windows at once."""
        now = self._clocks.now().timestamp()
        back = max(Needs.of(self.policies).back.values())
        for name, collector in self.live.collectors.items():
            past = getattr(collector, "history", None)
            if past is None:
                continue
            every = self.live.every[name]
            last = self.history.last()
            begin = max(now - back, last if last is not None else 0.0)
            try:
                for look in past(begin // every * every + every, now // every * every - every, every):
                    at = look.samples[0].time if look.samples else None
                    if at is not None:
                        self.history.take([Kept(name, at, look)])
            except Exception as error:
                LOG.warning("%s: its past cannot be read (%s)", name, type(error).__name__)

    def _look_now(self) -> None:
        """A look by which something may be destroyed: at what this machine can see at once."""
        when = self._clocks.now().timestamp()
        kept = kept_of(self.live.runs(when, self._clocks.monotonic))
        self.history.look(kept)
        self._pass_on(kept)

    # ---- ticks -------------------------------------------------------------------------

    def tick(self) -> Cycled | None:
        """Seal what has ended, evaluate, tell and act; None where that could not be done."""
        with self._ticking:
            begun = self._clocks.monotonic()
            cycled: Cycled | None = None
            with self._problem("state"):
                if not self._held():
                    raise StoreError("the right to write to the state was lost; nothing is decided")
                self._reconcile()
                self.vitals.sealed = self.history.seal(self._clocks.now().timestamp())
                self._say("clock", self._ahead())
                cycled = self.cycle.step()
                self._latest = cycled
                self._keep(cycled)
                self.vitals.last_tick = self._clocks.now()
                self.vitals.ticks += 1
                self.vitals.findings = len(cycled.result.firing)
                self.vitals.unknown = len(cycled.result.unknown)
            self.vitals.tick_seconds = self._clocks.monotonic() - begun
            self._say("nodes", self.nodes.silent(self._clocks.now()))
            self.vitals.interval = self.policies.settings.resolution
            with self._problem("vitals"):
                save_vitals(self.url, self.vitals)
            if cycled is not None:
                self._note(cycled)
            self._trouble.look(self, self._clocks.now(), self._clocks.monotonic())
            return cycled

    def _ahead(self) -> str:
        """What is said where the clock was put back before slots that are there already."""
        last, now = self.history.last(), self._clocks.now()
        if last is None or last - now.timestamp() <= self.policies.settings.resolution:
            return ""
        ahead = format_duration(round(last - now.timestamp()))
        return f"it was put back: slots of the next {ahead} are there already; nothing is decided until then"

    def _reconcile(self) -> None:
        if not self._reconciled:
            for entry in self.cycle.reconcile():
                LOG.warning("after an interruption: %s %s: %s", entry.action, entry.resource, entry.why)
            self._reconciled = True

    def _keep(self, cycled: Cycled) -> None:
        """Carry the newest end on now and then, and forget what is older than it has to be."""
        if self._carry is not None:
            ends = [resolution * slot for resolution, slot in self._carry.slots.items()]
            if ends and _stretch(max(ends)) == _stretch(cycled.result.at.timestamp()):
                return
        carry = cycled.result.carried()
        if not carry.slots:
            return
        save_carry(self.url, carry)
        self._carry = carry
        # What is settled is not evaluated again, so that what came late may take its place.
        self.history.fill(carry.slots)
        seconds = self.policies.settings.retention or RETENTION
        self.history.prune(self._clocks.now().timestamp() - seconds)
        self._empty_trash()

    def _empty_trash(self) -> None:
        from stoploss.actions.targets.trash import empty_all
        from stoploss.means import means_of

        for path in empty_all(means_of(self.policies, folder=self.folder, environ=self._environ)):
            LOG.info("deleted from the trash: %s", path)

    def _note(self, cycled: Cycled) -> None:
        """Log what was done since the last tick; a step may take longer than a tick."""
        self._rounds.append(cycled.round)
        for round_ in self._rounds:
            for level, word, items in (
                (logging.INFO, "done", round_.done),
                (logging.ERROR, "failed", round_.failed),
                (logging.INFO, "skipped", round_.skipped),
            ):
                while items:
                    decision, words = items.pop(0)
                    LOG.log(level, "%s: %s %s: %s", word, decision.action, decision.resource, words)
        for why in cycled.problems:
            LOG.error("not delivered: %s", why)
        self._say("receivers", "; ".join(cycled.problems))

    # ---- the rest ----------------------------------------------------------------------

    def reload(self, policies: PolicySet) -> tuple[str, ...]:
        """Go on with another policy set; returns what has changed, in words. The state stays.

        Raises:
            StoreError: the state cannot be used with it; the old set goes on then.
        """
        from stoploss.daemon.changes import changes

        with self._ticking:
            told = changes(self.policies, policies)
            live = self._live_of(policies)
            self.history.adjust(Needs.of(policies), live.every)
            old = self.policies, self.live
            self.policies, self.live = policies, live
            try:
                self.cycle = self._cycle()
            except StoreError:
                self.policies, self.live = old
                raise
            for status in old[1].unbuilt:
                self.vitals.problems.pop(f"collector {status.name}", None)
            self._note_unbuilt()
            return told

    def stop(self) -> None:
        """End well: what is being done is waited for, and all is on disk afterwards."""
        with self._ticking:
            self.history.close()
            self.ledger.close()

    def _say(self, about: str, why: str) -> None:
        if why:
            self.vitals.problems[about] = why
        else:
            self.vitals.problems.pop(about, None)

    def _problem(self, about: str) -> _Problem:
        return _Problem(self, about)


class _Problem:
    """Notes what is wrong with the state, loudly, and goes on: nothing is lost that is in memory."""

    def __init__(self, service: Service, about: str) -> None:
        self._service, self._about = service, about

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            self._service.vitals.problems.pop(self._about, None)
            return False
        if not isinstance(error, StoreError):
            return False
        LOG.error("%s", error)
        self._service.vitals.problems[self._about] = str(error)
        return True


def _stretch(end: float) -> int:
    """The stretch of time in which a slot ends (seconds since the epoch)."""
    return -int(-end // CARRY_EVERY.total_seconds())
