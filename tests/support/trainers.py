"""A cycle that looks and acts for real, and runs of the example trainer for it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import psutil

from stoploss.actions.registry import action_options
from stoploss.collectors.registry import option_models
from stoploss.daemon.cycle import cycle_of
from stoploss.daemon.live import live_of
from stoploss.engine import clock
from stoploss.engine.execution.cycle import Cycle
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.rules.catalogue import catalogue
from stoploss.rules.loader import load
from support.snapshots import ROOT, TRAINER

COMMAND = (sys.executable, str(TRAINER))


class World:
    """A policy set, its state, and what runs in `folder`.

    Runs log to `runs/JOB/run.jsonl` and save to `kept/JOB`; what stoploss keeps is in `own`.
    """

    def __init__(
        self, folder: Path, text: str, collectors: Collection[str], environ: Mapping[str, str]
    ) -> None:
        """Read a policy set.

        Args:
            folder: of its own.
            text: of the policy file, `{folder}` in it is the folder.
            collectors: those that look; others would look at the machine.
            environ: what actions are given.
        """
        self.folder = folder
        (folder / "kept").mkdir(exist_ok=True)
        file = folder / "policies.yaml"
        file.write_text(text.replace("{folder}", str(folder)), "utf-8")
        read = load(
            [file], catalogue=catalogue(), collector_options=option_models(), action_options=action_options()
        )
        assert read.policies is not None, read.diagnostics
        self.policies = read.policies
        self.ledger = Ledger(f"sqlite:///{folder}/state.db", environ={})
        self.live = live_of(read.policies)
        self.live.collectors = {name: self.live.collectors[name] for name in collectors}
        self.cycle: Cycle = cycle_of(
            read.policies, self.ledger, self.live, folder=str(folder / "own"), environ=environ
        )

    def log(self, job: str) -> Path:
        """The log of a run."""
        return self.folder / "runs" / job / "run.jsonl"

    def kept(self, job: str) -> Path:
        """Where a run saves."""
        return self.folder / "kept" / job

    def steps(self, job: str) -> list[tuple[int, float]]:
        """Step and loss of every line of a run's log."""
        return [
            (item["step"], item["loss"]) for item in map(json.loads, self.log(job).read_text().splitlines())
        ]

    def next_instant(self) -> float:
        """Wait for the next whole second; returns it."""
        at = float(int(time.time()) + 1)
        time.sleep(max(0.0, at - time.time()))
        return at

    def until(self, met: Callable[[], object], seconds: float = 25.0) -> None:
        """Look and step once a second until something is so."""
        limit = time.monotonic() + seconds
        while not met():
            assert time.monotonic() < limit, self.told()
            self.live.look(self.next_instant(), clock.monotonic)
            self.cycle.step()

    def pass_seconds(self, seconds: int) -> None:
        """Look and step once a second for a while."""
        left = iter(range(seconds))
        self.until(lambda: next(left, None) is None, seconds + 25.0)

    def told(self) -> list[str]:
        """The lines of the ledger, short."""
        return [
            f"{e.kind} {e.action} {e.resource} {e.verdict}: {e.why}"
            for e in self.ledger.entries()
            if e.kind in ("result", "decision")
        ]

    def results(self, verdict: str = "done") -> list[Entry]:
        """Steps that came to something, in order."""
        return [e for e in self.ledger.entries(kinds=("result",)) if e.verdict == verdict]

    def done(self, action: str, verdict: str = "done") -> bool:
        """Whether the ledger says so of some step."""
        return any(e.action == action for e in self.results(verdict))

    def end(self) -> None:
        """Close the state."""
        self.ledger.close()


def environment(**more: str) -> dict[str, str]:
    """That of this process for a run, without what was said of other runs."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STOPLOSS_")}
    return {**clean, "PYTHONPATH": str(ROOT / "src"), **more}


def living(belongs: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """The processes that live and of which something holds."""
    found = []
    for process in psutil.process_iter(["pid"]):
        try:
            if belongs(process) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (OSError, psutil.Error):
            continue
    return found
