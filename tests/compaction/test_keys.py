"""Which records of a compacted topic stay. Source of the rules: Kafka Cleaner.shouldRetainRecord."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sparklog.compaction.keys import Counts, LatestOffsets, judge


def a_map(**latest: int) -> LatestOffsets:
    found = LatestOffsets()
    for key, offset in latest.items():
        found.add(pa.chunked_array([[key.encode()]]), pa.chunked_array([[offset]], pa.int64()))
    return found


def kept(key: bytes | None, value: bytes | None, offset: int, latest: LatestOffsets, *, due: int = 0) -> bool:
    records = pa.table({"key": pa.array([key], pa.binary()), "value": pa.array([value], pa.binary())})
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
            "value": pa.array([b"1", b"2", b"x", b"old", None, None], pa.binary()),
        }
    )
    mask, counts = judge(records, np.arange(6), a_map(a=1, t=5), due_tombstones_end=5)
    assert mask.tolist() == [False, True, False, False, False, True]
    assert counts == Counts(records=6, superseded=2, keyless=1, tombstones_dropped=1, tombstones_kept=1)
    assert counts + counts == Counts(records=12, superseded=4, keyless=2, tombstones_dropped=2, tombstones_kept=2)
