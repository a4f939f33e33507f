"""Instances: what they are, how they are paid, how busy they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from stoploss.aws import FAILURES, reason, tags_of
from stoploss.collectors import aws_metrics as metrics
from stoploss.collectors.aws_calls import Asker, Found, Seen
from stoploss.collectors.aws_metrics import Figure
from stoploss.engine.model import UNREADABLE, Bad, LabelValue, Reading

FACTS = ("instance.type", "instance.lifecycle", "instance.state", "instance.age")
SIZES = ("instance.gpus", "instance.vcpus", "instance.memory.total")

MIB = 2.0**20
PERIOD = 300
"""Seconds; what instances report without detailed monitoring."""

WINDOW = 900.0
"""Seconds back in which the newest datapoint is looked for."""

Offer: TypeAlias = tuple[str, str, str]
"""A type, a zone and an operating system."""

_LIFECYCLES = {"spot": "spot", "capacity-block": "committed", "scheduled": "committed"}
_TYPES_AT_ONCE = 100

FIGURES: Mapping[str, tuple[str, str, str, float]] = {
    "instance.cpu.utilization": ("AWS/EC2", "CPUUtilization", "Average", 0.01),
    "instance.memory.utilization": ("CWAgent", "mem_used_percent", "Average", 0.01),
    "instance.network.received": ("AWS/EC2", "NetworkIn", "Sum", 1 / PERIOD),
    "instance.network.sent": ("AWS/EC2", "NetworkOut", "Sum", 1 / PERIOD),
    "instance.disk.read": ("AWS/EC2", "EBSReadBytes", "Sum", 1 / PERIOD),
    "instance.disk.written": ("AWS/EC2", "EBSWriteBytes", "Sum", 1 / PERIOD),
}
"""Signal -> where its figure stands, how a period is folded, and the factor to the signal's unit."""

SPOT_PRICE = "instance.spot_price"
SIGNALS = (*FACTS, *SIZES, *FIGURES, SPOT_PRICE)


def read(asker: Asker, which: frozenset[str]) -> Found:
    """All instances of a scope.

    Raises:
        ClientError, BotoCoreError: they cannot be listed.
    """
    listed = [
        instance
        for reservation in asker.pages("ec2", "describe_instances", "Reservations")
        for instance in reservation["Instances"]
    ]
    types = sizes(asker, {instance["InstanceType"] for instance in listed})
    groups, notes = _groups(asker) if "asg" in which else ({}, ())
    running = sorted(item["InstanceId"] for item in listed if item["State"]["Name"] == "running")
    figures = _figures(asker, running) if "cloudwatch" in which else {}
    prices = _spot_prices(asker, listed) if "spot" in which else {}
    found = []
    for item in listed:
        name, state = item["InstanceId"], item["State"]["Name"]
        readings: dict[str, Reading] = {
            "instance.type": item["InstanceType"],
            "instance.lifecycle": _LIFECYCLES.get(item.get("InstanceLifecycle", ""), "on-demand"),
            "instance.state": state,
            "instance.age": max(0.0, asker.at - item["LaunchTime"].timestamp()),
            **types[item["InstanceType"]],
        }
        if "cloudwatch" in which:
            readings |= figures.get(name) or dict.fromkeys(FIGURES, Bad(f"the instance is {state}"))
        if "spot" in which:
            readings[SPOT_PRICE] = prices.get(_offer(item), Bad("no spot price is told for it"))
        labels = {**asker.scope.labels, "zone": item["Placement"]["AvailabilityZone"]}
        if "asg" in which:
            labels["asg"] = UNREADABLE if isinstance(groups, Bad) else groups.get(name)
        found.append(Seen("instance", name, readings, labels, tags_of(item.get("Tags"))))
    return Found(tuple(found), notes)


def _groups(asker: Asker) -> tuple[Mapping[str, LabelValue] | Bad, tuple[str, ...]]:
    """Instance -> the group that keeps it alive."""
    try:
        members = list(asker.pages("autoscaling", "describe_auto_scaling_instances", "AutoScalingInstances"))
    except FAILURES as error:
        return Bad(reason(error)), (f"groups of instances cannot be read: {reason(error)}",)
    return {member["InstanceId"]: member["AutoScalingGroupName"] for member in members}, ()


def sizes(asker: Asker, types: Iterable[str]) -> dict[str, dict[str, Reading]]:
    """Type -> what comes with it; a type that cannot be looked up has bad readings."""
    known, names = asker.scope.types, sorted(set(types))
    wanted = [name for name in names if name not in known]
    missing = Bad("the type is not known in this region")
    for begin in range(0, len(wanted), _TYPES_AT_ONCE):
        # A filter, because one unknown name would fail the whole call otherwise.
        filters = [{"Name": "instance-type", "Values": wanted[begin : begin + _TYPES_AT_ONCE]}]
        try:
            for item in asker.pages("ec2", "describe_instance_types", "InstanceTypes", Filters=filters):
                known[item["InstanceType"]] = _size(item)
        except FAILURES as error:
            missing = Bad(reason(error))
    return {name: known.get(name) or dict.fromkeys(SIZES, missing) for name in names}


def _size(item: Mapping[str, Any]) -> dict[str, Reading]:
    gpus = item.get("GpuInfo", {}).get("Gpus", ())
    return {
        "instance.gpus": float(sum(gpu.get("Count", 0) for gpu in gpus)),
        "instance.vcpus": float(item["VCpuInfo"]["DefaultVCpus"]),
        "instance.memory.total": item["MemoryInfo"]["SizeInMiB"] * MIB,
    }


def _offer(item: Mapping[str, Any]) -> Offer:
    """What has one spot price: a type in a zone, with an operating system."""
    return (
        item["InstanceType"],
        item["Placement"]["AvailabilityZone"],
        item.get("PlatformDetails") or "Linux/UNIX",
    )


def _spot_prices(asker: Asker, listed: list[Mapping[str, Any]]) -> dict[Offer, Reading]:
    """The price that each has at this moment."""
    wanted = {_offer(item) for item in listed}
    if asker.scope.region.startswith("cn-"):
        return dict.fromkeys(wanted, Bad("told in yuan"))
    types, zones, systems = (sorted({offer[place] for offer in wanted}) for place in range(3))
    newest: dict[Offer, tuple[datetime, Reading]] = {}
    now = datetime.fromtimestamp(asker.at, UTC)
    for begin in range(0, len(types), _TYPES_AT_ONCE):
        batch = types[begin : begin + _TYPES_AT_ONCE]
        try:
            # From and until now: the price that holds, however long ago it was set.
            for item in asker.pages(
                "ec2",
                "describe_spot_price_history",
                "SpotPriceHistory",
                InstanceTypes=batch,
                ProductDescriptions=systems,
                Filters=[{"Name": "availability-zone", "Values": zones}],
                StartTime=now,
                EndTime=now,
            ):
                system = item["ProductDescription"].removesuffix(" (Amazon VPC)")
                offer = (item["InstanceType"], item["AvailabilityZone"], system)
                price = (item["Timestamp"], float(item["SpotPrice"]))
                newest[offer] = max(newest.get(offer, price), price)
        except FAILURES as error:
            bad = Bad(reason(error))
            newest.update({offer: (now, bad) for offer in wanted if offer[0] in batch})
    return {offer: price for offer, (_, price) in newest.items()}


def _figures(asker: Asker, instances: Iterable[str]) -> dict[str, dict[str, Reading]]:
    wanted = {
        (name, signal): Figure(namespace, metric, (("InstanceId", name),), stat, PERIOD)
        for name in instances
        for signal, (namespace, metric, stat, _) in FIGURES.items()
    }
    points = metrics.ask(asker, list(wanted.values()), WINDOW)
    found: dict[str, dict[str, Reading]] = {}
    for (name, signal), figure in wanted.items():
        found.setdefault(name, {})[signal] = metrics.newest(points[figure], WINDOW, FIGURES[signal][3])
    return found
