"""Run every benchmark and print its table: ``python -m benchmarks [name …] [--quick]``."""

from __future__ import annotations

import argparse
import platform
import signal
import sys
from collections.abc import Callable

import deltalake
import pyarrow as pa

from benchmarks import age, checkpoints, consume, latency, log, maintenance, memory, produce, spark, transactions
from benchmarks.stores import suite
from sparklog import __version__

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
    "transactions": transactions.transactions,
    "spark_read": spark.spark_read,
    "spark_write": spark.spark_write,
    "spark_stream": spark.spark_stream,
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
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a broker is stopped then, too
    print(
        f"sparklog {__version__}, Python {platform.python_version()}, pyarrow {pa.__version__}, "
        f"deltalake {deltalake.__version__}, {platform.system()} {platform.machine()}"
    )
    for name in arguments.names or BENCHMARKS:
        print()
        BENCHMARKS[name](arguments.quick)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
