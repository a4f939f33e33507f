"""A program of the user's runs once, with little around it, and never outlives its limit."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.shelf import means, order, tree

from stoploss.actions import exec as running
from stoploss.actions import resume as resuming
from stoploss.actions.contract import Action, Refused
from stoploss.engine.model import Order, Outcome


def script(tmp_path: Path, text: str, name: str = "hook") -> Path:
    """A program in Python."""
    path = tmp_path / name
    path.write_text(f"#!{sys.executable}\n{text}\n", "utf-8")
    path.chmod(0o755)
    return path


def asked_for(program: object, *arguments: str, **more: object) -> Order:
    """An order to run a program for a GPU."""
    labels = {"team": "nlp", "run-dir": "/x", "owner": "?"}
    given = order("gpu", "n1:0", labels, command=[str(program), *arguments], **more)
    return replace(given, action="exec")


def made(tmp_path: Path, **more: Any) -> Action:
    """The action, with an existing state folder."""
    (tmp_path / "state").mkdir(exist_ok=True)
    return running.build(means(tmp_path, **more))


def run(tmp_path: Path, asked: Order, **more: Any) -> Outcome:
    """Find and act."""
    action = made(tmp_path, **more)
    return action.act(asked, action.find(asked))


def log(tmp_path: Path) -> str:
    """What was kept of the output."""
    return (tmp_path / "state" / "exec" / "o-1.log").read_text("utf-8")


ECHO = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))"


def test_it_gets_its_arguments_and_little_else(tmp_path: Path) -> None:
    """Arguments come through as they are; the environment is what is given, without secrets; no input."""
    program = script(tmp_path, ECHO + "\nassert sys.stdin.read() == ''")

    done = run(tmp_path, asked_for(program, "$(id)", "a b; c", "{id}"))

    import json

    arguments, environment, folder = json.loads(log(tmp_path))
    assert (done.state, done.after["status"]) == ("done", 0)
    assert arguments == ["$(id)", "a b; c", "{id}"]
    assert folder == str(tmp_path / "state")
    environment.pop("LC_CTYPE", None)  # set by Python itself
    assert environment == {
        "PATH": os.environ["PATH"],
        "HOME": "/root",
        "STOPLOSS_ORDER": "o-1",
        "STOPLOSS_ACTION": "exec",
        "STOPLOSS_RESOURCE_KIND": "gpu",
        "STOPLOSS_RESOURCE_ID": "n1:0",
        "STOPLOSS_BY": "policy tidy",
        "STOPLOSS_LABEL_TEAM": "nlp",
        "STOPLOSS_LABEL_RUN_DIR": "/x",
    }


@pytest.mark.parametrize("where", ["process", "slurm", "kubernetes", "sagemaker"])
def test_a_job_is_resumed_by_a_program_once(tmp_path: Path, where: str) -> None:
    """Whoever runs the job, `resume` with a command runs it, and not a second time for the same order."""
    program = script(tmp_path, "import os; print(os.environ['STOPLOSS_ACTION'], file=open('ran', 'a'))")
    (tmp_path / "state").mkdir()
    asked = replace(
        order("job", "bert", {"scheduler": where}, command=[str(program)], timeout=20.0), action="resume"
    )
    action = resuming.build(means(tmp_path))
    found = action.find(asked)
    outcomes = [action.act(asked, found).state, action.act(asked, found).state]

    assert (found.place, outcomes) == (f"job/{where}?command", ["done", "done"])
    assert (tmp_path / "state" / "ran").read_text() == "resume\n"


def test_a_failure_is_told_and_not_tried_again(tmp_path: Path) -> None:
    """Another status than 0 has failed, without a second try; words hold nothing of the output."""
    program = script(tmp_path, "import sys; print('private'); sys.exit(3)")

    done = run(tmp_path, asked_for(program))

    assert (done.state, done.words, done.retry) == ("failed", "it ended with status 3", False)
    assert log(tmp_path) == "private\n"


def test_a_signal_and_a_program_that_cannot_start_have_failed(tmp_path: Path) -> None:
    """Ended by a signal, or no program after all, is a failure in words."""
    killed = run(tmp_path, asked_for(script(tmp_path, "import os; os.kill(os.getpid(), 9)")))
    broken = tmp_path / "broken"
    broken.write_text("#!/none/such\n", "utf-8")
    broken.chmod(0o755)
    never = run(tmp_path, replace(asked_for(broken), id="o-2"))

    assert (killed.state, killed.words) == ("failed", "it was ended by signal 9")
    assert (never.state, never.words) == ("failed", "it could not be started: no such file or directory")


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); "
                          "print('up', flush=True); time.sleep(60)"])
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}")
time.sleep(60)
"""


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_what_takes_too_long_is_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit the whole group is asked and then killed, also where it does not listen."""
    monkeypatch.setattr(running, "GRACE", 0.3)
    begun = time.monotonic()

    done = run(tmp_path, asked_for(script(tmp_path, STUBBORN), str(tmp_path / "pids"), timeout=1.0))

    assert (done.state, done.words) == ("failed", "it was ended, as it took longer than it may")
    assert time.monotonic() - begun < 10
    pids = [int(pid) for pid in (tmp_path / "pids").read_text("utf-8").split()]
    limit = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < limit:
        time.sleep(0.01)
    assert [pid for pid in pids if alive(pid)] == []


def test_one_that_listens_may_end_in_time(tmp_path: Path) -> None:
    """TERM comes first, so that a program can tidy up."""
    text = "import signal, sys, time\nsignal.signal(15, lambda *_: (print('tidy'), sys.exit(0)))\n"

    done = run(tmp_path, asked_for(script(tmp_path, text + "time.sleep(60)"), timeout=0.5))

    assert done.state == "failed"
    assert log(tmp_path) == "tidy\n"


def test_only_the_last_of_the_output_is_kept_and_secrets_are_not(tmp_path: Path) -> None:
    """A flood is read to its end; 64 KiB are kept, with secrets masked, in a file of the owner alone."""
    text = "for n in range(200_000): print(n)\nprint(end='', flush=True)\nraise SystemExit('hunter22')"

    done = run(tmp_path, asked_for(script(tmp_path, text)), mask=lambda text: text.replace("hunter22", "***"))

    kept = log(tmp_path)
    assert done.after["status"] == 1
    assert 64_000 < len(kept) <= 64 << 10
    assert kept.endswith("199999\n***\n")
    assert (tmp_path / "state" / "exec" / "o-1.log").stat().st_mode & 0o777 == 0o600


def test_a_secret_is_not_cut_in_two(tmp_path: Path) -> None:
    """Where the kept part begins within a secret, none of it is left."""
    text = "print('x' * 10 + 'hunter22' + 'y' * (65536 - 5), end='')"

    run(tmp_path, asked_for(script(tmp_path, text)), mask=lambda text: text.replace("hunter22", "***"))

    assert "22" not in log(tmp_path)


def test_what_it_leaves_running_does_not_hold_it_up(tmp_path: Path) -> None:
    """A child that goes on with the output in its hands is not waited for."""
    text = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(30)'])\n"
        "open(sys.argv[1], 'w').write(str(child.pid))\nprint('off')"
    )
    begun = time.monotonic()

    done = run(tmp_path, asked_for(script(tmp_path, text), str(tmp_path / "pid")))

    os.kill(int((tmp_path / "pid").read_text("utf-8")), 9)
    assert (done.state, log(tmp_path)) == ("done", "off\n")
    assert time.monotonic() - begun < 10


def test_it_is_never_started_twice(tmp_path: Path) -> None:
    """After it ended the same order is told again, and a new look is refused."""
    program = script(tmp_path, f"open({str(tmp_path / 'runs')!r}, 'a').write('x')")
    action, asked = made(tmp_path), asked_for(program)
    found = action.find(asked)

    states = [action.act(asked, found).state, action.act(asked, found).state, action.look(asked, found).state]

    assert states == ["done"] * 3
    assert (tmp_path / "runs").read_text("utf-8") == "x"
    with pytest.raises(Refused, match="was started for this order before"):
        action.find(asked)
    assert action.undo(asked, found).state == "skipped"


def test_a_crash_after_the_start_is_not_known_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the start it is undone; from then on, until its end is written down, it is not known."""
    program = script(tmp_path, f"open({str(tmp_path / 'runs')!r}, 'a').write('x')")
    action, asked = made(tmp_path), asked_for(program)
    found = action.find(asked)
    assert action.look(asked, found).state == "undone"

    def die(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running.Exec, "_run", die)
    with pytest.raises(KeyboardInterrupt):
        action.act(asked, found)
    monkeypatch.undo()

    for outcome in (action.look(asked, found), action.act(asked, found)):
        assert outcome.state == "unknown"
        assert "whether it finished is not known" in outcome.words
    assert not (tmp_path / "runs").exists()


def test_looking_changes_nothing(tmp_path: Path) -> None:
    """Finding and looking start nothing and write nothing."""
    action, asked = made(tmp_path), asked_for(script(tmp_path, "raise SystemExit"))
    before = tree(tmp_path)

    assert action.look(asked, action.find(asked)).state == "undone"
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (None, "no list of arguments"),
        ([], "no list of arguments"),
        ("echo hi", "no list of arguments"),
        (["echo", 5], "no text"),
        ([""], "no text"),
        (["a\0b"], "no text"),
        (["no-such-program-anywhere"], "there is no program no-such-program-anywhere"),
        (["/none/such"], "there is no program /none/such"),
        (["bin/hook"], "neither an absolute path nor a name alone"),
        (["/etc/passwd"], "/etc/passwd may not be run"),
        (["/usr"], "there is no program /usr"),
    ],
)
def test_what_cannot_be_run_is_refused(tmp_path: Path, command: object, said: str) -> None:
    """What is no list of texts, or names no program that may be run, is refused at the look."""
    with pytest.raises(Refused) as caught:
        made(tmp_path).find(order("gpu", "n1:0", command=command))

    assert said in caught.value.words


def test_a_program_is_found_by_its_name(tmp_path: Path) -> None:
    """A name alone is looked up in PATH."""
    assert run(tmp_path, asked_for("true")).state == "done"


def test_a_program_that_was_replaced_is_not_run(tmp_path: Path) -> None:
    """Another program under the same path than at the look is skipped."""
    program = script(tmp_path, "print(1)")
    action, asked = made(tmp_path), asked_for(program)
    found = action.find(asked)
    script(tmp_path, "print('another')")

    done = action.act(asked, found)
    assert done.state == "skipped"
    program.unlink()
    assert action.act(asked, found).state == "skipped"
    assert action.look(asked, found).state == "undone"
