"""A few plain records, prepared without Arrow: files and outcomes are those of records that Arrow prepares."""

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.config import TopicConfig
from sparklog.log.data.encode import encode_batch
from sparklog.log.data.few_rows import FEW_RECORDS
from sparklog.log.data.producer_stamp import ProducerStamp
from sparklog.log.data.sorted_rows import as_table
from sparklog.producer import batch as batches
from sparklog.producer import pure_accumulator
from sparklog.producer.batch import RecordBatch
from sparklog.producer.few_records import prepare_few
from sparklog.producer.partitioner import StickyPartition
from sparklog.producer.prepared_batch import prepare

NOW_MS = 1_800_000_000_000
BYTES = st.none() | st.binary(max_size=40)
RECORDS = st.lists(st.tuples(BYTES, BYTES, st.integers(0, 9)), min_size=1, max_size=FEW_RECORDS)
COMPACTED = {"cleanup.policy": "compact"}
BY_THE_LOG = {"message.timestamp.type": "LogAppendTime"}


@pytest.fixture(params=["as chosen", "pure"], autouse=True)
def accumulators(request, monkeypatch):
    """The accumulator that runs here, and that of pure Python."""
    if request.param == "pure":
        for name in ("Accumulator", "columns_of", "few_of"):
            monkeypatch.setattr(batches, name, getattr(pure_accumulator, name))


def a_batch(records, details=None) -> RecordBatch:
    batch = RecordBatch("t", created_ticks_ms=0.0)
    batch.room_bytes = 1 << 30
    for key, value, age_ms in records:
        batch.records.append(key, value, (NOW_MS - age_ms) * 1_000_000, details, 100)
    return batch


def both(records, config=None, *, partition_count=1, details=None):
    """What the two ways make of the same records; None where the first leaves them to the second."""
    how = {"partition_count": partition_count, "now_ms": NOW_MS}
    config = TopicConfig(config or {})
    found = prepare_few([few := a_batch(records, details)], config, **how, sticky=a_sticky())
    if found is None:  # nothing is lost, and no partition was drawn
        found = prepare([few], config, **how, sticky=a_sticky())
        is_left = True
    else:
        is_left = False
    return is_left, found, prepare([a_batch(records, details)], config, **how, sticky=a_sticky())


def a_sticky() -> StickyPartition:
    return StickyPartition(1, choose=random.Random(5))


def assert_same(found, expected):
    assert (found.counts, found.part_counts) == (expected.counts, expected.part_counts)
    assert found.refused.keys() == expected.refused.keys()
    for name in ("partitions", "order", "timestamps_ms", "key_sizes", "value_sizes"):
        one, other = getattr(found, name), getattr(expected, name)
        assert [*one] == [*other]
    assert [partition for partition, _ in found.parts] == [partition for partition, _ in expected.parts]
    for (_, one), (_, other) in zip(found.parts, expected.parts, strict=True):
        assert as_table(one).equals(as_table(other).combine_chunks())
        stamp = ProducerStamp(1, 0, 0)
        for compression in ("none", "zstd"):
            files = [encode_batch(each, stamp, compression=compression) for each in (one, other)]
            assert bytes(files[0].data) == bytes(files[1].data)
            assert files[0].min_timestamp_ms == files[1].min_timestamp_ms


@settings(max_examples=40)
@given(RECORDS, st.sampled_from([1, 2, 7]), st.sampled_from([{}, BY_THE_LOG]))
def test_both_ways_prepare_the_same(records, partition_count, config):
    is_left, found, expected = both(records, config, partition_count=partition_count)
    assert not is_left
    assert_same(found, expected)
    offsets = [10 * number for number in range(len(found.parts))]
    outcomes = [each.outcomes(offsets)[0].require_written() for each in (found, expected)]
    assert [*outcomes[0].offsets] == [*outcomes[1].offsets]


@pytest.mark.parametrize(
    ("records", "config"),
    [
        ([(None, b"v", 0), (b"k", b"v", 0)], COMPACTED),
        ([(b"k", b"v", 0), (b"k", b"v", 5_000)], {"message.timestamp.before.max.ms": 1_000}),
        ([(b"k", b"v", -4_000_000)], {}),
        ([(b"k", b"v", 0)] * (FEW_RECORDS + 1), {}),
    ],
)
def test_what_is_refused_or_more_is_left_as_it_is(records, config):
    is_left, found, expected = both(records, config)
    assert is_left
    assert_same(found, expected)


def test_records_with_more_than_key_and_value_are_left_as_they_are():
    for details in [
        (None, [("n", b"v")], 2, None, None),
        (None, None, -1, 0, None),
        (NOW_MS - 1, None, -1, None, None),
    ]:
        is_left, found, expected = both([(b"k", b"v", 0)], details=details)
        assert is_left
        assert found.parts[0][1].table().equals(expected.parts[0][1].table())


def test_what_was_dropped_meanwhile_is_left_as_it_is():
    batch = a_batch([(b"k", b"v", 0)])
    batch.drop_records()
    assert batch.few_records() is None
    assert prepare_few([batch], TopicConfig({}), partition_count=1, sticky=a_sticky(), now_ms=NOW_MS) is None


def test_several_batches_and_others_than_records_are_left_as_they_are():
    how: dict[str, Any] = {"partition_count": 1, "sticky": a_sticky(), "now_ms": NOW_MS}
    two = [a_batch([(b"k", b"v", 0)]) for _ in range(2)]
    table = batches.TableBatch("t", pa.table({"value": [b"v"]}), created_ticks_ms=0.0, size_bytes=1)
    assert prepare_few(two, TopicConfig({}), **how) is None
    assert prepare_few([table], TopicConfig({}), **how) is None
    assert [batch.few_records() for batch in two] == [([NOW_MS], [b"k"], [b"v"])] * 2


def test_records_that_were_prepared_are_not_kept():
    batch = a_batch([(b"k", b"v", 0)])
    assert prepare_few([batch], TopicConfig({}), partition_count=1, sticky=a_sticky(), now_ms=NOW_MS) is not None
    assert batch.count == 1
    assert batch._taken is None
