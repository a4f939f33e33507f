"""What the page about operations says can be done as it says."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from support.scenes import Scene

from stoploss.cli.main import COMMANDS
from stoploss.engine.ledger import Ledger
from stoploss.engine.ledger_schema import Entry

ROOT = Path(__file__).parents[2]
PAGES = {name: ROOT / name for name in ("docs/operations.md", "docs/digest.md", "deploy/README.md")}
NOW = datetime(2026, 12, 1, 14, tzinfo=UTC)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """Every file that a page links is there, and so is the heading."""
    path = PAGES[page]
    for target in re.findall(r"\]\(([^)#:]*(?:#[\w-]+)?)\)", path.read_text("utf-8")):
        file, _, heading = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), target
        if heading:
            lines = re.findall(r"^#+ (.*)$", found.read_text("utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines]
            assert heading in slugs, target


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_commands(page: str) -> None:
    """Every command of stoploss that a page shows exists."""
    shown = re.findall(
        r"(?:^    |`|stoploss\s{2})\S*stoploss ([a-z]+)\b", PAGES[page].read_text("utf-8"), re.MULTILINE
    )

    assert set(shown) <= set(COMMANDS)


def test_alerts_that_are_named_exist() -> None:
    """The page names alerts of the rules."""
    rules = (ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text("utf-8")
    known = {rule["alert"] for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]}

    assert set(re.findall(r"`(Stoploss\w+)`", PAGES["docs/operations.md"].read_text("utf-8"))) <= known


def test_every_deployed_file_is_told_of() -> None:
    """The overview links each folder of the deployment."""
    text = PAGES["deploy/README.md"].read_text("utf-8")

    assert [
        path.name for path in (ROOT / "deploy").iterdir() if path.is_dir() and path.name not in text
    ] == []


def test_a_copy_made_while_it_runs_is_whole(scene: Scene, tmp_path: Path) -> None:
    """What SQLite copies while the ledger is open is verified, fits the head, and takes further lines."""
    ledger = Ledger(f"sqlite:///{tmp_path}/state.db", environ={})
    for number in range(20):
        ledger.append(Entry(at=NOW, kind="note", why=f"line {number}"))
    source, copy = sqlite3.connect(tmp_path / "state.db"), sqlite3.connect(tmp_path / "copy.db")
    with closing(source), closing(copy):
        source.backup(copy)
    head = ledger.head()
    ledger.append(Entry(at=NOW, kind="note", why="after the copy"))
    ledger.close()

    assert head is not None
    url = f"sqlite:///{tmp_path}/copy.db"
    scene.run("ledger", "verify", "--state", url, "--head", f"{head.count}:{head.hash}")
    assert scene.status == 0
    restored = Ledger(url, environ={})
    assert restored.append(Entry(at=NOW, kind="note")).seq == 21
    assert restored.verify() == ()
    restored.close()
