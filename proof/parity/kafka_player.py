"""Scenarios on a real Kafka, by confluent-kafka. Topics, groups and ids carry the scenario's own prefix there."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import confluent_kafka as ck
from confluent_kafka import admin as cka

from benchmarks.kafka_broker import Broker
from proof.parity.player import PATIENCE_S, Committed, Listener, PlayedError, Player, Seen, ToSend
from proof.parity.playing import play
from proof.parity.scenario import Scenario
from sparklog.model import TopicPartition

__all__ = ["KafkaPlayer", "Played", "play_at_once", "play_on_kafka"]

QUICK = {"session.timeout.ms": "10000", "heartbeat.interval.ms": "300", "fetch.wait.max.ms": "10"}
LIBRDKAFKA = {"max.request.size": "message.max.bytes", "max.block.ms": "topic.metadata.propagation.max.ms"}
"""Java's settings by what comes near them there."""
RESETS = {"none": "error"}
NAMES = {
    "TOPIC_EXCEPTION": "INVALID_TOPIC_EXCEPTION",
    "UNKNOWN_TOPIC_OR_PART": "UNKNOWN_TOPIC_OR_PARTITION",
    "_UNKNOWN_TOPIC": "UNKNOWN_TOPIC_OR_PARTITION",
    "_UNKNOWN_PARTITION": "UNKNOWN_TOPIC_OR_PARTITION",
    "MSG_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "_NOENT": "UNKNOWN_TOPIC_OR_PARTITION",
    "_STATE": "ILLEGAL_STATE",
    "_NOT_CONFIGURED": "ILLEGAL_STATE",
    "_INVALID_ARG": "INVALID_ARGUMENT",
    "_FENCED": "PRODUCER_FENCED",
    "_TIMED_OUT": "TIMED_OUT",
    "_MSG_TIMED_OUT": "TIMED_OUT",
}
"""librdkafka's names for what Kafka's protocol and Java's client call otherwise."""
STATES = {
    ck.ConsumerGroupState.DEAD: "Dead",
    ck.ConsumerGroupState.EMPTY: "Empty",
    ck.ConsumerGroupState.STABLE: "Stable",
    ck.ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ck.ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
}
LOGGER = logging.getLogger("proof.parity.librdkafka")
"""Else librdkafka writes to stderr; what matters is raised by the calls."""
LOGGER.propagate = False
LOGGER.addHandler(logging.NullHandler())
ANSWER_MS = 10_000
"""Until a producer of `request.timeout.ms` 1000 has given up waiting."""
MARKERS_S = 2.0
"""So long the markers of a transaction that has ended are waited for; an open one before it may hide them."""
ABORTED_AFTER_MS = 11_000
"""A broker looks for transactions that are past their time every 10 s."""
AT_ONCE = 8
"""So many scenarios are played on one broker at the same time: most of it is waiting."""


Played = Future[list[tuple[str, ...]]]
"""What each step of a scenario showed."""


def play_on_kafka(broker: Broker, scenarios: Collection[Scenario]) -> dict[Scenario, Played]:
    """Play scenarios on a broker that is there."""
    _clean_quickly(broker)
    return play_at_once(lambda: KafkaPlayer(broker), scenarios)


def play_at_once(new_player: Callable[[], Player], scenarios: Collection[Scenario]) -> dict[Scenario, Played]:
    """Play scenarios, several at a time; those that stop the broker for a while before all others, by themselves."""
    played: dict[Scenario, Played] = {}
    alone = [one for one in scenarios if any("answer=lost" in step.text for step in one.steps)]
    for at_once, some in ((1, alone), (AT_ONCE, [one for one in scenarios if one not in alone])):
        with ThreadPoolExecutor(at_once) as threads:
            played |= {one: threads.submit(lambda one=one: play(new_player(), one)) for one in some}  # type: ignore[misc]
    return played


def _clean_quickly(broker: Broker) -> None:
    """Let the broker's cleaner look every 100 ms, not every 15 s."""
    admin = _admin(broker)
    entry = cka.ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=cka.AlterConfigOpType.SET)
    resource = cka.ConfigResource(cka.ResourceType.BROKER, "1", incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(PATIENCE_S)


class KafkaPlayer(Player):
    """On a broker that others may use at the same time."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker = broker
        self._prefix = f"p{uuid.uuid4().hex[:8]}."
        self._admin = _admin(broker)
        self._producers: dict[str, Any] = {}
        self._written: dict[str, dict[TopicPartition, int]] = {}
        """Last offset of each partition, of producers with an open transaction."""
        self._timed_out_requests = 0
        self._consumers: dict[str, Any] = {}

    def create_topic(self, topic: str, partition_count: int, configs: Mapping[str, str]) -> None:
        name = self._there(topic)
        new = cka.NewTopic(name, num_partitions=partition_count, replication_factor=1, config=dict(configs))
        with _errors():
            self._admin.create_topics([new])[name].result(PATIENCE_S)
        self._wait_for(lambda: self._count(topic) == partition_count)

    def delete_topic(self, topic: str) -> None:
        name = self._there(topic)
        with _errors():
            self._admin.delete_topics([name])[name].result(PATIENCE_S)
        self._wait_for(lambda: self._count(topic) == 0)

    def topics(self) -> list[str]:
        found = self._admin.list_topics(timeout=PATIENCE_S).topics
        return [name.removeprefix(self._prefix) for name in found if name.startswith(self._prefix)]

    def partition_count(self, topic: str) -> int:
        name = self._there(topic)
        with _errors():
            described = self._admin.describe_topics(ck.TopicCollection([name]))[name].result(PATIENCE_S)
        return len(described.partitions)

    def create_partitions(self, topic: str, total_count: int) -> None:
        name = self._there(topic)
        with _errors():
            self._admin.create_partitions([cka.NewPartitions(name, total_count)])[name].result(PATIENCE_S)
        self._wait_for(lambda: self._count(topic) == total_count)

    def configs(self, topic: str) -> dict[str, tuple[str, bool]]:
        resource = cka.ConfigResource(cka.ResourceType.TOPIC, self._there(topic))
        with _errors():
            [done] = self._admin.describe_configs([resource]).values()
            found = done.result(PATIENCE_S)
        own = cka.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: (entry.value, entry.source != own) for name, entry in found.items()}

    def alter_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        entries = [
            cka.ConfigEntry(
                name,
                value,
                incremental_operation=cka.AlterConfigOpType.DELETE if value is None else cka.AlterConfigOpType.SET,
            )
            for name, value in changes.items()
        ]
        resource = cka.ConfigResource(cka.ResourceType.TOPIC, self._there(topic), incremental_configs=entries)
        with _errors():
            [done] = self._admin.incremental_alter_configs([resource]).values()
            done.result(PATIENCE_S)
        self._wait_for(lambda: self._has(topic, changes))  # every broker learns of it by itself

    def _has(self, topic: str, changes: Mapping[str, str | None]) -> bool:
        found = self.configs(topic)
        return all(found[name][1] if value is None else found[name][0] == value for name, value in changes.items())

    def delete_records(self, partition: TopicPartition, offset: int) -> int:
        with _errors():
            [done] = self._admin.delete_records([self._at(partition, offset)]).values()
            low: int = done.result(PATIENCE_S).low_watermark
        return low

    def list_offset(self, partition: TopicPartition, spec: int) -> tuple[int, int]:
        named = {-1: cka.OffsetSpec.latest, -2: cka.OffsetSpec.earliest, -3: cka.OffsetSpec.max_timestamp}
        wanted = named[spec]() if spec in named else cka.OffsetSpec.for_timestamp(spec)
        with _errors():
            [done] = self._admin.list_offsets({self._at(partition): wanted}).values()
            found = done.result(PATIENCE_S)
        return found.offset, found.timestamp

    def compact(self, topic: str, remaining: int) -> None:
        self._wait_for(lambda: len(self.read(topic, "read_uncommitted")) <= remaining)

    def groups(self) -> list[str]:
        found = self._admin.list_consumer_groups().result(PATIENCE_S).valid
        names = [one.group_id for one in found]
        return [name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)]

    def group_state(self, group: str) -> tuple[str, int]:
        name = self._there(group)
        with _errors():
            found = self._admin.describe_consumer_groups([name])[name].result(PATIENCE_S)
        return STATES[found.state], len(found.members)

    def delete_group(self, group: str) -> None:
        name = self._there(group)
        with _errors():
            self._admin.delete_consumer_groups([name])[name].result(PATIENCE_S)

    def group_offsets(self, group: str) -> dict[TopicPartition, Committed]:
        name = self._there(group)
        with _errors():
            [done] = self._admin.list_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(name)]).values()
            found = done.result(PATIENCE_S).topic_partitions
        return {self._here(one): Committed(one.offset, one.metadata or "") for one in found}

    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        wanted = [self._at(partition, offset) for partition, offset in offsets.items()]
        request = ck.ConsumerGroupTopicPartitions(self._there(group), wanted)
        with _errors():
            [done] = self._admin.alter_consumer_group_offsets([request]).values()
            _raise_of(done.result(PATIENCE_S).topic_partitions)

    def open_producer(self, name: str, settings: Mapping[str, str]) -> None:
        chosen = {"enable.idempotence": "true", "linger.ms": "0", "partitioner": "murmur2", **_settings(settings)}
        if "transactional.id" in chosen:
            chosen["transactional.id"] = self._there(chosen["transactional.id"])
        if "request.timeout.ms" in chosen:
            chosen["socket.timeout.ms"] = chosen["request.timeout.ms"]
        if "transaction.timeout.ms" in chosen:  # librdkafka wants the others below it
            bound = str(min(10_000, int(chosen["transaction.timeout.ms"])))
            chosen |= {"message.timeout.ms": bound, "socket.timeout.ms": bound}
        told = {"statistics.interval.ms": 200, "stats_cb": self._note_statistics}
        with _errors():
            self._producers[name] = ck.Producer({**self._common(), **chosen, **told}, logger=LOGGER)

    def send(
        self, producer: str, records: Collection[ToSend], *, lose_answer: bool
    ) -> list[tuple[TopicPartition, int]]:
        client = self._producers[producer]
        delivered: dict[int, tuple[Any, Any]] = {}
        if lose_answer:  # the connection must be there, and the answers to the first request too late
            client.list_topics(timeout=PATIENCE_S)
            self.hold_answers()
        try:
            with _errors():
                for number, one in enumerate(records):
                    given = {"partition": one.partition, "timestamp": one.timestamp_ms, "headers": one.headers}
                    client.produce(
                        self._there(one.topic),
                        value=one.value,
                        key=one.key,
                        on_delivery=lambda error, message, number=number: delivered.update({number: (error, message)}),
                        **{name: value for name, value in given.items() if value is not None},
                    )
                deadline = time.monotonic() + ANSWER_MS / 1000
                while lose_answer and not self._timed_out_requests and time.monotonic() < deadline:
                    client.flush(0.1)
        finally:
            if lose_answer:
                self.release_answers()
        with _errors():
            client.flush(PATIENCE_S)
        if lose_answer and not self._timed_out_requests:
            raise AssertionError("no answer was lost")
        if len(delivered) < len(records):
            raise PlayedError("TIMED_OUT")
        told = [delivered[number] for number in range(len(records))]
        for error, _ in told:
            if error is not None:
                raise PlayedError(_name(error))
        offsets = [-1 if message.offset() is None else message.offset() for _, message in told]
        places = [(self._here_of(message), offset) for (_, message), offset in zip(told, offsets, strict=True)]
        if producer not in self._written:
            return places
        self._written[producer].update(places)
        return [(partition, -1) for partition, _ in places]

    def hold_answers(self) -> None:
        """Let nothing be answered until they are released."""
        os.kill(self._broker.pid, signal.SIGSTOP)

    def release_answers(self) -> None:
        os.kill(self._broker.pid, signal.SIGCONT)

    def init_transactions(self, producer: str) -> None:
        with _errors():
            self._producers[producer].init_transactions(PATIENCE_S)

    def begin(self, producer: str) -> None:
        with _errors():
            self._producers[producer].begin_transaction()
        self._written[producer] = {}

    def outlast(self, transaction_timeout_ms: int) -> None:
        time.sleep((transaction_timeout_ms + ABORTED_AFTER_MS) / 1000)

    def commit_transaction(self, producer: str) -> None:
        with _errors():
            self._producers[producer].commit_transaction(PATIENCE_S)
        self._wait_for_markers(producer)

    def abort(self, producer: str) -> None:
        with _errors():
            self._producers[producer].abort_transaction(PATIENCE_S)
        self._wait_for_markers(producer)

    def _wait_for_markers(self, producer: str) -> None:
        """They are written after the call has returned, and another transaction may hide them."""
        written = self._written.pop(producer, {})
        reached = lambda: all(self._stable_offset(one) > last for one, last in written.items())  # noqa: E731
        self._wait_for(reached, MARKERS_S)

    def _stable_offset(self, partition: TopicPartition) -> int:
        wanted = {self._at(partition): cka.OffsetSpec.latest()}
        with _errors():
            found = self._admin.list_offsets(wanted, isolation_level=ck.IsolationLevel.READ_COMMITTED)
            [offset] = [done.result(PATIENCE_S).offset for done in found.values()]
        return int(offset)

    def send_offsets(self, producer: str, consumer: str, offsets: Mapping[TopicPartition, int]) -> None:
        with _errors():
            self._producers[producer].send_offsets_to_transaction(
                [self._at(partition, offset) for partition, offset in offsets.items()],
                self._consumers[consumer].consumer_group_metadata(),
                PATIENCE_S,
            )

    def close_producer(self, producer: str) -> None:
        client = self._producers.pop(producer)
        with _errors():
            client.flush(PATIENCE_S)
            client.close()

    def read(self, topic: str, isolation: str) -> list[Seen]:
        count = self._count(topic)
        if not count:
            raise PlayedError("UNKNOWN_TOPIC_OR_PARTITION")
        own = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest", "enable.partition.eof": "true"}
        consumer = ck.Consumer({**self._common(), **QUICK, **own, "isolation.level": isolation}, logger=LOGGER)
        found, ended = [], 0
        try:
            consumer.assign([self._at(TopicPartition(topic, number), ck.OFFSET_BEGINNING) for number in range(count)])
            deadline = time.monotonic() + PATIENCE_S
            while ended < count and time.monotonic() < deadline:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                if message.error() is None:
                    found.append(self._seen(message))
                elif message.error().code() == ck.KafkaError._PARTITION_EOF:
                    ended += 1
                else:
                    raise PlayedError(_name(message.error()))
        finally:
            consumer.close()
        if ended < count:
            raise AssertionError(f"{topic}: the ends of {count - ended} partitions weren't reached")
        return found

    def open_consumer(self, name: str, settings: Mapping[str, str]) -> None:
        own = {"enable.auto.commit": "false", "auto.offset.reset": "earliest", "group.id": uuid.uuid4().hex}
        chosen = {**QUICK, **own, **_settings(settings)}
        if "group.id" in settings:
            chosen["group.id"] = self._there(settings["group.id"])
        with _errors():
            self._consumers[name] = ck.Consumer({**self._common(), **chosen}, logger=LOGGER)

    def assign(self, consumer: str, partitions: Mapping[TopicPartition, int | None]) -> None:
        wanted = [
            self._at(partition, ck.OFFSET_STORED if offset is None else offset)
            for partition, offset in partitions.items()
        ]
        with _errors():
            self._consumers[consumer].assign(wanted)

    def subscribe(self, consumer: str, topics: Collection[str], listener: Listener | None = None) -> None:
        told: dict[str, Callable[[Any, Any], None]] = {}
        if listener is not None:
            calls = {"on_assign": listener.assigned, "on_revoke": listener.revoked, "on_lost": listener.lost}
            told = {name: partial(self._tell, call) for name, call in calls.items()}
        with _errors():
            self._consumers[consumer].subscribe([self._there(topic) for topic in topics], **told)

    def _tell(self, call: Callable[[Collection[TopicPartition]], None], consumer: Any, partitions: Any) -> None:
        call([self._here(one) for one in partitions])

    def unsubscribe(self, consumer: str) -> None:
        with _errors():
            self._consumers[consumer].unsubscribe()
            self._consumers[consumer].unassign()

    def assignment(self, consumer: str) -> set[TopicPartition]:
        return {self._here(one) for one in self._consumers[consumer].assignment()}

    def poll(self, consumer: str, timeout_ms: float, max_records: int) -> list[Seen]:
        with _errors():
            found = self._consumers[consumer].consume(max_records, timeout_ms / 1000)
        for message in found:
            if message.error() is not None:
                raise PlayedError(_name(message.error()))
        return [self._seen(message) for message in found]

    def commit(self, consumer: str, offsets: Mapping[TopicPartition, Committed] | None) -> None:
        wanted = None
        if offsets is not None:
            wanted = [self._at(at, one.offset, one.metadata or None) for at, one in offsets.items()]
        with _errors():
            given = {} if wanted is None else {"offsets": wanted}
            _raise_of(self._consumers[consumer].commit(asynchronous=False, **given))

    def committed(self, consumer: str, partition: TopicPartition, timeout_ms: float) -> Committed | None:
        with _errors():
            [found] = self._consumers[consumer].committed([self._at(partition)], timeout_ms / 1000)
            _raise_of([found])
        return None if found.offset < 0 else Committed(found.offset, found.metadata or "")

    def position(self, consumer: str, partition: TopicPartition) -> int:
        with _errors():
            [found] = self._consumers[consumer].position([self._at(partition)])
        offset: int = found.offset
        return offset

    def seek(self, consumer: str, partition: TopicPartition, offset: int) -> None:
        place = {-1: ck.OFFSET_END, -2: ck.OFFSET_BEGINNING}.get(offset, offset)
        with _errors():
            self._consumers[consumer].seek(self._at(partition, place))

    def pause(self, consumer: str, partition: TopicPartition) -> None:
        with _errors():
            self._consumers[consumer].pause([self._at(partition)])

    def resume(self, consumer: str, partition: TopicPartition) -> None:
        with _errors():
            self._consumers[consumer].resume([self._at(partition)])

    def close_consumer(self, consumer: str) -> None:
        with _errors():
            self._consumers.pop(consumer).close()

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        for producer in self._producers.values():
            producer.purge()
            with suppress(ck.KafkaException):  # of a producer that was fenced
                producer.flush(1)
        names = [self._there(topic) for topic in self.topics()]
        if names:
            for done in self._admin.delete_topics(names).values():
                with suppress(ck.KafkaException):  # only to keep the broker small
                    done.result(PATIENCE_S)

    def _note_statistics(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self._timed_out_requests = max(self._timed_out_requests, *(one["req_timeouts"] for one in brokers), 0)

    def _common(self) -> dict[str, Any]:
        return _common(self._broker)

    def _there(self, name: str) -> str:
        """Names that break Kafka's rules, or nearly, stay as they are."""
        return self._prefix + name if re.fullmatch(r"[a-z0-9-]{1,50}", name) else name

    def _at(self, partition: TopicPartition, offset: int = ck.OFFSET_INVALID, metadata: str | None = None) -> Any:
        name, number = self._there(partition.topic), partition.partition
        return (
            ck.TopicPartition(name, number, offset)
            if metadata is None
            else ck.TopicPartition(name, number, offset, metadata)
        )

    def _here(self, partition: Any) -> TopicPartition:
        return TopicPartition(partition.topic.removeprefix(self._prefix), partition.partition)

    def _here_of(self, message: Any) -> TopicPartition:
        return TopicPartition(message.topic().removeprefix(self._prefix), message.partition())

    def _seen(self, message: Any) -> Seen:
        kind, timestamp_ms = message.timestamp()
        return Seen(
            self._here_of(message),
            message.offset(),
            message.key(),
            message.value(),
            message.headers() or [],
            timestamp_ms,
            kind == ck.TIMESTAMP_LOG_APPEND_TIME,
        )

    def _count(self, topic: str) -> int:
        """Of partitions that have a leader; 0 where there is no such topic."""
        name = self._there(topic)
        found = self._admin.list_topics(timeout=PATIENCE_S).topics.get(name)
        return 0 if found is None else sum(one.leader >= 0 for one in found.partitions.values())

    def _wait_for(self, reached: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + seconds
        while not reached() and time.monotonic() < deadline:
            time.sleep(0.05)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except ck.KafkaException as error:
        raise PlayedError(_name(error.args[0])) from error
    except SystemError as error:  # it calls the next callback while an exception is set
        if not isinstance(error.__cause__, ck.KafkaException):
            raise
        raise PlayedError(_name(error.__cause__.args[0])) from error
    except (ValueError, TypeError) as error:
        raise PlayedError("INVALID_ARGUMENT") from error
    except RuntimeError as error:
        raise PlayedError("ILLEGAL_STATE") from error


def _name(error: Any) -> str:
    if error.txn_requires_abort():  # Java's client tells so by the class of the exception
        return "TRANSACTION_ABORTABLE"
    if error.name() == "_AUTO_OFFSET_RESET":  # its text holds the reason
        return "OFFSET_OUT_OF_RANGE" if "out of range" in error.str() else "NO_OFFSET_FOR_PARTITION"
    if error.name() == "_FATAL" and "fenced" in error.str():
        return "FENCED_INSTANCE_ID"
    name: str = error.name()
    return NAMES.get(name, name)


def _raise_of(partitions: Collection[Any] | None) -> None:
    for one in partitions or ():
        if one.error is not None:
            raise PlayedError(_name(one.error))


def _settings(settings: Mapping[str, str]) -> dict[str, str]:
    named = {LIBRDKAFKA.get(name, name): value for name, value in settings.items()}
    if "auto.offset.reset" in named:
        named["auto.offset.reset"] = RESETS.get(named["auto.offset.reset"], named["auto.offset.reset"])
    return named


def _common(broker: Broker) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "log_level": 0,
        "error_cb": lambda error: None,  # what matters is raised by the calls
        "topic.metadata.refresh.interval.ms": 500,
        "socket.timeout.ms": 10_000,
    }


def _admin(broker: Broker) -> Any:
    return cka.AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
