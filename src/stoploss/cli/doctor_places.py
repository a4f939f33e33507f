"""Where stoploss lives: its state, the disk below it, time zones and the clock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from stoploss.cli.doctor_side import Job, Scene
from stoploss.reports.checks import Check

if TYPE_CHECKING:
    from stoploss.engine.vitals import Vitals

AREA = "places"
GIB = 2**30
LEAST_FREE, LITTLE_FREE = 256 * 2**20, GIB
"""Bytes: with less nothing can be relied on to be written; with less a full disk is near."""
STEP = 0.5
"""Seconds by which a clock that only runs may differ from one that never goes back."""


def jobs(scene: Scene) -> Iterator[Job]:
    """The checks of places; the clock is looked at when all others are done."""
    yield Job(AREA, "state", lambda: state(scene))
    yield Job(AREA, "time zones", lambda: [zone(scene.policies.settings.timezone)])


def state(scene: Scene) -> Iterator[Check]:
    """Whether the daemon could keep its state, and how much room is left; nothing is created."""
    from stoploss.rules.environment import VariableError, expand

    try:
        url = expand(scene.policies.settings.state, scene.environ)
    except VariableError as error:
        yield Check(AREA, "state", "failed", f"settings.state: {error}")
        return
    scheme, separator, path = url.partition("sqlite:///")
    if scheme or not separator:
        yield _server(url)
        return
    path = os.path.abspath(path.partition("?")[0])
    yield _file(path)
    folder = os.path.dirname(path)
    if os.path.isdir(folder):
        yield _disk(folder)


def _file(path: str) -> Check:
    if os.path.exists(path):
        if os.path.isfile(path) and os.access(path, os.R_OK | os.W_OK):
            return Check(AREA, "state", "ok", f"{path} is there and can be written")
        return Check(AREA, "state", "failed", f"{path} cannot be written", "check its permissions")
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        return Check(AREA, "state", "failed", f"there is no folder {folder}", f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check(AREA, "state", "failed", f"{folder} cannot be written", "set settings: state: elsewhere")
    return Check(AREA, "state", "ok", f"{path} can be made")


def _disk(folder: str) -> Check:
    import shutil

    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return Check(AREA, "disk", "check", f"{folder}: {error.strerror}")
    told = f"{usage.free / GIB:,.1f} of {usage.total / GIB:,.1f} GiB are free below {folder}"
    fix = "make room, or keep less with settings.retention"
    if usage.free < LEAST_FREE:
        return Check(AREA, "disk", "failed", told, fix)
    return Check(
        AREA, "disk", "check" if usage.free < LITTLE_FREE else "ok", told, fix if usage.free < GIB else None
    )


def _server(url: str) -> Check:
    """Whether the server of the state answers; nothing is created."""
    from sqlalchemy import text

    from stoploss.engine.history.store_errors import StoreError, shown, told
    from stoploss.engine.state_database import open_database

    try:
        address, engine = open_database(url, read_only=True)
        try:
            with told(address), engine.connect() as connection:
                connection.execute(text("SELECT 1"))
        finally:
            engine.dispose()
    except StoreError as error:
        return Check(AREA, "state", "failed", str(error))
    return Check(AREA, "state", "ok", f"{shown(address)} answers")


def zone(name: str) -> Check:
    """Whether times can be told in the zone of the policies."""
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
        # One that no machine has by chance: without data only UTC may be known.
        zoneinfo.ZoneInfo("America/New_York")
    except (zoneinfo.ZoneInfoNotFoundError, OSError) as error:
        return Check(AREA, "time zones", "failed", str(error), "pip install tzdata")
    system = any(os.path.isdir(path) for path in zoneinfo.TZPATH)
    return Check(AREA, "time zones", "ok", f"{name}, data {'of the system' if system else 'of tzdata'}")


def clock(passed: float, steady: float, now: datetime, scene: Scene) -> Check:
    """Whether the clock was set while the other checks ran, or since the daemon ticked last.

    Args:
        passed: seconds that passed by the clock.
        steady: seconds that passed by one that never goes back.
        now: the present instant.
        scene: what is looked at.
    """
    fix = "let it be kept right slowly (chrony, systemd-timesyncd)"
    off = passed - steady
    if abs(off) > STEP:
        way = "forward" if off > 0 else "back"
        return Check(AREA, "clock", "check", f"it was set {way} by {abs(off):.1f} s meanwhile", fix)
    vitals = _vitals(scene)
    if vitals is not None and vitals.last_tick is not None and vitals.last_tick > now:
        ahead = (vitals.last_tick - now).total_seconds()
        told = f"the newest tick lies {ahead:.0f} s in the future: it was set back since"
        return Check(AREA, "clock", "check", told, "nothing is destroyed until it has caught up")
    return Check(AREA, "clock", "ok", f"{now:%Y-%m-%d %H:%M:%S} UTC, and it runs evenly")


def _vitals(scene: Scene) -> Vitals | None:
    path = scene.policies.settings.state.partition("sqlite:///")[2].partition("?")[0]
    if not path or not os.path.isfile(path):
        return None
    from stoploss.engine.history.store_errors import StoreError
    from stoploss.engine.vitals import load_vitals

    try:
        return load_vitals(scene.policies.settings.state)
    except StoreError:
        return None
