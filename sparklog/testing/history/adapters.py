"""sparklog's own clients with a recorder beside them, and the final read of a cluster. Thin: they add no behaviour."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from sparklog.consumer import Consumer, ConsumerRebalanceListener
from sparklog.errors import (
    CommitStateUnknownError,
    KafkaTimeoutError,
    ProducerFencedError,
    SparklogError,
    StoreOutcomeUnknownError,
    TransactionAbortableError,
    TransactionTimedOutError,
)
from sparklog.log import Cluster, TopicFollower
from sparklog.model import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata, RecordMetadata, TopicPartition
from sparklog.producer import Producer
from sparklog.producer.future import FutureRecordMetadata
from sparklog.testing.history.events import Outcome, Source
from sparklog.testing.history.recorder import ConsumerRecorder, ProducerRecorder, Recorder

__all__ = ["Identify", "RecordingConsumer", "RecordingProducer", "record_final", "value_text"]

Identify: TypeAlias = Callable[[Any, Any], str]
"""A function of key and value that distinguishes a record from all others of the history."""

_READ_RECORDS = 100_000


def value_text(key: Any, value: Any) -> str:
    """The value itself, which must be UTF-8."""
    if value is None:
        raise ValueError(f"a tombstone, key={key!r}: give an `identify` that distinguishes it from all others")
    return value.decode() if isinstance(value, bytes) else str(value)


class RecordingProducer:
    """A producer whose sends and transactions are recorded. Several threads may send; their order is kept."""

    def __init__(self, producer: Producer, recorder: ProducerRecorder, *, identify: Identify = value_text) -> None:
        self.producer = producer
        """For what isn't recorded: flush, metrics, …"""
        self.recorder = recorder
        self._identify = identify
        self._sending = threading.Lock()
        self._may_be_committed = False
        """Has a commit of the open transaction been tried whose outcome isn't known?"""

    def send(
        self, topic: str, value: Any = None, key: Any = None, *, source: Source | None = None, **fields: Any
    ) -> FutureRecordMetadata:
        """Call and record :meth:`sparklog.Producer.send`; ``source``: the input that the record was made of."""
        name = self._identify(key, value)
        text = key.decode() if isinstance(key, bytes) else key
        with self._sending:
            self.recorder.send(
                name, topic, fields.get("partition"), key=text, is_tombstone=value is None, source=source
            )
            try:
                future = self.producer.send(topic, value, key, **fields)
            except SparklogError as error:
                self.recorder.failed(name, error)  # it was not taken
                raise

        def acknowledged(metadata: RecordMetadata) -> None:
            self.recorder.acknowledged(name, metadata.topic_partition, metadata.offset)

        def failed(error: SparklogError) -> None:
            is_unknown = isinstance(error, CommitStateUnknownError)
            (self.recorder.unknown if is_unknown else self.recorder.failed)(name, error)

        future.add_callback(acknowledged)
        future.add_errback(failed)
        return future

    def init_transactions(self) -> None:
        """Call and record :meth:`sparklog.Producer.init_transactions`."""
        self.producer.init_transactions()

    def begin_transaction(self) -> str:
        """Call and record :meth:`sparklog.Producer.begin_transaction`; returns the transaction's name in the
        history."""
        self.producer.begin_transaction()
        self._may_be_committed = False
        return self.recorder.begin()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Call and record :meth:`sparklog.Producer.send_offsets_to_transaction`."""
        plain = {partition: committed.offset for partition, committed in offsets.items()}
        self.recorder.send_offsets(group_metadata.group_id, plain)
        self.producer.send_offsets_to_transaction(offsets, group_metadata)

    def commit_transaction(self) -> None:
        """Call and record :meth:`sparklog.Producer.commit_transaction`."""
        self.recorder.ending(is_commit=True)
        try:
            self.producer.commit_transaction()
        except SparklogError as error:
            outcome = _outcome_of(error, self._may_be_committed)
            self._may_be_committed |= outcome is Outcome.UNKNOWN
            self.recorder.ended(outcome, error)
            raise
        self.recorder.ended(Outcome.COMMITTED)

    def abort_transaction(self) -> None:
        """Call and record :meth:`sparklog.Producer.abort_transaction`."""
        self.recorder.ending(is_commit=False)
        try:
            self.producer.abort_transaction()
        except SparklogError as error:
            self.recorder.ended(Outcome.UNKNOWN, error)
            raise
        self.recorder.ended(Outcome.ABORTED)

    def close(self, timeout: float | None = None) -> None:
        """Call and record :meth:`sparklog.Producer.close`."""
        self.producer.close(timeout)


class RecordingConsumer:
    """A consumer whose assignments, polls, seeks and commits are recorded; for one thread.

    The consumer doesn't reveal its ``auto_offset_reset``: where that is ``earliest``, open the recorder with
    ``from_start=True``, or a group that begins too late goes unnoticed.

    What it commits by itself (``enable_auto_commit``), and a reset to another place than it was at, isn't seen.
    """

    def __init__(self, consumer: Consumer, recorder: ConsumerRecorder, *, identify: Identify = value_text) -> None:
        self.consumer = consumer
        """For what isn't recorded: pause, lookups, …"""
        self.recorder = recorder
        self._identify = identify
        self._positions: dict[TopicPartition, int] = {}

    def subscribe(self, topics: Collection[str], listener: ConsumerRebalanceListener | None = None) -> None:
        """Call and record :meth:`sparklog.Consumer.subscribe`; the listener is called after the change was recorded."""
        self.consumer.subscribe(topics, listener=_Listener(self, listener))

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Call and record :meth:`sparklog.Consumer.assign`."""
        before = self.consumer.assignment()
        self.consumer.assign(partitions)
        after = self.consumer.assignment()
        if before - after:
            self._taken(before - after, self.recorder.revoked)
        if after - before:
            self.recorder.assigned(dict.fromkeys(sorted(after - before)))

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Call and record :meth:`sparklog.Consumer.poll`."""
        found = self.consumer.poll(timeout_ms, max_records)
        for partition, records in found.items():
            offsets = [record.offset for record in records]
            values = [self._identify(record.key, record.value) for record in records]
            position = self.consumer.position(partition)
            self.recorder.polled(partition, offsets, values, position)
            self._positions[partition] = position
        return found

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Call and record :meth:`sparklog.Consumer.seek`."""
        self.consumer.seek(partition, offset)
        self.recorder.sought(partition, offset)
        self._positions[partition] = offset

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Call and record :meth:`sparklog.Consumer.seek_to_beginning`."""
        self._seek_to(self.consumer.seek_to_beginning, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Call and record :meth:`sparklog.Consumer.seek_to_end`."""
        self._seek_to(self.consumer.seek_to_end, partitions)

    def seek_to_committed(self) -> None:
        """Seek in each partition that is assigned to what its group has committed, 0 where that is nothing. Raises what
        :meth:`sparklog.Consumer.committed` raises."""
        for partition in sorted(self.consumer.assignment()):
            offset = self.consumer.committed(partition)
            if partition in self.consumer.assignment():
                self.seek(partition, offset or 0)

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions behind what was polled, of the assigned partitions of which something was."""
        return {partition: OffsetAndMetadata(offset) for partition, offset in self._positions.items()}

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None:
        """Call and record :meth:`sparklog.Consumer.commit`; by default :meth:`positions`."""
        wanted = self.positions() if offsets is None else offsets
        if not wanted:
            return
        commit = self.recorder.committing({partition: committed.offset for partition, committed in wanted.items()})
        try:
            self.consumer.commit(wanted)
        except SparklogError as error:
            is_unknown = isinstance(error, (KafkaTimeoutError, StoreOutcomeUnknownError))
            self.recorder.committed(commit, Outcome.UNKNOWN if is_unknown else Outcome.ABORTED, error)
            raise
        self.recorder.committed(commit)

    def note_caught_up(self) -> bool:
        """Record of each assigned partition whose log end the consumer has reached that it has; True: of all, and there
        are some.

        Only after everything has been recovered, and while nothing is sent any more.
        """
        ends = self.consumer.end_offsets(self.consumer.assignment())
        reached = {partition: end for partition, end in ends.items() if self.consumer.position(partition) >= end}
        for partition, position in reached.items():
            self.recorder.caught_up(partition, position)
        return bool(ends) and len(reached) == len(ends)

    def close(self, timeout_ms: float | None = None) -> None:
        """Call and record :meth:`sparklog.Consumer.close`."""
        self.consumer.close(timeout_ms)

    def _seek_to(self, seek: Callable[..., None], partitions: Collection[TopicPartition]) -> None:
        seek(*partitions)
        for partition in partitions or self.consumer.assignment():
            self.recorder.sought(partition, None)
            self._positions.pop(partition, None)

    def _taken(
        self, partitions: Collection[TopicPartition], tell: Callable[[Collection[TopicPartition]], None]
    ) -> None:
        tell(sorted(partitions))
        for partition in partitions:
            self._positions.pop(partition, None)


class _Listener(ConsumerRebalanceListener):
    """Records a change, then calls the application's own listener, which sees the positions before they are gone."""

    def __init__(self, owner: RecordingConsumer, inner: ConsumerRebalanceListener | None) -> None:
        self._owner = owner
        self._inner = inner

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        positions = {partition: self._owner.consumer.position(partition) for partition in sorted(assigned)}
        self._owner.recorder.assigned(positions)
        if self._inner is not None:
            self._inner.on_partitions_assigned(assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        try:
            if self._inner is not None:
                self._inner.on_partitions_revoked(revoked)
        finally:
            self._owner._taken(revoked, self._owner.recorder.revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        try:
            if self._inner is not None:
                self._inner.on_partitions_lost(lost)
        finally:
            self._owner._taken(lost, self._owner.recorder.lost)


def record_final(
    recorder: Recorder,
    cluster: Cluster,
    *,
    topics: Collection[str],
    groups: Collection[str] = (),
    identify: Identify = value_text,
) -> None:
    """Record all that ``topics`` hold, and what ``groups`` have committed of them; everything must be at rest.

    Records are read past the consumer, as the log has them.

    Raises:
        SparklogError: a topic or an offset can't be read.
    """
    partitions = []
    for topic in topics:
        follower = TopicFollower(cluster.topic_log(topic), topic)
        while not follower.caught_up:
            follower.poll()
        for number in range(follower.head.partition_count):
            partitions.append(TopicPartition(topic, number))
            _record_partition(recorder, follower, partitions[-1], identify)
    for group in groups:
        consumer = Consumer(cluster=cluster, group_id=group, enable_auto_commit=False)
        try:
            recorder.final_offsets(group, {partition: consumer.committed(partition) for partition in partitions})
        finally:
            consumer.close()


def _record_partition(
    recorder: Recorder, follower: TopicFollower, partition: TopicPartition, identify: Identify
) -> None:
    start, end = (
        bounds[partition.partition] for bounds in (follower.head.log_start_offsets, follower.head.log_end_offsets)
    )
    offsets: list[int] = []
    values: list[str] = []
    position = start
    while position < end:
        table = follower.read(partition.partition, position, max_records=_READ_RECORDS)
        if not table.num_rows or table["offset"][0].as_py() < position:  # the check reports what is missing
            break
        offsets += table["offset"].to_pylist()
        values += map(identify, table["key"].to_pylist(), table["value"].to_pylist())
        position = offsets[-1] + 1
    recorder.final_read(partition, log_start=start, log_end=end, offsets=offsets, values=values)


def _outcome_of(error: SparklogError, may_be_committed: bool) -> Outcome:
    """The outcome that an error of ``commit_transaction`` stands for: only these make sure that nothing is, or will be,
    committed. A producer that is fenced after an earlier try may have been so by whoever carried that one out."""
    is_fenced = isinstance(error, ProducerFencedError) and not may_be_committed
    is_sure = is_fenced or isinstance(error, (TransactionAbortableError, TransactionTimedOutError))
    return Outcome.ABORTED if is_sure else Outcome.UNKNOWN
