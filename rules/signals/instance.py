"""Signals of cloud instances."""

from __future__ import annotations

from stoploss.rules.signals.family import Family

_AWS = Family(("instance",), "aws")
_DERIVED = Family(("instance",), "derived")

SIGNALS = (
    _AWS.attribute("instance.type", "text", "Type, such as p5.48xlarge."),
    _AWS.attribute("instance.lifecycle", "text", "How it is paid: on-demand, spot, committed or owned."),
    _AWS.attribute("instance.gpus", "1", "GPUs that come with the type."),
    _AWS.attribute("instance.vcpus", "1", "Virtual CPUs that come with the type."),
    _AWS.attribute("instance.memory.total", "B", "Memory that comes with the type."),
    _DERIVED.attribute("instance.price", "money/h", "Price in the price book."),
    _AWS.attribute("instance.spot_price", "money/h", "Present spot price of the type."),
    _AWS.state(
        "instance.state",
        "Where the instance stands.",
        ("pending", "running", "stopping", "stopped", "shutting-down", "terminated"),
    ),
    _AWS.gauge("instance.age", "s", "Time since the launch."),
    _AWS.gauge("instance.cpu.utilization", "share", "Share of the virtual CPUs in use."),
    _AWS.gauge("instance.memory.utilization", "share", "Share of the memory in use; needs an agent inside."),
    _AWS.gauge("instance.network.received", "B/s", "Data received."),
    _AWS.gauge("instance.network.sent", "B/s", "Data sent."),
    _AWS.gauge("instance.disk.read", "B/s", "Data read from volumes."),
    _AWS.gauge("instance.disk.written", "B/s", "Data written to volumes."),
    _AWS.event("instance.reclaim_notices", "Notices that a spot instance will be taken back."),
    _AWS.gauge(
        "instance.reclaim_in", "s", "Time left until the instance is taken back, once a notice is there."
    ),
    _AWS.gauge(
        "instance.reclaim_rate", "share", "Share of spot instances of the type taken back in a month."
    ),
    _DERIVED.gauge(
        "instance.peak_ratio",
        "share",
        "Highest of CPU, memory, GPU and network use against what the type has.",
    ),
    _DERIVED.gauge(
        "instance.mean_ratio", "share", "Mean of CPU, memory, GPU and network use against what the type has."
    ),
)
