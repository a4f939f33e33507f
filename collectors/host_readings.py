"""What psutil and the kernel tell about a machine, made into readings; nothing is read here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from stoploss.collectors.host_texts import Throttling
from stoploss.engine.model import Bad, Reading

if TYPE_CHECKING:
    from psutil._ntuples import scputimes, sdiskio, svmem

CPU_SHARES = ("host.cpu.utilization", "host.cpu.steal", "host.io_wait")
MEMORY = ("host.memory.total", "host.memory.used", "host.memory.utilization")
DISKS = ("host.disk.read", "host.disk.written")


def cpu_shares(before: scputimes | Bad, now: scputimes | Bad) -> dict[str, Reading]:
    """Shares of the CPU time between two readings: utilization, steal and I/O wait."""
    if isinstance(now, Bad):
        return dict.fromkeys(CPU_SHARES, now)
    if isinstance(before, Bad):
        return dict.fromkeys(CPU_SHARES, _alone(before))
    total = _all_time(now) - _all_time(before)
    if total <= 0:
        return dict.fromkeys(CPU_SHARES, Bad("the CPU times did not advance"))
    # The kernel lets idle and I/O wait step back a little; a share is never negative.
    idle, io_wait, steal = (
        min(max(later - earlier, 0.0), total)
        for later, earlier in (
            (now.idle, before.idle),
            (now.iowait, before.iowait),
            (now.steal, before.steal),
        )
    )
    shares = (max(total - idle - io_wait - steal, 0.0) / total, steal / total, io_wait / total)
    return dict(zip(CPU_SHARES, shares, strict=True))


def throttled(before: Throttling | Bad, now: Throttling | Bad) -> Reading:
    """The share of scheduler periods between two readings in which a quota held work back."""
    if isinstance(now, Bad):
        return now
    if isinstance(before, Bad):
        return _alone(before)
    periods, held_back = now.periods - before.periods, now.throttled - before.throttled
    if not 0 <= held_back <= periods:
        return Bad("cgroup cpu.stat: the counters were reset")
    return held_back / periods if periods else 0.0


def memory(found: svmem | Bad) -> dict[str, Reading]:
    """Bytes in all, bytes that programs cannot have, and the share of the latter."""
    if isinstance(found, Bad):
        return dict.fromkeys(MEMORY, found)
    total, available = found.total, found.available
    if not 0 <= available <= total or total == 0:
        return dict.fromkeys(MEMORY, Bad(f"{available} of {total} bytes of memory available"))
    used = total - available
    return dict(zip(MEMORY, (float(total), float(used), used / total), strict=True))


def disks(found: Mapping[str, sdiskio] | Bad, whole: Collection[str]) -> dict[str, Reading]:
    """Bytes read and written since boot, over the disks named in `whole`.

    Only whole disks are to be named: partitions and mapped devices count the same bytes again.
    """
    if isinstance(found, Bad):
        return dict.fromkeys(DISKS, found)
    counted = [counters for name, counters in found.items() if name in whole]
    if not counted:
        return dict.fromkeys(DISKS, Bad("no counters of any whole disk"))
    read, written = sum(disk.read_bytes for disk in counted), sum(disk.write_bytes for disk in counted)
    return dict(zip(DISKS, (float(read), float(written)), strict=True))


def uptime(booted: float | Bad, at: float) -> Reading:
    """Seconds from the boot to the look, both given in seconds since the epoch."""
    if isinstance(booted, Bad):
        return booted
    return at - booted if booted <= at else Bad("the boot lies after the look")


def number(value: float | Bad | None) -> Reading:
    """A count as a reading; None is what psutil says when it cannot tell."""
    if value is None:
        return Bad("the system does not tell")
    return value if isinstance(value, Bad) else float(value)


def _all_time(times: scputimes) -> float:
    # Guest times are parts of user and nice.
    return sum(times[:8])


def _alone(before: Bad) -> Bad:
    return Bad(f"needs two readings, and the one before failed: {before.reason}")
