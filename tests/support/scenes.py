"""Small recordings and policy files, audited through the real command."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stoploss.cli.main import run

START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def policy(when: str | Iterable[str], *, each: str = "gpu", **keys: str) -> str:
    """A policy file with one policy named p; `keys` are further lines, dashes for underscores."""
    conditions = [when] if isinstance(when, str) else list(when)
    lines = ["version: 1", "policies:", "  - name: p", f"    each: {each}"]
    lines += [f"    {name.replace('_', '-')}: {value}" for name, value in keys.items()]
    lines += ["    when:", *(f"      - '{condition}'" for condition in conditions)]
    return "\n".join(lines) + "\n"


def recording(
    values: Mapping[tuple[str, str, str], Iterable[object]],
    *,
    step: float = 60.0,
    labels: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """CSV of series (kind, resource, signal) -> one value per step; None leaves the slot out.

    `labels` are those of a resource, by its id.
    """
    names = sorted({name for said in (labels or {}).values() for name in said})
    lines = [",".join(["time", "resource", "kind", "signal", "value", *(f"label.{n}" for n in names)])]
    for (kind, resource, signal), column in values.items():
        said = (labels or {}).get(resource, {})
        for number, value in enumerate(column, 1):
            if value is not None:
                cells = [
                    START + number * step,
                    resource,
                    kind,
                    signal,
                    value,
                    *(said.get(n, "") for n in names),
                ]
                lines.append(",".join(str(cell) for cell in cells))
    return "\n".join(lines) + "\n"


class Scene:
    """Runs commands in a folder and reads their JSON."""

    def __init__(self, folder: Path, capsys: Any) -> None:
        self.folder, self.capsys = folder, capsys
        self.status = 0
        self.stderr = ""

    def write(self, name: str, text: str) -> str:
        """Put a file into the folder; returns its path."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def run(self, *arguments: str) -> str:
        """A command's stdout; its status and stderr are kept."""
        self.capsys.readouterr()
        self.status = run(arguments)
        captured = self.capsys.readouterr()
        self.stderr = captured.err
        return str(captured.out)

    def audit(self, policies: str, signals: str, *arguments: str) -> dict[str, Any]:
        """The audit of a policy text over a recording text."""
        files = self.write("policies.yaml", policies), self.write("signals.csv", signals)
        return self.json("audit", files[0], "--signals", files[1], *arguments)

    def json(self, *arguments: str) -> dict[str, Any]:
        """What a command prints as JSON."""
        out = self.run(*arguments, "--format", "json")
        assert self.status in (0, 1, 4), self.stderr
        result = json.loads(out)
        assert isinstance(result, dict)
        return result


def states(result: Mapping[str, Any]) -> dict[str, str]:
    """Resource id -> state, over the findings of an audit."""
    return {finding["resource"]["id"]: finding["state"] for finding in result["findings"]}


def reasons(result: Mapping[str, Any]) -> dict[str | None, str]:
    """Resource id -> reason, over the unknowns of an audit."""
    return {item["resource"] and item["resource"]["id"]: item["reason"] for item in result["unknown"]}
