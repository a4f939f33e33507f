"""Ends processes: asks by SIGTERM, waits, ends what is left by SIGKILL, and looks whether all are gone.

Each process is held by a handle while its start is compared, so that no signal reaches another of the
same id. What the processes start meanwhile is found and ended with them.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from stoploss.actions.contract import Means
from stoploss.actions.files import words_of
from stoploss.actions.targets import process_tree
from stoploss.actions.targets.process_tree import Key, Seen, Tree
from stoploss.engine.model import Outcome

KILL_LIMIT = 10.0
"""Seconds that processes may take to end after SIGKILL."""

STEP = 0.2
"""Seconds between two looks for what came meanwhile."""

LOOKS, PAUSE = 2, 0.05
"""Looks without any of them before all have ended, and the seconds between: one that loses its parent
in the middle of a look may be taken for another's."""

_REAPER = 1


@dataclass(slots=True)
class Ending:
    """The ending of some processes of this machine.

    Attributes:
        wanted: id and start of those that were found.
        job: whose processes belong to it although their parents are gone; None where only what
            was started counts.
        uid: whose they are.
        means: clocks.
    """

    wanted: frozenset[Key]
    job: str | None
    uid: int | None
    means: Means
    _handles: dict[Key, int] = field(default_factory=dict)
    _denied: str = ""

    def run(self, grace: float) -> Outcome:
        """Ask, wait `grace` seconds, end what is left, and look."""
        try:
            return self._run(grace)
        except OSError as error:
            return Outcome("failed", f"processes cannot be looked at: {words_of(error)}", retry=True)
        finally:
            for handle in self._handles.values():
                os.close(handle)

    def _run(self, grace: float) -> Outcome:
        self._hold(key for key in sorted(self.wanted))
        if not self._alive():
            return Outcome("skipped", "none of the processes that were found lives any more")
        self._newcomers()
        for key in self._ordered():
            self._signal(key, signal.SIGTERM)
        self._wait(grace, lambda key: self._signal(key, signal.SIGTERM))
        killed = len(self._alive())
        for key in self._ordered():
            self._signal(key, signal.SIGKILL)
        if killed:
            self._wait(KILL_LIMIT, lambda key: self._signal(key, signal.SIGKILL))
        return self._outcome(killed)

    def _outcome(self, killed: int) -> Outcome:
        left = self._alive()
        after = {"ended": len(self._handles) - len(left), "killed": killed - len(left)}
        if not left:
            others = self._others()
            more = f"; {others} of this name that came meanwhile is left alone" if others else ""
            how = f", {killed} by SIGKILL" if killed else ""
            return Outcome("done", f"processes ended: {len(self._handles)}{how}{more}", after)
        seen = [process for pid, _ in left if (process := process_tree.see(pid))]
        states = ", ".join(
            f"{process.pid} ({'waits in the kernel' if process.state == 'D' else 'lives'})"
            for process in seen[:5]
        )
        why = f"; {self._denied}" if self._denied else ""
        words = f"{len(left)} of {len(self._handles)} processes still live: {states}{why}"
        return Outcome("failed", words, after, retry=True)

    def _hold(self, keys: Iterable[Key]) -> None:
        for pid, start in keys:
            if (pid, start) in self._handles:
                continue
            with suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                seen = process_tree.see(pid)
                if seen is None or seen.start != start:
                    os.close(handle)
                    continue
                self._handles[pid, start] = handle

    def _alive(self) -> list[Key]:
        """Those whose handles tell no end; a process that only waits for its parent has ended."""
        poll = select.poll()
        for handle in self._handles.values():
            poll.register(handle, select.POLLIN)
        ended = {handle for handle, _ in poll.poll(0)}
        return [key for key, handle in self._handles.items() if handle not in ended]

    def _ordered(self) -> list[Key]:
        """Those that live, those that started others first."""
        tree, alive = process_tree.look(), self._alive()
        ids = {pid for pid, _ in alive}
        return sorted(alive, key=lambda key: (not tree.leads(key[0], ids), key[1], key[0]))

    def _signal(self, key: Key, number: signal.Signals) -> None:
        try:
            signal.pidfd_send_signal(self._handles[key], number)
            seen = process_tree.see(key[0])
            if number == signal.SIGTERM and seen and seen.start == key[1] and seen.state in "Tt":
                # One that is stopped would not notice.
                signal.pidfd_send_signal(self._handles[key], signal.SIGCONT)
        except ProcessLookupError:
            pass
        except PermissionError:
            self._denied = f"process {key[0]} may not be signalled by this user"

    def _wait(self, limit: float, on_newcomer: Callable[[Key], None]) -> None:
        end = self.means.monotonic() + limit
        quiet = 0
        while True:
            # Before the look: what the last of them started just before its end is seen by the next one.
            alive = self._alive()
            came = self._newcomers()
            for key in came:
                on_newcomer(key)
            quiet = 0 if alive or came else quiet + 1
            left = end - self.means.monotonic()
            if quiet == LOOKS or left <= 0:
                return
            poll = select.poll()
            # One is enough to wake up, and looking again is cheap.
            for key in alive[:1]:
                poll.register(self._handles[key], select.POLLIN)
            poll.poll(min(left, STEP if alive else PAUSE) * 1000)

    def _newcomers(self) -> list[Key]:
        """Hold what belongs to those that were found and was not found then."""
        tree = process_tree.look()
        came = [seen.key for seen in tree.processes.values() if self._is_ours(tree, seen)]
        before = set(self._handles)
        self._hold(came)
        return [key for key in self._handles if key not in before]

    def _is_ours(self, tree: Tree, seen: Seen) -> bool:
        if seen.key in self._handles or seen.pid in (os.getpid(), _REAPER):
            return False
        job = tree.job(seen.pid)
        # What was told another job is another job.
        if any(
            parent.key in self._handles and tree.job(parent.pid) == job for parent in tree.parents(seen.pid)
        ):
            return True
        return self.job is not None and job == self.job and seen.uid == self.uid and _is_orphan(tree, seen)

    def _others(self) -> int:
        if self.job is None:
            return 0
        tree = process_tree.look()
        return len([seen for seen in tree.members(self.job) if seen.key not in self._handles])


def _is_orphan(tree: Tree, seen: Seen) -> bool:
    """Whether a process has lost its parent: it neither leads its session nor has its parent in it.

    A run that somebody starts anew leads its session, or was started by a shell in it.
    """
    parent = tree.processes.get(seen.parent)
    return seen.pid != seen.session and (parent is None or parent.session != seen.session)
