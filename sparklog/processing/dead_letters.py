"""Dead-letter topics: listing their letters, sending them again exactly once, deleting them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any

import pyarrow as pa

from sparklog.admin import Admin
from sparklog.consumer import Consumer
from sparklog.errors import (
    CorruptRecordError,
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTopicError,
    ProducerFencedError,
    SparklogError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import Cluster
from sparklog.log.topic import TopicDescription, delete_records
from sparklog.model import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata, TopicPartition
from sparklog.processing.commits import OF_THE_RECORD
from sparklog.processing.moves import DeadLetter, letter_of
from sparklog.processing.replay_position import IN_TOPIC, ReplayPosition
from sparklog.processing.replay_store import (
    POSITION_TOPIC,
    Place,
    ensure_position_topic,
    read_positions,
    records_of,
    send_position,
)
from sparklog.processing.room import MOST_BYTES, buffer_bytes_for
from sparklog.processing.subscriber import DLQ_PREFIX
from sparklog.processing.transactional_ids import transactional_id_of
from sparklog.producer import FutureRecordMetadata, Producer

__all__ = ["REPLAY_GROUP", "DeadLetterTopic", "Found", "Replay", "dead_letter_topics", "letters_of", "purge", "replay"]
__all__ += ["letter_table"]

REPLAY_GROUP = "dlq-replay"
"""The group in whose name replays remember what was replayed."""
REPLAYED = "__dlq.replayed."
"""Headers of a record that was sent again: ``topic``, ``partition``, ``offset`` of its dead letter."""
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
    positions = _positions(admin.open_cluster(), group, described)
    topics = []
    for each in described:
        own = [at for at in partitions if at.topic == each.name]
        letters = sum(ends[at] - starts[at] for at in own)
        left = sum(_left(positions[at].now, starts[at], ends[at]) for at in own)
        topics.append(DeadLetterTopic(each.name, letters, left))
    return topics


def letters_of(
    cluster: Cluster, topic: str, *, group: str = REPLAY_GROUP, replayed: bool = False
) -> Iterator[list[Found]]:
    """The dead letters that are in a topic now, piece by piece, each of one partition and in its order.

    Args:
        group: in whose name replays remember what was replayed.
        replayed: those that were, too.
    Raises:
        UnknownTopicOrPartitionError, StoreError.
    """
    positions = _positions_in(cluster, group, topic)
    with _reader(cluster) as consumer:
        for records in records_of(consumer, topic, most=_RECORDS_A_TRANSACTION):
            known = positions.get(TopicPartition(topic, records[0].partition))
            position = ReplayPosition() if known is None else known.now
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
        group: in whose name what was replayed is remembered.
        execute: False: only return what would be sent.
    Raises:
        InvalidArgumentError: letters without their values are among them, or without an origin and ``to``.
        InvalidRecordError: a topic refuses a letter; names it.
        CorruptRecordError: what was replayed isn't known: the position's record is missing, or can't be understood.
        ProducerFencedError: another replay of this topic has begun; what this one hasn't sent, that one sends.
        UnknownTopicOrPartitionError, SparklogError.
    """
    if to == topic:
        raise InvalidArgumentError(f"replay: to={to!r} is the dead-letter topic itself")
    if not execute:
        positions = _known(_positions_in(cluster, group, topic), group)
        chosen = [each for piece in _chosen(cluster, topic, wanted, positions, most) for each in piece.chosen]
        _check(chosen, to)
        return Replay(found=chosen, to=_counted(chosen, to), done=False)
    ensure_position_topic(cluster)
    try:
        sent = _send_all(cluster, topic, to, wanted, most, group)
    except ProducerFencedError as error:
        raise ProducerFencedError(
            f"another replay of {topic!r} in the name of {group!r} has begun, and sends what it chooses of the "
            f"letters that this one hasn't sent: {error}"
        ) from error
    return Replay(found=sent, to=_counted(sent, to), done=True)


def purge(admin: Admin, topic: str, *, replayed: bool = False, group: str = REPLAY_GROUP, execute: bool = False) -> int:
    """Delete dead letters, for good. Returns how many offsets that are, or would be.

    Args:
        replayed: only those up to which all were replayed.
    Raises:
        UnknownTopicOrPartitionError: the topic isn't there, or was created again meanwhile: nothing is deleted.
    """
    [described] = admin.describe_topics([topic])
    starts, ends = described.log_start_offsets, list(described.log_end_offsets)
    if replayed:
        positions = _positions(admin.open_cluster(), group, [described])
        ends = [min(end, positions[TopicPartition(topic, number)].now.offset) for number, end in enumerate(ends)]
    below = {number: end for number, end in enumerate(ends) if end > starts[number]}
    if execute and below:
        log = admin.open_cluster().topic_log(topic)
        delete_records(log, topic, below, topic_id=described.topic_id)
    return sum(end - starts[number] for number, end in below.items())


def _send_all(
    cluster: Cluster, topic: str, to: str | None, wanted: Wanted, most: int | None, group: str
) -> list[Found]:
    """Send the letters that :func:`replay` chooses, and keep the position. Returns them."""
    sent: list[Found] = []
    buffer_bytes = buffer_bytes_for(cluster, [topic])
    with Producer(
        cluster,
        transactional_id=transactional_id_of(group, topic),
        max_request_size=MOST_BYTES,
        buffer_memory=buffer_bytes,
    ) as producer:
        producer.init_transactions()  # fences off another replay; from now on no other process moves the position
        positions = _known(_positions_in(cluster, group, topic), group)
        for piece in _chosen(cluster, topic, wanted, positions, most):
            _check(piece.chosen, to)
            if piece.chosen:
                _send(producer, piece, positions[piece.at], to, group)
                positions[piece.at] = changed(positions[piece.at], now=piece.position, stored=piece.position)
                sent += piece.chosen
    return sent


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    """The letters of a partition that were replayed, and where that is stored."""

    place: Place
    now: ReplayPosition
    stored: ReplayPosition | None
    """The position that the topic of positions has; None: it has none."""
    committed: OffsetAndMetadata | None
    """The group's committed offset, which earlier versions had alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Letters of a partition that were looked at together."""

    at: TopicPartition
    chosen: list[Found]
    """The letters that are to be replayed."""
    looked_to: int
    """The last offset."""
    position: ReplayPosition
    """The position once they are."""


def _reader(cluster: Cluster) -> Consumer:
    return Consumer(cluster=cluster, isolation_level="read_committed")


def _positions_in(cluster: Cluster, group: str, topic: str) -> dict[TopicPartition, _Position]:
    with Admin(cluster) as admin:
        try:
            described = admin.describe_topics([topic])
        except UnknownTopicOrPartitionError as error:
            raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r}") from error
        return _positions(cluster, group, described)


def _positions(cluster: Cluster, group: str, topics: Iterable[TopicDescription]) -> dict[TopicPartition, _Position]:
    """The positions of all partitions of these topics."""
    with Admin(cluster) as admin:
        committed = admin.list_group_offsets(group) if group in admin.list_groups() else {}
    with _reader(cluster) as consumer:
        stored = read_positions(consumer, group)
    found: dict[TopicPartition, _Position] = {}
    for topic in topics:
        for number in range(topic.partition_count):
            at, kept = TopicPartition(topic.name, number), stored.get((topic.topic_id, number))
            found[at] = _Position(
                place=Place(topic=topic.name, topic_id=topic.topic_id, partition=number),
                now=ReplayPosition.of(committed.get(at)).joined(kept or ReplayPosition()),
                stored=kept,
                committed=committed.get(at),
            )
    return found


def _known(positions: dict[TopicPartition, _Position], group: str) -> dict[TopicPartition, _Position]:
    """The same. Raises ``CorruptRecordError`` where the group says that ranges are stored which aren't there."""
    for at, each in positions.items():
        if each.stored is None and each.committed is not None and each.committed.metadata == IN_TOPIC:
            raise CorruptRecordError(
                f"which letters of {at.topic}-{at.partition} were replayed isn't known: group {group!r} has committed "
                f"that topic {POSITION_TOPIC!r} has them, which has no record of it. Bring that topic back, or give "
                "another --group: then all letters count as not replayed"
            )
    return positions


def _left(position: ReplayPosition, start: int, end: int) -> int:
    beyond = sum(max(0, min(last, end - 1) - max(first, start) + 1) for first, last in position.ranges)
    return max(0, end - max(start, position.offset) - beyond)


def _chosen(
    cluster: Cluster,
    topic: str,
    wanted: Wanted,
    positions: Mapping[TopicPartition, _Position],
    most: int | None,
) -> Iterator[_Piece]:
    """The letters that are to be replayed, by piece.

    Args:
        positions: those of this moment: the caller moves them on with each piece.
    """
    left, starts, looked = most, dict[int, int](), dict[int, int]()
    with _reader(cluster) as consumer:
        for records in records_of(consumer, topic, most=_RECORDS_A_TRANSACTION, starts=starts):
            at = TopicPartition(topic, records[0].partition)
            if at not in positions:  # it is new: its letters are of the next call
                continue
            _check_same(consumer, positions[at].place)
            since = looked.get(at.partition, starts[at.partition])
            position = positions[at].now.from_log_start(starts[at.partition])
            candidates = [Found(record, letter_of(record)) for record in records if not position.holds(record.offset)]
            chosen = list(wanted(candidates))[:left]
            offsets = [record.offset for record in records]
            after = position.after([each.record.offset for each in chosen], offsets, since=since)
            looked[at.partition] = offsets[-1] + 1
            yield _Piece(at=at, chosen=chosen, looked_to=offsets[-1], position=after)
            if left is not None:
                left -= len(chosen)
                if left <= 0:
                    return


def _check_same(consumer: Consumer, place: Place) -> None:
    """Raise ``UnknownTopicOrPartitionError`` where what is being read is a later topic of the name than ``place``'s."""
    at = TopicPartition(place.topic, place.partition)
    if consumer._runtime.assigned.topic_ids([at]).get(at, place.topic_id) != place.topic_id:
        raise UnknownTopicOrPartitionError(f"topic {place.topic!r} was deleted and created again meanwhile: begin anew")


def _check(chosen: Iterable[Found], to: str | None) -> None:
    for each in chosen:
        if (to or each.letter.origin.topic) == each.record.topic:
            at = f"{each.record.topic}-{each.record.partition}, offset {each.record.offset}"
            raise InvalidArgumentError(
                f"the dead letter {at}, doesn't say where it came from: give --to, or leave it out"
            )
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


def _send(producer: Producer, piece: _Piece, before: _Position, to: str | None, group: str) -> None:
    """Send a piece's letters and their partition's position, in one transaction."""
    producer.begin_transaction()
    counts: dict[str, int] = {}
    sent: list[tuple[Found, FutureRecordMetadata]] = []
    is_ending = False
    try:
        for each in piece.chosen:
            record, letter = each.record, each.letter
            added = {"topic": record.topic, "partition": str(record.partition), "offset": str(record.offset)}
            own = {REPLAYED + name: text.encode() for name, text in added.items()}
            headers = [*(header for header in letter.headers if header[0] not in own), *own.items()]
            topic = to or letter.origin.topic
            try:
                if topic not in counts:  # each look is a request
                    counts[topic] = len(producer.partitions_for(topic))
                partition = letter.origin.partition % counts[topic] if letter.key is None else None
                future = producer.send(topic, value=letter.value, key=letter.key, headers=headers, partition=partition)
            except (*OF_THE_RECORD, InvalidTopicError) as error:
                raise _refused(each, topic, error) from error
            except UnknownTopicOrPartitionError as error:
                raise UnknownTopicOrPartitionError(str(_refused(each, topic, error))) from error
            sent.append((each, future))
        looked_to = piece.looked_to if before.stored == before.now else None
        send_position(producer, group, before.place, stored=before.stored, now=piece.position, looked_to=looked_to)
        producer.send_offsets_to_transaction({piece.at: piece.position.committable}, ConsumerGroupMetadata(group))
        is_ending = True
        producer.commit_transaction()
    except TransactionAbortableError:
        producer.abort_transaction()
        _raise_refused(sent, to)
        raise
    except BaseException:
        if not is_ending:
            producer.abort_transaction()
        raise


def _raise_refused(sent: Iterable[tuple[Found, FutureRecordMetadata]], to: str | None) -> None:
    """Raise ``InvalidRecordError`` for the first letter of an aborted transaction that its topic refuses."""
    for each, future in sent:
        error = future.exception
        if isinstance(error, OF_THE_RECORD):
            raise _refused(each, to or each.letter.origin.topic, error) from error


def _refused(each: Found, topic: str, error: SparklogError) -> InvalidRecordError:
    record = each.record
    return InvalidRecordError(
        f"the dead letter {record.topic}-{record.partition}, offset {record.offset}, can't be sent to topic {topic!r}: "
        f"{error}; nothing polled with it is sent: leave it out"
    )
