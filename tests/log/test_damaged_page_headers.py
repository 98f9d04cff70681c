"""Readers of files by ranges: a bit of a page's header has changed, or the number of records isn't the log's."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.delta.log import DeltaLog
from sparklog.delta.parquet_seals import WRITER_OPTIONS, close_sealed
from sparklog.errors import CorruptRecordError
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.log.data import record_reading
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.record_streaming import open_segments
from sparklog.log.data.schema import DATA_SCHEMA
from sparklog.log.data.segments import Segment
from sparklog.log.restore import _records as restored_records
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic
from sparklog.sql import topic_dataset
from sparklog.sql.search import Search, TopicSearch
from tests.delta.page_headers import page_headers
from tests.depth import by_depth
from tests.support import T0_MS, a_writer, append

ROWS = 20
KEYS = [None if number % 3 else b"k%d" % number for number in range(ROWS)]
VALUES = [b"v%d" % number if number % 7 else None for number in range(ROWS)]

Rows = list[tuple[int, bytes | None, bytes | None]]
EXPECTED: Rows = list(zip(range(ROWS), KEYS, VALUES, strict=True))


def a_file(*, count: int = ROWS, value_bytes: int | None = None) -> bytes:
    """As compaction writes one, with several pages in each column."""
    values = VALUES if value_bytes is None else [b"v" * value_bytes] * count
    columns = {
        "offset_delta": pa.array(range(count), pa.int64()),
        "timestamp": pa.array([T0_MS * 1_000] * count, pa.int64()).view(DATA_SCHEMA.field("timestamp").type),
        "key": pa.array(KEYS[:count], pa.binary()),
        "value": pa.array(values, pa.binary()),
    }
    schema = pa.schema([DATA_SCHEMA.field(name) for name in columns])
    sink = io.BytesIO()
    writer = pq.ParquetWriter(
        sink,
        schema,
        compression="none",
        use_dictionary=False,
        data_page_size=8,
        write_batch_size=3,
        store_schema=False,
        **WRITER_OPTIONS,
    )
    writer.write_table(pa.table(columns, schema=schema))
    return close_sealed(writer, sink)


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Cluster:
    """A topic with a file of so many records, which its readers read by ranges."""
    monkeypatch.setattr(record_reading, "WHOLE_FILE_BYTES", 0)
    cluster = open_cluster(tmp_path)
    create_topic(cluster.topic_log("t"), "t", num_partitions=1)
    append(a_writer(cluster.topic_log("t")), *map(str, range(ROWS)))
    return cluster


def put(cluster: Cluster, data: bytes) -> tuple[DeltaLog, Segment]:
    """Exchange the topic's file."""
    log = cluster.topic_log("t")
    [segment] = load_state(log).require_whole().index.by_path.values()
    cluster.store.put(object_path(log.table, segment.path), data)
    return log, replace(segment, size_bytes=len(data))


def by_consumer(cluster: Cluster, log: DeltaLog, segment: Segment) -> Rows:
    opened = open_segments(log, [segment], None, start_offset=0, piece_bytes=20)
    return [(row["offset"], row["key"], row["value"]) for piece in opened.pieces for row in piece.to_pylist()]


def by_read_segment(cluster: Cluster, log: DeltaLog, segment: Segment) -> Rows:
    table = record_reading.read_segment(log, segment, columns=("key", "value"))
    return [(row["offset"], row["key"], row["value"]) for row in table.to_pylist()]


def by_sql(cluster: Cluster, log: DeltaLog, segment: Segment) -> Rows:
    dataset = topic_dataset(cluster, "t")
    found = [dataset.scanner(columns=[name]).to_table()[name].to_pylist() for name in ("offset", "key", "value")]
    assert dataset.scanner(columns=["offset", "key", "value"]).to_table().num_rows == ROWS
    return list(zip(*found, strict=False))


def by_search(cluster: Cluster, log: DeltaLog, segment: Segment) -> Rows:
    search = TopicSearch(cluster, "t", Search(limit=ROWS, first_offset=0, newest_first=False))
    return [(one.offset, one.key, one.value) for some in search for one in some]


READERS = [by_consumer, by_read_segment, by_sql, by_search]
Reader = Callable[[Cluster, DeltaLog, Segment], Rows]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("read", READERS)
def test_a_flipped_bit_of_a_page_header_is_never_served(cluster: Cluster, read: Reader):
    data = a_file()
    assert read(cluster, *put(cluster, data)) == EXPECTED
    refused = 0  # by errors that name the file
    for number, page in enumerate(page_headers(data)):
        if page.path not in ("key", "value"):
            continue
        for at in range(page.start + number % 3, page.begin, by_depth(gate=23, nightly=1)):
            for bit in range(number % 2, 8, 2):
                changed = bytearray(data)
                changed[at] ^= 1 << bit
                try:
                    found = read(cluster, *put(cluster, bytes(changed)))
                except CorruptRecordError as error:
                    refused += "partition=0/" in str(error)
                    continue
                assert found == EXPECTED
    assert refused > 20


@pytest.mark.parametrize("read", [*READERS, lambda cluster, *file: restored_rows(*file)])
def test_an_exchanged_file_of_the_same_size_with_fewer_records_is_refused(cluster: Cluster, read: Reader):
    whole = a_file(value_bytes=40)
    fewer = next(data for size in range(30, 200) if len(data := a_file(count=15, value_bytes=size)) >= len(whole))
    assert put(cluster, fewer)
    with pytest.raises(CorruptRecordError, match=r"partition=0/.*: it has 15 rows, and the log states 20"):
        read(cluster, *put(cluster, fewer))


def restored_rows(log: DeltaLog, segment: Segment) -> Any:
    return restored_records(log, segment, load_state(log).head)
