"""Signals of hosts: the machines, virtual or real, that GPUs sit in."""

from __future__ import annotations

from stoploss.rules.signals.family import Family

_HOST = Family(("host",), "host")

SIGNALS = (
    _HOST.attribute("host.cpu.count", "1", "Logical CPUs.", "system.cpu.logical.count"),
    _HOST.attribute("host.memory.total", "B", "Size of the memory.", "system.memory.limit"),
    _HOST.gauge(
        "host.cpu.utilization", "share", "Share of CPU time spent working.", "system.cpu.utilization"
    ),
    _HOST.gauge("host.cpu.steal", "share", "Share of CPU time that the hypervisor gave to a neighbour."),
    _HOST.gauge(
        "host.cpu.throttled", "share", "Share of time in which a CPU quota held the host's work back."
    ),
    _HOST.gauge("host.io_wait", "share", "Share of CPU time idle while waiting for storage."),
    _HOST.gauge(
        "host.load", "1", "Runnable and blocked tasks, averaged over a minute.", "system.cpu.load_average.1m"
    ),
    _HOST.gauge("host.memory.used", "B", "Memory in use, caches left out.", "system.memory.usage"),
    _HOST.gauge(
        "host.memory.utilization", "share", "Share of the memory in use.", "system.memory.utilization"
    ),
    _HOST.counter("host.oom_kills", "1", "Processes that the kernel ended because memory ran out."),
    _HOST.gauge("host.pressure.cpu", "share", "Share of time in which some task waited for a CPU (PSI)."),
    _HOST.gauge("host.pressure.memory", "share", "Share of time in which some task waited for memory (PSI)."),
    _HOST.gauge("host.pressure.io", "share", "Share of time in which some task waited for I/O (PSI)."),
    _HOST.gauge("host.uptime", "s", "Time since the host was started.", "system.uptime"),
    _HOST.counter("host.disk.read", "B", "Data read from local disks.", "system.disk.io"),
    _HOST.counter("host.disk.written", "B", "Data written to local disks.", "system.disk.io"),
)
