"""Signals of volumes and buckets."""

from __future__ import annotations

from stoploss.rules.signals.family import Family

_ANY = Family(("volume", "bucket"), "storage")
_MOUNT = Family(("volume",), "host")
_VOLUME = Family(("volume",), "storage")
_CLOUD = Family(("volume",), "aws")
_PRICED = Family(("volume", "bucket"), "derived")

SIGNALS = (
    _MOUNT.attribute("storage.capacity", "B", "Size of the volume.", "system.filesystem.limit"),
    _PRICED.attribute("storage.price", "money/GB-month", "Price per size and time in the price book."),
    _MOUNT.gauge("storage.used", "B", "Space in use.", "system.filesystem.usage"),
    _MOUNT.gauge("storage.free", "B", "Space left."),
    _MOUNT.gauge(
        "storage.utilization", "share", "Share of the space in use.", "system.filesystem.utilization"
    ),
    _MOUNT.gauge(
        "storage.inodes.utilization", "share", "Share of the file entries in use; full at 100% too."
    ),
    _ANY.gauge("storage.size", "B", "Size of what is kept, as billed."),
    _ANY.gauge("storage.objects", "1", "Files or objects kept."),
    _ANY.state(
        "storage.role",
        "What is kept there.",
        ("dataset", "checkpoints", "artifacts", "logs", "scratch", "temporary", "cache", "system", "other"),
    ),
    _ANY.state(
        "storage.tier", "How fast, and how dear, the storage is.", ("fast", "standard", "cold", "archive")
    ),
    _ANY.gauge("storage.last_read", "s", "Time since the newest read."),
    _ANY.gauge("storage.last_written", "s", "Time since the newest write."),
    _ANY.gauge("storage.readers", "1", "Jobs that read from it."),
    _ANY.gauge("storage.age", "s", "Time since it was made."),
    _CLOUD.gauge("storage.attachments", "1", "Instances that the volume is attached to."),
    _CLOUD.gauge("storage.references", "1", "Claims and snapshots that refer to the volume."),
    _CLOUD.gauge("storage.since_detached", "s", "Time since the volume was detached; 0 while attached."),
    _ANY.counter("storage.read", "B", "Data read.", "system.disk.io"),
    _ANY.counter("storage.written", "B", "Data written.", "system.disk.io"),
    _VOLUME.gauge("storage.latency", "s", "Time per operation."),
    _CLOUD.gauge("storage.burst_balance", "share", "Share of the burst credit that is left."),
)
