"""What processes of a round do by Kafka's wire protocol: gateways, and confluent-kafka's clients of them, recorded.

librdkafka's producers and consumers have both gateways' addresses, and move to the other one where one doesn't answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from proof.torture.life import DEFECT, Life, identify
from proof.torture.plan import SESSION_MS, TOPICS, TRANSACTION_TIMEOUT_MS, WIRE_GROUP, Role
from sparklog.gateway.server import Gateway, parse_address
from sparklog.gateway.settings import GatewaySettings
from sparklog.model import TopicPartition
from sparklog.testing.history import ConsumerRecorder, Outcome, ProducerRecorder

__all__ = ["GATEWAY_SETTINGS", "WIRE_ROLES"]

GATEWAY_SETTINGS: Mapping[str, Any] = {
    "auto_create_topics": False,
    "coordinator_session_timeout_ms": SESSION_MS,
    "coordinator_heartbeat_interval_ms": SESSION_MS // 5,
    "delivery_timeout_ms": 5_000,
    "offset_commit_timeout_ms": 5_000,
}
_PARTITIONS = {topic.name: topic.partitions for topic in TOPICS}
_DRAIN_S = 1.0
_UNACKNOWLEDGED = 60
_CALL_S = 15.0
_CLOSE_S = 10.0
_TRIES = 8
_TICK_S = 0.02
_MESSAGE_TIMEOUT_MS = 300_000
"""Longer than a round: where a record's time is over, librdkafka begins an epoch, and sends again under new numbers
what it has no answer to in any partition. That may be stored already, at a real Kafka, too."""
_EXPECTED = frozenset(
    {
        # A gateway was killed, suspended or replaced, or its store didn't answer in time.
        "_TRANSPORT",
        "_TIMED_OUT",
        "_MSG_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_WAIT_COORD",
        "_NO_OFFSET",
        "_ASSIGNMENT_LOST",
        "_PURGE_QUEUE",
        "_PURGE_INFLIGHT",
        "REQUEST_TIMED_OUT",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_COORDINATOR",
        "KAFKA_STORAGE_ERROR",
        # A member whose coordinator was replaced, or that was suspended for longer than its session.
        "UNKNOWN_MEMBER_ID",
        "ILLEGAL_GENERATION",
        "REBALANCE_IN_PROGRESS",
        # Another life has the transactional id; the session was in a gateway that is gone; a transaction took too long.
        "_FENCED",
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
        "CONCURRENT_TRANSACTIONS",
        "TRANSACTION_ABORTABLE",
        "_STATE",
        "_INCONSISTENT",
        "_GAPLESS_GUARANTEE",
        # The batch was stored, but a hundred commits ago (decision 0038), or its gateway said that it wasn't in time.
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "_FATAL",
        "_CONFLICT",
    }
)
"""Errors of librdkafka's that kills and naps excuse."""


def serve(life: Life) -> None:
    """A gateway, on the address that is its own in each of its lives."""
    asyncio.run(_serve(life))


async def _serve(life: Life) -> None:
    gateway = Gateway(life.cluster, GatewaySettings(**GATEWAY_SETTINGS))
    host, port = parse_address(life.told.place.gateways[int(life.told.job[-1])])
    try:
        await gateway.listen(host, port)
    except OSError as error:  # the life before sleeps, and has it still
        life.note("address taken", str(error))
        await asyncio.sleep(0.5)
    else:
        while life.goes_on():
            await asyncio.sleep(_TICK_S)
    await gateway.close(_DRAIN_S)


def _settings(life: Life) -> dict[str, Any]:
    return {
        "bootstrap.servers": ",".join(life.told.place.gateways),
        "log_level": 0,
        "error_cb": lambda error: None,  # what matters is told by the calls
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": 1_000,
        "socket.timeout.ms": life.draw.choice([2_000, 6_000]),
        "socket.connection.setup.timeout.ms": 1_000,
    }


def _note_error(life: Life, doing: str, error: Any) -> None:
    name = error.name()
    life.note(f"wire {name}" if name in _EXPECTED else DEFECT, f"{doing}: {name}: {error.str()}")


# Producers.


class _Sender:
    """A producer of librdkafka's, and what becomes of its records."""

    def __init__(self, life: Life, transactional_id: str | None = None) -> None:
        import confluent_kafka

        self.life = life
        self.recorder: ProducerRecorder = life.recorder.producer(
            life.client_name("producer"), transactional_id=transactional_id
        )
        self.unacknowledged = 0
        """Records of which it isn't told yet what became of them."""
        chosen: dict[str, Any] = {
            "enable.idempotence": True,
            "linger.ms": life.draw.choice([0, 2, 10]),
            "message.timeout.ms": _MESSAGE_TIMEOUT_MS,
            "retry.backoff.ms": 20,
            "compression.type": life.draw.choice(["none", "lz4", "zstd"]),
        }
        if transactional_id is not None:
            timeout_ms = TRANSACTION_TIMEOUT_MS
            chosen |= {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
            chosen |= {"message.timeout.ms": timeout_ms}
        settings = {**_settings(life), **chosen}
        if transactional_id is not None:
            settings["socket.timeout.ms"] = TRANSACTION_TIMEOUT_MS  # librdkafka wants it below the transaction's
        self.client = confluent_kafka.Producer(settings)

    def send(self, topic: str) -> None:
        """A record. Raises ``KafkaException``."""
        draw, value = self.life.draw, self.life.value()
        key = f"k{draw.randrange(20)}" if topic == "latest" or draw.random() < 0.5 else None
        partition = draw.randrange(_PARTITIONS[topic]) if draw.random() < 0.5 else None
        self.recorder.send(value, topic, partition, key=key)
        self.unacknowledged += 1
        given = {} if partition is None else {"partition": partition}
        try:
            self.client.produce(topic, value, key, on_delivery=lambda *told: self._told(value, *told), **given)
        except BaseException:
            self._told(value, "not taken", None)
            raise

    def _told(self, value: str, error: Any, message: Any) -> None:
        self.unacknowledged -= 1
        if error is None:
            # Records of a transaction have none yet; of a batch's later ones librdkafka makes up some.
            offset = message.offset() if self.recorder.transactional_id is None else None
            self.recorder.acknowledged(value, (message.topic(), message.partition()), offset)
            self.life.note("wire acknowledged")
        else:
            self.recorder.unknown(value, error)

    def close(self) -> None:
        """Wait for what was sent, within a bound."""
        import confluent_kafka

        try:
            self.client.flush(_CLOSE_S)
        except confluent_kafka.KafkaException as error:  # of a producer that was fenced off
            _note_error(self.life, "flush", error.args[0])
        except SystemError as error:  # confluent-kafka 2.16 may lose the exception of a fatal error, and raise this
            self.life.note("wire error", f"flush: {error}")


def wire_produce(life: Life) -> None:
    """Send by an idempotent producer, and now and then wait until all is stored."""
    import confluent_kafka

    draw, sender = life.draw, _Sender(life)
    while life.goes_on():
        try:
            for _ in range(draw.randint(1, 15)):
                sender.send(draw.choice(["in", "in", "latest", "brief"]))
        except confluent_kafka.KafkaException as error:
            _note_error(life, "send", error.args[0])
            break
        if draw.random() < 0.1:
            sender.client.flush(5)
        while sender.unacknowledged > _UNACKNOWLEDGED and life.goes_on():
            sender.client.poll(0.1)
        sender.client.poll(0)
        life.rest(draw.expovariate(1 / 60))
    sender.close()


def wire_transact(life: Life) -> None:
    """Transactions over several topics, committed or aborted."""
    import confluent_kafka

    sender = _Sender(life, transactional_id=life.told.job)
    try:
        _retried(life, "init", lambda: sender.client.init_transactions(_CALL_S))
        while life.goes_on():
            _transaction(life, sender)
            life.rest(life.draw.expovariate(1 / 100))
    except confluent_kafka.KafkaException as error:  # this producer can't go on
        _note_error(life, "transaction", error.args[0])
        if error.args[0].fatal():
            life.note("wire fenced")
    sender.close()


def _transaction(life: Life, sender: _Sender) -> None:
    """One, to an end that is known. Raises ``KafkaException``: the producer can't go on, or nobody knows."""
    import confluent_kafka

    client, recorder, draw = sender.client, sender.recorder, life.draw
    client.begin_transaction()
    recorder.begin()
    is_commit = draw.random() < 0.85
    try:
        for _ in range(draw.choice([0, 1, 3, 8])):
            sender.send(draw.choice(["in", "out", "latest"]))
            if draw.random() < 0.2:
                life.rest(draw.expovariate(1 / 50))
        if is_commit:
            recorder.ending(is_commit=True)
            _retried(life, "commit", lambda: client.commit_transaction(_CALL_S))
            recorder.ended(Outcome.COMMITTED)
            life.note("wire committed")
            return
    except confluent_kafka.KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        _note_error(life, "commit", error.args[0])
    recorder.ending(is_commit=False)
    _retried(life, "abort", lambda: client.abort_transaction(_CALL_S))
    recorder.ended(Outcome.ABORTED)


def _retried(life: Life, doing: str, call: Callable[[], object]) -> None:
    """Call until it is done; again only where librdkafka says that it may. Raises ``KafkaException``."""
    import confluent_kafka

    for number in range(_TRIES):
        try:
            call()
            return
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable() or number == _TRIES - 1 or not life.goes_on():
                raise
            _note_error(life, doing, error.args[0])


# Consumers.


class _Reader:
    """A group's member of librdkafka's, and what it sees."""

    def __init__(self, life: Life) -> None:
        import confluent_kafka

        self._life = life
        self._recorder: ConsumerRecorder = life.recorder.consumer(
            life.client_name("consumer"), group=WIRE_GROUP, from_start=True
        )
        self._end_offsets: dict[TopicPartition, int] = {}
        """Of assigned partitions, the positions at which nothing more was there."""
        self._positions: dict[TopicPartition, int] = {}
        settings = {
            **_settings(life),
            "group.id": WIRE_GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
        }
        settings |= {"session.timeout.ms": 2 * SESSION_MS, "heartbeat.interval.ms": SESSION_MS // 5}
        if life.draw.random() < 0.5 and not life.is_final:
            settings["partition.assignment.strategy"] = "range,roundrobin"
        self._client = confluent_kafka.Consumer(settings)
        self._client.subscribe(
            [topic.name for topic in TOPICS],
            on_assign=lambda _, found: self._recorder.assigned(dict.fromkeys(self._taken(found))),
            on_revoke=lambda _, found: self._recorder.revoked(self._taken(found)),
            on_lost=lambda _, found: self._recorder.lost(self._taken(found)),
        )

    def _taken(self, partitions: Any) -> list[TopicPartition]:
        found = sorted(TopicPartition(one.topic, one.partition) for one in partitions)
        for partition in found:
            self._positions.pop(partition, None)
            self._end_offsets.pop(partition, None)
        return found

    def poll(self, count: int) -> None:
        """Up to so many records; each is noted before the next is asked for."""
        for number in range(count):
            message = self._client.poll(0 if number else 0.2)
            if message is None:
                return
            partition = TopicPartition(message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is not None and error.name() == "_PARTITION_EOF":
                self._end_offsets[partition] = message.offset()
            elif error is not None:
                _note_error(self._life, "poll", error)
            else:
                self._recorder.polled(partition, [message.offset()], [identify(message.key(), message.value())])
                self._positions[partition] = message.offset() + 1
                self._life.note("wire polled")

    def commit(self) -> bool:
        """What was polled and not committed yet; False: nobody knows whether it counts."""
        import confluent_kafka

        if not self._positions:
            return True
        offsets, self._positions = self._positions, {}
        commit = self._recorder.committing(offsets)
        places = [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        try:
            for place in self._client.commit(offsets=places, asynchronous=False):
                if place.error is not None:
                    raise confluent_kafka.KafkaException(place.error)
        except confluent_kafka.KafkaException as error:
            _note_error(self._life, "commit offsets", error.args[0])
            self._recorder.committed(commit, Outcome.UNKNOWN, error)
            return False
        self._recorder.committed(commit)
        return True

    def is_at_the_end(self) -> bool:
        """Has it all partitions, and read and committed all that they have?"""
        assigned = {TopicPartition(one.topic, one.partition) for one in self._client.assignment()}
        found = self._client.list_topics(timeout=_CALL_S).topics
        wanted = sum(len(found[topic.name].partitions) for topic in TOPICS)
        if len(assigned) < wanted or not assigned <= self._end_offsets.keys() or not self.commit():
            return False
        for partition in assigned:
            self._recorder.caught_up(partition, self._end_offsets[partition])
        return True

    def close(self) -> None:
        self._client.close()


def wire_read(life: Life) -> None:
    """Read everything as a member of a group, and commit."""
    import confluent_kafka

    reader = _Reader(life)
    try:
        while life.goes_on():
            reader.poll(life.draw.choice([5, 50, 500]))
            if life.draw.random() < 0.6:
                reader.commit()
            if life.is_final and reader.is_at_the_end():
                life.has_ended = True
                break
    except confluent_kafka.KafkaException as error:
        _note_error(life, "read", error.args[0])
    reader.close()


WIRE_ROLES: Mapping[Role, Callable[[Life], None]] = {
    Role.GATEWAY: serve,
    Role.WIRE_PRODUCE: wire_produce,
    Role.WIRE_TRANSACT: wire_transact,
    Role.WIRE_READ: wire_read,
}
