"""stoploss while it runs: looks and ticks, called by whoever keeps the time."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from stoploss.daemon.carried import load_carry, save_carry
from stoploss.daemon.cycle import Making, cycle_of
from stoploss.daemon.history import History, Needs, kept_of
from stoploss.daemon.live import live_of
from stoploss.engine.history.looks import Kept
from stoploss.engine.history.store_errors import StoreError, file_of, parsed
from stoploss.engine.ledger import Ledger
from stoploss.engine.vitals import Seen, Vitals, save_vitals
from stoploss.means import FOLDER

if TYPE_CHECKING:
    from stoploss.daemon.live import Live
    from stoploss.engine.audit import Audit
    from stoploss.engine.execution.cycle import Cycle, Cycled
    from stoploss.engine.execution.executor import Round
    from stoploss.rules.policy import PolicySet

LOG = logging.getLogger("stoploss.daemon")

CARRY_EVERY = timedelta(minutes=30)
"""How much is evaluated again at most after a restart."""
RETENTION = timedelta(days=30)
"""How long slots are kept where the policies do not say."""


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
    ) -> None:
        """Take up the work where it was left.

        Args:
            policies: what is evaluated.
            url: of the state.
            clocks: the time.
            environ: variables, for addresses and programs.
            live: makes the collectors of a policy set.
            making: how actions and receivers are made; for real by default.

        Raises:
            StoreError: the state cannot be used.
        """
        self.url, self._clocks, self._environ = url, clocks, environ
        self._making = making or Making()
        self.vitals = Vitals(clocks.now())
        self._ticking = threading.Lock()
        self._live_of = live
        self.policies, self.live = policies, live(policies)
        self.ledger = Ledger(url, environ=environ)
        self.history = History(url, Needs.of(policies), self.live.every)
        self._carry = load_carry(url)
        self._carried_at = clocks.now()
        self._latest: Cycled | None = None
        self.cycle = self._cycle()
        self._reconciled = False
        self._rounds: deque[Round] = deque(maxlen=100)

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
        with self._problem("samples"):
            self.history.take(kept_of(runs))

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
        self.history.look(kept_of(self.live.runs(when, self._clocks.monotonic)))

    # ---- ticks -------------------------------------------------------------------------

    def tick(self) -> Cycled | None:
        """Seal what has ended, evaluate, tell and act; None where that could not be done."""
        with self._ticking:
            begun = self._clocks.monotonic()
            cycled: Cycled | None = None
            with self._problem("state"):
                self._reconcile()
                self.history.seal(self._clocks.now().timestamp())
                cycled = self.cycle.step()
                self._latest = cycled
                self._keep(cycled)
                self.vitals.last_tick = self._clocks.now()
                self.vitals.ticks += 1
                self.vitals.findings = len(cycled.result.firing)
                self.vitals.unknown = len(cycled.result.unknown)
            self.vitals.tick_seconds = self._clocks.monotonic() - begun
            self.vitals.interval = self.policies.settings.resolution
            with self._problem("vitals"):
                save_vitals(self.url, self.vitals)
            if cycled is not None:
                self._note(cycled)
            return cycled

    def _reconcile(self) -> None:
        if not self._reconciled:
            for entry in self.cycle.reconcile():
                LOG.warning("after an interruption: %s %s: %s", entry.action, entry.resource, entry.why)
            self._reconciled = True

    def _keep(self, cycled: Cycled) -> None:
        """Carry the newest end on now and then, and forget what is older than it has to be."""
        now = self._clocks.now()
        if self._carry is not None and now - self._carried_at < CARRY_EVERY:
            return
        carry = cycled.result.carried()
        if not carry.slots:
            return
        save_carry(self.url, carry)
        self._carry, self._carried_at = carry, now
        seconds = self.policies.settings.retention or RETENTION.total_seconds()
        self.history.prune(now.timestamp() - seconds)
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
            return told

    def stop(self) -> None:
        """End well: what is being done is waited for, and all is on disk afterwards."""
        with self._ticking:
            if self._latest is not None:
                with self._problem("state"):
                    save_carry(self.url, self._latest.result.carried())
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
