"""The main thing sparklog does, on real data: ``python -m examples.flights [folder]``.

Produces 336,776 flights to a topic in a local folder, consumes them back, checks every one of them, asks DuckDB and
Spark questions of the very same folder, and then the same of a typed topic, by columns.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from examples.flights import spark_sql, typed
from examples.flights.data import EXPECTED_FLIGHTS, flights, load
from sparklog import Admin, Consumer, NewTopic, Producer, TopicPartition
from sparklog.log import open_cluster

TOPIC = "flights"
PARTITIONS = 6
FIRST_OF_JULY_MS = 1_372_636_800_000

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument("folder", nargs="?", default="demo-data", type=Path, help="of the cluster; made anew")
    parser.add_argument("--flights", type=int, default=EXPECTED_FLIGHTS, help="how many (%(default)s)")
    arguments = parser.parse_args()
    root: Path = arguments.folder
    table = root / "topics" / TOPIC
    rows = load().slice(0, arguments.flights)
    count = rows.num_rows
    console.print(f"[bold]1. Create[/] topic {TOPIC!r} with {PARTITIONS} partitions: a Delta table in {table}")
    if (root / "cluster.json").exists():  # of an earlier run
        shutil.rmtree(root)
    open_cluster(root)
    with Admin(root) as admin:
        # Its records are of 2013: without a retention of for ever, the first retention run would delete them.
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, configs={"retention.ms": -1})])

    sent = produce(root, rows)
    consume(root, sent, count)
    answer, took = ask_duckdb(table)
    counts = {"DuckDB": count_duckdb()}
    ask_typed(root, rows, answer, took)
    console.print(
        "\n[bold]6. Spark SQL[/] on the same folder (starting Spark; the first time it fetches 90 MB of jars)"
    )
    try:
        counts["Spark"] = spark_sql.query(root)
    except spark_sql.NoSparkError as error:
        console.print(f"   [bold yellow]left out:[/] {error}")
    for engine, (records, offsets) in counts.items():
        require(records == offsets == count, f"{engine} counts {records:,} records, {offsets:,} offsets")
        console.print(f"{engine} counts {records:,} records, each (partition, offset) once.")
    console.print(f"\n[bold green]All {count:,} flights are there, once, in order.[/] The table stays: {table}")
    console.print(f"Look at it: .venv/bin/sparklog -c {root} consume {TOPIC} --from-beginning --max-messages 3 --json")
    console.print(
        f"Ask it: .venv/bin/sparklog -c {root} sql 'select carrier, avg(distance) from {typed.TOPIC} group by 1'"
    )
    console.print(f"Look at it in the browser: [bold].venv/bin/sparklog -c {root} ui[/], or `make ui` for demo-data")
    return 0


def produce(root: Path, rows: pa.Table) -> dict[bytes | None, list[bytes]]:
    """Send a record per flight; returns the values by key, in the order of sending."""
    sent: dict[bytes | None, list[bytes]] = defaultdict(list)
    failures: list[BaseException] = []
    began = time.perf_counter()
    with bar("[bold]2. Produce[/]", rows.num_rows) as (progress, task), Producer(root, linger_ms=50) as producer:
        for number, flight in enumerate(flights(rows), 1):
            future = producer.send(TOPIC, value=flight.value, key=flight.key, timestamp_ms=flight.timestamp_ms)
            sent[flight.key].append(flight.value)
            if number % 5_000 == 0 or number == rows.num_rows:
                future.add_errback(failures.append)
                progress.update(task, completed=number)
        producer.flush()
        failed = producer.metrics()["producer-metrics"]["record-error-total"]
    require(not failed and not failures, f"{failed:.0f} records failed: {failures[:1]}")
    took = time.perf_counter() - began
    console.print(f"   {rows.num_rows:,} records acknowledged and fsynced in {took:.1f} s (JSON included)")
    return sent


def consume(root: Path, sent: dict[bytes | None, list[bytes]], expected: int) -> None:
    """Read everything back and compare it with what was sent."""
    got: dict[bytes | None, list[bytes]] = defaultdict(list)
    next_offsets = dict.fromkeys(range(PARTITIONS), 0)
    partition_of: dict[bytes, int] = {}
    began, count = time.perf_counter(), 0
    with (
        bar("[bold]3. Consume[/]", expected) as (progress, task),
        Consumer(TOPIC, cluster=root, auto_offset_reset="earliest") as consumer,
    ):
        # Up to the last record a busy machine may take its time; behind it there must be none.
        while polled := consumer.poll(timeout_ms=2_000 if count >= expected else 60_000, max_records=5_000):
            for partition, records in polled.items():
                for record in records:
                    require(record.offset == next_offsets[record.partition], f"offsets of {partition} are not dense")
                    next_offsets[record.partition] += 1
                    got[record.key].append(record.value)
                    if record.key is not None:
                        home = partition_of.setdefault(record.key, record.partition)
                        require(home == record.partition, f"aircraft {record.key!r} is in two partitions")
                count += len(records)
            progress.update(task, completed=count)
        [found] = consumer.offsets_for_times({TopicPartition(TOPIC, 0): FIRST_OF_JULY_MS}).values()
    took = time.perf_counter() - began
    require(count == expected, f"{count:,} records came back, expected {expected:,}")
    keyless = (sorted(got.pop(None, [])), sorted(sent.pop(None, [])))  # those of no aircraft are spread over partitions
    require(got == sent and keyless[0] == keyless[1], "what came back differs from what was sent")
    console.print(f"   {count:,} records in {took:.1f} s; checked: all there, offsets dense, each aircraft's in order")
    console.print(f"   The first record of partition 0 from July on: offset {found.offset if found else None}")


def ask_duckdb(table: Path) -> tuple[list[Any], float]:
    """The same table by an engine that knows nothing of sparklog; the answer, and how long it took."""
    console.print("\n[bold]4. DuckDB[/] on the same folder: the five carriers with the most flights")
    duckdb.register("flights", DeltaTable(table).to_pyarrow_dataset())
    began = time.perf_counter()
    answer = duckdb.sql(
        """
        with flight as (select decode(value)::json as f from flights)
        select f->>'carrier' as carrier, count(*) as flights,
               count(*) filter (f->>'dep_time' is null) as cancelled,
               round(avg((f->>'arr_delay')::double), 1) as "mean delay (min)"
        from flight group by all order by flights desc, carrier limit 5
        """
    )
    rows = answer.fetchall()
    took = time.perf_counter() - began
    print(answer)
    return rows, took


def count_duckdb() -> tuple[int, int]:
    """Records, and different offsets."""
    [(records, offsets)] = duckdb.sql(
        "select count(*), count(distinct (partition, base_offset + offset_delta)) from flights"
    ).fetchall()
    return records, offsets


def ask_typed(root: Path, rows: pa.Table, expected: list[Any], by_json_s: float) -> None:
    """Produce the flights to a typed topic, and ask it the same."""
    console.print(f"\n[bold]5. A typed topic[/] {typed.TOPIC!r}: the same flights, each field a column of the table")
    began = time.perf_counter()
    typed.produce(root, rows, partitions=PARTITIONS)
    console.print(f"   {rows.num_rows:,} records acknowledged and fsynced in {time.perf_counter() - began:.1f} s")
    began = time.perf_counter()
    answer = typed.ask_duckdb(root)
    took = time.perf_counter() - began
    require(answer == expected, f"the typed topic answers {answer}, JSON in bytes {expected}")
    console.print(f"   DuckDB gives the same answer by columns in {took:.2f} s; by JSON it took {by_json_s:.2f} s:")
    print(typed.CARRIERS)


class bar:  # noqa: N801 - reads as the call it is
    """A progress bar, and its task."""

    def __init__(self, title: str, total: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console)
        self._task = self._progress.add_task(title, total=total)

    def __enter__(self) -> tuple[Progress, int]:
        self._progress.start()
        return self._progress, self._task

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"The demo found a fault: {otherwise}")


if __name__ == "__main__":
    sys.exit(main())
