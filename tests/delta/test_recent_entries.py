"""Entries that are kept for the next checkpoint: not for long, and not many."""

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.recent_entries import RecentEntries
from sparklog.log.state import load_state
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, ManualClock
from tests.support import a_log, a_topic, a_writer, append


def test_entries_are_kept_for_a_time_and_until_a_checkpoint_holds_them():
    recent = RecentEntries()
    for version in range(5):
        recent.add_created(version, b"%d" % version, now_ticks_ms=version * 10, keep_ms=20)
    assert recent.young(now_ticks_ms=40, keep_ms=20) == {2: b"2", 3: b"3", 4: b"4"}
    assert recent.young(now_ticks_ms=55, keep_ms=20) == {4: b"4"}
    recent.forget_until(3)
    assert recent.young(now_ticks_ms=40, keep_ms=20) == {4: b"4"}


def test_of_more_than_four_mebibytes_the_newest_entries_are_kept():
    recent = RecentEntries()
    for version in range(10):
        recent.add_created(version, b"x" * 2**20, now_ticks_ms=0, keep_ms=1_000)
    assert [*recent.young(now_ticks_ms=0, keep_ms=1_000)] == [6, 7, 8, 9]
    recent.add_created(10, b"x" * 2**23, now_ticks_ms=0, keep_ms=1_000)
    assert [*recent.young(now_ticks_ms=0, keep_ms=1_000)] == []


def test_a_checkpoint_reads_no_entry_that_was_created_here_a_moment_ago():
    clock = ManualClock()
    memory = MemoryStore(clock=clock)
    a_topic(memory, clock)
    store = CountingStore(memory)
    log, another = a_log(store, clock), a_log(memory, clock)
    writer = a_writer(log)
    for _ in range(20):
        append(writer, "a")
    append(a_writer(another), "b")
    store.reset()
    assert write_checkpoint(log) == 21
    assert store.counts()["get"] <= 2 + 5  # the topic's first entry and the other's; hints, what is there
    for _ in range(20):
        append(writer, "a")
    clock.advance(log.tail_trust_ms / 2 + 1)
    store.reset()
    assert write_checkpoint(log) == 41
    assert store.counts()["get"] >= 20
    assert load_state(another).head.log_end_offsets == (41,)


def test_entries_that_are_read_are_kept_while_others_are_created():
    recent = RecentEntries()
    recent.add_read(0, b"0", now_ticks_ms=0, keep_ms=20)
    recent.add_created(1, b"1", now_ticks_ms=10, keep_ms=20)
    recent.add_read(2, b"2", now_ticks_ms=30, keep_ms=20)
    recent.add_read(3, b"3", now_ticks_ms=31, keep_ms=20)
    assert recent.young(now_ticks_ms=31, keep_ms=20) == {2: b"2"}
    recent.add_created(3, b"3", now_ticks_ms=31, keep_ms=20)
    assert recent.young(now_ticks_ms=31, keep_ms=20) == {2: b"2", 3: b"3"}


def test_a_checkpoint_reads_no_entry_of_another_writer_that_was_read_a_moment_ago():
    clock = ManualClock()
    memory = MemoryStore(clock=clock)
    a_topic(memory, clock)
    store = CountingStore(memory)
    log = a_log(store, clock)
    writer, another = a_writer(log), a_writer(a_log(memory, clock))
    for _ in range(20):
        append(another, "b")
        append(writer, "a")
    store.reset()
    assert write_checkpoint(log) == 40
    assert store.counts()["get"] <= 6  # the topic's first entries; hints, what is there
    assert load_state(a_log(memory, clock)).head.log_end_offsets == (40,)


def test_a_checkpoint_of_kept_entries_is_that_of_the_entries_as_read():
    checkpoints = []
    for is_kept in (True, False):
        clock = ManualClock()
        memory = MemoryStore(clock=clock)
        log = a_topic(memory, clock)
        writer = a_writer(log)
        for _ in range(3):
            append(writer, "a")
        write_checkpoint(log if is_kept else a_log(memory, clock))
        files = load_state(a_log(memory, clock)).require_whole().index.from_offset(0, 0)
        checkpoints.append([(segment.base_offset, segment.last_offset) for segment in files])
    assert checkpoints[0] == checkpoints[1] == [(0, 0), (1, 1), (2, 2)]
