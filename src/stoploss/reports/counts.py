"""Numbers with their words."""

from __future__ import annotations


def count(number: int, word: str) -> str:
    """A number of things: `1 gpu`, `1,024 gpus`, `2 processes`, `3 policies`."""
    if number == 1:
        return f"1 {word}"
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{number:,} {word[:-1]}ies"
    return f"{number:,} {word}es" if word.endswith("s") else f"{number:,} {word}s"
