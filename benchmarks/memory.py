"""Peak memory: a producer of 2 GB, and consumers of that topic and of one file of 1 GiB that another engine wrote.

What counts is the most that the process ever had in memory, less what it had after imports and opening.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.extent import Extent
from benchmarks.harness import peak_memory_mib, print_table, progress, resident_mib, run
from benchmarks.peers import expect, some_records, sparklog_topic
from benchmarks.produce import TOPIC
from benchmarks.report import add_target
from sparklog.config.consumer import CONSUMER_SETTINGS
from sparklog.config.producer import PRODUCER_SETTINGS
from sparklog.log.cluster import open_cluster
from sparklog.log.data.schema import DATA_SCHEMA
from sparklog.log.sequencing.sequencing import sequence_topic

VALUE_SIZE = 1024
BLOCK = 8_192
ROW_GROUP = 16 * BLOCK
"""Rows: with these values 128 MiB, as Spark makes its row groups."""
ALLOWANCE_MIB = 48
NOW_US = 1_700_000_000_000_000


def produce(root: str, *, count: int) -> float:
    """MiB that ``count`` sends take, in a loop that is faster than the disk."""
    from sparklog.producer import Producer

    block = some_records(BLOCK, VALUE_SIZE)
    with Producer(root, acks=1) as producer:
        producer.partitions_for(TOPIC)
        before = resident_mib()
        for number in range(count):
            key, value = block[number % BLOCK]
            producer.send(TOPIC, value=value, key=key)
        producer.flush()
    return peak_memory_mib() - before


def consume(root: str, *, count: int, method: str) -> float:
    """MiB that reading the whole topic takes by ``poll`` or ``poll_batches``, with the default limits."""
    from sparklog.consumer import Consumer

    consumer = Consumer(TOPIC, cluster=root, auto_offset_reset="earliest")
    consumer.partitions_for_topic(TOPIC)
    before, seen = resident_mib(), 0
    while seen < count:
        seen += sum(map(len, getattr(consumer, method)(timeout_ms=1000).values()))
    consumer.close()
    expect("records", seen, count)
    return peak_memory_mib() - before


def write_big_file(root: str, *, count: int, in_order: bool) -> None:
    """Write one file as other producers would, and let sequencing publish it.

    Args:
        in_order: as a sorted compaction leaves the rows; else as deltalake's parallel writer does.
    """
    from deltalake import DeltaTable, WriterProperties, write_deltalake
    from deltalake.transaction import AddAction

    log = open_cluster(root).topic_log(TOPIC)
    table = f"{root}/{log.table}"
    if in_order:
        path = "partition=0/big.parquet"
        Path(table, path).parent.mkdir(parents=True, exist_ok=True)
        batches = big_batches(DATA_SCHEMA, count)
        with pq.ParquetWriter(f"{table}/{path}", DATA_SCHEMA, compression="snappy") as writer:
            for first in range(0, count, ROW_GROUP):
                rows = min(ROW_GROUP, count - first)
                writer.write_table(pa.Table.from_batches(islice(batches, rows // BLOCK)), row_group_size=rows)
        size, values = Path(table, path).stat().st_size, {"partition": "0", "base_offset": None}
        DeltaTable(table).create_write_transaction(
            [AddAction(path, size, values, NOW_US // 1000, True, "{}")],
            mode="append",
            schema=DeltaTable(table).schema(),
            partition_by=list(values),
        )
    else:
        columns = [pa.field("partition", pa.int32()), pa.field("base_offset", pa.int64()), *DATA_SCHEMA]
        schema = pa.schema(columns)
        write_deltalake(
            table,
            pa.RecordBatchReader.from_batches(schema, big_batches(schema, count)),
            mode="append",
            target_file_size=2**32,
            writer_properties=WriterProperties(compression="SNAPPY", max_row_group_size=ROW_GROUP),
        )
    expect("files sequenced", sequence_topic(log, timeout_ms=600_000).sequenced_count, 1)


def big_batches(schema: pa.Schema, count: int) -> Iterator[pa.RecordBatch]:
    """``count`` records of partition 0, numbered from 0 on, in batches of ``BLOCK``."""
    block = some_records(BLOCK, VALUE_SIZE)
    columns = {
        "partition": pa.repeat(pa.scalar(0, pa.int32()), BLOCK),
        "timestamp": pa.array([NOW_US] * BLOCK, pa.int64()).cast(DATA_SCHEMA.field("timestamp").type),
        "key": pa.array([key for key, _ in block], pa.binary()),
        "value": pa.array([value for _, value in block], pa.binary()),
    }
    for first in range(0, count, BLOCK):
        columns["offset_delta"] = pa.arange(first, first + BLOCK)
        arrays = [columns[field.name] if field.name in columns else pa.nulls(BLOCK, field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def memory(extent: Extent) -> None:
    """Each in a process of its own."""
    sent, in_file = extent.of((200_000, 2**17), (1_000_000, 2**20), (2_000_000, 2**20))
    buffered = PRODUCER_SETTINGS["buffer_memory"].default / 2**20
    fetched = CONSUMER_SETTINGS["fetch_max_bytes"].default / 2**20
    rows = []

    def row(name: str, mib: float, limit_mib: float, target_mib: float | None = None) -> None:
        rows.append([name, f"{mib:.0f}", f"{limit_mib:.0f} + {ALLOWANCE_MIB}"])
        if target_mib is not None:
            add_target(f"{name}, MiB", target_mib, mib, is_at_most=True)

    with tempfile.TemporaryDirectory() as root:
        sparklog_topic(root, TOPIC)
        progress("sending")
        used = run(produce, root=root, count=sent)
        row(f"Producer.send, {sent * VALUE_SIZE / 1e9:.1f} GB", used, buffered, buffered + 48)
        for method in ("poll", "poll_batches"):
            progress(method)
            used = run(consume, root=root, count=sent, method=method)
            row(f"{method} of that topic", used, fetched)
    for in_order in (True, False) if extent.is_full else (False,):
        with tempfile.TemporaryDirectory() as root:
            sparklog_topic(root, TOPIC, partitions=1)
            progress("writing a big file")
            run(write_big_file, root=root, count=in_file, in_order=in_order)
            for method in ("poll", "poll_batches"):
                progress(method)
                used = run(consume, root=root, count=in_file, method=method)
                order = "" if in_order else ", rows in no order"
                name = f"{method} of one file of {in_file * VALUE_SIZE / 2**30:.1f} GiB{order}"
                row(name, used, fetched, None if in_order else 256)
    progress("")
    print(f"Peak memory with default settings, values of {VALUE_SIZE} bytes, after imports and opening")
    print_table(["", "MiB", "allowed"], rows)
