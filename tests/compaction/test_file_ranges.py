"""Units of files: one that stands alone, as nearly all do, is what the sums over several say of it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparklog.compaction.file_ranges import FileUnit
from sparklog.log.data.segments import Segment

NUMBERS = st.none() | st.integers(0, 1_000)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    return Segment(
        path="a",
        partition=0,
        base_offset=draw(st.integers(0, 1_000)),
        size_bytes=draw(st.integers(0, 1_000)),
        modification_ms=draw(st.integers(0, 1_000)),
        record_count=draw(NUMBERS),
        min_offset_delta=draw(NUMBERS),
        max_offset_delta=draw(NUMBERS),
        min_timestamp_ms=draw(NUMBERS),
        max_timestamp_ms=draw(NUMBERS),
    )


@given(segments())
def test_a_file_alone_is_the_same_unit_as_among_its_likes(segment: Segment) -> None:
    twice = FileUnit.of([segment, segment])
    halved = replace(
        twice,
        segments=(segment,),
        size_bytes=twice.size_bytes // 2,
        record_count=twice.record_count // 2,
    )
    assert FileUnit.of([segment]) == halved
