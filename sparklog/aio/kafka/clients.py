"""aiokafka's producer and consumer: those of :mod:`sparklog.aio` with these names, settings and methods."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from sparklog.aio.consumer import Consumer
from sparklog.aio.kafka.batch_builder import BatchBuilder, FutureFirstRecord
from sparklog.aio.kafka.errors import ConsumerStoppedError
from sparklog.aio.kafka.settings import consumer_configs, producer_configs
from sparklog.aio.producer import Producer
from sparklog.aio.send_future import SendFuture, send_future
from sparklog.config import ConsumerConfig, ProducerConfig
from sparklog.errors import IllegalStateError
from sparklog.kafka import KafkaConsumer, KafkaProducer
from sparklog.kafka.bootstrap import check_root
from sparklog.kafka.errors import IllegalArgumentError
from sparklog.kafka.settings import consumer_settings, producer_settings
from sparklog.model import OffsetAndMetadata, RecordMetadata, TopicPartition

__all__ = ["AIOKafkaConsumer", "AIOKafkaProducer"]

_LOGGER = logging.getLogger(__name__)


class AIOKafkaProducer(Producer):
    """Sends records; other calls are those of :class:`sparklog.aio.Producer`.

    Args:
        bootstrap_servers: root URI of a cluster, or a list of exactly one.
        storage_options: access to its store.
        configs: aiokafka's settings, see docs/asyncio.md.
    Raises:
        KafkaConfigurationError: an unknown setting, or one that isn't allowed; named.
    """

    def __init__(
        self, *, bootstrap_servers: object = None, storage_options: Mapping[str, Any] | None = None, **configs: Any
    ) -> None:
        self._root, found = check_root(bootstrap_servers), producer_configs(configs)
        self._config = ProducerConfig.parse(producer_settings(found))
        self._prepare(
            lambda: KafkaProducer(bootstrap_servers=bootstrap_servers, storage_options=storage_options, **found)
        )

    async def send(  # type: ignore[override] # aiokafka's order of arguments
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> SendFuture[RecordMetadata]:
        """Send a record; see :meth:`sparklog.aio.Producer.send`."""
        return await super().send(topic, value, key, headers, partition, timestamp_ms)

    async def send_and_wait(  # type: ignore[override] # aiokafka's order of arguments
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is stored; within a transaction, until it is uploaded."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    async def send_offsets_to_transaction(self, offsets: Mapping[TopicPartition, Any], group_id: Any) -> None:
        """Make offsets part of the transaction.

        Args:
            offsets: of each partition an offset, a pair of offset and metadata, or ``OffsetAndMetadata``.
            group_id: of the one consumer of this process in that group, or of a group without members; or a consumer's
                ``await group_metadata()``.
        Raises:
            IllegalStateError: several consumers of this process are in the group: give the metadata of one.
        """
        group: Any = group_id
        if isinstance(group_id, str):
            members = [one for one in _CONSUMERS if one._is_in(self._root, group_id)]
            if len(members) > 1:
                raise IllegalStateError(
                    f"send_offsets_to_transaction: {len(members)} consumers of this process are in group {group_id!r}; "
                    "expected the group_metadata() of the one that read the records"
                )
            if members:
                group = await members[0].group_metadata()
        await super().send_offsets_to_transaction(_offsets(offsets), group)

    def create_batch(self) -> BatchBuilder:
        """An empty batch to append records to, for :meth:`send_batch`."""
        return BatchBuilder(self._config)

    async def send_batch(  # type: ignore[override] # aiokafka's arguments
        self, batch: Any, topic: Any, *, partition: int | None = None
    ) -> SendFuture[Any]:
        """Send a batch of :meth:`create_batch` to one partition; or, called with a topic and an Arrow table in this
        order, the table's rows as :meth:`sparklog.aio.Producer.send_batch`.

        Returns:
            A future of where the first record is, ``RecordMetadata``; of a table: ``BatchMetadata``.
        Raises:
            InvalidArgumentError: the batch has no records, or ``partition`` is no number of one.
        """
        if not isinstance(batch, BatchBuilder):
            return await super().send_batch(batch, topic)
        producer, table = self._started(), batch.build(partition)

        def send() -> FutureFirstRecord:
            return FutureFirstRecord(producer.send_batch(topic, table)._batches)

        return send_future(await self._thread.call(send))

    async def stop(self) -> None:
        """Deliver what was sent, then end."""
        await self.close()


class AIOKafkaConsumer(Consumer):
    """Reads records; other calls are those of :class:`sparklog.aio.Consumer`, ``poll_batches`` included.

    Args:
        topics: to subscribe to.
        bootstrap_servers: root URI of a cluster, or a list of exactly one.
        storage_options: access to its store.
        configs: aiokafka's settings, see docs/asyncio.md.
    Raises:
        KafkaConfigurationError: an unknown setting, or one that isn't allowed; named.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: object = None,
        storage_options: Mapping[str, Any] | None = None,
        **configs: Any,
    ) -> None:
        self._root, found = check_root(bootstrap_servers), consumer_configs(configs)
        ConsumerConfig.parse(consumer_settings(found))
        self._group_id = found.get("group_id")
        self._prepare(
            topics,
            lambda: KafkaConsumer(bootstrap_servers=bootstrap_servers, storage_options=storage_options, **found),
        )
        _CONSUMERS.add(self)

    async def stop(self) -> None:
        """Commit the positions if that is done automatically, leave the group, end."""
        await self.close()

    def unsubscribe(self) -> None:  # type: ignore[override] # plain in aiokafka
        """Read nothing any more: before the next call that waits."""
        if self._consumer is None:
            self._at_start = None
            return
        consumer = self._started()
        self._thread.submit(consumer.unsubscribe).add_done_callback(_log_failure)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:  # type: ignore[override] # awaited there
        """Go on at the log start; all assigned partitions by default."""
        super().seek_to_beginning(*partitions)
        return True

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:  # type: ignore[override] # awaited there
        """Go on at the log end; all assigned partitions by default."""
        super().seek_to_end(*partitions)
        return True

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Go on at what the group has committed, where it has; all assigned partitions by default."""
        found = {one: await self.committed(one) for one in partitions or self.assignment()}
        for partition, offset in found.items():
            if offset is not None:
                self.seek(partition, offset)
        return found

    async def getone(self, *partitions: TopicPartition) -> Any:
        """The next record; waits until there is one. Raises ``ConsumerStoppedError``: stopped."""
        with _Stopping(self):
            return await super().getone(*partitions)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, Any]:
        """The next records by partition. Raises ``ConsumerStoppedError``: stopped."""
        with _Stopping(self):
            return await super().getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)

    async def commit(  # type: ignore[override] # aiokafka's offsets
        self, offsets: Mapping[TopicPartition, Any] | None = None
    ) -> None:
        """Commit offsets: numbers, pairs of offset and metadata, or ``OffsetAndMetadata``; the positions by default."""
        await super().commit(None if offsets is None else _offsets(offsets))

    def partitions_for_topic(self, topic: str) -> set[int] | None:  # type: ignore[override] # plain in aiokafka
        """The numbers of a topic's partitions, of one that is read; None if it isn't known yet."""
        runtime = self._started()._runtime
        with runtime.fetch_state.lock:
            view = runtime.fetch_state.views.get(topic)
        return None if view is None else set(range(view.partition_count))

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The log end offset as it was seen last: what is visible is committed."""
        return self.highwater(partition)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When the log of an assigned partition was looked at last, in milliseconds since the epoch, whether or not it
        had anything new; None before the first look."""
        runtime = self._started()._runtime
        topic = runtime.assigned.state_of(partition).partition.topic
        with runtime.fetch_state.lock:
            return runtime.fetch_state.looked_ms.get(topic)

    def _is_in(self, root: object, group_id: str) -> bool:
        running = self._consumer is not None and not self._thread.is_ended
        return running and self._group_id == group_id and str(self._root) == str(root)

    def _close(self, timeout_ms: float, *, auto_commit: bool) -> None:
        if isinstance(self._opened, KafkaConsumer):
            self._opened.close(auto_commit, timeout_ms)


_CONSUMERS: weakref.WeakSet[AIOKafkaConsumer] = weakref.WeakSet()


class _Stopping:
    """Around a wait for records: what a stopped consumer raises there."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    def __enter__(self) -> None:
        if self._consumer._thread.is_ended:
            raise ConsumerStoppedError("this consumer is stopped")

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, IllegalStateError) and self._consumer._thread.is_ended:
            raise ConsumerStoppedError("this consumer was stopped") from None


def _offsets(offsets: Mapping[TopicPartition, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    if not isinstance(offsets, Mapping):
        raise IllegalArgumentError(f"offsets: got {type(offsets).__name__}, expected a dict of partitions")
    return {partition: _offset(given) for partition, given in offsets.items()}


def _offset(given: Any) -> Any:
    if isinstance(given, OffsetAndMetadata):
        return given
    if isinstance(given, tuple) and len(given) == 2:
        return OffsetAndMetadata(given[0], given[1] or "")
    return OffsetAndMetadata(given) if isinstance(given, int) else given  # what else is refused by the consumer


def _log_failure(done: Any) -> None:
    error: BaseException | None = done.exception()
    if error is not None:
        _LOGGER.warning("unsubscribe failed: %s", error)
