"""What people decide: exactly what was asked, for as long as was said, and written down."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stoploss.engine import people as people_module
from stoploss.engine.ledger import Ledger
from stoploss.engine.model import ResourceId
from stoploss.engine.people import People, pause_file
from stoploss.engine.people_schema import DecisionError, Wanted, request_of

NOW = datetime(2026, 12, 1, 14, tzinfo=UTC)
DAY = timedelta(hours=24)
STEP = Wanted(
    episode="f-1",
    policy="idle-gpu",
    policy_hash="abc",
    resource=ResourceId("job", "4412"),
    action="terminate",
    target="slurm",
    parameters={"grace": 30.0},
)


@pytest.fixture
def people(ledger: Ledger) -> People:
    """Nobody has decided anything."""
    return People(ledger)


def kinds(ledger: Ledger) -> list[str]:
    """The kinds of the ledger's lines."""
    return [line.kind for line in ledger.entries()]


def test_an_approval_holds_for_24_hours(people: People) -> None:
    """A request waits until it is approved, and the approval runs out a day after it was given."""
    request = people.ask(STEP, now=NOW)
    assert request.state(NOW) == "waiting"
    at = NOW + timedelta(hours=1)

    people.approve(request.id, who="ada", now=at)

    assert people.ask(STEP, now=at).state(at + DAY - timedelta(seconds=1)) == "approved"
    assert people.ask(STEP, now=at + DAY).state(at + DAY) == "waiting"


def test_an_approval_is_for_exactly_what_was_asked(people: People) -> None:
    """Another episode, action, target or parameter is asked anew."""
    people.approve(people.ask(STEP, now=NOW).id, who="ada", now=NOW)

    for change in (
        {"episode": "f-2"},
        {"action": "downscale"},
        {"target": "process"},
        {"parameters": {"grace": 31.0}},
    ):
        assert people.ask(dataclasses.replace(STEP, **change), now=NOW).state(NOW) == "waiting"
    assert people.ask(STEP, now=NOW).state(NOW) == "approved"


def test_requests_are_read_by_episode(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of requests of many years only those about some episodes are read, however many episodes these are."""
    for number in range(30):
        people.ask(dataclasses.replace(STEP, episode=f"f-{number}"), now=NOW + timedelta(minutes=number))
    made: list[str] = []
    monkeypatch.setattr(people_module, "PART", 7)
    monkeypatch.setattr(
        people_module, "request_of", lambda row: made.append(row["episode"]) or request_of(row)
    )
    wanted = [f"f-{number}" for number in range(0, 40, 2)]
    found = people.requests(episodes=wanted)

    assert [request.wanted.episode for request in found] == [f"f-{at}" for at in range(28, -1, -2)]
    assert sorted(made) == sorted(request.wanted.episode for request in found)
    assert people.requests(episodes=[]) == ()
    assert [item for item in people.requests() if item.wanted.episode in wanted] == list(found)


def test_a_rejected_step_is_not_asked_again_in_its_episode(people: People, ledger: Ledger) -> None:
    """A rejection holds for days and for other parameters, and ends with the episode."""
    people.reject(people.ask(STEP, now=NOW).id, who="ada", now=NOW, reason="still needed")
    later = NOW + 9 * DAY

    assert people.ask(STEP, now=later).state(later) == "rejected"
    assert people.ask(dataclasses.replace(STEP, parameters={}), now=later).state(later) == "rejected"
    assert kinds(ledger) == ["decision", "rejection"]
    assert people.ask(dataclasses.replace(STEP, episode="f-2"), now=later).state(later) == "waiting"


def test_a_request_that_nobody_answers_is_asked_again(people: People, ledger: Ledger) -> None:
    """After 24 h a request cannot be approved any more, and is asked anew when its step is due."""
    request = people.ask(STEP, now=NOW)

    with pytest.raises(DecisionError, match="24 h"):
        people.approve(request.id, who="ada", now=NOW + DAY)
    assert people.ask(STEP, now=NOW + DAY).asked == NOW + DAY
    assert kinds(ledger) == ["decision", "decision"]


def test_asking_twice_is_one_request(people: People, ledger: Ledger) -> None:
    """Every tick may ask; the ledger holds one line."""
    assert people.ask(STEP, now=NOW) == people.ask(STEP, now=NOW + timedelta(minutes=1))
    assert kinds(ledger) == ["decision"]


def test_an_approval_can_be_taken_back_and_a_rejection_cannot(people: People) -> None:
    """Rejecting what was approved holds; approving what was rejected is refused."""
    name = people.ask(STEP, now=NOW).id
    people.approve(name, who="ada", now=NOW)
    people.reject(name, who="bob", now=NOW, reason="wait")

    with pytest.raises(DecisionError, match="rejected already, by bob"):
        people.approve(name, who="ada", now=NOW)


def test_an_answer_to_nothing_names_what_waits(people: People) -> None:
    """An unknown id is refused with the ids that wait."""
    name = people.ask(STEP, now=NOW).id

    with pytest.raises(DecisionError, match=f"no request a-0; waiting: {name}"):
        people.approve("a-0", who="ada", now=NOW)


def test_an_answer_says_in_the_ledger_what_it_was_about(people: People, ledger: Ledger) -> None:
    """The line of an approval holds step, parameters, policy and person."""
    request = people.ask(STEP, now=NOW)
    people.approve(request.id, who="ada", now=NOW, reason="agreed with the owner")

    line = ledger.entries(kinds=["approval"])[0]
    assert (line.episode, line.policy, line.policy_hash) == ("f-1", "idle-gpu", "abc")
    assert (line.resource, line.action, line.target) == (STEP.resource, "terminate", "slurm")
    assert (line.parameters, line.who, line.why) == ({"grace": 30.0}, "ada", "agreed with the owner")
    assert line.evidence == {"request": request.id}


def test_secrets_in_what_is_asked_reach_no_file(url: str, tmp_path: Path) -> None:
    """A request with a secret among its parameters keeps it out of the database, and is still one."""
    ledger = Ledger(url, environ={"API_TOKEN": "hush-1"})
    people, step = People(ledger), dataclasses.replace(STEP, parameters={"argv": ["stop", "hush-1"]})

    assert people.ask(step, now=NOW).id == people.ask(step, now=NOW).id
    people.pause(who="ada", now=NOW, reason="hush-1")
    people.keep("1", timedelta(hours=1), who="ada", now=NOW, reason="hush-1")
    ledger.close()
    assert b"hush" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_a_keep_holds_until_its_end(people: People) -> None:
    """A job is kept until the instant that was said, other jobs are not, and the newest word counts."""
    people.keep("4412", timedelta(hours=4), who="ada", now=NOW, reason="demo")
    end = NOW + timedelta(hours=4)

    assert people.kept("4412", now=end - timedelta(seconds=1)) is not None
    assert people.kept("4412", now=end) is None
    assert people.kept("44", now=NOW) is None
    people.keep("4412", timedelta(hours=1), who="ada", now=NOW, reason="shorter")
    assert people.kept("4412", now=NOW + timedelta(hours=2)) is None


@pytest.mark.parametrize("hours", [-1, 0, 24.01])
def test_a_keep_is_capped(people: People, ledger: Ledger, hours: float) -> None:
    """No time at all, and more than a day, are refused."""
    with pytest.raises(DecisionError, match="24 h at most"):
        people.keep("4412", timedelta(hours=hours), who="ada", now=NOW, reason="demo")

    assert kinds(ledger) == []


def test_a_keep_says_what_it_costs(people: People, ledger: Ledger) -> None:
    """Four hours at $28.80/h cost $115.20, in the ledger too."""
    kept = people.keep(
        "4412", timedelta(hours=4), who="ada", now=NOW, reason="demo", per_hour=28.8, currency="USD"
    )

    assert kept.cost(28.8) == pytest.approx(115.2)
    line = ledger.entries()[0]
    assert (line.parameters["cost"], line.currency) == (115.2, "USD")


@pytest.mark.parametrize("expires", ["", " ", "never", "2027-13-01", "tomorrow"])
def test_P_B11_an_exemption_without_its_last_day_is_refused(
    people: People, ledger: Ledger, expires: str
) -> None:
    """There is no exemption without a day on which it ends."""
    with pytest.raises(DecisionError, match=r"no expires|no day"):
        people.exempt("p", "has(job)", expires=expires, reason="r", owner="o", who="ada", now=NOW)

    assert people.exemptions() == ()
    assert kinds(ledger) == []


def test_an_exemption_is_kept_as_it_was_made(people: People, ledger: Ledger) -> None:
    """An exemption is read back, also by another program, and stands in the ledger."""
    made = people.exempt(
        "idle-gpu",
        'job == "1"',
        expires="2027-01-31",
        reason="bursty",
        owner="ml-infra",
        who="ada",
        now=NOW,
    )

    assert people.exemptions() == (made,)
    assert ledger.entries()[0].parameters["expires"] == "2027-01-31"


def test_a_pause_holds_until_it_is_taken_back(people: People, ledger: Ledger) -> None:
    """Pausing holds over programs, and resuming ends it; each is one line."""
    people.pause(who="ada", now=NOW, reason="maintenance")
    assert people.paused() is not None
    assert people.resume(who="ada", now=NOW) is not None

    assert people.paused() is None
    assert people.resume(who="ada", now=NOW) is None
    assert kinds(ledger) == ["pause", "resume"]


def test_a_file_pauses_as_well(people: People, ledger: Ledger) -> None:
    """A file named pause beside the state pauses, and resuming does not take it away."""
    pause_file(ledger.file).touch()

    people.resume(who="ada", now=NOW)

    paused = people.paused()
    assert paused is not None
    assert str(pause_file(ledger.file)) in paused.reason
    pause_file(ledger.file).unlink()
    assert people.paused() is None


def test_a_place_that_cannot_be_looked_into_pauses(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file may be and nobody can see it nothing is carried out."""

    def denied(path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", denied)
    paused = people.paused()

    assert paused is not None
    assert "cannot be told (Permission denied)" in paused.reason
