"""`stoploss digest`: a week in a few lines for each team, from the ledger alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, timedelta
from pathlib import Path

import pytest
from support.receivers import hook
from support.scenes import Scene, recording
from support.toys import CHAIN, Fleet

from stoploss.engine import clock
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry
from stoploss.engine.model import ResourceId
from stoploss.engine.people import People
from stoploss.reports import digest as report
from stoploss.reports.digest import Asked, Digest, Spent, Team, Until

STATED = CHAIN.replace("settings: {", 'settings: {state: "sqlite:///state.db", ')
WAITING = STATED.replace("terminate: {after: 4m}", "terminate: {after: 4m, approve: required}")


@pytest.fixture
def fleet(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Jobs of two teams; commands run beside them, at their time."""
    made = Fleet(scene.folder)
    monkeypatch.chdir(scene.folder)
    monkeypatch.setattr(clock, "now", made.now)
    return made


@pytest.fixture
def people(fleet: Fleet) -> Iterator[People]:
    """Decisions beside the fleet."""
    ledger = Ledger(fleet.url, environ={})
    yield People(ledger)
    ledger.close()


def ended(fleet: Fleet, text: str = STATED, *, minutes: int = 12) -> None:
    """Two jobs of vision and one of speech have been idle, and were ended where nobody has to be asked."""
    fleet.labels = {"c": {"team": "speech"}}
    fleet.start("a", "b", "c")
    fleet.run(fleet.cycle(text), minutes)


def lines(fleet: Fleet) -> tuple[Entry, ...]:
    """The whole ledger."""
    ledger = Ledger(fleet.url, read_only=True, environ={})
    found = ledger.entries()
    ledger.close()
    return tuple(found)


def told_to(url: str) -> str:
    """Policies whose owner and one team have an address; the cycle itself tells nobody there."""
    return STATED.replace("policies:", f'notify: {{vision: "{url}", owner: "log:"}}\npolicies:', 1)


def test_each_team_is_told_what_was_found_and_done(scene: Scene, fleet: Fleet) -> None:
    """Findings by policy, steps by action, messages, and what the steps promised, each team by itself."""
    ended(fleet)
    found = {item["team"]: item for item in scene.json("digest")["teams"]}

    assert scene.status == 0
    assert set(found) == {"vision", "speech"}
    vision = found["vision"]
    assert vision["found"] == {"idle": 2}
    assert vision["done"] == {"snapshot": 2, "terminate": 2}
    assert vision["promised_per_hour"] == {"USD": 8.0}
    assert (vision["measured"], vision["brought_per_hour"]) == (0, None)
    assert found["speech"]["promised_per_hour"] == {"USD": 4.0}
    assert vision["told"] >= 1


def test_it_is_short_and_says_what_is_not_known(scene: Scene, fleet: Fleet) -> None:
    """At most twelve lines a team and 80 columns, in the order of what matters."""
    ended(fleet)
    parts = scene.run("digest").rstrip("\n").split("\n\n")

    assert len(parts) == 2
    for part in parts:
        lines = part.splitlines()
        assert len(lines) <= 12
        assert max(map(len, lines)) <= 80
    vision = parts[1].splitlines()
    assert vision[0] == "stoploss digest · vision · 2026-11-24 to 2026-12-01"
    assert vision[1] == "found     2 findings: idle 2"
    assert vision[2] == "done      4 steps: snapshot 2, terminate 2"
    assert vision[3] == "saved     promised $8.00/h; what it brought was not measured"
    assert "costs     not known: give --signals" in vision


def test_one_team_can_be_asked_for(scene: Scene, fleet: Fleet) -> None:
    """Another team is not told; a team of which nothing is known gets a digest that says so."""
    ended(fleet)

    assert [item["team"] for item in scene.json("digest", "--team", "speech")["teams"]] == ["speech"]
    out = scene.run("digest", "--team", "audio")
    assert "found     nothing" in out
    assert "vision" not in out


def test_what_is_older_is_left_out(scene: Scene, fleet: Fleet) -> None:
    """Only what lies in the time asked for counts."""
    ended(fleet)
    fleet.minutes += 3 * 24 * 60

    assert scene.json("digest", "--since", "2d")["teams"] == []
    assert scene.run("digest", "--since", "2d").startswith(
        "stoploss digest · nothing was found or done since"
    )
    assert len(scene.json("digest", "--since", "4d")["teams"]) == 2


def test_what_waits_comes_with_its_money(scene: Scene, fleet: Fleet) -> None:
    """A step that waits for an answer is told with its id."""
    ended(fleet, WAITING)
    out = scene.run("digest", "--team", "speech")
    [speech] = scene.json("digest", "--team", "speech")["teams"]
    [asked] = speech["waits"]

    assert asked["saves_per_hour"] == 4.0
    assert (speech["would"], speech["held"]) == ({}, {})
    assert f"waits     1 for an answer, $4.00/h: terminate job c ({asked['id']})" in out.splitlines()


def test_in_mode_audit_it_tells_what_would_have_been_done(scene: Scene, fleet: Fleet) -> None:
    """Nothing was done, and what that would have saved is told to whose it is."""
    ended(fleet, STATED.replace("mode: enforce", "mode: audit"))
    found = {item["team"]: item for item in scene.json("digest")["teams"]}

    assert all(item["done"] == {} for item in found.values())
    assert sum(item["would"]["snapshot"] for item in found.values()) == 3
    assert sum(item["held"]["terminate"] for item in found.values()) == 3
    assert found["speech"]["would_save_per_hour"] == {"USD": 4.0}
    told = scene.run("digest", "--team", "speech")
    assert "not done  would save $4.00/h: terminate 1 (guard), snapshot 1 (mode)" in told


def test_failures_are_told(scene: Scene, fleet: Fleet) -> None:
    """A step that failed is not among those that were done."""
    fleet.faults[("terminate", "c")] = "fail"
    ended(fleet)
    [speech] = scene.json("digest", "--team", "speech")["teams"]

    assert speech["done"] == {"snapshot": 1}
    assert speech["failed"]["terminate"] >= 1
    assert speech["promised_per_hour"] is None
    assert "tries that failed: terminate" in scene.run("digest", "--team", "speech")


def test_what_was_measured_is_told_beside_what_was_promised(scene: Scene, fleet: Fleet) -> None:
    """What a step has brought comes from the line that judged it."""
    ended(fleet)
    ledger = Ledger(fleet.url, environ={})
    episode = ledger.entries(kinds=("intent",), resource="job c")[0].episode
    ledger.append(
        Entry(
            at=fleet.now(),
            kind="note",
            episode=episode,
            resource=ResourceId("job", "c"),
            action="downscale",
            promised=4.0,
            got=2.5,
            currency="USD",
        )
    )
    ledger.close()

    assert "promised $4.00/h; 1 step measured: $2.50/h" in scene.run("digest", "--team", "speech")


def test_keeps_exemptions_and_a_pause_are_told(scene: Scene, fleet: Fleet, people: People) -> None:
    """What is spared now, until when and by whom; exemptions only where they end soon."""
    ended(fleet)
    now = fleet.now()
    people.keep("a", timedelta(hours=4), who="ann", now=now, reason="demo")
    for expires in ("2026-12-05", "2027-06-01", "2026-11-30"):
        people.exempt(
            "idle", 'team == "vision"', expires=expires, reason="r", owner="infra", who="bob", now=now
        )
    people.pause(who="bob", now=now, reason="storage outage")
    [vision] = scene.json("digest", "--team", "vision")["teams"]
    out = scene.run("digest", "--team", "vision")

    assert [(item["what"], item["who"]) for item in vision["kept"]] == [("job a", "ann")]
    assert [item["until"] for item in vision["exempt"]] == ["2026-12-05"]
    assert 'exempt    idle where team == "vision" ends 2026-12-05 (infra)' in out
    assert "paused    nothing is carried out: storage outage" in out


def test_costs_come_from_signals(scene: Scene, fleet: Fleet) -> None:
    """With recorded signals the team's money and GPU-hours are told."""
    ended(fleet)
    text = recording(
        {("gpu", "g", "gpu.utilization"): [50] * 120, ("gpu", "g", "gpu.model"): ["H100"] * 120},
        labels={"g": {"team": "vision", "job": "a"}},
    )
    file = scene.write("signals.csv", text)
    found = {item["team"]: item for item in scene.json("digest", "--signals", file)["teams"]}

    assert found["vision"]["costs"]["gpu_hours"] == pytest.approx(2.0, abs=0.1)
    assert found["vision"]["costs"]["money"]
    assert found["speech"]["costs"] is None
    assert "none of the signals is of this team" in scene.run("digest", "--signals", file)


def test_nothing_is_sent_unless_it_is_asked_for(scene: Scene, fleet: Fleet) -> None:
    """Without --send nobody is told, and the ledger is as it was."""
    with hook() as place:
        ended(fleet, told_to(place.url()))
        before = lines(fleet)
        scene.run("digest")

    assert scene.status == 0
    assert place.requests == []
    assert lines(fleet) == before


def test_each_team_is_sent_its_own(scene: Scene, fleet: Fleet) -> None:
    """The receiver named as the team gets its part; a team without one is told as not delivered."""
    with hook() as place:
        ended(fleet, told_to(place.url()))
        found = scene.json("digest", "--send")

    assert scene.status == 4
    assert found["sent"]["vision"]["delivered"] is True
    assert "no receiver 'speech'" in found["sent"]["speech"]["words"]
    [body] = [request.json for request in place.requests]
    assert body["event"] == "digest"
    assert body["resource"] == "team vision"
    assert body["title"].startswith("stoploss digest · vision")
    assert len(body["text"].splitlines()) <= 12
    assert "speech" not in body["text"]


def test_without_a_ledger_it_says_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to tell where nothing was ever decided, and no state is made."""
    monkeypatch.chdir(scene.folder)
    scene.run("digest")

    assert scene.status == 2
    assert list(scene.folder.iterdir()) == []


def test_the_longest_part_has_twelve_lines() -> None:
    """A team of which everything is told, in long words, keeps to it, and says how much is left out."""
    since = Fleet(Path()).now()
    team = Team(
        "a-team-with-a-name",
        findings={f"policy-with-a-long-name-{n}": n for n in range(1, 20)},
        done={"terminate": 9},
        failed={"downscale": 2},
        would={"terminate": 2},
        held={"prune": 1},
        would_save={"USD": 5.0},
        undone=1,
        promised={"USD": 12.5},
        unpriced=1,
        brought={"USD": -1.0},
        measured=2,
        told=9,
        untold=1,
        waits=[Asked(f"a-{n}", f"terminate job some-job-{n}", None if n else 3.0, "USD") for n in range(9)],
        kept=[Until(f"job some-job-{n}", "2026-12-02 10:00 UTC", "ann", "x\ny") for n in range(9)],
        exempt=[Until('idle where job == "\x1b[31m"', "2026-12-05", "infra", "r")],
        spent=Spent({"on-demand": 1204.0}, "USD", 602.0, 400.0, 10.0),
    )
    lines = report.lines(Digest(since, since, [team], "outage", recorded=True), team, UTC)

    assert len(lines) == 12
    assert max(map(len, lines)) <= 80
    assert any("more" in line for line in lines)
    assert "\x1b" not in "".join(lines)
