"""Processes that send: records one by one, or transactions."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

from proof.simulation.cluster.life import Life
from sparklog.errors import (
    InvalidTxnStateError,
    KafkaTimeoutError,
    ProducerFencedError,
    SparklogError,
    StoreError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from sparklog.producer import Producer
from sparklog.testing.history import RecordingProducer, Source

__all__ = ["End", "a_producer", "begin_epoch", "hasty", "produce", "send_one", "send_some", "transact", "transaction"]


def a_producer(life: Life, *, transactional_id: str | None = None, acks: int | str | None = None) -> RecordingProducer:
    """A client with settings as they come."""
    draw = life.draw
    request_ms = draw.choice([500, 5_000])
    settings: dict[str, Any] = {
        "acks": draw.choice(["all", 1]) if transactional_id is None else "all",
        "linger_ms": draw.choice([0, 0, 5, 50]),
        "request_timeout_ms": request_ms,
        "delivery_timeout_ms": draw.choice([2 * request_ms, 30_000, 120_000]),
        "max_block_ms": draw.choice([3_000, 20_000, 60_000]),
        "retry_backoff_ms": draw.choice([10, 100]),
    }
    if acks is not None or life.play.power is not None:
        settings["acks"] = acks or "all"
    if settings["acks"] == 1:
        settings["enable_idempotence"] = False
    if transactional_id is not None:
        settings |= {"transactional_id": transactional_id, "transaction_timeout_ms": life.play.transaction_timeout_ms}
    producer = life.keep(Producer(life.cluster, **settings))
    name = life.client_name("producer")
    recorder = life.recorder.producer(name, transactional_id=transactional_id)
    return RecordingProducer(producer, recorder)


def send_one(
    life: Life, producer: RecordingProducer, *, source: Source | None = None, topic: str | None = None
) -> None:
    """Send a record that no other equals, to any topic unless one is given."""
    draw = life.draw
    plan = life.play.topic(topic or draw.choice(life.play.topic_names))
    value = life.value()
    fields: dict[str, Any] = {}
    key: bytes | None = draw.choice([b"k0", b"k1", b"k2"])
    if not plan.is_compacted and draw.random() < 0.5:
        key = None
    if draw.random() < 0.5:
        fields["partition"] = draw.randrange(plan.partitions)
    if plan.is_recreated:  # nothing is promised of it
        future = producer.producer.send(plan.name, value.encode(), key, **fields)
    else:
        future = producer.send(plan.name, value.encode(), key, source=source, **fields)
    future.add_errback(partial(_check_told, life, producer))


def _check_told(life: Life, producer: RecordingProducer, error: SparklogError) -> None:
    """What a future ended with, while there was somebody to be told."""
    transactional_id = producer.recorder.transactional_id
    if life.process.is_dead or (transactional_id is not None and isinstance(error, TransactionAbortedError)):
        return
    if transactional_id is not None and isinstance(error, ProducerFencedError):
        life.play.watch.check_fenced(life.process.name, transactional_id)
    else:
        life.check("sent", error)


def produce(life: Life) -> None:
    """Send, and now and then wait until all is stored."""
    draw = life.draw
    producers = [a_producer(life) for _ in range(2 if life.play.is_accompanied else 1)]
    short_s = 60 if life.play.is_fair else 0.5  # too short for some calls that wait for each other
    while life.goes_on():
        for _ in range(draw.choice([1, 1, 2, 3, 6])):
            for producer in producers:
                life.attempt("send", partial(send_one, life, producer))
            if draw.random() < 0.2:
                life.rest(draw.expovariate(1 / 20))
        if draw.random() < 0.6:
            life.attempt("flush", lambda: producers[-1].producer.flush(draw.choice([short_s, 60, 300])))
        life.gap()
        if life.settings.get("is_slow"):
            life.rest(draw.uniform(0, 8_000))
    for producer in producers:
        producer.close(draw.choice([None, 30.0]))


def hasty(life: Life) -> None:
    """Send with ``acks=1`` where the power may fail: nobody knows what will be left."""
    producer = a_producer(life, acks=1)
    while life.goes_on():
        plan = life.play.topic(life.draw.choice(life.play.topic_names))
        value, partition = life.value(), life.draw.randrange(plan.partitions)
        if not plan.is_recreated:
            producer.recorder.send(value, plan.name, partition)
            life.attempt(
                "send", partial(producer.producer.send, plan.name, value.encode(), b"hasty", partition=partition)
            )
        life.gap()
    producer.close(30.0)


def transact(life: Life) -> None:
    """Transactions over all topics, committed or aborted."""
    while life.goes_on(counts=False):
        producer = begin_epoch(life, str(life.settings["id"]))
        if producer is None:
            return
        while life.goes_on() and transaction(life, producer, partial(send_some, life, producer)) is not End.OVER:
            life.gap()
        life.attempt("close", partial(producer.close, 20.0))
        life.gap()


def begin_epoch(life: Life, transactional_id: str) -> RecordingProducer | None:
    """A producer that holds the id; None where that can't be."""
    for _ in range(5):
        producer = a_producer(life, transactional_id=transactional_id)
        for _ in range(4):
            if not life.goes_on(counts=False) and life.job.plan.role != "night":
                return None
            if life.attempt("init_transactions", producer.init_transactions):
                life.world.counts["epochs"] += 1
                return producer
            life.gap()
        producer.close(5.0)
    return None


def send_some(life: Life, producer: RecordingProducer) -> None:
    """What a transaction is filled with; it may take longer than it is allowed to."""
    for _ in range(life.draw.choice([0, 1, 2, 3, 5])):
        send_one(life, producer)
        if life.draw.random() < 0.2:
            life.rest(life.draw.expovariate(1 / 50))
    if life.draw.random() < 0.1:
        life.rest(life.draw.choice([2_000.0, 70_000.0, 200_000.0]))


class End(Enum):
    """How a transaction ended for the loop around it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OVER = "nobody knows, or this producer can't go on"


def transaction(life: Life, producer: RecordingProducer, fill: Callable[[], object]) -> End:
    """One transaction."""
    draw, counts = life.draw, life.world.counts
    try:
        producer.begin_transaction()
    except ProducerFencedError:
        return _fenced(life, producer)
    except SparklogError as error:
        life.check("begin", error)
        return End.OVER
    is_commit = draw.random() < 0.75
    try:
        fill()
    except ProducerFencedError:
        return _fenced(life, producer)
    except SparklogError as error:
        life.check("fill", error)
        is_commit = False
    for _ in range(8):
        try:
            if is_commit:
                producer.commit_transaction()
                counts["committed"] += 1
            elif producer.recorder.transaction is None:  # it is known to be aborted already, but for the producer
                producer.producer.abort_transaction()
            else:
                producer.abort_transaction()
                counts["aborted"] += 1
            return End.COMMITTED if is_commit else End.ABORTED
        except ProducerFencedError:
            return _fenced(life, producer)
        except TransactionAbortableError as error:
            life.check("commit", error)
            counts["forced aborts"] += 1
            is_commit = False
        except InvalidTxnStateError as error:
            life.check("abort", error)
            is_commit = True
        except SparklogError as error:
            life.check("commit" if is_commit else "abort", error)
            if not (error.retriable or isinstance(error, (KafkaTimeoutError, StoreError))):
                return End.OVER
            if draw.random() < 0.3:
                life.gap()
            if draw.random() < 0.3:
                topic = draw.choice(life.play.topic_names)
                life.attempt("partitions_for", partial(producer.producer.partitions_for, topic))
    counts["given up"] += 1
    return End.OVER


def _fenced(life: Life, producer: RecordingProducer) -> End:
    life.world.counts["fenced"] += 1
    life.play.watch.check_fenced(life.process.name, producer.recorder.transactional_id or "")
    return End.OVER
