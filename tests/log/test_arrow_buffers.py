"""Numbers that are read from Arrow's buffers are those that its compute functions give."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.log.data.arrow_buffers import binary_lengths, buffer_numbers, is_valid

VALUES = st.lists(st.none() | st.binary(max_size=5), max_size=40)


@pytest.mark.slow
@given(values=VALUES, start=st.integers(0, 20))
def test_lengths_and_nulls_of_any_slice_are_those_of_arrow(values, start):
    array = pa.array(values, pa.binary()).slice(start)
    assert binary_lengths(array).tolist() == pc.fill_null(pc.binary_length(array), -1).to_pylist()
    assert is_valid(array).tolist() == pc.is_valid(array).to_pylist()


@pytest.mark.parametrize("array", [pa.nulls(3, pa.binary()), pa.array([], pa.binary()), pa.array([b"a"]).slice(1)])
def test_arrays_without_values_have_no_lengths_to_read(array):
    assert binary_lengths(array).tolist() == [-1] * len(array)
    assert is_valid(array).tolist() == [False] * len(array)


def test_numbers_of_a_slice_begin_where_it_begins():
    array = pa.array([1, 2, 3, 4], pa.int64()).slice(1, 2)
    assert buffer_numbers(array, 1, np.int64).tolist() == [2, 3]


def test_lengths_may_be_changed_without_changing_the_array():
    array = pa.array([b"ab", b"c"])
    binary_lengths(array)[:] = 9
    assert array.to_pylist() == [b"ab", b"c"]
