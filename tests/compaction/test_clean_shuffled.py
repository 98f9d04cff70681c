"""Compaction by a shuffle leaves what compaction in memory leaves. Arrow shuffles here, so no Spark is needed."""

from __future__ import annotations

import pickle
from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.compaction.clean_arrow import Clean, CleanedFiles, CleanPass, clean_with_arrow
from sparklog.compaction.clean_shuffled import KEYS_SCHEMA, Layout, clean_group, read_keys
from sparklog.compaction.commit_replacement import Outcome
from sparklog.compaction.compact import CompactReport, compact_topic
from sparklog.compaction.file_ranges import file_units
from sparklog.compaction.plan_cleaning import CleanerState, CleanPlan, Reason
from sparklog.delta.log import DeltaLog
from sparklog.errors import InvalidArgumentError
from sparklog.log.data.object_paths import object_path
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.compaction.support import Key, a_segment, append_pairs, live, pairs_of, stored
from tests.depth import by_depth
from tests.support import DAY_MS, T0_MS, a_log, a_topic, a_writer

File = Sequence[tuple[Key, str | None]]
NEWEST: File = [("newest", "n")]


def clean_shuffled(log: DeltaLog, plan: CleanPlan, compression: str, file_bytes: int) -> CleanPass:
    """A ``Clean`` whose other processes are this one; what goes to them is pickled, as Spark does it."""
    layout = pickle.loads(pickle.dumps(Layout.of(plan, compression=compression, file_bytes=file_bytes)))
    batches = [batch for number in range(len(layout.reads)) for batch in read_keys(log, layout, number)]
    table = pa.Table.from_batches(batches, KEYS_SCHEMA).group_by("key").aggregate([("position", "max")])
    latest = table["position_max"].to_numpy()

    def pieces() -> Generator[CleanedFiles, None, None]:
        for number in range(len(layout.groups)):
            yield clean_group(log, layout, number, latest[latest >> layout.group_bits == number])

    return CleanPass(end_offset=plan.end_offset, due_tombstones_end=plan.due_tombstones_end, pieces=pieces())


def a_topic_of(*files: File, number_of_store: int = 0) -> tuple[MemoryStore, ManualClock, DeltaLog]:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock, configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0})
    writer = a_writer(log)
    for pairs in (*files, NEWEST):
        append_pairs(writer, pairs)
    return memory, clock, log


def compact(log: DeltaLog, clean: Clean, *, now_ms: int = T0_MS, file_bytes: int = 10**9) -> CompactReport:
    return compact_topic(log, "t", now_ms=now_ms, clean=clean, target_bytes=file_bytes)


keys = st.sampled_from(["a", "b", "c", "d", "", None])
files = st.lists(st.tuples(keys, st.sampled_from(["1", "", None])), min_size=1, max_size=6)


@pytest.mark.slow
@settings(max_examples=by_depth(gate=10, nightly=25))
@given(st.lists(files, min_size=1, max_size=5), st.lists(files, max_size=3), st.sampled_from([1, 2_000, 4_000, 10**9]))
def test_any_history_ends_with_the_same_records_counts_and_memory(
    first: list[File], second: list[File], file_bytes: int
) -> None:
    """Two passes, more than ``delete.retention.ms`` apart, so that tombstones of the first go in the second."""
    left = []
    for clean in (clean_with_arrow, clean_shuffled):
        _, _, log = a_topic_of(*first)
        found = [compact(log, clean, file_bytes=file_bytes)]
        for pairs in second:
            append_pairs(a_writer(log), pairs)
        found.append(compact(log, clean, now_ms=T0_MS + 2 * DAY_MS, file_bytes=file_bytes))
        told = [
            (one.outcome, one.first_dirty_offset, one.counts, one.files_before, one.files_after)
            for report in found
            for one in report.partitions
        ]
        rows = [{name: value for name, value in row.items() if name != "producer_id"} for row in stored(log)]
        left.append((told, rows))
    assert left[0] == left[1]


def test_positions_tell_group_offset_and_tombstone_and_grow_with_offsets() -> None:
    _, _, log = a_topic_of([("a", "1"), ("b", None)], [("a", "2")], [("c", None), ("d", "1")])
    plans: list[CleanPlan] = []

    def spy(log: DeltaLog, plan: CleanPlan, compression: str, file_bytes: int) -> CleanPass:
        plans.append(plan)
        return clean_with_arrow(log, plan, compression, file_bytes)

    compact(log, spy)
    layout = Layout.of(plans[0], compression="zstd", file_bytes=1)
    assert [(group.first_offset, group.last_offset) for group in layout.groups] == [(0, 1), (2, 2), (3, 4)]
    offsets = np.arange(5)
    tombstones = np.array([False, True, False, True, False])
    positions = layout.positions(offsets, tombstones)
    assert (positions >> layout.group_bits).tolist() == [0, 0, 1, 2, 2]
    assert np.all(np.diff(positions) > 0)
    back = [layout.offsets(int(one) >> layout.group_bits, np.array([one])) for one in positions]
    assert [(int(offset[0]), bool(null[0])) for offset, null in back] == list(zip(range(5), tombstones, strict=True))


def test_offsets_beyond_what_a_position_holds_are_refused_before_anything_is_read() -> None:
    wide = a_segment(0, 10, max_offset_delta=2**62)
    plan = CleanPlan(
        partition=0,
        state=CleanerState(),
        reason=Reason.DIRTY,
        units=tuple(file_units([wide])),
        first_dirty_offset=0,
        end_offset=2**62 + 1,
        clean_bytes=0,
        dirty_bytes=1_000,
        oldest_dirty_ms=T0_MS,
        tombstones_due=0,
        due_tombstones_end=0,
    )
    with pytest.raises(InvalidArgumentError, match=r"fewer than 2\*\*62 offsets"):
        Layout.of(plan, compression="zstd", file_bytes=1)
    layout = Layout.of(
        replace(plan, units=tuple(file_units([replace(wide, max_offset_delta=2**50)]))),
        compression="zstd",
        file_bytes=1,
    )
    assert layout.positions(np.array([2**50]), np.array([True])).tolist() == [2**51 + 1]


def test_a_file_with_fewer_records_than_logged_fails_the_partition_and_stays() -> None:
    memory, clock, log = a_topic_of([("a", "1"), ("b", "1")], [("a", "2")])
    first, second = live(log)[:2]
    memory.put(object_path("topics/t", first.path), memory.read(object_path("topics/t", second.path)))
    [found] = compact(a_log(memory, clock), clean_shuffled).partitions
    assert found.outcome is Outcome.FAILED
    assert "it has 1 rows, and the log states 2" in found.error
    assert len(live(log)) == 3


def test_a_live_file_that_is_gone_is_told() -> None:
    memory, _, log = a_topic_of([("a", "1")], [("a", "2")])
    lost = object_path("topics/t", live(log)[0].path)
    memory.delete([lost])
    [found] = compact(log, clean_shuffled).partitions
    assert found.outcome is Outcome.FAILED
    assert found.error.startswith(f"{lost}: the log names this data file")


def test_a_partition_of_superseded_records_alone_leaves_no_file_of_them() -> None:
    _, _, log = a_topic_of([("newest", "1")], [("newest", "2"), (None, "lost")], [("newest", "3")])
    [found] = compact(log, clean_shuffled).partitions
    assert (found.counts.superseded, found.counts.keyless, found.files_after) == (2, 1, 0)
    assert pairs_of(log) == [(3, "newest", "3"), (4, "newest", "n")]
