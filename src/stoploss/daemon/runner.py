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
from stoploss.daemon.scheduler import count_missed, schedule, scheduler
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
    """

    url: str
    files: Sequence[str]
    load: Load
    environ: Mapping[str, str]
    serve: Callable[[Service], Callable[[], None]] | None = None
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
            if not self._taken(lock):
                return
            self._run(policies)
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
            if not told:
                LOG.info("standby: another stoploss runs on %s; this one takes over when it ends", self.url)
                systemd.tell("READY=1\nSTATUS=standby", self.environ)
                told = True
            if self._stop.wait(STANDBY_EVERY):
                return False
        return True

    def _run(self, policies: PolicySet) -> None:
        workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="step")
        service = Service(
            policies,
            self.url,
            Clocks(clock.now, clock.monotonic),
            environ=self.environ,
            making=replace(Making(), submit=workers.submit),
        )
        end = self.serve(service) if self.serve is not None else lambda: None
        keeper = scheduler()
        count_missed(keeper, service)
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
            self._loop(service, lambda: schedule(keeper, service, clock.now))
        finally:
            LOG.info("ending: what is being done is waited for, up to %.0f s", STOP_LIMIT)
            keeper.shutdown(wait=False)
            end()
            _ended(workers)
            service.stop()

    def _loop(self, service: Service, again: Callable[[], None]) -> None:
        """Once a second: reload where that is asked for, and tell who watches that this lives."""
        seen, looked = self._stamps(), clock.monotonic()
        beaten: float | None = None
        while not self._stop.wait(1.0):
            systemd.tell("WATCHDOG=1", self.environ)
            beaten = beat(service, self.environ, beaten)
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


def _ended(workers: ThreadPoolExecutor) -> None:
    """Wait for steps that run, for a while; what takes longer is an open intent at the next start."""
    done = threading.Event()

    def wait() -> None:
        workers.shutdown(wait=True, cancel_futures=True)
        done.set()

    threading.Thread(target=wait, daemon=True).start()
    if not done.wait(STOP_LIMIT):
        LOG.warning("a step takes longer; it is looked at when stoploss runs again")
