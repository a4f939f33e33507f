"""`stoploss audit` as a person or a script runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.scenes import Scene, policy, reasons, recording, states

UTIL = "gpu.utilization"
IDLE = f"max({UTIL}, 30m) < 5%"
EXEMPTION = (
    "exemptions:\n  - {{policy: p, where: 'id == \"a\"', reason: by design, owner: me, expires: {}}}\n"
)
TWO = {("gpu", "a", UTIL): [0] * 60, ("gpu", "b", UTIL): [0.9] * 60}


def test_the_json_keeps_its_contract(scene: Scene) -> None:
    """The keys that scripts read are there, and money is null and never 0."""
    result = scene.audit(
        policy(IDLE, severity="low", cause="waste"), recording(TWO, labels={"a": {"team": "x"}})
    )

    assert result["version"] == 1
    assert result["mode"] == "audit"
    assert result["at"] == "2026-01-01T01:00:00Z"
    assert result["degraded"] is False
    assert result["incidents"] == result["decisions"] == []
    assert result["totals"]["per_hour"] is None
    [finding] = result["findings"]
    assert finding["policy"] == "p"
    assert finding["severity"] == "low"
    assert finding["cause"] == "waste"
    assert finding["resource"] == {"kind": "gpu", "id": "a", "labels": {"team": "x"}}
    assert finding["since"] == "2026-01-01T00:30:00Z"
    assert finding["evidence"] == [
        {"condition": IDLE, "value": 0.0, "unit": "share", "samples": 30, "of": 30}
    ]
    assert finding["waste"]["per_hour"] is None
    assert result["summary"]["findings"] == {"by_state": {"firing": 1}, "by_severity": {"low": 1}}


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ([0.9] * 60, 0),
        ([0] * 60, 1),
        ([0] * 59 + ["ERR!"], 4),
        ([None] * 50 + [0] * 10, 0),
        ([0.9] * 40 + [None] * 20, 4),
    ],
    ids=["clean", "findings", "bad reading", "young", "stale"],
)
def test_the_exit_status_says_what_was_found(scene: Scene, values: list[object], status: int) -> None:
    """0 clean, 1 findings, 4 unreadable; young and thin windows are no failure."""
    scene.audit(policy(IDLE), recording({("gpu", "a", UTIL): values, ("gpu", "b", UTIL): [0.9] * 60}))

    assert scene.status == status


def test_at_evaluates_the_past_as_it_was_known_then(scene: Scene) -> None:
    """Only slots that had ended by then count, at any instant of the recording."""
    signals = recording({("gpu", "a", UTIL): [0] * 40 + [0.9] * 20})
    seen = {
        minute: states(
            scene.audit(policy(IDLE, **{"for": "5m"}), signals, "--at", f"2026-01-01T00:{minute}:30Z")
        )
        for minute in ("29", "30", "34", "35", "40", "41")
    }

    pending, firing = {"a": "pending"}, {"a": "firing"}
    assert seen == {"29": {}, "30": pending, "34": pending, "35": firing, "40": firing, "41": {}}


def test_a_recording_in_two_files_is_one_recording(scene: Scene) -> None:
    """Cut anywhere and given together in any order, the findings are the same."""
    text = policy("p99(gpu.utilization, 30m) < 5%")
    head, *rows = recording(TWO).splitlines(keepends=True)
    whole = scene.audit(text, "".join([head, *rows]))
    for cut in (1, 37, 60, 61, 119):
        first = scene.write("one.csv", "".join([head, *rows[:cut]]))
        second = scene.write("two.csv", "".join([head, *rows[cut:]]))
        file = str(scene.folder / "policies.yaml")
        out = scene.run("audit", file, "--signals", second, "--signals", first, "--format", "json")

        assert json.loads(out) == whole


def test_a_policy_without_its_signal_says_so_once(scene: Scene) -> None:
    """No collector provides it: unknown, not false, and not a failure."""
    result = scene.audit(policy("service.queue_depth > 5", each="service"), recording(TWO))

    assert reasons(result) == {None: "no collector provides service.queue_depth"}
    assert result["summary"]["policies_without_resources"] == ["p"]
    assert scene.status == 0


def test_an_exempt_finding_is_shown_and_does_not_count(scene: Scene) -> None:
    """It is counted apart, and does not make the exit status 1."""
    result = scene.audit(policy(IDLE) + EXEMPTION.format("2999-01-31"), recording(TWO))

    assert scene.status == 0
    assert result["summary"]["exempt"] == 1
    assert result["findings"][0]["exemption"] == {
        "reason": "by design",
        "owner": "me",
        "expires": "2999-01-31",
    }


def test_P_D14_an_exemption_that_has_expired_protects_nothing(scene: Scene) -> None:
    """The finding is back and says that its exemption has expired."""
    result = scene.audit(policy(IDLE) + EXEMPTION.format("2020-01-31"), recording(TWO))

    assert scene.status == 1
    assert result["findings"][0]["exemption"] is None
    assert result["findings"][0]["expired_exemption"] == "2020-01-31"


def test_a_policy_with_a_mistake_evaluates_nothing(scene: Scene) -> None:
    """Every mistake is told on stderr with its place, stdout stays empty, the status is 2."""
    file = scene.write("policies.yaml", policy("gpu.utilisation < 5%", hodl="5m"))
    out = scene.run("audit", file, "--signals", scene.write("s.csv", recording(TWO)))

    assert (scene.status, out) == (2, "")
    assert f"{file}:5:5: " in scene.stderr
    assert "did you mean gpu.utilization?" in scene.stderr
    assert "2 errors; nothing was evaluated" in scene.stderr


def test_signals_that_cannot_be_read_are_told_and_the_others_used(scene: Scene) -> None:
    """One unreadable file of two degrades the run; with nothing left the status is 2."""
    file = scene.write("policies.yaml", policy(IDLE))
    good = scene.write("s.csv", recording(TWO))
    missing = str(scene.folder / "none.csv")
    result = json.loads(scene.run("audit", file, "--signals", good, "--signals", missing, "--format", "json"))

    assert scene.status == 4
    assert states(result) == {"a": "firing"}
    assert [item["name"] for item in result["collectors"]] == [missing]

    assert scene.run("audit", file, "--signals", missing) == ""
    assert scene.status == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--at", "noon", "--signals", "s.csv"], "--at 'noon' is not a time"),
        (
            ["--at", "2020-01-01", "--signals", "s.csv"],
            "--at lies before the first sample (2026-01-01T00:01:00Z)",
        ),
        (["--at", "2026-01-01"], "--at needs --signals"),
        (["--watch", "5 parsecs"], "--watch: 'parsecs' is not a unit"),
        (["--watch", "5m", "--signals", "s.csv"], "does not go with --signals"),
        (["--signals", "s.csv", "--out", "a.doc"], "the suffix says the format; use one of "),
    ],
)
def test_options_that_do_not_fit_are_told(scene: Scene, arguments: list[str], message: str) -> None:
    """One line with the fix, status 2."""
    file = scene.write("policies.yaml", policy(IDLE))
    path = scene.write("s.csv", recording(TWO))
    scene.run("audit", file, *(path if item == "s.csv" else item for item in arguments))

    assert scene.status == 2
    assert message in scene.stderr
    assert len(scene.stderr.splitlines()) == 1


def test_no_policy_file_is_a_hint(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without POLICIES and without ./policies.yaml the message says what to name."""
    monkeypatch.chdir(scene.folder)
    scene.run("audit")

    assert scene.status == 2
    assert "stoploss audit FILE" in scene.stderr


def test_out_writes_the_format_of_the_suffix_and_keeps_the_table(scene: Scene) -> None:
    """The json lands in the file, the table on stdout."""
    file = scene.write("policies.yaml", policy(IDLE))
    target = scene.folder / "report.json"
    out = scene.run("audit", file, "--signals", scene.write("s.csv", recording(TWO)), "--out", str(target))

    assert json.loads(target.read_text())["version"] == 1
    assert "BURNING NOW  1 finding" in out


def test_the_table_fits_eighty_columns_and_is_plain_in_a_pipe(scene: Scene) -> None:
    """Long names and many findings are cut and counted; no colour codes off a terminal."""
    values = {("gpu", f"gpu-{'x' * 90}-{n:03}", UTIL): [0] * 40 for n in range(60)}
    file = scene.write(
        "policies.yaml", policy(IDLE, summary="s").replace("name: p", f"name: {'long-' * 14}p")
    )
    out = scene.run("audit", file, "--signals", scene.write("s.csv", recording(values)))

    lines = out.splitlines()
    assert all(len(line) <= 80 for line in lines if not line.startswith("next: "))
    assert "\x1b" not in out
    assert "… and 40 more; all of them: --format json" in lines
    assert "60 findings" in out


def test_the_table_says_the_facts(scene: Scene) -> None:
    """Since when, on what evidence, what is unknown and why."""
    values = {**TWO, ("gpu", "c", UTIL): [0.9] * 59 + ["N/A"]}
    file = scene.write("policies.yaml", policy(IDLE, severity="high", contact="me", runbook="x"))
    lines = scene.run("audit", file, "--signals", scene.write("s.csv", recording(values))).splitlines()

    assert lines[0] == "stoploss audit · 2026-01-01 01:00 UTC · 3 gpus · nothing was touched"
    assert lines[2] == "BURNING NOW  1 finding · 1 unknown · 1 policy"
    assert lines[5].split() == ["-", "-", "30m", "p", "gpu", "a", "undecided"]
    assert lines[6].strip() == f"high · {IDLE}: 0%"
    assert "p  gpu c: gpu.utilization: N/A" in lines


def test_a_live_look_cannot_fill_a_window_and_says_what_to_do(scene: Scene) -> None:
    """One look: bare conditions decide, windows are unknown as 1 of n, with the way out."""
    text = policy(["host.memory.utilization > 99.9%"], each="host")
    windowed = policy(["avg(host.memory.utilization, 30m) >= 0%"], each="host")
    now = json.loads(scene.run("audit", scene.write("a.yaml", text), "--format", "json"))
    then = json.loads(scene.run("audit", scene.write("b.yaml", windowed), "--format", "json"))

    assert now["summary"]["resources"]["host"] == 1
    assert datetime.fromisoformat(now["at"]) <= datetime.now(UTC)
    assert now["unknown"] == []
    assert list(reasons(then).values()) == ["host.memory.utilization: young, 1 of 30 samples"]
    assert any("--watch 30m" in note for note in then["notes"])


@pytest.mark.slow
def test_watch_looks_until_the_window_is_full(scene: Scene) -> None:
    """A watch of three seconds at one-second slots fills a window of two."""
    text = (
        "version: 1\nsettings: {resolution: 1s}\ncollectors: {host: {every: 1s}}\n"
        + policy("avg(host.memory.utilization, 2s) >= 0%", each="host").split("\n", 1)[1]
    )
    result = json.loads(scene.run("audit", scene.write("p.yaml", text), "--watch", "4s", "--format", "json"))

    assert list(states(result).values()) == ["firing"]
    assert result["findings"][0]["evidence"][0]["samples"] == 2


def test_ctrl_c_ends_a_watch_and_not_the_audit(tmp_path: Path) -> None:
    """An interrupt stops looking; what was seen is evaluated and printed."""
    import signal
    import time

    file = tmp_path / "p.yaml"
    file.write_text(policy("host.memory.utilization >= 0%", each="host"))
    command = [sys.executable, "-m", "stoploss", "audit", str(file), "--watch", "10m", "--format", "json"]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run in the background of a shell, interrupts are ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert child.stderr is not None
    assert child.stderr.readline().startswith("watching for 10m")
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)

    assert child.returncode == 1, err
    assert json.loads(out)["findings"]
    assert "watch stopped" in err
    assert "Traceback" not in err
