"""The slow and obvious evaluation: one row, one slot, one Python number at a time.

It reads a frame as a person would: for each slot it looks back over the window and applies
the sentences of the language one by one. It shares no code with the engine but the frame.
"""

from __future__ import annotations

import math
import re

from stoploss.engine.history.frame import BAD, Frame
from stoploss.engine.model import UNREADABLE, ResourceId
from stoploss.rules.catalogue import KINDS, PARENTS, path
from stoploss.rules.conditions import typed
from stoploss.rules.policy import Policy

F, U, T, OUT = 0, 1, 2, 3
ADOPTED = ("team", "user", "env", "class", "stage", "experiment")


class Row:
    """A stretch of a resource under one owner."""

    def __init__(self, resource, owner, start):
        self.resource, self.owner, self.start, self.end = resource, owner, start, None

    def active(self, slot):
        return self.start <= slot and (self.end is None or slot < self.end)


class Oracle:
    """Evaluates policies over one whole frame."""

    def __init__(self, frame: Frame, resolution: float = 60.0):
        self.frame, self.resolution = frame, resolution
        self.named = {}
        for resource, presence in frame.resources.items():
            for change in presence.changes:
                for kind in KINDS:
                    value = change.labels.get(kind)
                    if (
                        kind != resource.kind
                        and path(resource.kind, kind)
                        and isinstance(value, str)
                        and value
                    ):
                        key = ResourceId(kind, value)
                        self.named[key] = min(self.named.get(key, change.slot), change.slot)

    # ---- resources -------------------------------------------------------------------

    def first_seen(self, resource):
        own = self.frame.resources.get(resource)
        candidates = [own.first] if own else []
        if resource in self.named:
            candidates.append(self.named[resource])
        return min(candidates, default=math.inf)

    def said(self, resource, slot):
        """What a resource's own readings said of labels, as of a slot."""
        presence = self.frame.resources.get(resource)
        labels = {}
        for change in presence.changes if presence else ():
            if change.slot <= slot:
                labels = change.labels
        return labels

    def own_label(self, resource, label, slot):
        labels = self.said(resource, slot)
        if label in labels:
            return labels[label]
        if label in ADOPTED and resource.kind == "job":
            mentions = []
            for other, presence in self.frame.resources.items():
                if other.kind == "job" or path(other.kind, "job") is None:
                    continue
                before = None
                for change in presence.changes:
                    names = change.labels.get(resource.kind)
                    value = change.labels.get(label)
                    # What is only said again is no news.
                    news = (names, value) != before
                    before = names, value
                    if change.slot <= slot and names == resource.id and value is not None and news:
                        mentions.append((change.slot, other, value))
            if mentions:
                newest = max(mention[0] for mention in mentions)
                return min((m for m in mentions if m[0] == newest), key=lambda m: m[1])[2]
        return None

    def label(self, resource, label, slot):
        if slot < self.first_seen(resource):
            return None
        if label == "kind":
            return resource.kind
        if label in ("id", resource.kind):
            return resource.id
        value = self.own_label(resource, label, slot)
        if value is not None or label == "job":
            return value
        unreadable = None
        for kind in PARENTS.get(resource.kind, ()):
            if kind == label:
                continue
            parent = self.own_label(resource, kind, slot)
            if parent is UNREADABLE:
                unreadable = UNREADABLE
            elif isinstance(parent, str) and parent:
                value = self.label(ResourceId(kind, parent), label, slot)
                if isinstance(value, str):
                    return value
                if value is UNREADABLE:
                    unreadable = UNREADABLE
        return unreadable

    def borne(self, named, slot):
        """Whether anything that is there in a slot names a resource; what it cannot tell, it told before."""
        for resource, presence in self.frame.resources.items():
            if resource.kind == named.kind or not path(resource.kind, named.kind):
                continue
            name = None
            for change in presence.changes:
                given = change.labels.get(named.kind)
                if change.slot <= slot and given is not UNREADABLE:
                    name = given
            away = any(a <= slot and (b is None or slot < b) for a, b in presence.absences)
            if name == named.id and presence.first <= slot and not away:
                return True
        return False

    def rows(self, kind):
        result = []
        known = {r for r in self.frame.resources if r.kind == kind} | {
            r for r in self.named if r.kind == kind
        }
        for resource in sorted(known):
            presence = self.frame.resources.get(resource)
            absences = presence.absences if presence else ()
            row, owner = None, None
            for slot in range(self.first_seen(resource), self.frame.last + 1):
                gone = any(a <= slot and (b is None or slot < b) for a, b in absences)
                if presence is None or slot < presence.first:
                    gone = not self.borne(resource, slot)
                if kind in ("gpu", "host", "process"):
                    said = self.own_label(resource, "job", slot)
                    new = owner if said is UNREADABLE else said
                else:
                    new = None
                if row is not None and (gone or new != owner):
                    row.end = slot
                    row = None
                owner = new
                if not gone and row is None:
                    row = Row(resource, owner, slot)
                    result.append(row)
        return result

    def owner_rows(self, lower, upper_kind, slot):
        """The rows of an upper kind that a lower row belongs to in a slot."""
        names = set()
        value = self.label(lower.resource, upper_kind, slot)
        if isinstance(value, str):
            names.add(value)
        if lower.resource.kind == "host" and upper_kind == "job":
            for gpu in self.rows("gpu"):
                if (
                    gpu.active(slot)
                    and gpu.owner
                    and self.label(gpu.resource, "host", slot) == lower.resource.id
                ):
                    names.add(gpu.owner)
        return [r for r in self.rows(upper_kind) if r.active(slot) and r.resource.id in names]

    def members(self, row, kind, slot):
        found = []
        for lower in self.rows(kind):
            if lower.active(slot):
                owners = self.owner_rows(lower, row.resource.kind, slot)
                if any(o.resource == row.resource and o.start == row.start for o in owners):
                    found.append(lower)
        return found

    # ---- samples ---------------------------------------------------------------------

    def cell(self, signal, resource, slot):
        """(status, value) of a slot."""
        plane = self.frame.planes.get(signal.name)
        if plane is None or resource not in plane.series or not self.frame.first <= slot <= self.frame.last:
            return 0, None
        column = plane.series.index(resource)
        row = slot - self.frame.first
        return int(plane.status[row, column]), float(plane.values[row, column])

    def increase(self, signal, resource, slot):
        plane = self.frame.planes[signal.name]
        if not self.frame.first <= slot <= self.frame.last:
            return 0.0
        return float(plane.increase[slot - self.frame.first, plane.series.index(resource)])

    def cadence(self, signal, resource):
        plane = self.frame.planes.get(signal.name)
        if plane is None or resource not in plane.series:
            return 1
        return int(plane.cadence[plane.series.index(resource)])

    def valid(self, signal, resource, slot):
        return 0 < self.cell(signal, resource, slot)[0] < BAD

    def newest_look(self, signal, resource, slot):
        for at in range(slot, self.frame.first - 1, -1):
            if self.cell(signal, resource, at)[0]:
                return at
        return None

    def newest_valid(self, signal, resource, slot):
        for at in range(slot, self.frame.first - 1, -1):
            if self.valid(signal, resource, at):
                return at
        return None

    def covered(self, signal, resource, slot):
        at = self.newest_look(signal, resource, slot)
        return (
            at is not None and self.valid(signal, resource, at) and slot - at < self.cadence(signal, resource)
        )

    def looked(self, signal, slot):
        looks = self.frame.looks.get(signal.collector)
        if looks is None:
            return False
        for at in range(slot, self.frame.first - 1, -1):
            if at <= self.frame.last and looks[at - self.frame.first]:
                good = looks[at - self.frame.first] == 1
                return good and slot - at < self.frame.look_cadence.get(signal.collector, 1)
        return False

    def window(self, seconds):
        return max(1, math.ceil(seconds / self.resolution))

    # ---- numbers ---------------------------------------------------------------------

    def number(self, node, row, slot):
        """A number, or None for unknown."""
        row = self.at_level(node, row, slot)
        if row is None:
            return None
        match node:
            case typed.Const():
                return node.value
            case typed.Bare():
                return self.bare(node.signal, row, slot)
            case typed.Window():
                return self.windowed(node, row, slot)
            case typed.Age():
                at = self.newest_valid(node.signal, row.resource, slot)
                if at is None or at < row.start or not self.looked(node.signal, slot):
                    return None
                return (slot - at) * self.resolution
            case typed.Share():
                return self.share(node, row, slot)
            case typed.Arith():
                left, right = self.number(node.left, row, slot), self.number(node.right, row, slot)
                return arithmetic(node.op, left, right)
            case typed.FoldNumber():
                values = [self.number(node.inner, m, slot) for m in self.members(row, node.inner.level, slot)]
                if not values or any(v is None for v in values):
                    return None
                result = {
                    "mean": lambda v: sum(v) / len(v),
                    "total": sum,
                    "lowest": min,
                    "highest": max,
                }[node.function](values)
                return None if math.isnan(result) else result
        raise AssertionError(node)

    def at_level(self, node, row, slot):
        """The row that a node of an upper level is read from."""
        if row is None or node.level is None or node.level == row.resource.kind:
            return row
        owners = self.owner_rows(row, node.level, slot)
        return owners[0] if len(owners) == 1 else None

    def bare(self, signal, row, slot):
        if signal.is_attribute:
            at = self.newest_valid(signal, row.resource, slot)
            return None if at is None else self.cell(signal, row.resource, at)[1] * signal.factor
        if not self.covered(signal, row.resource, slot):
            return None
        at = self.newest_look(signal, row.resource, slot)
        return None if at < row.start else self.cell(signal, row.resource, at)[1] * signal.factor

    def known(self, signal, row, slot, window):
        slots = range(slot - window + 1, slot + 1)
        covered = sum(self.covered(signal, row.resource, s) for s in slots)
        return (
            self.covered(signal, row.resource, slot)
            and slot - row.start + 1 >= window
            and covered * 100 >= 80 * window
            and any(self.valid(signal, row.resource, s) for s in slots)
        )

    def windowed(self, node, row, slot):
        signal, window = node.signal, self.window(node.seconds)
        if not self.known(signal, row, slot, window):
            return None
        slots = [s for s in range(slot - window + 1, slot + 1) if self.valid(signal, row.resource, s)]
        values = [self.cell(signal, row.resource, s)[1] for s in slots]
        if node.function == "count":
            return float(len(values))
        if node.function in ("increase", "rate") and signal.kind.value == "counter":
            result = math.fsum(self.increase(signal, row.resource, s) for s in slots)
        elif node.function in ("sum", "rate"):
            result = math.fsum(values)
        elif node.function == "avg":
            result = (
                sum(values) / len(values) if any(map(math.isinf, values)) else math.fsum(values) / len(values)
            )
        elif node.function == "quantile":
            result = sorted(values)[math.ceil(node.quantile * len(values) / 1000) - 1]
        else:
            result = {"min": min(values), "max": max(values), "last": values[-1]}[node.function]
        if node.function == "rate":
            result /= window * self.resolution
        return None if math.isnan(result) else result * signal.factor

    def share(self, node, row, slot):
        window = self.window(node.seconds)
        if slot - row.start + 1 < window:
            return None
        truths = [self.truth(node.condition, row, s) for s in range(slot - window + 1, slot + 1)]
        known = [t for t in truths if t != U]
        if truths[-1] == U or len(known) * 100 < 80 * window:
            return None
        return sum(t == T for t in known) / len(known)

    # ---- truths ----------------------------------------------------------------------

    def truth(self, node, row, slot):
        row = self.at_level(node, row, slot)
        if row is None:
            return U
        match node:
            case typed.Compare():
                left, right = self.number(node.left, row, slot), self.number(node.right, row, slot)
                return U if left is None or right is None else (T if compared(node.op, left, right) else F)
            case typed.TextTest():
                return self.text(node, row, slot)
            case typed.Absent():
                return self.absent(node, row, slot)
            case typed.Has():
                value = self.label(row.resource, node.label, slot)
                return U if value is UNREADABLE else F if value is None else T
            case typed.Not():
                return T - self.truth(node.inner, row, slot)
            case typed.Junction():
                truths = [self.truth(item, row, slot) for item in node.items]
                return min(truths) if node.op == "and" else max(truths)
            case typed.Fold():
                return self.fold(node, row, slot)
        raise AssertionError(node)

    def fold(self, node, row, slot):
        truths = [self.truth(node.inner, m, slot) for m in self.members(row, node.inner.level, slot)]
        if not truths:
            return U
        if node.function != "most":
            return min(truths) if node.function == "all" else max(truths)
        enough = math.ceil(node.share * len(truths) - 1e-9)
        if truths.count(T) >= enough:
            return T
        return U if truths.count(T) + truths.count(U) >= enough else F

    def text(self, node, row, slot):
        operand = node.operand
        if isinstance(operand, typed.Label):
            value = self.label(row.resource, operand.name, slot)
            if value is UNREADABLE:
                return U
            if value is None:
                return T if node.op == "!=" else F
        else:
            row = self.at_level(operand, row, slot)
            if row is None:
                return U
            if operand.seconds is None:
                code = self.bare(operand.signal, row, slot)
            else:
                window = typed.Window(
                    "last", operand.signal, operand.seconds, operand.signal.dimension, operand.level
                )
                code = self.windowed(window, row, slot)
            if code is None:
                return U
            value = self.frame.planes[operand.signal.name].words[int(code)]
        word = node.words[0]
        holds = {
            "==": value == word,
            "!=": value != word,
            "in": value in node.words,
            "<": value < word,
            ">": value > word,
            "<=": value <= word,
            ">=": value >= word,
        }.get(node.op)
        if node.op == "=~":
            holds = re.search(word, value) is not None
        return T if holds else F

    def absent(self, node, row, slot):
        window = self.window(node.seconds)
        slots = range(slot - window + 1, slot + 1)
        if any(self.valid(node.signal, row.resource, s) for s in slots):
            return F
        bad = any(self.cell(node.signal, row.resource, s)[0] >= BAD for s in slots)
        looked = sum(self.looked(node.signal, s) for s in slots)
        enough = self.looked(node.signal, slot) and looked * 100 >= 80 * window
        return T if enough and not bad and slot - row.start + 1 >= window else U

    # ---- policies --------------------------------------------------------------------

    def policy_truth(self, policy: Policy, row, slot):
        if not row.active(slot):
            return OUT
        truth = T if policy.when is None else self.truth(policy.when, row, slot)
        if policy.min_age and slot - row.start + 1 < self.window(policy.min_age):
            truth = F
        if policy.where is not None:
            selected = self.truth(policy.where.root, row, slot)
            truth = OUT if selected == F else U if selected == U else truth
        return truth

    def policy(self, policy: Policy):
        """Per row: (truths, states) of every slot of the frame."""
        result = {}
        for row in self.rows(policy.each):
            truths = [self.policy_truth(policy, row, s) for s in range(self.frame.first, self.frame.last + 1)]
            result[row.resource, row.start] = truths, lifecycle(policy, truths, self.resolution)
        return result


def compared(op, left, right):
    """A comparison in which numbers within 1e-9 of the right side are equal."""
    equal = left == right or (
        math.isfinite(left) and math.isfinite(right) and abs(left - right) <= 1e-9 * abs(right)
    )
    return {
        "==": equal,
        "!=": not equal,
        "<": left < right and not equal,
        ">": left > right and not equal,
        "<=": left < right or equal,
        ">=": left > right or equal,
    }[op]


def arithmetic(op, left, right):
    """An arithmetic result, or None where it is unknown or not finite."""
    if left is None or right is None or (op == "/" and right == 0):
        return None
    result = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "/": lambda: left / right,
    }[op]()
    return result if math.isfinite(result) else None


def lifecycle(policy, truths, resolution=60.0):
    """The states of a row, one slot after the other."""
    pending = math.ceil(policy.for_seconds / resolution)
    hold = math.ceil(policy.hold_seconds / resolution)
    lost = round(86_400 / resolution)
    trues = falses = unknowns = 0
    firing = False
    states = []
    for truth in truths:
        unknowns = unknowns + 1 if truth == U else 0
        if truth == OUT or unknowns >= lost:
            trues = falses = 0
            firing = False
        elif truth == T:
            trues, falses = trues + 1, 0
            firing = firing or trues > pending
        elif truth == F:
            trues, falses = 0, falses + 1
            firing = firing and falses <= hold
        if firing:
            states.append("holding" if falses else "firing")
        else:
            states.append("pending" if trues else "inactive")
    return states
