"""A checkpoint is copied to a bucket: whole, compared by SHA-256, and gone on with after a crash."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.snapshots import ROOT, checkpoint

from stoploss.actions.contract import Means, Refused
from stoploss.actions.snapshot import build
from stoploss.actions.targets import bucket_copy
from stoploss.actions.targets.checkpoint_copy import MANIFEST
from stoploss.engine.model import Order, Outcome, ResourceId
from stoploss.means import Known

from .conftest import SECRET, Cloud

pytestmark = pytest.mark.slow
"""Many calls of a server that takes its time."""

BUCKET = "kept-runs"
PLACE = "runs/ann/j1/step-8/"
ADDRESS = f"s3://{BUCKET}/{PLACE}".rstrip("/")
LEAST = 5 << 20
"""Bytes of the least part that S3 takes."""

CHILD = """
import sys, time
from stoploss.actions.contract import Means
from stoploss.actions.snapshot_result import Waiting
from stoploss.actions.targets import bucket_copy
from stoploss.actions.targets.checkpoint_copy import Copy
from stoploss.actions.verify import Demand
source, target, url, part = sys.argv[1:]
bucket_copy.PART = int(part)
means = Means("n1", time.time, time.monotonic, time.sleep, {}, collectors={"aws": {"endpoint_url": url}})
waiting = Waiting(time.time, time.monotonic, time.sleep, 60.0)
print(bucket_copy.take(means, Copy(source, target, 8), Demand(lambda path: None), waiting).state)
"""


@dataclass
class World:
    """A job's checkpoints, and a bucket."""

    cloud: Cloud
    folder: Path

    @property
    def kept(self) -> Path:
        """Where the job saves."""
        return self.folder / "kept" / "j1"

    @property
    def weights(self) -> Path:
        """The largest file of the whole checkpoint."""
        return self.kept / "step-8" / "weights.npz"

    @property
    def means(self) -> Means:
        """The clocks of the cloud, and checkpoints by the rules of the collector."""
        options = {"paths": [{"path": str(self.folder / "kept"), "failure-domain": "host"}], "job": "{job}"}
        return replace(self.cloud.means, checkpoints=Known(options), folder=str(self.folder / "own"))

    def order(self, path: str = f"s3://{BUCKET}/runs/ann", *, since: float = 0.0) -> Order:
        """An order to copy there."""
        given = {"what": "checkpoint", "path": path, "timeout": 600.0}
        labels = {"scheduler": "process"}
        return Order("o-1", "snapshot", ResourceId("job", "j1"), given, labels, "policy p", since)

    def copy(self, *, since: float = 0.0) -> Outcome:
        """Look, and copy."""
        action, order = build(self.means), self.order(since=since)
        return action.act(order, action.find(order))

    def there(self) -> dict[str, bytes]:
        """Name below the place -> what the bucket holds."""
        client = self.cloud.client("s3")
        listed = client.list_objects_v2(Bucket=BUCKET).get("Contents", ())
        return {
            item["Key"].removeprefix(PLACE): client.get_object(Bucket=BUCKET, Key=item["Key"])["Body"].read()
            for item in listed
        }

    def put(self, name: str, body: bytes) -> None:
        """Put an object of somebody there."""
        self.cloud.client("s3").put_object(Bucket=BUCKET, Key=PLACE + name, Body=body)

    def files(self) -> dict[str, bytes]:
        """Name -> content of the whole checkpoint on disk."""
        return {path.name: path.read_bytes() for path in (self.kept / "step-8").iterdir()}

    def open_parts(self) -> list[Any]:
        """Objects of which parts were sent that nobody has put together."""
        return list(self.cloud.client("s3").list_multipart_uploads(Bucket=BUCKET).get("Uploads", ()))


@pytest.fixture
def world(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A whole checkpoint of step 8, a newer one that is not, and an empty bucket."""
    monkeypatch.setattr(bucket_copy, "PART", LEAST)
    made = World(cloud, tmp_path)
    checkpoint(made.kept, 8, at=1_700_000_000.0)
    checkpoint(made.kept, 9, marked=False)
    cloud.client("s3").create_bucket(Bucket=BUCKET)
    cloud.changes()
    return made


def test_G_72_the_newest_complete_is_copied(world: World) -> None:
    """All files and a manifest with their SHA-256 lie below job and checkpoint; `find` changes nothing."""
    action, order = build(world.means), world.order()
    found = action.find(order)
    before = action.look(order, found)
    touched = world.cloud.changes()
    outcome = action.act(order, found)
    there, files = world.there(), world.files()
    manifest = json.loads(there.pop(MANIFEST))

    assert found.words == (
        f"would copy the newest complete checkpoint to s3://{BUCKET}/runs/ann/j1 within 600 s"
    )
    assert (before.state, touched) == ("undone", {})
    size = sum(map(len, files.values()))
    assert outcome.after == {"path": ADDRESS, "step": 8, "began": 1_700_000_000.0, "bytes": size}
    assert (outcome.state, there) == ("done", files)
    assert {name: item["sha256"] for name, item in manifest["files"].items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items()
    }
    assert action.look(order, found).after == outcome.after


def test_a_copy_that_is_there_is_not_made_again(world: World) -> None:
    """Asked once more, it compares what is there with what it would copy, and sends nothing."""
    first = world.copy()
    world.cloud.changes()
    second = world.copy()

    assert (second, world.cloud.changes()) == (first, {})


@pytest.mark.parametrize("size", [LEAST - 1, LEAST, 2 * LEAST + 7])
def test_a_large_file_is_sent_in_parts(world: World, size: int) -> None:
    """Of parts S3 tells the SHA-256 of those of the parts, which is reckoned here as well."""
    content = os.urandom(size)
    world.weights.write_bytes(content)
    outcome = world.copy()

    assert outcome.state == "done", outcome.words
    assert world.cloud.changes()["UploadPart"] == (0 if size < LEAST else -(-size // LEAST))
    assert world.there()["weights.npz"] == content


def test_a_checkpoint_that_is_one_file_is_copied(world: World) -> None:
    """It lies in a folder of its name, beside its manifest."""
    source = world.folder / "last.ckpt"
    source.write_bytes(b"weights")
    done = bucket_copy.take(world.means, *_by_itself(world, str(source), f"s3://{BUCKET}/j1/last.ckpt"))

    assert done.verified, done.why
    assert set(world.there()) == {"j1/last.ckpt/last.ckpt", f"j1/last.ckpt/{MANIFEST}"}


def _by_itself(world: World, source: str, target: str) -> tuple[Any, Any, Any]:
    from stoploss.actions.snapshot_result import Waiting
    from stoploss.actions.targets.checkpoint_copy import Copy
    from stoploss.actions.verify import Demand

    means = world.means
    return (
        Copy(source, target),
        Demand(lambda path: None),
        Waiting(means.now, means.monotonic, means.sleep, 60.0),
    )


@pytest.mark.parametrize("name", ["weights.npz", MANIFEST])
def test_what_is_not_what_was_sent_is_no_copy(world: World, name: str) -> None:
    """An object that was changed or taken away since is told, and nothing may rely on the copy any more."""
    world.copy()
    whole = bucket_copy.lacks(world.means, ADDRESS)
    world.put(name, b"x" * 5000)
    changed = bucket_copy.lacks(world.means, ADDRESS)
    world.cloud.client("s3").delete_object(Bucket=BUCKET, Key=PLACE + name)
    missing = bucket_copy.lacks(world.means, ADDRESS)

    assert whole is None
    assert (changed, missing) == (
        (f"{MANIFEST} cannot be read", "it has no manifest")
        if name == MANIFEST
        else (f"the checksum of {name} is not what it was", f"what is there is not what was copied: {name}")
    )


@pytest.mark.parametrize("name", ["weights.npz", "notes.txt"])
def test_what_somebody_else_has_put_there_stays(world: World, name: str) -> None:
    """Nothing that no copy has made is written over, and nothing is made beside it that looks whole."""
    world.put(name, b"theirs")
    outcome = world.copy()

    assert (outcome.state, MANIFEST in world.there()) == ("failed", False)
    assert f"something else is there already: {name}" in outcome.words
    assert world.there()[name] == b"theirs"


def test_what_an_earlier_copy_sent_of_another_content_is_sent_anew(world: World) -> None:
    """A copy that was broken off before the checkpoint was written anew goes on with what it is now."""
    client = world.cloud.client("s3")
    client.put_object(Bucket=BUCKET, Key=f"{PLACE}weights.npz", Body=b"old", Metadata={bucket_copy.MARK: "1"})
    outcome = world.copy()

    assert outcome.state == "done", outcome.words
    assert world.there()["weights.npz"] == world.files()["weights.npz"]


def test_another_checkpoint_of_the_same_name_is_not_replaced(world: World) -> None:
    """Where a whole copy of something else lies there already, it stays and the step has failed."""
    world.copy()
    world.weights.write_bytes(b"v" * 5000)
    before = world.there()
    outcome = world.copy()

    assert (outcome.state, world.there()) == ("failed", before)
    assert "something else is there already" in outcome.words


def test_a_source_that_changes_is_no_copy(world: World) -> None:
    """What is written while it is sent makes no manifest."""

    def write(line: str, body: bytes) -> None:
        if line.startswith("PUT"):
            world.weights.write_bytes(b"v" * 5000)

    world.cloud.app.faults.append(write)
    outcome = world.copy()

    assert (outcome.state, outcome.retry, MANIFEST in world.there()) == ("failed", True, False)


def test_a_link_is_not_followed(world: World) -> None:
    """A checkpoint that leads out of its folder is not copied."""
    (world.kept / "step-8" / "link").symlink_to("/etc/passwd")
    outcome = world.copy()

    assert outcome.state == "failed"
    assert "it holds the link link" in outcome.words
    assert MANIFEST not in world.there()


def test_it_ends_at_its_limit(world: World) -> None:
    """What is not done in time is given up, leaves no open parts, and is gone on with at the next try."""
    world.weights.write_bytes(os.urandom(3 * LEAST))

    def slow(line: str, body: bytes) -> None:
        if "partNumber=2" in line:
            world.cloud.passed += 1000.0
            time.sleep(1.0)

    world.cloud.app.faults.append(slow)
    outcome = world.copy()
    world.cloud.app.faults.clear()
    again = world.copy()

    assert outcome.state == "failed"
    assert "it took longer than 600 s" in outcome.words
    assert (again.state, world.open_parts()) == ("done", [])


def test_an_older_one_lets_nothing_be_ended(world: World) -> None:
    """The words of a copy that was begun before what was found say so."""
    assert "lets no run be ended" in world.copy(since=1_800_000_000.0).words
    assert "lets no run be ended" not in world.copy(since=1_600_000_000.0).words


@pytest.mark.parametrize(
    ("code", "path", "why"),
    [
        ("", "s3://no-such-bucket/runs", "there is no such bucket"),
        ("AccessDenied", f"s3://{BUCKET}/runs", "failed: 403|no rights for HeadBucket"),
        ("", "s3://NO/runs", "is no place in S3"),
    ],
)
def test_a_bucket_that_does_not_answer_is_refused(world: World, code: str, path: str, why: str) -> None:
    """Before anything is done it is said that nothing can be copied there, without what was answered."""
    if code:
        world.cloud.fail(code, "HEAD", status=403)
    with pytest.raises(Refused, match=why) as refused:
        build(world.means).find(world.order(path))

    assert SECRET not in refused.value.words


def test_what_s3_refuses_is_told_without_what_it_answered(world: World) -> None:
    """Rights that are missing are named; no object is left that looks whole."""
    world.cloud.fail("AccessDenied", "PUT", status=403)
    outcome = world.copy()

    assert outcome.state == "failed"
    assert "no rights for PutObject" in outcome.words
    assert SECRET not in outcome.words


def test_killed_at_any_request_it_goes_on(world: World) -> None:
    """kill -9 at each request: what is there is no whole copy until all is, and then it is there once."""
    world.weights.write_bytes(os.urandom(2 * LEAST + 7))
    client, ended, at = world.cloud.client("s3"), False, 0
    while not ended:
        at += 1
        for name in world.there():
            client.delete_object(Bucket=BUCKET, Key=PLACE + name)
        ended = _killed(world, at)
        action, order = build(world.means), world.order()
        found = action.find(order)
        looked = action.look(order, found)
        assert looked.state == ("done" if MANIFEST in world.there() else looked.state)
        assert looked.state in ("done", "failed", "undone")
        outcome = looked if looked.state == "done" else action.act(order, found)

        assert outcome.state == "done", outcome.words
        assert {**world.there(), MANIFEST: b""} == {**world.files(), MANIFEST: b""}
        assert world.open_parts() == []
    assert at > 10


def _killed(world: World, at: int) -> bool:
    """Copy in a process that is killed at its so many-th request; whether it ended before."""
    source = str(world.kept / "step-8")
    count = 0

    def kill(line: str, body: bytes) -> None:
        nonlocal count
        count += 1
        if count == at:
            child.send_signal(signal.SIGKILL)
            child.wait()

    world.cloud.app.faults.append(kill)
    command = [sys.executable, "-c", CHILD, source, ADDRESS, world.cloud.url, str(LEAST)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = child.stdout.read()
    world.cloud.app.faults.clear()
    assert said.strip() in ("verified", "")
    return said.strip() == "verified"
