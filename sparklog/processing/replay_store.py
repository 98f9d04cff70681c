"""The positions of replays: records of a compacted topic of their own, written by the transaction that sends letters
again (decision 0098).

A group's committed offset can't hold them: its metadata has 4,096 bytes, and it expires after a week.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from sparklog.admin import Admin, NewTopic
from sparklog.consumer import Consumer
from sparklog.errors import CorruptRecordError, KafkaTimeoutError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from sparklog.log import Cluster
from sparklog.model import ConsumerRecord, TopicPartition
from sparklog.processing.replay_position import Ranges, ReplayPosition, chunks_of
from sparklog.producer import Producer

__all__ = ["POSITION_TOPIC", "Place", "ensure_position_topic", "read_positions", "records_of", "send_position"]

POSITION_TOPIC = "replayed-letters"
"""The topic of all groups' positions."""
_FORMAT = 1
_POLL_MS = 1_000.0
_MOST_LOOKS = 60
"""Polls without a record, one after the other."""
_RECORDS_A_POLL = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A partition of a dead-letter topic. A topic that was made again under its name is another one."""

    topic: str
    topic_id: str
    partition: int


_Key: TypeAlias = tuple[str, int, int]
"""Topic id, partition, and the first offset of a chunk; ``_OFFSET`` for the position's own offset."""
_OFFSET = -1


def ensure_position_topic(cluster: Cluster) -> None:
    """Create the topic unless it is there. Raises as ``Admin.create_topics``."""
    with Admin(cluster) as admin, suppress(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(POSITION_TOPIC, num_partitions=1, configs={"cleanup.policy": "compact"})])


def read_positions(consumer: Consumer, group: str) -> dict[tuple[str, int], ReplayPosition]:
    """The positions of a group, by topic id and partition, as the topic has them.

    Args:
        consumer: reads nothing else meanwhile; its ``isolation_level`` is ``read_committed``.
    Raises:
        CorruptRecordError: a record of the topic is no position, or of a newer format.
        KafkaTimeoutError, StoreError.
    """
    newest: dict[_Key, Ranges] = {}
    with suppress(UnknownTopicOrPartitionError):  # no replay has committed yet
        for records in records_of(consumer, POSITION_TOPIC, most=_RECORDS_A_POLL):
            for record in records:
                key = _key_of(record, group)
                if key is not None and record.value is None:
                    newest.pop(key, None)
                elif key is not None:
                    newest[key] = _ranges_of(record, key[2])
    positions: dict[tuple[str, int], ReplayPosition] = {}
    for (topic_id, partition, _), pairs in sorted(newest.items()):
        position = positions.get((topic_id, partition), ReplayPosition())
        positions[topic_id, partition] = position.with_ranges(pairs)
    return positions


def send_position(
    producer: Producer,
    group: str,
    place: Place,
    *,
    stored: ReplayPosition | None,
    now: ReplayPosition,
    looked_to: int | None,
) -> None:
    """Send what has changed of a position, within the producer's transaction.

    Args:
        stored: the position as the topic has it; None: it has none.
        looked_to: the last offset that was looked at since ``stored``; None: anything may have changed.
    """
    before = stored or ReplayPosition()
    ends = [last for position in (before, now) for _, last in position.ranges[-1:]]
    end = max([now.offset, before.offset, *ends]) if looked_to is None else max(now.offset, looked_to)
    was, is_now = (chunks_of(position, before.offset, end) for position in (before, now))
    key = {"group": group, "topic_id": place.topic_id, "partition": place.partition}
    if stored is None or stored.offset != now.offset:
        producer.send(
            POSITION_TOPIC, _json({"format": _FORMAT, "topic": place.topic, "offset": now.offset}), _json(key)
        )
    for chunk in sorted({*was, *is_now}):
        pairs = is_now.get(chunk)
        if pairs == was.get(chunk):
            continue
        body = None
        if pairs is not None:
            body = _json({"format": _FORMAT, "replayed": [[first - chunk, last - chunk] for first, last in pairs]})
        producer.send(POSITION_TOPIC, body, _json({**key, "from": chunk}))


def records_of(
    consumer: Consumer, topic: str, *, most: int, starts: dict[int, int] | None = None
) -> Iterator[list[ConsumerRecord]]:
    """All records that are in a topic now, partition by partition, in pieces.

    Args:
        consumer: reads nothing else meanwhile.
        most: records of a piece.
        starts: gets the log start of each partition, before its first piece.
    Raises:
        UnknownTopicOrPartitionError, KafkaTimeoutError, StoreError.
    """
    numbers = consumer.partitions_for_topic(topic)
    if numbers is None:
        raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r}")
    partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
    begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    for at in partitions:
        if starts is not None:
            starts[at.partition] = begins[at]
        if begins[at] >= ends[at]:
            continue
        consumer.assign([at])
        consumer.seek(at, begins[at])
        looks = 0
        while consumer.position(at) < ends[at]:
            records = consumer.poll(_POLL_MS, max_records=most).get(at, [])
            now = [record for record in records if record.offset < ends[at]]
            looks = 0 if records else looks + 1
            if looks > _MOST_LOOKS:
                raise KafkaTimeoutError(f"nothing more of {topic}-{at.partition} can be read, up to {ends[at]}")
            if now:
                yield now


def _key_of(record: ConsumerRecord, group: str) -> _Key | None:
    """The key of a position of this group; None: it is another group's, or another program has sent the record."""
    try:
        key = json.loads(record.key or b"")
        if key["group"] != group:
            return None
        return str(key["topic_id"]), int(key["partition"]), int(key.get("from", _OFFSET))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _ranges_of(record: ConsumerRecord, chunk: int) -> Ranges:
    """The offsets that a record of a position says. Raises ``CorruptRecordError``."""
    where = f"the record of topic {POSITION_TOPIC!r} at offset {record.offset}"
    try:
        body = json.loads(record.value)
        if body["format"] != _FORMAT:
            raise CorruptRecordError(f"{where} is of format {body['format']!r}, expected {_FORMAT}: of a newer version")
        if chunk == _OFFSET:
            return ((0, int(body["offset"]) - 1),) if body["offset"] else ()
        return tuple((chunk + int(first), chunk + int(last)) for first, last in body["replayed"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptRecordError(f"{where} is no position of a replay: {error!r}") from error


def _json(body: Iterable[Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
