"""The consumer: reads topics in order, from the positions that it is given, as Kafka's does."""

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

    A thread of its own, started by the first call that needs it, follows the topics and reads ahead. The consumer is
    for one thread at a time; others may call :meth:`wakeup`, and what only looks: :meth:`metrics`, :meth:`assignment`,
    :meth:`subscription` and :meth:`paused`.

    With a ``group_id`` the consumers of one group share the partitions of what they subscribe to, on however many
    machines; two more threads show that this one lives and keep its offsets. Without one a consumer alone takes every
    partition of what it subscribes to.

    Calls raise ``IllegalStateError`` after :meth:`close`, in a process that was forked off, and while another thread
    is in a call. What goes wrong in the background is raised by the next call that waits, once; where the error is
    ``retriable`` a later call may succeed.

    Args:
        topics: to subscribe to.
        cluster: the cluster's root (a path or URI), or an open cluster. There must be one.
        storage_options: of the store, with a root.
        clock: the cluster's by default.
        read_limits: for tests and rare stores.
        settings: Kafka's consumer settings with underscores; see :class:`sparklog.config.ConsumerConfig`.

    Raises:
        InvalidConfigurationError: an unknown setting, or a value that isn't allowed; names it.
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
        opened, owns_store = opened_cluster(cluster, storage_options, clock)
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
        """Read every partition of ``topics``, or of the topics whose names match ``pattern`` from their beginning on.

        Replaces what was subscribed before. The partitions are assigned inside :meth:`poll`. Partitions that a topic
        gets later, and topics that come later, are read from their beginning, whatever ``auto_offset_reset`` says
        (but for ``none``): all they hold is younger than the subscription. Topics that match a pattern are looked for
        at once and every 5 minutes; what one member of a group finds, those with the same pattern have, too.

        A topic that doesn't exist is no error here: ``poll`` raises ``UnknownTopicOrPartitionError`` until it does.

        Raises:
            IllegalStateError: partitions were assigned, or both topics and a pattern are given.
            InvalidArgumentError, InvalidTopicError, TypeError.
        """
        with self._guard:
            if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
                raise TypeError(f"listener: got {type(listener).__name__}, expected a ConsumerRebalanceListener")
            self._runtime.subscribe(topics, pattern, listener)

    def subscription(self) -> set[str] | None:
        """The topics that are subscribed; those found by a pattern. None where nothing is. From any thread."""
        self._guard.check()
        topics = self._runtime.subscription.topics
        return None if topics is None else set(topics)

    def unsubscribe(self) -> None:
        """Read nothing any more: neither subscribed topics nor assigned partitions."""
        with self._guard:
            self._records = iter(())
            self._runtime.stop_iteration()
            self._runtime.unsubscribe()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions; those that were read before go on where they are. None: :meth:`unsubscribe`.

        A partition that doesn't exist is no error here: ``poll`` raises ``UnknownTopicOrPartitionError``.

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
        """The partitions that are read now; empty until ``poll`` has found those of a subscription. From any thread."""
        self._guard.check()
        return self._runtime.assigned.all()

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """The next records by partition, each partition's in order; empty if there are none within ``timeout_ms``.

        All that was read ahead of one partition comes before the next partition's; another begins each time.
        Positions move beyond what is returned.

        Args:
            timeout_ms: to wait where nothing was read ahead; 0 doesn't wait.
            max_records: ``max_poll_records`` by default.
        Raises:
            IllegalStateError: nothing is subscribed or assigned.
            UnknownTopicOrPartitionError: a topic or partition doesn't exist, or was deleted (and perhaps made again:
                then it is read from its beginning). Of a topic that was deleted while a group subscribed to it no poll
                raises this: the group goes on without it.
            OffsetOutOfRangeError, NoOffsetForPartitionError: with ``auto_offset_reset="none"``.
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
            found = self._runtime.poll(limit, handover, timeout_ms)
        handover.is_done = True  # the last step: Python runs no signal handler before the caller has the records
        return found

    def poll_batches(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, pa.RecordBatch]:
        """Poll as :meth:`poll` does, for Arrow data: the fast path.

        Columns: ``offset`` (int64), ``timestamp`` (timestamp[us, UTC]), ``key`` and ``value`` (binary), ``headers``
        (list of struct key: string, value: binary); any but the offset may be null. Deserializers and interceptors
        have no part in it. Without ``max_records`` the fetch limits alone bound the batches: a batch is what was
        fetched together, about 1 MiB.

        Of a typed topic ``value`` is a struct of the fields of its newest schema, and there is one column more,
        ``value_bytes``: the bytes of a value that couldn't be decoded, whose ``value`` is null.
        """
        with self._guard:
            handover = self._begin_poll()
            if max_records is not None:
                check_count("max_records", max_records)
            check_timeout(timeout_ms)
            found = self._runtime.poll_batches(max_records, handover, timeout_ms)
        handover.is_done = True  # as in poll
        return found

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records one by one; each moves the position. Ends after ``consumer_timeout_ms`` without one."""
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
                found = self._runtime.poll(config.max_poll_records, None, config.consumer_timeout_ms)
                if not found:
                    raise StopIteration
                self._records = self._runtime.iterate(found)
                for record in self._records:
                    return record

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record that is returned; waits until it is known.

        Raises:
            IllegalStateError: the partition isn't assigned.
            KafkaTimeoutError: not known within ``timeout_ms`` (``default_api_timeout_ms`` by default).
            As :meth:`poll`.
        """
        with self._guard:
            return self._runtime.position(check_partition(partition), timeout_ms)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at ``offset``. Raises ``IllegalStateError`` unless assigned, ``InvalidArgumentError`` if negative."""
        with self._guard:
            check_offset(offset)
            self._runtime.assigned.seek(check_partition(partition), offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the log start, as it is at the next poll; all assigned partitions by default."""
        self._seek_to(EARLIEST, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the log end, as it is at the next poll; all assigned partitions by default."""
        self._seek_to(LATEST, partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return nothing of these partitions until :meth:`resume`. Raises ``IllegalStateError`` unless assigned."""
        with self._guard:
            self._runtime.assigned.pause([check_partition(partition) for partition in partitions])

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo :meth:`pause`. Raises ``IllegalStateError`` unless assigned."""
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
        """The log end offset of each partition: of the next record that will be appended. Raises as above."""
        with self._guard:
            wanted = check_partitions(partitions)
            return self._runtime.ask(lambda lookups: lookups.log_end_offsets(wanted), timeout_ms)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition that isn't older than its timestamp (ms); None where there is none.

        Raises:
            InvalidArgumentError: a negative timestamp; and as :meth:`beginning_offsets`.
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
        """The names of all topics of the cluster. One listing, and one look at each topic, 32 at a time."""
        with self._guard:
            return set(topic_names(self._runtime.cluster))

    def highwater(self, partition: TopicPartition) -> int | None:
        """The log end offset as the fetcher saw it last; None before it did. Raises ``IllegalStateError``."""
        with self._guard:
            return self._runtime.assigned.highwater(check_partition(partition))

    def metrics(self) -> dict[str, dict[str, float]]:
        """Kafka's consumer metrics: group to name to value. From any thread; docs/monitoring.md lists them."""
        self._guard.check_process()
        return by_group(self._client_metrics().groups)

    def _client_metrics(self) -> ClientMetrics:
        return self._runtime.client_metrics()

    def wakeup(self) -> None:
        """Let the call that waits now, or else the next one, raise ``WakeupError``. From any thread."""
        self._runtime.wake()

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit offsets and wait until they are durable: where the group goes on after a restart or a rebalance.

        Args:
            offsets: of each partition the next one to read, last processed + 1. By default the positions of all
                assigned partitions: what the last poll returned counts as processed.
        Raises:
            CommitFailedError: a partition belongs to another member by now. What was processed since the last commit
                is read again there; ``poll`` goes on with the partitions that are left.
                Or partitions were assigned by hand, and the group has members.
            RebalanceInProgressError: the member is between two assignments; poll, then commit again.
            FencedInstanceIdError: another consumer uses this ``group_instance_id``.
            KafkaTimeoutError: not done within ``timeout_ms``, and it won't be.
            CommitStateUnknownError: a ``KafkaTimeoutError``, too: the commit is under way, and may still be carried
                out. To commit again is safe: commits of one consumer are carried out in the order of the calls.
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
            callback: ``callback(offsets, error)``, the error None on success; called inside a later ``poll``,
                ``commit`` or ``close``, in that thread and in the order of the commits.
        Returns:
            A future, done when the offsets are durable; its result has no meaning.
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
        """The committed offset of the group in a partition; None where there is none, or only one for another topic of
        this name, which was deleted.

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
        """This member, as ``Producer.send_offsets_to_transaction`` wants it. Raises ``IllegalStateError``: no group."""
        with self._guard:
            return self._runtime.group_metadata()

    def close(self, timeout_ms: float | None = None) -> None:
        """End the consumer; a second call does nothing, nor one in a process that was forked off.

        With ``enable_auto_commit`` the positions are committed first. A member leaves its group, so that the others
        go on at once; a static one (``group_instance_id``) stays for its session, so that it can come back.

        Args:
            timeout_ms: to commit, to leave, and to wait for what is under way; 30 s by default.
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
