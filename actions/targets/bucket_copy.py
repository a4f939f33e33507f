"""Copies a checkpoint to a bucket of S3, with the SHA-256 that S3 itself reckoned of what arrived.

A copy is whole once its manifest is there, which is written last. After a crash the same call goes on: an
object that is there with the right checksum is kept, and parts that were left behind are given up.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from botocore.exceptions import ClientError

from stoploss.actions import files
from stoploss.actions.contract import Means
from stoploss.actions.snapshot_result import Snapshot, Waiting
from stoploss.actions.targets.aws_calls import own_place
from stoploss.actions.targets.checkpoint_copy import MANIFEST, VERSION, Copy
from stoploss.actions.verify import Demand, Seen, look
from stoploss.aws import FAILURES, code, pages, reason

PART = 16 << 20
"""Bytes of a part; a file that has more than one is sent in parts, several at a time."""

MOST_PARTS = 10_000
"""Parts of one object, by S3's rules."""

AT_A_TIME = 4
MARK = "stoploss-copy"
"""Metadata of an object that a copy has made: another with the same name is never written over."""

_ADDRESS = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?")
_LONGEST_MANIFEST = 64 << 20
_MISSING = ("404", "NoSuchKey", "NotFound")


@dataclass(frozen=True, slots=True)
class Item:
    """One file of a copy.

    Attributes:
        bytes: its size.
        sha256: of its content, in hexadecimal.
        checksum: what S3 tells of it, in base64: the same, or the SHA-256 of those of its parts.
        written: when the file was last written, in nanoseconds since the epoch.
    """

    bytes: int
    sha256: str
    checksum: str
    written: int


@dataclass(frozen=True, slots=True)
class Folder:
    """What begins with one name in a bucket, as `s3://BUCKET/NAME`."""

    client: Any
    bucket: str
    prefix: str

    def key(self, name: str) -> str:
        """The whole name of an object."""
        return f"{self.prefix}/{name}" if self.prefix else name

    def names(self) -> dict[str, int]:
        """Name below it -> bytes."""
        start = self.key("")
        listed = pages(self.client, "list_objects_v2", "Contents", Bucket=self.bucket, Prefix=start)
        return {item["Key"].removeprefix(start): int(item["Size"]) for item in listed}

    def head(self, name: str) -> Mapping[str, Any] | None:
        """What S3 tells of an object; None where there is none."""
        try:
            found: Mapping[str, Any] = self.client.head_object(
                Bucket=self.bucket, Key=self.key(name), ChecksumMode="ENABLED"
            )
        except ClientError as error:
            if code(error) in _MISSING:
                return None
            raise
        return found


def folder_of(means: Means, address: str) -> Folder:
    """The place of an address, with a client of this machine's own account.

    Raises:
        ValueError: it is no address of S3.
        ClientError, BotoCoreError: there are no credentials.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ValueError(f"{address!r} is no place in S3: s3://BUCKET/FOLDER")
    return Folder(own_place(means).client("s3"), match[1], (match[2] or "").strip("/"))


def take(means: Means, copy: Copy, demand: Demand, waiting: Waiting) -> Snapshot:
    """Copy a checkpoint that was verified just now, and see that all of it has arrived.

    A checkpoint that holds a symbolic link is not copied: what the link leads to may lie anywhere.
    """
    hurry = waiting.hurry()
    try:
        place, source = folder_of(means, copy.target), look(copy.source)
        found = _manifest(place)
        if found is None:
            found = _all_sent(place, copy, source, hurry)
            _check(place, found)
            _finish(place, copy, found)
        _compare(found, source)
        _check(place, found, finished=True)
    except FAILURES as error:
        return _failed(copy, reason(error))
    except (OSError, ValueError) as error:
        return _failed(copy, files.words_of(error))
    words = f"{copy.target} is whole: {len(found)} files, compared by SHA-256"
    return Snapshot("verified", copy.target, copy.step, source.began, source.bytes, words)


def lacks(means: Means, address: str) -> str | None:
    """What a copy lacks to be whole, in words; None where it lacks nothing."""
    try:
        place = folder_of(means, address)
        found = _manifest(place)
        if found is None:
            return "it has no manifest"
        _check(place, found, finished=True)
    except FAILURES as error:
        return reason(error)
    except ValueError as error:
        return str(error)
    return None


def newest(means: Means, address: str, steps: Mapping[str, int | None]) -> Snapshot:
    """The newest whole copy below an address; `pending` where nothing is there.

    Args:
        means: the machine.
        address: of the folder with the copies of one job.
        steps: name of a checkpoint -> its step.
    """
    place = folder_of(means, address)
    there = sorted(
        {name.partition("/")[0] for name in place.names()}, key=lambda name: (steps.get(name) or 0, name)
    )
    why = "nothing was copied"
    for name in reversed(there):
        target = f"{address}/{name}"
        lacking = lacks(means, target)
        if lacking is None:
            found = _manifest(folder_of(means, target)) or {}
            began = min(item.written for item in found.values()) / 1e9
            size = sum(item.bytes for item in found.values())
            return Snapshot("verified", target, steps.get(name), began, size, f"{target} is whole")
        why = f"{target}: {lacking}"
    return Snapshot("failed" if there else "pending", why=why)


def unreachable(means: Means, address: str) -> str | None:
    """Why nothing can be copied to an address; None where its bucket answers."""
    try:
        place = folder_of(means, address)
        place.client.head_bucket(Bucket=place.bucket)
    except FAILURES as error:
        gone = code(error) in (*_MISSING, "NoSuchBucket")
        return "there is no such bucket" if gone else reason(error)
    except ValueError as error:
        return str(error)
    return None


def _failed(copy: Copy, why: str) -> Snapshot:
    return Snapshot(
        "failed", copy.target, copy.step, why=f"{copy.source} was not copied to {copy.target}: {why}"
    )


# ---- sending ---------------------------------------------------------------------------------


def _all_sent(place: Folder, copy: Copy, source: Seen, hurry: Callable[[], None]) -> dict[str, Item]:
    """Send every file that is not there yet.

    Raises:
        OSError: a file cannot be read.
        ValueError: the source cannot be copied as it is, or something else is in its place.
        ClientError, BotoCoreError: S3 refuses.
    """
    there = place.names()
    wanted = {name for name, _, _ in source.files}
    if strangers := sorted(set(there) - wanted):
        raise ValueError(f"something else is there already: {strangers[0]}")
    _give_up_parts(place)
    part = _part(max(size for _, size, _ in source.files))
    found: dict[str, Item] = {}
    for entry in files.walk(copy.source):
        if entry.is_link:
            raise ValueError(f"it holds the link {entry.below}")
        if not entry.below.isprintable():
            raise ValueError(f"it holds a file with an odd name: {entry.below!r}")
        if entry.below == MANIFEST:
            continue
        handle = entry.open()
        try:
            item = _item(handle, entry.status, part, hurry)
            if not _is_there(place, entry.below, item):
                _send(place, handle, entry.below, part, hurry)
        finally:
            os.close(handle)
        found[entry.below] = item
    if look(copy.source) != source:
        raise ValueError("it changed while it was copied")
    return found


def _part(largest: int) -> int:
    """Bytes of a part, so that the largest file has no more parts than may be; whole megabytes."""
    least = -(-largest // MOST_PARTS)
    return max(PART, -(-least // (1 << 20)) << 20)


def _item(handle: int, status: os.stat_result, part: int, hurry: Callable[[], None]) -> Item:
    """Reckon of a file what S3 reckons of an object that is sent in such parts."""
    whole, parts, size = hashlib.sha256(), hashlib.sha256(), status.st_size
    for begin in range(0, size, part):
        digest = hashlib.sha256()
        for offset in range(begin, min(begin + part, size), 1 << 20):
            hurry()
            piece = os.pread(handle, min(1 << 20, begin + part - offset, size - offset), offset)
            digest.update(piece)
            whole.update(piece)
        parts.update(digest.digest())
    told = parts if size >= part else whole
    checksum = base64.b64encode(told.digest()).decode("ascii")
    return Item(size, whole.hexdigest(), checksum, status.st_mtime_ns)


def _is_there(place: Folder, name: str, item: Item) -> bool:
    """Whether an object is there already.

    Raises:
        ValueError: there is another, which no copy has made.
    """
    told = place.head(name)
    if told is None:
        return False
    if _told(told) == (item.bytes, item.checksum):
        return True
    if MARK not in told.get("Metadata", {}):
        raise ValueError(f"something else is there already: {name}")
    return False


def _told(head: Mapping[str, Any]) -> tuple[int, str]:
    """Bytes and SHA-256 by what S3 tells; behind that of parts stands their number."""
    return int(head["ContentLength"]), str(head.get("ChecksumSHA256", "")).partition("-")[0]


def _send(place: Folder, handle: int, name: str, part: int, hurry: Callable[[], None]) -> None:
    """Send one file, by its handle: no other file can come in its place meanwhile."""
    from boto3.s3.transfer import TransferConfig, create_transfer_manager
    from s3transfer.subscribers import BaseSubscriber

    done = threading.Event()

    class Told(BaseSubscriber):  # type: ignore[misc]
        def on_done(self, future: Any, **more: Any) -> None:
            done.set()

    config = TransferConfig(
        multipart_threshold=part,
        multipart_chunksize=part,
        max_concurrency=AT_A_TIME,
        preferred_transfer_client="classic",
    )
    given = {"ChecksumAlgorithm": "SHA256", "Metadata": {MARK: "1"}}
    with create_transfer_manager(place.client, config) as manager:
        sent = manager.upload(f"/proc/self/fd/{handle}", place.bucket, place.key(name), given, [Told()])
        try:
            while not done.wait(0.2):
                hurry()
        except TimeoutError:
            sent.cancel()
            raise
        sent.result()


def _give_up_parts(place: Folder) -> None:
    """What a killed process has sent of an object and never put together is paid for until it is given up."""
    start = place.key("")
    left = list(pages(place.client, "list_multipart_uploads", "Uploads", Bucket=place.bucket, Prefix=start))
    for item in left:
        with contextlib.suppress(place.client.exceptions.NoSuchUpload):
            place.client.abort_multipart_upload(
                Bucket=place.bucket, Key=item["Key"], UploadId=item["UploadId"]
            )


# ---- the manifest ----------------------------------------------------------------------------


def _finish(place: Folder, copy: Copy, found: Mapping[str, Item]) -> None:
    listed = {name: asdict(item) for name, item in found.items()}
    record = {"version": VERSION, "source": copy.source, "step": copy.step, "files": listed}
    place.client.put_object(
        Bucket=place.bucket,
        Key=place.key(MANIFEST),
        Body=json.dumps(record, indent=1).encode(),
        ChecksumAlgorithm="SHA256",
        Metadata={MARK: "1"},
    )


def _manifest(place: Folder) -> dict[str, Item] | None:
    """What the manifest says; None where there is none.

    Raises:
        ValueError: it is none of ours.
        ClientError, BotoCoreError: it cannot be read.
    """
    told = place.head(MANIFEST)
    if told is None:
        return None
    if int(told["ContentLength"]) > _LONGEST_MANIFEST:
        raise ValueError(f"{MANIFEST} is too long")
    body = place.client.get_object(Bucket=place.bucket, Key=place.key(MANIFEST))["Body"].read()
    try:
        return {name: Item(**item) for name, item in json.loads(body)["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{MANIFEST} cannot be read") from None


def _compare(found: Mapping[str, Item], source: Seen) -> None:
    """Raises ValueError where a copy is of something else."""
    own = {(name, size, written) for name, size, written in source.files if name != MANIFEST}
    if {(name, item.bytes, item.written) for name, item in found.items()} != own:
        raise ValueError("something else is there already")


def _check(place: Folder, found: Mapping[str, Item], *, finished: bool = False) -> None:
    """See that there is exactly what should be there.

    Raises:
        ValueError: there is more or less, or a checksum is not what it should be.
        ClientError, BotoCoreError: S3 does not tell.
    """
    there = place.names()
    if finished:
        there.pop(MANIFEST, None)
    if there != {name: item.bytes for name, item in found.items()}:
        odd = sorted(set(there) ^ set(found)) or sorted(n for n in found if there[n] != found[n].bytes)
        raise ValueError(f"what is there is not what was copied: {odd[0]}")
    for name, item in found.items():
        told = place.head(name)
        if told is None or _told(told) != (item.bytes, item.checksum):
            raise ValueError(f"the checksum of {name} is not what it was")
