"""Measure what one look at eight GPUs costs, and print it.

`python benchmarks/scrape.py [--looks N]`. The driver is the fake one of the tests, so the time is
our own and that of pynvml; a real driver adds its own, most of it waiting. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

GPUS = 8
EVERY = 15.0
"""Seconds between two looks, as the collector does by default."""


def measure(looks: int) -> str:
    """The CPU time of one look and its share of a core; runs where the fake driver is the library."""
    from stoploss.collectors.gpu import GpuCollector

    collector = GpuCollector("n1", time.sleep)
    samples = len(collector.look(0.0).samples)
    begun = time.process_time()
    for number in range(looks):
        collector.look(EVERY * (number + 1))
    spent = (time.process_time() - begun) / looks
    return (
        f"{spent * 1e3:.2f} ms of CPU for a look at {GPUS} GPUs ({samples} samples, {looks} looks); "
        f"{spent / EVERY:.3%} of a core at one look every {EVERY:g} s; the aim is under 10 ms\n"
    )


def main() -> int:
    """Run the benchmark in a child process that finds the fake driver."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--looks", type=int, default=200)
    arguments = parser.parse_args()
    if "FAKE_NVML" in os.environ:
        sys.stdout.write(measure(arguments.looks))
        return 0
    from support import fake_driver

    # One process each that exists, so that its job is looked for.
    gpus = (fake_driver.gpu(number, processes=f"{os.getpid()}:{2**30}") for number in range(GPUS))
    environment = fake_driver.driver().environment(fake_driver.scenario(*gpus))
    return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
