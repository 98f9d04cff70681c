"""What an ingest decides: which rows are the same, how far back it looks, which number it has."""

from __future__ import annotations

from sparklog.config import TopicConfig
from sparklog.delta.actions import AddFile, SetTransaction
from sparklog.log.data.segments import Segment, SegmentIndex
from sparklog.log.head import TopicHead
from sparklog.spark.ingest.ingest_rules import (
    INGEST_APP_ID,
    ProducerRange,
    identity_columns,
    in_window,
    inserted_count,
    may_be_of,
    merge_condition,
    next_txn_version,
    window_starts,
)

ONE = ProducerRange(first_producer_id=7, last_producer_id=7, first_sequence=0, last_sequence=9)


def a_head(*ends: int) -> TopicHead:
    return TopicHead(
        delta_version=1,
        topic_id="id",
        deleted=False,
        config=TopicConfig(),
        log_start_offsets=(0,) * len(ends),
        log_end_offsets=ends,
        live_file_count=0,
        unsequenced_count=0,
    )


def a_segment(path: str, partition: int | None, base_offset: int | None, modification_ms: int) -> Segment:
    return Segment(
        path=path,
        partition=partition,
        base_offset=base_offset,
        size_bytes=1,
        modification_ms=modification_ms,
        record_count=None,
        min_offset_delta=None,
        max_offset_delta=None,
        min_timestamp_ms=None,
        max_timestamp_ms=None,
    )


def test_each_ingest_of_a_topic_takes_the_next_number():
    assert next_txn_version({}) == 0
    assert next_txn_version({INGEST_APP_ID: SetTransaction(app_id=INGEST_APP_ID, version=4, last_updated_ms=0)}) == 5


def test_inserted_rows_are_counted_by_the_files_statistics():
    assert inserted_count([]) == 0
    assert (
        inserted_count(
            AddFile(path="f", partition_values={}, size_bytes=1, modification_ms=0, stats={"numRecords": count})
            for count in (2, 5)
        )
        == 7
    )


def test_the_window_begins_at_the_first_file_that_is_young_enough():
    index = SegmentIndex.of(
        [
            a_segment("old", 0, 0, 1_000),
            a_segment("young", 0, 100, 5_000),
            a_segment("newest", 0, 200, 6_000),
            a_segment("old too", 1, 0, 4_999),
            a_segment("rewritten", 2, 50, 5_500),
            a_segment("waits", 2, None, 6_000),
            a_segment("of no partition", None, None, 6_000),
        ]
    )
    head = a_head(300, 40, 70, 0)
    assert window_starts(head, index, now_ms=9_000, window_ms=1_000) == (100, 40, 50, 0)
    assert window_starts(head, index, now_ms=9_000, window_ms=9_000) == (0, 0, 50, 0)
    # A writer's clock that runs ahead doesn't end the window of what was written by right ones.
    index.add(a_segment("from the future", 3, 0, 10**15))
    assert window_starts(head, index, now_ms=6_000, window_ms=1_000) == (100, 40, 50, 0)
    assert window_starts(a_head(0), SegmentIndex(), now_ms=5, window_ms=1) == (0,)


def test_conditions_name_partition_columns_first_and_all_rows_that_may_match():
    assert in_window((0, 0)) == "base_offset IS NOT NULL"
    assert "array(100L, 40L)" in in_window((100, 40))
    other = ProducerRange(first_producer_id=8, last_producer_id=12, first_sequence=3, last_sequence=3)
    assert may_be_of([ONE, other], "t.") == (
        "(t.producer_id >= 7L AND t.producer_id <= 7L AND t.sequence >= 0 AND t.sequence <= 9)"
        " OR (t.producer_id >= 8L AND t.producer_id <= 12L AND t.sequence >= 3 AND t.sequence <= 3)"
    )
    assert merge_condition(["sequence", "key"], [ONE]).startswith("t.base_offset IS NULL AND ((t.producer_id >= 7L")
    assert merge_condition(["sequence", "key"], [ONE]).endswith("t.sequence <=> s.sequence AND t.key <=> s.key")


def test_the_key_stands_for_a_partition_that_isnt_given():
    assert identity_columns(partition_is_given=True) == ("partition", "producer_id", "producer_epoch", "sequence")
    assert identity_columns(partition_is_given=False) == ("producer_id", "producer_epoch", "sequence", "key")
