"""What the processes of applications do: a worker with retries and dead letters, a relay of an outbox, a mover of
delayed records, a share group, and who feeds them."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa

from proof.torture.life import Life, identify
from proof.torture.outbox_rows import ROWS_TOPIC, Undone, opened, relay_loosely, url_of, write_rows
from proof.torture.plan import SESSION_MS, TRANSACTION_TIMEOUT_MS, Planted, Role
from proof.torture.roles import between_steps
from sparklog.admin import Admin
from sparklog.consumer.sharing.client import ShareConsumer
from sparklog.errors import CommitStateUnknownError, InvalidRecordStateError, SparklogError
from sparklog.groups.sharing.changes import AcknowledgeType
from sparklog.model import TopicPartition
from sparklog.outbox import Relay, RelayTakenOverError
from sparklog.processing import App, DelayMover, Exponential, MoverTakenOverError, Record, Retry, Send
from sparklog.producer import Producer
from sparklog.producer.future import FutureRecordMetadata
from sparklog.testing.history import Outcome, RecordingProducer

__all__ = ["ROLES_OF_APPS", "SHARE_GROUP", "WORK_GROUP", "a_mover", "a_relay", "a_worker", "share"]

WORK_GROUP, SHARE_GROUP = "work", "share"
_RETRY = Retry(attempts=3, backoff=Exponential(0.2, 0.6, factor=3), topics=True)
FAILURES = {"well": 0, "once": 1, "twice": 2, "never": 3}
"""How many tries of a job fail, by the first word of its value."""
_FATES = (*["well"] * 6, "once", "twice", "never")
_UNACKNOWLEDGED = 60
_CLOSE_S = 10.0
_LOCK_MS = 1_500
_TICK_S = 0.05
_OUTAGE_S = 60.0
_LATEST_MS = 2_500
"""A delayed record is due by then."""


# Who feeds them.


def feed(life: Life) -> None:
    """Send jobs and tasks, and records that are for later."""
    draw = life.draw
    producer = Producer(
        life.cluster,
        linger_ms=draw.choice([0, 2, 10]),
        request_timeout_ms=2_000,
        delivery_timeout_ms=draw.choice([4_000, 20_000]),
        max_block_ms=draw.choice([3_000, 10_000]),
    )
    recording = RecordingProducer(producer, life.recorder.producer(life.client_name("producer")), identify=identify)
    outstanding: deque[FutureRecordMetadata] = deque()

    def some() -> None:
        for _ in range(draw.randint(1, 5)):
            topic = draw.choice(["jobs", "jobs", "tasks", "later"])
            key = b"k%d" % draw.randrange(20) if draw.random() < 0.7 else None
            if topic == "later":
                _delay(life, producer, key)
                continue
            name = f"{draw.choice(_FATES)} {life.value()}" if topic == "jobs" else life.value()
            outstanding.append(recording.send(topic, name.encode(), key))
            life.note("fed")

    while life.goes_on():
        life.attempt("feed", some)
        while len(outstanding) > _UNACKNOWLEDGED:
            life.attempt("acknowledge", lambda: outstanding.popleft().get(30))
        life.rest(draw.expovariate(1 / 100))
    producer.close(_CLOSE_S)


def _delay(life: Life, producer: Producer, key: bytes | None) -> None:
    """A record for later, in the history a transaction of a client of its own: no order is promised, and what is
    acknowledged is that it waits."""
    due_ms = time.time_ns() // 1_000_000 + life.draw.randrange(100, _LATEST_MS)
    name = f"{life.value()}@{due_ms}"
    told = life.recorder.producer(life.client_name("later"))
    told.begin()
    told.send(name, "later")
    told.ending(is_commit=True)
    try:
        future = producer.send("later", name.encode(), key, deliver_at=due_ms)
    except SparklogError as error:
        told.ended(Outcome.ABORTED, error)
        raise

    def failed(error: SparklogError) -> None:
        told.ended(Outcome.UNKNOWN if isinstance(error, CommitStateUnknownError) else Outcome.ABORTED, error)

    future.add_callback(lambda metadata: told.ended(Outcome.COMMITTED))
    future.add_errback(failed)
    life.note("delayed")


def write(life: Life) -> None:
    """Rows of the outbox, in transactions of the database."""
    with opened(life.told.place) as engine:
        while life.goes_on():
            try:
                for _ in range(write_rows(engine, life.draw)):
                    life.note("rows written")
            except Undone:
                life.note("rows undone")
            except sa.exc.OperationalError as error:  # somebody who has locked it was stopped
                life.note("error OperationalError", str(error.orig))
            life.rest(life.draw.expovariate(1 / 150))


# The applications.


def a_worker(life: Life) -> App:
    """A worker of jobs, which fail as their values say."""
    draw = life.draw
    app = App(
        life.cluster,
        group_id=WORK_GROUP,
        transactional_id=life.told.job if draw.random() < 0.5 else None,
        commit_interval_ms=draw.choice([20, 200]),
        drain_timeout_s=5,
        patience_s=_OUTAGE_S,
        consumer={"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": SESSION_MS // 5},
        producer={"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS},
    )
    handle = app.subscriber(
        "jobs",
        retry=_RETRY,
        dead_letter="dlq.jobs",
        concurrency=draw.choice([1, 4]),
        order_by=draw.choice(["partition", "key", "none"]),
    )
    handle(_do_job)
    return app


class _PlannedError(Exception):
    """A job that is to fail."""


def _do_job(record: Record[str]) -> Send:
    if record.attempt <= FAILURES[record.value.split()[0]]:
        raise _PlannedError(record.value)
    return Send("done", f"done {record.value}", key=record.key)


def work(life: Life) -> None:
    """Do jobs: an output each, or a dead letter."""
    app = a_worker(life)
    if not (life.attempt("create topics", app.create_topics) and life.attempt("start", app.start)):
        return
    seen = 0.0
    while life.goes_on() and app.health().is_alive:
        life.is_over.wait(_TICK_S)
        count = app.metrics()["processing-metrics"]["records-processed-total"]
        if count > seen:
            life.note("worked", str(count))
            seen = count
    life.attempt("work", lambda: app.stop(_OUTAGE_S + _CLOSE_S))


def a_relay(life: Life) -> Relay:
    """The relay of the outbox: in each round it either deletes rows or marks them."""
    return Relay(
        life.cluster,
        url_of(life.told.place),
        after="mark" if life.told.seed % 2 else "delete",
        batch_size=life.draw.choice([1, 5, 50]),
        poll_interval_s=_TICK_S,
        max_outage_s=_OUTAGE_S,
    )


def relay(life: Life) -> None:
    """Send rows of the outbox."""
    if Planted.LOOSE_ROWS in life.told.planted:
        _relay_loosely(life)
        return
    with a_relay(life) as made:
        _end_by(life, made.stop)
        try:
            life.attempt("relay", lambda: _but(life, RelayTakenOverError, made.run))
        except sa.exc.OperationalError as error:
            life.note("error OperationalError", str(error.orig))


def _relay_loosely(life: Life) -> None:
    """Planted."""
    with Producer(life.cluster) as producer, opened(life.told.place) as engine:

        def between() -> None:
            producer.flush()
            between_steps(life)

        while life.goes_on():
            relay_loosely(engine, lambda value, key: producer.send(ROWS_TOPIC, value, key), between)
            life.rest(100)


def a_mover(life: Life) -> DelayMover:
    """The mover of what is for later."""
    return DelayMover(
        life.cluster,
        "later",
        batch_size=life.draw.choice([1, 5, 50]),
        poll_interval_s=_TICK_S,
        max_outage_s=_OUTAGE_S,
    )


def move(life: Life) -> None:
    """Deliver what is due."""
    with a_mover(life) as made:
        _end_by(life, made.stop)
        life.attempt("move", lambda: _but(life, MoverTakenOverError, made.run))


def _but(life: Life, taken_over: type[SparklogError], act: Callable[[], object]) -> None:
    """Do it, until another life does it."""
    try:
        act()
    except taken_over:
        life.note("taken over", life.told.role.value)


def _end_by(life: Life, stop: Callable[[], object]) -> None:
    """Let the end of the life stop what runs in this thread."""

    def wait() -> None:
        life.is_over.wait()
        stop()

    threading.Thread(target=wait, daemon=True).start()


# A share group.


class _InHand:
    """What a member has accepted, until it is told what became of that.

    Where it was told of an error it doesn't know, of all of that partition: some may be accepted.
    """

    def __init__(self, life: Life) -> None:
        self._life = life
        self._accepted: defaultdict[TopicPartition, list[str]] = defaultdict(list)

    def accept(self, partition: TopicPartition, told: str) -> None:
        self._life.note("accepting", told)
        self._accepted[partition].append(told)

    def told(self, outcomes: Mapping[TopicPartition, SparklogError | None]) -> None:
        for partition, error in outcomes.items():
            accepted = self._accepted.pop(partition, [])
            if error is None:
                for told in accepted:
                    self._life.note("accepted", told)
            elif isinstance(error, InvalidRecordStateError):
                self._life.note("accepted too late", str(error))
            else:
                self._life.check_error("accept", error)


def _share_settings(life: Life) -> dict[str, Any]:
    return {
        "cluster": life.cluster,
        "group_id": SHARE_GROUP,
        "client_id": life.name,
        "share_auto_offset_reset": "earliest",
        "share_acknowledgement_mode": "explicit",
        "share_record_lock_duration_ms": _LOCK_MS,
        "share_heartbeat_interval_ms": SESSION_MS // 5,
        "share_session_timeout_ms": SESSION_MS,
        "group_share_delivery_count_limit": 32_767,
        "default_api_timeout_ms": life.draw.choice([3_000, 10_000]),
    }


def share(life: Life) -> None:
    """Accept tasks, and what was for later, or give them back."""
    consumer, hand = ShareConsumer("tasks", "later", **_share_settings(life)), _InHand(life)
    consumer.set_acknowledgement_commit_callback(hand.told)

    def some() -> None:
        found = consumer.poll(200, life.draw.choice([3, 20, 100]))
        now_ms = time.time_ns() // 1_000_000
        for partition, records in found.items():
            for record in records:
                name = f"{record.topic} {record.partition} {record.offset} {record.delivery_count}"
                life.note("shared", f"{name} {now_ms} {identify(record.key, record.value)}")
                is_given_back = not life.is_final and life.draw.random() < 0.1
                if not is_given_back:
                    hand.accept(partition, name)
                consumer.acknowledge(record, AcknowledgeType.RELEASE if is_given_back else AcknowledgeType.ACCEPT)

    while life.goes_on():
        life.attempt("share", some)
        if life.is_final or life.draw.random() < 0.6:
            life.attempt("accept", consumer.commit_sync)
        if life.is_final and _has_no_lag(life):
            life.has_ended = True
            break
    life.attempt("close", lambda: consumer.close(_CLOSE_S * 1_000))


def _has_no_lag(life: Life) -> bool:
    with Admin(life.cluster) as admin:
        [described] = admin.describe_share_groups([SHARE_GROUP])
    return {each.partition.topic for each in described.partitions} == {"tasks", "later"} and not any(
        each.lag for each in described.partitions
    )


ROLES_OF_APPS: Mapping[Role, Callable[[Life], None]] = {
    Role.FEED: feed,
    Role.WORK: work,
    Role.WRITE: write,
    Role.RELAY: relay,
    Role.MOVE: move,
    Role.SHARE: share,
}
