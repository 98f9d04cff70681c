"""Packed files are the same files again, and tell the times of offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparklog.log.data.segments import Segment, SegmentIndex
from sparklog.observe.packed_files import TimedRange, pack

NUMBERS = st.integers(0, 2**40)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    return Segment(
        path=f"partition=0/{draw(st.text(alphabet='abcä%/=', min_size=1, max_size=20))}",
        partition=draw(st.none() | st.integers(0, 3)),
        base_offset=draw(st.none() | NUMBERS),
        size_bytes=draw(NUMBERS),
        modification_ms=draw(NUMBERS),
        record_count=draw(st.none() | NUMBERS),
        min_offset_delta=draw(st.none() | NUMBERS),
        max_offset_delta=draw(st.none() | NUMBERS),
        min_timestamp_ms=draw(st.none() | st.integers(-(2**40), 2**40)),
        max_timestamp_ms=draw(st.none() | st.integers(-(2**40), 2**40)),
        delta_version=draw(st.integers(-1, 2**40)),
    )


@given(st.lists(segments(), max_size=30))
def test_what_was_packed_is_unpacked_as_it_was(files: list[Segment]) -> None:
    index = SegmentIndex.of(files)
    packed = pack(index)
    unpacked = packed.unpack()
    assert len(packed) == len(index)
    assert unpacked.by_path == index.by_path
    for partition in range(4):
        assert unpacked.partition(partition) == index.partition(partition)


@given(st.lists(segments(), max_size=30), st.integers(0, 3), NUMBERS)
def test_the_file_of_an_offset_is_the_first_that_holds_it_or_a_later_one(
    files: list[Segment], partition: int, offset: int
) -> None:
    index = SegmentIndex.of(files)
    known = [one for one in index.partition(partition) if None not in (one.min_offset_delta, one.max_offset_delta)]
    expected = next((one for one in known if one.last_offset >= offset), None)
    found = pack(index).range_at(partition, offset)
    if expected is None or None in (expected.min_timestamp_ms, expected.max_timestamp_ms):
        assert found is None
    else:
        assert found is not None
        assert (found.first_offset, found.last_offset) == (expected.first_offset, expected.last_offset)
        assert (found.min_ms, found.max_ms) == (expected.min_timestamp_ms, expected.max_timestamp_ms)


def test_a_number_beyond_64_bits_becomes_the_nearest_one() -> None:
    odd = Segment(
        path="a",
        partition=0,
        base_offset=0,
        size_bytes=10**30,
        modification_ms=-(10**30),
        record_count=1,
        min_offset_delta=0,
        max_offset_delta=0,
        min_timestamp_ms=0,
        max_timestamp_ms=0,
    )
    found = pack(SegmentIndex.of([odd])).unpack().by_path["a"]
    assert (found.size_bytes, found.modification_ms) == (2**63 - 1, -(2**63) + 1)


@given(NUMBERS, NUMBERS, st.integers(0, 2**30), st.integers(0, 2**30), NUMBERS)
def test_a_time_lies_between_those_of_its_file(first: int, length: int, low: int, span: int, offset: int) -> None:
    found = TimedRange(first_offset=first, last_offset=first + length, min_ms=low, max_ms=low + span)
    assert low <= found.time_at(offset) <= low + span
    assert found.time_at(first) == low
    if length:
        assert found.time_at(first + length) == low + span
