"""Write the pages under docs/reference/ from the tables of the program.

python docs/reference.py            write the pages
python docs/reference.py --check    only tell which pages are out of date
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "src"))

from stoploss.reports.words import signal_example, unit_text  # noqa: E402
from stoploss.rules.catalogue import Signal  # noqa: E402
from stoploss.rules.codes import CODES  # noqa: E402
from stoploss.rules.conditions.functions import FUNCTIONS, functions_for  # noqa: E402
from stoploss.rules.signals import FAMILIES  # noqa: E402

FOLDER = ROOT / "docs" / "reference"
NOTE = "<!-- Written by docs/reference.py; changes made here are lost. -->"


def pages() -> dict[str, str]:
    """File name -> text of every page."""
    return {"signals.md": signals_page(), "functions.md": functions_page(), "codes.md": codes_page()}


def signals_page() -> str:
    """Every signal, family by family."""
    parts = [
        "# Signals",
        NOTE,
        "A signal is a named series of a resource, with a unit. `stoploss explain NAME` prints one entry. "
        "Signals stand here before a collector of this version provides them, so that policies can be "
        "written and tested.",
        "`derived` means that the engine works it out from other signals and from prices.",
    ]
    for title, signals in FAMILIES.items():
        parts += [f"## {title}", *(_signal(signal) for signal in signals)]
    return _joined(parts)


def _signal(signal: Signal) -> str:
    functions = functions_for(signal.kind)
    facts = [
        signal.kind.value,
        unit_text(signal),
        f"of {', '.join(signal.resources)}",
        f"from {signal.collector}",
    ]
    if signal.otel:
        facts.append(f"`{signal.otel}` in OpenTelemetry")
    if signal.better:
        facts.append(f"{signal.better} is better")
    if signal.rewinds:
        facts.append("may go back")
    lines = [f"### {signal.name}", "", signal.meaning, "", f"{' · '.join(facts)}.  "]
    lines.append(f"Functions: {', '.join(f'`{name}`' for name in functions) or 'none; it is used bare'}.  ")
    if signal.values:
        lines.append(f"Values: {', '.join(f'`{value}`' for value in signal.values)}.  ")
    lines.append(f"Example: `{signal_example(signal)}`")
    return "\n".join(lines)


def functions_page() -> str:
    """Every function of the condition language."""
    parts = ["# Functions", NOTE, "WINDOW is a duration such as `30m` or `1h30m`; the window ends now."]
    for function in FUNCTIONS.values():
        fits = ", ".join(kind.value for kind in function.kinds)
        parts += [f"## {function.name}", f"`{function.usage}`", function.help]
        parts += [f"Fits: {fits}."] if fits else []
    return _joined(parts)


def codes_page() -> str:
    """Every error code."""
    parts = [
        "# Error codes",
        NOTE,
        "Each problem in a file ends with its code in brackets. Errors stop the command; "
        "warnings and infos do not.",
    ]
    for name, code in CODES.items():
        parts += [f"## {name}", f"{code.severity}: {code.title}", code.help]
    return _joined(parts)


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"


def outdated() -> list[str]:
    """Names of the pages whose text is not what it should be."""
    paths = {name: FOLDER / name for name in pages()}
    return [
        name
        for name, text in pages().items()
        if not paths[name].exists() or paths[name].read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str]) -> int:
    """Write the pages, or check them; returns the exit status."""
    stale = outdated()
    if arguments == ["--check"]:
        for name in stale:
            print(f"docs/reference/{name} is out of date: run python docs/reference.py")
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (FOLDER / name).write_text(pages()[name], encoding="utf-8")
        print(f"docs/reference/{name} written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
