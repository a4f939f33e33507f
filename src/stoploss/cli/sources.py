"""Where an audit's signals come from: recorded files, a daemon's samples, or a live look."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from stoploss.cli.exits import USAGE, UserError, read_option

if TYPE_CHECKING:
    from stoploss.collectors.runner import CollectorRun
    from stoploss.engine.audit import CollectorStatus
    from stoploss.engine.history.frame import Frame
    from stoploss.rules.policy import PolicySet


signals_option = click.option(
    "--signals",
    multiple=True,
    type=click.Path(path_type=str),
    metavar="PATH",
    help="Recorded signals: a file or a folder; may be given several times.",
)
"""The option of every command that reads recordings."""


@dataclass(frozen=True, slots=True)
class Source:
    """Frames by resolution, and what is to be said about where they come from.

    `kind` is recorded or live; `collectors` tells of looks and files that failed.
    """

    kind: str
    frames: Callable[[float], Frame]
    collectors: tuple[CollectorStatus, ...] = ()
    notes: tuple[str, ...] = field(default=())
    samples: int = 0


@contextmanager
def progress(label: str) -> Iterator[Callable[[float], None]]:
    """A progress bar on stderr while a person is watching, else nothing."""
    if not sys.stderr.isatty():
        yield lambda share: None
        return
    with click.progressbar(length=1000, label=label, file=sys.stderr) as bar:
        done = 0

        def advance(share: float) -> None:
            nonlocal done
            step = int(share * 1000) - done
            if step > 0:
                bar.update(step)
                done += step

        yield advance


def source_of(loaded: PolicySet, signals: tuple[str, ...], *, at: str | None, watch: str | None) -> Source:
    """Where the signals come from, as the options say.

    Raises:
        UserError: an option cannot be read, or does not go with another.
    """
    from stoploss.rules.units import parse_duration

    if signals:
        if watch:
            raise UserError("--watch looks at this machine; it does not go with --signals")
        when = None if at is None else instant(at, loaded.settings.timezone)
        return recorded(signals, loaded, when)
    if at is not None:
        raise UserError("--at needs --signals; a look at this machine is always now")
    return live(loaded, read_option("--watch", watch, parse_duration) if watch else None)


def instant(text: str, zone: str) -> float:
    """Seconds since the epoch of an ISO time (naive ones in `zone`) or of epoch seconds.

    Raises:
        UserError: it is no time.
    """
    from datetime import datetime
    from zoneinfo import ZoneInfo

    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds):
            raise UserError(
                f"--at {text!r} is not a time; write 2026-12-01T14:00:00Z or epoch seconds"
            ) from None
        return seconds
    return (when if when.tzinfo else when.replace(tzinfo=ZoneInfo(zone))).timestamp()


def recorded(paths: Sequence[str], policies: PolicySet, at: float | None) -> Source:
    """Signals from files, through the instant `at` (default: the newest reading).

    Raises:
        click.exceptions.Exit: nothing could be read; why has been told on stderr.
    """
    from stoploss.engine.audit import CollectorStatus
    from stoploss.engine.history.recorded import read_recorded
    from stoploss.reports.diagnostics_text import render
    from stoploss.rules.catalogue import catalogue
    from stoploss.rules.diagnostics import Severity

    zone = policies.settings.timezone
    with progress("reading") as advance:
        recording = read_recorded(paths, catalogue=catalogue(), timezone=zone, progress=advance)
    if recording.problems:
        click.echo(render(recording.problems), err=True, nl=False)
    if not recording.samples or recording.first_time is None:
        click.echo("no sample could be read; nothing was evaluated", err=True)
        raise click.exceptions.Exit(USAGE)
    if at is not None and at < recording.first_time:
        raise UserError(f"--at lies before the first sample ({_instant(recording.first_time)})")
    unread = tuple(
        CollectorStatus(item.position.file, ok=False, reason=item.message)
        for item in recording.problems
        if item.severity is Severity.ERROR
    )
    return Source(
        "recorded",
        lambda resolution: recording.frame(resolution, until=at),
        unread,
        recording.notes,
        recording.samples,
    )


def live(policies: PolicySet, watch: float | None) -> Source:
    """Signals of this machine: one look, or looks for `watch` seconds."""
    from stoploss.daemon.live import live_of
    from stoploss.engine import clock
    from stoploss.engine.audit import CollectorStatus

    made = live_of(policies)
    begun = clock.now().timestamp()
    statuses = {status.name: status for status in made.unbuilt}
    seen: dict[str, None] = {}

    def look(at: float) -> None:
        due = [name for name in made.collectors if _is_due(at, made.every[name], first=at == begun)]
        for run in made.look(at, clock.monotonic, due):
            statuses[run.name] = CollectorStatus(run.name, run.ok, run.reason, run.duration_s)
            seen.update(dict.fromkeys(run.look.notes if run.look else ()))
            if run.ok and run.not_here:
                seen[f"{run.name}: {run.reason}"] = None

    look(begun)
    if watch:
        _watch(look, begun, watch, min(made.every.values(), default=60.0))
    return Source("live", made.frame, tuple(statuses.values()), (*made.notes, *seen))


@dataclass(frozen=True, slots=True)
class Glance:
    """One look at this machine as it came back.

    `at` is its instant in seconds since the epoch; `unbuilt` tells of collectors that could not
    even start, and `known` names every collector of this installation.
    """

    at: float
    runs: tuple[CollectorRun, ...]
    unbuilt: tuple[CollectorStatus, ...]
    known: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether any collector could not look."""
        return bool(self.unbuilt) or not all(run.ok for run in self.runs)


def glance(policies: PolicySet, time_limit: float | None = None) -> Glance:
    """Look once with the collectors that an audit would use, for `time_limit` seconds at most."""
    from stoploss.collectors import registry
    from stoploss.daemon.live import TIME_LIMIT, live_of
    from stoploss.engine import clock

    made = live_of(policies)
    at = clock.now().timestamp()
    runs = made.look(at, clock.monotonic, time_limit=time_limit or TIME_LIMIT)
    said = [note for run in runs if run.look for note in run.look.notes]
    known = tuple(registry.load().entries)
    return Glance(at, tuple(runs), made.unbuilt, known, (*made.notes, *dict.fromkeys(said)))


def _is_due(at: float, every: float, *, first: bool) -> bool:
    return first or round(at) % max(1, round(every)) == 0


def _watch(look: Callable[[float], None], begun: float, watch: float, step: float) -> None:
    """Look again at every multiple of the shortest interval; Ctrl-C ends the watch, not the audit."""
    from stoploss.engine import clock
    from stoploss.rules.units import format_duration

    told = format_duration(watch).replace(" ", "")
    click.echo(f"watching for {told}; Ctrl-C ends it and evaluates what was seen", err=True)
    step = max(1.0, round(step))
    at = (begun // step + 1) * step
    try:
        with progress("watching") as advance:
            while at <= begun + watch:
                clock.sleep(max(0.0, at - clock.now().timestamp()))
                look(at)
                advance((at - begun) / watch)
                # A look that took long skips the instants that have passed meanwhile.
                at = max(at, clock.now().timestamp() // step * step) + step
    except KeyboardInterrupt:
        click.echo("watch stopped; evaluating what was seen", err=True)


def _instant(seconds: float) -> str:
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
