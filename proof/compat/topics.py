"""What the suites' tests do by librdkafka beside the clients that they show: topics, records, offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Event, Thread

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, OffsetSpec

from proof.compat.processes import NotShownError

__all__ = [
    "commit_offsets",
    "committed_offsets",
    "create_topics",
    "end_offsets",
    "produce",
    "records_of",
    "set_config",
    "topic_config",
    "writing_beside",
]

_WAIT_S = 60
_PAUSE_S = 0.02


def create_topics(servers: str, names: Iterable[str], partitions: int, config: Mapping[str, str] | None = None) -> None:
    """Create topics."""
    new = [NewTopic(name, partitions, 1, config=dict(config or {})) for name in names]
    admin = _admin(servers)
    for future in admin.create_topics(new).values():
        future.result(_WAIT_S)


def produce(servers: str, topic: str, records: Iterable[tuple[int, str, str]]) -> None:
    """Produce records of ``(partition, key, value)``. Raises :class:`NotShownError`: not all were acknowledged."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20})
    for partition, key, value in records:
        producer.produce(topic, value, key, partition)
        producer.poll(0)
    left = producer.flush(_WAIT_S)
    if left:
        raise NotShownError(f"{left} records for {topic} weren't acknowledged within {_WAIT_S} s")


def records_of(servers: str, topic: str, begin: Iterable[int] = ()) -> list[Message]:
    """The committed records of a topic, from its beginning, or from an offset of each partition, to its end.

    Raises :class:`NotShownError`."""
    settings: dict[str, object] = {"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False}
    settings |= {"isolation.level": "read_committed", "enable.partition.eof": True}
    found: list[Message] = []
    deadline = time.monotonic() + _WAIT_S
    with _consumer(settings) as consumer:
        partitions = range(_partition_count(consumer, topic))
        from_offset = list(begin) or [0] * len(partitions)
        consumer.assign([TopicPartition(topic, one, from_offset[one]) for one in partitions])
        ended: set[int] = set()
        while len(ended) < len(partitions):
            if time.monotonic() > deadline:
                raise NotShownError(f"the end of {topic} wasn't read within {_WAIT_S} s: {len(found)} records")
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(error)
    return found


def end_offsets(servers: str, topic: str) -> list[int]:
    """Where each partition ends."""
    admin = _admin(servers)
    partitions = [TopicPartition(topic, one) for one in range(_partition_count(admin, topic))]
    asked = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()), request_timeout=_WAIT_S)
    return [asked[one].result(_WAIT_S).offset for one in partitions]


def committed_offsets(servers: str, group: str, topic: str) -> list[int]:
    """What a group has committed for partitions of a topic, in their order."""
    admin = _admin(servers)
    asked = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked], request_timeout=_WAIT_S)[group].result(_WAIT_S)
    at = sorted((one.partition, one.offset) for one in found.topic_partitions if one.topic == topic)
    return [offset for _, offset in at]


def commit_offsets(servers: str, group: str, topic: str, offsets: Iterable[int]) -> None:
    """Commit an offset of each partition for a group without members."""
    admin = _admin(servers)
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
    asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])
    for one in asked[group].result(_WAIT_S).topic_partitions:
        if one.error:
            raise KafkaException(one.error)


def topic_config(servers: str, topic: str) -> dict[str, str]:
    """The settings of a topic; empty: there is no such topic."""
    admin = _admin(servers)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        found = admin.describe_configs([resource])[resource].result(_WAIT_S)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return {}
        raise
    return {name: entry.value for name, entry in found.items()}


def set_config(servers: str, topic: str, name: str, value: str) -> None:
    """Set a setting of a topic."""
    admin = _admin(servers)
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(_WAIT_S)


@contextmanager
def writing_beside(servers: str, topic: str) -> Iterator[None]:
    """Write records of keys that begin with ``other`` to each partition, all the time, as long as the block lasts.

    Raises :class:`NotShownError` at its end: a record wasn't acknowledged within a minute."""
    stop, waited = Event(), []
    partitions = range(_partition_count(_admin(servers), topic))

    def write() -> None:
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        number = 0
        while not stop.wait(_PAUSE_S):
            for partition in partitions:
                producer.produce(topic, number.to_bytes(8, "big"), f"other-{number % 50}", partition)
            began = time.monotonic()
            left = producer.flush(_WAIT_S)
            waited.append(time.monotonic() - began)
            if left:
                return
            number += 1

    thread = Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if not waited or max(waited) >= _WAIT_S:
        raise NotShownError(f"a record of the other writer wasn't acknowledged within {_WAIT_S} s")


@cache
def _admin(servers: str) -> AdminClient:
    """Kept to the end: librdkafka ends the process where a client is freed by a thread of its own, by a late answer."""
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})  # of gateways that have ended it would tell


@contextmanager
def _consumer(settings: dict[str, object]) -> Iterator[Consumer]:
    consumer = Consumer(settings)
    try:
        yield consumer
    finally:
        consumer.close()


def _partition_count(client: Consumer | AdminClient, topic: str) -> int:
    deadline = time.monotonic() + _WAIT_S
    while True:
        found = client.list_topics(topic, _WAIT_S).topics[topic]
        if found.error is None and found.partitions:
            return len(found.partitions)
        if time.monotonic() > deadline:
            raise NotShownError(f"there is no topic {topic}")
        time.sleep(0.2)
