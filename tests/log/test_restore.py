"""Restoring the records that other engines removed: they return under their offsets, and nothing else changes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.compaction.compact import compact_topic
from sparklog.compaction.optimize import optimize_topic
from sparklog.delta.actions import AddFile, RemoveFile
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.errors import InvalidArgumentError, UnknownTopicOrPartitionError
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.record_reading import read_segment
from sparklog.log.data.segments import Segment
from sparklog.log.loaded_files import add_of_segment
from sparklog.log.restore import RestoreResult, restore_topic
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic, delete_records, delete_topic
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.support import (
    DAY_MS,
    T0_MS,
    OvertakenStore,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    foreign_commit,
    foreign_file,
    foreign_records,
    unsequenced_file,
    wrong_totals,
)

Records = dict[tuple[int, int], str]


def records_of(log: DeltaLog, segment: Segment) -> Records:
    table = read_segment(log, segment, columns=("value",))
    offsets, values = table["offset"].to_pylist(), table["value"].to_pylist()
    return {(segment.partition or 0, at): value.decode() for at, value in zip(offsets, values, strict=True)}


def live(log: DeltaLog) -> Records:
    """Every record with an offset in the table, each once."""
    found: Records = {}
    for segment in load_state(log).require_whole().index.by_path.values():
        if segment.base_offset is not None:
            records = records_of(log, segment)
            assert not records.keys() & found.keys()
            found |= records
    return found


def version(log: DeltaLog) -> int:
    return load_state(log).position.version


def removed(segment: Segment) -> RemoveFile:
    return RemoveFile(path=segment.path, deletion_ms=T0_MS, partition_values=segment.partition_values())


def sql_rewrites(log: DeltaLog, change: Callable[[tuple[int, int], str], str | None]) -> int:
    """What DELETE and UPDATE of another engine do: each file that has such a record is replaced; None deletes it."""
    actions: list[AddFile | RemoveFile] = []
    for segment in load_state(log).require_whole().index.by_path.values():
        if segment.base_offset is None:
            continue
        before = records_of(log, segment)
        after = {at: new for at, value in before.items() if (new := change(at, value)) is not None}
        if after == before:
            continue
        actions.append(removed(segment))
        if after:
            deltas = [offset - segment.base_offset for _, offset in after]
            table = foreign_records(*after.values(), deltas=deltas)
            actions.append(foreign_file(log, table, partition=segment.partition, base_offset=segment.base_offset))
    return foreign_commit(log, *actions) if actions else version(log)


def sql_deletes(log: DeltaLog, *values: str) -> int:
    return sql_rewrites(log, lambda _, value: None if value in values else value)


def sql_restores(log: DeltaLog, to: int) -> int:
    """What RESTORE of another engine does within one shape of the topic: the files of a version, and no others."""
    before, now = load_state(log, version=to, statistics=True).require_whole(), load_state(log).require_whole()
    actions: list[AddFile | RemoveFile] = [
        removed(one) for path, one in now.index.by_path.items() if path not in before.index.by_path
    ]
    for path, one in before.index.by_path.items():
        if path not in now.index.by_path:
            actions.append(add_of_segment(one, before.statistics.get(path)))
    if not actions:
        return version(log)
    at = version(log) + 1
    info = {"commitInfo": {"operation": "RESTORE", "operationParameters": {"version": str(to)}}}
    lines = [info, *(action.to_json() for action in actions)]
    log.store.create(entry_path(log.table, at), "\n".join(json.dumps(line) for line in lines).encode())
    return at


def restored(log: DeltaLog, to: int) -> RestoreResult:
    result = restore_topic(log, "t", to)
    assert [wrong for wrong in wrong_totals(log) if "carries None" not in wrong] == []
    return result


def test_what_a_delete_removed_returns_and_later_appends_stay():
    log = a_topic(num_partitions=2)
    writer = a_writer(log)
    append(writer, "a", "b", "c")
    append(writer, "d", partition=1)
    before = version(log)
    sql_deletes(log, "b", "d")
    append(writer, "e")
    plan = restore_topic(log, "t", before, dry_run=True)
    assert dict(plan.record_counts) == {0: 1, 1: 1}
    assert contents(log) == {0: [(0, "a"), (2, "c"), (3, "e")], 1: []}
    assert dict(restored(log, before).record_counts) == {0: 1, 1: 1}
    assert contents(log) == {0: [(0, "a"), (1, "b"), (2, "c"), (3, "e")], 1: [(0, "d")]}
    at = version(log)
    assert restored(log, before).record_count == 0
    assert version(log) == at


def test_what_was_merged_since_returns_between_its_neighbours():
    log = a_topic()
    writer = a_writer(log)
    for value in "abcdef":
        append(writer, value)
    before = version(log)
    sql_deletes(log, "b", "e")
    optimize_topic(log, "t")
    restored(log, before)
    assert contents(log)[0] == list(enumerate("abcdef"))


def test_what_an_update_changed_stays_changed_and_returns_as_it_was_last():
    log = a_topic()
    append(a_writer(log), "a", "b")
    append(a_writer(log), "c")
    before = version(log)
    sql_rewrites(log, lambda _, value: value.upper())
    sql_deletes(log, "B", "C")
    restored(log, before)
    assert contents(log)[0] == [(0, "A"), (1, "B"), (2, "C")]


def test_nothing_returns_below_the_log_start():
    log = a_topic()
    writer = a_writer(log)
    append(writer, "a", "b")
    append(writer, "c", "d")
    before = version(log)
    sql_deletes(log, "a", "b", "c", "d")
    delete_records(log, "t", {0: 3})
    restored(log, before)
    assert contents(log)[0] == [(3, "d")]


def test_what_compaction_by_key_removed_does_not_return():
    log = a_topic(configs={"cleanup.policy": "compact"})
    for value in ("a", "a", "b", "c"):
        append(a_writer(log), value)
    before = version(log)
    compact_topic(log, "t", now_ms=T0_MS)
    sql_deletes(log, "b")
    restored(log, before)
    assert contents(log)[0] == [(1, "a"), (2, "b"), (3, "c")]


def test_a_foreign_row_that_was_sequenced_since_returns_by_its_copy_alone():
    log = a_topic()
    append(a_writer(log), "a")
    unsequenced_file(log, "x", "y")
    before = version(log)
    sequence_topic(log)
    sql_deletes(log, "x", "y")
    restored(log, before)
    assert contents(log)[0] == [(0, "a"), (1, "x"), (2, "y")]
    assert load_state(log).require_whole().index.unsequenced() == []


def test_a_file_that_is_gone_is_named_and_the_others_return():
    log = a_topic()
    append(a_writer(log), "a", "b")
    append(a_writer(log), "c")
    before = version(log)
    first, _ = sorted(load_state(log).require_whole().index.by_path.values(), key=lambda one: one.first_offset)
    sql_deletes(log, "a", "b", "c")
    log.store.delete([object_path(log.table, first.path)])
    result = restored(log, before)
    assert [(one.path, one.first_offset, one.last_offset) for one in result.lost] == [(first.path, 0, 1)]
    assert contents(log)[0] == [(2, "c")]


def test_a_file_that_a_vacuum_may_delete_returns_as_a_copy():
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    append(a_writer(log), "a")
    before = version(log)
    (path,) = load_state(log).require_whole().index.by_path
    sql_deletes(log, "a")
    clock.advance(2 * DAY_MS)
    restored(log, before)
    assert path not in load_state(log).require_whole().index.by_path
    assert contents(log)[0] == [(0, "a")]


def test_a_version_of_an_earlier_topic_or_none_is_refused():
    log = a_topic()
    append(a_writer(log), "a")
    with pytest.raises(InvalidArgumentError, match="expected 0 to 1"):
        restore_topic(log, "t", 2)
    delete_topic(log, "t")
    with pytest.raises(UnknownTopicOrPartitionError):
        restore_topic(log, "t", 1)
    create_topic(log, "t")
    with pytest.raises(InvalidArgumentError, match="earlier topic of this name"):
        restore_topic(log, "t", 1)


def test_a_merge_in_between_makes_the_plan_anew():
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    writer = a_writer(log)
    for value in ("a", "b"):
        append(writer, value)
    append(writer, "c", "d")
    before = version(log)
    sql_deletes(log, "c")
    others = OvertakenStore(memory, lambda: optimize_topic(a_log(memory, clock), "t"), times=1)
    restore_topic(a_log(others, clock), "t", before)
    assert contents(log)[0] == list(enumerate("abcd"))


def test_a_group_reads_nothing_twice_after_a_foreign_restore():
    log = a_topic()
    append(a_writer(log), "a")
    unsequenced_file(log, "x", "y")
    before = version(log)
    sequence_topic(log)
    append(a_writer(log), "b")
    sql_restores(log, before)
    sequence_topic(log)
    assert contents(log)[0] == [(0, "a"), (1, "x"), (2, "y")]
    append(a_writer(log), "c")
    assert contents(log)[0] == [(0, "a"), (1, "x"), (2, "y"), (4, "c")]
    restored(log, before)
    assert contents(log)[0] == [(0, "a"), (1, "x"), (2, "y"), (3, "b"), (4, "c")]


def test_several_files_that_were_sequenced_together_return_one_by_one():
    log = a_topic()
    unsequenced_file(log, "x")
    before = version(log)
    unsequenced_file(log, "y")
    sequence_topic(log)
    optimize_topic(log, "t")
    sql_restores(log, before)
    result = sequence_topic(log)
    assert dict(result.refused) == {}
    assert contents(log)[0] == [(0, "x")]


def test_a_file_of_which_the_log_no_longer_tells_is_refused():
    log = a_topic()
    unsequenced_file(log, "x")
    before = version(log)
    sequence_topic(log)
    at = sql_restores(log, before)
    write_checkpoint(log)
    log.store.delete([entry_path(log.table, number) for number in range(at)])
    result = sequence_topic(log)
    assert "doesn't tell any more" in next(iter(result.refused.values()))
    assert contents(log)[0] == []


@dataclass
class World:
    """A topic under random operations, and what other engines removed from it."""

    seed: int
    log: DeltaLog = field(default_factory=lambda: a_topic(num_partitions=2))
    events: list[tuple[int, Records]] = field(default_factory=list)
    number: int = 0

    def values(self, count: int) -> list[str]:
        self.number += count
        return [f"v{self.number - left}" for left in range(count)]

    def foreign(self, act: Callable[[], int]) -> None:
        before = live(self.log)
        at = act()
        after = live(self.log)
        self.events.append((at, {key: value for key, value in before.items() if key not in after}))

    def step(self, what: str, pick: random.Random) -> None:
        log = self.log
        if what == "append":
            append(a_writer(log), *self.values(pick.randint(1, 4)), partition=pick.randint(0, 1))
        elif what == "insert":
            unsequenced_file(log, *self.values(pick.randint(1, 3)), partition=pick.randint(0, 1))
        elif what == "sequence":
            sequence_topic(log)
        elif what == "merge":
            optimize_topic(log, "t")
        elif what == "delete":
            self.foreign(lambda: sql_rewrites(log, lambda _, value: None if pick.random() < 0.4 else value))
        elif what == "update":
            self.foreign(lambda: sql_rewrites(log, lambda _, value: value + "'" if pick.random() < 0.4 else value))
        elif what == "restore":
            self.foreign(lambda: sql_restores(log, pick.randint(0, version(log))))
        elif what == "start":
            ends = load_state(log).head.log_end_offsets
            delete_records(log, "t", {pick.randint(0, 1): pick.randint(0, min(ends) // 2)})
        elif what == "checkpoint":
            write_checkpoint(log)


STEPS = st.sampled_from(
    ["append", "append", "insert", "sequence", "merge", "delete", "update", "restore", "start", "checkpoint"]
)


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(STEPS, min_size=3, max_size=14), seed=st.integers(0, 2**16))
def test_after_any_history_exactly_what_sql_removed_returns(steps: list[str], seed: int) -> None:
    pick = random.Random(seed)
    world = World(seed)
    for what in steps:
        world.step(what, pick)
    log = world.log
    sequence_topic(log)
    now, head = live(log), load_state(log).head
    to = pick.randint(0, version(log))
    expected = dict(now)
    for at, gone in reversed(world.events):
        for key, value in gone.items() if at > to else ():
            if key[1] >= head.log_start_offsets[key[0]]:
                expected.setdefault(key, value)
    planned = restore_topic(log, "t", to, dry_run=True)
    assert planned.record_count >= len(expected) - len(now)
    result = restored(log, to)
    after = live(log)
    starts = head.log_start_offsets
    assert {key: value for key, value in after.items() if key[1] >= starts[key[0]]} == {
        key: value for key, value in expected.items() if key[1] >= starts[key[0]]
    }
    assert result.lost == ()
    end = load_state(log).head
    assert (end.log_start_offsets, end.log_end_offsets) == (head.log_start_offsets, head.log_end_offsets)
