"""Ctrl-C at any moment of a producer's calls: no lock is held afterwards, no record is there in part or twice."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
import pytest

from sparklog._native import CORE
from sparklog.errors import IllegalStateError, InvalidTxnStateError, KafkaTimeoutError
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.producer.batch import Batch, TableBatch
from sparklog.producer.buffer import Buffer
from sparklog.producer.future import FutureRecordMetadata
from sparklog.producer.outcome import Outcome
from sparklog.producer.record_memory import RECORD_OVERHEAD_BYTES
from sparklog.producer.topic_queue import TopicQueue
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.interrupting import POINTS, interrupt, numbers
from tests.producer.support import (
    LONG_S,
    HeldStore,
    a_producer,
    a_topic,
    assert_empty,
    eventually,
    through,
    values,
)

Sent = list[tuple[bytes, FutureRecordMetadata]]

STRIDE = {"instruction": 3, "call": 1}
"""Every so many points, where a call has hundreds."""

NOW = ManualClock().deadline_in(0)
NEVER = NOW.clock.deadline_in(None)


class Announced:
    """In place of a condition: counts how often the sender was notified."""

    def __init__(self) -> None:
        self.count = 0

    def notify(self) -> None:
        self.count += 1

    def notify_all(self) -> None:
        self.count += 1


class AQueue:
    """A topic's queue without its threads, and what was sent to it."""

    def __init__(self, *, batch_size: int = 1_000) -> None:
        self.buffer = Buffer(1_000_000)
        self.queue = TopicQueue("t", self.buffer, ManualClock(), batch_size=batch_size, linger_ms=10, max_block_ms=0)
        self.queue.max_record_bytes = 10**6
        self.announced = Announced()
        self.queue.changed = self.announced  # type: ignore[assignment]
        self.sent: Sent = []

    def send(self, value: bytes) -> None:
        future = self.queue.add_plain(None, value) or self.queue.add(None, value, len(value) + RECORD_OVERHEAD_BYTES)
        self.sent.append((value, future))

    def take(self) -> list[Batch]:
        """As the sender does."""
        taken = []
        with self.buffer.lock:
            while self.queue.has_records:
                taken += self.queue.take_batches()
        return taken

    def check_whole(self, *, more: Sequence[Sequence[bytes]] = ((),)) -> None:
        """Every record that was sent is there once, and perhaps some ``more``; all room is given back."""
        assert not self.buffer.lock.locked()
        self.send(b"after")
        used_bytes = self.buffer.used_bytes
        batches = self.take()
        assert used_bytes == sum(batch.size_bytes for batch in batches) == self.buffer.used_bytes
        found = {batch: batch.take_table()["value"].to_pylist() for batch in batches}
        for value, future in self.sent:
            assert found[future._batch][future._index] == value
        there = sorted(value for column in found.values() for value in column)
        assert there in [sorted([*(value for value, _ in self.sent), *extra]) for extra in more]
        for batch in batches:
            assert not self.queue.flush(NOW)
            batch.settle(Outcome())
            self.queue.finish_batch(batch)
        assert self.queue.flush(NOW)
        assert self.buffer.used_bytes == 0
        with self.buffer.lock:
            assert self.queue.held_bytes() == 0


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    ("before", "is_announced"),
    [
        pytest.param([], True, id="beginning a batch"),
        pytest.param([b"1"], False, id="in a batch"),
        pytest.param([b"1" * (990 - RECORD_OVERHEAD_BYTES)], True, id="filling a batch"),
        pytest.param([b"1" * (2_012 - RECORD_OVERHEAD_BYTES)], True, id="behind a batch that takes no more"),
    ],
)
@pytest.mark.parametrize("is_plain", [True, False])
def test_a_send_that_is_interrupted_anywhere_adds_a_whole_record_or_none(
    before: list[bytes], is_announced: bool, is_plain: bool, point: str
) -> None:
    for at in numbers():
        one = AQueue()
        one.queue._max_batch_bytes = 2_000
        for value in before:
            one.send(value)
        one.announced.count = 0

        def send(queue: TopicQueue = one.queue) -> None:
            if is_plain:
                plain = b"interrupted"
                queue.add_plain(None, plain) or queue.add(None, plain, len(plain) + RECORD_OVERHEAD_BYTES)
            else:
                queue.add(None, b"interrupted", 200, (5, [("h", b"1")], 2, 7, None))

        stride = 1 if before == [b"1"] else STRIDE[point]
        was_reached = interrupt(send, at=stride * at, point=point)
        is_there = sum(batch.count for batch in one.queue.unfinished()) > len(before)
        assert is_there or was_reached
        if is_there and is_announced:
            assert one.announced.count, "the sender would sleep on"
        one.check_whole(more=[[b"interrupted"]] if is_there else [[]])
        if not was_reached:
            break
    assert at > 5 or (is_plain and CORE is not None)  # the compiled core adds such a record in one step


def test_what_an_interrupted_send_was_given_beside_the_value_isnt_the_next_records() -> None:
    for at in numbers():
        one = AQueue()
        one.send(b"1")
        send = partial(one.queue.add, None, b"interrupted", 200, (5, [("h", b"1")], 2, 7, None))
        was_reached = interrupt(send, at=at, point="instruction")
        one.send(b"2")
        [batch] = one.take()
        rows = batch.take_table().select(["value", "headers", "partition"]).to_pylist()
        plain = [row for row in rows if row["value"] != b"interrupted"]
        assert plain == [{"value": value, "headers": None, "partition": None} for value in (b"1", b"2")]
        if not was_reached:
            break


@pytest.mark.parametrize("point", POINTS)
def test_a_table_whose_sending_is_interrupted_anywhere_is_added_whole_or_not_at_all(point: str) -> None:
    for at in numbers():
        one = AQueue()
        one.send(b"1")
        tables = [
            TableBatch("t", pa.table({"value": [value]}), created_ticks_ms=0, size_bytes=10) for value in (b"a", b"b")
        ]
        was_reached = interrupt(partial(one.queue.add_tables, tables), at=STRIDE[point] * at, point=point)
        one.check_whole(more=([], [b"a", b"b"]) if was_reached else ([b"a", b"b"],))
        if not was_reached:
            break
    assert at > 5


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("what", ["get", "flush", "begin_flush", "add_callback", "wait for room"])
def test_a_wait_that_is_interrupted_anywhere_holds_up_nobody(what: str, point: str) -> None:
    for at in numbers():
        one = AQueue()
        one.send(b"1")
        calls: dict[str, Callable[[], object]] = {
            "get": partial(timing_out, partial(one.sent[0][1].get, 0)),
            "flush": partial(one.queue.flush, NOW),
            "begin_flush": one.queue.begin_flush,
            "add_callback": partial(one.sent[0][1].add_callback, len),
            "wait for room": partial(timing_out, partial(one.queue.add, None, b"x", 10**6)),
        }
        was_reached = interrupt(calls[what], at=STRIDE[point] * at, point=point)
        one.check_whole()
        assert one.buffer.waiting_count == 0
        if not was_reached:
            break
    assert at > 2


@pytest.mark.parametrize("what", ["flush", "wait for room"])
def test_a_batch_that_an_interrupted_send_left_empty_holds_up_no_other_thread(what: str) -> None:
    """Other threads than the main one look again only when they are notified."""
    one = AQueue()
    one.queue._max_block_ms = 60_000
    with one.buffer.lock:
        batch = one.queue._batch_with_room(200)
    assert batch is not None
    batch.size_bytes += 10**6  # of the record that didn't come to be there
    waiting = one.queue._finished if what == "flush" else one.buffer._room
    wait = partial(one.queue.flush, NEVER) if what == "flush" else partial(one.queue.add, None, b"x", 200)
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    eventually(lambda: waiting.waiting_count == 1)
    with one.buffer.lock:
        assert one.queue.take_batches() == []
    thread.join(LONG_S)
    assert not thread.is_alive()


def timing_out(call: Callable[[], object]) -> None:
    with contextlib.suppress(KafkaTimeoutError):
        call()


# Whole producers, and the signal itself.


@contextlib.contextmanager
def interrupted(when: Callable[[], object], *, then: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Within, the main thread is interrupted once ``when`` has ended, in another thread, which then does ``then``."""

    def work() -> None:
        when()
        is_over.wait(0.02)  # until the main thread sleeps, most likely
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        is_over.wait(LONG_S)
        then()

    is_over = threading.Event()
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - raised by the first, or a moment after it
        yield
        is_over.wait(LONG_S)
    is_over.set()
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_a_send_that_waits_for_room_may_be_interrupted_and_others_go_on() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    store = HeldStore(memory)
    with a_producer(through(store, cluster), buffer_memory=500) as producer:
        store.hold("create")
        first = producer.send("t", b"1" * 300)
        with interrupted(lambda: eventually(lambda: producer._buffer.waiting_count), then=store.let_go):
            producer.send("t", b"2" * 300)
        assert producer._buffer.waiting_count == 0
        third = producer.send("t", b"3" * 300)
        assert (first.get(LONG_S).offset, third.get(LONG_S).offset) == (0, 1)
        producer.flush(LONG_S)
        assert_empty(producer)
    assert values(cluster) == [b"1" * 300, b"3" * 300]


def test_partitions_for_may_be_interrupted_and_commits_go_on() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    store = HeldStore(memory)
    with a_producer(through(store, cluster)) as producer:
        producer.partitions_for("t")
        store.hold("get")
        with interrupted(store.wait_until_reached, then=store.let_go):
            producer.partitions_for("t")
        assert producer.send("t", b"1").get(LONG_S).offset == 0


def test_the_first_send_to_a_topic_may_be_interrupted_and_repeated() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    store = HeldStore(memory)
    before = threading.active_count()
    with a_producer(through(store, cluster)) as producer:
        store.hold("get")
        with interrupted(store.wait_until_reached, then=store.let_go):
            producer.send("t", b"1")
        assert producer.send("t", b"2").get(LONG_S).offset == 0
        assert len(producer._pipelines.all()) == 1
    eventually(lambda: threading.active_count() <= before)


def test_close_may_be_interrupted_and_called_again() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    store = HeldStore(memory)
    with a_producer(through(store, cluster)) as producer:
        store.hold("create")
        future = producer.send("t", b"1")
        with interrupted(store.wait_until_reached):
            producer.close()
        assert not future.is_done
        store.let_go()
        producer.close(LONG_S)
        assert future.succeeded()
    assert values(cluster) == [b"1"]


GROUP = ConsumerGroupMetadata("g", -1, "", None)


def test_a_commit_that_is_interrupted_goes_on_and_tells_the_same_call_how_it_ended() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    store = HeldStore(memory)
    with a_producer(through(store, cluster), transactional_id="x", acks="all") as producer:
        producer.init_transactions()
        for number, value in enumerate((b"1", b"2")):
            producer.begin_transaction()
            producer.send("t", value)
            producer.send_offsets_to_transaction({TopicPartition("t", 0): OffsetAndMetadata(number)}, GROUP)
            store.hold("create")
            with interrupted(store.wait_until_reached):
                producer.commit_transaction()
            with pytest.raises(InvalidTxnStateError, match="commit_transaction was interrupted; call it again"):
                producer.abort_transaction()
            store.let_go()
            producer.commit_transaction()
            with pytest.raises(IllegalStateError):
                producer.commit_transaction()
        assert values(cluster) == [b"1", b"2"]


@pytest.mark.parametrize("what", ["send_offsets_to_transaction", "abort_transaction"])
def test_a_transaction_can_be_aborted_after_an_interrupt_of_another_call(what: str) -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    store = HeldStore(memory)
    with a_producer(through(store, cluster), transactional_id="x", acks="all") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"1")
        producer.flush(LONG_S)
        store.hold("create")
        with interrupted(store.wait_until_reached, then=store.let_go):
            if what == "abort_transaction":
                producer.abort_transaction()
            else:
                producer.send_offsets_to_transaction({TopicPartition("t", 0): OffsetAndMetadata(5)}, GROUP)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("t", b"2")
        producer.commit_transaction()
        assert values(cluster) == [b"2"]


@pytest.mark.parametrize("point", POINTS)
def test_begin_transaction_that_is_interrupted_anywhere_has_begun_one_or_not(point: str) -> None:
    with a_producer(a_topic(), transactional_id="x", acks="all") as producer:
        producer.init_transactions()
        transactions = producer._transactions
        assert transactions is not None
        for at in numbers():
            was_reached = interrupt(producer.begin_transaction, at=STRIDE[point] * at, point=point)
            if not transactions.is_open:
                producer.begin_transaction()
            transactions.check_send()
            transactions._end()  # as if it had been aborted
            if not was_reached:
                break
        producer.begin_transaction()
        producer.send("t", b"1")
        producer.commit_transaction()
