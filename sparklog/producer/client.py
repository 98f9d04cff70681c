"""The producer client. It has kafka-python's names and settings, and Kafka's semantics (docs/semantics.md)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import pyarrow as pa

from sparklog.clock import Clock
from sparklog.config import ProducerConfig
from sparklog.errors import (
    IllegalStateError,
    InvalidArgumentError,
    KafkaTimeoutError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.interrupts import EventCount, uninterrupted
from sparklog.log import Cluster, open_cluster
from sparklog.log.data.producer_batch import ProducerBatch
from sparklog.metrics import ClientMetrics, by_group
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.new_clients import announce
from sparklog.producer.arrow_tables import table_batches
from sparklog.producer.batch import Unacknowledged
from sparklog.producer.buffer import Buffer
from sparklog.producer.delayed_records import deliver_at_ms, serialize_cancellation, serialize_delayed
from sparklog.producer.forks import ForkedError, end_after_fork
from sparklog.producer.future import FutureBatchMetadata, FutureRecordMetadata, future_of_only_record, refuse_callback
from sparklog.producer.interceptors import Interceptors, ProducerRecord
from sparklog.producer.metrics import ProducerMetrics
from sparklog.producer.outcome import Piece
from sparklog.producer.record_arguments import add_first, check_sent_table, packable_record, serialize_record
from sparklog.producer.topic_pipeline import TopicPipeline
from sparklog.producer.topic_pipelines import TopicPipelines
from sparklog.producer.transaction_manager import TransactionManager
from sparklog.schemas import plain_fields

__all__ = ["Producer"]

_SENT_AS_THEY_ARE = (bytes, dict, type(None))
"""Types of values that are sent without conversion; of others, such as dataclasses, the fields are sent."""


class Producer:
    """Sends records to topics of a cluster. Threads may share a producer; it can't be pickled, nor used after a fork.

    Records are gathered per topic, encoded and committed in the background: ``send`` returns a future at once.
    A producer has two threads for each topic that it sends to, 24 at most; they end with :meth:`close`.
    """

    def __init__(
        self,
        cluster: str | Path | Cluster,
        *,
        storage_options: dict[str, Any] | None = None,
        clock: Clock | None = None,
        **settings: object,
    ) -> None:
        """Open a cluster for sending.

        Args:
            cluster: the cluster's root URI or folder, or an open cluster.
            storage_options: credentials and endpoint of the store, if ``cluster`` is a URI.
            settings: Kafka's producer settings with underscores; see :class:`sparklog.config.ProducerConfig`.
        Raises:
            InvalidConfigurationError: a setting is unknown, not allowed, or contradicts another; the message names it.
            InvalidArgumentError: there is no cluster.
            StoreError.
        """
        self._config = ProducerConfig.parse(settings)
        bound_ms = self._config.request_timeout_ms
        self._cluster = (
            cluster
            if isinstance(cluster, Cluster)
            else open_cluster(cluster, storage_options=storage_options, clock=clock, create=False, timeout_ms=bound_ms)
        )
        if self._cluster.store.is_remote:
            self._config = ProducerConfig.parse(settings, is_remote=True)
        self._now_ms = self._cluster.clock.now_ms
        self._buffer = Buffer(self._config.buffer_memory)
        self._metrics = ProducerMetrics(self._cluster.clock, self._buffer)
        self._interceptors = Interceptors(self._config.interceptors)
        self._owns_store = not isinstance(cluster, Cluster)
        self._pipelines = TopicPipelines(self._cluster, self._config, self._buffer, self._metrics)
        self._is_closed = False
        self._closed = EventCount()
        self._transactions: TransactionManager | None = None
        if self._config.transactional_id is not None:
            self._transactions = self._manage_transactions()
        end_after_fork(self._pipelines)
        announce(self)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        callback: None = None,
        *,
        deliver_at: datetime | int | None = None,
    ) -> FutureRecordMetadata:
        """Send a record. The call returns before the record is stored.

        Args:
            value: bytes, or what ``value_serializer`` takes; None is a tombstone. For a typed topic, a dict of the
                schema's fields, checked by this call, or bytes of its ``value.format``, checked in the background.
            key: bytes, or what ``key_serializer`` takes; records of one key go to one partition, in order.
            headers: a list of (name, bytes or None).
            partition: the partition's number; None: chosen by key.
            timestamp_ms: milliseconds since 1970; None: now.
            deliver_at: a time with a time zone, or milliseconds since 1970, before which no consumer sees the record.
                It waits in ``delayed.<topic>``, which the future's result names, until ``sparklog delayed run``
                delivers it. The topic must have ``delay=true``.
        Returns:
            A future of :class:`~sparklog.model.RecordMetadata`.
        Raises:
            UnknownTopicOrPartitionError, InvalidTopicError.
            InvalidTypeError: key or value aren't bytes without a serializer, headers have another shape, or there is a
                ``callback``: call ``add_callback`` and ``add_errback`` of the future.
            InvalidRecordError: the topic's schema doesn't allow the value; the message names field, type and value.
            InvalidArgumentError: the timestamp is negative, or ``deliver_at`` is set and the topic has no delay.
            MessageSizeTooLargeError: the record exceeds ``max_request_size`` or the topic's ``max.message.bytes``.
            KafkaTimeoutError: the buffer was full for ``max_block_ms``. IllegalStateError: closed, or a fork."""
        if headers is None and partition is None and timestamp_ms is None and deliver_at is None and callback is None:
            queue = self._pipelines.plain_queues.get(topic)
            if queue is not None:
                future = queue.add_plain(key, value)
                if future is None and type(value) not in _SENT_AS_THEY_ARE:
                    future = queue.add_plain(key, plain_fields(value) or value)
                if future is not None or (future := add_first(queue, key, value)) is not None:
                    return future
        refuse_callback(callback)
        record, observer = ProducerRecord(topic, value, key, headers, partition, timestamp_ms), self._metrics.observer
        if observer is None:
            return self._send_intercepted(record, deliver_at)
        return observer.send(record, lambda observed: self._send_intercepted(observed, deliver_at))

    def cancel_delayed(self, topic: str, key: Any) -> FutureRecordMetadata:
        """Cancel all records of a key that were sent to a topic with ``deliver_at`` and aren't due yet. A record isn't
        delivered if the cancellation is acknowledged before it is due, by the clock of ``sparklog delayed run``. Raises
        what :meth:`send` does; ``InvalidTypeError`` also where the serialized key isn't bytes."""
        self._check_transaction()
        record, pipeline = serialize_cancellation(self._pipelines, self._cluster, topic, key, self._config)
        return pipeline.queue.add(record.key, record.value, record.memory_bytes, record.details)

    def send_batch(self, topic: str, table: pa.Table | pa.RecordBatch) -> FutureBatchMetadata:
        """Send the rows of an Arrow table: the fast path. All rows are checked before any is sent.

        Args:
            table: columns ``key`` and ``value`` (binary or string; one of them may be missing), and if present
                ``headers`` (list of struct key: string, value: binary), ``timestamp`` (int64 ms or an Arrow timestamp,
                null: now) and ``partition`` (int, null: by key). Serializers, interceptors and partitioner aren't used.
                For a typed topic: the fields of its schema as columns in place of ``value`` (a field with one of the
                names above as ``value_<name>``), or ``value`` as a struct, where null is a tombstone.
        Returns:
            A future of :class:`~sparklog.producer.future.BatchMetadata`. A table of up to about 6 MiB is stored by one
            commit, a larger one by several.
        Raises:
            The errors of :meth:`send`; InvalidArgumentError: a column is unknown, missing or of a wrong type.
        """
        observer = self._metrics.observer
        if observer is None:
            return self._send_batch(topic, table)
        return observer.send_table(topic, table.num_rows, lambda: self._send_batch(topic, table))

    def _send_batch(
        self, topic: str, table: Any, numbered: ProducerBatch | None = None, *, is_whole: bool = False, **came: Any
    ) -> FutureBatchMetadata:
        """Send a batch of a partition, as its own producer may have ``numbered`` or compressed it (``came``)."""
        self._check_transaction()
        pipeline, now = self._pipelines.get(topic), self._cluster.clock.ticks_ms()
        checked = check_sent_table(table, pipeline.topic, self._now_ms(), **came)
        batches = table_batches(topic, checked, pipeline.topic.value_encoding, now_ticks_ms=now, is_whole=is_whole)
        if is_whole or numbered is not None:
            batches[0].pieces = [Piece(batches[0].count, numbered)]
        pipeline.queue.add_tables(batches)
        if self._config.acks == 0:
            return FutureBatchMetadata([Unacknowledged.of_rows(topic, checked.num_rows)])
        return FutureBatchMetadata(batches)

    def _try_send_rows(
        self, topic: str, rows: pa.Table, pieces: Sequence[Piece], **checked: int
    ) -> FutureBatchMetadata | None:
        """Do what :meth:`_send_batch` does, if that can't wait; see :meth:`TopicPipeline.try_add_rows`."""
        pipeline = self._pipelines.opened(topic)
        return None if pipeline is None else pipeline.try_add_rows(rows, pieces, **checked)

    def init_transactions(self) -> None:
        """Take the transactional id: fence an earlier producer that has it, and finish its transactions. Must be called
        once, before any other call; takes at most ``max_block_ms``.

        Raises:
            IllegalStateError: no ``transactional_id`` is set, or it was called before.
            KafkaTimeoutError, ConcurrentTransactionsError: it wasn't done in time; call it again.
            SparklogError: an earlier transaction can't be finished; the message names the cause.
        """
        transactions = self._require_transactions("init_transactions")
        with self._metrics.transaction_call("init"):
            transactions.init_transactions()

    def begin_transaction(self) -> None:
        """Begin a transaction: records sent from now on become visible together, or not at all. Rarely sends a request.

        Raises:
            IllegalStateError: :meth:`init_transactions` wasn't called, or a transaction is open.
            TransactionAbortableError: the open transaction failed: abort it. ProducerFencedError: close this producer.
        """
        transactions = self._require_transactions("begin_transaction")
        with self._metrics.transaction_call("begin"):
            transactions.begin_transaction()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Make a group's offsets part of the transaction: they are committed with it, or not at all.

        Args:
            offsets: the offset of the next record to read in each partition; the consumer itself must not commit.
            group_metadata: ``consumer.group_metadata()`` of the consumer that read the records, called just before.
        Raises:
            CommitFailedError: a partition belongs to another member by now. After this error, as after any other here,
                call ``abort_transaction``.
            TransactionAbortableError: ``group_metadata`` isn't that of a member, but the group has members.
            KafkaTimeoutError, OffsetMetadataTooLargeError, …
            IllegalStateError: no transaction is open.
            InvalidTypeError, InvalidArgumentError: an argument isn't allowed; the transaction isn't changed.
        """
        transactions = self._require_transactions("send_offsets_to_transaction")
        with self._metrics.transaction_call("send-offsets"):
            transactions.send_offsets_to_transaction(offsets, group_metadata)

    def commit_transaction(self) -> None:
        """Commit the transaction. When this returns, all its records are visible, and its offsets are committed.

        Raises:
            KafkaTimeoutError: not done in ``max_block_ms``; call it again. As long as nothing is decided, the
                transaction may also be aborted.
            CommitStateUnknownError: the outcome is unknown; call it again to learn it.
            TransactionAbortableError: a record or an offset couldn't be stored, or the transaction was aborted from
                outside: abort it, then repeat all of it. TransactionTimedOutError: it was open for too long.
            ProducerFencedError: another producer uses the same transactional id; nothing is committed.
            StorePermissionError, CorruptLogError, …: either nothing is decided, and the transaction may be aborted; or
                it is committed, but a topic or group of it can't be written: call it again once that is repaired.
            IllegalStateError: no transaction is open.
        """
        transactions = self._require_transactions("commit_transaction")
        with self._metrics.transaction_call("commit"):
            transactions.commit_transaction()

    def abort_transaction(self) -> None:
        """Abort the transaction: none of its records becomes visible; their futures fail with
        ``TransactionAbortedError``. Consumers keep their positions: seek them back to the committed offsets.

        Raises:
            InvalidTxnStateError: the outcome of a commit is unknown: only ``commit_transaction`` may follow.
            KafkaTimeoutError, CommitStateUnknownError: call it again. IllegalStateError: no transaction is open.
            ProducerFencedError: another producer uses the same transactional id, and has aborted the transaction.
        """
        transactions = self._require_transactions("abort_transaction")
        with self._metrics.transaction_call("abort"):
            transactions.abort_transaction()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records sent before are stored or have failed, and their callbacks have run. Within a
        transaction, wait until they are uploaded; their callbacks run when the transaction ends.

        Args:
            timeout: seconds; None: no bound but ``delivery_timeout_ms``.
        Raises:
            KafkaTimeoutError: not done within ``timeout``; the records are still being sent.
            IllegalStateError: the producer is closed, this process is a forked child, or a callback called flush."""
        self._pipelines.raise_if_ended()
        self._refuse_in_callback("flush")
        began = self._cluster.clock.ticks_ms()
        deadline = self._cluster.clock.deadline_in(None if timeout is None else timeout * 1000)
        pipelines = self._pipelines.all()
        for pipeline in pipelines:
            pipeline.topic.finish_by(deadline)
            pipeline.queue.begin_flush()
        for pipeline in pipelines:
            if not pipeline.queue.flush(deadline):
                name = pipeline.topic.name
                raise KafkaTimeoutError(f"flush: records of topic {name!r} are not stored after {timeout} s")
        self._metrics.flushed(self._cluster.clock.ticks_ms() - began)

    def partitions_for(self, topic: str) -> set[int]:
        """The numbers of a topic's partitions, read from the store.

        Raises ``UnknownTopicOrPartitionError``, ``StoreError``; ``KafkaTimeoutError`` after ``max_block_ms``."""
        pipeline = self._pipelines.get(topic)
        try:
            pipeline.topic.refresh()
        except UnknownTopicOrPartitionError:
            pipeline = self._pipelines.get(topic)  # it was deleted, and perhaps created again
        return set(range(pipeline.topic.partition_count))

    def _topic_id(self, topic: str) -> str:
        """The id of the topic that records go to now, read from the store. Raises as :meth:`partitions_for`."""
        self.partitions_for(topic)
        return self._pipelines.get(topic).topic.topic_id

    def open_topics(self, topics: Iterable[str]) -> None:
        """Open topics side by side: the first ``send`` to each doesn't wait for it then. Raises what that would."""
        self._pipelines.open_all(topics)

    def metrics(self) -> dict[str, dict[str, float]]:
        """Kafka's metrics of the last 30 to 60 seconds, by group and name; docs/monitoring.md lists them."""
        if isinstance(self._pipelines.ended, ForkedError):
            self._pipelines.raise_if_ended()
        return by_group(self._client_metrics().groups)

    def _client_metrics(self) -> ClientMetrics:
        in_flight_count = sum(pipeline.in_flight_count for pipeline in self._pipelines.all())
        return ClientMetrics(
            kind="producer",
            client_id=self._config.client_id,
            is_closed=self._is_closed or isinstance(self._pipelines.ended, ForkedError),
            groups=self._metrics.groups(requests_in_flight=in_flight_count, asked=self._cluster.store.counts),
        )

    def close(self, timeout: float | None = None) -> None:
        """Deliver all records that were sent, then end. An open transaction is aborted. A second call only waits for
        the first one, which continues after an interrupt.

        Args:
            timeout: seconds, None: no bound. Records that aren't delivered by then fail and aren't stored, except that
                a commit which is under way at that time continues to its end. In a callback, which can't wait for
                what follows it, the time-out is 0.
        """
        if isinstance(self._pipelines.ended, ForkedError):
            return
        if timeout is not None and timeout < 0:
            raise InvalidArgumentError(f"close: timeout={timeout}, expected 0 or more seconds")
        uninterrupted(lambda: self._close(timeout))

    def _close(self, timeout: float | None) -> None:
        closed = IllegalStateError("this producer is closed")
        in_callback = self._pipelines.owns_current_thread
        if not self._pipelines.mark_ended(closed):
            if not in_callback:  # which the first call may wait for
                self._closed.wait_for(lambda: self._is_closed, timeout)
            return
        try:
            self._end(closed, timeout, in_callback=in_callback)
        finally:
            self._is_closed = True
            self._closed.notify_all()

    def _end(self, closed: SparklogError, timeout: float | None, *, in_callback: bool) -> None:
        deadline = self._cluster.clock.deadline_in(None if timeout is None else timeout * 1000)
        if self._transactions is not None and not in_callback:
            self._transactions.close(deadline)
        aborted = KafkaTimeoutError(
            "the producer was closed before the record was stored: "
            + ("by a callback, which can't wait" if in_callback else f"timeout={timeout} s")
        )
        all_joined = self._pipelines.deliver_and_end(closed, aborted, deadline)
        self._interceptors.close()
        if all_joined and self._owns_store:
            self._cluster.store.close()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Producer can't be pickled: it has threads; make one in each process")

    def __del__(self) -> None:
        pipelines = getattr(self, "_pipelines", None)
        if pipelines is not None and pipelines.ended is None and pipelines.has_open:
            warnings.warn(f"unclosed producer {self!r}: call close()", ResourceWarning, stacklevel=2)

    def _send_intercepted(self, record: ProducerRecord, deliver_at: datetime | int | None) -> FutureRecordMetadata:
        record = self._interceptors.on_send(record)
        try:
            return self._send(record, None if deliver_at is None else deliver_at_ms(deliver_at))
        except SparklogError as error:
            self._interceptors.on_acknowledgement(None, error)
            raise

    def _send(self, record: ProducerRecord, due_ms: int | None) -> FutureRecordMetadata:
        self._check_transaction()
        if due_ms is None:
            pipeline = self._pipelines.get(record.topic)
            packable = packable_record(record, pipeline.topic, self._config)
            packed = None if packable is None else pipeline.queue.add_detailed(*packable)
            if packed is not None:
                if self._interceptors:
                    self._interceptors.watch(packed)
                return packed
            serialized = serialize_record(record, pipeline.topic, self._config, packable)
        else:
            serialized, pipeline = serialize_delayed(self._pipelines, self._cluster, record, due_ms, self._config)
        future = pipeline.queue.add(serialized.key, serialized.value, serialized.memory_bytes, serialized.details)
        if self._interceptors:
            self._interceptors.watch(future)
        if self._config.acks == 0:
            return future_of_only_record(serialized.unacknowledged(pipeline.topic.name, self._now_ms()))
        return future

    def _may_wait(self, topic: str) -> bool:
        """May a ``send`` wait: for the topic's opening, a look at it, or room? For who must not, as an event loop."""
        largest_bytes = 2 * self._config.max_request_size  # with what a record takes beside its bytes
        pipeline = self._pipelines.opened(topic)
        if pipeline is None or pipeline.topic.may_wait_to_look:
            return True
        return self._buffer.used_bytes + largest_bytes > self._buffer.limit_bytes

    def _manage_transactions(self) -> TransactionManager:
        pipelines = self._pipelines
        manager = TransactionManager(
            self._cluster, self._config, uploads=pipelines.transaction_uploads, allow_sending=pipelines.set_plain
        )

        def prepare(pipeline: TopicPipeline) -> None:
            if pipeline.uploads is not None:
                manager.adopt(pipeline.uploads)

        pipelines.restrict(prepare=prepare, takes_records=lambda: manager.is_open)
        return manager

    def _require_transactions(self, call: str) -> TransactionManager:
        self._pipelines.raise_if_ended()
        if self._transactions is None:
            raise IllegalStateError(f"{call}: this producer has no transactional_id")
        self._refuse_in_callback(call)
        return self._transactions

    def _check_transaction(self) -> None:
        if self._transactions is not None:
            self._pipelines.raise_if_ended()
            self._transactions.check_send()

    def _refuse_in_callback(self, call: str) -> None:
        if self._pipelines.owns_current_thread:
            raise IllegalStateError(f"{call} was called by a callback: it would wait for itself")
