"""One topic's way into its log: a queue, and what threads do: they upload, and one at a time appends.

All keep the order of sending. With a transactional id, what the sender has uploaded stays in
:class:`TransactionUploads` until its transaction is decided; then the committer publishes all of it in one commit.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa

from sparklog.clock import Deadline
from sparklog.config import ProducerConfig
from sparklog.errors import SparklogError
from sparklog.log import Cluster
from sparklog.producer.accumulator import FutureBase
from sparklog.producer.batch import TableBatch
from sparklog.producer.buffer import Buffer
from sparklog.producer.future import FutureBatchMetadata
from sparklog.producer.in_flight import InFlightBatches
from sparklog.producer.metrics import ProducerMetrics
from sparklog.producer.outcome import Piece
from sparklog.producer.shared_threads import SharedThreads
from sparklog.producer.topic_committer import TopicCommitter
from sparklog.producer.topic_queue import MAX_BATCH_BYTES, TopicQueue
from sparklog.producer.topic_sender import TopicSender
from sparklog.producer.transaction_uploads import TransactionUploads
from sparklog.producer.writable_topic import WritableTopic, open_writer

__all__ = ["TopicPipeline"]


class TopicPipeline:
    """Ties one topic's queue, sender and committer together, and ends them. It has no threads of its own."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        config: ProducerConfig,
        buffer: Buffer,
        metrics: ProducerMetrics,
        callbacks: threading.RLock,
        threads: SharedThreads,
        future_type: type[FutureBase],
    ) -> None:
        """Open the topic, and let threads work for it; takes at most ``max_block_ms``.

        Args:
            callbacks: held while callbacks run: no two of a producer run at once.
            threads: the producer's.
            future_type: what the queue returns for plain records.
        Raises ``UnknownTopicOrPartitionError``, ``StoreError``, and what else opening a topic raises.
        """
        self._clock = clock = cluster.clock
        writer = open_writer(cluster, topic, config)
        self.queue = TopicQueue(
            topic,
            buffer,
            clock,
            batch_size=config.batch_size,
            linger_ms=config.linger_ms,
            max_block_ms=config.max_block_ms,
            gathers=config.transactional_id is not None,
            future_type=future_type,
        )
        self.topic = WritableTopic(cluster, writer, self.queue, config, metrics)
        self._in_flight = InFlightBatches(is_remote=cluster.store.is_remote)
        self._committer = TopicCommitter(
            self.topic,
            self.queue,
            self._in_flight,
            config=config,
            clock=clock,
            metrics=metrics,
            callbacks=callbacks,
        )
        self.uploads: TransactionUploads | None = None
        """With a transactional id only."""
        if config.transactional_id is not None:
            self.uploads = TransactionUploads(
                self.topic, self.queue, self._in_flight, self._committer, metrics=metrics, callbacks=callbacks
            )
        self._sender = TopicSender(
            self.topic,
            self.queue,
            self._in_flight,
            self._committer,
            threads,
            hand_over=self._committer.add if self.uploads is None else self.uploads.add,
            config=config,
            clock=clock,
            metrics=metrics,
        )
        self._sender.start()

    @property
    def in_flight_count(self) -> int:
        """Groups of batches that are being uploaded or committed."""
        return self._in_flight.count

    @property
    def owns_current_thread(self) -> bool:
        """Is this called by a callback, which runs in a thread that works for the topic?"""
        return self._sender.owns_current_thread

    def try_add_rows(
        self,
        rows: pa.Table,
        pieces: Sequence[Piece],
        *,
        greatest_partition: int,
        size_bytes: int,
        least_timestamp_ms: int,
        largest_bytes: int,
    ) -> FutureBatchMetadata | None:
        """Add batches of other producers, if nothing is wrong with them and nothing has to be waited for; None: it may
        be. For an event loop, and not in a transaction. Raises what the queue was ended with.

        Args:
            rows: with the columns that ``check_table`` returns; no partition is less than 0.
            pieces: those batches, one behind the other.
            size_bytes: of all rows.
            largest_bytes: the most that a row's key and value have together.
        """
        known = self.topic
        if not rows.num_rows or size_bytes > MAX_BATCH_BYTES or least_timestamp_ms < 0:
            return None
        if known.value_encoding is not None or largest_bytes > known.max_record_bytes:
            return None
        if greatest_partition >= known.partition_count:
            return None
        batch = TableBatch(self.queue.topic, rows, created_ticks_ms=self._clock.ticks_ms(), size_bytes=size_bytes)
        batch.pieces = pieces
        return FutureBatchMetadata([batch]) if self.queue.try_add_tables([batch]) else None

    def give_up_overdue(self, before_ticks_ms: float) -> float | None:
        """Settle what was sent at or before a moment and has no end yet; returns when the oldest of the rest was sent.
        For :class:`~sparklog.producer.overdue.OverdueWatch`."""
        with self.queue.lock:
            overdue = self._committer.give_up_overdue(before_ticks_ms=before_ticks_ms)
            if overdue and self.uploads is not None:
                self.uploads.failure = self.uploads.failure or overdue[0][1]
            left = [batch for batch in self.queue.unfinished() if not batch.is_overdue]
            taken = {id(batch): upload.taken_ticks_ms for upload in self._in_flight.uploads for batch in upload.batches}
            since = [taken.get(id(batch)) or batch.created_ticks_ms for batch in left]
            if self.queue.gathers:  # what waits to be taken may wait
                since = [at for batch, at in zip(left, since, strict=True) if id(batch) in taken]
        if overdue:
            self._committer.tell_overdue(overdue)
        return min(since, default=None)

    @property
    def has_overdue(self) -> bool:
        """Is a thread held up by a store's call, with records that were given up?"""
        with self.queue.lock:
            return any(batch.is_overdue for batch in self.queue.unfinished())

    def end_when_delivered(self, error: SparklogError) -> None:
        """Take no more records: sending raises ``error``. Deliver those that are there, then close the topic."""
        with self.queue.lock:
            self._sender.end_when_empty()
            self.queue.refuse_records(error)

    def abort(self, error: SparklogError) -> None:
        """Give up what isn't being appended at this moment: it fails with ``error``, and is not stored."""
        self._committer.abort(error, in_callback=self.owns_current_thread)

    def join(self, deadline: Deadline) -> bool:
        """Wait until the topic is closed, as it is after :meth:`end_when_delivered`. False: not in time."""
        return self._sender.join(deadline)
