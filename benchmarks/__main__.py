"""Run every benchmark and print its table: ``python -m benchmarks [name …] [--quick] [--json FILE]``."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa

from benchmarks import (
    age,
    aio,
    checkpoints,
    consume,
    gateway,
    latency,
    log,
    maintenance,
    memory,
    processing,
    produce,
    share,
    spark,
    transactions,
    typed,
)
from benchmarks.harness import print_table
from benchmarks.report import Report
from benchmarks.stores import suite
from sparklog import __version__
from sparklog._native import DESCRIPTION

BENCHMARKS: dict[str, Callable[[bool], None]] = {
    "append": log.append_rate,
    "open": log.open_time,
    "checkpoints": checkpoints.checkpoints,
    "burst": checkpoints.burst,
    "cleanup": checkpoints.cleanup,
    "produce": produce.send_rate,
    "send_batch": produce.send_batch_rate,
    "consume": consume.consume_rate,
    "latency": latency.latency,
    "aio": aio.aio,
    "transactions": transactions.transactions,
    "processing": processing.processing,
    "share": share.share,
    "spark_read": spark.spark_read,
    "spark_write": spark.spark_write,
    "spark_stream": spark.spark_stream,
    "typed": typed.typed,
    "gateway": gateway.gateway,
    "optimize": maintenance.optimize,
    "retention": maintenance.retention,
    "compact": maintenance.compact,
    "age": age.age,
    "memory": memory.memory,
    "stores": suite.stores,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"which: {', '.join(BENCHMARKS)} (all of them by default)"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, to see that it runs")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all that is printed there, too, as JSON")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a broker is stopped then, too
    if arguments.json is not None:
        arguments.json.touch()  # one that can't be written is refused now, not after the measurements
    report = Report(environment(quick=arguments.quick))
    print(", ".join(f"{name} {value}" for name, value in report.environment.items()))
    for name in arguments.names or BENCHMARKS:
        print()
        with report.section(name) as section:
            BENCHMARKS[name](arguments.quick)
        others = "" if section.others_cores is None else f"; other processes took {section.others_cores:.2f} cores"
        print(f"({name}: {section.seconds:.0f} s{others})", flush=True)
    targets = [target.row() for section in report.sections for target in section.targets]
    if targets:
        print("\nTargets")
        print_table(["", "wanted", "reached", ""], targets)
    print(f"\n{sum(section.seconds for section in report.sections) / 60:.1f} minutes")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    return 0


def environment(*, quick: bool) -> dict[str, str]:
    """What a figure depends on beside the code."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "sparklog": f"{__version__} ({DESCRIPTION})",
        "Python": platform.python_version(),
        "pyarrow": pa.__version__,
        "deltalake": deltalake.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "at": f"{now:%Y-%m-%d %H:%M} UTC",
        "work": "a tenth" if quick else "whole",
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
