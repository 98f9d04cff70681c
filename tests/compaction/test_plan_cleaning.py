"""When a partition of a compacted topic is due, up to where it may be cleaned, and when tombstones may go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.compaction.plan_cleaning import CleanerRules, CleanerState, CleanPlan, Reason, plan_cleaning
from sparklog.log.data.segments import Segment
from tests.compaction.support import row_of
from tests.support import DAY_MS, T0_MS

RULES = CleanerRules(
    compacts=True,
    min_lag_ms=0,
    max_lag_ms=2**63 - 1,
    min_dirty_ratio=0.5,
    delete_retention_ms=DAY_MS,
    segment_bytes=2**30,
)


def plan(
    segments: list[Segment], state: CleanerState | None = None, *, log_start: int = 0, **rules: object
) -> CleanPlan:
    return plan_cleaning(
        segments,
        replace(RULES, **rules),  # type: ignore[arg-type]
        state or CleanerState(),
        partition=0,
        log_start_offset=log_start,
        now_ms=T0_MS + 1_000,
    )


def test_the_newest_file_is_never_cleaned() -> None:
    assert plan([]).reason is Reason.NONE
    assert plan(row_of(100)).reason is Reason.NONE
    found = plan(row_of(100, 100))
    assert (found.reason, found.first_dirty_offset, found.end_offset) == (Reason.DIRTY, 0, 10)


@pytest.mark.parametrize(
    ("first_dirty", "log_start", "ratio"),
    [(0, 0, 1.0), (10, 0, 0.75), (20, 0, 0.5), (30, 0, 0.25), (40, 0, 0.0), (0, 20, 1.0), (15, 0, 0.75)],
)
def test_the_dirty_ratio_is_that_of_the_cleanable_bytes(first_dirty: int, log_start: int, ratio: float) -> None:
    """Source: Kafka LogToClean: cleanable / (clean + cleanable); what is not cleanable doesn't count."""
    found = plan(row_of(10, 10, 10, 10, 999), CleanerState(first_dirty_offset=first_dirty), log_start=log_start)
    assert found.dirty_ratio == ratio
    assert (found.reason is Reason.DIRTY) == (ratio > 0.5)
    assert found.end_offset == 40


def test_a_ratio_of_zero_asks_for_something_dirty() -> None:
    assert plan(row_of(10, 10), min_dirty_ratio=0.0).reason is Reason.DIRTY
    assert plan(row_of(10, 10), CleanerState(first_dirty_offset=10), min_dirty_ratio=0.0).reason is Reason.NONE
    assert plan(row_of(10, 10), min_dirty_ratio=1.0).reason is Reason.NONE
    assert plan(row_of(10, 10), compacts=False).reason is Reason.NONE


def test_what_is_younger_than_the_lag_ends_what_may_be_cleaned() -> None:
    files = row_of(10, 10, 10, 10)
    files[1] = replace(files[1], max_timestamp_ms=T0_MS + 900)
    assert plan(files, min_lag_ms=100).end_offset == 30
    assert plan(files, min_lag_ms=101).end_offset == 10
    files[1] = replace(files[1], max_timestamp_ms=T0_MS + 9_999)
    assert plan(files).end_offset == 30  # without a lag a timestamp in the future holds nothing
    clean = CleanerState(first_dirty_offset=20)
    assert plan(files, clean, min_lag_ms=1_000).end_offset == 30  # nor one that was cleaned before


def test_a_record_that_waited_for_too_long_makes_it_due() -> None:
    files = row_of(90, 10, 10)
    clean = CleanerState(first_dirty_offset=10)
    assert plan(files, clean, max_lag_ms=1_000).reason is Reason.NONE
    found = plan(files, clean, max_lag_ms=999)
    assert (found.reason, found.oldest_dirty_ms) == (Reason.OLD, T0_MS)


def test_a_file_that_tells_no_offsets_ends_what_may_be_cleaned() -> None:
    files = row_of(10, 10, 10, 10)
    files[1] = replace(files[1], record_count=None, max_offset_delta=None)
    assert [unit.first_offset for unit in plan(files).units] == [0]
    assert plan(files, CleanerState(first_dirty_offset=20)).units == ()


MET = CleanerState(first_dirty_offset=20, horizon_offset=20, horizon_ms=T0_MS + 1_000 - DAY_MS, tombstone_count=3)


def test_tombstones_are_due_once_their_retention_is_over() -> None:
    files = row_of(10, 10, 10)
    found = plan(files, MET)
    assert (found.reason, found.tombstones_due, found.due_tombstones_end) == (Reason.TOMBSTONES, 3, 20)
    for state in (
        replace(MET, horizon_ms=MET.horizon_ms + 1),
        replace(MET, tombstone_count=0),
        replace(MET, horizon_offset=0),
    ):
        assert plan(files, state).reason is Reason.NONE
    assert plan(files, MET, log_start=20).tombstones_due == 0


def test_the_state_is_remembered_by_topic_id_and_partition_without_an_end() -> None:
    actions = MET.to_actions("id", 3)
    found = {action.app_id: action for action in actions}
    assert len(found) == 4
    assert CleanerState.of(found, "id", 3) == MET
    assert CleanerState.of(found, "other", 3) == CleanerState.of(found, "id", 4) == CleanerState()
    assert {action.last_updated_ms for action in actions} == {253_402_300_799_999}


def test_a_horizon_stays_until_it_was_used() -> None:
    first = CleanerState().after_pass(end_offset=10, tombstone_count=2, due_tombstones_end=0, now_ms=1)
    assert first == CleanerState(first_dirty_offset=10, horizon_offset=10, horizon_ms=1, tombstone_count=2)
    second = first.after_pass(end_offset=20, tombstone_count=5, due_tombstones_end=0, now_ms=2)
    assert second == replace(first, first_dirty_offset=20, tombstone_count=5)
    used = second.after_pass(end_offset=30, tombstone_count=1, due_tombstones_end=10, now_ms=3)
    assert used == CleanerState(first_dirty_offset=30, horizon_offset=30, horizon_ms=3, tombstone_count=1)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 20)), min_size=1, max_size=30), st.integers(0, 60))
def test_no_tombstone_goes_before_its_retention_is_over_and_each_goes_some_day(
    passes: list[tuple[int, int]], retention_ms: int
) -> None:
    """Passes come after some time each and clean some offsets, all of which hold tombstones."""
    state, now_ms, end = CleanerState(), 0, 0
    met: dict[int, int] = {}
    for waited_ms, count in [*passes, *[(retention_ms + 1, 0)] * 3]:
        now_ms += waited_ms
        due = state.due_tombstones_end(now_ms=now_ms, delete_retention_ms=retention_ms)
        for offset in [offset for offset in met if offset < due]:
            assert now_ms - met.pop(offset) >= retention_ms
        met |= dict.fromkeys(range(end, end + count), now_ms)
        end += count
        state = state.after_pass(end_offset=end, tombstone_count=len(met), due_tombstones_end=due, now_ms=now_ms)
        assert state.horizon_offset <= state.first_dirty_offset == end
    assert met == {}
