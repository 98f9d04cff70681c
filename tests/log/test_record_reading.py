"""Timestamps of records in milliseconds."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparklog.log.data.record_reading import milliseconds
from sparklog.log.data.schema import TIMESTAMP

MICROSECONDS = st.integers(-(2**52), 2**61)


@given(st.lists(st.lists(MICROSECONDS | st.none(), max_size=5), max_size=3), st.integers(0, 2))
def test_timestamps_are_rounded_down_to_milliseconds(chunks, first):
    column = pa.chunked_array([pa.array(chunk, pa.int64()).view(TIMESTAMP) for chunk in chunks], TIMESTAMP)[first:]
    numbers = [one for chunk in chunks for one in chunk][first:]
    found = milliseconds(column)
    assert found.type == pa.int64()
    assert found.to_pylist() == [None if one is None else one // 1_000 for one in numbers]
