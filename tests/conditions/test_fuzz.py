"""No text whatever makes the condition language raise."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from stoploss.rules.codes import CODES
from stoploss.rules.conditions.syntax import Problem
from stoploss.rules.conditions.typed import CheckedCondition

Check = Callable[..., tuple[CheckedCondition | None, tuple[Problem, ...]]]

VALID = (
    "max(gpu.utilization, 30m) < 5%",
    "max(gpu.power, 30m) < 35% * gpu.power_limit",
    "increase(train.step, 30m) == 0 or absent(train.step, 30m)",
    'env == "research" and class in ["train", "tune"]',
    "most(gpu.utilization < 5% and not has(label.keep), 75%)",
    "share(loss.verdict == 'flat', 1h30m) >= 90%",
    "cost.rate * 24h > $4.10 or total(gpu.power) > 5kW",
    'label["aws:x"] =~ "^release-\\\\d+$"',
    "rate(network.bytes, 5m) < 10 MB/s and age(train.step) > 10m",
    "p99.9(gpu.power, 1h) > -(-5W + 3 W) / 2",
)
TOKENS = (
    *(
        "and",
        "or",
        "not",
        "in",
        "<",
        "<=",
        "==",
        "=~",
        "!=",
        "+",
        "-",
        "*",
        "/",
        "(",
        ")",
        "[",
        "]",
        ",",
        ".",
    ),
    *(
        "&&",
        "||",
        "!",
        "=",
        "5%",
        "30m",
        "30 min",
        "5k",
        "$5",
        "€3/h",
        "1e999",
        "1,000",
        "3 gb",
        ".5",
        "99%/d",
    ),
    *(
        "gpu.power",
        "gpu.model",
        "train.step",
        "host.cpu",
        "bucket.size",
        "team",
        "kind",
        "label",
        "label.a-b",
    ),
    *("avg", "max(", "any(", "all(", "mean(", "share(", "absent(", "age(", "has(", "p95(", "p100(", "most("),
    *(
        "'x'",
        '"(a+)+"',
        '"["',
        '"',
        "'",
        "“",
        "\\",
        "\u00a0",
        "\n",
        "\ud800",
        "٣",
        "²",
        "{team}",
        "${X}",
        "\0",
    ),
)
KINDS = ("job", "gpu", "host", "team", "bucket", "checkpoint", None)


def mutated(random_: random.Random) -> str:
    """A valid condition with some characters deleted, doubled, swapped or replaced."""
    characters = list(random_.choice(VALID))
    for _ in range(random_.randint(1, 4)):
        place = random_.randrange(len(characters) + 1)
        match random_.randrange(4):
            case 0:
                del characters[place : place + random_.randint(1, 5)]
            case 1:
                characters[place:place] = random_.choice(TOKENS)
            case 2:
                characters[place:place] = characters[place : place + 8]
            case _:
                characters[place : place + 1] = random_.choice(random_.choice(VALID))
    return "".join(characters)


def token_soup(random_: random.Random) -> str:
    """Tokens of the language and of others in any order."""
    return random_.choice(("", " ")).join(random_.choices(TOKENS, k=random_.randint(0, 12)))


def unicode_soup(random_: random.Random) -> str:
    """Any code points, surrogates included."""
    return "".join(chr(random_.randrange(0x110000)) for _ in range(random_.randint(0, 12)))


@pytest.mark.parametrize(("make", "count"), [(mutated, 15_000), (token_soup, 8_000), (unicode_soup, 2_000)])
def test_no_line_raises(check: Check, make: Callable[[random.Random], str], count: int) -> None:
    """25,000 random lines give either a condition or problems with known codes and places inside."""
    random_ = random.Random(20261201)
    for _ in range(count):
        text, each = make(random_), random_.choice(KINDS)
        condition, problems = check(text, each, labels_only=random_.random() < 0.1)
        assert (condition is None) == bool(problems), text
        assert all(_sound(problem, text) for problem in problems), text
        if condition is not None:
            again, _ = check(condition.canonical, each)
            assert again is not None, text
            assert again.canonical == condition.canonical, text


def _sound(problem: Problem, text: str) -> bool:
    inside = 0 <= problem.offset <= len(text) and problem.offset + problem.length <= max(len(text), 1) + 1
    return problem.code in CODES and bool(problem.message) and problem.length > 0 and inside
