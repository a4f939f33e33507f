"""Runs the checks of `stoploss doctor` side by side, each with a limit of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stoploss.reports.checks import Check

if TYPE_CHECKING:
    from stoploss.rules.policy import PolicySet

CALL_LIMIT = 2.0
"""Seconds that one call to a program or a server may take."""
CHECK_LIMIT = 3.8
"""Seconds that one check may take."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What the checks look at.

    Attributes:
        policies: the policy set; empty where there is none.
        environ: variables.
        monotonic: seconds on a clock that never goes back.
        deadline: until when, on that clock, a check may go on by itself.
    """

    policies: PolicySet
    environ: Mapping[str, str]
    monotonic: Callable[[], float]
    deadline: float

    def options(self, collector: str) -> Mapping[str, Any] | None:
        """The options of a collector; None where the policies do not name it."""
        named = (item for item in self.policies.collectors if item.name == collector)
        return next((dict(item.options) for item in named), None)

    def steps(self, *actions: str) -> Iterator[Mapping[str, Any]]:
        """Options of the steps of these actions."""
        told = [step for policy in self.policies.policies for step in policy.steps]
        told += [step for item in self.policies.correlations for step in item.steps]
        yield from (step.options for step in told if step.action in actions)

    def uses(self, *actions: str) -> bool:
        """Whether a step is one of these actions."""
        return next(self.steps(*actions), None) is not None

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - self.monotonic()


@dataclass(frozen=True, slots=True)
class Job:
    """A check that is to be made: its area and name, for where it does not answer."""

    area: str
    name: str
    look: Callable[[], Iterable[Check]]


class Side:
    """Checks that have been begun, each in a thread that may be left behind."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        from stoploss.collectors.background import in_background

        self._begun: list[tuple[Job, Future[list[Check]]]] = [
            (job, in_background(_listing(job), f"doctor {job.name}")) for job in jobs
        ]

    def results(self, monotonic: Callable[[], float], deadline: float) -> Iterator[Check]:
        """What they found, in their order; who has not answered by the deadline has failed."""
        for job, future in self._begun:
            try:
                yield from future.result(timeout=max(deadline - monotonic(), 0.0))
            except TimeoutError:
                yield Check(job.area, job.name, "failed", "no answer in time")
            except Exception as error:
                # The text of an unforeseen error may hold an address.
                yield Check(job.area, job.name, "failed", f"cannot be checked ({type(error).__name__})")


def _listing(job: Job) -> Callable[[], list[Check]]:
    return lambda: list(job.look())


def ask(arguments: list[str], environ: Mapping[str, str], limit: float = CALL_LIMIT) -> tuple[int, str] | str:
    """Status and output of a program that only reads; in words, why there is none."""
    import os
    import shutil
    import subprocess

    program = shutil.which(arguments[0], path=environ.get("PATH", os.defpath))
    if program is None:
        return f"{arguments[0]} is not installed"
    try:
        done = subprocess.run(  # noqa: S603 - a list of fixed words
            [program, *arguments[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit,
            check=False,
            env=dict(environ),
        )
    except subprocess.TimeoutExpired:
        return f"{arguments[0]} does not answer within {limit:g} s"
    except OSError as error:
        return f"{arguments[0]} cannot be started ({error.strerror})"
    return done.returncode, done.stdout.decode("utf-8", "replace")
