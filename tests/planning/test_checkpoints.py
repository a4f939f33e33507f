"""Which checkpoints may be deleted."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from stoploss.engine.planning.checkpoints import Checkpoint, prunable


def one(step: int, **keys: object) -> Checkpoint:
    said: dict[str, object] = {
        "complete": True,
        "newest": False,
        "best": False,
        "referenced": False,
        "age": 1e6,
    }
    return Checkpoint(f"step-{step}", float(step), **said | keys)  # type: ignore[arg-type]


ELEVEN = [one(step) for step in range(9000, 10001, 100)]


def test_P_D17_steps_are_numbers() -> None:
    """10000 is newer than 9000, so the two newest stay and the nine before them may go."""
    gone, stays = prunable(sorted(ELEVEN, key=lambda item: item.id))

    assert gone == tuple(f"step-{step}" for step in range(9000, 9900, 100))
    assert set(stays) == {"step-9900", "step-10000"}


def test_P_D17_the_best_a_milestone_and_one_in_use_stay() -> None:
    """Each says why."""
    mine = [
        replace(ELEVEN[0], best=True),
        replace(ELEVEN[1], referenced=True),
        replace(ELEVEN[2], milestone=True),
        replace(ELEVEN[3], best=None),
        *ELEVEN[4:],
    ]
    gone, stays = prunable(mine)

    assert gone[0] == "step-9400"
    assert [stays[item.id] for item in mine[:4]] == [
        "the best checkpoint is kept",
        "a checkpoint in use is kept",
        "a milestone is kept",
        "whether it is the best is not known, so it is kept",
    ]


def test_what_may_still_be_written_or_is_young_stays() -> None:
    """An incomplete one after the newest is being written; one before it is left over."""
    mine = [one(50, complete=False), *ELEVEN, one(10100, complete=False)]

    assert prunable(mine)[0][0] == "step-50"
    assert "step-10100" in prunable(mine)[1]
    assert prunable(mine, older_than=2e6)[0] == ()
    assert len(prunable(mine, keep=5)[0]) == 7


FLAG = st.sampled_from([False] * 8 + [True, None])
MOSTLY = st.sampled_from([True] * 6 + [False, None])


@given(
    st.lists(
        st.builds(
            Checkpoint,
            id=st.integers(0, 10**6).map(lambda n: f"c{n}"),
            step=st.none() | st.integers(0, 20000).map(float),
            complete=MOSTLY,
            newest=FLAG,
            best=FLAG,
            referenced=FLAG,
            milestone=FLAG,
            age=st.none() | st.floats(0, 1e7),
        ),
        max_size=12,
        unique_by=lambda item: item.id,
    ),
    st.integers(0, 4),
)
def test_never_below_two_nor_what_is_needed(checkpoints: list[Checkpoint], keep: int) -> None:
    """Whatever is known, two complete ones stay where there are two, and nothing needed or unclear goes."""
    gone, _ = prunable(checkpoints, keep)
    left = [item for item in checkpoints if item.id not in gone]
    complete = [item for item in checkpoints if item.complete]

    assert len([item for item in left if item.complete]) >= min(2, len(complete))
    for item in checkpoints:
        if item.id in gone:
            assert (item.newest, item.best, item.referenced, item.milestone) == (False,) * 4
            assert item.step is not None
            if item.complete:
                newer = [other for other in complete if (other.step or 0.0, other.id) > (item.step, item.id)]
                assert len(newer) >= 2
