"""The real command under load, killed with SIGKILL in the middle of whatever it does."""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from support.around import HOT, SICK, WELL, WIDE, Around, answered
from support.siege import Siege, siege

from stoploss.cli.main import run as command
from stoploss.engine import clock
from stoploss.engine.history.frame import slot_of
from stoploss.engine.history.looks import LookStore
from stoploss.engine.history.store import open_store
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.people import People

KILLS = int(os.environ.get("STOPLOSS_KILLS", "25"))
"""The long run (`make test-long`) has 200."""
BEFORE, CALM = 8, 6
"""Jobs that idle before the first kill, and kills in the end before which no more come."""
MOMENTS = ("told", "start", "act", "stop", "tick", "any")
RETENTION = 300.0
"""Seconds for which slots are kept, as the policies say."""
WRITTEN = 5.0
"""Within so many seconds it is written down that a notice was delivered, also on a busy machine."""
INTERRUPTED = "interrupted"

TITLE = re.compile(r"(?:resolved: )?(?:\w+: )?(\w+ \S+)(?: · .*)?")
"""What is told of a resource in one line."""


def lossy(around: Around, word: str | None) -> list[str]:
    """The runs with a bad loss about which so was spoken."""
    return [job for job in around.lossy if answered(job) == word]


def doomed(around: Around) -> set[str]:
    """The jobs to which something is to be done."""
    return {*around.idle, *lossy(around, "approve")}


def results(lines: list[Entry]) -> dict[str, list[str]]:
    """Job -> how each deed on it ended."""
    found = defaultdict[str, list[str]](list)
    for line in lines:
        if line.kind == "result" and line.action == "exec":
            found[line.resource.id if line.resource else ""].append((line.evidence or {})["state"])
    return found


def expected(around: Around) -> set[tuple[str, str]]:
    """Policy and resource of all that is found in the end, and told to people."""
    return {
        *(("idle", job) for job in (*around.idle, "kept", "late-kept")),
        *(("lossy", job) for job in around.lossy),
        *(("sick", f"l{number}") for number in range(SICK)),
        *(("hot", f"w0/{number}") for number in range(HOT)),
    }


def told(lines: list[Entry]) -> set[tuple[str, str]]:
    """Policy and resource of all that people were told of."""
    done = ("result", "alert", "done")
    mine = [line for line in lines if (line.kind, line.action, line.verdict) == done]
    return {(line.policy or "", line.resource.id) for line in mine if line.resource is not None}


def settled(one: Siege, around: Around) -> bool:
    """Whether people know of everything, and all that is to be done was done, or broke off."""
    ledger = Ledger(one.url, read_only=True, environ={})
    lines = list(ledger.entries())
    ledger.close()
    ended = {job for job, states in results(lines).items() if {"done", "unknown"} & set(states)}
    answers = set(lossy(around, "reject")) <= around.answers.keys()
    return answers and doomed(around) <= ended and expected(around) <= told(lines)


# ---- what may not be -------------------------------------------------------------------------


def deeds_faults(one: Siege, around: Around, lines: list[Entry]) -> Iterator[str]:
    """Each deed is done once, or is told as broken off and was begun once at most."""
    count = Counter(line.split()[0] for line in one.deeds)
    yield from (f"done {n} times: {job}" for job, n in count.items() if n > 1)
    yield from (f"done, though nobody let it: {job}" for job in count.keys() - doomed(around))
    ended = results(lines)
    for job in sorted(doomed(around)):
        states = [state for state in ended[job] if state not in ("undone", "skipped")]
        if states not in (["done"], ["unknown"]):
            yield f"{job}: {ended[job]}"
        elif states == ["done"] and count[job] != 1:
            yield f"{job} is said to be done and was not"
    yield from (f"{job}: {states}" for job, states in ended.items() if job not in doomed(around))


def notice_faults(one: Siege, lines: list[Entry]) -> Iterator[str]:
    """By the ledger each finding was delivered once, and every other try broke off with a daemon."""
    tries = defaultdict[tuple[str, str], list[str]](list)
    for line in lines:
        if line.kind == "result" and line.action == "alert":
            broke = (line.why or "").startswith(INTERRUPTED)
            tries[line.policy or "", str(line.resource)].append(INTERRUPTED if broke else line.verdict or "")
    for about, ends in tries.items():
        if ends.count("done") != 1 or not set(ends) <= {"done", INTERRUPTED}:
            yield f"told of {about}: {ends}"
    for (policy, resource, kind), times in delivered(one).items():
        broken = tries[policy, resource].count(INTERRUPTED)
        if kind == "firing" and not 1 <= len(times) <= 1 + broken:
            yield f"{policy}: {resource} was told {len(times)} times, and {broken} tries broke off"
        for first, second in pairwise(times):
            # Only where a kill comes between a delivery and writing it down.
            if not any(first <= end <= min(second, first + WRITTEN) for _, end in one.lives):
                yield f"{policy}: {resource}: {kind}: told twice, without a kill right after the first"


def delivered(one: Siege) -> dict[tuple[str, str, str], list[float]]:
    """(policy, resource, what is told of it) -> when that was delivered."""
    found = defaultdict[tuple[str, str, str], list[float]](list)
    for request in one.receiver.requests:
        said = request.json
        many = said["resource"].endswith(" resources")
        for line in said["text"].splitlines()[1:] if many else [said["title"]]:
            match = TITLE.fullmatch(line)
            if match is not None:
                found[said["policy"], match[1], kind_of(line)].append(request.at)
    return found


def kind_of(title: str) -> str:
    """Of what a line of a notice tells."""
    if title.startswith("resolved"):
        return "over"
    return next((word for word in ("exec needs a decision", "exec failed") if word in title), "firing")


def finding_faults(around: Around, lines: list[Entry]) -> Iterator[str]:
    """Each finding is one from its first notice to the end, with one beginning."""
    for about, said in around.since.items():
        if len(said) != 1:
            yield f"{about} was read as {sorted(said)}"
    episodes = defaultdict[tuple[str, str], set[str]](set)
    for line in lines:
        if line.episode is not None and line.resource is not None:
            episodes[line.policy or "", str(line.resource)].add(line.episode)
    yield from (f"{about} has {len(ids)} episodes" for about, ids in episodes.items() if len(ids) != 1)


def sample_faults(one: Siege, around: Around) -> Iterator[str]:
    """What was acknowledged lies in its slot, or, where it came late or is newer, with the looks."""
    store, looks = open_store(one.url, read_only=True), LookStore(one.url, read_only=True)
    first, last = store.first_slot or 0, store.last_slot or 0
    plane = store.read(first, last, signals=["gpu.power"]).planes["gpu.power"]
    place = {resource.id: at for at, resource in enumerate(plane.series)}
    waiting = {kept.at for kept in looks.read(node="n1")}
    store.close()
    looks.close()
    for number in sorted(around.acked):
        at, jobs = around.sent[number]
        slot = slot_of(at, 1.0)
        if at in waiting or slot < last - RETENTION:
            continue
        for gpu in [f"w{n}/{at}" for n in range(WELL) for at in range(WIDE)] + [f"{job}/0" for job in jobs]:
            if slot > last or gpu not in place or plane.values[slot - first, place[gpu]] != number:
                yield f"look {number} of {gpu} was acknowledged, and is lost"
    if sorted(one.slots) != one.slots:
        yield f"slots that were stored are not there any more: {one.slots}"


def decision_faults(around: Around, ledger: Ledger, lines: list[Entry]) -> Iterator[str]:
    """What people said holds."""
    people = People(ledger)
    kept = {keep.job for keep in people.keeps(now=clock.now())}
    spared = {item.where for item in people.exemptions()}
    if (kept, spared) != ({"kept", "late-kept"}, {'job == "spared"', 'job == "late-spared"'}):
        yield f"kept are {kept}, spared {spared}"
    told = Counter(line.kind for line in lines)
    if told["keep"] < 2 or told["exemption"] < 2:
        yield f"the ledger does not say what people said: {told}"
    said = {item.wanted.resource.id: item.answer for item in people.requests()}
    for job, word in around.answers.items():
        if said.get(job) != {"approve": "approved", "reject": "rejected"}[word]:
            yield f"{job}: {word} was acknowledged, and {said.get(job)} is kept"


def damage(one: Siege, ledger: Ledger) -> Iterator[str]:
    """The database is whole, and so is the chain of the ledger."""
    for file in one.folder.glob("*.db"):
        with sqlite3.connect(file) as connection:
            yield from (row for (row,) in connection.execute("PRAGMA integrity_check") if row != "ok")
        connection.close()
    yield from map(str, ledger.verify())


def firing(around: Around) -> set[tuple[str, str]]:
    """The findings that the daemon of now tells of, and that are not exempt."""
    asked = around.ask("GET", "/v1/findings?limit=1000&state=firing")
    assert asked is not None
    found = [item for item in asked.json["findings"] if item["exemption"] is None]
    return {(item["policy"], item["resource"]["id"]) for item in found}


@pytest.mark.slow
def test_killed_again_and_again_under_load(tmp_path: Path) -> None:
    """Killed at any moment while much goes on, nothing is lost, told again, or done again.

    A node posts looks at some 80 to 200 GPUs each second, runs log, people answer, others read. Kills come at
    the start, around ticks, right after a notice was delivered, while a program of a step runs, and at the
    shut-down. In the end, exactly:

    - The database is whole, and the ledger is one chain.
    - Each finding has one id and one beginning, wherever and whenever it was read.
    - Each step was done once. A program that was running at a kill is not started again, as nobody knows
      how far it came: it is told as broken off, and counts once at most.
    - Each notice is delivered once. It is told again only where a kill came between its delivery and the
      line that says so: nobody can know then that it arrived, and a notice that is lost is worse than one
      that comes twice. The ledger says of each such try that it was interrupted, and there are never more
      notices than such tries and one.
    - Keeps, exemptions and answers hold that were given before or between the kills.
    - Every look that was answered with 2xx lies in its slot or waits for it.
    """
    draw = random.Random(7)
    with siege(tmp_path, 7) as (one, around):
        file = str(tmp_path / "policies.yaml")
        assert command(["keep", "kept", "--for", "4h", "--reason", "it is needed", "--file", file]) == 0
        said = ["--until", "2099-01-31", "--reason", "it may", "--owner", "ann", "--file", file]
        assert command(["exempt", "idle", "--where", 'job == "spared"', *said]) == 0
        around.wanted = BEFORE
        around.begin()
        for number in range(KILLS):
            around.wanted = BEFORE + min(number, KILLS - CALM) * 2 // 3
            one.kill(MOMENTS[number % len(MOMENTS)] if number < len(MOMENTS) else draw.choice(MOMENTS))
        last = one.start()
        last.until(lambda: settled(one, around), 120)
        found = firing(around)
        around.end()
        ended = last.kill(signal.SIGTERM)

        ledger = Ledger(one.url, read_only=True, environ={})
        lines = list(ledger.entries())
        faults = [
            *damage(one, ledger),
            *finding_faults(around, lines),
            *deeds_faults(one, around, lines),
            *notice_faults(one, lines),
            *sample_faults(one, around),
            *decision_faults(around, ledger, lines),
            *around.odd,
        ]
        ledger.close()
        print(summary(one, around, lines))

    assert not faults, "\n".join(faults)
    assert ended == 0
    assert found == told(lines) == expected(around)
    assert len(one.deeds) > KILLS // 4


def summary(one: Siege, around: Around, lines: list[Entry]) -> str:
    """How much went on."""
    ended = Counter(state for states in results(lines).values() for state in states)
    broken = sum(line.kind == "result" and (line.why or "").startswith(INTERRUPTED) for line in lines)
    return (
        f"\n{len(one.slots)} kills in {one.lives[-1][0] - one.lives[0][0]:.0f} s: {len(around.acked)} looks, "
        f"{around.reads} reads, {len(lines)} lines, {len(one.deeds)} deeds {dict(ended)}, "
        f"{len(one.receiver.requests)} notices, {broken} tries to tell broke off"
    )
