"""The producer that users see. Names and settings as kafka-python's; the semantics are Kafka's (docs/semantics.md)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
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
from sparklog.producer.delayed_records import (
    as_cancellation,
    as_delayed,
    delay_pipeline,
    deliver_at_ms,
    serialized_key,
)
from sparklog.producer.forks import ForkedError, end_after_fork
from sparklog.producer.future import FutureBatchMetadata, FutureRecordMetadata, future_of_only_record
from sparklog.producer.interceptors import Interceptors, ProducerRecord
from sparklog.producer.metrics import ProducerMetrics
from sparklog.producer.outcome import Piece
from sparklog.producer.record_arguments import add_first, check_sent_table, packable_record, serialize_record
from sparklog.producer.topic_pipeline import TopicPipeline
from sparklog.producer.topic_pipelines import TopicPipelines
from sparklog.producer.topic_queue import Buffer
from sparklog.producer.transaction_manager import TransactionManager
from sparklog.schemas import plain_fields

__all__ = ["Producer"]

_SENT_AS_THEY_ARE = (bytes, dict, type(None))
"""Types of values that are no dataclass or model, whose fields would have to be taken out."""


class Producer:
    """Sends records to topics of a cluster. Threads may share one; it can't be pickled, nor used after a fork.

    Records are gathered per topic, encoded and committed in the background: ``send`` returns at once, with a future.
    It has two threads for each topic that it sends to; they end with :meth:`close`.
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
            cluster: its root URI or folder, or an open cluster.
            storage_options: access to the store, for its URI.
            settings: Kafka's producer settings with underscores, see docs/semantics.md.
        Raises:
            InvalidConfigurationError: a setting is unknown, not allowed, or contradicts another; names it.
            InvalidArgumentError: there is no cluster.
            StoreError.
        """
        self._config = ProducerConfig.parse(settings)
        self._cluster = (
            cluster
            if isinstance(cluster, Cluster)
            else open_cluster(cluster, storage_options=storage_options, clock=clock, create=False)
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
        *,
        deliver_at: datetime | int | None = None,
    ) -> FutureRecordMetadata:
        """Send a record; returns before it is stored.

        Args:
            value: bytes, or what ``value_serializer`` takes; None is a tombstone. Of a typed topic a dict of its
                schema's fields, which is checked here, or bytes of its ``value.format``, which are when they are sent.
            key: bytes, or what ``key_serializer`` takes; records of one key go to one partition, in order.
            headers: a list of (name, bytes or None).
            partition: chosen by key if None.
            timestamp_ms: now if None.
            deliver_at: a moment with a time zone, or milliseconds since 1970: no consumer sees the record before. It
                waits in ``delayed.<topic>``, as the future's result says, until ``sparklog delayed run`` delivers it.
                The topic must have ``delay=true``.
        Returns:
            A future of :class:`~sparklog.model.RecordMetadata`.
        Raises:
            UnknownTopicOrPartitionError, InvalidTopicError.
            InvalidTypeError: key or value aren't bytes, and no serializer is set; headers of another shape.
            InvalidRecordError: a value that the topic's schema doesn't allow; names field, type and value.
            InvalidArgumentError: a negative timestamp; ``deliver_at`` to a topic that takes none.
            MessageSizeTooLargeError: beyond ``max_request_size`` or the topic's ``max.message.bytes``.
            KafkaTimeoutError: the buffer was full for ``max_block_ms``.
            IllegalStateError: closed, or in a forked child.
        """
        if headers is None and partition is None and timestamp_ms is None and deliver_at is None:
            queue = self._pipelines.plain_queues.get(topic)
            if queue is not None:
                future = queue.add_plain(key, value)
                if future is None and type(value) not in _SENT_AS_THEY_ARE:
                    future = queue.add_plain(key, plain_fields(value) or value)
                if future is not None or (future := add_first(queue, key, value)) is not None:
                    return future
        record, observer = ProducerRecord(topic, value, key, headers, partition, timestamp_ms), self._metrics.observer
        if observer is None:
            return self._send_intercepted(record, deliver_at)
        return observer.send(record, lambda observed: self._send_intercepted(observed, deliver_at))

    def cancel_delayed(self, topic: str, key: Any) -> FutureRecordMetadata:
        """Cancel all records of a key that were sent to a topic with ``deliver_at`` before, and whose time hasn't come.
        None of them is delivered, if this is acknowledged before its time by the mover's clock.

        Raises:
            InvalidTypeError: a key that isn't bytes, also after serializing. InvalidArgumentError, and as :meth:`send`.
        """
        self._check_transaction()
        pipeline = delay_pipeline(self._pipelines, self._cluster, self._pipelines.get(topic).topic)
        record = as_cancellation(serialized_key(key, topic, self._config), pipeline)
        return pipeline.queue.add(record.key, record.value, record.memory_bytes, record.details)

    def send_batch(self, topic: str, table: pa.Table | pa.RecordBatch) -> FutureBatchMetadata:
        """Send the rows of an Arrow table: the fast path. All of it is checked before any of it is sent.

        Args:
            table: columns ``key`` and ``value`` (binary or string; one of them may be missing), and if present
                ``headers`` (list of struct key: string, value: binary), ``timestamp`` (int64 ms or an Arrow timestamp,
                null: now) and ``partition`` (int, null: by key). Serializers, interceptors and partitioner aren't used.
                To a typed topic: the fields of its schema as columns in place of ``value`` (a field of one of the names
                above as ``value_<name>``), or ``value`` as a struct, where null is a tombstone.
        Returns:
            A future of :class:`~sparklog.producer.future.BatchMetadata`. Tables of up to about 6 MiB are committed at
            once, larger ones piece by piece.
        Raises:
            As :meth:`send`, and InvalidArgumentError for columns that are unknown, missing or of a wrong type.
        """
        observer = self._metrics.observer
        if observer is None:
            return self._send_batch(topic, table)
        return observer.send_table(topic, table.num_rows, lambda: self._send_batch(topic, table))

    def _send_batch(
        self, topic: str, table: Any, numbered: ProducerBatch | None = None, *, is_whole: bool = False
    ) -> FutureBatchMetadata:
        """Send one batch of a partition, as its own producer may have ``numbered`` it (rule L15, numbered batches)."""
        self._check_transaction()
        pipeline, now = self._pipelines.get(topic), self._cluster.clock.ticks_ms()
        checked = check_sent_table(table, pipeline.topic, self._now_ms())
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
        """Claim the transactional id: finish what an earlier producer with it left, and fence that producer off. Once,
        before anything else; takes at most ``max_block_ms``.

        Raises:
            IllegalStateError: no ``transactional_id`` is set, or it was called before.
            KafkaTimeoutError, ConcurrentTransactionsError: not done in time; call it again.
            SparklogError: what can't be finished; names it.
        """
        transactions = self._require_transactions("init_transactions")
        with self._metrics.transaction_call("init"):
            transactions.init_transactions()

    def begin_transaction(self) -> None:
        """Begin a transaction: what is sent from now on becomes visible together, or not at all. Costs nothing.

        Raises:
            IllegalStateError: before :meth:`init_transactions`, or one is open.
            TransactionAbortableError: the open one failed: abort it. ProducerFencedError: close this producer.
        """
        transactions = self._require_transactions("begin_transaction")
        with self._metrics.transaction_call("begin"):
            transactions.begin_transaction()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Make a group's offsets part of the transaction: they are committed with it, or not at all.

        Args:
            offsets: of the next record to be read of each partition; the consumer commits nothing itself.
            group_metadata: of the consumer that read them: ``consumer.group_metadata()``, asked for just now.
        Raises:
            CommitFailedError: a partition belongs to another member by now. As any error here, it is to be answered by
                ``abort_transaction``.
            TransactionAbortableError: ``group_metadata`` is of no member, but the group has some.
            KafkaTimeoutError, OffsetMetadataTooLargeError, …
            IllegalStateError: no transaction is open.
            InvalidTypeError, InvalidArgumentError: the transaction stays as it is.
        """
        transactions = self._require_transactions("send_offsets_to_transaction")
        with self._metrics.transaction_call("send-offsets"):
            transactions.send_offsets_to_transaction(offsets, group_metadata)

    def commit_transaction(self) -> None:
        """Commit: once this returns, everything that was sent is visible, and the offsets are committed.

        Raises:
            KafkaTimeoutError: not done in ``max_block_ms``; call it again. As long as nothing is decided, it may be
                aborted as well.
            CommitStateUnknownError: perhaps committed; call it again to find out.
            TransactionAbortableError: a record or an offset couldn't be stored, or somebody has aborted the
                transaction: abort it, then try it all again. TransactionTimedOutError: it was open for too long.
            ProducerFencedError: another producer uses the same transactional id; nothing is committed.
            StorePermissionError, CorruptLogError, …: nothing is decided, and it may be aborted; or it is committed, but
                a topic or a group that it names can't be written: call it again once that is mended.
            IllegalStateError: no transaction is open.
        """
        transactions = self._require_transactions("commit_transaction")
        with self._metrics.transaction_call("commit"):
            transactions.commit_transaction()

    def abort_transaction(self) -> None:
        """Abort: nothing that was sent will ever be visible; the futures fail with ``TransactionAbortedError``.
        Consumers keep their positions: seek them back to the committed offsets.

        Raises:
            InvalidTxnStateError: a commit was begun whose outcome isn't known: only ``commit_transaction`` may follow.
            KafkaTimeoutError, CommitStateUnknownError: call it again.
            ProducerFencedError: another producer uses the same transactional id; it has aborted it.
            IllegalStateError: no transaction is open.
        """
        transactions = self._require_transactions("abort_transaction")
        with self._metrics.transaction_call("abort"):
            transactions.abort_transaction()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was sent before is stored or has failed, and its callbacks have run. Within a
        transaction: until it is uploaded; the callbacks run when the transaction ends.

        Args:
            timeout: seconds; None: as long as it takes, which ``delivery_timeout_ms`` bounds.
        Raises:
            KafkaTimeoutError: not done in ``timeout``; sending goes on.
            IllegalStateError: closed, in a forked child, or called by a callback, which would wait for itself.
        """
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
                raise KafkaTimeoutError(
                    f"flush: records of topic {pipeline.topic.name!r} are not stored after {timeout} s"
                )
        self._metrics.flushed(self._cluster.clock.ticks_ms() - began)

    def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic, as of now.

        Raises ``UnknownTopicOrPartitionError``, ``StoreError``; ``KafkaTimeoutError`` after ``max_block_ms``."""
        pipeline = self._pipelines.get(topic)
        try:
            pipeline.topic.refresh()
        except UnknownTopicOrPartitionError:
            pipeline = self._pipelines.get(topic)  # it was deleted, and perhaps created again
        return set(range(pipeline.topic.partition_count))

    def metrics(self) -> dict[str, dict[str, float]]:
        """Kafka's metrics: group to name to value, over the last 30 to 60 seconds; docs/monitoring.md lists them."""
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
        """Deliver what was sent, then end. An open transaction is aborted. Closing again does nothing but wait for the
        first call, which goes on after an interrupt.

        Args:
            timeout: seconds; what isn't delivered by then fails and is not stored, except that the commit which is
                under way at that moment goes on to its end. None: as long as it takes. A callback can't wait for what
                comes after it: called by one, it is as if 0.
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
        pipeline = self._pipelines.get(record.topic)
        packable = packable_record(record, pipeline.topic, self._config) if due_ms is None else None
        if packable is not None:
            packed = pipeline.queue.add_detailed(*packable)
            if packed is not None:
                if self._interceptors:
                    self._interceptors.watch(packed)
                return packed
        serialized = serialize_record(record, pipeline.topic, self._config, packable)
        if due_ms is not None:
            pipeline = delay_pipeline(self._pipelines, self._cluster, pipeline.topic)
            serialized = as_delayed(serialized, due_ms, pipeline)
        future = pipeline.queue.add(serialized.key, serialized.value, serialized.memory_bytes, serialized.details)
        if self._interceptors:
            self._interceptors.watch(future)
        if self._config.acks == 0:
            return future_of_only_record(serialized.unacknowledged(pipeline.topic.name, self._now_ms()))
        return future

    def _may_wait(self, topic: str) -> bool:
        """May a ``send`` wait: for the topic's opening, or for room? For a caller that must not, as an event loop."""
        largest_bytes = 2 * self._config.max_request_size  # with what a record takes beside its bytes
        return not self._pipelines.is_open(topic) or self._buffer.used_bytes + largest_bytes > self._buffer.limit_bytes

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
