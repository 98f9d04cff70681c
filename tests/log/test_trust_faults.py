"""L1–L3: whoever was silent too long believes nothing of the next version before it has verified its own."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from sparklog.delta.actions import AddFile, RemoveFile
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.errors import (
    CommitStateUnknownError,
    ObjectNotFoundError,
    StorePermissionError,
    TopicAlreadyExistsError,
)
from sparklog.log.append import TopicWriter
from sparklog.log.catch_up import catch_up
from sparklog.log.commit import Commit, commit
from sparklog.log.data.encode import write_parquet
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.record_reading import read_segment
from sparklog.log.data.schema import DATA_SCHEMA
from sparklog.log.follow import TopicFollower
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic, delete_records
from sparklog.storage import MemoryStore
from sparklog.storage.entry_log import PositionLost
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash, WrappedStore
from sparklog.testing.interrupted_store import InterruptedStore
from tests.support import (
    DAY_MS,
    T0_MS,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    foreign_commit,
    foreign_entry,
    foreign_file,
    foreign_records,
    two_days_of_others,
)

UPLOAD, CREATE, CREATE_AGAIN = 0, 1, 2
"""The store calls of an append, in order."""


def die() -> None:
    raise SimulatedCrash


def a_dying_writer(store: InterruptedStore, clock: ManualClock) -> TopicWriter:
    """A writer that will create a stray: it looks neither before nor after its create, as one does that sleeps between
    looking beneath itself and its create, and dies behind that."""
    return a_writer(a_log(store, clock, trust_ms=10**15))


def is_there(log: DeltaLog, version: int) -> bool:
    try:
        return bool(log.store.read(entry_path(log.table, version)))
    except ObjectNotFoundError:
        return False


@pytest.mark.parametrize("sleeps_in_create", [True, False])
def test_a_sleeper_that_wins_a_cleaned_name_doesnt_acknowledge_it_but_commits_again(sleeps_in_create: bool) -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    store = InterruptedStore(memory)
    sleeper = a_writer(a_log(store, clock))
    append(sleeper, "before")
    stood_at = sleeper.state.position.version
    if sleeps_in_create:
        store.interrupt(lambda: two_days_of_others(memory, clock), at=CREATE, after=False)
    else:
        two_days_of_others(memory, clock)
        assert not is_there(log, stood_at + 1)

    result = append(sleeper, "woken", timeout_ms=10**12)

    # The stray that it created and then didn't trust; who looks beneath itself first, creates none (rule L17, ground).
    assert is_there(log, stood_at + 1) == sleeps_in_create
    seen = contents(log)[0]
    assert seen[-1] == (result.base_offsets[0], "woken")
    assert [offset for offset, _ in seen] == list(range(len(seen)))
    assert [value for _, value in seen].count("woken") == 1


def test_a_follower_that_finds_a_dead_sleepers_stray_doesnt_apply_it() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    append(a_writer(log), "before")
    follower = TopicFollower(log, "t")
    dying_store = InterruptedStore(memory)
    dying = a_dying_writer(dying_store, clock)
    two_days_of_others(memory, clock)
    dying_store.interrupt(die, at=CREATE, after=True)
    with pytest.raises(SimulatedCrash):
        append(dying, "lost with its process")
    assert is_there(log, follower.state.position.version + 1)

    assert follower.poll() == []  # it loaded the topic anew instead

    assert follower.head == TopicFollower(log, "t").head
    values = [value for _, value in contents(log)[0]]
    assert "lost with its process" not in values
    assert follower.read(0, 0)["value"].to_pylist() == [value.encode() for value in values]


def test_a_follower_that_catches_up_verifies_again_as_long_as_it_hasnt_seen_the_tail() -> None:
    """Woken behind, it verifies v and applies v + 1. Then cleanup deletes both and v + 2, and a stray takes that name:
    having verified v a second ago proves nothing of v + 2 (docs/decisions/0001)."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    writer = a_writer(log)
    append(writer, "0")
    follower = TopicFollower(log, "t")
    behind = follower.state.position.version
    append(writer, "1")
    dying_store = InterruptedStore(memory)
    dying = a_dying_writer(dying_store, clock)  # stands where v + 2 comes next
    for value in ("2", "3", "4"):
        append(writer, value)
    clock.advance(2 * DAY_MS)
    assert [entry.version for entry in follower.poll()] == [behind + 1]
    append(writer, "5")
    write_checkpoint(log)
    append(writer, "6")
    clean_log(log, retention_ms=DAY_MS)
    assert not is_there(log, behind + 2)
    dying_store.interrupt(die, at=CREATE, after=True)
    with pytest.raises(SimulatedCrash):
        append(dying, "stray")
    assert is_there(log, behind + 2)
    clock.advance(1_000)

    while follower.poll():
        pass

    assert follower.head == TopicFollower(log, "t").head
    assert b"stray" not in follower.read(0, 0)["value"].to_pylist()


def test_a_poll_at_the_tail_reads_one_object_and_checks_its_ground_once_a_minute() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    a_topic(memory, clock)
    store = FaultyStore(memory)
    follower = TopicFollower(a_log(store, clock), "t")
    before = len(store.calls)
    for _ in range(60):
        clock.advance(1_000)
        assert follower.poll() == []
    assert len(store.calls) - before == 60
    for _ in range(61):
        clock.advance(1_000)
        assert follower.poll() == []
    assert len(store.calls) - before == 123  # a GET and a LIST more: rule L17, ground
    clock.advance(61_000)
    follower.poll()
    assert len(store.calls) - before == 126  # as after a silence


def test_a_position_that_was_the_tail_for_days_is_found_after_a_burst_and_a_cleanup() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    writer = a_writer(log)
    append(writer, "idle from here on")
    clock.advance(3 * DAY_MS)
    follower = TopicFollower(log, "t")
    stood_at = follower.state.position
    for number in range(5):
        append(writer, f"burst {number}")
    write_checkpoint(log)
    append(writer, "tail")
    clean_log(log, retention_ms=DAY_MS)
    assert is_there(log, stood_at.version)
    assert len(follower.poll()) == 1


def test_creating_a_topic_whose_first_entry_was_cleaned_doesnt_take_it_over() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)

    def others_make_it_and_clean_its_first_entry() -> None:
        a_topic(memory, clock)
        two_days_of_others(memory, clock)

    calls = FaultyStore(MemoryStore(clock=clock))
    create_topic(a_log(calls, clock), "t")
    create = [call.op for call in calls.calls].index("create")
    stalled = InterruptedStore(memory)
    stalled.interrupt(others_make_it_and_clean_its_first_entry, at=create, after=False)
    with pytest.raises(TopicAlreadyExistsError):
        create_topic(a_log(stalled, clock), "t")
    values = [value for _, value in contents(a_log(memory, clock))[0]]
    assert len(values) == 13


Stall = Callable[[MemoryStore, ManualClock], None]


def appended_with_a_stall(at: int, *, after: bool, stall: Stall) -> tuple[DeltaLog, int | None]:
    """Append ``mine`` with a stall at one store call. Returns the log, and the offset if it was acknowledged."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    append(a_writer(log), "first")
    store = InterruptedStore(memory)
    writer = a_writer(a_log(store, clock))
    store.interrupt(lambda: stall(memory, clock), at=at, after=after)
    try:
        return log, append(writer, "mine", timeout_ms=10**12).base_offsets[0]
    except CommitStateUnknownError:
        return log, None
    finally:
        assert store.call_count > at


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after it"])
@pytest.mark.parametrize("at", [UPLOAD, CREATE], ids=["upload", "create"])
def test_a_writer_that_sleeps_across_log_cleanup_acknowledges_only_what_can_be_read(at: int, after: bool) -> None:
    log, offset = appended_with_a_stall(at, after=after, stall=two_days_of_others)
    seen = contents(log)[0]
    assert [number for number, _ in seen] == list(range(len(seen)))
    assert offset is not None
    assert [number for number, value in seen if value == "mine"] == [offset]


def test_a_landed_commit_is_found_two_days_later_though_its_entry_was_cleaned() -> None:
    log, offset = appended_with_a_stall(CREATE, after=True, stall=two_days_of_others)
    assert offset == 1
    assert not is_there(log, 2)


def test_it_is_found_by_producer_id_and_sequence_when_its_file_was_replaced() -> None:
    def rewrite_too(memory: MemoryStore, clock: ManualClock) -> None:
        two_days_of_others(memory, clock)
        rewrite_all_in_one_file(a_log(memory, clock))

    log, offset = appended_with_a_stall(CREATE, after=True, stall=rewrite_too)
    assert offset == 1
    assert [value for _, value in contents(log)[0]].count("mine") == 1


def test_it_is_unknown_not_success_when_nothing_is_left_that_could_tell() -> None:
    def delete_too(memory: MemoryStore, clock: ManualClock) -> None:
        two_days_of_others(memory, clock)
        log = a_log(memory, clock)
        delete_records(log, "t", {0: -1})
        write_checkpoint(log)
        clock.advance(DAY_MS)
        append(a_writer(log), "later")

    log, offset = appended_with_a_stall(CREATE, after=True, stall=delete_too)
    assert offset is None
    assert [value for _, value in contents(log)[0]] == ["later"]


def test_a_producer_that_stalled_until_its_state_expired_gives_up_and_takes_a_new_id() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    store = InterruptedStore(memory)
    writer = a_writer(a_log(store, clock))
    old_id = writer.producer_id

    def a_week_of_others() -> None:
        clock.advance(6 * DAY_MS)
        two_days_of_others(memory, clock)

    # The create wins a cleaned name; by then, that its txn is not in the reloaded table proves nothing (rule L7).
    store.interrupt(a_week_of_others, at=CREATE, after=False)
    with pytest.raises(CommitStateUnknownError, match="stalled for"):
        append(writer, "mine", timeout_ms=10**12)
    assert writer.producer_id != old_id
    append(writer, "next", timeout_ms=10**12)
    assert [value for _, value in contents(log)[0]].count("next") == 1


def rewrite_all_in_one_file(log: DeltaLog) -> None:
    """As compaction will: all live files of partition 0 are replaced by one, offsets and rows unchanged."""
    state = load_state(log)
    segments = state.require_whole().index.partition(0)
    table = pa.concat_tables([read_segment(log, segment) for segment in segments])
    table = table.rename_columns(["offset_delta", *table.column_names[1:]]).cast(DATA_SCHEMA)
    data = write_parquet(table, compression="none")
    log.store.put(object_path(log.table, "partition=0/rewritten.parquet"), data)
    add = AddFile(
        path="partition=0/rewritten.parquet",
        partition_values={"partition": "0", "base_offset": "0"},
        size_bytes=len(data),
        modification_ms=T0_MS,
        data_change=False,
    )
    removes = [RemoveFile(path=segment.path, deletion_ms=T0_MS, data_change=False) for segment in segments]
    plan = Commit(actions=[add, *removes], head=state.head, operation="OPTIMIZE")
    commit(state, lambda _: plan, deadline=log.clock.deadline_in(None), sync=False)


@pytest.mark.slow
@pytest.mark.parametrize("woken", ["writer", "follower", "writer that died"])
def test_an_own_entry_created_again_under_a_cleaned_name_isnt_taken_for_the_first(
    woken: str,
) -> None:
    """A create lands, its answer is lost; the writer sleeps for two days and repeats it: the name was cleaned, so it
    succeeds. Whoever stood at that entry must not find its token there, else it believes what it puts behind it."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    append(a_writer(log), "first")
    store = InterruptedStore(FaultyStore(memory, Fault(kind=FaultKind.LOST_ANSWER, ops=["create"])))
    repeater = a_writer(a_log(store, clock))
    dying_store = InterruptedStore(memory)
    stood_there: list[TopicWriter] = []
    followed_there: list[TopicFollower] = []

    def others_stand_on_it_and_sleep_too() -> None:
        stood_there.extend([a_writer(a_log(memory, clock)), a_dying_writer(dying_store, clock)])
        followed_there.append(TopicFollower(log, "t"))
        two_days_of_others(memory, clock)

    store.interrupt(others_stand_on_it_and_sleep_too, at=CREATE_AGAIN, after=False)
    repeated = append(repeater, "repeated", timeout_ms=10**12)
    (writer, dying), (follower,) = stood_there, followed_there
    stood_at = follower.state.position
    assert writer.state.position.version == dying.state.position.version == stood_at.version
    again, first = log.read_entry(stood_at.version), log.read_entry(0)
    assert first is None  # the name was cleaned
    assert again is not None  # and is taken again, by the same commit
    assert again.token != stood_at.token

    acknowledged = {"repeated": repeated.base_offsets[0]}
    if woken == "writer":
        acknowledged["woken"] = append(writer, "woken", timeout_ms=10**12).base_offsets[0]
    elif woken == "writer that died":
        dying_store.interrupt(die, at=CREATE, after=True)
        with pytest.raises(SimulatedCrash):
            append(dying, "woken", timeout_ms=10**12)
        assert is_there(log, stood_at.version + 1)
    follower.poll()

    seen = contents(log)[0]
    assert [offset for offset, _ in seen] == list(range(len(seen)))
    for value in ("repeated", "woken"):
        expected = [acknowledged[value]] if value in acknowledged else []
        assert [offset for offset, found in seen if found == value] == expected
    assert follower.head == TopicFollower(log, "t").head
    assert follower.read(0, 0)["value"].to_pylist() == [value.encode() for _, value in seen]


class Forbidding(WrappedStore):
    """Refuses for good to read some objects, as long as it is told to."""

    forbidden = ""

    def _call(self, op, path, call):
        if op == "get" and self.forbidden and self.forbidden in path:
            raise StorePermissionError(path)
        return super()._call(op, path, call)


def test_who_stops_while_catching_up_doesnt_trust_the_rest_by_the_tail_it_saw() -> None:
    """It saw the tail, and fails to apply what comes before: that is as old as it was. Then it is cleaned, and a stray
    takes the name a minute after the look."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    writer = a_writer(log)
    append(writer, "0")
    store = Forbidding(memory)
    state = load_state(a_log(store, clock))
    opened_at = state.position.anchor_ticks_ms
    append(writer, "1")
    append(writer, "2")
    foreign = foreign_file(log, foreign_records("x"), path="partition=0/foreign.parquet", base_offset=3)
    unread = foreign_commit(log, foreign)
    append(writer, "4")
    clock.advance(2 * DAY_MS)
    store.forbidden = foreign.path
    with pytest.raises(StorePermissionError):
        catch_up(state, ahead=8)
    assert state.position.version == unread - 1
    assert state.position.anchor_ticks_ms == opened_at
    store.forbidden = ""

    append(writer, "5")
    write_checkpoint(log)
    append(writer, "6")
    clean_log(log, retention_ms=DAY_MS)
    assert not is_there(log, unread)
    stray = foreign_file(log, foreign_records("stray"), base_offset=77)
    foreign_entry(log, unread, [stray.to_json()])  # by a sleeper that stood where the state stands
    clock.advance(1_000)
    with pytest.raises(PositionLost):
        catch_up(state, ahead=1)
    assert state.head.log_end_offsets == (3,)


def test_who_catches_up_with_the_tail_trusts_from_then_on() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    writer = a_writer(log)
    state = load_state(log)
    for value in "abc":
        append(writer, value)
    clock.advance(DAY_MS)
    looked_at = clock.ticks_ms()
    assert len(catch_up(state, ahead=8)) == 3
    assert state.position.anchor_ticks_ms == looked_at


def test_a_landed_commit_is_found_though_its_files_are_too_old_to_be_uploaded_again() -> None:
    """What is in the log already needs no upload: a disk that is full by then must not make it look refused."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    append(a_writer(log), "first")
    full = FaultyStore(memory, Fault(kind=FaultKind.DISK_FULL, ops=["put"], skip=1, times=None))
    store = InterruptedStore(full)
    writer = a_writer(a_log(store, clock))
    store.interrupt(lambda: two_days_of_others(memory, clock), at=CREATE, after=True)
    assert append(writer, "mine", timeout_ms=10**12).base_offsets == (1,)
    assert [value for _, value in contents(log)[0]].count("mine") == 1
