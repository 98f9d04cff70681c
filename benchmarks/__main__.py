"""Run every benchmark and print its table: ``python -m benchmarks [name …] [--quick | --full] [--json FILE]``."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa

from benchmarks import (
    age,
    aio,
    checkpoints,
    console,
    consume,
    gateway,
    latency,
    log,
    maintenance,
    many_names,
    memory,
    processing,
    produce,
    share,
    spark,
    transactions,
    typed,
)
from benchmarks.extent import Extent
from benchmarks.harness import print_table
from benchmarks.report import Report, taken_by
from benchmarks.shared import sharing
from benchmarks.stores import suite
from sparklog import __version__
from sparklog._native import DESCRIPTION

# Those first that need neither a broker nor Spark: these run on, idle, once they are started.
BENCHMARKS: dict[str, Callable[[Extent], None]] = {
    "append": log.append_rate,
    "open": log.open_time,
    "age": age.age,
    "checkpoints": checkpoints.checkpoints,
    "burst": checkpoints.burst,
    "cleanup": checkpoints.cleanup,
    "memory": memory.memory,
    "names": many_names.names,
    "console": console.console,
    "aio": aio.aio,
    "processing": processing.processing,
    "share": share.share,
    "stores": suite.stores,
    "produce": produce.send_rate,
    "send_batch": produce.send_batch_rate,
    "consume": consume.consume_rate,
    "latency": latency.latency,
    "transactions": transactions.transactions,
    "gateway": gateway.gateway,
    "spark_read": spark.spark_read,
    "spark_write": spark.spark_write,
    "spark_stream": spark.spark_stream,
    "typed": typed.typed,
    "optimize": maintenance.optimize,
    "retention": maintenance.retention,
    "compact": maintenance.compact,
}
WITHOUT_TARGETS = (
    "append",
    "open",
    "checkpoints",
    "burst",
    "cleanup",
    "names",
    "spark_write",
    "spark_stream",
    "compact",
)
"""A run of all leaves these out, unless it is quick or full."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"which: {', '.join(BENCHMARKS)} (by default all that have a target)"
    )
    extents = parser.add_mutually_exclusive_group()
    extents.add_argument("--quick", action="store_true", help="a tenth of the work, to see that it runs")
    extents.add_argument("--full", action="store_true", help="all cases, also those without a target, and more records")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all that is printed there, too, as JSON")
    arguments = parser.parse_intermixed_args()
    unknown = sorted(set(arguments.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a broker is stopped then, too
    if arguments.json is not None:
        arguments.json.touch()  # one that can't be written is refused now, not after the measurements
    extent = Extent.QUICK if arguments.quick else Extent.FULL if arguments.full else Extent.USUAL
    report = Report(environment(extent))
    print(", ".join(f"{name} {value}" for name, value in report.environment.items()))
    left_out = WITHOUT_TARGETS if extent is Extent.USUAL else ()
    names = arguments.names or [name for name in BENCHMARKS if name not in left_out]
    if not arguments.names and left_out:
        print(f"Left out, as they have no target: {', '.join(left_out)}; --full has them")
    began = time.perf_counter()
    with sharing(), taken_by(report.whole):  # CPU time of what is shared is known as long as it runs
        for name in names:
            print()
            with report.section(name) as section:
                BENCHMARKS[name](extent)
            print(f"({name}: {section.taken()})", flush=True)
    report.whole.seconds = time.perf_counter() - began
    print_summary(report)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    return 0


def print_summary(report: Report) -> None:
    """Targets, and how long everything took on a machine how busy."""
    targets = []
    for section in report.sections:
        targets += [[f"{section.name}: {name}", *cells] for name, *cells in (one.row() for one in section.targets)]
    if targets:
        print("\nTargets")
        print_table(["", "wanted", "reached", ""], targets)
    print("\nTimes")
    times = [each.times() for each in [*report.sections, report.whole]]
    print_table(["", "s", "CPU s", "cores of other processes"], times)
    print(f"\n{report.whole.seconds / 60:.1f} minutes")


def environment(extent: Extent) -> dict[str, str]:
    """What a figure depends on beside the code."""
    now = datetime.datetime.now(datetime.UTC)
    return {
        "sparklog": f"{__version__} ({DESCRIPTION})",
        "Python": platform.python_version(),
        "pyarrow": pa.__version__,
        "deltalake": deltalake.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "at": f"{now:%Y-%m-%d %H:%M} UTC",
        "work": extent.value,
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
