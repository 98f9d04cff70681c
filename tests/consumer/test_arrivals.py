"""Records that come by themselves: a consumer that is told of them gives what one gives that makes rounds."""

import json
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import StoreUnavailableError
from sparklog.log import delete_records, delete_topic
from sparklog.log.catch_up import apply_look
from sparklog.producer import Producer
from sparklog.storage import MemoryStore
from sparklog.storage.entry_log import PositionLost
from sparklog.testing import ManualClock, WrappedStore
from tests.consumer.support import Rounds, a_cluster, tp, with_topic
from tests.support import foreign_commit, foreign_file, foreign_records, resealed

STEP_MS = 200
"""Longer than what was done about news of a topic is remembered."""


class Telling(WrappedStore):
    """A store that notifies when the test says so, and can fail."""

    def __init__(self, store):
        super().__init__(store)
        self.changed = []
        self.failing = ""

    def watch(self, folder, changed):
        self.changed.append(changed)
        return lambda: self.changed.remove(changed)

    def read(self, path):
        return super().read(*self._checked([path]))

    def read_many(self, paths):
        return super().read_many(self._checked(paths))

    def read_buffers(self, paths):
        return super().read_buffers(self._checked(paths))

    def _checked(self, paths):
        if self.failing and any(self.failing in path for path in paths):
            raise StoreUnavailableError("not now")
        return paths


class Told(Rounds):
    """A fetcher that the store tells of news, and that rests before."""

    def __init__(self, memory, clock, **given):
        self.store, self.clock = Telling(memory), clock
        self.looks = 0
        super().__init__(a_cluster(self.store, clock), **given)
        look = self.fetcher._look
        self.fetcher._look = partial(self._counted, look)  # type: ignore[method-assign]

    def _counted(self, look, until_ticks_ms):
        self.looks += 1
        return look(until_ticks_ms)

    def rest(self):
        """Do all there is to do, as the fetcher's thread does before it waits."""
        self.run()
        with self.fetch_state.lock:
            assert not self.fetcher.has_news
            self.fetcher.next_due_ticks_ms()
        self.looks = 0

    def tell(self):
        for changed in self.store.changed:
            changed()

    def take_told(self):
        """The rounds that a notification makes the thread run."""
        self.tell()
        with self.fetch_state.lock:
            if not (self.fetcher.has_announced or self.fetcher.has_news):
                return
        while self.fetcher.round(0.0):
            pass


def told_of(*batches, partitions=1, **given):
    """A writer's cluster, and a consumer that has read all and rests."""
    memory, clock = MemoryStore(), ManualClock()
    cluster = with_topic(a_cluster(memory), *batches, partitions=partitions)
    consumer = Told(memory, clock, **given)
    consumer.assign(tp())
    consumer.rest()
    consumer.take(tp())
    assert consumer.store.changed
    return cluster, consumer


def sent(cluster, *records, topic="t"):
    """Records in one commit, by a producer of its own."""
    with Producer(cluster=cluster, linger_ms=60_000) as producer:
        for partition, value, headers in records:
            producer.send(topic, value=value, partition=partition, headers=headers)


def test_a_record_that_is_announced_is_taken_without_a_round():
    cluster, consumer = told_of("a")
    for offset, letter in enumerate("bcd", start=1):
        sent(cluster, (0, letter.encode(), []))
        consumer.take_told()
        assert consumer.take(tp()) == [(offset, letter)]
        assert not consumer.fetcher.has_news
    assert consumer.looks == 0
    assert consumer.fetch_state.views["t"].log_end_offsets == (4,)
    assert consumer.fetch_state.views["t"].caught_up


def test_records_of_partitions_that_others_have_move_the_log_end_alone():
    cluster, consumer = told_of("a", partitions=2)
    sent(cluster, (1, b"b", []))
    consumer.take_told()
    assert consumer.looks == 0
    assert consumer.fetch_state.views["t"].log_end_offsets == (1, 1)
    assert consumer.take(tp()) == []


def test_several_commits_at_once_are_left_to_a_round():
    cluster, consumer = told_of("a")
    for value in (b"b", b"c"):
        sent(cluster, (0, value, []))
    consumer.take_told()
    assert consumer.looks
    assert consumer.take(tp()) == [(1, "b"), (2, "c")]


def test_an_announcement_of_nothing_is_no_news():
    _, consumer = told_of("a")
    consumer.take_told()
    assert consumer.looks == 0
    assert consumer.take(tp()) == []


def test_a_topic_that_is_loaded_anew_by_the_look_is_read_on(monkeypatch):
    cluster, consumer = told_of("a")
    sent(cluster, (0, b"b", []))
    lost = [PositionLost("lost")]

    def loses_its_position(state, look):
        if lost:
            raise lost.pop()
        return apply_look(state, look)

    monkeypatch.setattr("sparklog.log.follow.apply_look", loses_its_position)
    consumer.take_told()
    assert not lost
    assert consumer.take(tp()) == [(1, "b")]


def test_what_else_is_due_is_not_put_off_by_what_is_announced():
    cluster, consumer = told_of("a")
    consumer.clock.advance(STEP_MS)
    sent(cluster, (0, b"b", []))
    consumer.take_told()
    assert consumer.looks
    assert consumer.take(tp()) == [(1, "b")]


def test_a_log_that_cant_be_read_is_told_by_the_round_and_read_later():
    cluster, consumer = told_of("a")
    sent(cluster, (0, b"b", []))
    consumer.store.failing = "_delta_log"
    consumer.take_told()
    assert isinstance(consumer.fetch_state.errors.pop("t"), StoreUnavailableError)
    consumer.store.failing = ""
    consumer.run()
    assert consumer.take(tp()) == [(1, "b")]


def test_a_file_that_cant_be_read_is_read_by_the_next_round():
    """The log was applied before: the round must know that it has something to read."""
    cluster, consumer = told_of("a")
    sent(cluster, (0, b"b", []))
    consumer.store.failing = ".parquet"
    with pytest.raises(StoreUnavailableError):
        consumer.take_told()
    assert consumer.take(tp()) == []
    consumer.store.failing = ""
    consumer.run()
    assert consumer.take(tp()) == [(1, "b")]


def test_a_topic_that_is_deleted_is_told():
    cluster, consumer = told_of("a")
    delete_topic(cluster.topic_log("t"), "t")
    consumer.take_told()
    assert "t" in consumer.fetch_state.errors


def test_a_seek_while_the_file_is_read_drops_what_was_read(monkeypatch):
    cluster, consumer = told_of("ab")
    sent(cluster, (0, b"c", []))
    reader = consumer.fetcher._reader
    read = reader.read_arrived

    def sought(follower, segment, offset):
        found = read(follower, segment, offset)
        assert found is not None
        consumer.seek(tp(), 1)
        return found

    monkeypatch.setattr(reader, "read_arrived", sought)
    consumer.take_told()
    assert consumer.take(tp()) == [(1, "b"), (2, "c")]


def test_an_arrival_brings_forward_when_its_topic_is_due():
    """What others commit in a topic that has become active isn't always announced."""
    cluster, consumer = told_of("a")
    for _ in range(40):
        consumer.clock.advance(500)
        consumer.rest()
    sent(cluster, (0, b"b", []))
    consumer.take_told()
    assert consumer.looks == 0
    with consumer.fetch_state.lock:
        assert consumer.fetcher.next_due_ticks_ms() - consumer.clock.ticks_ms() <= 100


def test_what_was_announced_of_a_topic_that_is_wanted_no_more_is_forgotten():
    cluster, consumer = told_of("a")
    with_topic(cluster, "z", topic="u")
    consumer.assign(tp(), tp(topic="u"))
    consumer.rest()
    consumer.fetcher._announcements.announce("u")
    consumer.assign(tp())
    consumer.rest()
    sent(cluster, (0, b"b", []))
    consumer.take_told()
    assert consumer.looks == 0
    assert consumer.take(tp()) == [(1, "b")]


def test_an_entry_that_moves_ends_without_files_is_left_to_a_round():
    """Nothing of sparklog writes such an entry."""
    cluster, consumer = told_of("a", partitions=2)
    consumer.assign(tp(), tp(1))
    consumer.rest()
    sent(cluster, (0, b"b", []))
    store = cluster.store
    path = max(found.path for found in store.list("topics/t/_delta_log/") if found.path.endswith(".json"))
    lines = [json.loads(line) for line in store.read(path).splitlines()]
    [info] = [line["commitInfo"] for line in lines if "commitInfo" in line]
    info["sparklog"]["log_end_offsets"] = [2, 5]
    store.put(path, resealed("\n".join(map(json.dumps, lines)).encode()))
    consumer.take_told()
    assert consumer.looks
    assert consumer.take(tp()) == [(1, "b")]
    assert consumer.fetch_state.assignment.get(tp(1)).fetch_offset == 5


def test_a_full_partition_gets_no_more_than_it_has_room_for():
    cluster, consumer = told_of("a", max_partition_fetch_bytes=1)
    sent(cluster, (0, b"b", []))
    consumer.take_told()
    sent(cluster, (0, b"c", []))
    consumer.take_told()
    assert consumer.take(tp()) == [(1, "b")]
    consumer.run()
    assert consumer.take(tp()) == [(2, "c")]


RECORD = st.tuples(
    st.integers(0, 1),
    st.sampled_from([b"", b"a", b"bc" * 40]),
    st.sampled_from([[], [], [], [("h", b"1")]]),
)
STEP = st.one_of(
    st.tuples(st.just("send"), st.lists(RECORD, min_size=1, max_size=3)),
    st.tuples(st.just("send"), st.lists(st.tuples(st.just(0), st.just(b"x"), st.just([])), min_size=1, max_size=20)),
    st.tuples(st.just("one"), st.integers(0, 1)),
    st.tuples(st.just("seek"), st.integers(0, 5)),
    st.tuples(st.just("paused"), st.booleans()),
    st.tuples(st.just("trim"), st.integers(0, 1)),
    st.tuples(st.just("foreign"), st.just(0)),
    st.tuples(st.just("assign"), st.booleans()),
)


def done(step, cluster, consumers):
    """Carry out a step, on the log or on both consumers alike."""
    kind, what = step
    if kind == "send":
        sent(cluster, *what)
    elif kind == "one":
        sent(cluster, (what, b"1", []))
    elif kind == "trim":
        end = consumers[0].fetch_state.views["t"].log_end_offsets[what]
        delete_records(cluster.topic_log("t"), "t", {what: end})
    elif kind == "foreign":
        end = consumers[0].fetch_state.views["t"].log_end_offsets[0]
        file = foreign_file(cluster.topic_log("t"), foreign_records("f"), base_offset=end)
        foreign_commit(cluster.topic_log("t"), file)
    for consumer in consumers:
        if kind == "seek":
            consumer.seek(tp(), what)
        elif kind == "assign":
            consumer.assign(tp(), *([tp(1)] if what else []))
        elif kind == "paused":
            state = consumer.fetch_state.assignment.get(tp())
            with consumer.fetch_state.lock:
                if what:
                    consumer.fetch_state.assignment.pause(state, keep_bytes=1 << 20)
                else:
                    state.paused = False
                consumer.fetch_state.request_update()


def seen(consumer):
    """All that the application can see, and where the fetcher goes on."""
    states = [*consumer.fetch_state.assignment]
    records = {state.partition: consumer.take(state.partition) for state in states if not state.paused}
    offsets = {state.partition: (state.fetch_offset, state.position) for state in states}
    return records, offsets, consumer.fetch_state.views, consumer.fetch_state.errors


@settings(max_examples=20, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=8))
def test_what_is_taken_by_itself_is_what_rounds_find(steps):
    memory, clock = MemoryStore(), ManualClock()
    cluster = with_topic(a_cluster(memory), "ab", partitions=2)
    told, other = Told(memory, clock), Rounds(a_cluster(memory, clock))
    for consumer in (told, other):
        consumer.assign(tp(), tp(1))
        consumer.run()
    for step in [*steps, ("assign", False), ("paused", False), ("one", 0)]:
        clock.advance(STEP_MS)
        told.rest()
        done(step, cluster, (told, other))
        told.take_told()
        other.run()
        assert seen(told) == seen(other)
    if all(kind != "trim" for kind, _ in steps):  # a round resets a position below the log start
        assert told.looks == 0  # the last record arrived by itself
