"""What a word means: a signal, a function, a key, an error code, or a policy of a pack.

`look_up` finds every meaning of a word; `as_text` and `as_json` print them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from stoploss.reports.pack_words import pack_policies
from stoploss.rules.catalogue import Signal, SignalKind, catalogue
from stoploss.rules.codes import CODES
from stoploss.rules.conditions.functions import FUNCTIONS, Function, find_function, functions_for

WIDTH = 80


@dataclass(frozen=True, slots=True)
class Meaning:
    """One meaning of a word.

    Attributes:
        what: signal, function, key, error code or policy of a pack.
        word: the word itself.
        text: what it means, in one or two sentences.
        facts: name and value of what else there is to say, in the order of printing.
        example: a line that uses it, or None.
    """

    what: str
    word: str
    text: str
    facts: tuple[tuple[str, str], ...] = ()
    example: str | None = None


def look_up(word: str) -> tuple[Meaning, ...]:
    """Every meaning of a word; none for an unknown one."""
    meanings: list[Meaning] = []
    signal = catalogue().get(word)
    if signal is not None:
        meanings.append(signal_meaning(signal))
    function = find_function(word)
    if function is not None:
        meanings.append(function_meaning(function))
    meanings.extend(key for key in _keys() if key.word == word)
    if word in CODES:
        code = CODES[word]
        meanings.append(
            Meaning("error code", word, code.help, (("title", code.title), ("severity", code.severity)))
        )
    policy = pack_policies().get(word)
    if policy is not None:
        meanings.append(Meaning("policy of a pack", word, *policy))
    return tuple(meanings)


def known_words() -> tuple[str, ...]:
    """Every word that has a meaning, sorted."""
    keys = {key.word for key in _keys()}
    return tuple(sorted({*catalogue(), *FUNCTIONS, *CODES, *keys, *pack_policies()}))


def signal_meaning(signal: Signal) -> Meaning:
    """What a signal is, where it comes from, and how a condition uses it."""
    functions = functions_for(signal.kind)
    facts = [
        ("kind", signal.kind.value),
        ("unit", unit_text(signal)),
        ("resources", ", ".join(signal.resources)),
        ("collector", signal.collector),
        ("functions", ", ".join(functions) if functions else "none: it is used bare"),
    ]
    if signal.values:
        facts.append(("values", ", ".join(signal.values)))
    if signal.better:
        facts.append(("better", signal.better))
    if signal.rewinds:
        facts.append(("rewinds", "may go back, which adds nothing"))
    if signal.otel:
        facts.append(("OpenTelemetry", signal.otel))
    return Meaning("signal", signal.name, signal.meaning, tuple(facts), signal_example(signal))


def unit_text(signal: Signal) -> str:
    """The unit of a signal for people."""
    return {"share": "share (written 5%)", "1": "plain number"}.get(signal.unit, signal.unit)


_AMOUNTS = {
    "share": "5%",
    "1": "0",
    "s": "1h",
    "B": "10 GB",
    "B/s": "10 MB/s",
    "1/s": "5/s",
    "W": "100 W",
    "Wh": "1 kWh",
    "C": "80 C",
    "MHz": "1000 MHz",
    "GPU-hours": "100 GPU-hours",
    "money": "$100",
    "money/h": "$10/h",
    "money/GPU-hour": "$2/GPU-hour",
    "money/GB-month": "$0.10/GB-month",
}

_WORDS = {
    "gpu.driver": "580.95.05",
    "gpu.model": "NVIDIA H100 80GB HBM3",
    "gpu.performance_state": "P0",
    "gpu.xid": "79",
    "instance.lifecycle": "spot",
    "instance.type": "p5.48xlarge",
}


def signal_example(signal: Signal) -> str:
    """A condition that uses a signal."""
    if signal.is_text:
        return f'{signal.name} == "{signal.values[-1] if signal.values else _WORDS.get(signal.name, "none")}"'
    if signal.is_attribute:
        return f"{signal.name} > {_AMOUNTS[signal.unit]}"
    function = {
        SignalKind.COUNTER: "increase",
        SignalKind.EVENT: "sum",
        SignalKind.CURVE: "last",
    }.get(signal.kind, "avg")
    return f"{function}({signal.name}, 30m) > {_AMOUNTS[signal.unit]}"


def function_meaning(function: Function) -> Meaning:
    """What a function does and which signals it takes."""
    facts = [("usage", function.usage)]
    if function.kinds:
        facts.append(("fits", ", ".join(kind.value for kind in function.kinds)))
    return Meaning("function", function.name, function.help, tuple(facts))


@cache
def _keys() -> tuple[Meaning, ...]:
    # Pydantic is imported here and not above: other words do without it.
    from stoploss.reports.keys import all_keys

    return tuple(
        Meaning(
            "key",
            key.name,
            key.text,
            (
                ("section", ", ".join(key.sections)),
                ("type", key.type),
                *((("default", key.default),) if key.default else ()),
            ),
            key.example,
        )
        for key in all_keys()
    )


def as_text(meanings: Sequence[Meaning]) -> str:
    """The meanings for a terminal."""
    return "\n\n".join(_paragraph(meaning) for meaning in meanings)


def _paragraph(meaning: Meaning) -> str:
    lines = [f"{meaning.word} · {meaning.what}", ""]
    lines += textwrap.wrap(meaning.text, WIDTH - 2, initial_indent="  ", subsequent_indent="  ")
    facts = [*meaning.facts, *([("example", meaning.example)] if meaning.example else [])]
    width = max((len(name) for name, _ in facts), default=0) + 2
    if facts and meaning.text:
        lines.append("")
    for name, value in facts:
        lines += textwrap.wrap(
            value, WIDTH - 2, initial_indent=f"  {name:<{width}}", subsequent_indent=" " * (width + 2)
        )
    return "\n".join(lines)


def as_json(word: str, meanings: Sequence[Meaning]) -> dict[str, Any]:
    """The meanings as JSON values."""
    return {
        "version": 1,
        "word": word,
        "meanings": [
            {"what": item.what, "word": item.word, "text": item.text}
            | {name.lower(): value for name, value in item.facts}
            | ({"example": item.example} if item.example else {})
            for item in meanings
        ],
    }
