"""Signals of jobs and of their processes."""

from __future__ import annotations

from stoploss.rules.signals.family import Family

_SEEN = Family(("job",), "process")
_SCHEDULED = Family(("job",), "slurm")
_LOGGED = Family(("job",), "training")
_DERIVED = Family(("job",), "derived")
_PROCESS = Family(("process",), "process")

PHASES = (
    "queued",
    "setup",
    "loading",
    "compiling",
    "training",
    "evaluating",
    "checkpointing",
    "finishing",
)
"""Phases of a job; setup, loading, evaluating and checkpointing are not idleness."""

SIGNALS = (
    _SEEN.state("job.state", "Where the job stands.", ("queued", "running", "suspended", "ended", "failed")),
    _LOGGED.state("job.phase", "What a running job is doing.", PHASES),
    _SCHEDULED.state(
        "job.exit_reason",
        "Why the newest attempt ended; none while it runs.",
        (
            "none",
            "completed",
            "failed",
            "cancelled",
            "timeout",
            "out-of-memory",
            "gpu-out-of-memory",
            "preempted",
            "node-failure",
        ),
    ),
    _SCHEDULED.attribute("job.time_limit", "s", "Run time that the job was given."),
    _SCHEDULED.attribute("job.gpus", "1", "GPUs allocated to the job."),
    _SCHEDULED.attribute("job.nodes", "1", "Hosts allocated to the job."),
    _SEEN.gauge("job.gpus_held", "1", "GPUs that the job holds now, also after its end."),
    _SEEN.gauge("job.runtime", "s", "Time since the newest attempt began."),
    _SEEN.gauge("job.since_end", "s", "Time since the job ended; 0 while it runs."),
    _SCHEDULED.gauge("job.queue_time", "s", "Time spent waiting for a place."),
    _SCHEDULED.counter("job.attempts", "1", "Times the job was started."),
    _SEEN.counter("job.oom_kills", "1", "Processes of the job ended because memory, host or GPU, ran out."),
    _DERIVED.gauge("job.same_failure", "1", "Attempts in a row that failed in the same way."),
    _DERIVED.gauge("job.startup_time", "s", "Time from the start of the newest attempt to its first step."),
    _DERIVED.gauge(
        "job.owed_resume", "s", "Time for which a reclaimed or stopped job has been owed a resume."
    ),
    _DERIVED.gauge("job.zones", "1", "Zones that the job's hosts lie in."),
    _DERIVED.gauge("job.racks", "1", "Racks that the job's hosts stand in."),
    _PROCESS.gauge(
        "process.cpu.utilization", "share", "Share of all CPU time used.", "process.cpu.utilization"
    ),
    _PROCESS.gauge("process.memory.used", "B", "Resident memory.", "process.memory.usage"),
    _PROCESS.gauge("process.gpu.memory.used", "B", "GPU memory held."),
    _PROCESS.gauge("process.threads", "1", "Threads that the process has.", "process.thread.count"),
    _PROCESS.gauge("process.uptime", "s", "Time since the process was started.", "process.uptime"),
    _PROCESS.counter("process.disk.read", "B", "Data read from storage.", "process.disk.io"),
    _PROCESS.counter("process.disk.written", "B", "Data written to storage.", "process.disk.io"),
)
