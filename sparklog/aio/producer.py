"""The producer for asyncio."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa

from sparklog import producer as sync
from sparklog.aio.call_thread import LoopThread, result_of
from sparklog.aio.send_future import RecordSendFuture, SendFuture, send_future
from sparklog.config import ProducerConfig
from sparklog.errors import IllegalStateError, InvalidArgumentError
from sparklog.log import Cluster
from sparklog.metrics import ClientMetrics
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, RecordMetadata, TopicPartition
from sparklog.producer import BatchMetadata

__all__ = ["Producer"]

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")


class Producer:
    """Sends records to topics, from one event loop. Use it by ``async with``, or by :meth:`start` and :meth:`close`.

    Calls, arguments and errors are those of :class:`sparklog.Producer`; calls that wait are awaited. A call continues
    after a cancellation: its records are sent.

    Args:
        cluster: the cluster's root URI or folder, or an open cluster. :meth:`start` opens it.
        storage_options: credentials and endpoint of the store, if ``cluster`` is a URI.
        settings: those of :class:`sparklog.Producer`.
    Raises:
        InvalidConfigurationError: a setting is unknown or not allowed; the message names it.
    """

    def __init__(
        self, cluster: str | Path | Cluster, *, storage_options: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        ProducerConfig.parse(settings)
        self._prepare(lambda: sync.Producer(cluster, storage_options=storage_options, **settings))

    def _prepare(self, make: Callable[[], sync.Producer]) -> None:
        self._make = make
        self._producer: sync.Producer | None = None
        self._thread = LoopThread("producer")
        self._starting: asyncio.Future[sync.Producer] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._opened: sync.Producer | None = None
        """The producer; set by the thread, before the event loop gets it."""
        self._unseen: _TransactionCall | None = None
        """A call whose caller was cancelled."""
        weakref.finalize(self, self._thread.end).atexit = False

    async def start(self) -> None:
        """Open the cluster. A second call does nothing. With a ``transactional_id`` it does what ``init_transactions``
        does, too.

        Raises:
            InvalidArgumentError: there is no cluster.
            StoreError, KafkaTimeoutError, ConcurrentTransactionsError: call it again.
        """
        self._thread.bind()
        if self._producer is not None:
            return
        if self._starting is None or (self._starting.done() and self._starting.exception() is not None):
            self._starting = self._thread.submit(self._open)
        producer = await result_of(self._starting)
        if self._producer is None:
            self._producer = producer

    def _open(self) -> sync.Producer:
        producer = self._make()
        producer._pipelines.future_type = RecordSendFuture
        if producer._transactions is not None:
            try:
                producer.init_transactions()
            except BaseException:
                producer.close(0)
                raise
        self._opened = producer
        return producer

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        *,
        deliver_at: datetime | int | None = None,
    ) -> SendFuture[RecordMetadata]:
        """Send a record; see :meth:`sparklog.Producer.send`. Returns a future, before the record is stored. Waits only
        while the topic is opened for the first time and while the buffer is full; if it is cancelled meanwhile, the
        record is still sent.
        """
        producer, thread = self._producer, self._thread
        if producer is None or thread.is_ended:
            producer = self._started()
        if not thread.pending_count and deliver_at is None:  # or this would overtake what waits there
            if headers is None and partition is None and timestamp_ms is None:
                queue = producer._pipelines.plain_queues.get(topic)
                sent = None if queue is None else queue.add_plain(key, value)
                if sent is not None:
                    return sent  # type: ignore[return-value] # the type that this client has named
            if not producer._may_wait(topic):
                return send_future(producer.send(topic, value, key, headers, partition, timestamp_ms))
        record = (topic, value, key, headers, partition, timestamp_ms)
        # No lambda: every call would make a cell for each argument that it refers to, whether it comes here or not.
        return send_future(await thread.call(partial(producer.send, *record, deliver_at=deliver_at)))

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        *,
        deliver_at: datetime | int | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is stored; within a transaction, until it is uploaded."""
        return await (await self.send(topic, value, key, headers, partition, timestamp_ms, deliver_at=deliver_at))

    async def cancel_delayed(self, topic: str, key: Any) -> SendFuture[RecordMetadata]:
        """Cancel the delayed records of a key; see :meth:`sparklog.Producer.cancel_delayed`."""
        producer = self._started()
        return send_future(await self._thread.call(lambda: producer.cancel_delayed(topic, key)))

    async def send_batch(self, topic: str, table: pa.Table | pa.RecordBatch) -> SendFuture[BatchMetadata]:
        """Send the rows of an Arrow table; see :meth:`sparklog.Producer.send_batch`. Returns before they are stored."""
        producer = self._started()
        return send_future(await self._thread.call(lambda: producer.send_batch(topic, table)))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all records sent before are stored or have failed; see :meth:`sparklog.Producer.flush`."""
        producer = self._started()
        await self._thread.call(lambda: producer.flush(timeout))

    async def partitions_for(self, topic: str) -> set[int]:
        """The numbers of a topic's partitions; see :meth:`sparklog.Producer.partitions_for`."""
        producer = self._started()
        return await self._thread.call(lambda: producer.partitions_for(topic))

    def metrics(self) -> dict[str, dict[str, float]]:
        """Kafka's metrics by group and name."""
        return self._started().metrics()

    def _client_metrics(self) -> ClientMetrics:
        """From any thread."""
        client = self._producer
        if client is None:
            return ClientMetrics(kind="producer", client_id=None, is_closed=self._thread.is_ended)
        return client._client_metrics()

    async def begin_transaction(self) -> None:
        """Begin a transaction; see :meth:`sparklog.Producer.begin_transaction`. After a cancellation it
        continues, and the next call of this method waits for it."""
        await self._resumable("begin_transaction", self._started().begin_transaction)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Make offsets part of the transaction; see :meth:`sparklog.Producer.send_offsets_to_transaction`."""
        producer = self._started()
        await self._thread.call(lambda: producer.send_offsets_to_transaction(offsets, group_metadata))

    async def commit_transaction(self) -> None:
        """Commit; see :meth:`sparklog.Producer.commit_transaction`. After a cancellation the outcome is unknown: the
        commit continues, and the next call of this method waits for it and returns its outcome."""
        await self._resumable("commit_transaction", self._started().commit_transaction)

    async def abort_transaction(self) -> None:
        """Abort; see :meth:`sparklog.Producer.abort_transaction`. After a cancellation it continues like a commit."""
        await self._resumable("abort_transaction", self._started().abort_transaction)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Producer]:
        """A context manager for a transaction: committed at the end of the block, aborted if the block raises or is
        cancelled, also before it is entered.

        A commit that raises leaves the transaction as it is, since its outcome may be unknown: call
        :meth:`commit_transaction` again, or :meth:`abort_transaction`, as the error says.
        """
        try:
            await self.begin_transaction()
        except asyncio.CancelledError:
            self._abort_begun()
            raise
        try:
            yield self
        except BaseException as error:
            try:
                await self.abort_transaction()
            except Exception as failed:
                raised = type(error).__name__
                _LOGGER.warning("the transaction of a block that raised %s couldn't be aborted: %s", raised, failed)
            raise
        await self.commit_transaction()

    async def close(self, timeout: float | None = None) -> None:
        """Deliver all records that were sent, then end; an open transaction is aborted. A second call waits for the
        first one.

        Args:
            timeout: seconds, also for calls that are running; records that aren't delivered by then fail, as in
                :meth:`sparklog.Producer.close`. None: no bound.
        """
        if timeout is not None and timeout < 0:
            raise InvalidArgumentError(f"close: timeout={timeout}, expected 0 or more seconds")
        self._begin_close(timeout)
        if self._closing is None:
            return
        _, late = await asyncio.wait([self._closing], timeout=None if timeout is None else timeout + _GRACE_S)
        if late:
            _LOGGER.warning("the producer was not closed within %g s; it ends after its current call", timeout)
            return
        self._closing.result()

    def _begin_close(self, timeout: float | None) -> None:
        """Have the producer closed after the calls that are under way, unless that has begun."""
        if self._thread.is_ended:
            return
        if self._starting is not None:
            self._closing = self._thread.submit(lambda: self._close(timeout))
        self._thread.end()

    def _close(self, timeout: float | None) -> None:
        if self._opened is not None:
            self._opened.close(timeout)

    async def __aenter__(self) -> Any:
        try:
            await self.start()
        except asyncio.CancelledError:
            self._begin_close(0)  # what is being opened: nobody leaves a block that wasn't entered
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _started(self) -> sync.Producer:
        self._thread.bind()
        if self._producer is None:
            raise IllegalStateError("this producer isn't started: use `async with`, or await start() first")
        return self._producer

    async def _resumable(self, name: str, function: Callable[[], None]) -> None:
        """Make a call of a transaction; one whose caller was cancelled is joined by the next call of that name."""
        made, self._unseen = self._unseen, None
        if made is None or made.name != name:
            made = _TransactionCall(name, function)
            made.done = self._thread.submit(made)
        try:
            await asyncio.wait([made.done])
        except asyncio.CancelledError:
            self._unseen = made
            raise
        made.done.result()

    def _abort_begun(self) -> None:
        """Have the transaction aborted that is being begun for a block which nobody enters."""
        begun, producer = self._unseen, self._producer
        if self._thread.is_ended or begun is None or producer is None:  # a close aborts it, too
            return
        self._unseen = None

        def abort() -> None:
            if begun.has_succeeded:
                producer.abort_transaction()

        self._thread.submit(abort).add_done_callback(_log_abort)


class _TransactionCall:
    """A call that begins or ends a transaction."""

    done: asyncio.Future[None]

    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self.name = name
        self.has_succeeded = False
        """Set in the thread, before the loop knows how the call ended."""
        self._function = function

    def __call__(self) -> None:
        self._function()
        self.has_succeeded = True


def _log_abort(done: asyncio.Future[None]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        _LOGGER.warning("the transaction of a block that was cancelled at its begin couldn't be aborted: %s", error)


_GRACE_S = 5.0
"""The commit that is under way when time is up goes on to its end."""
