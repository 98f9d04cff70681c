"""Files of many plain records, which a consumer's fetcher makes no Arrow batches of: polls return what they return by
Arrow."""

from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog._native import CORE
from sparklog.consumer import segment_fetcher
from sparklog.consumer.joined_rows import joined
from sparklog.consumer.plain_columns import PlainColumns
from sparklog.consumer.records import RecordMaker
from sparklog.log.data.copied_rows import CopiedRows
from sparklog.log.data.encode import encode_batch
from sparklog.log.data.few_rows import FewRows, as_batch, offset_at
from sparklog.log.data.plain_reading import read_plain_rows
from sparklog.model import CREATE_TIME, TopicPartition
from sparklog.producer import Producer
from tests.consumer.support import LONG_MS, a_cluster, a_consumer, take, tp, with_topic
from tests.log.test_plain_records import MANY, STAMP, prepared, some_rows

pytestmark = pytest.mark.skipif(CORE is None, reason="the native core isn't compiled")

MOST = 2**22
AT = TopicPartition("t", 3)


def copied(rows: Any, base_offset: int) -> CopiedRows:
    found = read_plain_rows(encode_batch(rows, STAMP).data, rows.num_rows, base_offset, MOST)
    assert found is not None
    return found


@settings(max_examples=60)
@given(some_rows(), st.integers(0, 2**40), st.data())
def test_any_part_is_the_same_as_of_arrows_batch(given_rows, base_offset, data):
    rows = copied(given_rows, base_offset)
    batch = as_batch(rows)
    batch.validate(full=True)
    for _ in range(2):  # a part, and a part of it
        start = data.draw(st.integers(0, rows.num_rows))
        count = data.draw(st.none() | st.integers(0, rows.num_rows + 1))
        rows, batch = rows.slice(start, count), batch.slice(start, count)
        found = as_batch(rows)
        found.validate(full=True)
        assert found == batch
        assert [column.null_count for column in found.columns] == [column.null_count for column in batch.columns]
        assert list(rows.offsets) == batch.column("offset").to_pylist()
        if not rows.num_rows:
            return
        assert offset_at(rows, -1) == offset_at(batch, -1)
        columns = [found for found in (PlainColumns.of(rows), PlainColumns.of(batch)) if found is not None]
        at = data.draw(st.integers(0, rows.num_rows - 1))
        made = [RecordMaker(None, None).make_part(each, at, rows.num_rows - at, AT, 0) for each in columns]
        assert made == [RecordMaker(None, None).make(batch.slice(at), AT, 0)] * 2


def test_small_files_of_several_kinds_are_put_together_in_their_order():
    rows = prepared(range(MANY), [None] * MANY, [b"v"] * MANY)
    few = FewRows([7], [1], [None], [b"few"])
    parts = [copied(rows, 10), few, as_batch(copied(rows, 10 + MANY)), copied(rows, 10 + 2 * MANY).slice(3)]
    (together,) = joined(parts, 2**20)
    assert together == pa.concat_batches([as_batch(each) for each in parts])
    assert joined(parts[:1], 2**20)[0] is parts[0]
    assert all(a is b for a, b in zip(joined(parts, 1), parts, strict=True))  # none is small


def test_their_memory_is_counted_by_the_part_that_is_left():
    rows = copied(prepared(range(MANY), [b"k"] * MANY, [b"v" * 1000] * MANY), 0)
    assert MANY * 1_000 < rows.nbytes < MANY * 1_200 + 4_096
    assert rows.slice(MANY // 2).nbytes == pytest.approx(rows.nbytes / 2, rel=0.1)


@pytest.mark.parametrize("max_records", [7, 60, 500])
def test_a_consumer_reads_plain_files_without_arrow(max_records):
    cluster = with_topic(a_cluster())
    sent = [(None if number % 5 == 0 else b"%d" % number, b"v" * (number % 9)) for number in range(150)]
    with Producer(cluster=cluster, linger_ms=60_000) as producer:
        for number, (key, value) in enumerate(sent):
            producer.send("t", key=key, value=value, timestamp_ms=number)
            if number in (59, 99):
                producer.flush()
    with (
        mock.patch.object(segment_fetcher, "open_segments", side_effect=AssertionError("Arrow isn't needed")),
        a_consumer(cluster) as consumer,
    ):
        consumer.assign([tp()])
        consumer.seek(tp(), 20)  # within the first file
        found = take(consumer, 130, max_records=max_records)
        assert [(r.offset, r.key, r.value, r.timestamp) for r in found] == [
            (number, *sent[number], number) for number in range(20, 150)
        ]
        assert {r.timestamp_type for r in found} == {CREATE_TIME}
        consumer.seek(tp(), 30)
        batches: list[pa.RecordBatch] = []
        while sum(batch.num_rows for batch in batches) < 120:
            batches += consumer.poll_batches(timeout_ms=LONG_MS, max_records=max_records).values()
        table = pa.Table.from_batches(batches)
        assert table["offset"].to_pylist() == [*range(30, 150)]
        assert [*zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)] == sent[30:]
