"""A consumer of many topics, on a store that takes 20 ms a request, 32 at once: how soon, and by how many requests."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparklog.consumer import topic_opening
from sparklog.errors import CorruptLogError, SparklogError, StoreUnavailableError, UnknownTopicOrPartitionError
from sparklog.log import delete_topic
from sparklog.storage import MemoryStore, ObjectInfo, ObjectStore
from sparklog.testing import Fault, FaultKind, FaultyStore, WrappedStore
from tests.consumer.support import LONG_MS, Rounds, a_cluster, a_consumer, send, take, tp, until, with_topic
from tests.overlapping import OverlappingClock, SlowStore, copy_topic, overlapping


class Driven:
    """A fetcher of many topics, each with one record, driven as its thread does, on simulated time."""

    def __init__(self, clock: OverlappingClock, topic_count: int, *, slow: str = "", **settings: Any) -> None:
        self.clock = clock
        self.memory = MemoryStore(clock=clock)
        with_topic(a_cluster(self.memory, clock), "a")
        self.topics = [f"t{number:03}" for number in range(topic_count)]
        copy_topic(self.memory, "t", self.topics)
        self.store = SlowStore(self.memory, clock, latency_ms=20.0, slow=slow)
        self.rounds = Rounds(a_cluster(self.store, clock), **settings)
        self.fetcher, self.fetch_state = self.rounds.fetcher, self.rounds.fetch_state
        self.rounds.assign(*(tp(topic=topic) for topic in self.topics))

    def run(self, until: Callable[[], bool], *, most_ms: float = 60_000.0) -> float:
        """Rounds until something is so, or for so long; the simulated milliseconds that took."""
        began, clock = self.clock.now, self.clock
        while not until() and clock.now < began + most_ms:
            if self.fetcher.round(clock.now):
                continue
            with self.fetch_state.lock:
                due = self.fetcher.next_due_ticks_ms()
            clock.wait_until(min(due, clock.next_end_ms(), began + most_ms))
        return clock.now - began

    def rest(self, duration_ms: float) -> dict[str, int]:
        """Let time pass; what is asked of the store meanwhile."""
        self.store.reset()
        self.run(lambda: False, most_ms=duration_ms)
        return self.store.counts()

    def send(self, *topics: str) -> None:
        """A record to each, in no time."""
        for topic in topics:
            send(a_cluster(self.memory, self.clock), "b", topic=topic)

    @property
    def count(self) -> int:
        """Records that were read and not taken."""
        return sum(state.buffered_count for state in self.fetch_state.assignment)

    def take_all(self) -> int:
        """Take the records that were read; how many."""
        return sum(len(self.rounds.take(tp(topic=topic))) for topic in self.topics)

    def read_all(self) -> None:
        """Come to the ends of all topics."""
        self.run(lambda: self.count == len(self.topics))
        self.take_all()


@pytest.fixture
def clock() -> Iterator[OverlappingClock]:
    with overlapping() as clock:
        yield clock


@pytest.mark.slow
def test_the_first_records_of_200_topics_come_once_one_is_open_and_all_soon_after(clock):
    driven = Driven(clock, 200)
    assert driven.run(lambda: driven.count > 0) == 6 * 20  # four requests to open it, a look, the file
    assert driven.count < 200
    assert driven.run(lambda: driven.count == 200) < 1_000


@pytest.mark.slow
def test_a_record_in_each_of_many_topics_is_seen_by_looks_and_reads_side_by_side(clock):
    driven = Driven(clock, 60)
    driven.read_all()
    driven.rest(200)
    driven.send(*driven.topics)
    driven.store.reset()
    assert driven.run(lambda: driven.count == 60) < 300
    assert set(driven.store.counts()) == {"get"}


@pytest.mark.slow
def test_quiet_topics_share_their_looks_and_one_with_recent_news_gets_more_of_them(clock):
    driven = Driven(clock, 60)
    driven.read_all()
    driven.rest(10_000)
    assert driven.rest(10_000)["get"] <= 10 * 50 * 1.15  # some are looked at a little earlier, in company
    driven.send("t000", "t030")
    assert driven.run(lambda: driven.count == 2) < 60 * 20 + 100
    driven.take_all()
    for _ in range(5):
        driven.rest(300)
        driven.send("t030")
        assert driven.run(lambda: driven.take_all() > 0) < 150


@pytest.mark.parametrize(("wait_ms", "rate"), [(2_000, 12.5), (50, 500)])
def test_fetch_max_wait_ms_tells_how_often_quiet_topics_are_looked_at(clock, wait_ms, rate):
    driven = Driven(clock, 40, fetch_max_wait_ms=wait_ms)
    driven.read_all()
    driven.rest(15 * wait_ms)
    seconds = 20 * wait_ms / 1_000
    assert seconds * rate * 0.8 <= driven.rest(seconds * 1_000)["get"] <= seconds * rate * 1.15


@pytest.mark.slow
def test_after_a_long_absence_the_positions_of_many_topics_are_verified_side_by_side(clock):
    """Rule L1: trust in all of them has run out."""
    driven = Driven(clock, 60)
    driven.read_all()
    clock.advance(600_000)
    driven.send(*driven.topics)
    assert driven.run(lambda: driven.count == 60) < 500


def test_a_topic_that_opens_slowly_holds_up_no_other(clock):
    driven = Driven(clock, 40, slow="/t003/")
    assert driven.run(lambda: driven.count == 39) < 500
    assert driven.run(lambda: driven.count == 40) > 5_000


# Threads that open topics


class Gate(WrappedStore):
    """Listings of the topics' logs wait until the gate is open."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.is_open = threading.Event()
        self.listed: list[str] = []

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        self.listed.append(prefix)
        assert self.is_open.wait(LONG_MS / 1_000)
        return self._store.list(prefix, after=after)


def a_gate(topic_count: int) -> tuple[Gate, list[str]]:
    memory = MemoryStore()
    with_topic(a_cluster(memory), "a")
    topics = [f"t{number:03}" for number in range(topic_count)]
    copy_topic(memory, "t", topics)
    return Gate(memory), topics


def test_close_while_topics_are_being_opened_waits_for_those_and_opens_no_other(monkeypatch):
    monkeypatch.setattr(topic_opening, "AT_ONCE", 2)
    store, topics = a_gate(20)
    consumer = a_consumer(a_cluster(store), *topics)
    assert consumer.poll(timeout_ms=10) == {}
    until(lambda: len(store.listed) == 2)
    closing = threading.Thread(target=consumer.close)
    closing.start()
    closing.join(0.02)
    assert closing.is_alive()
    store.is_open.set()
    closing.join(LONG_MS / 1_000)
    assert len({*store.listed}) == 2
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("sparklog-opening")])


def test_close_waits_for_an_opening_that_had_begun_when_its_topic_was_wanted_no_more():
    store, topics = a_gate(1)
    openings = topic_opening.TopicOpener(a_cluster(store), lambda: None)
    openings.begin(topics[0])
    until(lambda: len(store.listed) == 1)
    openings.keep([])
    assert openings.take() == {}
    closing = threading.Thread(target=openings.close)
    closing.start()
    closing.join(0.02)
    assert closing.is_alive()
    store.is_open.set()
    closing.join(LONG_MS / 1_000)
    assert not closing.is_alive()


def test_a_topic_that_is_not_wanted_any_more_when_it_is_open_is_not_followed():
    store, topics = a_gate(3)
    with a_consumer(a_cluster(store), *topics) as consumer:
        assert consumer.poll(timeout_ms=10) == {}
        until(lambda: len(store.listed) == 3)
        consumer.subscribe(topics[:1])
        store.is_open.set()
        assert [record.topic for record in take(consumer, 1)] == topics[:1]
        assert consumer.poll(timeout_ms=20) == {}
        assert consumer.assignment() == {tp(topic="t000")}


def test_what_is_wrong_with_one_topic_hides_neither_the_others_nor_their_errors():
    memory = MemoryStore()
    with_topic(a_cluster(memory), "a")
    copy_topic(memory, "t", ["a", "b", "c", "d"])
    memory.put("topics/b/_delta_log/00000000000000000001.json", b"no json")
    delete_topic(a_cluster(memory).topic_log("c"), "c")
    found: set[str] = set()
    errors: set[type[Exception]] = set()
    with a_consumer(a_cluster(memory), *"abcd") as consumer:
        while found != {"a", "d"} or len(errors) < 2:
            try:
                found |= {at.topic for at in consumer.poll(timeout_ms=LONG_MS)}
            except SparklogError as error:
                errors.add(type(error))
    assert errors == {CorruptLogError, UnknownTopicOrPartitionError}


def test_an_outage_while_many_topics_are_opened_is_raised_once_then_all_are_opened():
    memory = MemoryStore()
    with_topic(a_cluster(memory), "a")
    topics = [f"t{number:03}" for number in range(20)]
    copy_topic(memory, "t", topics)
    fault = Fault(kind=FaultKind.THROTTLED, ops=["list"], times=len(topics))
    with a_consumer(a_cluster(FaultyStore(memory, fault)), *topics, retry_backoff_ms=50) as consumer:
        errors, count = 0, 0
        while count < len(topics):
            try:
                count += sum(map(len, consumer.poll(timeout_ms=LONG_MS).values()))
            except StoreUnavailableError:
                errors += 1
        assert 1 <= errors < len(topics) / 2
