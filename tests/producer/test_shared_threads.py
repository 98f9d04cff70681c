"""The threads that topics of a producer share: how many, who gets one, and what a topic that hangs does to others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import pytest

from sparklog.errors import NoThreadError, UnknownTopicOrPartitionError
from sparklog.log import create_topic
from sparklog.producer import shared_threads
from sparklog.producer.shared_threads import MOST_THREADS, Look, SharedThreads, Turns
from sparklog.storage import MemoryStore
from sparklog.testing import WrappedStore
from sparklog.workers import Worker
from tests.interrupting import POINTS, interrupt, numbers
from tests.producer.support import LONG_S, a_cluster, a_producer, assert_empty, eventually, through, values

T = TypeVar("T")

MANY = 300


def a_cluster_of(memory: MemoryStore, count: int) -> list[str]:
    names = [f"t{number}" for number in range(count)]
    cluster = a_cluster(memory)
    for name in names:
        create_topic(cluster.topic_log(name), name)
    return names


def threads_of_ours() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("sparklog-sender")}


def test_a_producer_of_many_topics_has_few_threads_and_none_once_it_is_closed() -> None:
    """✗ Two threads for each topic: 2,001 with 1,000 topics."""
    memory = MemoryStore()
    topics = a_cluster_of(memory, MANY)
    before = threads_of_ours()
    with a_producer(a_cluster(memory)) as producer:
        producer.open_topics(topics)
        for _ in range(2):
            sent = [producer.send(topic, topic.encode()) for topic in topics]
            producer.flush(LONG_S)
        assert [future.get(LONG_S).offset for future in sent] == [1] * MANY
        assert len(threads_of_ours() - before) <= MOST_THREADS + 1
        assert_empty(producer)
    assert not threads_of_ours() - before
    for topic in (topics[0], topics[-1]):
        assert values(a_cluster(memory), topic) == [topic.encode()] * 2


def test_a_producer_of_one_topic_has_two_threads() -> None:
    memory = MemoryStore()
    [topic] = a_cluster_of(memory, 1)
    before = threads_of_ours()
    with a_producer(a_cluster(memory)) as producer:
        producer.send(topic, b"v").get(LONG_S)
        assert len(threads_of_ours() - before) == 2


def test_threads_of_a_topic_that_was_deleted_end() -> None:
    memory = MemoryStore()
    topics = a_cluster_of(memory, 3)
    with a_producer(a_cluster(memory)) as producer:
        producer.open_topics(topics)
        shared = producer._pipelines._threads
        assert len(shared._workers) == 6
        producer._pipelines._retire("t0", producer._pipelines.get("t0"))
        eventually(lambda: len(shared._workers) == 4)
        assert producer.send("t1", b"v").get(LONG_S).offset == 0


class HangingTopics(WrappedStore):
    """Creates of some topics hang, until :meth:`let_go`."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self._parts: tuple[str, ...] = ()
        self._go = threading.Event()

    def hold_topics(self, topics: Sequence[str]) -> None:
        self._parts = tuple(f"/{topic}/" for topic in topics)

    def let_go(self) -> None:
        self._go.set()

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if op == "create" and any(part in path for part in self._parts):
            assert self._go.wait(LONG_S)
        return call()


class Meeting(WrappedStore):
    """Listings wait until eight are under way at once, but those of a topic that is absent."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self._barrier = threading.Barrier(8)

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if op == "list" and "absent" not in path:
            self._barrier.wait(LONG_S)
        return call()


@pytest.fixture
def soon_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_threads, "_HELD_UP_S", 0.02)
    monkeypatch.setattr(shared_threads, "_GUARD_INTERVAL_S", 0.01)


@pytest.mark.parametrize("hanging", [1, MOST_THREADS + 6])
def test_topics_whose_commits_hang_hold_up_no_other(hanging: int, soon_held_up: None) -> None:
    memory = MemoryStore()
    topics = a_cluster_of(memory, MOST_THREADS + 16)
    held = HangingTopics(memory)
    with a_producer(through(held, a_cluster(memory)), max_in_flight_requests_per_connection=1) as producer:
        producer.open_topics(topics)
        held.hold_topics(topics[:hanging])
        hung = [producer.send(topic, b"hung") for topic in topics[:hanging]]
        sent = [producer.send(topic, b"v") for topic in topics[hanging:]]
        assert [future.get(LONG_S).offset for future in sent] == [0] * len(sent)
        assert not any(future.is_done for future in hung)
        held.let_go()
        assert [future.get(LONG_S).offset for future in hung] == [0] * hanging
        eventually(lambda: len(producer._pipelines._threads._workers) <= MOST_THREADS + 1)


def test_a_topic_that_is_always_busy_lets_others_have_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """✗ A thread commits for one topic as long as that has records."""
    monkeypatch.setattr(shared_threads, "MOST_THREADS", 1)
    memory = MemoryStore()
    a_cluster_of(memory, 2)
    with a_producer(a_cluster(memory), batch_size=0) as producer:
        producer.open_topics(["t0", "t1"])
        ended = threading.Event()

        def go_on(_: object) -> None:
            if not ended.is_set():
                producer.send("t0", b"busy").add_callback(go_on)

        go_on(None)
        try:
            assert producer.send("t1", b"v").get(LONG_S).offset == 0
        finally:
            ended.set()


def test_topics_that_linger_are_sent_in_time_though_threads_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_threads, "MOST_THREADS", 2)
    memory = MemoryStore()
    topics = a_cluster_of(memory, 10)
    with a_producer(a_cluster(memory), linger_ms=3_600_000, batch_size=2**20) as late:
        late.send("t9", b"late")
        with a_producer(a_cluster(memory), linger_ms=20, batch_size=2**20) as producer:
            sent = [producer.send(topic, b"v") for topic in topics]
            assert [future.get(LONG_S).offset for future in sent] == [0] * len(topics)


class ATopic:
    """Turns of a topic that has so much to do, and counts what was done."""

    def __init__(self, shared: SharedThreads, lock: threading.Lock, *, places: int = 2) -> None:
        self.to_do = self.done = 0
        self.wait_ms: float | None = None
        self.lock = lock
        self.turns = Turns()
        self.turns.look = self._look
        shared.add(self.turns, places)

    def ask(self, count: int = 1) -> None:
        with self.lock:
            self.to_do += count
            self.turns.notify()

    def _look(self) -> Look:
        if self.to_do:
            self.to_do -= 1
            return Look(self._do)
        return Look(wait_ms=self.wait_ms)

    def _do(self) -> None:
        with self.lock:
            self.done += 1


@contextmanager
def shared_threads_of_a_topic() -> Iterator[tuple[SharedThreads, ATopic]]:
    lock = threading.Lock()
    shared = SharedThreads(lock)
    topic = ATopic(shared, lock)
    yield shared, topic
    with lock:
        for turns in {topic.turns, *(turns for turns, _ in shared._at_work.values())}:
            shared.remove(turns)
    assert shared.join(LONG_S)


@pytest.mark.parametrize("point", POINTS)
def test_a_notification_that_is_interrupted_anywhere_hinders_none_that_follows(point: str) -> None:
    with shared_threads_of_a_topic() as (shared, topic):
        for at in numbers():
            eventually(lambda: shared._idle_count == 2)
            with topic.lock:
                topic.to_do += 1
                was_reached = interrupt(topic.turns.notify, at=at, point=point)
                waits = topic.done + topic.to_do
            topic.ask()
            eventually(partial(has_done, topic, waits + 1))
            if not was_reached:
                break
        assert at > 2


def has_done(topic: ATopic, count: int) -> bool:
    return topic.done == count


def test_a_topic_that_is_due_soon_is_looked_at_though_a_thread_waits_for_a_later_one() -> None:
    with shared_threads_of_a_topic() as (shared, topic):
        other = ATopic(shared, topic.lock, places=0)
        with topic.lock:
            shared._places += 0
            topic.wait_ms = 3_600_000.0
            topic.turns.notify()
        eventually(lambda: shared._timer_s < float("inf"))
        with topic.lock:
            other.turns.places = 1
            other.wait_ms = 1.0
            other.turns.notify()
        eventually(lambda: other.turns.due_s is not None or other.done)
        with topic.lock:
            other.to_do += 1  # without a notification
        eventually(partial(has_done, other, 1))


def test_one_thread_does_for_all_topics_and_none_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = MemoryStore()
    a_cluster_of(memory, 2)
    start, started = Worker.start, list[str]()

    def start_one(worker: Worker) -> None:
        if "sender" in worker._thread.name and (started or refuses_all):
            raise NoThreadError("can't start new thread")
        started.append(worker._thread.name)
        start(worker)

    monkeypatch.setattr(Worker, "start", start_one)
    refuses_all = True
    with a_producer(a_cluster(memory)) as producer:
        with pytest.raises(NoThreadError):
            producer.send("t0", b"v")
        assert producer._pipelines._threads._places == 0
        refuses_all = False
        started.clear()
        sent = [producer.send(topic, b"v") for topic in ("t0", "t1")]
        assert [future.get(LONG_S).offset for future in sent] == [0, 0]


def test_topics_are_opened_side_by_side_and_one_that_is_not_there_hinders_no_other() -> None:
    memory = MemoryStore()
    topics = a_cluster_of(memory, 8)
    with a_producer(through(Meeting(memory), a_cluster(memory))) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match="absent"):
            producer.open_topics([*topics, "absent"])
        assert all(producer._pipelines.is_open(topic) for topic in topics)
        producer.open_topics(topics)
