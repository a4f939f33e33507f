"""Random small worlds and conditions for property tests."""

from __future__ import annotations

import random

import numpy as np

from stoploss.engine.history.frame import (
    BAD,
    MINUS_INFINITY,
    NOT_A_NUMBER,
    PLUS_INFINITY,
    Frame,
    LabelChange,
    Plane,
    Presence,
)
from stoploss.engine.model import UNREADABLE, ResourceId
from stoploss.rules.catalogue import Catalogue, Signal, SignalKind
from stoploss.rules.conditions import typed
from stoploss.rules.conditions.typed import CheckedCondition
from stoploss.rules.diagnostics import Position
from stoploss.rules.policy import Policy
from stoploss.rules.units import NUMBER, SHARE, TIME

K = SignalKind
SIGNALS = {
    signal.name: signal
    for signal in (
        Signal("gpu.load", K.GAUGE, "share", ("gpu",), "", "gpu"),
        Signal("gpu.heat", K.GAUGE, "MHz", ("gpu",), "", "gpu"),
        Signal("gpu.limit", K.ATTRIBUTE, "share", ("gpu",), "", "gpu"),
        Signal("gpu.bytes", K.COUNTER, "B", ("gpu", "host"), "", "net"),
        Signal("gpu.errors", K.EVENT, "1", ("gpu",), "", "gpu"),
        Signal("host.load", K.GAUGE, "share", ("host",), "", "net"),
        Signal("job.step", K.COUNTER, "1", ("job",), "", "log"),
        Signal("job.loss", K.CURVE, "1", ("job",), "", "log", better="lower"),
        Signal("job.phase", K.STATE, "text", ("job",), "", "log", values=("load", "train", "eval")),
    )
}
CATALOGUE = Catalogue(tuple(SIGNALS.values()))
HERE = Position("p.yaml")
KINDS = ("gpu", "host", "job")
BELOW = {"job": ("gpu", "host"), "host": ("gpu",), "gpu": ()}
ABOVE = {"gpu": ("job", "host"), "host": ("job",), "job": ()}
WORDS = ("load", "train", "eval")


def frame(rng: random.Random, slots: int = 40) -> Frame:
    """A few GPUs on two hosts under changing jobs, with holes, bad readings and odd clocks."""
    first = rng.randrange(1000, 2000)
    gpus = [ResourceId("gpu", f"g{n}") for n in range(rng.randint(1, 3))]
    hosts = [ResourceId("host", f"h{n}") for n in range(rng.randint(0, 2))]
    jobs = [ResourceId("job", f"j{n}") for n in range(rng.randint(0, 2))]
    planes, seen = {}, {}
    for signal in SIGNALS.values():
        if rng.random() < 0.1:
            continue
        carriers = [r for r in (*gpus, *hosts, *jobs) if r.kind in signal.resources and rng.random() < 0.9]
        if carriers:
            planes[signal.name] = plane(rng, signal, carriers, slots)
            for column, resource in enumerate(carriers):
                looks = np.flatnonzero(planes[signal.name].status[:, column])
                if len(looks):
                    at = first + int(looks[0])
                    seen[resource] = min(seen.get(resource, at), at)
    resources = {r: presence(rng, r, at, first + slots - 1) for r, at in seen.items()}
    looks, cadence = {}, {}
    for collector in ("gpu", "net", "log"):
        if rng.random() < 0.85:
            looks[collector] = np.array(rng.choices([0, 1, 2], [1, 8, 1], k=slots), dtype=np.uint8)
            cadence[collector] = rng.choice([1, 1, 2, 3])
    return Frame(60.0, first, slots, planes, resources, looks, cadence, {}, ("N/A", "odd"))


def plane(rng: random.Random, signal: Signal, carriers, slots: int) -> Plane:
    shape = (slots, len(carriers))
    values, status = np.full(shape, np.nan), np.zeros(shape, dtype=np.uint8)
    increase = np.zeros(shape) if signal.kind is K.COUNTER else None
    cadence = np.array([rng.choice([1, 1, 1, 2, 5]) for _ in carriers], dtype=np.int32)
    if rng.random() < 0.5:
        cadence[:] = 1
    for column in range(len(carriers)):
        start, last = rng.choice([0, 0, rng.randrange(slots)]), None
        holes = rng.choice([0.0, 0.05, 0.3])
        for row in range(start, slots):
            if rng.random() < holes or (row - start) % cadence[column]:
                continue
            if rng.random() < 0.04:
                status[row, column] = BAD + rng.randrange(2)
                continue
            status[row, column] = 1
            values[row, column] = value(rng, signal, last)
            if signal.kind is K.CURVE and rng.random() < 0.05:
                status[row, column] = rng.choice([NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY])
                values[row, column] = np.inf
            if increase is not None:
                step = values[row, column] - (last if last is not None else values[row, column])
                increase[row, column] = step if step >= 0 else values[row, column]
                last = values[row, column]
    words = WORDS if signal.is_text else ()
    return Plane(signal, tuple(carriers), values, status, cadence, increase, words)


def value(rng: random.Random, signal: Signal, last: float | None) -> float:
    if signal.is_text:
        return float(rng.randrange(len(WORDS)))
    if signal.kind is K.COUNTER:
        return 0.0 if rng.random() < 0.05 else (last or 0.0) + rng.choice([0, 0, 1, 5])
    # One decimal, so that exact ties happen.
    return rng.choice([0.0, 0.1, 0.2, 0.3, 0.5, 0.9])


def presence(rng: random.Random, resource: ResourceId, first: int, last: int) -> Presence:
    changes = [LabelChange(first, labels(rng, resource))]
    while rng.random() < 0.4:
        slot = changes[-1].slot + rng.randint(1, 20)
        if slot > last:
            break
        changes.append(LabelChange(slot, {**changes[-1].labels, **labels(rng, resource)}))
    absences = ()
    if rng.random() < 0.1 and first + 8 < last:
        gone = rng.randint(first + 1, last)
        absences = ((gone, rng.choice([None, min(gone + 3, last)])),)
    return Presence(first, tuple(changes), absences)


def labels(rng: random.Random, resource: ResourceId) -> dict:
    said = {}
    if resource.kind in ("gpu", "host"):
        said["job"] = rng.choice(["j0", "j0", "j1", "j7", None, UNREADABLE])
    if resource.kind == "gpu":
        said["host"] = rng.choice(["h0", "h0", "h1", None])
    for name, choices in (("team", ["a", "b", None, UNREADABLE]), ("env", ["x", "", None])):
        if rng.random() < 0.6:
            said[name] = rng.choice(choices)
    return {name: v for name, v in said.items() if rng.random() < 0.9}


# ---- conditions ------------------------------------------------------------------------


def condition(rng: random.Random, level: str, depth: int = 3) -> typed.Condition:
    """A random checked condition judged at `level`."""
    pick = rng.random()
    if depth > 0 and pick < 0.35:
        items = tuple(condition(rng, level, depth - 1) for _ in range(rng.randint(2, 3)))
        return typed.Junction(rng.choice(["and", "or"]), items, level)
    if depth > 0 and pick < 0.45:
        return typed.Not(condition(rng, level, depth - 1), level)
    if pick < 0.6 and BELOW[level]:
        lower = rng.choice(BELOW[level])
        inner = condition(rng, lower, min(depth - 1, 1)) if rng.random() < 0.3 else leaf(rng, lower)
        if inner.level is None:
            inner = leaf(rng, lower, plain=True)
        function = rng.choice(["all", "all", "any", "most"])
        return typed.Fold(function, inner, level, rng.choice([0.5, 0.75]) if function == "most" else 1.0)
    return leaf(rng, level)


def leaf(rng: random.Random, level: str, *, plain: bool = False) -> typed.Condition:
    pick = rng.random()
    if pick < 0.1:
        return typed.Has(rng.choice(["team", "env", "job", "host"]), level, "")
    if pick < 0.25:
        label = typed.Label(rng.choice(["team", "env", "job", "kind", "id"]), level)
        return typed.TextTest(rng.choice(["==", "!=", "in", "=~", "<"]), label, ("a", "j0"), level, "")
    if pick < 0.35 and (level == "job" or (not plain and "job" in ABOVE[level])):
        text = typed.TextSignal(SIGNALS["job.phase"], "job", rng.choice([None, None, 300.0]))
        # Judged on its own kind, or handed down to the row's.
        at = rng.choice(["job", level])
        return typed.TextTest(rng.choice(["==", "!=", "in"]), text, ("train", "eval"), at, "")
    if pick < 0.45:
        return typed.Absent(signal_of(rng, level), seconds(rng), level, "")
    left = number(rng, level, 1)
    constants = [0.0, 0.1, 0.2, 0.3, 0.5, 1.0, 5.0, 120.0, float(rng.random())]
    right = typed.Const(rng.choice(constants), NUMBER, "")
    if rng.random() < 0.25:
        right = number(rng, level, 1)
    if rng.random() < 0.1:
        left, right = right, left
    if left.level is None:
        left = number(rng, level, 0)
    return typed.Compare(rng.choice(["<", "<=", ">", ">=", "==", "!="]), left, right, level, "")


def signal_of(rng: random.Random, level: str, kinds=None) -> Signal:
    fitting = [
        s
        for s in SIGNALS.values()
        if level in s.resources
        and not s.is_text
        and not s.is_attribute
        and (kinds is None or s.kind in kinds)
    ]
    return rng.choice(fitting)


def seconds(rng: random.Random) -> float:
    return rng.choice([60.0, 90.0, 300.0, 300.0, 600.0, 1200.0])


def number(rng: random.Random, level: str, depth: int) -> typed.Number:
    """A random number at `level`, or above it."""
    pick = rng.random()
    if pick < 0.15:
        at = rng.choice((level, *ABOVE[level]))
        return typed.Bare(signal_of(rng, at), at)
    if pick < 0.2 and level == "gpu":
        return typed.Bare(SIGNALS["gpu.limit"], "gpu")
    if pick < 0.27:
        return typed.Age(signal_of(rng, level), TIME, level)
    if pick < 0.37:
        return typed.Share(bare_condition(rng, level), seconds(rng), SHARE, level)
    if pick < 0.47 and depth:
        left = number(rng, level, depth - 1)
        right = rng.choice([typed.Const(2.0, NUMBER, ""), number(rng, level, 0)])
        return typed.Arith(rng.choice("+-*/"), left, right, NUMBER, level)
    if pick < 0.57 and depth and BELOW[level]:
        inner = window(rng, rng.choice(BELOW[level]))
        return typed.FoldNumber(rng.choice(["mean", "total", "lowest", "highest"]), inner, NUMBER, level)
    return window(rng, rng.choice((level, level, level, *ABOVE[level])))


def bare_condition(rng: random.Random, level: str) -> typed.Condition:
    left = typed.Bare(signal_of(rng, level), level)
    test = typed.Compare(rng.choice(["<", ">="]), left, typed.Const(0.3, NUMBER, ""), level, "")
    return typed.Not(test, level) if rng.random() < 0.3 else test


def window(rng: random.Random, level: str) -> typed.Window:
    signal = signal_of(rng, level)
    functions = {
        K.GAUGE: ("avg", "min", "max", "quantile", "count", "last"),
        K.COUNTER: ("increase", "rate", "last"),
        K.EVENT: ("sum", "rate", "count"),
        K.CURVE: ("last", "min", "max", "avg"),
    }[signal.kind]
    function = rng.choice(functions)
    quantile = rng.choice([500, 900, 990, 999]) if function == "quantile" else 0
    return typed.Window(function, signal, seconds(rng), NUMBER, level, quantile)


def policy(rng: random.Random, number_: int = 0) -> Policy:
    """A random policy over a random kind."""
    each = rng.choice(KINDS)
    where = None
    if rng.random() < 0.4:
        label = typed.Label(rng.choice(["team", "env"]), each)
        root = typed.TextTest(rng.choice(["==", "!="]), label, (rng.choice(["a", "x"]),), each, "")
        where = CheckedCondition("", f"w{number_}", root, ())
    return Policy(
        f"p{number_}",
        each,
        HERE,
        where=where,
        when=condition(rng, each),
        canonical=f"c{number_}",
        for_seconds=rng.choice([0.0, 0.0, 120.0, 300.0]),
        hold_seconds=rng.choice([0.0, 0.0, 120.0]),
        min_age=rng.choice([0.0, 0.0, 0.0, 300.0]),
    )
