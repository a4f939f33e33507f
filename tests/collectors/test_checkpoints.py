"""The checkpoints collector: what is complete, what is newest, and what fails."""

from __future__ import annotations

import json
import os
import shutil
import time
import tracemalloc
from pathlib import Path

import pytest
from pydantic import ValidationError
from support.checkpoints import AT, PICKLE, collector, having, hugging_face, labels, of, put
from support.scenes import START, Scene, policy
from support.unprivileged import unprivileged

from stoploss.collectors import checkpoint_census
from stoploss.collectors.checkpoint_census import Census
from stoploss.collectors.checkpoint_layouts import MEGATRON
from stoploss.collectors.checkpoints_options import Options
from stoploss.collectors.contract import CollectorError
from stoploss.engine.model import Bad


def test_P_D17_eleven_checkpoints_in_the_order_of_their_steps(tmp_path: Path) -> None:
    """Of steps 9000 to 10000 the newest is 10000, however the names sort and the files are dated."""
    for step in range(9000, 10001, 100):
        hugging_face(tmp_path / "run", step, ago=step)

    look = collector(tmp_path).look(AT)

    assert having(look, "checkpoint.newest", 1.0) == ["run/checkpoint-10000"]
    steps = [item.reading for item in look.samples if item.signal == "checkpoint.step"]
    assert steps == [float(step) for step in range(9000, 10001, 100)]
    assert of(look, "run")["checkpoint.count"] == 11.0


def test_G_72_the_newest_folder_is_partial(tmp_path: Path) -> None:
    """Without its marker step 900 is partial; 800 stays the newest, and 900 is not counted."""
    put(tmp_path / "run/step-800/model.pt")
    put(tmp_path / "run/step-800/COMPLETE", "")
    put(tmp_path / "run/step-900/model.pt")

    look = collector(tmp_path).look(AT)

    assert of(look, "run/step-900")["checkpoint.complete"] == 0.0
    assert having(look, "checkpoint.newest", 1.0) == ["run/step-800"]
    assert of(look, "run")["checkpoint.count"] == 1.0
    assert labels(look, "run/step-900")["lacks"] == "no marker file, as its neighbours have"
    assert labels(look, "run/step-800")["lacks"] is None


def test_what_a_job_tells(tmp_path: Path) -> None:
    """Work at risk, interval, time of saving, number and size come from the complete checkpoints."""
    for step, ago in ((100, 7200), (200, 5400), (300, 3600), (400, 1000)):
        hugging_face(tmp_path / "run", step, ago=ago)

    seen = of(collector(tmp_path).look(AT), "run")

    assert seen["checkpoint.since_last"] == 1000.0
    assert seen["checkpoint.interval"] == 1800.0
    assert seen["checkpoint.save_time"] == 20.0
    assert seen["checkpoint.count"] == 4.0
    assert seen["checkpoint.total_size"] == 4.0 * sum(
        path.stat().st_size for path in (tmp_path / "run/checkpoint-100").iterdir()
    )


def test_what_is_deleted_meanwhile_still_tells_the_interval(tmp_path: Path) -> None:
    """A job that keeps only its newest checkpoint has the interval of those that were seen."""
    fresh = collector(tmp_path)
    for step, ago in ((1, 4000), (2, 3000), (3, 2000)):
        hugging_face(tmp_path / "run", step, ago=ago)
        look = fresh.look(AT)
        shutil.rmtree(tmp_path / f"run/checkpoint-{step}")

    assert of(look, "run")["checkpoint.interval"] == 1000.0
    assert of(look, "run")["checkpoint.count"] == 1.0


def test_a_job_without_a_complete_checkpoint(tmp_path: Path) -> None:
    """Where nothing is complete there is no time since the last one, and the count is 0."""
    put(tmp_path / "run/checkpoint-5/model.pt")

    look = collector(tmp_path).look(AT)

    seen = of(look, "run")
    assert seen["checkpoint.since_last"] == Bad("no checkpoint is complete")
    assert seen["checkpoint.count"] == 0.0
    assert having(look, "checkpoint.newest", 1.0) == []
    assert labels(look, "run/checkpoint-5")["lacks"] == "no trainer_state.json"


@pytest.mark.parametrize(
    ("folder", "tracker", "text", "lacks"),
    [
        ("global_step200", "latest", "global_step200", None),
        ("global_step200", "latest", "global_step300", None),
        ("global_step200", "latest", "global_step100", "latest names step 100"),
        ("global_step200", None, "", "no file latest beside it"),
        ("iter_0000200", MEGATRON, "200\n", None),
        ("iter_0000200", MEGATRON, "100", f"{MEGATRON} names step 100"),
        ("iter_0000200", MEGATRON, "release", None),
        ("global_step_200", MEGATRON, "100", f"{MEGATRON} names step 100"),
        ("step-200", "latest", "step-100", "latest names step 100"),
        ("step-200", None, "", None),
    ],
)
def test_trackers_say_what_is_whole(
    tmp_path: Path, folder: str, tracker: str | None, text: str, lacks: str | None
) -> None:
    """A DeepSpeed or Megatron checkpoint is complete when the tracker has reached its step."""
    put(tmp_path / "run" / folder / "mp_rank_00/model_optim_rng.pt")
    if tracker is not None:
        put(tmp_path / "run" / tracker, text)

    look = collector(tmp_path).look(AT)

    assert labels(look, f"run/{folder}")["lacks"] == lacks
    assert of(look, f"run/{folder}")["checkpoint.step"] == 200.0


def test_all_shards_of_an_index_must_be_there(tmp_path: Path) -> None:
    """A sharded model lacks the shard that its index lists and that is not there."""
    folder = tmp_path / "run/final"
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    put(folder / "model.safetensors.index.json", json.dumps({"weight_map": shards}))
    put(folder / shards["a"], b"\x02\0\0\0\0\0\0\0{}")
    fresh = collector(tmp_path)

    before = fresh.look(AT)
    put(folder / shards["b"], b"\x02\0\0\0\0\0\0\0{}")
    after = fresh.look(AT)

    said = "1 of 2 shards are missing, such as model-00002-of-00002.safetensors"
    assert labels(before, "run/final")["lacks"] == said
    assert of(after, "run/final")["checkpoint.complete"] == 1.0
    assert of(after, "run/final")["checkpoint.step"] == Bad("its name holds no step")


def test_a_checkpoint_that_is_still_written_is_partial(tmp_path: Path) -> None:
    """A young checkpoint is complete at the second look that finds it unchanged."""
    path = hugging_face(tmp_path / "run", 1, ago=30)
    fresh = collector(tmp_path)

    seen = [of(fresh.look(AT), "run/checkpoint-1")["checkpoint.complete"]]
    put(path / "optimizer.pt", PICKLE * 2, ago=20)
    seen += [of(fresh.look(AT), "run/checkpoint-1")["checkpoint.complete"] for _ in range(2)]

    assert seen == [0.0, 0.0, 1.0]


def test_a_cut_header_is_partial_and_leaves_the_others(tmp_path: Path) -> None:
    """A truncated file makes its own checkpoint partial; its neighbours stay complete."""
    hugging_face(tmp_path / "run", 1)
    bad = hugging_face(tmp_path / "run", 2)
    put(bad / "model.safetensors", b"\xff\0\0\0\0\0\0\0{")
    put(tmp_path / "run/model_3.pt", b"PK\x03\x04 and no end")
    put(tmp_path / "run/model_4.pt", b"")

    look = collector(tmp_path).look(AT)

    assert labels(look, "run/checkpoint-2")["lacks"] == "model.safetensors is cut short"
    assert labels(look, "run/model_3.pt")["lacks"] == "is cut short"
    assert labels(look, "run/model_4.pt")["lacks"] == "is empty"
    assert having(look, "checkpoint.newest", 1.0) == ["run/checkpoint-1"]


def test_a_file_without_a_step_is_newest_only_when_written_last(tmp_path: Path) -> None:
    """`last.ckpt` is the newest where it was written after the highest step, else that one is."""
    put(tmp_path / "run/epoch=1-step=400.ckpt", ago=2000)
    put(tmp_path / "run/last.ckpt", ago=3000)
    fresh = collector(tmp_path)

    before = having(fresh.look(AT), "checkpoint.newest", 1.0)
    put(tmp_path / "run/last.ckpt", ago=1000)
    after = having(fresh.look(AT), "checkpoint.newest", 1.0)

    assert before == ["run/epoch=1-step=400.ckpt"]
    assert after == ["run/last.ckpt"]


def test_the_best_is_what_the_newest_state_says(tmp_path: Path) -> None:
    """The best checkpoint is named by the newest complete trainer_state.json, wherever it was made."""
    hugging_face(tmp_path / "run", 100, best="/elsewhere/run/checkpoint-100")
    hugging_face(tmp_path / "run", 200, best="/elsewhere/run/checkpoint-100")
    hugging_face(tmp_path / "run", 300, best="/elsewhere/run/checkpoint-200")
    hugging_face(tmp_path / "none", 100)
    put(tmp_path / "plain/model_1.pt")

    look = collector(tmp_path).look(AT)

    assert having(look, "checkpoint.best", 1.0) == ["run/checkpoint-200"]
    assert of(look, "none/checkpoint-100")["checkpoint.best"] == Bad("trainer_state.json names no best one")
    assert isinstance(of(look, "plain/model_1.pt")["checkpoint.best"], Bad)


def test_a_checkpoint_within_one_is_part_of_it(tmp_path: Path) -> None:
    """The DeepSpeed folder within a Hugging Face checkpoint counts into that one."""
    path = hugging_face(tmp_path / "run", 5)
    put(path / "global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt", PICKLE * 10)

    look = collector(tmp_path).look(AT)

    assert {item.resource.id for item in look.samples} == {"run", "run/checkpoint-5"}
    assert of(look, "run/checkpoint-5")["checkpoint.size"] > 60.0  # type: ignore[operator]


def test_names_that_say_unfinished(tmp_path: Path) -> None:
    """A folder that is being written under another name is partial, whatever it holds."""
    hugging_face(tmp_path / "run", 5).rename(tmp_path / "run/tmp-checkpoint-5")

    look = collector(tmp_path).look(AT)

    assert labels(look, "run/tmp-checkpoint-5")["lacks"] == "its name says that it is unfinished"


def test_a_path_that_is_a_checkpoint_itself(tmp_path: Path) -> None:
    """A path that names one checkpoint tells that one, of the job in whose folder it lies."""
    path = hugging_face(tmp_path / "run", 5)

    assert {item.resource.id for item in collector(path).look(AT).samples} == {"run", "run/checkpoint-5"}


def test_a_file_that_vanishes_while_it_is_walked(tmp_path: Path) -> None:
    """A checkpoint whose file is gone when its header is to be read is partial for now."""
    put(tmp_path / "model_1.pt")
    census = Census()
    census.enter(str(tmp_path), tmp_path.stat())
    census.file(str(tmp_path), "model_1.pt", (tmp_path / "model_1.pt").stat())
    (tmp_path / "model_1.pt").unlink()

    census.leave(str(tmp_path))

    assert census.found[f"{tmp_path}/model_1.pt"].problem == "is changing"


def test_more_checkpoints_than_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit checkpoints are left out with a note, and nothing is told of all of a job."""
    monkeypatch.setattr(checkpoint_census, "MOST", 3)
    for number in range(5):
        put(tmp_path / f"run/model_{number}.pt")

    look = collector(tmp_path).look(AT)

    assert of(look, "run")["checkpoint.count"] == Bad("too many checkpoints below one path")
    assert look.notes == (f"checkpoints: {tmp_path}: only the first 3 checkpoints are told",)
    assert look.inventories == frozenset()


def test_what_is_denied_costs_only_itself(open_folder: Path) -> None:
    """A checkpoint without the right to read it is a bad reading; others are told, and a note says which."""
    for name in ("run", "other"):
        hugging_face(open_folder / name, 1)
    closed = hugging_face(open_folder / "run", 2)
    closed.chmod(0o700 if os.geteuid() == 0 else 0)

    with unprivileged():
        look = collector(open_folder).look(AT)

    assert of(look, "run/checkpoint-2")["checkpoint.complete"] == Bad("permission denied")
    assert of(look, "run/checkpoint-2")["checkpoint.step"] == 2.0
    assert of(look, "run")["checkpoint.since_last"] == Bad("permission denied")
    assert of(look, "run/checkpoint-1")["checkpoint.complete"] == 1.0
    assert of(look, "other")["checkpoint.count"] == 1.0
    assert any(f"{closed} (permission denied)" in note for note in look.notes)
    assert look.inventories == frozenset()


def test_a_path_that_goes_away_makes_its_checkpoints_unreadable(tmp_path: Path) -> None:
    """Checkpoints of a path that can no longer be read are bad readings, not gone."""
    for name in "ab":
        put(tmp_path / name / "run" / f"{name}_1.pt")
    fresh = collector(tmp_path / "a", tmp_path / "b")
    fresh.look(AT)
    (tmp_path / "b").rename(tmp_path / "away")

    look = fresh.look(AT)

    assert of(look, "run/b_1.pt")["checkpoint.complete"] == Bad("no such file or directory")
    assert of(look, "run/a_1.pt")["checkpoint.complete"] == 1.0
    with pytest.raises(CollectorError, match="no such file or directory: /nowhere"):
        collector("/nowhere").look(AT)


def test_a_checkpoint_that_was_deleted_is_gone(tmp_path: Path) -> None:
    """After a whole walk the list of checkpoints is complete, so a deleted one is gone."""
    put(tmp_path / "run/model_1.pt")
    put(tmp_path / "run/model_2.pt")
    fresh = collector(tmp_path)
    fresh.look(AT)
    (tmp_path / "run/model_1.pt").unlink()

    look = fresh.look(AT)

    assert look.inventories == {"checkpoint"}
    assert {item.resource.id for item in look.samples} == {"run", "run/model_2.pt"}


def test_a_first_walk_that_is_not_through_tells_nothing_of_jobs(tmp_path: Path) -> None:
    """While one path is not walked to its end, what is told of a job would not be all of it."""
    put(tmp_path / "a/run/model_1.pt")
    for number in range(9):
        put(tmp_path / f"b/run/model_{number}.pt")
    fresh = collector(tmp_path / "a", tmp_path / "b")
    for tree in fresh._trees:
        tree.entries = 6

    first, second = fresh.look(AT), fresh.look(AT)

    assert of(first, "run")["checkpoint.count"] == Bad("not walked to the end yet")
    assert any("partly walked" in note for note in first.notes)
    assert of(second, "run")["checkpoint.count"] == 10.0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"paths": []},
        {"paths": ["a"]},
        {"paths": ["/a"], "job": "{team}"},
        {"paths": ["/a"], "job": "{job"},
        {"paths": ["/a"], "job": "{job}/{nme}"},
        {"paths": ["/a"], "failure-domain": "town"},
        {"paths": [{"path": "/a", "role": "logs"}]},
    ],
)
def test_options_are_closed_and_typed(options: dict[str, object]) -> None:
    """No paths, templates without a job, unknown labels and unknown domains are refused."""
    with pytest.raises(ValidationError):
        Options.model_validate(options)


def test_options_survive_being_written_and_read_back() -> None:
    """Dumped options validate to the same options."""
    options = Options.model_validate(
        {"paths": ["/a", {"path": "/b", "failure-domain": "zone"}], "job": "{job}", "failure-domain": "host"}
    )

    assert Options.model_validate(options.model_dump()) == options


def test_a_policy_fires_on_work_at_risk(tmp_path: Path, scene: Scene) -> None:
    """A job whose newest complete checkpoint is four hours old is found through the command."""
    hugging_face(tmp_path / "run", 10, ago=4 * 3600)
    put(tmp_path / "run/checkpoint-20/optimizer.pt", ago=900)
    look = collector(tmp_path).look(AT)
    lines = ["time,resource,kind,signal,value"]
    lines += [
        f"{START + 60 * minute},{item.resource.id},{item.resource.kind},{item.signal},{item.reading}"
        for minute in range(1, 11)
        for item in look.samples
        if not isinstance(item.reading, Bad)
    ]

    rules = policy("checkpoint.since_last > 3h", each="job")
    found = scene.audit(rules, "\n".join(lines) + "\n")["findings"]

    assert [(item["resource"]["id"], item["state"]) for item in found] == [("run", "firing")]


@pytest.mark.slow
def test_a_million_small_files_are_walked_over_some_looks() -> None:
    """A tree of 1,000 checkpoints of 1,000 files keeps every look short, and is told in the end."""
    import tempfile

    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    root = Path(tempfile.mkdtemp(prefix="stoploss-million-", dir=place))
    try:
        for step in range(1000):
            folder = root / f"run/checkpoint-{step}"
            folder.mkdir(parents=True)
            for number in range(999):
                os.close(os.open(f"{folder}/{number}.json", os.O_CREAT | os.O_WRONLY))
            (folder / "trainer_state.json").write_text("{}")
        fresh = collector(root)
        for tree in fresh._trees:
            tree.entries = 300_000
        fresh.time_limit = 3.0
        tracemalloc.start()
        slowest, looks, counts = 0.0, 0, list[object]()
        while not counts:
            begun = time.monotonic()
            look = fresh.look(time.time() + 700)
            slowest, looks = max(slowest, time.monotonic() - begun), looks + 1
            counts = [item.reading for item in look.samples if item.signal == "checkpoint.count"]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    finally:
        shutil.rmtree(root)

    assert counts == [1000.0]
    assert looks >= 4
    assert slowest < 6.0
    assert peak < 40_000_000
