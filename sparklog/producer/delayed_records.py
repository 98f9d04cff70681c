"""Records that are to be delivered later: how they wait in their delay topic (decision 0033).

A record for topic T waits in ``delayed.T`` under an id of its own as key; the headers below say what it will be, and
name the id of the topic that it is for: another one of its name never gets it (decision 0099). A record of that id
without a value ends it: it was delivered, or is cancelled.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from sparklog.config import ProducerConfig
from sparklog.errors import (
    CorruptRecordError,
    InvalidArgumentError,
    InvalidTypeError,
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import Cluster, create_topic
from sparklog.log.data.encode import MAX_TIMESTAMP_MS
from sparklog.log.data.schema import HEADERS
from sparklog.log.delay_topics import DELAY_PREFIX
from sparklog.log.topic import alter_topic
from sparklog.model import Headers
from sparklog.producer.interceptors import ProducerRecord
from sparklog.producer.partitioner import murmur2
from sparklog.producer.prepared_batch import refuse
from sparklog.producer.record_arguments import SerializedRecord, serialize_record
from sparklog.producer.record_memory import memory_bytes
from sparklog.producer.topic_pipeline import TopicPipeline
from sparklog.producer.topic_pipelines import TopicPipelines
from sparklog.producer.writable_topic import WritableTopic

__all__ = [
    "DELAY_PREFIX",
    "CancelAll",
    "Ended",
    "ForeignRecordError",
    "Waiting",
    "delay_topic",
    "deliver_at_ms",
    "parse_delayed",
    "serialize_cancellation",
    "serialize_delayed",
]

DELAY_SETTING = "delay"
_OWN = "__delay."
_DUE, _KEY, _PARTITION, _TIMESTAMP = _OWN + "deliver_at", _OWN + "key", _OWN + "partition", _OWN + "timestamp"
_TOMBSTONE, _CANCEL, _TOPIC_ID = _OWN + "tombstone", _OWN + "cancel", _OWN + "topic_id"
_OVERHEAD_BYTES = 65_536
"""How much larger a record may be while it waits: by its headers and its key."""
_CONFIGS = {"cleanup.policy": "compact,delete", "retention.ms": -1, "retention.bytes": -1}
"""Nothing that waits is ever removed for its age; what is done goes by compaction, and by the mover."""


class ForeignRecordError(CorruptRecordError):
    """A record of a delay topic that sparklog didn't write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A record that waits for its time."""

    id: bytes
    deliver_at_ms: int
    """Milliseconds since the epoch."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    """The partition that it was sent to; None: chosen by key when it is delivered."""
    timestamp_ms: int | None
    """The timestamp that it was sent with; None: when it is delivered."""
    topic_id: str | None = None
    """The id of the topic that it was sent to; None: an earlier version sent it, to any topic of the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A record that waited does so no more."""

    id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAll:
    """All records of a key that were there before are cancelled."""

    id: bytes
    key: bytes


def delay_topic(topic: str) -> str:
    """The topic in which records for ``topic`` wait."""
    return DELAY_PREFIX + topic


def deliver_at_ms(moment: object) -> int:
    """A time as milliseconds since the epoch.

    Raises:
        InvalidTypeError: neither an int nor a datetime.
        InvalidArgumentError: a datetime without a time zone; a number that no timestamp has.
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise InvalidArgumentError(f"deliver_at={moment!r} has no time zone: which moment it is isn't known")
        return max(0, round(moment.timestamp() * 1_000))
    if isinstance(moment, bool) or not isinstance(moment, int):
        raise InvalidTypeError(f"deliver_at: got {type(moment).__name__}, expected a datetime, or int milliseconds")
    if not 0 <= moment < 2**63:
        raise InvalidArgumentError(f"deliver_at={moment}: expected 0 to 2**63 - 1 milliseconds since 1970")
    return moment


def _delay_pipeline(pipelines: TopicPipelines, cluster: Cluster, name: str) -> tuple[WritableTopic, TopicPipeline]:
    """A topic as it is now, or was within the last second, and the pipeline of its delay topic, which is created if it
    isn't there.

    Raises:
        InvalidArgumentError: the topic doesn't allow delays. And what opening or creating a topic raises.
    """
    topic = pipelines.get(name).topic
    try:
        topic.refresh_each_second(now=not topic.head.config[DELAY_SETTING])  # nothing else is ever sent there, perhaps
    except UnknownTopicOrPartitionError:
        topic = pipelines.get(name).topic  # it was deleted, and perhaps created again
    if not topic.head.config[DELAY_SETTING]:
        raise InvalidArgumentError(f"topic {name!r} takes no deliver_at: expected its {DELAY_SETTING}=true")
    waits_in = delay_topic(name)
    try:
        pipeline = pipelines.get(waits_in)
        if pipeline.topic.max_message_bytes < _most_bytes(topic):  # its topic takes more than it did
            alter_topic(cluster.topic_log(waits_in), waits_in, {"max.message.bytes": _most_bytes(topic)})
            pipeline.topic.refresh()
        return topic, pipeline
    except UnknownTopicOrPartitionError:
        configs = {**_CONFIGS, "max.message.bytes": _most_bytes(topic)}
        with suppress(TopicAlreadyExistsError):  # by another producer, just now
            count = topic.head.partition_count
            create_topic(cluster.topic_log(waits_in), waits_in, num_partitions=count, configs=configs)
        return topic, pipelines.get(waits_in)


def _most_bytes(topic: WritableTopic) -> int:
    return min(2**31 - 1, topic.max_message_bytes + _OVERHEAD_BYTES)


def serialize_delayed(
    pipelines: TopicPipelines, cluster: Cluster, record: ProducerRecord, due_ms: int, config: ProducerConfig
) -> tuple[SerializedRecord, TopicPipeline]:
    """A record of ``send`` with ``deliver_at`` as it waits, and the pipeline that it goes into. Raises as
    :func:`_delay_pipeline`, :func:`~sparklog.producer.record_arguments.serialize_record` and :func:`_as_delayed`."""
    topic, pipeline = _delay_pipeline(pipelines, cluster, record.topic)
    serialized = serialize_record(record, topic, config)
    return _as_delayed(serialized, due_ms, topic, pipeline, cluster.clock.now_ms()), pipeline


def _as_delayed(
    record: SerializedRecord, due_ms: int, topic: WritableTopic, pipeline: TopicPipeline, now_ms: int
) -> SerializedRecord:
    """The record of a delay topic for one that was serialized for its own topic.

    Raises:
        InvalidTypeError: a value that isn't bytes.
        InvalidArgumentError: a header has one of our names.
        MessageSizeTooLargeError. InvalidRecordError, InvalidTimestampError: its topic would refuse it when it is due.
    """
    timestamp_ms, headers, _, partition, typed = record.details or (None, None, -1, None, None)
    if typed is not None:
        raise InvalidTypeError("deliver_at: the value waits as bytes; encode it in the topic's value.format")
    taken = [name for name, _ in headers or () if name.startswith(_OWN)]
    if taken:
        raise InvalidArgumentError(f"deliver_at: headers {taken}: names that begin with {_OWN!r} are sparklog's own")
    _check(record, timestamp_ms, max(now_ms, due_ms), topic)
    added: Headers = [(_DUE, b"%d" % due_ms), (_TOPIC_ID, topic.topic_id.encode())]
    if record.key is not None:
        added.append((_KEY, record.key))
    if record.value is None:
        added.append((_TOMBSTONE, b""))
    if partition is not None:
        added.append((_PARTITION, b"%d" % partition))
    if timestamp_ms is not None:
        added.append((_TIMESTAMP, b"%d" % timestamp_ms))
    return _record(record.key, record.value or b"", [*(headers or ()), *added], pipeline)


def _check(record: SerializedRecord, timestamp_ms: int | None, delivered_ms: int, topic: WritableTopic) -> None:
    """Raise what the topic would when a record is delivered at a time."""
    at_ms = min(delivered_ms, MAX_TIMESTAMP_MS)
    timestamps = np.array([at_ms if timestamp_ms is None else timestamp_ms], np.int64)
    for error in refuse(
        topic.name, timestamps, pa.array([record.key], pa.binary()), topic.head.config, now_ms=at_ms
    ).values():
        raise error
    encoding = topic.value_encoding
    if encoding is None or record.value is None:
        return
    table = pa.table({"value": pa.array([record.value], pa.binary()), "headers": pa.nulls(1, HEADERS)})
    found = encoding.encode(table, {})
    newer = topic.newer_encoding(encoding, found.unfit) if found.unfit else None
    for error in (found if newer is None else newer.encode(table, {})).refused.values():
        raise error


def serialize_cancellation(
    pipelines: TopicPipelines, cluster: Cluster, topic: str, key: Any, config: ProducerConfig
) -> tuple[SerializedRecord, TopicPipeline]:
    """The record of a delay topic that cancels all of a key which are there before it, and the pipeline for it.

    Raises as :func:`_delay_pipeline`; ``InvalidTypeError``: the key isn't bytes once it is serialized."""
    _, pipeline = _delay_pipeline(pipelines, cluster, topic)
    named = _serialized_key(key, topic, config)
    return _record(named, b"", [(_CANCEL, named)], pipeline), pipeline


def _record(key: bytes | None, value: bytes, headers: Headers, pipeline: TopicPipeline) -> SerializedRecord:
    """Records of one key are in one partition, so that their order is known."""
    own_key = uuid.uuid4().hex.encode()
    chosen = own_key if key is None else key
    partition = (murmur2(chosen) & 0x7FFFFFFF) % pipeline.topic.partition_count
    header_size = sum(len(name) + len(data or b"") for name, data in headers)
    size = len(own_key) + len(value) + header_size
    if size > pipeline.topic.max_message_bytes:  # the producer's own limit is that of the record without our headers
        raise MessageSizeTooLargeError(
            f"a record of {size} bytes for topic {pipeline.topic.name!r}, where it waits: expected at most "
            f"{pipeline.topic.max_message_bytes} by its max.message.bytes"
        )
    details = (None, headers, header_size, partition, None)
    return SerializedRecord(own_key, value, memory_bytes(size, headers, None, partition), details)


def _serialized_key(key: Any, topic: str, config: ProducerConfig) -> bytes:
    """A key as ``send`` would make it. Raises ``InvalidTypeError``: it isn't bytes."""
    made = key if config.key_serializer is None else config.key_serializer(topic, [], key)
    if not isinstance(made, bytes | bytearray | memoryview):
        raise InvalidTypeError(
            f"key: got {type(made).__name__}, expected bytes: a record without a key is cancelled by its id"
        )
    return bytes(made)


def parse_delayed(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]], where: str
) -> Waiting | Ended | CancelAll:
    """A record of a delay topic.

    Args:
        where: names it in errors.
    Raises:
        ForeignRecordError: nobody of ours has written it.
    """
    if key is None:
        raise ForeignRecordError(f"{where} has no key: it is no delayed record")
    if value is None:
        return Ended(id=key)
    own = {name: data for name, data in headers if name.startswith(_OWN) and data is not None}
    if _CANCEL in own:
        return CancelAll(id=key, key=own[_CANCEL])
    try:
        numbers = {name: int(own[name]) for name in (_DUE, _PARTITION, _TIMESTAMP) if name in own}
        due_ms = numbers[_DUE]
    except (KeyError, ValueError) as error:
        raise ForeignRecordError(f"{where} is no delayed record: its header {_DUE} is {own.get(_DUE)!r}") from error
    return Waiting(
        id=key,
        deliver_at_ms=due_ms,
        key=own.get(_KEY),
        value=None if _TOMBSTONE in own else value,
        headers=[(name, data) for name, data in headers if not name.startswith(_OWN)],
        partition=numbers.get(_PARTITION),
        timestamp_ms=numbers.get(_TIMESTAMP),
        topic_id=own[_TOPIC_ID].decode(errors="replace") if _TOPIC_ID in own else None,
    )
