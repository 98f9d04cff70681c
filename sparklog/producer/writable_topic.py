"""A topic that a producer has open: its writer, who may use it when, and what the topic allows records to be."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from dataclasses import replace

from sparklog import schemas
from sparklog.clock import Deadline
from sparklog.config import ACKS_ALL, ProducerConfig
from sparklog.delta.shared_reads import shared_reads_of
from sparklog.errors import IllegalStateError, KafkaTimeoutError, SparklogError, UnknownTopicOrPartitionError
from sparklog.interrupts import bounded_s, uninterrupted
from sparklog.log import AppendResult, Cluster, Marker, StagedFile, StagedUpload, TopicWriter, UploadedFile
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.producer_batch import PlacedBatch
from sparklog.log.data.sorted_rows import Records
from sparklog.log.gaps import ForeignGaps
from sparklog.log.head import TopicHead
from sparklog.log.key_lengths import check_topic_length
from sparklog.log.maintenance import Sequencing
from sparklog.log.publishing import newest_marker
from sparklog.logs import about
from sparklog.producer.metrics import ProducerMetrics
from sparklog.producer.schema_looks import SchemaLooks
from sparklog.producer.store_patience import store_patience
from sparklog.producer.topic_queue import TopicQueue
from sparklog.producer.typed_values import ValueEncoding

__all__ = ["WritableTopic", "announces", "open_writer", "unexpected_error"]

_LOGGER = logging.getLogger("sparklog.producer")
_REFRESH_MS = 1_000.0


def open_writer(cluster: Cluster, topic: str, config: ProducerConfig) -> TopicWriter:
    """Open a topic for writing; takes at most ``max_block_ms``.

    Raises ``UnknownTopicOrPartitionError``, ``StoreError``, and what else opening a topic raises;
    ``InvalidTopicError``: its name is too long for a key below the root.
    """
    patience = store_patience(config, cluster.clock.deadline_in(config.max_block_ms), abandons=True)
    log = cluster.topic_log(topic)
    check_topic_length(log.store, topic)
    if announces(config):
        log = replace(log, shared=shared_reads_of(cluster.sharing_key, log.table))
    with cluster.store.patience(patience):
        return TopicWriter(
            log,
            topic,
            sync=config.acks == ACKS_ALL,
            sequencing=Sequencing(),
            gaps=ForeignGaps(),
            group_commit=announces(config),
        )


def announces(config: ProducerConfig) -> bool:
    """May others publish what the producer uploads (rule L14, announced uploads)? Nobody may see what belongs to a
    transaction before it is decided."""
    return config.group_commit and config.transactional_id is None


class WritableTopic:
    """A topic's writer with the producer's settings: time limits, repeated store calls, compression.

    One thread at a time stages uploads, and several put them; another one appends and publishes, alone or beside a
    caller that refreshes: see :attr:`writing`.
    """

    def __init__(
        self, cluster: Cluster, writer: TopicWriter, queue: TopicQueue, config: ProducerConfig, metrics: ProducerMetrics
    ) -> None:
        self.name = writer.topic
        self.writing = threading.Lock()
        """Held by the thread that uses the writer's state: the committer, or a caller that asks for new partitions."""
        self.is_gone = False
        """The topic was deleted: a producer that sends to it again looks for it anew."""
        self._cluster = cluster
        self._clock = cluster.clock
        self._writer = writer
        self._queue = queue
        self._config = config
        self._metrics = metrics
        self._encoding: tuple[TopicHead | None, ValueEncoding | None] = (None, None)
        """The newest, and the head that it was made for, or that has the same schemas and settings."""
        self._refreshed_ticks_ms = self._clock.ticks_ms()
        """When :meth:`refresh_each_second` made it known last, or it was opened."""
        self._looks = SchemaLooks(cluster.clock, lambda: self.value_encoding)
        self._limited_by: tuple[TopicHead | None, bool] = (None, False)
        """The topic as it was when the queue last learned of it, and whether it was gone."""
        self._update_queue()

    @property
    def topic_id(self) -> str:
        """Id of the topic that records are sent to; a topic that is created anew has another one."""
        return self._writer.topic_id

    @property
    def head(self) -> TopicHead:
        """The topic's settings and partitions, as of the newest commit that is known."""
        return self._writer.head

    @property
    def partition_count(self) -> int:
        """Partitions, as of the newest commit that is known."""
        return self.head.partition_count

    @property
    def value_encoding(self) -> ValueEncoding | None:
        """How values become columns, as of the newest commit that is known; None for an untyped topic."""
        head = self.head
        known, encoding = self._encoding
        if known is not head:  # mostly it is: this is asked for each record
            if known is None or (known.schemas, known.config) != (head.schemas, head.config):
                encoding = ValueEncoding.of(self.name, head)
            self._encoding = (head, encoding)
        return encoding

    @property
    def max_record_bytes(self) -> int:
        """Most bytes of key, value and headers, by the topic's and the producer's settings; -1 once it is gone."""
        return self._queue.max_record_bytes

    def max_record_bytes_in(self, compressed_bytes: int | None) -> int:
        """The largest record that a batch may have: as a broker does, the topic judges a batch that came compressed by
        its size then, and any of its records by the producer's own bounds alone.

        Args:
            compressed_bytes: of the batch; None: it wasn't compressed.
        """
        if compressed_bytes is None or compressed_bytes > self.max_message_bytes or self.is_gone:
            return self.max_record_bytes
        return min(self._config.max_request_size, self._config.buffer_memory)

    @property
    def max_message_bytes(self) -> int:
        """The topic's ``max.message.bytes``."""
        return self.head.config.integer("max.message.bytes")

    @property
    def may_wait_to_look(self) -> bool:
        """May :meth:`newer_encoding` wait before it looks?"""
        return self._looks.may_wait

    def refresh(self) -> None:
        """Learn of new partitions and settings.

        Raises ``UnknownTopicOrPartitionError``, ``StoreError``, ``KafkaTimeoutError``."""
        uninterrupted(self._refresh)

    def refresh_each_second(self, *, now: bool = False) -> None:
        """Learn of new partitions and settings, unless that was done within the last second; ``now``: in any case.

        Raises as :meth:`refresh`."""
        began = self._clock.ticks_ms()
        if now or began - self._refreshed_ticks_ms >= _REFRESH_MS:
            self.refresh()
            self._refreshed_ticks_ms = began

    def _refresh(self) -> None:
        max_block_ms = self._config.max_block_ms
        deadline = self._clock.deadline_in(max_block_ms)
        self.finish_by(deadline)
        if not self.writing.acquire(timeout=bounded_s(max_block_ms / 1000)):
            raise KafkaTimeoutError(f"topic {self.name!r}: a commit was under way for max_block_ms={max_block_ms}")
        try:
            with self._cluster.store.patience(store_patience(self._config, deadline, abandons=True)):
                self._writer.refresh()
            self._update_queue()
        except UnknownTopicOrPartitionError:
            self.mark_gone()
            raise
        finally:
            self.writing.release()

    def newer_encoding(
        self, known: ValueEncoding | None, why: Collection[str], deadline: Deadline | None = None
    ) -> ValueEncoding | None:
        """The encoding as of now, for values that don't fit the one that is known; None: there is no other. The topic
        is read for it once a second at most.

        Args:
            why: what is wrong with the values.
            deadline: of the records, for the sender; None: a caller asks, who waits for ``max_block_ms``.
        Raises:
            UnknownTopicOrPartitionError, StoreError; KafkaTimeoutError: a commit was under way until the deadline.
        """
        if deadline is None:
            bound = self._clock.deadline_in(self._config.max_block_ms)
            return uninterrupted(lambda: self._looks.newer_than(known, why, self._refresh, bound))
        return self._looks.newer_than(known, why, lambda: self._read_newest(deadline), deadline)

    def _read_newest(self, deadline: Deadline) -> None:
        if not self.writing.acquire(timeout=bounded_s(deadline.left_ms / 1000)):
            raise KafkaTimeoutError(
                f"topic {self.name!r}: a commit was under way until the records' delivery.timeout.ms"
            )
        try:
            with self._cluster.store.patience(store_patience(self._config, deadline)):
                self._writer.refresh()
            self._update_queue()
        finally:
            self.writing.release()

    def finish_by(self, deadline: Deadline) -> None:
        """Let commits hurry: whoever waits for what was sent gives up then."""
        self._writer.finish_by(deadline)

    def mark_gone(self) -> None:
        """Refuse records from now on: the topic was deleted."""
        self.is_gone = True
        self._update_queue()

    def stage_parts(
        self, parts: Sequence[tuple[int, Records]], part_batches: Sequence[tuple[PlacedBatch, ...]] = ()
    ) -> StagedUpload:
        """Encode, number and name the records of some partitions. For the sender, one thread at a time.

        Args:
            part_batches: for each part, the batches in it that their producers have numbered; empty: there are none.
        Raises ``UnknownTopicOrPartitionError``."""
        return self._writer.stage(
            parts,
            compression=self._compression(),
            announce=announces(self._config),
            numbered_by_producers=part_batches,
        )

    def put_staged(self, staged: StagedUpload, *, deadline: Deadline) -> Sequence[StagedFile]:
        """Upload what was staged. For the sender's threads; several uploads may be under way.

        Raises ``StoreError``. Then ``staged.files_if_failed`` may be there, or may come."""
        with self._cluster.store.patience(store_patience(self._config, deadline)):
            return self._writer.put(staged)

    def stop_announcing(self) -> bool:
        """Announce nothing from now on. May anything that was announced be published that isn't by now?"""
        return self._writer.stop_announcing()

    def is_announced(self, files: Sequence[StagedFile]) -> bool:
        """May others publish these files, or have they?"""
        return self._writer.is_announced(files)

    def is_published(self, files: Sequence[StagedFile]) -> bool:
        """Are these announced files known to be in the log?"""
        return self._writer.published(files)

    def withdraw_files(self, files: Sequence[StagedFile], *, deadline: Deadline) -> Sequence[int] | None:
        """Withdraw the announced files of one upload. For the committer.

        Returns:
            None: they are in no log, and never will be; else the base offset of each file.
        Raises:
            CommitStateUnknownError: they may be in the log, or may come to be.
            UnknownTopicOrPartitionError: the topic was deleted, and they weren't in its log.
        """
        with self.writing, self._cluster.store.patience(store_patience(self._config, deadline)):
            withdrawn = self._writer.withdraw(files, deadline=deadline)
        return None if withdrawn is None else withdrawn.base_offsets

    def append_files(self, files: Sequence[StagedFile], *, deadline: Deadline) -> AppendResult:
        """Append uploaded files in one commit. For the committer.

        Raises:
            SparklogError: as :meth:`TopicWriter.append`.
        """
        began = self._clock.ticks_ms()
        with self.writing, self._cluster.store.patience(store_patience(self._config, deadline)):
            appended = self._writer.append(files, deadline=deadline)
        self._update_queue()
        self._metrics.appended(latency_ms=self._clock.ticks_ms() - began)
        return appended

    def publish_files(self, files: Sequence[UploadedFile], marker: Marker, *, deadline: Deadline) -> Sequence[int]:
        """Publish the files of a transaction that is decided, in one commit. For the committer. Safe to repeat.

        Returns:
            The base offset of each file; -1 where nobody knows it any more, or the topic was deleted.
        Raises:
            SparklogError: as :meth:`TopicWriter.publish`.
        """
        began = self._clock.ticks_ms()
        with self.writing, self._cluster.store.patience(store_patience(self._config, deadline)):
            published = self._writer.publish(
                files,
                marker,
                known_version=min(file.topic_version for file in files),
                deadline=deadline,
            )
        if published.is_skipped:
            _LOGGER.warning(
                "topic %s was deleted: records of a transaction are nowhere", self.name, extra=about(topic=self.name)
            )
            self.mark_gone()
        self._update_queue()
        self._metrics.appended(latency_ms=self._clock.ticks_ms() - began)
        return published.base_offsets

    def newest_transaction(self, transactional_id: str) -> int:
        """The number of the newest transaction of an id that the topic has, as far as is known; 0: of none."""
        return newest_marker(self._writer.state, transactional_id)

    def check_uploads(self, files: Sequence[UploadedFile]) -> None:
        """Before it is decided that files are published: may they be? Raises as :meth:`TopicWriter.check_uploads`."""
        with self.writing:
            self._writer.check_uploads(files)

    def forget_files(self, files: Sequence[UploadedFile] | Sequence[StagedFile]) -> None:
        """Let go of uploaded files that won't be published."""
        self._writer.forget(files)

    def delete_files(self, files: Sequence[UploadedFile]) -> None:
        """Delete files that no log will ever name.

        Raises ``StoreError``; then the sweep of orphans deletes them later."""
        table = self._writer.table
        self._cluster.store.delete([object_path(table, file.path) for file in files])

    def use_producer_id(self, *, producer_id: int, producer_epoch: int) -> None:
        """Write in the name of a transactional id's producer."""
        self._writer.adopt(producer_id=producer_id, producer_epoch=producer_epoch)

    def close(self) -> None:
        """End the writer. For the committer, at its end."""
        self._writer.close()

    def _update_queue(self) -> None:
        """Set in the queue how large records may be, and by which schema it may take dicts."""
        head, (known, was_gone) = self.head, self._limited_by
        if known is not None and (known.config, known.schemas, was_gone) == (head.config, head.schemas, self.is_gone):
            return
        self._limited_by = head, self.is_gone
        config = self._config
        limit = min(config.max_request_size, config.buffer_memory, self.max_message_bytes)
        self._queue.max_record_bytes = -1 if self.is_gone else limit
        encoding = self.value_encoding
        if encoding is None:
            self._queue.set_packer(None)
        else:
            self._queue.set_packer(schemas.packer_of(encoding.schema), decoded_bytes=encoding.decoded_bytes)

    def _compression(self) -> str:
        """The topic's own codec, where it doesn't leave it to the producer. Source: Kafka ``compression.type``."""
        codec = str(self.head.config["compression.type"])
        return self._config.compression_type if codec == "producer" else codec


def unexpected_error(topic: str, error: BaseException) -> SparklogError:
    """The error for records that failed by a defect: one that isn't sparklog's own. It is logged, and still nobody may
    wait for ever."""
    _LOGGER.critical("sending to topic %s failed unexpectedly", topic, exc_info=error, extra=about(topic=topic))
    unexpected = IllegalStateError(f"sending to topic {topic!r} failed unexpectedly: {error!r}")
    unexpected.__cause__ = error
    return unexpected
