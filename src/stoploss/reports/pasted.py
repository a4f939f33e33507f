"""Commands that can be pasted, within 80 columns."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

WIDTH = 80


def joined(command: Sequence[str], options: Sequence[str] = ()) -> str:
    """A command of stoploss with its options, quoted for a shell."""
    return shlex.join(["stoploss", *command, *options])


def commands(command: str, indent: str) -> Iterator[str]:
    """A command that can be pasted, on as many lines as it takes at 80 columns."""
    line = indent
    for at, word in enumerate(_words(command)):
        if at and len(line) + len(word) + 3 > WIDTH:
            yield f"{line} \\"
            line = f"{indent}  {word}"
        else:
            line += word if not at else f" {word}"
    yield line


def _words(command: str) -> list[str]:
    # A name must not steer the terminal; one that would is not pasted as it is.
    shown = "".join(c if c.isprintable() else "�" for c in command)
    return [shlex.quote(word) for word in shlex.split(shown)]
