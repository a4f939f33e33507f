"""Which smaller type an instance can change to: the ladder of its family, and its highest use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoploss.actions.contract import Refused
from stoploss.actions.targets.aws_calls import Figure, Place
from stoploss.actions.targets.ec2_instance import Instance
from stoploss.aws import pages

DAY = 86_400.0
WINDOW = 14 * DAY
"""Seconds back in which the highest use is looked for."""

LEAST_HOURS = 24
"""Hours of reports without which the highest use is not known."""

ROOM = 1.2
"""A smaller type holds the highest use that many times."""


@dataclass(frozen=True, slots=True)
class Size:
    """What comes with a type; memory in MiB, `storage`: disks that lose what they hold at a stop."""

    type: str
    vcpus: int
    memory: int
    gpus: int
    architectures: frozenset[str]
    storage: bool

    def __str__(self) -> str:
        gpus = f", {self.gpus} GPUs" if self.gpus else ""
        return f"{self.type} ({self.vcpus} vCPUs, {self.memory / 1024:g} GiB{gpus})"


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest use of 14 days as shares of what the type has; memory is None where it is not known."""

    cpu: float
    memory: float | None


def _size(item: Mapping[str, Any]) -> Size:
    return Size(
        type=item["InstanceType"],
        vcpus=int(item["VCpuInfo"]["DefaultVCpus"]),
        memory=int(item["MemoryInfo"]["SizeInMiB"]),
        gpus=sum(gpu.get("Count", 0) for gpu in item.get("GpuInfo", {}).get("Gpus", ())),
        architectures=frozenset(item.get("ProcessorInfo", {}).get("SupportedArchitectures", ())),
        storage=bool(item.get("InstanceStorageSupported")),
    )


def sizes(place: Place, pattern: str) -> tuple[Size, ...]:
    """The types of a name, which may end in `*`, the smallest first.

    Raises:
        ClientError, BotoCoreError: they cannot be listed.
    """
    # A filter, because a name that is unknown would fail the call otherwise.
    filters = [{"Name": "instance-type", "Values": [pattern]}]
    listed = pages(place.client("ec2"), "describe_instance_types", "InstanceTypes", Filters=filters)
    return tuple(sorted(map(_size, listed), key=lambda item: (item.vcpus, item.memory, item.type)))


def size(place: Place, name: str) -> Size:
    """What comes with a type.

    Raises:
        Refused: it is not known in this region.
        ClientError, BotoCoreError: it cannot be told.
    """
    found = [item for item in sizes(place, name) if item.type == name]
    if not found:
        raise Refused(f"there is no instance type {name} in {place.region}")
    return found[0]


def peak(place: Place, name: str) -> Peak:
    """The highest use of an instance.

    Raises:
        Refused: it is not known.
        ClientError, BotoCoreError: CloudWatch does not tell it.
    """
    whose = {"InstanceId": name}
    cpu = place.values(Figure("AWS/EC2", "CPUUtilization", whose, "Maximum"), WINDOW)
    if len(cpu) < LEAST_HOURS:
        raise Refused(f"the highest CPU use of {name} is not known: {len(cpu)} of {LEAST_HOURS} hours needed")
    memory = place.values(Figure("CWAgent", "mem_used_percent", whose, "Maximum"), WINDOW)
    known = len(memory) >= LEAST_HOURS
    return Peak(max(cpu) / 100, max(memory) / 100 if known else None)


def chosen(place: Place, item: Instance, wanted: str | None) -> tuple[Size, Size]:
    """The type of an instance and the one to change to: `wanted`, else the next smaller that fits.

    Raises:
        Refused: there is none.
        ClientError, BotoCoreError: types or use cannot be told.
    """
    now = size(place, item.type)
    to = size(place, wanted) if wanted else _smaller(place, item, now)
    if to.type == now.type:
        raise Refused(f"instance {item.id} is of type {to.type} already", gone=True)
    if not _less(to, now):
        raise Refused(f"{to} is not smaller than {now}")
    if not to.architectures & now.architectures:
        raise Refused(f"{to.type} has another processor architecture than {now.type}")
    if not _offered(place, item.zone, to.type):
        raise Refused(f"{to.type} is not offered in {item.zone}")
    return now, to


def _less(to: Size, now: Size) -> bool:
    return to.vcpus < now.vcpus or to.memory < now.memory or to.gpus < now.gpus


def _smaller(place: Place, item: Instance, now: Size) -> Size:
    if "metal" in now.type:
        raise Refused(f"{now.type} has no next smaller type: name instance-type")
    family = now.type.partition(".")[0]
    ladder = [
        one
        for one in sizes(place, f"{family}.*")
        if (one.vcpus, one.memory) < (now.vcpus, now.memory)
        and one.vcpus <= now.vcpus
        and one.memory <= now.memory
        and one.gpus == now.gpus
        and "metal" not in one.type
    ]
    if not ladder:
        raise Refused(f"{now.type} is the smallest of its family with {now.gpus} GPUs: name instance-type")
    used = peak(place, item.id)
    if used.memory is None and ladder[-1].memory < now.memory:
        raise Refused(
            f"the highest memory use of {item.id} is not known, as no agent reports it: name instance-type"
        )
    vcpus = used.cpu * now.vcpus * ROOM
    memory = now.memory if used.memory is None else used.memory * now.memory * ROOM
    fitting = [one for one in ladder if one.vcpus >= vcpus and one.memory >= memory]
    if not fitting:
        memory_used = "" if used.memory is None else f" and {used.memory:.0%} of the memory"
        raise Refused(
            f"no smaller type holds {ROOM} x the highest use of {item.id}: "
            f"{used.cpu:.0%} of the CPUs{memory_used}"
        )
    return fitting[-1]


def _offered(place: Place, zone: str, name: str) -> bool:
    told = place.client("ec2").describe_instance_type_offerings(
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": [name]}, {"Name": "location", "Values": [zone]}],
    )
    return bool(told["InstanceTypeOfferings"])
