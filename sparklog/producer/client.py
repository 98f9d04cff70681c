"""The producer that users see. Names and settings as kafka-python's; the semantics are Kafka's (docs/semantics.md)."""

from __future__ import annotations

import operator
import os
import threading
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, SupportsIndex

import pyarrow as pa

from sparklog.clock import Clock
from sparklog.config import ProducerConfig
from sparklog.errors import (
    IllegalStateError,
    InvalidArgumentError,
    InvalidTypeError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.interrupts import EventCount, uninterrupted
from sparklog.log import Cluster, open_cluster
from sparklog.model import ConsumerGroupMetadata, Headers, OffsetAndMetadata, TopicPartition
from sparklog.producer.accumulator import Buffer, TopicQueue, memory_bytes
from sparklog.producer.batch import TableBatch, Unacknowledged
from sparklog.producer.future import FutureBatchMetadata, FutureRecordMetadata, first_of
from sparklog.producer.interceptors import Interceptors, ProducerRecord
from sparklog.producer.lane import Lane
from sparklog.producer.metrics import ProducerMetrics
from sparklog.producer.tables import check_table, slices
from sparklog.producer.transactions import Transactions

__all__ = ["Producer"]

_FORKED = (
    "this producer was made before the process was forked, and its threads are not in the child: make a new one there"
)


class Producer:
    """Sends records to topics of a cluster. For several threads; not for pickling, nor for use after a fork.

    Records are gathered per topic, encoded and committed in the background: ``send`` returns at once, with a future.
    There are two threads per topic that is sent to; they live until :meth:`close`.
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
        self._now_ms = self._cluster.clock.now_ms
        self._buffer = Buffer(self._config.buffer_memory)
        self._metrics = ProducerMetrics(self._cluster.clock, self._buffer)
        self._interceptors = Interceptors(self._config.interceptors)
        self._owns_store = not isinstance(cluster, Cluster)
        self._lanes: dict[str, Lane] = {}
        self._plain_queues: dict[str, TopicQueue] = {}
        """Of all lanes, where nothing of the user's is to be called for a record; else of none."""
        self._retired: list[Lane] = []
        """Of topics that were deleted: the last of their records are failing."""
        self._opening: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()
        """By topic; held by the thread that opens it, and awaited by others that send to it."""
        self._ending = threading.Lock()
        """Held for no longer than it takes to change a few attributes."""
        self._callbacks = threading.RLock()
        self._ended: SparklogError | None = None
        self._is_closed = False
        self._closed = EventCount()
        config = self._config
        self._transactions: Transactions | None = None
        if config.transactional_id is not None:
            self._transactions = Transactions(
                self._cluster, config, lanes=self._all_lanes, changed=self._transaction_changed
            )
        self._plain = not (
            config.key_serializer
            or config.value_serializer
            or config.partitioner
            or self._interceptors
            or config.acks == 0
        )
        _LIVE.add(self)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Send a record; returns before it is stored.

        Args:
            value: bytes, or what ``value_serializer`` takes; None is a tombstone.
            key: bytes, or what ``key_serializer`` takes; records of one key go to one partition, in order.
            headers: a list of (name, bytes or None).
            partition: chosen by key if None.
            timestamp_ms: now if None.
        Returns:
            A future of :class:`~sparklog.model.RecordMetadata`.
        Raises:
            UnknownTopicOrPartitionError, InvalidTopicError.
            InvalidTypeError: key or value aren't bytes, and no serializer is set; headers of another shape.
            InvalidArgumentError: a negative timestamp.
            MessageSizeTooLargeError: beyond ``max_request_size`` or the topic's ``max.message.bytes``.
            KafkaTimeoutError: the buffer was full for ``max_block_ms``.
            IllegalStateError: closed, or in a forked child.
        """
        if headers is None and partition is None and timestamp_ms is None:
            queue = self._plain_queues.get(topic)
            if queue is not None:
                future = queue.add_plain(key, value)
                if future is not None:
                    return future
        record = self._interceptors.on_send(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))
        try:
            return self._send(record)
        except SparklogError as error:
            self._interceptors.on_acknowledgement(None, error)
            raise

    def send_batch(self, topic: str, table: pa.Table | pa.RecordBatch) -> FutureBatchMetadata:
        """Send the rows of an Arrow table: the fast path. All of it is checked before any of it is sent.

        Args:
            table: columns ``key`` and ``value`` (binary or string; one of them may be missing), and if present
                ``headers`` (list of struct key: string, value: binary), ``timestamp`` (int64 ms or an Arrow timestamp,
                null: now) and ``partition`` (int, null: by key). Serializers, interceptors and partitioner aren't used.
        Returns:
            A future of :class:`~sparklog.producer.future.BatchMetadata`. Tables of up to about 6 MiB are committed at
            once, larger ones piece by piece.
        Raises:
            As :meth:`send`, and InvalidArgumentError for columns that are unknown, missing or of a wrong type.
        """
        self._check_transaction()
        lane = self._lane(topic)
        checked = check_table(
            topic,
            table,
            now_ms=self._now_ms(),
            partition_count=lane.partition_count,
            max_record_bytes=lane.max_record_bytes,
        )
        now = self._cluster.clock.ticks_ms()
        batches = [
            TableBatch(topic, piece, created_ticks_ms=now, size_bytes=max(1, piece.nbytes)) for piece in slices(checked)
        ]
        lane.queue.add_tables(batches)
        if self._config.acks == 0:
            return FutureBatchMetadata([Unacknowledged.rows(topic, checked.num_rows)])
        return FutureBatchMetadata(batches)

    def init_transactions(self) -> None:
        """Take hold of the transactional id: finish what an earlier producer with it left, and fence it off. Once,
        before anything else; takes at most ``max_block_ms``.

        Raises:
            IllegalStateError: no ``transactional_id`` is set, or it was called before.
            KafkaTimeoutError, ConcurrentTransactionsError: not done in time; call it again.
            SparklogError: what can't be finished; names it.
        """
        transactions = self._require_transactions("init_transactions")
        self._refuse_in_callback("init_transactions")
        transactions.init()

    def begin_transaction(self) -> None:
        """Begin a transaction: what is sent from now on becomes visible together, or not at all. Costs nothing.

        Raises:
            IllegalStateError: before :meth:`init_transactions`, or one is open.
            TransactionAbortableError: the open one failed: abort it. ProducerFencedError: close this producer.
        """
        transactions = self._require_transactions("begin_transaction")
        self._refuse_in_callback("begin_transaction")
        transactions.begin()

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
        self._refuse_in_callback("send_offsets_to_transaction")
        transactions.send_offsets(offsets, group_metadata)

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
        self._refuse_in_callback("commit_transaction")
        transactions.commit()

    def abort_transaction(self) -> None:
        """Abort: nothing that was sent will ever be visible; the futures fail with ``TransactionAbortedError``.
        Consumers keep their positions: seek back to what is committed.

        Raises:
            InvalidTxnStateError: a commit was begun whose outcome isn't known: only ``commit_transaction`` may follow.
            KafkaTimeoutError, CommitStateUnknownError: call it again.
            ProducerFencedError: another producer uses the same transactional id; it has aborted it.
            IllegalStateError: no transaction is open.
        """
        transactions = self._require_transactions("abort_transaction")
        self._refuse_in_callback("abort_transaction")
        transactions.abort()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was sent before is stored or has failed, and its callbacks have run. Within a
        transaction: until it is uploaded; the callbacks run when the transaction ends.

        Args:
            timeout: seconds; None: as long as it takes, which ``delivery_timeout_ms`` bounds.
        Raises:
            KafkaTimeoutError: not done in ``timeout``; sending goes on.
            IllegalStateError: closed, in a forked child, or called by a callback, which would wait for itself.
        """
        self._raise_if_ended()
        self._refuse_in_callback("flush")
        began = self._cluster.clock.ticks_ms()
        deadline = None if timeout is None else began + timeout * 1000
        lanes = self._all_lanes()
        for lane in lanes:
            lane.finish_by(deadline)
            lane.queue.hurry()
        for lane in lanes:
            if not lane.queue.flush(deadline):
                raise KafkaTimeoutError(f"flush: records of topic {lane.topic!r} are not stored after {timeout} s")
        self._metrics.flushed(self._cluster.clock.ticks_ms() - began)

    def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic, as of now.

        Raises ``UnknownTopicOrPartitionError``, ``StoreError``; ``KafkaTimeoutError`` after ``max_block_ms``."""
        lane = self._lane(topic)
        try:
            lane.refresh()
        except UnknownTopicOrPartitionError:
            lane = self._lane(topic)  # it was deleted, and perhaps created again
        return set(range(lane.partition_count))

    def metrics(self) -> dict[str, dict[str, float]]:
        """Kafka's metrics: group to name to value, over the last 30 to 60 seconds."""
        if isinstance(self._ended, _ForkedError):
            self._raise_if_ended()
        return self._metrics.snapshot(requests_in_flight=sum(lane.in_flight for lane in self._all_lanes()))

    def close(self, timeout: float | None = None) -> None:
        """Deliver what was sent, then end. An open transaction is aborted. Closing again does nothing but wait for the
        first call, which goes on after an interrupt.

        Args:
            timeout: seconds; what isn't delivered by then fails and is not stored, except that the commit which is
                under way at that moment goes on to its end. None: as long as it takes. A callback can't wait for what
                comes after it: called by one, it is as if 0.
        """
        if isinstance(self._ended, _ForkedError):
            return
        if timeout is not None and timeout < 0:
            raise InvalidArgumentError(f"close: timeout={timeout}, expected 0 or more seconds")
        uninterrupted(lambda: self._close(timeout))

    def _close(self, timeout: float | None) -> None:
        closed = IllegalStateError("this producer is closed")
        lanes = self._all_lanes()
        with self._ending:
            is_first, self._ended = self._ended is None, self._ended or closed
        if not is_first:
            if not any(lane.owns_current_thread() for lane in lanes):  # which the first call may wait for
                self._closed.wait_for(lambda: self._is_closed, timeout)
            return
        try:
            self._end(closed, timeout)
        finally:
            self._is_closed = True
            self._closed.notify_all()

    def _end(self, closed: SparklogError, timeout: float | None) -> None:
        lanes = self._all_lanes()
        deadline_s = None if timeout is None else self._cluster.clock.ticks_ms() / 1000 + timeout
        if self._transactions is not None and not any(lane.owns_current_thread() for lane in lanes):
            self._transactions.close(None if deadline_s is None else deadline_s * 1000)
        for lane in lanes:
            lane.finish_by(None if deadline_s is None else deadline_s * 1000)
            lane.end(closed)
        in_callback = any(lane.owns_current_thread() for lane in lanes)
        aborted = KafkaTimeoutError(
            "the producer was closed before the record was stored: "
            + ("by a callback, which can't wait" if in_callback else f"timeout={timeout} s")
        )
        all_joined = True
        for lane in lanes:
            left_s = 0.0 if in_callback else None
            if deadline_s is not None and not in_callback:
                left_s = max(0.0, deadline_s - self._cluster.clock.ticks_ms() / 1000)
            if not lane.join(left_s):
                all_joined = False
                lane.abort(aborted)
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
        if getattr(self, "_ended", True) is None and self._lanes:
            warnings.warn(f"unclosed producer {self!r}: call close()", ResourceWarning, stacklevel=2)

    def _send(self, record: ProducerRecord) -> FutureRecordMetadata:
        topic, config = record.topic, self._config
        self._check_transaction()
        lane = self._lane(topic)
        headers = _check_headers(record.headers)
        key = _to_bytes("key", _serialize(config.key_serializer, topic, headers, record.key))
        value = _to_bytes("value", _serialize(config.value_serializer, topic, headers, record.value))
        header_size = sum(len(name.encode()) + len(data or b"") for name, data in headers) if headers else -1
        size = len(key or b"") + len(value or b"") + max(0, header_size)
        if size > lane.max_record_bytes:
            raise MessageSizeTooLargeError(
                f"a record of {size} bytes for topic {topic!r}: expected at most {lane.max_record_bytes} "
                f"(max_request_size={config.max_request_size}, buffer_memory={config.buffer_memory}, the topic's "
                f"max.message.bytes={lane.max_message_bytes})"
            )
        timestamp_ms = _check_timestamp(record.timestamp_ms)
        partition = record.partition
        if partition is None and config.partitioner is not None:
            partition = self._choose_partition(lane, record, key, value)
        if partition is not None:
            partition = self._check_partition(lane, partition)
        size = memory_bytes(size, headers, timestamp_ms, partition)
        details = None
        if headers or timestamp_ms is not None or partition is not None:
            details = (timestamp_ms, headers or None, header_size, partition)
        future = lane.queue.add(key, value, size, details)
        if self._interceptors:
            self._interceptors.watch(future)
        if config.acks == 0:
            sizes = {"key_size": _size(key), "value_size": _size(value), "header_size": header_size}
            at_ms = self._now_ms() if timestamp_ms is None else timestamp_ms
            return first_of(Unacknowledged.one(topic, timestamp_ms=at_ms, **sizes))
        return future

    def _choose_partition(self, lane: Lane, record: ProducerRecord, key: bytes | None, value: bytes | None) -> int:
        partitions = list(range(lane.partition_count))
        chooser = self._config.partitioner
        method = getattr(chooser, "partition", None)
        if callable(method):  # kafka-python 3
            return method(record.topic, record.key, key, record.value, value, _Partitions(record.topic, partitions))  # type: ignore[no-any-return]
        return chooser(key, partitions, partitions)  # type: ignore[no-any-return]

    def _check_partition(self, lane: Lane, given: object) -> int:
        if isinstance(given, bool) or not isinstance(given, SupportsIndex):
            raise InvalidTypeError(f"partition: got {given!r}, expected int")
        partition = operator.index(given)  # a partitioner may well return numpy's
        if partition >= lane.partition_count:
            lane.refresh()  # it may be new
        if not 0 <= partition < lane.partition_count:
            raise UnknownTopicOrPartitionError(
                f"topic {lane.topic!r} has no partition {partition}; it has 0 to {lane.partition_count - 1}"
            )
        return partition

    def _lane(self, topic: str) -> Lane:
        self._raise_if_ended()
        lane = self._lanes.get(topic)
        if lane is not None and not lane.gone:
            return lane
        return uninterrupted(lambda: self._open_lane(topic))

    def _open_lane(self, topic: str) -> Lane:
        """Open a topic, while other threads may open others."""
        with self._opening_of(topic):
            self._raise_if_ended()
            lane = self._lanes.get(topic)
            if lane is not None and not lane.gone:
                return lane
            if lane is not None:  # deleted; its records have failed, and a new topic may have the name
                lane.end(UnknownTopicOrPartitionError(f"topic {topic!r} was deleted"))
                with self._ending:
                    self._retired = [one for one in (*self._retired, lane) if not one.join(0.0)]
                    del self._lanes[topic]
            lane = Lane(self._cluster, topic, self._config, self._buffer, self._metrics, self._callbacks)
            if self._transactions is not None:
                self._transactions.adopt(lane)
            self._metrics.add_topic(topic)  # only one that is there
            with self._ending:  # close() doesn't wait for a topic that is being opened
                if self._ended is None:
                    self._lanes[topic] = lane
                    if self._transactions is not None:
                        self._transactions.adopt(lane)  # once more: init_transactions may have come in between
                    if self._plain and (self._transactions is None or self._transactions.is_open):
                        self._plain_queues[topic] = lane.queue
                    return lane
            lane.end(self._ended)
            raise self._ended.with_traceback(None)

    def _opening_of(self, topic: str) -> threading.Lock:
        with self._ending:
            return self._opening.setdefault(topic, threading.Lock())

    def _require_transactions(self, what: str) -> Transactions:
        self._raise_if_ended()
        if self._transactions is None:
            raise IllegalStateError(f"{what}: this producer has no transactional_id")
        return self._transactions

    def _check_transaction(self) -> None:
        if self._transactions is not None:
            self._raise_if_ended()
            self._transactions.check_send()

    def _transaction_changed(self, is_open: bool) -> None:
        """Records are sent fast only while a transaction is open."""
        if self._plain:
            lanes = dict(self._lanes)  # another thread may be opening a topic
            self._plain_queues = {topic: lane.queue for topic, lane in lanes.items()} if is_open else {}

    def _all_lanes(self) -> list[Lane]:
        return [*self._retired, *self._lanes.values()]

    def _refuse_in_callback(self, what: str) -> None:
        if any(lane.owns_current_thread() for lane in self._all_lanes()):
            raise IllegalStateError(f"{what} was called by a callback: it would wait for itself")

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise self._ended.with_traceback(None)

    def _after_fork(self) -> None:
        self._ended = _ForkedError(_FORKED)
        for lane in self._all_lanes():
            lane.queue.fail_after_fork(self._ended)
        self._lanes, self._plain_queues, self._retired = {}, {}, []


class _ForkedError(IllegalStateError):
    """Why a producer can't be used in a forked child."""


class _Partitions:
    """What kafka-python's partitioners ask a cluster for."""

    def __init__(self, topic: str, partitions: list[int]) -> None:
        self._topic = topic
        self._partitions = partitions

    def topics(self) -> set[str]:
        return {self._topic}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(self._partitions) if topic == self._topic else None

    available_partitions_for_topic = partitions_for_topic


def _serialize(serializer: Any, topic: str, headers: Headers | None, data: Any) -> Any:
    return data if serializer is None else serializer(topic, headers or [], data)


def _to_bytes(what: str, data: Any) -> bytes | None:
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise InvalidTypeError(
        f"{what}: got {type(data).__name__}, expected bytes or None; set {what}_serializer to send other types"
    )


def _check_headers(headers: object) -> Headers | None:
    if headers is None:
        return None
    if not isinstance(headers, list | tuple):
        raise InvalidTypeError(f"headers: got {type(headers).__name__}, expected a list of (name, bytes or None)")
    for item in headers:
        if not (
            isinstance(item, tuple | list)
            and len(item) == 2
            and isinstance(item[0], str)
            and isinstance(item[1], bytes | None)
            and _is_utf8(item[0])
        ):
            raise InvalidTypeError(f"headers: got {item!r}, expected (name as str of valid Unicode, bytes or None)")
    return [(name, value) for name, value in headers]


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True


def _check_timestamp(given: object) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int):
        raise InvalidTypeError(f"timestamp_ms: got {type(given).__name__}, expected int milliseconds")
    if not 0 <= given < 2**63:
        raise InvalidArgumentError(f"timestamp_ms={given}: expected 0 to 2**63 - 1")
    return given


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


_LIVE: weakref.WeakSet[Producer] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for producer in list(_LIVE):
        producer._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
