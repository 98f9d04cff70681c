"""Which records of a compacted topic stay. Source of the rules: Kafka Cleaner.shouldRetainRecord."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from sparklog.compaction import keys
from sparklog.compaction.keys import Counts, LatestOffsets, judge
from sparklog.log.data.murmur2 import key_partitions


def a_map(**latest: int) -> LatestOffsets:
    found = LatestOffsets()
    for key, offset in latest.items():
        found.add(pa.chunked_array([[key.encode()]]), pa.chunked_array([[offset]], pa.int64()))
    return found


def kept(key: bytes | None, value: bytes | None, offset: int, latest: LatestOffsets, *, due: int = 0) -> bool:
    records = pa.table({"key": pa.array([key], pa.binary()), "is_tombstone": pa.array([value is None])})
    mask, counts = judge(records, np.array([offset]), latest, due_tombstones_end=due)
    assert counts.records == 1
    assert counts.dropped == (0 if mask[0] else 1)
    return bool(mask[0])


@pytest.mark.parametrize(
    ("key", "offset", "expected"),
    [(b"a", 4, False), (b"a", 5, True), (b"a", 6, True), (b"b", 0, True), (None, 9, False), (b"", 0, True)],
)
def test_a_record_stays_unless_its_key_is_known_at_a_greater_offset(
    key: bytes | None, offset: int, expected: bool
) -> None:
    assert kept(key, b"v", offset, a_map(a=5)) is expected


@pytest.mark.parametrize(("offset", "value", "expected"), [(9, None, False), (10, None, True), (9, b"", True)])
def test_a_tombstone_goes_below_the_offset_up_to_which_they_are_due(
    offset: int, value: bytes | None, expected: bool
) -> None:
    assert kept(b"a", value, offset, a_map(a=5), due=10) is expected


def test_counts_add_up() -> None:
    records = pa.table(
        {
            "key": pa.array([b"a", b"a", None, b"t", b"u", b"t"], pa.binary()),
            "is_tombstone": [False, False, False, False, True, True],
        }
    )
    mask, counts = judge(records, np.arange(6), a_map(a=1, t=5), due_tombstones_end=5)
    assert mask.tolist() == [False, True, False, False, False, True]
    assert counts == Counts(records=6, superseded=2, keyless=1, tombstones_dropped=1, tombstones_kept=1)
    assert counts + counts == Counts(records=12, superseded=4, keyless=2, tombstones_dropped=2, tombstones_kept=2)


@pytest.mark.parametrize(("waiting_rows", "split_bytes"), [(1, 10**9), (7, 50), (1_000, 2_000)])
def test_keys_are_told_apart_whatever_tables_they_are_in(
    waiting_rows: int, split_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "_WAITING_ROWS", waiting_rows)
    monkeypatch.setattr(keys, "_SPLIT_BYTES", split_bytes)
    chance = random.Random(waiting_rows)
    known = [b"", b"a", *(chance.randbytes(chance.randrange(9)) for _ in range(60))]
    found, expected, offset = LatestOffsets(), dict.fromkeys([b"never"], -1), 0
    for _ in range(30):
        added = [chance.choice([None, *known]) for _ in range(chance.randrange(12))]
        numbers = [offset + number for number in range(len(added))]
        offset += len(added)
        order = chance.sample(range(len(added)), len(added))
        found.add(
            pa.chunked_array([pa.array([added[at] for at in order], pa.binary())]),
            pa.chunked_array([pa.array([numbers[at] for at in order], pa.int64())]),
        )
        expected.update((key, number) for key, number in zip(added, numbers, strict=True) if key is not None)
    assert len(found) == len(expected) - 1
    asked = [None, *expected]
    chunks = [pa.array(asked[:20], pa.binary()), pa.array(asked[20:], pa.binary())]
    assert found.of(pa.chunked_array(chunks)).tolist() == [-1, *expected.values()]
    assert found.exceeds(10**9) is False
    assert found.exceeds(1) is True


def test_the_keys_of_one_partition_are_in_many_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their hashes have the same rest by the number of partitions."""
    monkeypatch.setattr(keys, "_SPLIT_BYTES", 0)
    some = pa.array([str(number).encode() for number in range(20_000)], pa.binary())
    ours = some.filter(pa.array(key_partitions(some, 16) == 3))
    found = LatestOffsets()
    found.add(pa.chunked_array([ours]), pa.chunked_array([np.arange(len(ours))]))
    assert len(found) == len(ours)
    sizes = [table.num_rows for table in found._tables]
    assert len(sizes) == 16
    assert max(sizes) < 2 * len(ours) / 16
