"""Which resource each part of a condition is judged on, and how members meet their owner."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from stoploss.rules.conditions.typed import (
    Absent,
    Age,
    Arith,
    Bare,
    Compare,
    Condition,
    Fold,
    FoldNumber,
    Has,
    Junction,
    Label,
    Not,
    Share,
    TextTest,
    Window,
)
from stoploss.rules.units import SHARE, TIME

Root = Callable[..., Condition]
Told = Callable[..., list[tuple[str, str]]]
T = TypeVar("T")


def as_a(kind: type[T], node: object) -> T:
    """The node, which has to be of that class."""
    assert isinstance(node, kind)
    return node


def left_of(root: Root, text: str, each: str = "gpu") -> object:
    """The left side of a comparison judged on the policy's own kind."""
    return as_a(Compare, root(text, each)).left


def test_a_lower_kind_must_agree_as_a_whole(root: Root) -> None:
    """A comparison on the GPUs of a job is judged on each GPU and holds for all of them."""
    fold = as_a(Fold, root("max(gpu.utilization, 30m) < 5%"))
    inner = as_a(Compare, fold.inner)

    assert (fold.function, fold.level, inner.level, fold.text) == ("all", "job", "gpu", inner.text)


def test_members_meet_before_they_are_folded(root: Root) -> None:
    """Two values of one GPU are compared with each other, not with those of other GPUs."""
    inner = as_a(Compare, as_a(Fold, root("gpu.power < 35% * gpu.power_limit")).inner)

    assert (as_a(Bare, inner.left).level, as_a(Arith, inner.right).level, inner.level) == (
        "gpu",
        "gpu",
        "gpu",
    )


def test_an_upper_value_is_broadcast(root: Root) -> None:
    """A host's value compared in a policy about GPUs is judged on the GPU, without a fold."""
    comparison = as_a(Compare, root("host.cpu > gpu.utilization", "gpu"))

    assert (comparison.level, as_a(Bare, comparison.left).level) == ("gpu", "host")


def test_a_comparison_of_upper_values_alone_is_judged_on_the_own_kind(root: Root) -> None:
    """The root lies at the policy's kind even where every operand lies above it."""
    assert as_a(Compare, root("max(host.cpu, 5m) > 5%", "gpu")).level == "gpu"


def test_a_signal_of_several_kinds_means_the_nearest(root: Root) -> None:
    """A signal that the policy's kind carries is the policy's; else the nearest kind's."""
    own = as_a(Compare, root("rate(network.bytes, 5m) > 0", "instance")).left
    near = as_a(Compare, root("rate(network.bytes, 5m) > 0", "gpu")).left

    assert (as_a(Window, own).level, as_a(Window, near).level) == ("instance", "host")


@pytest.mark.parametrize("function", ["any", "all"])
def test_a_fold_judges_all_its_parts_on_one_member(root: Root, function: str) -> None:
    """Within any(…) every comparison and label is the member's, and upper values are broadcast."""
    text = f"{function}(gpu.power < 5W and env == 'x' and train.loss > 5 and not has(team))"
    fold = as_a(Fold, root(text))
    inner = as_a(Junction, fold.inner)

    assert (fold.function, fold.level, inner.level) == (function, "job", "gpu")
    assert [item.level for item in inner.items] == ["gpu"] * 4
    assert as_a(TextTest, inner.items[1]).operand == Label("env", "gpu")
    assert as_a(Bare, as_a(Compare, inner.items[2]).left).level == "job"


def test_most_keeps_its_share(root: Root) -> None:
    """`most` carries the part of the members that it needs."""
    fold = as_a(Fold, root("most(gpu.utilization < 5%, 75%)"))

    assert (fold.function, fold.share) == ("most", 0.75)


@pytest.mark.parametrize("function", ["mean", "total", "lowest", "highest"])
def test_a_number_is_folded_to_the_own_kind(root: Root, function: str) -> None:
    """A folded number lies at the policy's kind, its members below."""
    fold = as_a(FoldNumber, left_of(root, f"{function}(max(gpu.power, 5m)) > 5W", "job"))

    assert (fold.function, fold.level, as_a(Window, fold.inner).level) == (function, "job", "gpu")


def test_a_folded_number_is_broadcast_back_to_the_members(root: Root) -> None:
    """A GPU can be compared with the mean over the GPUs of its job."""
    inner = as_a(Compare, as_a(Fold, root("any(gpu.power < 50% * mean(gpu.power))")).inner)

    assert (inner.level, as_a(Arith, inner.right).level) == ("gpu", "job")


def test_not_and_junctions_stand_at_the_own_kind(root: Root) -> None:
    """Negation applies to what the fold says, not to each member."""
    negation = as_a(Not, root("not gpu.utilization < 5%"))

    assert negation.level == "job"
    assert isinstance(negation.inner, Fold)


def test_nested_junctions_of_one_operator_are_flat(root: Root) -> None:
    """`(a and b) and c` has three operands."""
    assert len(as_a(Junction, root("(has(team) and has(user)) and has(env)")).items) == 3


def test_a_constant_comparison_has_no_level(root: Root) -> None:
    """What names no resource is the same everywhere."""
    assert root("1 < 2 or 2 < 1").level is None


@pytest.mark.parametrize(
    ("text", "each"),
    [
        ("bucket.size > 5GB", "job"),
        ("gpu.power > 5W", "bucket"),
        ("checkpoint.size / 1h > network.bytes / 1h", "job"),
        ("any(checkpoint.size > 5GB and gpu.power < 5W)", "job"),
        ("share(checkpoint.size > 5GB and gpu.power < 5W, 1h) > 5%", "job"),
        ("total(checkpoint.size * gpu.utilization) > 5GB", "job"),
    ],
)
def test_kinds_without_a_relation_do_not_meet(told: Told, text: str, each: str) -> None:
    """Kinds that no chain of owners joins give one problem."""
    assert [code for code, _ in told(text, each)] == ["no-path"]


def test_unrelated_members_may_meet_once_folded(root: Root) -> None:
    """Values of two lower kinds are compared after each has been folded."""
    assert root("total(checkpoint.size) > total(network.bytes)").level == "job"


# share, absent, age, has


def test_a_share_is_judged_slot_by_slot_on_its_members(root: Root) -> None:
    """The condition within share(…) lies at the members, and the comparison around it is folded."""
    text = "share(gpu.power < 35% * gpu.power_limit and gpu.utilization < 5%, 1h) > 90%"
    share = as_a(Share, as_a(Compare, as_a(Fold, root(text)).inner).left)

    assert (share.level, share.condition.level, share.seconds, share.dimension) == (
        "gpu",
        "gpu",
        3600.0,
        SHARE,
    )


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ("max(gpu.power, 5m) < 5W", "max(gpu.power, 5m)"),
        ("age(train.step) > 5m", "age(train.step)"),
        ("absent(train.step, 5m)", "absent(train.step, 5m)"),
        ("any(gpu.power < 5W)", "any(gpu.power < 5W)"),
        ("mean(gpu.power) < 5W", "mean(gpu.power)"),
        ("gpu.power < 5W and has(team)", "has(team)"),
        ("gpu.power < 5W and env == 'x'", "env"),
    ],
)
def test_only_bare_signals_stand_within_share(told: Told, condition: str, shown: str) -> None:
    """Windows, folds and labels within share(…) are refused."""
    assert told(f"share({condition}, 1h) > 5%") == [("wrong-argument", shown)]


def test_a_state_may_stand_within_share(root: Root) -> None:
    """The share of slots in which a state held is a share of the job's slots."""
    share = as_a(Share, left_of(root, "share(loss.verdict == 'flat', 1h) > 50%", "job"))

    assert (share.level, as_a(TextTest, share.condition).level) == ("job", "job")


def test_absent_keeps_the_kind_of_its_series(root: Root) -> None:
    """absent on a lower kind is folded over all members; on an upper kind it stays there."""
    below = as_a(Fold, root("absent(gpu.power, 5m)"))
    above = as_a(Absent, root("absent(host.cpu, 5m)", "gpu"))

    assert (below.function, as_a(Absent, below.inner).level, above.level, above.seconds) == (
        "all",
        "gpu",
        "host",
        300.0,
    )


def test_absent_takes_no_attribute(told: Told) -> None:
    """An attribute has no age, so it cannot be absent for a time."""
    assert [code for code, _ in told("absent(gpu.model, 5m)")] == ["wrong-function"]


def test_age_is_a_duration(root: Root) -> None:
    """age(…) compares with durations."""
    assert as_a(Age, left_of(root, "age(gpu.power) > 10m")).dimension == TIME


@pytest.mark.parametrize(
    ("argument", "label"), [("team", "team"), ("label.x", "x"), ("label['aws:x']", "aws:x")]
)
def test_has_takes_any_spelling_of_a_label(root: Root, argument: str, label: str) -> None:
    """has(…) accepts every way to name a label."""
    assert as_a(Has, root(f"has({argument})")).label == label


# labels only


@pytest.mark.parametrize(
    "text",
    [
        "env == 'x' and has(team)",
        "kind == 'gpu' or id =~ '^a'",
        "gpu.model == 'H100'",
        "gpu.power_limit > 300W",
    ],
)
@pytest.mark.parametrize("each", ["gpu", None])
def test_labels_and_attributes_select(root: Root, text: str, each: str | None) -> None:
    """Selecting by labels and attributes works for one kind and for all kinds."""
    assert root(text, each, labels_only=True).level == (each or "any")


@pytest.mark.parametrize("each", ["gpu", None])
@pytest.mark.parametrize(
    "text",
    ["gpu.power < 5W", "max(gpu.power, 5m) < 5W", "absent(gpu.power, 5m)", "share(gpu.power < 5W, 1h) > 5%"],
)
def test_a_signal_cannot_select(told: Told, text: str, each: str | None) -> None:
    """A signal where only labels may stand gives one problem at its name."""
    assert told(text, each, labels_only=True) == [("labels-only", "gpu.power")]


@pytest.mark.parametrize("text", ["any(gpu.model == 'x')", "mean(gpu.power_limit) > 5W"])
def test_without_a_kind_there_are_no_members(told: Told, text: str) -> None:
    """A condition for every kind cannot fold, because it does not know whose members are meant."""
    assert [code for code, _ in told(text, None)] == ["wrong-argument"]
