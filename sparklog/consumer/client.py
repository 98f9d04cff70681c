"""The consumer client. It reads partitions in the order of their offsets, as Kafka's consumer does."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, overload

import pyarrow as pa

from sparklog.clock import Clock
from sparklog.config import ConsumerConfig, ResetPolicy
from sparklog.consumer.arguments import (
    check_count,
    check_offset,
    check_offsets,
    check_partition,
    check_partitions,
    check_timeout,
    check_timestamps,
    opened_cluster,
)
from sparklog.consumer.assignment import Handover
from sparklog.consumer.listener import ConsumerRebalanceListener
from sparklog.consumer.offset_commits import OnCommit
from sparklog.consumer.record_buffer import Records
from sparklog.consumer.runtime import ConsumerRuntime
from sparklog.consumer.segment_fetcher import ReadLimits
from sparklog.consumer.subscription import EARLIEST, LATEST
from sparklog.log import Cluster, topic_names
from sparklog.metrics import ClientMetrics, by_group
from sparklog.model import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from sparklog.new_clients import announce
from sparklog.paths import check_topic_name

__all__ = ["Consumer"]

_CLOSE_MS = 30_000.0


class Consumer:
    """Reads records of topics, each partition in order.

    A background thread, started by the first call that needs it, polls the topics' logs and reads ahead. Only one
    thread at a time may use the consumer; others may call :meth:`wakeup`, :meth:`metrics`, :meth:`assignment`,
    :meth:`subscription` and :meth:`paused`.

    With a ``group_id`` the consumers of one group share the partitions of the topics to which they subscribe, on any
    number of machines; two more threads send heartbeats and commit offsets. Without it a consumer reads every
    partition of the topics to which it subscribes.

    Calls raise ``IllegalStateError`` after :meth:`close`, in a forked child process, and while another thread is in a
    call. An error in the background is raised once, by the next call that waits; if it is ``retriable``, a later call
    may succeed.

    Args:
        topics: the topics to subscribe to.
        cluster: the root of an existing cluster (a path or URI), or an open cluster.
        storage_options: credentials and endpoint of the store, if ``cluster`` is a URI.
        clock: by default the cluster's.
        read_limits: sizes of reads and of reading ahead, for tests and unusual stores.
        settings: Kafka's consumer settings with underscores; see :class:`sparklog.config.ConsumerConfig`.

    Raises:
        InvalidConfigurationError: a setting is unknown or not allowed; the message names it.
        InvalidArgumentError: there is no cluster at the root.
    """

    def __init__(
        self,
        *topics: str,
        cluster: str | Path | Cluster,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        read_limits: ReadLimits | None = None,
        **settings: Any,
    ) -> None:
        config = ConsumerConfig.parse(settings)
        for topic in topics:
            check_topic_name(topic)
        opened, owns_store = opened_cluster(cluster, storage_options, clock, config.request_timeout_ms)
        self._runtime = ConsumerRuntime(opened, config, read_limits or ReadLimits(), owns_store=owns_store)
        self._guard = self._runtime.guard
        self._records: Iterator[ConsumerRecord] = iter(())
        """Records that iteration has polled and not returned yet."""
        announce(self)
        if topics:
            self.subscribe(topics)

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read every partition of ``topics``, or of the topics whose names match ``pattern`` at their beginning.

        Replaces the previous subscription. The partitions are assigned inside :meth:`poll`. Partitions and topics that
        are created later are read from their beginning, whatever ``auto_offset_reset`` is (except ``none``), since all
        their records are newer than the subscription. Topics that match a pattern are searched for at once and every
        ``metadata_max_age_ms`` (5 minutes); a topic that one member of a group discovers is used by all members with
        the same pattern. If a topic doesn't exist, ``poll`` raises ``UnknownTopicOrPartitionError`` until it does.

        Raises:
            IllegalStateError: partitions were assigned by hand, or both topics and a pattern are given.
            InvalidArgumentError, InvalidTopicError, TypeError.
        """
        with self._guard:
            if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
                raise TypeError(f"listener: got {type(listener).__name__}, expected a ConsumerRebalanceListener")
            self._runtime.subscribe(topics, pattern, listener)

    def subscription(self) -> set[str] | None:
        """The subscribed topics, with a pattern those that match; None without a subscription. From any thread."""
        self._guard.check()
        topics = self._runtime.subscription.topics
        return None if topics is None else set(topics)

    def unsubscribe(self) -> None:
        """End the subscription or assignment, so that nothing is read."""
        with self._guard:
            self._records = iter(())
            self._runtime.stop_iteration()
            self._runtime.unsubscribe()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions; those that were read before keep their positions. No partition: unsubscribe.

        If a partition doesn't exist, this call succeeds, and ``poll`` raises ``UnknownTopicOrPartitionError``.

        Raises:
            IllegalStateError: topics are subscribed.
        """
        with self._guard:
            wanted = check_partitions(partitions)
            if not wanted:
                self.unsubscribe()
                return
            self._runtime.assign(wanted)

    def assignment(self) -> set[TopicPartition]:
        """The assigned partitions; empty until ``poll`` has assigned those of a subscription. From any thread."""
        self._guard.check()
        return self._runtime.assigned.all()

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """The next records by partition, each partition's in order; empty if there are none within ``timeout_ms``.

        All records that were read ahead of one partition are returned before those of the next partition; each poll
        begins with another partition. Positions move past the records that are returned.

        Args:
            timeout_ms: how long to wait if no record was read ahead; 0 doesn't wait.
            max_records: the most records to return; by default ``max_poll_records``.
        Raises:
            IllegalStateError: nothing is subscribed or assigned.
            UnknownTopicOrPartitionError: a topic or partition doesn't exist, or was deleted. If it was created again,
                it is read from its beginning. If a topic is deleted while a group subscribes to it, the group continues
                without it, and this isn't raised.
            OffsetOutOfRangeError, NoOffsetForPartitionError: no valid position, and ``auto_offset_reset="none"``.
            RecordDeserializationError: a deserializer failed; the position stays at the record.
            CorruptRecordError: a data file can't be read; the position stays before it.
            WakeupError: another thread called :meth:`wakeup`.
            StoreError, NotATopicError, UnsupportedVersionError, CorruptLogError.
        """
        with self._guard:
            handover = self._begin_poll()
            limit = self._runtime.config.max_poll_records if max_records is None else max_records
            check_count("max_records", limit)
            check_timeout(timeout_ms)
            records = self._runtime.poll(limit, handover, timeout_ms)
        handover.is_done = True  # the last step: Python runs no signal handler before the caller has the records
        return records

    def poll_batches(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, pa.RecordBatch]:
        """Poll as :meth:`poll` does, for Arrow data: the fast path.

        Columns: ``offset`` (int64), ``timestamp`` (timestamp[us, UTC]), ``key`` and ``value`` (binary), ``headers``
        (list of struct key: string, value: binary); any but the offset may be null. Deserializers and interceptors
        aren't used. Without ``max_records`` only the fetch limits bound the batches: a batch contains the records that
        were fetched together, about 1 MiB.

        For a typed topic ``value`` is a struct of the fields of its newest schema, and there is one more column,
        ``value_bytes``: the bytes of a value that couldn't be decoded, whose ``value`` is null.
        """
        with self._guard:
            handover = self._begin_poll()
            if max_records is not None:
                check_count("max_records", max_records)
            check_timeout(timeout_ms)
            batches = self._runtime.poll_batches(max_records, handover, timeout_ms)
        handover.is_done = True  # as in poll
        return batches

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Iterate over records; each moves the position. Ends after ``consumer_timeout_ms`` without a record."""
        with self._guard:
            return self

    def __next__(self) -> ConsumerRecord:
        guard = self._guard
        if not guard.user:  # to enter would cost a third of all that a record costs
            for record in self._records:
                if guard.is_closed or guard.is_forked:
                    break
                return record
        if guard.is_closed:
            raise StopIteration
        with guard:
            while True:
                self._runtime.stop_iteration()
                config = self._runtime.config
                polled = self._runtime.poll(config.max_poll_records, None, config.consumer_timeout_ms)
                if not polled:
                    raise StopIteration
                self._records = self._runtime.iterate(polled)
                for record in self._records:
                    return record

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record to be returned; waits until it is known.

        Raises:
            IllegalStateError: the partition isn't assigned.
            KafkaTimeoutError: not known within ``timeout_ms`` (by default ``default_api_timeout_ms``).
            The errors of :meth:`poll`.
        """
        with self._guard:
            return self._runtime.position(check_partition(partition), timeout_ms)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position. Raises ``IllegalStateError``: not assigned; ``InvalidArgumentError``: a negative offset."""
        with self._guard:
            check_offset(offset)
            self._runtime.assigned.seek(check_partition(partition), offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Set positions to the log start, as it is at the next poll; by default of all assigned partitions."""
        self._seek_to(EARLIEST, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Set positions to the log end, as it is at the next poll; by default of all assigned partitions."""
        self._seek_to(LATEST, partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until :meth:`resume`. Raises ``IllegalStateError``: not assigned."""
        with self._guard:
            self._runtime.assigned.pause([check_partition(partition) for partition in partitions])

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo :meth:`pause`. Raises ``IllegalStateError``: not assigned."""
        with self._guard:
            self._runtime.assigned.resume([check_partition(partition) for partition in partitions])

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused. From any thread."""
        self._guard.check()
        return self._runtime.assigned.paused()

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The log start offset of each partition, assigned or not.

        Raises:
            UnknownTopicOrPartitionError, KafkaTimeoutError, WakeupError, StoreError.
        """
        with self._guard:
            wanted = check_partitions(partitions)
            return self._runtime.ask(lambda lookups: lookups.log_start_offsets(wanted), timeout_ms)

    def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The log end offset of each partition, which the next record gets. Raises as :meth:`beginning_offsets`."""
        with self._guard:
            wanted = check_partitions(partitions)
            return self._runtime.ask(lambda lookups: lookups.log_end_offsets(wanted), timeout_ms)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition that isn't older than the given timestamp in ms; None: there is none.

        Raises:
            InvalidArgumentError: a timestamp is negative; and the errors of :meth:`beginning_offsets`.
        """
        with self._guard:
            wanted = check_timestamps(timestamps)
            return self._runtime.ask(lambda lookups: lookups.offsets_for_times(wanted), timeout_ms)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of a topic's partitions; None if there is no such topic."""
        with self._guard:
            check_topic_name(topic)
            count = self._runtime.ask(lambda lookups: lookups.partition_count(topic), None)
            return None if count is None else set(range(count))

    def topics(self) -> set[str]:
        """The names of all topics of the cluster. Costs one listing and one read per topic, 32 at a time."""
        with self._guard:
            return set(topic_names(self._runtime.cluster.abandoning(self._runtime.api_timeout_ms(None))))

    def highwater(self, partition: TopicPartition) -> int | None:
        """The log end offset that the fetcher read last; None: none yet. Raises ``IllegalStateError``: not assigned."""
        with self._guard:
            return self._runtime.assigned.highwater(check_partition(partition))

    def metrics(self) -> dict[str, dict[str, float]]:
        """Kafka's consumer metrics by group and name; docs/monitoring.md lists them. From any thread."""
        self._guard.check_process()
        return by_group(self._client_metrics().groups)

    def _client_metrics(self) -> ClientMetrics:
        return self._runtime.client_metrics()

    def wakeup(self) -> None:
        """Make the call that waits now, or else the next one, raise ``WakeupError``. From any thread."""
        self._runtime.wake()

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit the offsets at which the group continues after a restart or rebalance; wait until they are durable.

        Args:
            offsets: for each partition the next offset to read, last processed + 1. By default the positions of all
                assigned partitions: records that the last poll returned count as processed.
        Raises:
            CommitFailedError: a partition belongs to another member by now, which reads the records since the last
                commit again; ``poll`` continues with the other partitions.
                Or partitions were assigned by hand, and the group has members.
            RebalanceInProgressError: the member is between two assignments; poll, then commit again.
            FencedInstanceIdError: another consumer uses this ``group_instance_id``.
            KafkaTimeoutError: not committed within ``timeout_ms``, and it won't be.
            CommitStateUnknownError: a subclass of ``KafkaTimeoutError``: the commit may still be carried out. It is
                safe to commit again: commits of one consumer are carried out in the order of the calls.
            WakeupError: another thread called :meth:`wakeup`; the commit may still be carried out.
            IllegalStateError: there is no ``group_id``.
            OffsetMetadataTooLargeError, InvalidArgumentError, StoreError.
        """
        with self._guard:
            commits, bound = self._runtime.commits_for("commit"), self._runtime.api_timeout_ms(timeout_ms)
            wanted = commits.consumed() if offsets is None else check_offsets(offsets)
            commits.commit_sync(wanted, bound, wait=self._runtime.wait)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: OnCommit | None = None,
    ) -> Future[Any]:
        """Commit as :meth:`commit` does, without waiting; commits are carried out in the order of the calls.

        Args:
            callback: ``callback(offsets, error)``; the error is None on success. It is called inside a later ``poll``,
                ``commit`` or ``close``, in the thread of that call and in the order of the commits.
        Returns:
            A future that is done when the offsets are durable; its result has no meaning.
        """
        with self._guard:
            commits = self._runtime.commits_for("commit_async")
            commits.run_callbacks()
            wanted = commits.consumed() if offsets is None else check_offsets(offsets)
            return commits.commit_async(wanted, callback)

    @overload
    def committed(
        self, partition: TopicPartition, metadata: Literal[False] = False, timeout_ms: float | None = None
    ) -> int | None: ...

    @overload
    def committed(
        self, partition: TopicPartition, metadata: Literal[True], timeout_ms: float | None = None
    ) -> OffsetAndMetadata | None: ...

    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> int | OffsetAndMetadata | None:
        """The group's committed offset of a partition; None if there is none, or only one for a deleted topic of the
        same name.

        Args:
            metadata: return an ``OffsetAndMetadata``, not only the offset.
        Raises:
            IllegalStateError: there is no ``group_id``.
            UnstableOffsetCommitError: with ``isolation_level=read_committed``, a transaction may still change it after
                ``timeout_ms``.
            KafkaTimeoutError, WakeupError, StoreError.
        """
        with self._guard:
            found = self._runtime.committed(check_partition(partition), timeout_ms)
            return found if metadata or found is None else found.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The argument for ``Producer.send_offsets_to_transaction``. Raises ``IllegalStateError``: no ``group_id``."""
        with self._guard:
            return self._runtime.group_metadata()

    def close(self, timeout_ms: float | None = None) -> None:
        """Close the consumer. A second call does nothing, nor does a call in a forked child process.

        With ``enable_auto_commit`` the positions are committed first. A member leaves its group, so that the others
        get its partitions at once; a static member (``group_instance_id``) stays until its session ends.

        Args:
            timeout_ms: bound for the commit, for leaving, and for work that is under way; 30 s by default.
        """
        self._close(timeout_ms, auto_commit=True)

    def _close(self, timeout_ms: float | None, *, auto_commit: bool) -> None:
        if self._guard.is_closed or self._guard.is_forked:
            return
        check_timeout(0 if timeout_ms is None else timeout_ms)
        with self._guard:
            self._records = iter(())
            self._runtime.close(_CLOSE_MS if timeout_ms is None else timeout_ms, auto_commit=auto_commit)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Whether what was under way when an error came is processed, nobody knows. Source: kafka-python ``__exit__``.
        self._close(None, auto_commit=kind is None)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Consumer can't be pickled or copied: make one where it is used")

    def _seek_to(self, begin: ResetPolicy, partitions: Collection[TopicPartition]) -> None:
        with self._guard:
            self._runtime.assigned.seek_to(begin, check_partitions(partitions))

    def _begin_poll(self) -> Handover:
        self._records = iter(())
        return self._runtime.begin_poll()
