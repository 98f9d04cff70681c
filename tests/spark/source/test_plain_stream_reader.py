"""The reader of streams for PySpark 4.0 and 4.1, called as they do; without Spark. ``make sparks`` runs it there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from sparklog.admin import Admin
from sparklog.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from sparklog.log.cluster import open_cluster
from sparklog.model import TopicPartition
from sparklog.spark.source.plain_stream_reader import PlainStreamReader
from sparklog.spark.source.readers import Columns
from sparklog.streaming.source_options import source_options
from tests.spark.spark_support import a_cluster, put

Offsets = dict[str, Any]


def a_reader(root: Path, **options: str) -> PlainStreamReader:
    given = {"path": str(root), "subscribe": "t", "startingOffsets": "earliest", **options}
    return PlainStreamReader(source_options(given, streaming=True), Columns(("offset",), {}))


def batch(reader: PlainStreamReader, start: Offsets) -> tuple[Offsets, list[int]]:
    """What Spark does for one micro-batch: where it ends, and the offsets that its tasks read."""
    end = reader.latestOffset()
    return end, read(reader, start, end)


def read(reader: PlainStreamReader, start: Offsets, end: Offsets) -> list[int]:
    found = [rows.column(0).to_pylist() for task in reader.partitions(start, end) for rows in reader.read(task)]
    return sorted(offset for offsets in found for offset in offsets)


def test_a_new_query_goes_on_from_where_it_began(tmp_path):
    cluster = a_cluster(tmp_path)
    put(cluster, (0, "abc"))
    reader = a_reader(tmp_path)
    start = reader.initialOffset()
    end, offsets = batch(reader, start)
    assert offsets == [0, 1, 2]
    assert reader.latestOffset() == end  # by which Spark sees that there is nothing
    put(cluster, (0, "d"))
    assert batch(reader, end)[1] == [3]


def test_a_query_that_is_started_again_is_told_its_place_by_an_empty_batch(tmp_path):
    """As ``setLatestSeenOffset`` does; the limit counts from there."""
    cluster = a_cluster(tmp_path)
    for _ in range(4):
        put(cluster, (0, "ab"))
    first = a_reader(tmp_path, maxOffsetsPerTrigger="2")
    end, offsets = batch(first, first.initialOffset())
    assert offsets == [0, 1]
    again = a_reader(tmp_path, maxOffsetsPerTrigger="2")
    assert again.partitions(end, end) == []
    assert batch(again, end)[1] == [2, 3]


def test_a_batch_that_had_been_planned_is_run_again(tmp_path):
    cluster = a_cluster(tmp_path)
    put(cluster, (0, "ab"))
    died = a_reader(tmp_path)
    start = died.initialOffset()
    end = died.latestOffset()
    put(cluster, (0, "cd"))
    again = a_reader(tmp_path)
    again.partitions(end, end)
    assert read(again, start, end) == [0, 1]
    assert batch(again, end)[1] == [2, 3]


def test_available_now_asks_for_the_end_first_and_gets_all_of_it(tmp_path):
    """Whatever the limit: Spark asks once, and ends where it was told."""
    cluster = a_cluster(tmp_path)
    for _ in range(3):
        put(cluster, (0, "ab"), (1, "c"))
    reader = a_reader(tmp_path, maxOffsetsPerTrigger="2")
    end = reader.latestOffset()
    put(cluster, (0, "later"))
    assert read(reader, reader.initialOffset(), end) == [0, 0, 1, 1, 2, 2, 3, 4, 5]


def test_what_is_gone_is_told_also_where_the_end_came_first(tmp_path):
    cluster = a_cluster(tmp_path)
    put(cluster, (0, "abcd"))
    first = a_reader(tmp_path)
    before = first.initialOffset()
    Admin(cluster).delete_records({TopicPartition("t", 0): 2})
    reader = a_reader(tmp_path)
    end = reader.latestOffset()
    with pytest.raises(OffsetOutOfRangeError):
        reader.partitions(before, end)
    Admin(cluster).delete_topics(["t"])
    put(a_cluster_again(tmp_path), (0, "xyz"))
    reader = a_reader(tmp_path)
    end = reader.latestOffset()
    with pytest.raises(UnknownTopicOrPartitionError, match="another of its name created"):
        reader.partitions(before, end)


def a_cluster_again(root: Path) -> Any:
    from sparklog.admin import NewTopic

    cluster = open_cluster(root)
    Admin(cluster).create_topics([NewTopic("t", 2)])
    return cluster
