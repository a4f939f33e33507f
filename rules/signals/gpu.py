"""Signals of GPUs, and of MIG slices where the device reports them."""

from __future__ import annotations

from stoploss.rules.signals.family import Family

_GPU = Family(("gpu",), "gpu")
_PRICED = Family(("gpu",), "derived")

SIGNALS = (
    _GPU.attribute("gpu.model", "text", "Name of the model, such as NVIDIA H100 80GB HBM3."),
    _GPU.attribute("gpu.driver", "text", "Version of the driver."),
    _GPU.attribute("gpu.memory.total", "B", "Size of the memory.", "hw.gpu.memory.limit"),
    _GPU.attribute("gpu.power_limit", "W", "Power that the GPU may draw at most."),
    _PRICED.attribute("gpu.price", "money/GPU-hour", "Price of the GPU in the price book."),
    _GPU.gauge(
        "gpu.utilization",
        "share",
        "Share of time in which at least one kernel ran; a hung collective shows 100% too.",
        "hw.gpu.utilization",
    ),
    _GPU.gauge("gpu.memory.used", "B", "Memory in use.", "hw.gpu.memory.usage"),
    _GPU.gauge("gpu.memory.utilization", "share", "Share of the memory in use.", "hw.gpu.memory.utilization"),
    _GPU.gauge(
        "gpu.power", "W", "Power drawn; the honest sign of work where utilization is not.", "hw.power"
    ),
    _GPU.counter("gpu.energy", "Wh", "Energy drawn since the driver was loaded.", "hw.energy"),
    _GPU.gauge("gpu.temperature", "C", "Temperature of the chip.", "hw.temperature"),
    _GPU.gauge("gpu.memory.temperature", "C", "Temperature of the memory."),
    _GPU.gauge("gpu.clock.sm", "MHz", "Clock of the multiprocessors."),
    _GPU.gauge("gpu.clock.memory", "MHz", "Clock of the memory."),
    _GPU.text("gpu.performance_state", "Performance state, P0 to P15; says nothing about use."),
    _GPU.gauge("gpu.throttled", "share", "Share of time in which heat or power held the clocks back."),
    _GPU.state(
        "gpu.throttle_reason",
        "Why the clocks are held back.",
        ("none", "power", "thermal", "hardware", "other"),
    ),
    _GPU.gauge(
        "gpu.engine_active", "share", "Share of time in which the graphics or compute engine was active."
    ),
    _GPU.gauge("gpu.sm_active", "share", "Share of multiprocessors that had work, averaged over time."),
    _GPU.gauge(
        "gpu.sm_occupancy", "share", "Share of the warps a multiprocessor can hold that were resident."
    ),
    _GPU.gauge("gpu.tensor_active", "share", "Share of time in which the tensor cores were active."),
    _GPU.gauge("gpu.memory.active", "share", "Share of time in which the memory interface was active."),
    _GPU.gauge("gpu.encoder.utilization", "share", "Share of time in which the video encoder was busy."),
    _GPU.gauge("gpu.decoder.utilization", "share", "Share of time in which the video decoder was busy."),
    _GPU.gauge("gpu.pcie.received", "B/s", "Data received over PCIe."),
    _GPU.gauge("gpu.pcie.sent", "B/s", "Data sent over PCIe."),
    _GPU.gauge("gpu.pcie.width", "1", "PCIe lanes in use; fewer than usual means a bad seat or riser."),
    _GPU.counter("gpu.pcie.replays", "1", "PCIe packets sent again."),
    _GPU.gauge("gpu.nvlink.received", "B/s", "Data received over NVLink."),
    _GPU.gauge("gpu.nvlink.sent", "B/s", "Data sent over NVLink."),
    _GPU.counter("gpu.nvlink.errors", "1", "NVLink errors: replays, recoveries and CRC."),
    _GPU.counter("gpu.ecc.corrected", "1", "Memory errors that were corrected."),
    _GPU.counter("gpu.ecc.uncorrected", "1", "Memory errors that could not be corrected.", "hw.errors"),
    _GPU.gauge("gpu.remapped_rows", "1", "Memory rows replaced by spare ones."),
    _GPU.text("gpu.xid", "Number of the newest Xid error as a word, or none."),
    _GPU.event("gpu.xid_errors", "Xid errors since the look before."),
    _GPU.gauge("gpu.processes", "1", "Processes that hold the GPU."),
    _GPU.state(
        "gpu.mig",
        "Whether the GPU is split into MIG slices, where utilization cannot be read.",
        ("disabled", "enabled"),
    ),
)
