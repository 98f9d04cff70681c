"""Which small files are worth being merged: bounded work for each record, whatever the order and the number of runs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.compaction.plan_optimize import OptimizePolicy, plan_optimize
from sparklog.config import TopicConfig
from sparklog.errors import InvalidArgumentError
from sparklog.log.data.segments import Segment
from tests.compaction.support import a_segment, row_of
from tests.support import T0_MS

POLICY = OptimizePolicy(target_bytes=1_000, min_files=3, max_files=100)


def merged(segments: list[Segment], policy: OptimizePolicy = POLICY, **more: Any) -> list[list[int]]:
    """The sizes of the files of each range."""
    ranges = plan_optimize(segments, policy, partition=0, **more)
    return [[segment.size_bytes for segment in found.segments] for found in ranges]


NEWEST = 7


@pytest.mark.parametrize(
    ("sizes", "ranges"),
    [
        ([], []),
        ([10, 10, 10], []),  # with the newest only two are left
        ([10, 10, 10, 10], []),  # three files, but not four times the largest
        ([10, 10, 10, 10, NEWEST], [[10, 10, 10, 10]]),
        ([500, 10, 10, 10, 10, NEWEST], [[10, 10, 10, 10]]),  # half the target is large enough
        ([499, 10, 10, 10, 10, NEWEST], [[10, 10, 10, 10]]),  # not worth rewriting the large one …
        ([499, 300, 201, 10, NEWEST], [[499, 300, 201]]),  # … but for a file of the target
        ([10, 10, 10, 10, 600, 10, 10, 10, 10, NEWEST], [[10] * 4, [10] * 4]),
        ([300, 300, 300, 300, NEWEST], [[300, 300, 300]]),
        ([300] * 8 + [NEWEST], [[300] * 3, [300] * 3]),
        ([400, 1, 1, 1, 1, 499, 499, NEWEST], [[400, 1, 1, 1, 1, 499]]),
        ([10, 499, 499, NEWEST], [[10, 499]]),  # the first three would be too large
        ([1, 2, 4, 8, 16, 32, NEWEST], []),
        ([8, 1, 1, 1, 1, NEWEST], [[1, 1, 1, 1]]),
        ([1, 1, 1, 1, 8, 2, 2, 2, 2, NEWEST], [[1, 1, 1, 1], [2, 2, 2, 2]]),
    ],
)
def test_what_is_worth_it(sizes: list[int], ranges: list[list[int]]) -> None:
    assert merged(row_of(*sizes)) == ranges


def test_a_few_large_records_do_not_outweigh_many_small_ones() -> None:
    """The last file has most of the records, though few of the bytes."""
    files = row_of(10, 10, 10, 10, 10)
    files[3] = replace(files[3], record_count=1_000, max_offset_delta=9)
    assert merged(files) == []
    assert merged(row_of(10, 10, 10, 10, 10)) == [[10, 10, 10, 10]]


def test_no_more_files_at_once_than_allowed() -> None:
    assert merged(row_of(*[1] * 21), replace(POLICY, max_files=8)) == [[1] * 8, [1] * 8, [1] * 4]


def test_a_range_stays_on_its_side_of_the_boundary() -> None:
    assert merged(row_of(*[10] * 9), boundary_offset=40) == [[10] * 4, [10] * 4]
    assert merged(row_of(*[10] * 9), boundary_offset=45) == [[10] * 4, [10] * 4]
    assert merged(row_of(*[10] * 9), boundary_offset=30) == [[10] * 5]


def test_files_that_overlap_stay_together_and_those_without_stats_stay_as_they_are() -> None:
    ten = row_of(*[10] * 10)
    ten[3:5] = [
        a_segment(30, size_bytes=10, max_offset_delta=19),
        a_segment(30, size_bytes=10, path="second", min_offset_delta=10),
    ]
    assert merged(ten, replace(POLICY, max_files=8)) == [[10] * 8]
    assert merged(ten, replace(POLICY, max_files=7)) == []
    for most in range(3, 12):
        for found in plan_optimize(ten, replace(POLICY, max_files=most), partition=0):
            assert len({segment.path for segment in found.segments} & {ten[3].path, ten[4].path}) != 1
    for name in ("record_count", "max_offset_delta", "max_timestamp_ms"):
        files = row_of(*[10] * 10)
        files[4] = replace(files[4], **{name: None})  # type: ignore[arg-type]
        assert merged(files) == [[10] * 4, [10] * 4]


def test_a_merged_file_spans_no_more_time_than_allowed() -> None:
    files = [
        replace(file, min_timestamp_ms=T0_MS + 10 * at, max_timestamp_ms=T0_MS + 10 * at + 9)
        for at, file in enumerate(row_of(*[10] * 13))
    ]
    assert merged(files, replace(POLICY, max_span_ms=39)) == [[10] * 4] * 3
    assert merged(files, replace(POLICY, max_span_ms=38)) == []


@pytest.mark.parametrize(
    ("configs", "target", "span"),
    [
        ({}, 1_000, 60_480_000),  # a tenth of a week
        ({"retention.ms": -1}, 1_000, 604_800_000),  # segment.ms
        ({"retention.ms": -1, "segment.ms": 5}, 1_000, 5),
        ({"retention.ms": 30, "segment.ms": 5}, 1_000, 3),
        ({"retention.ms": 0}, 1_000, 0),
        ({"retention.bytes": 5_000}, 500, 60_480_000),
        ({"retention.bytes": 0}, 1, 60_480_000),
        ({"retention.bytes": 5_000, "cleanup.policy": "compact"}, 1_000, 604_800_000),
    ],
)
def test_a_topics_settings_bound_what_is_merged(configs: dict[str, object], target: int, span: int) -> None:
    policy = POLICY.for_topic(TopicConfig.parse(configs))
    assert (policy.target_bytes, policy.max_span_ms) == (target, span)
    assert OptimizePolicy(target_bytes=2**40).for_topic(TopicConfig.parse(configs)).target_bytes <= 2**30


@pytest.mark.parametrize(
    "wrong", [{"target_bytes": 0}, {"min_files": 1}, {"max_files": 2}, {"growth": 1.0}, {"max_span_ms": -1}]
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
        replace(POLICY, **wrong)


@pytest.mark.slow
@given(st.lists(st.integers(1, 600), max_size=60), st.integers(2, 9), st.integers(9, 20))
def test_ranges_are_disjoint_runs_of_neighbours_without_the_newest(sizes: list[int], least: int, most: int) -> None:
    files = row_of(*sizes)
    ranges = plan_optimize(files, OptimizePolicy(target_bytes=1_000, min_files=least, max_files=most), partition=0)
    offsets = [segment.first_offset for found in ranges for segment in found.segments]
    assert offsets == sorted(set(offsets))
    assert 10 * len(sizes) - 10 not in offsets
    for found in ranges:
        at = [segment.first_offset // 10 for segment in found.segments]
        assert at == list(range(at[0], at[0] + len(at)))
        assert 2 <= len(at) <= most
        assert found.size_bytes <= 1_000
        is_large = found.size_bytes >= 500
        assert is_large or found.size_bytes >= 4 * max(segment.size_bytes for segment in found.segments)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 40), min_size=50, max_size=400), st.integers(1, 30))
def test_a_record_is_rewritten_as_often_as_the_logarithm_of_the_sizes(sizes: list[int], files_per_run: int) -> None:
    """A partition grows and is optimized every few files, until nothing is worth it any more."""
    files: list[Segment] = []
    rewrites: dict[int, int] = {}
    for at, size in enumerate(sizes):
        files.append(a_segment(10 * at, size_bytes=size))
        if at % files_per_run:
            continue
        while ranges := plan_optimize(files, POLICY, partition=0):
            for found in ranges:
                for offset in range(found.first_offset, found.last_offset + 1, 10):
                    rewrites[offset] = rewrites.get(offset, 0) + 1
                whole = a_segment(
                    found.first_offset,
                    10 * len(range(found.first_offset, found.last_offset, 10)),
                    size_bytes=found.size_bytes,
                )
                start = files.index(found.segments[0])
                files[start : start + len(found.segments)] = [whole]
    assert max(rewrites.values(), default=0) <= math.log(500, POLICY.growth) + 2
    small = [file for file in files if file.size_bytes < 500]
    assert len(small) <= 3 + 4 * POLICY.min_files * math.log(500, POLICY.growth) + 2 * (len(files) - len(small))
