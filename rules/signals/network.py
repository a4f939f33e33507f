"""Signals of the network between hosts; label `path` tells how far it reaches."""

from __future__ import annotations

from stoploss.rules.signals.family import Family

_NETWORK = Family(("host",), "network")

SIGNALS = (
    _NETWORK.gauge("network.rtt", "s", "Round-trip time to the job's other hosts."),
    _NETWORK.gauge("network.rtt_jitter", "s", "Spread of the round-trip time."),
    _NETWORK.gauge(
        "network.link_speed", "B/s", "Speed that the link runs at now.", "hw.network.bandwidth.limit"
    ),
    _NETWORK.gauge(
        "network.utilization",
        "share",
        "Share of the link's speed in use.",
        "hw.network.bandwidth.utilization",
    ),
    _NETWORK.counter("network.bytes", "B", "Data sent and received.", "system.network.io"),
    _NETWORK.counter("network.received", "B", "Data received.", "system.network.io"),
    _NETWORK.counter("network.sent", "B", "Data sent.", "system.network.io"),
    _NETWORK.counter("network.cross_zone", "B", "Data sent to another zone, which is billed."),
    _NETWORK.counter("network.cross_region", "B", "Data sent to another region, which is billed."),
    _NETWORK.counter("network.internet", "B", "Data sent to the internet, which is billed."),
    _NETWORK.counter("network.segments_sent", "1", "TCP segments sent."),
    _NETWORK.counter("network.retransmits", "1", "TCP segments sent again."),
    _NETWORK.counter("network.drops", "1", "Packets dropped.", "system.network.packet.dropped"),
    _NETWORK.counter("network.errors", "1", "Packets sent or received with errors.", "system.network.errors"),
    _NETWORK.counter("network.link_downs", "1", "Times a link went down."),
    _NETWORK.counter("network.rdma.errors", "1", "RDMA packets and symbols received damaged."),
    _NETWORK.counter("network.rdma.retransmits", "1", "RDMA packets lost, late or sent again."),
)
