"""The consumer for asyncio."""

from __future__ import annotations

import asyncio
import logging
import re
import weakref
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa

from sparklog import consumer as sync
from sparklog.aio.call_thread import LoopThread, result_of
from sparklog.aio.listener import OnLoop
from sparklog.aio.reading import Reading
from sparklog.config import ConsumerConfig
from sparklog.consumer.arguments import check_count, check_offset, check_partition, check_partitions, check_timeout
from sparklog.consumer.subscription import EARLIEST, LATEST
from sparklog.errors import IllegalStateError, WakeupError
from sparklog.log import Cluster
from sparklog.metrics import ClientMetrics
from sparklog.model import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from sparklog.paths import check_topic_name

__all__ = ["Consumer"]

_LOGGER = logging.getLogger(__name__)
_CLOSE_MS = 30_000.0
_LONGEST_POLL_MS = 3_600_000.0
T = TypeVar("T")


class Consumer:
    """Reads records of topics, from one event loop. Use it by ``async with``, or by :meth:`start` and :meth:`close`.

    Calls, arguments and errors are those of :class:`sparklog.Consumer`. Calls that wait are awaited; they run one
    after the other, and a poll gives way to all others. If a task is cancelled while it waits for records,
    none is lost: positions move only when the caller gets the records. Any other call continues after a cancellation.

    Args:
        topics: the topics to subscribe to.
        cluster: the cluster's root URI or folder, or an open cluster. :meth:`start` opens it.
        settings: those of :class:`sparklog.Consumer`, including ``storage_options``.
    Raises:
        InvalidConfigurationError: a setting is unknown or not allowed; the message names it.
    """

    def __init__(
        self,
        *topics: str,
        cluster: str | Path | Cluster,
        storage_options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        ConsumerConfig.parse(settings)
        self._prepare(topics, lambda: sync.Consumer(cluster=cluster, storage_options=storage_options, **settings))

    def _prepare(self, topics: tuple[str, ...], make: Callable[[], sync.Consumer]) -> None:
        for topic in topics:
            check_topic_name(topic)
        self._make = make
        self._consumer: sync.Consumer | None = None
        self._thread = LoopThread("consumer", self._wake)
        self._starting: asyncio.Future[sync.Consumer] | None = None
        self._opened: sync.Consumer | None = None
        """The consumer; set by the thread, before the event loop gets it."""
        self._closing: asyncio.Future[None] | None = None
        self._reader: Reading | None = None
        self._at_start: Callable[[sync.Consumer], None] | None = None
        weakref.finalize(self, self._thread.end).atexit = False
        if topics:
            self.subscribe(topics)

    async def start(self) -> None:
        """Open the cluster. A second call does nothing. Raises ``InvalidArgumentError``: no cluster; ``StoreError``."""
        self._thread.bind()
        if self._consumer is not None:
            return
        if self._starting is None or (self._starting.done() and self._starting.exception() is not None):
            self._starting = self._thread.submit(self._open)
        consumer = await result_of(self._starting)
        if self._consumer is None:
            self._consumer, self._reader, at_start = consumer, Reading(consumer, self._thread), self._at_start
            if at_start is not None:
                at_start(consumer)

    def _open(self) -> sync.Consumer:
        self._opened = consumer = self._make()
        return consumer

    # What is read.

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: Any = None,
    ) -> None:
        """Read topics, or those that match a pattern; see :meth:`sparklog.Consumer.subscribe`. Allowed before
        :meth:`start`.

        Args:
            listener: an :class:`~sparklog.aio.AsyncRebalanceListener`, whose methods run on the event loop.
        Raises:
            IllegalStateError: a call of another task is running.
        """
        on_loop = None if listener is None else OnLoop(listener, self._thread)
        self._change(lambda consumer: consumer.subscribe(topics, pattern, on_loop), "subscribe")

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions; see :meth:`sparklog.Consumer.assign`. Allowed before :meth:`start`. To
        read no partitions, await :meth:`unsubscribe`."""
        wanted = check_partitions(partitions)
        if not wanted:
            raise IllegalStateError("assign: no partitions; await unsubscribe() to read nothing")
        self._change(lambda consumer: consumer.assign(wanted), "assign")

    async def unsubscribe(self) -> None:
        """End the subscription or assignment, and leave the group."""
        await self._call(lambda consumer: consumer.unsubscribe())

    def subscription(self) -> set[str] | None:
        """The subscribed topics; None without a subscription."""
        return self._started().subscription()

    def assignment(self) -> set[TopicPartition]:
        """The assigned partitions."""
        return self._started().assignment()

    # Records.

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, Any]:
        """The next records by partition; see :meth:`sparklog.Consumer.poll`. A cancellation loses no record."""
        return await self.getmany(timeout_ms=timeout_ms, max_records=max_records)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, Any]:
        """Poll as :meth:`poll` does. If partitions are named, only their records are returned; the others wait."""
        reading, only = self._reading(), self._only(partitions)
        check_timeout(timeout_ms)
        limit = reading.consumer._runtime.config.max_poll_records if max_records is None else max_records
        check_count("max_records", limit)
        return await reading.records(timeout_ms, limit, only)

    async def poll_batches(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, pa.RecordBatch]:
        """The next records as Arrow data: the fast path; see :meth:`sparklog.Consumer.poll_batches`. If other
        tasks also read from this consumer, they take turns."""
        reading = self._reading()
        check_timeout(timeout_ms)
        if max_records is not None:
            check_count("max_records", max_records)
        return await reading.batches(timeout_ms, max_records)

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        """The next record, of the named partitions if any are named; waits until there is one."""
        reading, only = self._reading(), self._only(partitions)
        record = reading.next_unclaimed(only)
        while record is None:
            record = await reading.next_record(_LONGEST_POLL_MS, only)
        return record

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record. Iteration ends after ``consumer_timeout_ms`` without a record, and when the consumer is
        closed."""
        if self._thread.is_ended:
            raise StopAsyncIteration
        reading = self._reading()
        record = reading.next_unclaimed()
        if record is None:
            try:
                record = await reading.next_record(reading.consumer._runtime.config.consumer_timeout_ms)
            except IllegalStateError:
                if not self._thread.is_ended:
                    raise
        if record is None:
            raise StopAsyncIteration
        return record

    # Positions.

    async def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record; see :meth:`sparklog.Consumer.position`."""
        return await self._call(lambda consumer: consumer.position(partition, timeout_ms))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position; see :meth:`sparklog.Consumer.seek`."""
        check_offset(offset)
        self._started()._runtime.assigned.seek(check_partition(partition), offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Set positions to the log start; by default of all assigned partitions."""
        self._started()._runtime.assigned.seek_to(EARLIEST, check_partitions(partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Set positions to the log end; by default of all assigned partitions."""
        self._started()._runtime.assigned.seek_to(LATEST, check_partitions(partitions))

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until :meth:`resume`."""
        self._started()._runtime.assigned.pause([check_partition(partition) for partition in partitions])

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo :meth:`pause`."""
        reading = self._reading()
        reading.consumer._runtime.assigned.resume([check_partition(partition) for partition in partitions])
        reading.look_again()

    def paused(self) -> set[TopicPartition]:
        """The paused partitions."""
        return self._started().paused()

    def highwater(self, partition: TopicPartition) -> int | None:
        """The log end offset that was read last; None: none yet."""
        return self._started()._runtime.assigned.highwater(check_partition(partition))

    # The log.

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The log start offset of each partition."""
        return await self._call(lambda consumer: consumer.beginning_offsets(partitions, timeout_ms))

    async def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The log end offset of each partition."""
        return await self._call(lambda consumer: consumer.end_offsets(partitions, timeout_ms))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition that isn't older than the given timestamp in ms."""
        return await self._call(lambda consumer: consumer.offsets_for_times(timestamps, timeout_ms))

    async def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of a topic's partitions; None if there is no such topic."""
        return await self._call(lambda consumer: consumer.partitions_for_topic(topic))

    async def topics(self) -> set[str]:
        """The names of all topics of the cluster."""
        return await self._call(lambda consumer: consumer.topics())

    # The group.

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit offsets and wait until they are durable; see :meth:`sparklog.Consumer.commit`. After a
        cancellation the commit continues, and its outcome is unknown."""
        await self._call(lambda consumer: consumer.commit(offsets, timeout_ms))

    async def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> Any:
        """The committed offset of the group in a partition; see :meth:`sparklog.Consumer.committed`."""
        found = await self._call(lambda consumer: consumer.committed(partition, True, timeout_ms))
        return found if metadata or found is None else found.offset

    async def group_metadata(self) -> ConsumerGroupMetadata:
        """The argument for ``Producer.send_offsets_to_transaction``."""
        return await self._call(lambda consumer: consumer.group_metadata())

    def metrics(self) -> dict[str, dict[str, float]]:
        """Kafka's consumer metrics by group and name."""
        return self._started().metrics()

    def _client_metrics(self) -> ClientMetrics:
        """From any thread."""
        client = self._consumer
        if client is None:
            return ClientMetrics(kind="consumer", client_id=None, is_closed=self._thread.is_ended)
        return client._client_metrics()

    # The end.

    async def close(self, timeout_ms: float | None = None) -> None:
        """Close the consumer; see :meth:`sparklog.Consumer.close`. A second call waits for the first one.

        Tasks that wait for records get an ``IllegalStateError``; iterations end.
        """
        await self._end(timeout_ms, auto_commit=True)

    async def _end(self, timeout_ms: float | None, *, auto_commit: bool) -> None:
        check_timeout(0 if timeout_ms is None else timeout_ms)
        bound_ms = _CLOSE_MS if timeout_ms is None else timeout_ms
        self._begin_close(bound_ms, auto_commit=auto_commit)
        if self._closing is None:
            return
        _, late = await asyncio.wait([self._closing], timeout=bound_ms / 1000 + _GRACE_S)
        if late:
            _LOGGER.warning("the consumer was not closed within %g ms; it ends after its current call", bound_ms)
            return
        self._closing.result()

    def _begin_close(self, timeout_ms: float, *, auto_commit: bool) -> None:
        """Have the consumer closed after the calls that are under way, unless that has begun."""
        if self._thread.is_ended:
            return
        if self._reader is not None:
            self._reader.close()
        if self._starting is not None:
            self._closing = self._thread.submit(lambda: self._close(timeout_ms, auto_commit=auto_commit))
        self._thread.end()

    def _close(self, timeout_ms: float, *, auto_commit: bool) -> None:
        if self._opened is not None:
            sync.Consumer._close(self._opened, timeout_ms, auto_commit=auto_commit)

    async def __aenter__(self) -> Any:
        try:
            await self.start()
        except asyncio.CancelledError:
            self._begin_close(0, auto_commit=False)  # what is being opened: nobody leaves a block that wasn't entered
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end(None, auto_commit=kind is None)  # as the synchronous consumer

    # How it is done.

    def _started(self) -> sync.Consumer:
        return self._reading().consumer

    def _reading(self) -> Reading:
        self._thread.bind()
        if self._reader is None:
            raise IllegalStateError("this consumer isn't started: use `async with`, or await start() first")
        return self._reader

    def _only(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition] | None:
        return frozenset(check_partitions(partitions)) if partitions else None

    def _change(self, change: Callable[[sync.Consumer], None], name: str) -> None:
        """Change what is read: now, or at the start."""
        if self._consumer is None:
            self._at_start = change
            return
        if self._thread.pending_count:
            raise IllegalStateError(f"{name}: another task is in a call of this consumer; let it end first")
        change(self._started())

    async def _call(self, function: Callable[[sync.Consumer], T]) -> T:
        consumer = self._started()
        return await self._thread.call(lambda: _patient(lambda: function(consumer)))

    def _wake(self) -> None:
        if self._consumer is not None:
            self._consumer.wakeup()


_GRACE_S = 5.0


def _patient(function: Callable[[], T]) -> T:
    """Make a call again that a wake-up ended which was meant for a poll: each wake-up ends one call at most."""
    while True:
        try:
            return function()
        except WakeupError:
            continue
