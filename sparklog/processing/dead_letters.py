"""Dead-letter topics: listing their letters, sending them again exactly once, deleting them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparklog.admin import Admin
from sparklog.consumer import Consumer
from sparklog.errors import InvalidArgumentError, KafkaTimeoutError, UnknownTopicOrPartitionError
from sparklog.log import Cluster
from sparklog.model import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata, TopicPartition
from sparklog.processing.moves import DeadLetter, letter_of
from sparklog.processing.replay_position import ReplayPosition
from sparklog.processing.subscriber import DLQ_PREFIX
from sparklog.producer import Producer

__all__ = ["REPLAY_GROUP", "DeadLetterTopic", "Found", "Replay", "dead_letter_topics", "letters_of", "purge", "replay"]
__all__ += ["letter_table"]

REPLAY_GROUP = "dlq-replay"
"""The consumer group whose offsets say what was replayed."""
REPLAYED = "__dlq.replayed."
"""Headers of a record that was sent again: ``topic``, ``partition``, ``offset`` of its dead letter."""
_POLL_MS = 1_000.0
_MOST_LOOKS = 60
"""Polls without a record, one after the other."""
_RECORDS_A_TRANSACTION = 5_000

Wanted = Callable[[list["Found"]], Iterable["Found"]]
"""Chooses among dead letters; keeps their order."""


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    """A dead-letter topic, and its numbers of letters."""

    name: str
    letters: int
    """Offsets from the log start to the log end; compacted or aborted ones among them."""
    not_replayed: int
    """The letters that weren't replayed, at most."""


@dataclass(frozen=True, slots=True)
class Found:
    """A dead letter, and the record that it is."""

    record: ConsumerRecord
    letter: DeadLetter


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The records that a replay sends, or would send."""

    found: list[Found]
    to: Mapping[str, int]
    """Records by topic."""
    done: bool
    """False: it was a dry run."""


def dead_letter_topics(admin: Admin, *, prefix: str = DLQ_PREFIX, group: str = REPLAY_GROUP) -> list[DeadLetterTopic]:
    """The topics whose names begin with ``prefix``, by name."""
    described = admin.describe_topics([name for name in admin.list_topics() if name.startswith(prefix)])
    partitions = [TopicPartition(each.name, number) for each in described for number in range(each.partition_count)]
    starts, ends = admin.beginning_offsets(partitions), admin.end_offsets(partitions)
    committed = _committed(admin, group)
    topics = []
    for each in described:
        own = [at for at in partitions if at.topic == each.name]
        letters = sum(ends[at] - starts[at] for at in own)
        left = sum(_left(ReplayPosition.of(committed.get(at)), starts[at], ends[at]) for at in own)
        topics.append(DeadLetterTopic(each.name, letters, left))
    return topics


def letters_of(
    cluster: Cluster, topic: str, *, group: str = REPLAY_GROUP, replayed: bool = False
) -> Iterator[list[Found]]:
    """The dead letters that are in a topic now, piece by piece, each of one partition and in its order.

    Args:
        group: its offsets say what was replayed.
        replayed: those that were, too.
    Raises:
        UnknownTopicOrPartitionError, StoreError.
    """
    with Admin(cluster) as admin:
        committed = _committed(admin, group)
    for records in _records_of(cluster, topic):
        position = ReplayPosition.of(committed.get(TopicPartition(topic, records[0].partition)))
        yield [Found(each, letter_of(each)) for each in records if replayed or not position.holds(each.offset)]


def letter_table(found: Iterable[Found]) -> pa.Table:
    """Dead letters as Arrow: partition, offset, timestamp, topic, source_partition, source_offset, group_id, attempts,
    exception, message, stacktrace (of the headers), key and value (binary)."""
    listed = list(found)
    columns: dict[str, tuple[list[Any], pa.DataType]] = {
        "partition": ([each.record.partition for each in listed], pa.int32()),
        "offset": ([each.record.offset for each in listed], pa.int64()),
        "timestamp": ([each.record.timestamp for each in listed], pa.timestamp("ms", tz="UTC")),
        "topic": ([each.letter.origin.topic for each in listed], pa.string()),
        "source_partition": ([each.letter.origin.partition for each in listed], pa.int32()),
        "source_offset": ([each.letter.origin.offset for each in listed], pa.int64()),
        "group_id": ([each.letter.group_id for each in listed], pa.string()),
        "attempts": ([each.letter.attempts for each in listed], pa.int32()),
        "exception": ([each.letter.exception for each in listed], pa.string()),
        "message": ([each.letter.message for each in listed], pa.string()),
        "stacktrace": ([each.letter.stacktrace for each in listed], pa.string()),
        "key": ([each.letter.key for each in listed], pa.binary()),
        "value": ([each.letter.value for each in listed], pa.binary()),
    }
    return pa.table({name: pa.array(values, kind) for name, (values, kind) in columns.items()})


def replay(
    cluster: Cluster,
    topic: str,
    *,
    to: str | None = None,
    wanted: Wanted = list,
    most: int | None = None,
    group: str = REPLAY_GROUP,
    execute: bool = False,
) -> Replay:
    """Send dead letters again, each exactly once however often this is called: the position is committed in the
    transaction that sends them. Of two replays at a time one is fenced off.

    Args:
        to: the topic; None: where each came from.
        wanted: chooses which.
        most: replay so many at most.
        group: its offsets say what was replayed.
        execute: False: only return what would be sent.
    Raises:
        InvalidArgumentError: letters without their values are among them; or the position can't hold which were
            replayed.
        ProducerFencedError: another replay of this topic has begun; what this one hasn't sent, that one sends.
        UnknownTopicOrPartitionError, SparklogError.
    """
    if to == topic:
        raise InvalidArgumentError(f"replay: to={to!r} is the dead-letter topic itself")
    with Admin(cluster) as admin:
        if not execute:
            chosen = [
                each for piece in _chosen(cluster, topic, wanted, _committed(admin, group), most) for each in piece[1]
            ]
            _check(chosen)
            return Replay(found=chosen, to=_counted(chosen, to), done=False)
        sent: list[Found] = []
        with Producer(cluster, transactional_id=f"{group}-{topic}") as producer:
            producer.init_transactions()  # fences off another replay; from now on no other process moves the position
            committed = dict(_committed(admin, group))
            for looked, chosen in _chosen(cluster, topic, wanted, committed, most):
                _check(chosen)
                if chosen:
                    at = TopicPartition(topic, chosen[0].record.partition)
                    before = ReplayPosition.of(committed.get(at))
                    now = before.after([each.record.offset for each in chosen], looked).committable
                    _send(producer, chosen, to, {at: now}, group)
                    committed[at] = now
                    sent += chosen
    return Replay(found=sent, to=_counted(sent, to), done=True)


def purge(admin: Admin, topic: str, *, replayed: bool = False, group: str = REPLAY_GROUP, execute: bool = False) -> int:
    """Delete dead letters, for good. Returns how many offsets that are, or would be.

    Args:
        replayed: only those up to which all were replayed.
    """
    [described] = admin.describe_topics([topic])
    partitions = [TopicPartition(topic, number) for number in range(described.partition_count)]
    starts, ends = admin.beginning_offsets(partitions), admin.end_offsets(partitions)
    if replayed:
        committed = _committed(admin, group)
        ends = {at: min(ends[at], ReplayPosition.of(committed.get(at)).offset) for at in partitions}
    below = {at: ends[at] for at in partitions if ends[at] > starts[at]}
    if execute and below:
        admin.delete_records(below)
    return sum(end - starts[at] for at, end in below.items())


def _committed(admin: Admin, group: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
    return admin.list_group_offsets(group) if group in admin.list_groups() else {}


def _left(position: ReplayPosition, start: int, end: int) -> int:
    beyond = sum(max(0, min(last, end - 1) - max(first, start) + 1) for first, last in position.ranges)
    return max(0, end - max(start, position.offset) - beyond)


def _records_of(cluster: Cluster, topic: str) -> Iterator[list[ConsumerRecord]]:
    """All records that are there now, partition by partition."""
    with Consumer(cluster=cluster, isolation_level="read_committed") as consumer:
        numbers = consumer.partitions_for_topic(topic)
        if numbers is None:
            raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r}")
        partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
        starts, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        for at in partitions:
            if starts[at] >= ends[at]:
                continue
            consumer.assign([at])
            consumer.seek(at, starts[at])
            looks = 0
            while consumer.position(at) < ends[at]:
                records = consumer.poll(_POLL_MS, max_records=_RECORDS_A_TRANSACTION).get(at, [])
                now = [record for record in records if record.offset < ends[at]]
                looks = 0 if records else looks + 1
                if looks > _MOST_LOOKS:
                    raise KafkaTimeoutError(f"nothing more of {topic}-{at.partition} can be read, up to {ends[at]}")
                if now:
                    yield now


def _chosen(
    cluster: Cluster,
    topic: str,
    wanted: Wanted,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    most: int | None,
) -> Iterator[tuple[list[int], list[Found]]]:
    """By piece: the offsets of all letters of its partition so far, and those of the piece that are to be replayed."""
    left, looked, partition = most, list[int](), -1
    for records in _records_of(cluster, topic):
        at = TopicPartition(topic, records[0].partition)
        if at.partition != partition:
            looked, partition = [], at.partition
        position = ReplayPosition.of(committed.get(at))
        looked = [each for each in looked if each >= position.offset] + [record.offset for record in records]
        candidates = [Found(record, letter_of(record)) for record in records if not position.holds(record.offset)]
        chosen = list(wanted(candidates))[:left]
        yield looked, chosen
        if left is not None:
            left -= len(chosen)
            if left <= 0:
                return


def _check(chosen: Iterable[Found]) -> None:
    for each in chosen:
        if each.letter.is_value_omitted:
            record = each.record
            raise InvalidArgumentError(
                f"the dead letter {record.topic}-{record.partition}, offset {record.offset}, is without its value, "
                f"which was too large to be moved: send {each.letter.origin} yourself, and leave it out here"
            )


def _counted(found: Iterable[Found], to: str | None) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in found:
        topic = to or each.letter.origin.topic
        counts[topic] = counts.get(topic, 0) + 1
    return counts


def _send(
    producer: Producer,
    chosen: Iterable[Found],
    to: str | None,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: str,
) -> None:
    producer.begin_transaction()
    try:
        for each in chosen:
            record, letter = each.record, each.letter
            added = {"topic": record.topic, "partition": str(record.partition), "offset": str(record.offset)}
            kept = [header for header in letter.headers if not header[0].startswith(REPLAYED)]
            headers = [*kept, *((REPLAYED + name, text.encode()) for name, text in added.items())]
            topic = to or letter.origin.topic
            partition = None
            if letter.key is None:
                partition = letter.origin.partition % len(producer.partitions_for(topic))
            producer.send(topic, value=letter.value, key=letter.key, headers=headers, partition=partition)
        producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(group))
    except BaseException:
        producer.abort_transaction()
        raise
    producer.commit_transaction()
