"""Signals of the data that a job reads."""

from __future__ import annotations

from stoploss.rules.signals.family import Family

_DATA = Family(("job",), "training")
_READ = Family(("job",), "process")

SIGNALS = (
    _DATA.gauge("data.wait_share", "share", "Share of the step spent waiting for data."),
    _DATA.gauge("data.workers", "1", "Loader workers per rank."),
    _DATA.counter("data.records", "1", "Records read."),
    _DATA.counter("data.invalid_records", "1", "Records dropped or repaired because they could not be used."),
    _DATA.counter("data.retries", "1", "Reads or preprocessing tasks that were tried again."),
    _DATA.gauge("data.read_time", "s", "Time to read one batch."),
    _DATA.gauge("data.cache_hit_share", "share", "Share of reads answered by a cache."),
    _DATA.gauge("data.feature_abs_max", "1", "Largest absolute input value; a jump tells of unscaled data."),
    _READ.counter("data.bytes_read", "B", "Data read by the job's processes."),
    _DATA.gauge("data.remote_share", "share", "Share of the data read from another region."),
)
