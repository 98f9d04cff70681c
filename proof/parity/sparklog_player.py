"""Scenarios on sparklog, by its public clients, on a cluster of its own."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from proof.parity.player import Committed, Listener, PlayedError, Player, Seen, ToSend
from sparklog import Admin, Consumer, ConsumerRebalanceListener, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from sparklog.compaction.maintenance import Step, maintain
from sparklog.errors import SparklogError
from sparklog.log import Cluster, open_cluster
from sparklog.model import LOG_APPEND_TIME
from sparklog.storage import MemoryStore
from sparklog.testing import Call, Fault, FaultKind, FaultyStore

__all__ = ["SparklogPlayer", "maintain_now"]

NAMES = {
    "InvalidTopicError": "INVALID_TOPIC_EXCEPTION",
    "KafkaTimeoutError": "TIMED_OUT",
    "MessageSizeTooLargeError": "MESSAGE_TOO_LARGE",
    "InvalidConfigurationError": "INVALID_CONFIG",
    "TransactionalIdNotFoundError": "TRANSACTIONAL_ID_NOT_FOUND",
    "OutOfOrderSequenceError": "OUT_OF_ORDER_SEQUENCE_NUMBER",
}
"""Classes whose Kafka error isn't their own name in capitals."""
QUICK = {"heartbeat.interval.ms": "300", "session.timeout.ms": "10000", "auto.offset.reset": "earliest"}
ONLY_KAFKAS = {"message.send.max.retries"}


def maintain_now(cluster: Cluster, topic: str) -> None:
    """Do what Kafka's cleaner does when it comes."""
    report = maintain(cluster, [topic], steps=[Step.RETENTION, Step.COMPACT])
    if report.failures:
        raise AssertionError(f"maintain: {report.failures}")


class SparklogPlayer(Player):
    """In memory."""

    quiet_s = 0.3

    def __init__(self) -> None:
        super().__init__()
        self._loses_answer = False
        lost = Fault(kind=FaultKind.LOST_ANSWER, ops=("create",), path="/_delta_log/", when=self._loses, times=None)
        self._cluster = open_cluster(FaultyStore(MemoryStore(), lost))
        self._admin = Admin(self._cluster)
        self._producers: dict[str, Producer] = {}
        self._consumers: dict[str, Consumer] = {}

    def create_topic(self, topic: str, partition_count: int, configs: Mapping[str, str]) -> None:
        with _errors():
            self._admin.create_topics([NewTopic(topic, partition_count, configs=dict(configs))])

    def delete_topic(self, topic: str) -> None:
        with _errors():
            self._admin.delete_topics([topic])

    def topics(self) -> list[str]:
        return self._admin.list_topics()

    def partition_count(self, topic: str) -> int:
        with _errors():
            return self._admin.describe_topics([topic])[0].partition_count

    def create_partitions(self, topic: str, total_count: int) -> None:
        with _errors():
            self._admin.create_partitions({topic: total_count})

    def configs(self, topic: str) -> dict[str, tuple[str, bool]]:
        with _errors():
            [found] = self._admin.describe_configs([topic]).values()
        return {name: (_setting_text(entry.value), entry.is_default) for name, entry in found.items()}

    def alter_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        with _errors():
            self._admin.alter_configs({topic: changes})

    def delete_records(self, partition: TopicPartition, offset: int) -> int:
        with _errors():
            return self._admin.delete_records({partition: offset})[partition]

    def list_offset(self, partition: TopicPartition, spec: int) -> tuple[int, int]:
        with _errors():
            found = self._admin.list_offsets({partition: spec})[partition]
        return found.offset, found.timestamp

    def compact(self, topic: str, remaining: int) -> None:
        maintain_now(self._cluster, topic)

    def groups(self) -> list[str]:
        return self._admin.list_groups()

    def group_state(self, group: str) -> tuple[str, int]:
        with _errors():
            [found] = self._admin.describe_groups([group])
        return found.state.value, len(found.members)

    def delete_group(self, group: str) -> None:
        with _errors():
            self._admin.delete_groups([group])

    def group_offsets(self, group: str) -> dict[TopicPartition, Committed]:
        with _errors():
            found = self._admin.list_group_offsets(group)
        return {partition: Committed(one.offset, one.metadata) for partition, one in found.items()}

    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        with _errors():
            self._admin.alter_group_offsets(group, {at: OffsetAndMetadata(offset) for at, offset in offsets.items()})

    def open_producer(self, name: str, settings: Mapping[str, str]) -> None:
        with _errors():
            self._producers[name] = Producer(self._cluster, **_settings(settings))

    def send(
        self, producer: str, records: Collection[ToSend], *, lose_answer: bool
    ) -> list[tuple[TopicPartition, int]]:
        client = self._producers[producer]
        self._loses_answer = lose_answer
        with _errors():
            futures = [
                client.send(one.topic, one.value, one.key, one.headers, one.partition, one.timestamp_ms)
                for one in records
            ]
            client.flush(30)
            found = [future.get(60) for future in futures]
        if self._loses_answer:
            raise AssertionError("no answer was lost")
        return [(one.topic_partition, one.offset) for one in found]

    def init_transactions(self, producer: str) -> None:
        with _errors():
            self._producers[producer].init_transactions()

    def begin(self, producer: str) -> None:
        with _errors():
            self._producers[producer].begin_transaction()

    def outlast(self, transaction_timeout_ms: int) -> None:
        time.sleep(transaction_timeout_ms / 1000 + 0.05)

    def commit_transaction(self, producer: str) -> None:
        with _errors():
            self._producers[producer].commit_transaction()

    def abort(self, producer: str) -> None:
        with _errors():
            self._producers[producer].abort_transaction()

    def send_offsets(self, producer: str, consumer: str, offsets: Mapping[TopicPartition, int]) -> None:
        with _errors():
            self._producers[producer].send_offsets_to_transaction(
                {at: OffsetAndMetadata(offset) for at, offset in offsets.items()},
                self._consumers[consumer].group_metadata(),
            )

    def close_producer(self, producer: str) -> None:
        with _errors():
            self._producers.pop(producer).close()

    def read(self, topic: str, isolation: str) -> list[Seen]:
        with Consumer(cluster=self._cluster, auto_offset_reset="earliest", isolation_level=isolation) as consumer:
            numbers = consumer.partitions_for_topic(topic)
            if numbers is None:
                raise PlayedError("UNKNOWN_TOPIC_OR_PARTITION")
            partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            found: list[Seen] = []
            with _errors():
                while any(consumer.position(partition) < end for partition, end in ends.items()):
                    found += _seen(consumer.poll(1000))
            return found

    def open_consumer(self, name: str, settings: Mapping[str, str]) -> None:
        with _errors():
            chosen = _settings({**QUICK, "enable.auto.commit": "false", **settings})
            self._consumers[name] = Consumer(cluster=self._cluster, **chosen)

    def assign(self, consumer: str, partitions: Mapping[TopicPartition, int | None]) -> None:
        with _errors():
            self._consumers[consumer].assign(list(partitions))
            for partition, offset in partitions.items():
                if offset is not None:
                    self._consumers[consumer].seek(partition, offset)

    def subscribe(self, consumer: str, topics: Collection[str], listener: Listener | None = None) -> None:
        with _errors():
            told = None if listener is None else _Told(listener)
            self._consumers[consumer].subscribe(list(topics), listener=told)

    def unsubscribe(self, consumer: str) -> None:
        with _errors():
            self._consumers[consumer].unsubscribe()

    def assignment(self, consumer: str) -> set[TopicPartition]:
        return self._consumers[consumer].assignment()

    def poll(self, consumer: str, timeout_ms: float, max_records: int) -> list[Seen]:
        with _errors():
            return _seen(self._consumers[consumer].poll(timeout_ms, max_records))

    def commit(self, consumer: str, offsets: Mapping[TopicPartition, Committed] | None) -> None:
        wanted = None
        if offsets is not None:
            wanted = {at: OffsetAndMetadata(one.offset, one.metadata) for at, one in offsets.items()}
        with _errors():
            self._consumers[consumer].commit(wanted)

    def committed(self, consumer: str, partition: TopicPartition, timeout_ms: float) -> Committed | None:
        with _errors():
            found = self._consumers[consumer].committed(partition, metadata=True, timeout_ms=timeout_ms)
        return None if found is None else Committed(found.offset, found.metadata)

    def position(self, consumer: str, partition: TopicPartition) -> int:
        with _errors():
            return self._consumers[consumer].position(partition)

    def seek(self, consumer: str, partition: TopicPartition, offset: int) -> None:
        client = self._consumers[consumer]
        with _errors():
            if offset >= 0:
                client.seek(partition, offset)
            else:
                (client.seek_to_end if offset == -1 else client.seek_to_beginning)(partition)

    def pause(self, consumer: str, partition: TopicPartition) -> None:
        with _errors():
            self._consumers[consumer].pause(partition)

    def resume(self, consumer: str, partition: TopicPartition) -> None:
        with _errors():
            self._consumers[consumer].resume(partition)

    def close_consumer(self, consumer: str) -> None:
        with _errors():
            self._consumers.pop(consumer).close()

    def _loses(self, call: Call) -> bool:
        """Whether the answer to this commit is lost: of the next, once it is asked for."""
        loses, self._loses_answer = self._loses_answer, False
        return loses

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        for producer in self._producers.values():
            producer.close()
        self._admin.close()


class _Told(ConsumerRebalanceListener):
    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._listener.assigned(assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._listener.revoked(revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._listener.lost(lost)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except SparklogError as error:
        raise PlayedError(kafka_name(error)) from error


def kafka_name(error: SparklogError) -> str:
    """``UnknownMemberIdError`` is UNKNOWN_MEMBER_ID."""
    name = type(error).__name__
    return NAMES.get(name) or re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix("Error")).upper()


def _settings(settings: Mapping[str, str]) -> dict[str, Any]:
    kinds: dict[str, Callable[[str], Any]] = {"true": lambda _: True, "false": lambda _: False}
    found: dict[str, Any] = {}
    for name, text in settings.items():
        value = kinds[text](text) if text in kinds else int(text) if re.fullmatch(r"-?\d+", text) else text
        found[name.replace(".", "_")] = value
    return found


def _setting_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _seen(found: Mapping[TopicPartition, Collection[Any]]) -> list[Seen]:
    return [
        Seen(
            partition,
            one.offset,
            one.key,
            one.value,
            list(one.headers),
            one.timestamp,
            one.timestamp_type == LOG_APPEND_TIME,
        )
        for partition, records in found.items()
        for one in records
    ]
