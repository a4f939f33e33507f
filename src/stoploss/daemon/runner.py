"""Runs a service until it is asked to stop: takes the state's lock, keeps time, reloads, ends well."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stoploss.daemon import systemd
from stoploss.daemon.cycle import Making
from stoploss.daemon.heartbeat import beat
from stoploss.daemon.lock import StateLock
from stoploss.daemon.scheduler import schedule, scheduler, tell_broken
from stoploss.daemon.service import Clocks, Service
from stoploss.engine import clock
from stoploss.engine.history.store_errors import StoreError

if TYPE_CHECKING:
    from stoploss.rules.policy import PolicySet

LOG = logging.getLogger("stoploss.daemon")

STANDBY_EVERY = 5.0
"""Seconds between two tries to take over."""
FILES_EVERY = 5.0
"""Seconds between two looks at the policy files."""
STOP_LIMIT = 60.0
"""Seconds that a step may still take when the service ends; a step that takes longer is looked at later."""
LEAP = 2.0
"""Seconds by which the clock must be put for it to be told."""
WORKERS = 8
"""Steps that are carried out at the same time."""

Load = Callable[[], "PolicySet | None"]


@dataclass(slots=True)
class Runner:
    """One run of the daemon.

    Attributes:
        url: of the state.
        files: the policy files, to see when they change.
        load: reads them; None where they hold errors, which have been told.
        environ: variables.
        serve: begins to answer over HTTP, and returns what ends that; None for no answers.
        forward: begins to send what is seen to a centre, and returns what ends that; None for no centre.
    """

    url: str
    files: Sequence[str]
    load: Load
    environ: Mapping[str, str]
    serve: Callable[[Service], Callable[[], None]] | None = None
    forward: Callable[[Service], Callable[[], None]] | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _reload: threading.Event = field(default_factory=threading.Event)

    def run(self, policies: PolicySet) -> None:
        """Run until SIGTERM, SIGINT or `stop`.

        Raises:
            StoreError: the state cannot be used.
        """
        self._listen()
        lock = StateLock(self.url)
        try:
            while self._taken(lock) and not self._run(policies, lock):
                # Another one has it; by then the files may say something else.
                policies = self.load() or policies
        finally:
            lock.release()
            systemd.tell("STOPPING=1", self.environ)

    def stop(self) -> None:
        """Let it end."""
        self._stop.set()

    def _listen(self) -> None:
        """Signals are heard in the main thread only; elsewhere `stop` ends it."""
        with suppress(ValueError):
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self._stop.set())
            signal.signal(signal.SIGHUP, lambda *_: self._reload.set())

    def _taken(self, lock: StateLock) -> bool:
        """Wait until the state is free; whether it was taken."""
        told = False
        while not lock.take():
            systemd.tell("WATCHDOG=1", self.environ)
            if not told:
                LOG.info("standby: another stoploss runs on %s; this one takes over when it ends", self.url)
                systemd.tell("READY=1\nSTATUS=standby", self.environ)
                told = True
            if self._stop.wait(STANDBY_EVERY):
                return False
        return True

    def _run(self, policies: PolicySet, lock: StateLock) -> bool:
        """Run until it is asked to stop, or another one has the lock; whether it was asked."""
        workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="step")
        service = Service(
            policies,
            self.url,
            Clocks(clock.now, clock.monotonic),
            environ=self.environ,
            making=replace(Making(), submit=workers.submit),
            held=lock.kept,
        )
        end = self.serve(service) if self.serve is not None else lambda: None
        cut = self.forward(service) if self.forward is not None else lambda: None
        keeper = scheduler()
        tell_broken(keeper, service)
        service.fill()
        schedule(keeper, service, clock.now)
        keeper.start()
        systemd.tell("READY=1", self.environ)
        LOG.info(
            "running: %d policies, mode %s, state %s",
            len(policies.policies),
            policies.settings.mode,
            service.ledger.name,
        )
        try:
            return self._loop(service, lambda: schedule(keeper, service, clock.now), lock)
        finally:
            LOG.info("ending: what is being done is waited for, up to %.0f s", STOP_LIMIT)
            keeper.shutdown(wait=False)
            end()
            _ended(workers)
            cut()
            service.stop()

    def _loop(self, service: Service, again: Callable[[], None], lock: StateLock) -> bool:
        """Once a second: reload where that is asked for, and tell who watches that this lives.

        Returns whether it was asked to stop; else another one has the lock.
        """
        seen, looked, shift = self._stamps(), clock.monotonic(), _shift()
        beaten: float | None = None
        while not self._stop.wait(1.0):
            systemd.tell("WATCHDOG=1", self.environ)
            beaten = beat(service, self.environ, beaten)
            if not _still(lock):
                LOG.error("another stoploss has taken over the state; this one stands by")
                return False
            if abs(_shift() - shift) > LEAP:
                LOG.warning("the clock was put by %+.0f s", _shift() - shift)
                shift = _shift()
                # What is due next was reckoned on the clock as it was.
                again()
            if clock.monotonic() - looked >= FILES_EVERY:
                looked = clock.monotonic()
                stamps = self._stamps()
                if stamps != seen:
                    seen = stamps
                    self._reload.set()
            if self._reload.is_set():
                self._reload.clear()
                if self._reloaded(service):
                    again()
        return True

    def _stamps(self) -> tuple[tuple[int, int] | None, ...]:
        found: list[tuple[int, int] | None] = []
        for file in self.files:
            try:
                status = os.stat(file)
                found.append((status.st_mtime_ns, status.st_size))
            except OSError:
                found.append(None)
        return tuple(found)

    def _reloaded(self, service: Service) -> bool:
        """Take over the policy files as they are now; those that are broken change nothing."""
        systemd.tell("RELOADING=1", self.environ)
        policies = self.load()
        if policies is None:
            LOG.error("the policy files are not reloaded, as they hold errors; the old policies go on")
            service.vitals.problems["policies"] = "the policy files hold errors; the old policies go on"
            return False
        service.vitals.problems.pop("policies", None)
        try:
            told = service.reload(policies)
        except StoreError as error:
            LOG.error("the policy files are not reloaded: %s", error)  # noqa: TRY400 - told in words
            return False
        finally:
            systemd.tell("READY=1", self.environ)
        for line in told or ("nothing has changed",):
            LOG.info("reloaded: %s", line)
        return True


def _shift() -> float:
    """Seconds between the clock of the wall and one that is never put."""
    return clock.now().timestamp() - clock.monotonic()


def _still(lock: StateLock) -> bool:
    """Whether the lock is not another one's; a server that does not answer gives it to nobody."""
    try:
        return lock.kept()
    except (StoreError, OSError):
        return True


def _ended(workers: ThreadPoolExecutor) -> None:
    """Wait for steps that run, for a while; what takes longer is an open intent at the next start."""
    done = threading.Event()

    def wait() -> None:
        workers.shutdown(wait=True, cancel_futures=True)
        done.set()

    threading.Thread(target=wait, daemon=True).start()
    if not done.wait(STOP_LIMIT):
        LOG.warning("a step takes longer; it is looked at when stoploss runs again")
