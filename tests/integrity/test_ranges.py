"""Ranges of offsets, against sets of numbers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.integrity.log_listing import holes, without_strays
from sparklog.integrity.ranges import RangeSet, within, without

RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12)


def of(ranges: list[tuple[int, int]]) -> RangeSet:
    found = RangeSet()
    for first, end in ranges:
        found.add(first, end)
    return found


def numbers(ranges: list[tuple[int, int]]) -> set[int]:
    return {number for first, end in ranges for number in range(first, end)}


@pytest.mark.slow
@given(RANGES)
def test_a_set_of_ranges_holds_what_was_added(ranges: list[tuple[int, int]]) -> None:
    found = of(ranges).ranges()
    assert numbers(found) == numbers(ranges)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(found))


@pytest.mark.slow
@given(RANGES, RANGES)
def test_what_is_left(wanted: list[tuple[int, int]], gone: list[tuple[int, int]]) -> None:
    left = without(of(wanted).ranges(), of(gone).ranges())
    assert numbers(left) == numbers(wanted) - numbers(gone)


@pytest.mark.slow
@given(RANGES, st.integers(0, 30), st.integers(0, 30))
def test_what_lies_within(ranges: list[tuple[int, int]], first: int, end: int) -> None:
    assert numbers(within(of(ranges).ranges(), first, end)) == numbers(ranges) & set(range(first, end))


def test_ranges_that_follow_one_another_take_no_room() -> None:
    found = RangeSet()
    for number in range(0, 10_000, 2):
        found.add(number, number + 1)
        found.add(number + 1, number + 2)
    assert found.ranges() == [(0, 10_000)]
    assert len(found._ranges) == 1


def test_strays_stand_below_a_run_and_are_younger() -> None:
    assert list(without_strays({4: 10, 5: 11, 6: 12})) == [4, 5, 6]
    assert list(without_strays({1: 20, 4: 10, 5: 11})) == [4, 5]
    assert list(without_strays({3: 20, 4: 10, 5: 11})) == [4, 5]
    assert list(without_strays({1: 9, 4: 10, 5: 11})) == [1, 4, 5]
    assert list(without_strays({1: 20, 3: 21, 5: 11})) == [5]
    assert list(holes({1: 0, 4: 0, 5: 0, 9: 0})) == [(2, 4), (6, 9)]
