"""What the processes of a round do, with sparklog's own clients, recorded."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from enum import Enum
from typing import Any
from unittest import mock

from proof.torture.life import Life, identify
from proof.torture.plan import (
    LOOP_GROUP,
    LOOP_INPUT,
    READ_GROUP,
    SESSION_MS,
    TOPICS,
    TRANSACTION_TIMEOUT_MS,
    Planted,
    Role,
)
from sparklog.admin import Admin
from sparklog.compaction import OptimizePolicy, maintain
from sparklog.consumer import Consumer, ConsumerRebalanceListener
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.errors import (
    InvalidPartitionsError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    ProducerFencedError,
    SparklogError,
    StoreError,
    TransactionAbortableError,
)
from sparklog.log.announced import group
from sparklog.model import ConsumerRecord, OffsetAndMetadata, TopicPartition
from sparklog.producer import Producer
from sparklog.producer.future import FutureRecordMetadata
from sparklog.testing.history import Outcome, ProducerRecorder, RecordingConsumer, RecordingProducer, Source

__all__ = ["ROLES", "between_steps", "keep_in_shape"]

Found = Mapping[TopicPartition, Sequence[ConsumerRecord]]

_PARTITIONS = {topic.name: topic.partitions for topic in TOPICS}
_UNACKNOWLEDGED = 60
_CLOSE_S = 10.0
_TRIES = 8
_SELF_KILLS = 0.3
"""How many of the moments that show a planted fault end with the process, see ``Planted.SELF_KILL``."""


# Producers.


def _producer(life: Life, *, transactional_id: str | None = None) -> RecordingProducer:
    draw = life.draw
    acks = draw.choice(["all", 1])
    settings: dict[str, Any] = {
        "acks": acks,
        "linger_ms": draw.choice([0, 2, 10]),
        "request_timeout_ms": 2_000,
        "delivery_timeout_ms": draw.choice([4_000, 20_000]),
        "max_block_ms": draw.choice([3_000, 10_000]),
    }
    if life.told.is_sharing and transactional_id is None:
        settings["group_commit"] = True
    if transactional_id is not None:
        settings |= {"transactional_id": transactional_id, "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS}
    recorder = life.recorder.producer(life.client_name("producer"), transactional_id=transactional_id)
    producer = Producer(life.cluster, **settings)
    if life.told.role is Role.TRANSACT and Planted.EARLY_ACKNOWLEDGEMENT in life.told.planted:
        return _EarlyProducer(life, producer, recorder)
    return RecordingProducer(producer, recorder, identify=identify)


class _EarlyProducer(RecordingProducer):
    """Planted: reports a commit before it asks for it."""

    def __init__(self, life: Life, producer: Producer, recorder: ProducerRecorder) -> None:
        super().__init__(producer, recorder, identify=identify)
        self._life = life

    def commit_transaction(self) -> None:
        self.recorder.ending(is_commit=True)
        self.recorder.ended(Outcome.COMMITTED)
        between_steps(self._life)
        self.producer.commit_transaction()


def between_steps(life: Life) -> None:
    """Spend the moment at which a planted fault shows, if the process is killed in it."""
    if Planted.SELF_KILL not in life.told.planted:
        time.sleep(0.5)
    elif life.draw.random() < _SELF_KILLS:
        os.kill(os.getpid(), signal.SIGKILL)


def _send(
    life: Life, producer: RecordingProducer, topic: str, *, source: Source | None = None
) -> Sequence[FutureRecordMetadata]:
    """A record; on the compacted topic sometimes two, of which the second deletes the key of the first."""
    draw, name = life.draw, life.value()
    fields: dict[str, object] = {"partition": draw.randrange(_PARTITIONS[topic])} if draw.random() < 0.5 else {}
    if topic == "latest" and draw.random() < 0.1:
        values: list[bytes | None] = [name.encode(), None]
        return [_heard(life, producer.send(topic, value, f"gone {name}".encode(), partition=0)) for value in values]
    is_keyed = topic == "latest" or draw.random() < 0.5
    key = b"k%d" % draw.randrange(20) if is_keyed else None
    return [_heard(life, producer.send(topic, name.encode(), key, source=source, **fields))]


def _heard(life: Life, future: FutureRecordMetadata) -> FutureRecordMetadata:
    """The same, of which the life hears if its storage was exchanged."""
    if life.told.place.is_exchanged:
        future.add_errback(life.hear)
    return future


@contextmanager
def _sharing(life: Life) -> Iterator[None]:
    """Within: group commit is on, whether any race is lost or not; decisions to include others are noted."""
    take = vars(group)["takeable"]

    def takeable(*given: Any, **kwargs: Any) -> Any:
        taken = take(*given, **kwargs)
        if taken:
            life.note("included")
        return taken

    with mock.patch.object(group, "is_on", return_value=True), mock.patch.object(group, "takeable", takeable):
        yield


def produce(life: Life) -> None:
    """Send, and now and then wait until all is stored."""
    with _sharing(life) if life.told.is_sharing else nullcontext():
        _produce(life)


def _produce(life: Life) -> None:
    draw, producer = life.draw, _producer(life)
    topics = ["in", "in", "in", "latest", "brief"] if life.told.is_sharing else ["in", "in", "latest", "brief"]
    outstanding: deque[FutureRecordMetadata] = deque()

    def some() -> None:
        for _ in range(draw.randint(1, 15)):
            outstanding.extend(_send(life, producer, draw.choice(topics)))

    while life.goes_on():
        life.attempt("send", some)
        if draw.random() < 0.1:
            life.attempt("flush", lambda: producer.producer.flush(5))
        while len(outstanding) > _UNACKNOWLEDGED:
            life.attempt("acknowledge", lambda: outstanding.popleft().get(30))
        life.rest(draw.expovariate(1 / 60))
    producer.close(_CLOSE_S)


def transact(life: Life) -> None:
    """Transactions over several topics, committed or aborted."""
    draw, producer = life.draw, _begin_epoch(life)
    if producer is None:
        return

    def fill() -> None:
        for _ in range(draw.choice([0, 1, 3, 8])):
            _send(life, producer, draw.choice(["in", "out", "latest"]))
            if draw.random() < 0.2:
                life.rest(draw.expovariate(1 / 50))
        if draw.random() < 0.03:
            life.rest(1.5 * TRANSACTION_TIMEOUT_MS)

    while life.goes_on() and _transaction(life, producer, fill) is not _End.OVER:
        life.rest(draw.expovariate(1 / 100))
    producer.close(_CLOSE_S)


def _begin_epoch(life: Life) -> RecordingProducer | None:
    """A transactional producer, under the id that is the job's whatever its life; None: it didn't come to be."""
    producer = _producer(life, transactional_id=life.told.job)
    for _ in range(_TRIES):
        if life.goes_on() and life.attempt("init_transactions", producer.init_transactions):
            return producer
    producer.close(_CLOSE_S)
    return None


class _End(Enum):
    """How a transaction ended for the loop around it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OVER = "nobody knows, or this producer can't go on"


def _transaction(life: Life, producer: RecordingProducer, fill: Callable[[], object]) -> _End:
    if not life.attempt("begin", producer.begin_transaction):
        return _End.OVER
    is_commit = life.draw.random() < 0.85
    try:
        fill()
    except ProducerFencedError:
        life.note("fenced")
        return _End.OVER
    except SparklogError as error:
        life.check_error("fill", error)
        is_commit = False
    for _ in range(_TRIES):
        try:
            if is_commit:
                producer.commit_transaction()
            elif producer.recorder.transaction is None:  # it is known to be aborted already, but for the producer
                producer.producer.abort_transaction()
            else:
                producer.abort_transaction()
            return _End.COMMITTED if is_commit else _End.ABORTED
        except ProducerFencedError:
            life.note("fenced")
            return _End.OVER
        except TransactionAbortableError as error:
            life.check_error("commit", error)
            is_commit = False
        except InvalidTxnStateError as error:  # what can't be aborted any more: its commit's answer was lost
            life.check_error("abort", error)
            is_commit = True
        except SparklogError as error:
            life.check_error("commit" if is_commit else "abort", error)
            if not (error.retriable or isinstance(error, (KafkaTimeoutError, StoreError))):
                return _End.OVER
    return _End.OVER


# Consumers.


class _ToTheEnd(ConsumerRebalanceListener):
    """Planted: goes to the end, and nobody is told."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._consumer.seek_to_end(*assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Nothing to do."""


def _consumer(life: Life, group: str, topics: Sequence[str]) -> RecordingConsumer:
    draw = life.draw
    consumer = Consumer(
        cluster=life.cluster,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=SESSION_MS // 5,
        max_poll_interval_ms=draw.choice([4_000, 300_000]),
        default_api_timeout_ms=draw.choice([3_000, 10_000]),
    )
    recorder = life.recorder.consumer(life.client_name("consumer"), group=group, from_start=True)
    recording = RecordingConsumer(consumer, recorder, identify=identify)
    planted = Planted.RESET in life.told.planted and group == READ_GROUP and not life.is_final
    recording.subscribe(topics, _ToTheEnd(consumer) if planted else None)
    return recording


def _poll(life: Life, consumer: RecordingConsumer) -> Found:
    try:
        return consumer.poll(200, life.draw.choice([5, 50, 500]))
    except SparklogError as error:
        life.check_error("poll", error)
        return {}


def read(life: Life) -> None:
    """Read everything as a member of a group, and commit."""
    consumer = _consumer(life, READ_GROUP, [topic.name for topic in TOPICS])
    while life.goes_on():
        found = _poll(life, consumer)
        if life.draw.random() < 0.6:
            life.attempt("commit offsets", consumer.commit)
        if life.is_final and not found and _is_at_the_end(life, consumer):
            break
    life.attempt("close", lambda: consumer.close(_CLOSE_S * 1_000))


def loop(life: Life) -> None:
    """Consume, transform, produce: each input has one output, committed with the input's offset."""
    consumer, producer = _consumer(life, LOOP_GROUP, [LOOP_INPUT]), _begin_epoch(life)
    while producer is not None and life.goes_on():
        found = _poll(life, consumer)
        if not found:
            if life.is_final and _is_at_the_end(life, consumer):
                break
            continue
        ended = _transform(life, consumer, producer, found)
        if ended is _End.OVER or (ended is _End.ABORTED and not _go_back(life, consumer)):
            break
    if producer is not None:
        producer.close(_CLOSE_S)
    life.attempt("close", lambda: consumer.close(_CLOSE_S * 1_000))


def _transform(life: Life, consumer: RecordingConsumer, producer: RecordingProducer, found: Found) -> _End:
    offsets = {partition: OffsetAndMetadata(records[-1].offset + 1) for partition, records in found.items()}

    def fill() -> None:
        for partition, records in found.items():
            for record in records:
                _send(life, producer, "out", source=Source(LOOP_GROUP, partition, record.offset))
        if life.draw.random() < 0.03:
            life.rest(1.5 * TRANSACTION_TIMEOUT_MS)
        if Planted.LOOSE_OFFSETS in life.told.planted:
            consumer.commit(offsets)
            between_steps(life)
        else:
            producer.send_offsets_to_transaction(offsets, consumer.consumer.group_metadata())

    return _transaction(life, producer, fill)


def _go_back(life: Life, consumer: RecordingConsumer) -> bool:
    """To what is committed; False: that can't be told."""
    try:
        consumer.seek_to_committed()
    except SparklogError as error:
        life.check_error("committed", error)
        return False
    return True


def _is_at_the_end(life: Life, consumer: RecordingConsumer) -> bool:
    """After a last commit, of all partitions; a final life has ended then.

    Those of a member that was killed are still its own until its session is over.
    """
    found: list[bool] = []
    life.attempt("commit offsets", consumer.commit)
    life.attempt("look for the end", lambda: found.append(_has_all(consumer) and consumer.note_caught_up()))
    life.has_ended = found == [True]
    return life.has_ended


def _has_all(consumer: RecordingConsumer) -> bool:
    topics = consumer.consumer.subscription() or ()
    wanted = sum(len(consumer.consumer.partitions_for_topic(topic) or ()) for topic in topics)
    return len(consumer.consumer.assignment()) == wanted > 0


# Maintenance.

_SMALL = OptimizePolicy(target_bytes=100_000, min_files=3, growth=1.5)


def keep_in_shape(life: Life) -> None:
    """All that ``sparklog maintain`` does, once, and the cleaning of logs whose entries are a few seconds old."""
    report = maintain(life.cluster, policy=_SMALL, timeout_ms=10_000)
    life.note("maintenance")
    for topic in report.topics:
        if topic.retention is not None and topic.retention.removed_files:
            life.note("retention")
        if topic.compact is not None and topic.compact.partitions:
            life.note("compaction")
        if topic.optimize is not None and topic.optimize.ranges:
            life.note("merge")
        for error in topic.errors.values():
            life.check_error("maintain", error)
    for recovered in report.transactions:
        if recovered.error is not None:
            life.check_error("recover", recovered.error)
        elif recovered.action.value != "nothing":
            life.note(f"recovered: {recovered.action.value}")
    for error in report.errors.values():
        life.check_error("maintain", error)
    for name in dict.fromkeys([*_PARTITIONS, *(topic.topic for topic in report.topics if not topic.deleted)]):
        _clean(life, name)


def _clean(life: Life, name: str) -> None:
    log = life.cluster.topic_log(name)
    if write_checkpoint(log) is not None:
        life.note("checkpoint")
    cleaned = clean_log(log, retention_ms=life.told.place.log_retention_ms)
    if cleaned is not None and cleaned.deleted_count:
        life.note("log cleaning")


def keep_maintaining(life: Life) -> None:
    """Again and again; and the inputs get one partition more."""
    draw = life.draw
    while life.goes_on():
        life.attempt("maintain", lambda: keep_in_shape(life))
        if draw.random() < 0.1:
            life.attempt("clean", lambda: _clean(life, draw.choice(list(_PARTITIONS))))
        if life.told.number == 1 and draw.random() < 0.2:
            life.attempt("grow", lambda: _grow(life))
        life.rest(draw.expovariate(1 / 300))


def _grow(life: Life) -> None:
    try:
        Admin(life.cluster).create_partitions({"in": _PARTITIONS["in"] + 1})
        life.note("growth")
    except InvalidPartitionsError:
        pass  # it was done before


ROLES: Mapping[Role, Callable[[Life], None]] = {
    Role.PRODUCE: produce,
    Role.TRANSACT: transact,
    Role.LOOP: loop,
    Role.READ: read,
    Role.MAINTAIN: keep_maintaining,
}
