"""Clients that meet files without offsets sequence them: in the background, few of many, and no bad file for ever."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.delta.actions import RemoveFile
from sparklog.log import Cluster
from sparklog.log.append import TopicWriter
from sparklog.log.claims import Claim
from sparklog.log.data.object_paths import object_path
from sparklog.log.maintenance import Sequencing
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.state import TopicState, load_state, open_state
from sparklog.log.topic import delete_topic
from sparklog.paths import sequencing_claim
from sparklog.producer import Producer
from sparklog.storage import MemoryStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import (
    CountingStore,
    Fault,
    FaultKind,
    FaultyStore,
    ManualClock,
    SimulatedCrash,
    WrappedStore,
)
from tests.consumer import support as consumers
from tests.support import (
    T0_MS,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    foreign_commit,
    foreign_file,
    foreign_records,
    inline_checkpoints,
    no_checkpoints,
    unsequenced_file,
)

T = TypeVar("T")
MINUTE_MS = 60_000
PARTITION_LESS = pa.table({"value": [b"f"]})


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start_ms=T0_MS)


@pytest.fixture
def topic(memory: MemoryStore, clock: ManualClock) -> None:
    log = a_topic(memory, clock)
    append(a_writer(log), "a")


def inline() -> Sequencing:
    """Does at once, in the caller's thread, what there is to do."""
    return Sequencing(run=lambda work: work(), max_delay_ms=0)


def bad_file(memory: MemoryStore, clock: ManualClock) -> str:
    """Commit a file that can't be sequenced. Its path."""
    log = a_log(memory, clock)
    add = foreign_file(log, foreign_records("bad"))
    log.store.put(object_path(log.table, add.path), b"no Parquet")
    foreign_commit(log, add)
    return add.path


def seen_through(store: CountingStore | FaultyStore, clock: ManualClock) -> TopicState:
    """What a client knows that opens the topic now."""
    return open_state(a_log(store, clock))


@pytest.mark.usefixtures("topic")
def test_where_no_file_waits_nothing_is_started(memory: MemoryStore, clock: ManualClock) -> None:
    Sequencing(run=lambda work: pytest.fail("started")).start_if_needed(open_state(a_log(memory, clock)))


@pytest.mark.usefixtures("topic")
def test_what_a_writer_meets_at_its_commit_is_sequenced(memory: MemoryStore, clock: ManualClock) -> None:
    log = a_log(memory, clock)
    writer = TopicWriter(log, "t", checkpoints=no_checkpoints(), sequencing=inline())
    foreign_commit(log, foreign_file(log, PARTITION_LESS, partition=None))
    append(writer, "b")
    append(writer, "c")
    assert contents(log) == {0: [(0, "a"), (1, "b"), (2, "f"), (3, "c")]}


@pytest.mark.usefixtures("topic")
def test_what_a_writer_meets_as_it_looks_for_partitions_is_sequenced(memory: MemoryStore, clock: ManualClock) -> None:
    log = a_log(memory, clock)
    writer = TopicWriter(log, "t", sequencing=inline())
    unsequenced_file(log, "f")
    writer.refresh()
    assert contents(log) == {0: [(0, "a"), (1, "f")]}


@pytest.mark.usefixtures("topic")
def test_of_fifty_clients_that_meet_a_file_one_sequences_it_and_the_others_look(
    memory: MemoryStore, clock: ManualClock
) -> None:
    unsequenced_file(a_log(memory, clock), "f")
    started: list[Callable[[], None]] = []
    stores = [CountingStore(memory) for _ in range(50)]
    for store in stores:
        Sequencing(run=started.append, max_delay_ms=0).start_if_needed(seen_through(store, clock))
    for store in stores:
        store.reset()
    for work in started:
        work()
    assert [store.counts().get("put", 0) for store in stores] == [1] + [0] * 49
    assert [store.counts().get("create", 0) for store in stores] == [2] + [0] * 49  # its claim, and the commit
    assert max(sum(store.counts().values()) for store in stores[1:]) <= 3
    assert contents(a_log(memory, clock)) == {0: [(0, "a"), (1, "f")]}


@pytest.mark.usefixtures("topic")
def test_of_twelve_clients_at_the_same_time_one_copies_however_long_it_takes(
    memory: MemoryStore, clock: ManualClock
) -> None:
    """Each call takes a second, so that all have begun before the first copy is put."""
    path = unsequenced_file(a_log(memory, clock), "f")
    clients = [Sequencing(run=lambda work: work(), max_delay_ms=0) for _ in range(12)]
    reads = 0

    class Slow(WrappedStore):
        def read(self, read_path: str) -> bytes:
            nonlocal reads
            if read_path.endswith(path):
                reads += 1
                for other in clients[reads:]:  # they come while this one reads
                    other.start_if_needed(seen_through(CountingStore(memory), clock))
                clock.advance(3_000)
            return super().read(read_path)

    clients[0].start_if_needed(open_state(a_log(Slow(memory), clock)))
    assert reads == 1
    assert contents(a_log(memory, clock)) == {0: [(0, "a"), (1, "f")]}
    assert len([found for found in memory.list("topics/") if found.path.endswith(".parquet")]) == 3


@pytest.mark.usefixtures("topic")
def test_what_a_client_left_that_died_another_does_within_half_a_minute(
    memory: MemoryStore, clock: ManualClock
) -> None:
    log = a_log(memory, clock)
    path = unsequenced_file(log, "f")
    store = FaultyStore(memory, Fault(kind=FaultKind.CRASH_BEFORE, ops=["get"], path=path))
    state = seen_through(store, clock)
    with pytest.raises(SimulatedCrash):
        inline().start_if_needed(state)
    other, seconds = inline(), 0
    while len(contents(log)[0]) == 1:
        other.start_if_needed(open_state(log))
        clock.advance(1_000)
        seconds += 1
    assert 20 <= seconds <= 30
    assert sequencing_claim("topics/t") not in {found.path for found in memory.list("")}


@pytest.mark.usefixtures("topic")
def test_what_was_written_together_and_is_too_much_is_left_to_maintenance_and_told(
    memory: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log(memory, clock)
    foreign_commit(log, *(foreign_file(log, foreign_records(f"large{n}", timestamp_ms=T0_MS)) for n in range(2)))
    size = sum(segment.size_bytes for segment in load_state(log).require_whole().index.unsequenced())
    monkeypatch.setattr("sparklog.log.maintenance.MAX_CLIENT_BYTES", size - 1)
    client = inline()
    told = []
    for minute in range(60):
        caplog.clear()
        client.start_if_needed(open_state(log))
        told += [minute] * ("2 files of 0 MiB wait that were written together" in caplog.text)
        clock.advance(MINUTE_MS)
    assert told == [0, 1, 3, 7, 15, 31]
    assert contents(log) == {0: [(0, "a")]}
    unsequenced_file(log, "small")  # what comes later doesn't wait for it
    client.start_if_needed(open_state(log))
    assert contents(log) == {0: [(0, "a"), (1, "small")]}
    assert sequence_topic(log).sequenced_count == 2
    assert sorted(value for _, value in contents(log)[0])[1:3] == ["large0", "large1"]


@pytest.mark.slow
@pytest.mark.usefixtures("topic")
def test_a_writer_of_checkpoints_leaves_what_is_too_much_too(
    memory: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.log.maintenance.MAX_CLIENT_BYTES", 1)
    log = a_log(memory, clock)
    path = unsequenced_file(log, "f")
    store = FaultyStore(memory)
    writer = a_writer(a_log(store, clock), checkpoints=inline_checkpoints())
    for _ in range(110):
        append(writer, "x")
    assert not [call for call in store.calls if path in call.path]
    assert load_state(log).checkpoint_version > 0


@pytest.mark.usefixtures("topic")
def test_a_file_that_others_sequenced_while_another_was_copied_is_not_read(
    memory: MemoryStore, clock: ManualClock
) -> None:
    log = a_log(memory, clock)
    first, second = (unsequenced_file(log, value) for value in "fg")
    store = FaultyStore(memory)

    class Slow(WrappedStore):
        def read(self, path: str) -> bytes:
            if path.endswith(first):
                clock.advance(2_000)
                sequence_topic(log)
            return super().read(path)

    assert sequence_topic(a_log(Slow(store), clock)).sequenced_count == 0
    assert not [call for call in store.calls if second in call.path]
    assert contents(log) == {0: [(0, "a"), (1, "f"), (2, "g")]}
    assert len([found for found in memory.list("topics/") if found.path.endswith(".parquet")]) == 6


@pytest.mark.usefixtures("topic")
def test_a_copy_that_takes_long_is_given_up_when_its_client_is_closed(
    memory: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sparklog.log.sequencing.foreign_source._PIECE_ROWS", 1)
    log = a_log(memory, clock)
    table = foreign_records(*(f"f{number}" for number in range(50)))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=1)
    add = foreign_file(log, table, partition=None)
    memory.put(object_path(log.table, add.path), bytes(sink.getvalue()))
    foreign_commit(log, replace(add, size_bytes=len(sink.getvalue())))
    client = inline()
    renew = Claim.renew

    def slowly(claim: Claim) -> None:
        renew(claim)
        clock.advance(1_000)
        client._closed.set()

    monkeypatch.setattr(Claim, "renew", slowly)
    began = clock.ticks_ms()
    with caplog.at_level(logging.INFO):
        client.start_if_needed(open_state(log))
    assert clock.ticks_ms() - began == 7_000
    assert "sequencing of topics/t was given up: the client was closed" in caplog.text
    assert contents(log) == {0: [(0, "a")]}
    assert sequencing_claim("topics/t") not in {found.path for found in memory.list("")}


@pytest.mark.usefixtures("topic")
def test_a_bad_file_is_read_again_after_a_minute_and_then_ever_less_often(
    memory: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    path = bad_file(memory, clock)
    store = CountingStore(memory)
    state, sequencing = seen_through(store, clock), inline()
    looks = []
    for minute in range(12 * 60):
        store.reset()
        for _ in range(3):
            sequencing.start_if_needed(state)
        if store.counts():
            looks.append(minute)
        clock.advance(MINUTE_MS)
    assert looks[:5] == [0, 1, 3, 7, 15]
    assert all(59 <= later - earlier <= 61 for earlier, later in pairwise(looks[6:]))
    assert caplog.text.count(f"can't sequence {path}") == len(looks)


@pytest.mark.usefixtures("topic")
def test_a_good_file_beside_a_bad_one_is_sequenced_without_reading_the_bad_one_again(
    memory: MemoryStore, clock: ManualClock
) -> None:
    path = bad_file(memory, clock)
    log = a_log(FaultyStore(memory), clock)
    store = FaultyStore(memory)
    writer = TopicWriter(a_log(store, clock), "t", checkpoints=no_checkpoints(), sequencing=inline())
    for number in range(5):
        unsequenced_file(log, f"f{number}")
        append(writer, f"own{number}")
        clock.advance(1_000)
    assert [call.path for call in store.calls].count(object_path(log.table, path)) == 1
    assert [value for _, value in contents(log)[0]][1::2] == [f"own{number}" for number in range(5)]
    assert [value for _, value in contents(log)[0]][2::2] == [f"f{number}" for number in range(5)]


@pytest.mark.usefixtures("topic")
def test_a_file_that_can_be_read_later_is_sequenced_then(memory: MemoryStore, clock: ManualClock) -> None:
    log = a_log(memory, clock)
    path = object_path(log.table, unsequenced_file(log, "f"))
    data = memory.read(path)
    memory.put(path, data[:-3])
    sequencing, state = inline(), open_state(log)
    sequencing.start_if_needed(state)
    memory.put(path, data)
    sequencing.start_if_needed(state)
    assert contents(log) == {0: [(0, "a")]}
    clock.advance(MINUTE_MS)
    sequencing.start_if_needed(state)
    assert contents(log) == {0: [(0, "a"), (1, "f")]}


@pytest.mark.usefixtures("topic")
def test_a_refusing_store_is_logged_and_tried_ever_less_often_whatever_is_added(
    memory: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer that may only read."""
    store = FaultyStore(memory, Fault(kind=FaultKind.READ_ONLY, times=None))
    unsequenced_file(a_log(memory, clock), "f")
    state, sequencing = seen_through(store, clock), inline()
    attempts = []
    for second in range(3_000):
        before = len(store.calls)
        state.unsequenced_version += 1  # more and more is added
        sequencing.start_if_needed(state)
        if len(store.calls) > before:
            attempts.append(second)
        clock.advance(1_000)
    assert attempts[:6] == [0, 1, 3, 7, 15, 31]
    assert all(299 <= later - earlier <= 301 for earlier, later in pairwise(attempts[9:]))
    assert len(attempts) > 12
    assert caplog.text.count("sequencing of topics/t failed; again in") == len(attempts)
    assert contents(a_log(memory, clock)) == {0: [(0, "a")]}


@pytest.mark.usefixtures("topic")
def test_a_number_of_files_that_are_no_longer_there_is_looked_for_once(memory: MemoryStore, clock: ManualClock) -> None:
    """A light client doesn't see that another engine deleted them: their number is approximate."""
    store = CountingStore(memory)
    log = a_log(memory, clock)
    writer = a_writer(a_log(store, clock))
    path = unsequenced_file(log, "f")
    foreign_commit(log, RemoveFile(path=path, deletion_ms=1))
    append(writer, "b")
    append(writer, "c")
    assert writer.head.unsequenced_count == 1
    sequencing = inline()
    sequencing.start_if_needed(writer.state)
    store.reset()
    for _ in range(10):
        clock.advance(MINUTE_MS)
        sequencing.start_if_needed(writer.state)
    assert store.counts() == {}
    unsequenced_file(log, "g")
    append(writer, "d")
    sequencing.start_if_needed(writer.state)
    assert contents(log)[0][-1] == (4, "g")
    assert open_state(log).head == load_state(log).head  # and the number is right again


@pytest.mark.usefixtures("topic")
def test_a_deleted_topic_is_left_alone(memory: MemoryStore, clock: ManualClock) -> None:
    log = a_log(memory, clock)
    unsequenced_file(log, "f")
    state = open_state(log)
    delete_topic(log, "t")
    version = open_state(log).position.version
    inline().start_if_needed(state)
    deleted = open_state(log)
    inline().start_if_needed(replace(deleted, head=replace(deleted.head, unsequenced_count=1)))
    assert open_state(log).position.version == version


class WaitingStore(WrappedStore):
    """Keeps the thread that sequences waiting at its first call until the gate opens."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.gate, self.reached = threading.Event(), threading.Event()

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if threading.current_thread().name == "sparklog-sequencing":
            self.reached.set()
            assert self.gate.wait(60)
        return call()


@pytest.mark.usefixtures("topic")
def test_an_append_does_not_wait_for_a_sequencing_but_closing_does(memory: MemoryStore, clock: ManualClock) -> None:
    store = WaitingStore(memory)
    log = a_log(store, clock)
    sequencing = Sequencing(max_delay_ms=0)
    writer = TopicWriter(log, "t", checkpoints=no_checkpoints(), sequencing=sequencing)
    unsequenced_file(log, "f")
    append(writer, "b")
    assert store.reached.wait(60)
    append(writer, "c")
    assert contents(log) == {0: [(0, "a"), (1, "b"), (2, "c")]}
    opener = threading.Timer(0.05, store.gate.set)
    opener.start()
    writer.close()
    assert contents(log)[0][-1] == (3, "f")
    opener.join()
    sequencing.start_if_needed(open_state(log))
    writer.close()


@pytest.mark.usefixtures("topic")
def test_closing_does_not_wait_for_what_has_not_begun(memory: MemoryStore, clock: ManualClock) -> None:
    log = a_log(memory, clock)
    unsequenced_file(log, "f")
    sequencing = Sequencing(max_delay_ms=10**9)
    sequencing.start_if_needed(open_state(log))
    sequencing.close(timeout_ms=60_000)
    assert not _threads()
    assert contents(log) == {0: [(0, "a")]}
    sequencing.start_if_needed(open_state(log))
    assert not _threads()


@pytest.mark.usefixtures("topic")
def test_where_no_thread_can_be_started_the_append_succeeds(
    memory: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = a_log(memory, clock)
    writer = TopicWriter(log, "t", checkpoints=no_checkpoints(), sequencing=Sequencing(max_delay_ms=0))
    unsequenced_file(log, "f")
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):

        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", refuse)
        append(writer, "b")
    assert "sequencing of topics/t can't be started: thread sparklog-sequencing can't be started" in caplog.text
    append(writer, "c")
    writer.close()
    assert contents(log)[0][-1] == (3, "f")


# The clients


def foreign_topic(*values: str) -> Cluster:
    """A topic with nothing but rows of another engine."""
    cluster = consumers.with_topic(consumers.a_cluster(), partitions=2)
    log = cluster.topic_log("t")
    foreign_commit(log, foreign_file(log, pa.table({"value": [value.encode() for value in values]}), partition=None))
    return cluster


@pytest.mark.slow
def test_a_consumer_gets_what_only_another_engine_wrote() -> None:
    with consumers.a_consumer(foreign_topic("a", "b", "c"), "t") as consumer:
        assert consumers.text(consumers.take(consumer, 3)) == "abc"


@pytest.mark.slow
def test_a_consumer_gets_what_another_engine_writes_while_it_reads() -> None:
    cluster = foreign_topic("a")
    with consumers.a_consumer(cluster, "t") as consumer:
        assert consumers.text(consumers.take(consumer, 1)) == "a"
        log = cluster.topic_log("t")
        for value in ("b", "c"):
            foreign_commit(log, foreign_file(log, pa.table({"value": [value.encode()]}), partition=None))
            assert consumers.text(consumers.take(consumer, 1)) == value


@pytest.mark.slow
def test_a_consumer_that_may_only_read_reads_what_has_offsets(caplog: pytest.LogCaptureFixture) -> None:
    cluster = foreign_topic("not yet")
    consumers.send(cluster, "ab")
    inner = cluster.store
    assert isinstance(inner, RetryingStore)
    read_only = consumers.a_cluster(FaultyStore(inner, Fault(kind=FaultKind.READ_ONLY, times=None)))
    with consumers.a_consumer(read_only, "t") as consumer:
        assert consumers.text(consumers.take(consumer, 2)) == "ab"
        consumers.until(lambda: consumer.poll(timeout_ms=100) == {} and "sequencing of topics/t failed" in caplog.text)


def test_a_producer_sequences_what_it_meets() -> None:
    cluster = foreign_topic("a", "b")
    with Producer(cluster=cluster) as producer:
        producer.send("t", b"own").get(60)
        log = cluster.topic_log("t")
        for _ in range(600):  # it waits for up to a second first
            if not open_state(log).head.unsequenced_count:
                break
            threading.Event().wait(0.1)
    assert sorted(value for rows in contents(log).values() for _, value in rows) == ["a", "b", "own"]


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    _older.clear()
    _older.update(_threads())  # of others' tests
    yield
    assert not _threads()


_older: set[threading.Thread] = set()


def _threads() -> set[threading.Thread]:
    """Those that sequence for this test."""
    return {thread for thread in threading.enumerate() if thread.name == "sparklog-sequencing"} - _older
