"""`stoploss doctor`: whether everything that stoploss needs is here, and what is missing."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from stoploss.cli import loading, sources
from stoploss.cli.exits import CLEAN, DEGRADED
from stoploss.reports.checks import Check

if TYPE_CHECKING:
    from stoploss.rules.policy import PolicySet

LOOK_LIMIT = 3.5
"""Seconds that the look may take, so that the whole command stays under five."""
ALL_LIMIT = 4.2
"""Seconds after which a check that has not answered has failed."""


@click.command()
@click.argument("policies", nargs=-1, type=click.Path(path_type=str))
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
def doctor(policies: tuple[str, ...], format_: str) -> int:
    """Check what stoploss needs here: collectors, POLICIES, actions, receivers, state, clock, libraries.

    Without POLICIES it reads ./policies.yaml, if that is there. Looks once, changes nothing and
    tells nobody. What the policies do not need is off, and no failure.

    Exit status: 0 good, 4 something failed.
    """
    from stoploss.cli import doctor_actions, doctor_cloud, doctor_places
    from stoploss.cli.doctor_side import CHECK_LIMIT, Scene, Side
    from stoploss.engine import clock
    from stoploss.reports import checks

    begun, since = clock.monotonic(), clock.now()
    loaded, told = _policy_check(policies)
    scene = Scene(loaded, os.environ, clock.monotonic, begun + CHECK_LIMIT)
    acting = Side((*doctor_actions.jobs(scene), *doctor_cloud.jobs(scene)))
    places = Side(doctor_places.jobs(scene))
    found = [*_collector_checks(loaded), told]
    found += _grouped(acting.results(clock.monotonic, begun + ALL_LIMIT))
    found += places.results(clock.monotonic, begun + ALL_LIMIT)
    passed, now = clock.monotonic() - begun, clock.now()
    found.append(doctor_places.clock((now - since).total_seconds(), passed, now, scene))
    found += _program_checks()
    if format_ == "json":
        click.echo(checks.as_json(found), nl=False)
    else:
        click.echo(checks.as_text(found), nl=False, color=sys.stdout.isatty())
    return DEGRADED if any(check.state == "failed" for check in found) else CLEAN


def _grouped(found: Iterable[Check]) -> list[Check]:
    """Checks of one area together, in the order in which the areas came."""
    told = list(found)
    areas = list(dict.fromkeys(check.area for check in told))
    return sorted(told, key=lambda check: areas.index(check.area))


def _policy_check(files: tuple[str, ...]) -> tuple[PolicySet, Check]:
    from stoploss.reports.diagnostics import counts
    from stoploss.rules.policy import PolicySet

    default = loading.DEFAULT_FILE
    if not files and not os.path.exists(default):
        fix = "write one: stoploss init"
        return PolicySet(()), Check("policies", default, "off", "there is none here", fix)
    chosen = files or (default,)
    result = loading.load_files(chosen)
    name, validate = ", ".join(chosen), f"stoploss validate {shlex.join(chosen)}"
    errors, warnings, _ = counts(result.diagnostics)
    if result.policies is None:
        wrong = "1 error" if errors == 1 else f"{errors} errors"
        return PolicySet(()), Check("policies", name, "failed", wrong, validate)
    number = len(result.policies.policies)
    told = f"{number} {'policy' if number == 1 else 'policies'}, mode {result.policies.settings.mode}"
    if warnings:
        told += f", {warnings} warning{'' if warnings == 1 else 's'}"
    state = "check" if warnings else "ok"
    return result.policies, Check("policies", name, state, told, validate if warnings else None)


def _collector_checks(policies: PolicySet) -> Iterator[Check]:
    from stoploss.reports.seen import collector_states

    look = sources.glance(policies, LOOK_LIMIT)
    states = collector_states(look.runs, look.unbuilt)
    for item in states:
        if item.state != "ok":
            state = "off" if item.state == "not here" else "failed"
            yield Check("collectors", item.name, state, item.reason or item.state)
            continue
        bad = item.bad or {}
        told = f"{item.readings:,} reading{'' if item.readings == 1 else 's'} in {item.seconds or 0:.2f} s"
        unread = tuple(f"not read: {', '.join(names)} ({reason})" for reason, names in bad.items())
        state = "failed" if _reads_nothing(item.readings, look, item.name) else "check" if bad else "ok"
        yield Check("collectors", item.name, state, told, details=unread)
    looked = {item.name for item in states}
    for name in look.known:
        if name not in looked:
            yield Check("collectors", name, "off", "looks only when it is named under collectors:")
    for note in look.notes:
        yield Check("collectors", "note", "check", note)


def _reads_nothing(readings: int, look: sources.Glance, name: str) -> bool:
    """Whether a look gave readings, and every one of them is bad."""
    from stoploss.engine.model import Bad

    for run in look.runs:
        if run.name == name and run.look is not None and readings:
            samples = [item for item in run.look.samples if item.resource.kind != "collector"]
            return all(isinstance(item.reading, Bad) for item in samples)
    return False


def _program_checks() -> Iterator[Check]:
    import platform

    from stoploss import __version__

    encoding = (sys.stdout.encoding or "unknown").lower()
    good = encoding.replace("-", "") == "utf8"
    fix = None if good else "set LANG=C.UTF-8, or PYTHONIOENCODING=utf-8"
    where = "a terminal" if sys.stdout.isatty() else "no terminal"
    yield Check("program", "output", "ok" if good else "check", f"{where}, {encoding}", fix)
    system = f"{platform.python_version()} on {platform.system()} {platform.release()} {platform.machine()}"
    yield Check("program", "Python", "ok", system)
    yield Check("program", "stoploss", "ok", __version__)
    yield _library_check()


def _library_check() -> Check:
    """The libraries that stoploss was installed with, as their own records name them."""
    import re
    from importlib import metadata

    try:
        required = metadata.requires("stoploss") or []
    except metadata.PackageNotFoundError:
        return Check("program", "libraries", "check", "stoploss is not installed", "pip install stoploss")
    found, missing = [], []
    for line in required:
        requirement, _, marker = line.partition(";")
        if "extra" in marker:
            continue
        name = re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0]
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            # A marker says that this Python may do without it.
            missing += [] if marker else [name]
    if missing:
        return Check(
            "program", "libraries", "failed", f"missing: {', '.join(missing)}", "pip install stoploss"
        )
    return Check("program", "libraries", "ok", ", ".join(found))
