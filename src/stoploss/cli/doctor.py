"""`stoploss doctor`: whether everything that stoploss needs is here, and what is missing."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from stoploss.cli import loading, sources
from stoploss.cli.exits import CLEAN, DEGRADED
from stoploss.reports.checks import Check

if TYPE_CHECKING:
    from stoploss.rules.policy import PolicySet

LOOK_LIMIT = 3.5
"""Seconds that the look may take, so that the whole command stays under five."""


@click.command()
@click.argument("policies", nargs=-1, type=click.Path(path_type=str))
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
def doctor(policies: tuple[str, ...], format_: str) -> int:
    """Check what stoploss needs here: collectors, POLICIES, state, time zones, terminal, libraries.

    Without POLICIES it reads ./policies.yaml, if that is there. Looks once and changes nothing.

    Exit status: 0 good, 4 something failed.
    """
    from stoploss.reports import checks

    loaded, told = _policy_check(policies)
    found = [*_collector_checks(loaded), told, *_place_checks(loaded), *_program_checks()]
    if format_ == "json":
        click.echo(checks.as_json(found), nl=False)
    else:
        click.echo(checks.as_text(found), nl=False, color=sys.stdout.isatty())
    return DEGRADED if any(check.state == "failed" for check in found) else CLEAN


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


def _place_checks(policies: PolicySet) -> Iterator[Check]:
    yield _state_check(policies.settings.state)
    yield _zone_check(policies.settings.timezone)


def _state_check(url: str) -> Check:
    """Whether the daemon could keep its state there; nothing is created."""
    scheme, separator, path = url.partition("sqlite:///")
    if scheme or not separator:
        return Check("places", "state", "off", "a database server; asked when the daemon starts")
    path = os.path.abspath(path.partition("?")[0])
    if os.path.exists(path):
        if os.path.isfile(path) and os.access(path, os.R_OK | os.W_OK):
            return Check("places", "state", "ok", f"{path} is there and can be written")
        return Check("places", "state", "failed", f"{path} cannot be written", "check its permissions")
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        return Check("places", "state", "failed", f"there is no folder {folder}", f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check(
            "places", "state", "failed", f"{folder} cannot be written", "set settings: state: elsewhere"
        )
    return Check("places", "state", "ok", f"{path} can be made")


def _zone_check(name: str) -> Check:
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
        # One that no machine has by chance: without data only UTC may be known.
        zoneinfo.ZoneInfo("America/New_York")
    except (zoneinfo.ZoneInfoNotFoundError, OSError) as error:
        return Check("places", "time zones", "failed", str(error), "pip install tzdata")
    system = any(os.path.isdir(path) for path in zoneinfo.TZPATH)
    return Check("places", "time zones", "ok", f"{name}, data {'of the system' if system else 'of tzdata'}")


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
