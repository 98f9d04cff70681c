"""Which partition a record goes to: the same as with Kafka's Java client, for every key."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.producer.partitioner import StickyPartition, key_partitions, murmur2, murmur2_column


def reference(data: bytes) -> int:
    """Kafka's ``Utils.murmur2``, one key at a time, as an unsigned number."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


# Source: Kafka UtilsTest.testMurmur2
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == reference(key) == expected % 2**32


keys = st.lists(st.one_of(st.none(), st.binary(max_size=9), st.binary(max_size=300)), max_size=40)


@pytest.mark.slow
@given(keys, st.sampled_from([pa.binary(), pa.large_binary()]), st.data())
def test_a_column_of_keys_is_hashed_as_each_key_alone(data: list[bytes | None], kind: pa.DataType, draw) -> None:
    start = draw.draw(st.integers(0, len(data)))
    end = draw.draw(st.integers(start, len(data)))
    column = pa.array(data, kind).slice(start, end - start)
    assert murmur2_column(column).tolist() == [reference(key or b"") for key in data[start:end]]


def test_keys_of_every_length_are_hashed_as_kafka_does() -> None:
    source = random.Random(1).randbytes(300)
    data = [source[:length] for length in range(301)]
    random.Random(2).shuffle(data)
    assert murmur2_column(pa.array(data, pa.binary())).tolist() == [reference(key) for key in data]


def test_keys_far_longer_than_others_are_hashed_as_kafka_does() -> None:
    source = random.Random(1)
    data = [source.randbytes(length) for length in (3, 60_001, 0, 17, 20_002, 60_003, 16)]
    assert murmur2_column(pa.array(data, pa.binary())).tolist() == [reference(key) for key in data]


def test_a_column_without_any_byte_is_hashed() -> None:
    assert murmur2_column(pa.array([], pa.binary())).tolist() == []
    assert murmur2_column(pa.nulls(2, pa.binary())).tolist() == [reference(b"")] * 2
    assert murmur2_column(pa.array([b"", b""], pa.binary())).tolist() == [reference(b"")] * 2


@pytest.mark.slow
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.integers(1, 10_000))
def test_the_partition_of_a_key_is_its_hash_without_the_sign_modulo_their_number(data: list[bytes], count: int) -> None:
    """Source: Kafka ``BuiltInPartitioner.partitionForKey``."""
    found = key_partitions(pa.array(data, pa.binary()), count)
    assert found.tolist() == [(reference(key) & 0x7FFFFFFF) % count for key in data]


def test_the_sticky_partition_changes_after_a_batch_of_bytes_and_then_for_another() -> None:
    sticky = StickyPartition(100, choose=random.Random(5))
    for _ in range(20):
        first = sticky.take(3, 60)
        assert sticky.take(3, 60) == first
        assert sticky.take(3, 0) != first
        sticky.take(3, 100)


def test_the_sticky_partition_reaches_all_of_them() -> None:
    sticky = StickyPartition(1, choose=random.Random(5))
    assert {sticky.take(4, 1) for _ in range(100)} == {0, 1, 2, 3}


def test_the_sticky_partition_of_a_topic_with_one_stays() -> None:
    sticky = StickyPartition(1)
    assert [sticky.take(1, 10) for _ in range(3)] == [0, 0, 0]


def test_a_sticky_partition_that_is_there_no_more_is_left() -> None:
    sticky = StickyPartition(1_000, choose=random.Random(5))
    while sticky.take(5, 1_000) != 4:
        pass
    assert 0 <= sticky.take(2, 1) < 2
