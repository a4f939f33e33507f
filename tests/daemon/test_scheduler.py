"""The keeper of time, stepped by hand on a frozen clock; and with real threads where something hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from apscheduler.executors.base import BaseExecutor, run_job
from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.base import BaseScheduler
from freezegun import freeze_time
from freezegun.api import FrozenDateTimeFactory

from stoploss.actions.registry import action_options
from stoploss.collectors.contract import CollectorError
from stoploss.collectors.registry import option_models
from stoploss.daemon import scheduler
from stoploss.daemon.live import Live
from stoploss.daemon.scheduler import GRACE, TICK, schedule, tell_broken
from stoploss.daemon.service import Clocks, Service
from stoploss.engine.history.store_errors import StoreError
from stoploss.engine.model import Look, ResourceId, Sample
from stoploss.rules.catalogue import catalogue
from stoploss.rules.loader import load
from stoploss.rules.policy import PolicySet

TEXT = """
version: 1
settings: {mode: audit, resolution: %s}
policies:
  - name: idle
    each: gpu
    when: ['max(gpu.utilization, 5m) < 5%%']
    then: [{alert: {}}]
"""


DEFAULTS = {"coalesce": True, "misfire_grace_time": GRACE, "max_instances": 1}


class Stepped(BaseScheduler):
    """A scheduler that does what is due when it is told to."""

    def wakeup(self) -> None:
        """Nobody sleeps."""

    def shutdown(self, wait: bool = True) -> None:
        """End it."""
        super().shutdown(wait)

    def step(self) -> None:
        """Run what is due now."""
        self._process_jobs()


def now() -> datetime:
    return datetime.now(UTC)


def policies(folder: Path, resolution: str = "1m") -> PolicySet:
    file = folder / "p.yaml"
    file.write_text(TEXT % resolution, "utf-8")
    read = load(
        [file], catalogue=catalogue(), collector_options=option_models(), action_options=action_options()
    )
    assert read.policies is not None, read.diagnostics
    return read.policies


class Noted(Service):
    """A service that notes when it looks and ticks, and takes as long as it is told to."""

    def __init__(self, folder: Path, every: dict[str, float], resolution: str = "1m") -> None:
        self.looks: list[tuple[str, datetime]] = []
        self.ticks: list[datetime] = []
        self.busy: list[Any] = []
        super().__init__(
            policies(folder, resolution),
            f"sqlite:///{folder}/state.db",
            Clocks(now, time.monotonic),
            environ={},
            live=lambda _: Live({}, every, (), ()),
        )

    def look(self, names: Any = None, at: float | None = None) -> None:
        assert at is not None
        self.looks += [(name, datetime.fromtimestamp(at, UTC)) for name in names]

    def tick(self) -> None:
        self.ticks.append(now())
        if self.busy:
            self.busy.pop(0)()


@pytest.fixture(autouse=True)
def _models(tmp_path: Path) -> None:
    """Models with dates in them must be there before the clock is frozen."""
    policies(tmp_path)


@pytest.fixture
def keeper() -> Iterator[Stepped]:
    made = Stepped(
        timezone=UTC,
        executors={"default": DebugExecutor(), TICK: DebugExecutor()},
        job_defaults=DEFAULTS,
    )
    yield made
    if made.running:
        made.shutdown()


def run(keeper: Stepped, frozen: FrozenDateTimeFactory, until: datetime, step: float = 1.0) -> None:
    """Let the time pass."""
    while now() < until:
        frozen.tick(timedelta(seconds=step))
        keeper.step()


def begin(keeper: Stepped, service: Noted) -> None:
    tell_broken(keeper, service)
    schedule(keeper, service, now)
    keeper.start()


@pytest.mark.parametrize(
    "start",
    ["2026-10-25T00:57:13", "2027-03-28T00:57:13", "2026-12-31T23:57:13"],
    ids=["clocks-go-back", "clocks-go-forward", "new-year"],
)
def test_looks_and_ticks_come_at_multiples(tmp_path: Path, keeper: Stepped, start: str) -> None:
    """Each interval has its look, each slot its tick 10 s after its end, whatever the wall says."""
    with freeze_time(start) as frozen:
        service = Noted(tmp_path, {"fast": 15.0, "slow": 300.0})
        begin(keeper, service)
        first = now()
        run(keeper, frozen, first + timedelta(minutes=10))
    fast = [at for name, at in service.looks if name == "fast"]
    slow = [at for name, at in service.looks if name == "slow"]

    assert len(fast) == 40
    assert all(at.timestamp() % 15 == 0 for at in fast)
    assert [at.timestamp() % 300 for at in slow] == [0.0, 0.0]
    assert len(set(fast)) == 40
    assert len(service.ticks) == 10
    assert all(at.timestamp() % 60 == 10 for at in service.ticks)
    assert service.vitals.missed == 0


class Slow(BaseExecutor):
    """An executor whose first job takes so many seconds of the frozen clock, and the others none."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.ends = seconds, list[tuple[datetime, str, Any]]()

    def _do_submit_job(self, job: Any, run_times: Any) -> None:
        events = run_job(job, job._jobstore_alias, run_times, self._logger.name)
        self.ends.append((now() + timedelta(seconds=self.seconds), job.id, events))
        self.seconds = 0.0

    def end(self) -> None:
        """Let go of what has ended by now."""
        over = [item for item in self.ends if item[0] <= now()]
        self.ends = [item for item in self.ends if item not in over]
        for _, name, events in over:
            self._run_job_success(name, events)


def test_P_B14_an_overrun_is_one_tick_and_two_that_are_counted(tmp_path: Path) -> None:
    """While a tick takes 150 s two instants pass: they are counted as missed, and then ticks come as ever."""
    slow = Slow(150.0)
    keeper = Stepped(timezone=UTC, executors={"default": DebugExecutor(), TICK: slow}, job_defaults=DEFAULTS)
    with freeze_time("2026-12-01T14:00:00") as frozen:
        service = Noted(tmp_path, {})
        begin(keeper, service)
        while now() < datetime(2026, 12, 1, 14, 6, tzinfo=UTC):
            frozen.tick(timedelta(seconds=1))
            slow.end()
            keeper.step()
        keeper.shutdown()

    assert [f"{at:%M:%S}" for at in service.ticks] == ["00:10", "03:10", "04:10", "05:10"]
    assert service.vitals.missed == 2


def test_P_B5_what_was_missed_for_an_hour_is_made_up_for_once(tmp_path: Path, keeper: Stepped) -> None:
    """Asleep from 19:00 to 20:04: one look and one tick come at once, filed under the newest multiple."""
    with freeze_time("2026-12-01T18:59:00") as frozen:
        service = Noted(tmp_path, {"gpu": 60.0})
        begin(keeper, service)
        run(keeper, frozen, datetime(2026, 12, 1, 19, 0, 30, tzinfo=UTC))
        before = len(service.ticks), len(service.looks)
        frozen.move_to("2026-12-01T20:04:30")
        keeper.step()
        after = len(service.ticks), len(service.looks)

    assert (after[0] - before[0], after[1] - before[1]) == (1, 1)
    assert service.looks[-1][1] == datetime(2026, 12, 1, 20, 4, tzinfo=UTC)
    assert service.vitals.missed == 63


def test_a_clock_that_is_put_back_stops_nothing(tmp_path: Path, keeper: Stepped) -> None:
    """After the clock is put back an hour, and what is due is reckoned anew, looks and ticks go on."""
    with freeze_time("2026-12-01T14:00:00") as frozen:
        service = Noted(tmp_path, {"gpu": 60.0})
        begin(keeper, service)
        run(keeper, frozen, datetime(2026, 12, 1, 14, 5, tzinfo=UTC))
        frozen.move_to("2026-12-01T13:05:00")
        schedule(keeper, service, now)
        before = len(service.ticks), len(service.looks)
        run(keeper, frozen, datetime(2026, 12, 1, 13, 10, 30, tzinfo=UTC))

    assert len(service.ticks) - before[0] == 6
    assert len(service.looks) - before[1] == 5
    assert service.vitals.missed == 0


def test_what_breaks_off_is_told_until_it_goes_on(tmp_path: Path, keeper: Stepped) -> None:
    """An error in a tick is a problem of the daemon's vitals, and gone with the next tick."""

    def broken() -> None:
        raise RuntimeError("password=hunter2")

    with freeze_time("2026-12-01T14:00:00") as frozen:
        service = Noted(tmp_path, {})
        service.busy = [broken]
        begin(keeper, service)
        run(keeper, frozen, datetime(2026, 12, 1, 14, 0, 30, tzinfo=UTC))
        told = dict(service.vitals.problems)
        run(keeper, frozen, datetime(2026, 12, 1, 14, 1, 30, tzinfo=UTC))

    assert told == {TICK: "broke off (RuntimeError)"}
    assert service.vitals.problems == {}


class Hanging:
    """A collector that never comes back."""

    def __init__(self) -> None:
        self.end = threading.Event()

    def look(self, at: float) -> Look:
        self.end.wait(30)
        return Look(())


class Quick:
    """A collector that answers at once, or fails."""

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.seen = fails, list[float]()

    def look(self, at: float) -> Look:
        self.seen.append(at)
        if self.fails:
            raise CollectorError("account 42 is locked")
        return Look((Sample(at, ResourceId("gpu", "0"), "gpu.utilization", 0.5),), frozenset({"gpu"}))


@pytest.mark.slow
def test_a_collector_that_hangs_delays_nothing(tmp_path: Path) -> None:
    """P-D27: others look every second and ticks come, and which one does not answer is told."""
    hanging, quick, failing = Hanging(), Quick(), Quick(fails=True)
    collectors = {"hanging": hanging, "quick": quick, "failing": failing}
    service = Service(
        policies(tmp_path, "1s"),
        f"sqlite:///{tmp_path}/state.db",
        Clocks(now, time.monotonic),
        environ={},
        live=lambda _: Live(collectors, dict.fromkeys(collectors, 1.0), (), ()),  # type: ignore[arg-type]
    )
    keeper = scheduler.scheduler()
    tell_broken(keeper, service)
    schedule(keeper, service, now)
    keeper.start()
    try:
        # A look may take 10 s, and the slot of a tick is sealed 10 s after its end.
        time.sleep(24)
    finally:
        keeper.shutdown(wait=False)
        hanging.end.set()
        time.sleep(1.5)
        service.stop()

    assert len(quick.seen) >= 22
    assert service.vitals.ticks >= 20
    assert service.vitals.missed == 0
    assert service.vitals.collectors["quick"].ok
    assert service.vitals.collectors["failing"].reason == "account 42 is locked"
    assert "hanging since" in (service.vitals.collectors["hanging"].reason or "")


def test_another_resolution_is_refused_while_it_runs(tmp_path: Path) -> None:
    """A reload cannot change settings.resolution, as the state holds slots of the old one."""
    service = Noted(tmp_path, {})
    before = service.policies

    with pytest.raises(StoreError, match=r"settings\.resolution was 60 s and cannot become 300 s"):
        service.reload(policies(tmp_path, "5m"))
    assert service.policies is before
    assert service.history.frame(60.0).resolution == 60.0
