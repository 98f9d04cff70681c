"""What things cost in store calls: exact, and the same at any age of a topic (``docs/storage_format.md``, What it
costs)."""

from dataclasses import replace

import pytest

from sparklog.log.commit import Commit, commit
from sparklog.log.follow import TopicFollower
from sparklog.log.state import open_state
from sparklog.log.topic import alter_topic, create_topic, describe_topic
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, ManualClock
from tests.support import (
    T0_MS,
    OvertakenStore,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    inline_checkpoints,
    records,
    within,
)


@pytest.fixture
def memory():
    return MemoryStore()


@pytest.fixture
def clock():
    return ManualClock(start_ms=T0_MS)


def a_counted_log(store, clock):
    """A log whose store calls are counted from here on."""
    counting = CountingStore(store)
    return a_log(counting, clock), counting


@pytest.mark.parametrize("sync", [False, True], ids=["acks=1", "acks=all"])
def test_an_append_is_a_put_for_each_file_and_one_create(memory, clock, sync):
    a_topic(memory, clock, num_partitions=3)
    log, store = a_counted_log(memory, clock)
    writer = a_writer(log, sync=sync)
    append(writer, "the first of a syncing writer has to sync what came before")
    for partitions in ([0], [0, 1, 2], [1, 1, 1, 1]):
        store.reset()
        writer.append(writer.upload([(p, records("a", "b")) for p in partitions]), deadline=within(writer, 1_000))
        assert store.counts() == {"put": len(partitions), "create": 1}


def test_the_first_append_with_acks_all_syncs_what_others_wrote_once(memory, clock):
    a_topic(memory, clock)
    log, store = a_counted_log(memory, clock)
    writer = a_writer(log, sync=True)
    store.reset()
    append(writer, "a")
    assert store.counts() == {"put": 1, "sync_all": 1, "create": 1}


@pytest.mark.parametrize(("lost_races", "gets"), [(1, 1), (2, 4), (3, 7), (10, 28)], ids=lambda number: str(number))
def test_a_lost_race_is_a_create_and_a_get_and_from_the_second_on_a_look_at_two_more(memory, clock, lost_races, gets):
    topic = a_topic(memory, clock)
    other = a_writer(topic)
    store = CountingStore(OvertakenStore(memory, lambda: append(other, "theirs"), times=lost_races))
    writer = a_writer(a_log(store, clock))
    store.reset()
    append(writer, "mine")
    assert store.counts() == {"put": 1, "create": lost_races + 1, "get": gets}
    assert [value for _, value in contents(topic)[0]] == ["theirs"] * lost_races + ["mine"]


@pytest.mark.parametrize(
    ("behind", "gets"), [(1, 1), (2, 4), (3, 4), (4, 8), (100, 128)], ids=lambda number: str(number)
)
def test_a_writer_behind_goes_to_the_tail_in_parallel_and_tries_three_times_at_most(memory, clock, behind, gets):
    topic = a_topic(memory, clock)
    log, store = a_counted_log(memory, clock)
    writer, other = a_writer(log), a_writer(topic)
    for number in range(behind):
        append(other, str(number))
    store.reset()
    append(writer, "mine")
    assert store.counts() == {"put": 1, "create": min(behind + 1, 3), "get": gets}
    assert len(contents(topic)[0]) == behind + 1


def test_a_writer_that_is_alone_never_reads(memory, clock):
    a_topic(memory, clock)
    log, store = a_counted_log(memory, clock)
    writer = a_writer(log)
    store.reset()
    for number in range(10):
        append(writer, str(number))
    assert store.counts() == {"put": 10, "create": 10}


def test_a_poll_is_one_get_whether_something_is_there_or_not(memory, clock):
    topic = a_topic(memory, clock)
    log, store = a_counted_log(memory, clock)
    follower = TopicFollower(log, "t")
    writer = a_writer(topic)
    store.reset()
    assert follower.poll() == []
    assert store.counts() == {"get": 1}
    append(writer, "a")
    store.reset()
    assert len(follower.poll()) == 1
    assert store.counts() == {"get": 1}


def test_a_poll_after_long_silence_verifies_the_position_by_a_get_and_a_list_more(memory, clock):
    """Rule L1: its own entry, and the marks of cleanups."""
    a_topic(memory, clock)
    log, store = a_counted_log(memory, clock)
    follower = TopicFollower(log, "t")
    clock.advance(log.tail_trust_ms + 1)
    store.reset()
    assert follower.poll() == []
    assert store.counts() == {"get": 2, "list": 1}
    store.reset()
    assert follower.poll() == []
    assert store.counts() == {"get": 1}


def test_a_read_is_one_get_for_each_file_it_needs(memory, clock):
    topic = a_topic(memory, clock)
    writer = a_writer(topic)
    for values in ("ab", "cd", "ef"):
        append(writer, *values)
    log, store = a_counted_log(memory, clock)
    follower = TopicFollower(log, "t")
    for offset, max_records, gets in ((0, 2, 1), (1, 2, 2), (0, 6, 3), (4, 1, 1), (6, 1, 0)):
        store.reset()
        follower.read(0, offset, max_records=max_records)
        assert store.counts() == ({"get": gets} if gets else {})


OPEN_FOR_WRITING = {"get": 2, "list": 1}  # the hint of a checkpoint, what follows it, the newest entry


def grow(log, age):
    """Let a topic grow to a version; the last commits are appends that write what checkpoints are due."""

    def as_if_it_added_a_file(state):
        head = replace(state.head, live_file_count=state.head.live_file_count + 1)
        return Commit(actions=[], head=head, operation="WRITE")

    state = open_state(log)
    while state.position.version < age - 60:
        state = commit(state, as_if_it_added_a_file, deadline=log.clock.deadline_in(None), sync=False).state
    writer = a_writer(log, checkpoints=inline_checkpoints())
    while writer.head.delta_version < age:
        append(writer, "x")


@pytest.mark.slow
def test_opening_a_topic_for_writing_costs_the_same_at_any_age(memory, clock):
    topic = a_topic(memory, clock)
    log, store = a_counted_log(memory, clock)
    checkpoints = []
    for age in (1, 500, 5_000):
        grow(topic, age)
        store.reset()
        opened = a_writer(log)
        assert store.counts() == OPEN_FOR_WRITING
        assert opened.head.delta_version == age
        checkpoints.append(opened.state.checkpoint_version)
        store.reset()
        describe_topic(log, "t")
        assert store.counts() == OPEN_FOR_WRITING
    none, of_500, of_5000 = checkpoints
    assert (none, 440 < of_500 <= 500, 4_940 < of_5000 <= 5_000) == (-1, True, True)


def test_a_topic_is_created_in_three_calls_and_seen_to_exist_in_five(memory, clock):
    log, store = a_counted_log(memory, clock)
    create_topic(log, "t")
    assert store.counts() == {"get": 1, "list": 1, "create": 1}
    store.reset()
    with pytest.raises(Exception, match="already exists"):
        create_topic(log, "t")
    assert store.counts() == {"get": 3, "list": 2}


def test_a_change_of_settings_loads_the_topic_and_creates_one_entry(memory, clock):
    topic = a_topic(memory, clock)
    for _ in range(5):
        append(a_writer(topic), "x")
    log, store = a_counted_log(memory, clock)
    alter_topic(log, "t", {"retention.ms": 1})
    assert store.counts() == {"get": 1 + 6, "list": 2, "sync_all": 1, "create": 1}  # the hint and six entries
