"""The consumer: reads topics in order, from where it is told to, as Kafka's does."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, overload

import pyarrow as pa

from sparklog.clock import Clock
from sparklog.config import ConsumerConfig, ResetPolicy
from sparklog.config.settings import LONG_MAX
from sparklog.consumer.coordinator import Coordinator, OnCommit
from sparklog.consumer.listener import ConsumerRebalanceListener
from sparklog.consumer.partitions import HANDED, Handover
from sparklog.consumer.reading import ReadLimits
from sparklog.consumer.record_buffer import Handing, Records
from sparklog.consumer.runtime import Session
from sparklog.consumer.subscription import EARLIEST, LATEST, check_partition, check_partitions
from sparklog.errors import IllegalStateError, InvalidArgumentError, KafkaTimeoutError, UnstableOffsetCommitError
from sparklog.groups.offsets.rows import Rows
from sparklog.log import Cluster, open_cluster, topic_names
from sparklog.model import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from sparklog.paths import check_topic_name

__all__ = ["Consumer"]

_CLOSE_MS = 30_000.0
_UNSTABLE_RETRY_MS = 100.0


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
        is_open = isinstance(cluster, Cluster)
        if isinstance(cluster, Cluster):
            if storage_options is not None:
                raise InvalidArgumentError("storage_options: expected none beside an open cluster")
            opened = cluster if clock is None else replace(cluster, clock=clock)
        else:
            opened = open_cluster(cluster, storage_options=storage_options, clock=clock, create=False)
        self._session = Session(opened, config, read_limits or ReadLimits(), owns_store=not is_open)
        self._guard = self._session.guard
        self._handing: Handing | None = None
        self._handover = HANDED
        """Of the newest poll."""
        self._records: Iterator[ConsumerRecord] = iter(())
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
            self._session.subscription.subscribe(topics, pattern)
            self._session.subscribe(listener)

    def subscription(self) -> set[str] | None:
        """The topics that are subscribed; those found by a pattern. None where nothing is. From any thread."""
        self._guard.check()
        topics = self._session.subscription.topics
        return None if topics is None else set(topics)

    def unsubscribe(self) -> None:
        """Read nothing any more: neither subscribed topics nor assigned partitions."""
        with self._guard:
            self._stop_handing()
            self._session.unsubscribe()

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
            self._session.subscription.assign()
            self._session.assign(wanted)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now; empty until ``poll`` has found those of a subscription. From any thread."""
        self._guard.check()
        with self._session.shared.lock:
            return self._session.shared.assignment.partitions()

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
            handover = self._begin_handover()
            found = self._poll(timeout_ms, max_records, handover)
        handover.is_done = True  # the last step: Python runs no signal handler before the caller has the records
        return found

    def poll_batches(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, pa.RecordBatch]:
        """As :meth:`poll`, as Arrow data: the fast path.

        Columns: ``offset`` (int64), ``timestamp`` (timestamp[us, UTC]), ``key`` and ``value`` (binary), ``headers``
        (list of struct key: string, value: binary); any but the offset may be null. Deserializers and interceptors
        have no part in it. Without ``max_records`` the fetch limits alone bound the batches: a batch is what was
        fetched together, about 1 MiB.
        """
        with self._guard:
            handover = self._begin_handover()
            limit = None if max_records is None else _positive("max_records", max_records)

            def attempt() -> dict[TopicPartition, pa.RecordBatch] | None:
                self._session.catch_up(records_first=True)
                is_ready = self._session.draining.ready_in_ms() == 0
                return self._session.draining.batches(limit, handover) if is_ready else None

            found: dict[TopicPartition, pa.RecordBatch] = self._timed(attempt, timeout_ms) or {}
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
                self._stop_handing()
                found = self._poll(self._session.config.consumer_timeout_ms, None, None)
                if not found:
                    raise StopIteration
                self._handing = Handing(self._session.shared, found)
                self._records = iter(self._handing)
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
            self._begin_again_if_interrupted()
            state = self._session.state_of(check_partition(partition))
            if state.position is None:
                bound = self._timeout(timeout_ms)

                def attempt() -> bool:
                    self._session.catch_up(rebalance=False)
                    return state.position is not None

                if not self._session.wait(attempt, bound):
                    raise KafkaTimeoutError(f"the position of {partition} was not found within {bound:g} ms")
            if self._handing is None:
                self._session.draining.skip_empty(state)
            if state.position is None:
                raise IllegalStateError(f"the position of {partition} was lost while it was looked for")
            return state.position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at ``offset``. Raises ``IllegalStateError`` unless assigned, ``InvalidArgumentError`` if negative."""
        with self._guard:
            _check_offset(offset)
            state = self._session.state_of(check_partition(partition))
            with self._session.shared.lock:
                self._session.shared.assignment.seek(state, offset)
                self._session.shared.change()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the log start, as it is at the next poll; all assigned partitions by default."""
        self._seek_to(EARLIEST, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the log end, as it is at the next poll; all assigned partitions by default."""
        self._seek_to(LATEST, partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return nothing of these partitions until :meth:`resume`. Raises ``IllegalStateError`` unless assigned."""
        with self._guard:
            states = [self._session.state_of(check_partition(partition)) for partition in partitions]
            with self._session.shared.lock:
                for state in states:
                    keep_bytes = self._session.config.fetch_max_bytes // 2
                    self._session.shared.assignment.pause(state, keep_bytes=keep_bytes)
                self._session.shared.change()

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo :meth:`pause`. Raises ``IllegalStateError`` unless assigned."""
        with self._guard:
            states = [self._session.state_of(check_partition(partition)) for partition in partitions]
            with self._session.shared.lock:
                for state in states:
                    state.paused = False
                self._session.shared.change()

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused. From any thread."""
        self._guard.check()
        with self._session.shared.lock:
            return {state.partition for state in self._session.shared.assignment if state.paused}

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The log start offset of each partition, assigned or not.

        Raises:
            UnknownTopicOrPartitionError, KafkaTimeoutError, WakeupError, StoreError.
        """
        with self._guard:
            wanted = check_partitions(partitions)
            return self._session.ask(lambda lookups: lookups.log_start_offsets(wanted), self._timeout(timeout_ms))

    def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The log end offset of each partition: of the next record that will be appended. Raises as above."""
        with self._guard:
            wanted = check_partitions(partitions)
            return self._session.ask(lambda lookups: lookups.log_end_offsets(wanted), self._timeout(timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Of each partition the first record that isn't older than its timestamp (ms); None where there is none.

        Raises:
            InvalidArgumentError: a negative timestamp; and as :meth:`beginning_offsets`.
        """
        with self._guard:
            if not isinstance(timestamps, Mapping):
                raise TypeError(f"timestamps: got {timestamps!r}, expected a dict of TopicPartition to milliseconds")
            wanted = {check_partition(partition): at_ms for partition, at_ms in timestamps.items()}
            for partition, at_ms in wanted.items():
                _check_timestamp(partition, at_ms)
            return self._session.ask(lambda lookups: lookups.offsets_for_times(wanted), self._timeout(timeout_ms))

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of a topic's partitions; None if there is no such topic."""
        with self._guard:
            check_topic_name(topic)
            count = self._session.ask(lambda lookups: lookups.partition_count(topic), self._timeout(None))
            return None if count is None else set(range(count))

    def topics(self) -> set[str]:
        """The names of all topics of the cluster. One listing, and one look at each topic, 32 at a time."""
        with self._guard:
            return set(topic_names(self._session.cluster))

    def highwater(self, partition: TopicPartition) -> int | None:
        """The log end offset as the fetcher saw it last; None before it did. Raises ``IllegalStateError``."""
        with self._guard:
            topic, number = self._session.state_of(check_partition(partition)).partition
            with self._session.shared.lock:
                view = self._session.shared.views.get(topic)
            return view.log_end_offsets[number] if view and number < view.partition_count else None

    def metrics(self) -> dict[str, dict[str, float]]:
        """Kafka's consumer metrics: group to name to value. From any thread."""
        self._guard.check_process()
        with self._session.shared.lock:
            assigned_count = len(self._session.shared.assignment)
        return self._session.metrics.snapshot(assigned_count=assigned_count)

    def wakeup(self) -> None:
        """Let the call that waits now, or else the next one, raise ``WakeupError``. From any thread."""
        self._session.shared.wake()

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
            coordinator, bound = self._coordinator("commit"), self._timeout(timeout_ms)
            wanted = coordinator.consumed() if offsets is None else _check_offsets(offsets)
            try:
                if wanted:
                    committing = coordinator.commit(wanted, bound)
                    if not self._session.wait(committing.done, bound):
                        coordinator.give_up(committing, bound)
                    _result(committing)
            finally:
                coordinator.run_callbacks()

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: OnCommit | None = None,
    ) -> Future[Any]:
        """As :meth:`commit`, without waiting; commits are carried out in the order in which they were asked for.

        Args:
            callback: ``callback(offsets, error)``, the error None on success; called inside a later ``poll``,
                ``commit`` or ``close``, in that thread and in the order of the commits.
        Returns:
            A future, done when the offsets are durable; its result has no meaning.
        """
        with self._guard:
            coordinator = self._coordinator("commit_async")
            coordinator.run_callbacks()
            wanted = coordinator.consumed() if offsets is None else _check_offsets(offsets)
            return coordinator.commit_async(wanted, callback)

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
        """What the group has committed for a partition, whoever did; None where nothing was, or for another topic
        of this name, which was deleted.

        Args:
            metadata: return an ``OffsetAndMetadata``, not only the offset.
        Raises:
            IllegalStateError: there is no ``group_id``.
            UnstableOffsetCommitError: with ``isolation_level=read_committed``, a transaction may still change it after
                ``timeout_ms``.
            KafkaTimeoutError, WakeupError, StoreError.
        """
        with self._guard:
            coordinator, bound = self._coordinator("committed"), self._timeout(timeout_ms)
            clock = self._session.cluster.clock
            deadline = clock.ticks_ms() + bound
            wanted = check_partition(partition)
            row = self._stable_rows(coordinator, wanted, bound).get(wanted)
            if row is None or row.committed is None:
                return None
            left_ms = max(0.0, deadline - clock.ticks_ms())
            topic_id = self._session.ask(lambda lookups: lookups.topic_id(wanted), left_ms)
            found = None if topic_id is None else row.committed_for(topic_id)
            return found if metadata or found is None else found.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This member, as ``Producer.send_offsets_to_transaction`` wants it. Raises ``IllegalStateError``: no group."""
        with self._guard:
            return self._coordinator("group_metadata").metadata()

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
        _check_timeout(0 if timeout_ms is None else timeout_ms)
        with self._guard:
            clock = self._session.cluster.clock
            deadline = clock.ticks_ms() + (_CLOSE_MS if timeout_ms is None else timeout_ms)
            self._stop_handing()
            try:
                self._session.unsubscribe(auto_commit=auto_commit, timeout_ms=deadline - clock.ticks_ms())
            finally:
                self._guard.is_closed = True
                self._records = iter(())
                self._session.close(max(0.0, deadline - clock.ticks_ms()))

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Whether what was under way when an error came is processed, nobody knows. Source: kafka-python ``__exit__``.
        self._close(None, auto_commit=kind is None)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Consumer can't be pickled or copied: make one where it is used")

    def _poll(self, timeout_ms: float, max_records: int | None, handover: Handover | None) -> Records:
        session = self._session
        limit = session.config.max_poll_records if max_records is None else _positive("max_records", max_records)

        def attempt() -> Records | None:
            session.catch_up(records_first=True)
            return session.draining.records(limit, handover) if session.draining.ready_in_ms() == 0 else None

        return self._timed(attempt, timeout_ms) or {}

    def _timed(self, attempt: Any, timeout_ms: float) -> Any:
        session = self._session
        _check_timeout(timeout_ms)
        if session.subscription.is_empty:
            raise IllegalStateError("poll: subscribe to topics or assign partitions first")
        session.metrics.poll_begins()
        coordinator = session.coordinator

        def once() -> Any:
            if coordinator is not None:
                coordinator.in_poll()
            return attempt()

        try:
            return session.wait(once, timeout_ms)
        finally:
            session.metrics.poll_ends()

    def _seek_to(self, place: ResetPolicy, partitions: Collection[TopicPartition]) -> None:
        with self._guard:
            shared = self._session.shared
            wanted = check_partitions(partitions) or list(self.assignment())
            if not wanted:
                raise IllegalStateError("seek: no partitions are assigned")
            states = [self._session.state_of(partition) for partition in wanted]
            with shared.lock:
                for state in states:
                    shared.assignment.begin_anew(state, place)
                shared.change()

    def _stop_handing(self) -> None:
        """What iteration hasn't handed out is fetched again by whoever asks next."""
        self._begin_again_if_interrupted()
        if self._handing is not None:
            self._handing.give_back()
            self._handing = None
            self._records = iter(())

    def _begin_handover(self) -> Handover:
        self._stop_handing()
        self._handover = Handover()
        return self._handover

    def _begin_again_if_interrupted(self) -> None:
        """What an interrupted call took, or left half done, is fetched again."""
        if self._handover.was_interrupted or self._guard.was_interrupted:
            self._session.begin_again()
            self._handover = HANDED
            self._guard.was_interrupted = False

    def _coordinator(self, name: str) -> Coordinator:
        coordinator = self._session.coordinator
        if coordinator is None:
            raise IllegalStateError(f"{name}: this consumer has no group_id; keep position(…) yourself and seek")
        return coordinator

    def _stable_rows(self, coordinator: Coordinator, partition: TopicPartition, timeout_ms: float) -> Rows:
        """The rows, once no transaction may change this partition's, if the isolation level asks for that."""
        clock = self._session.cluster.clock
        deadline = clock.ticks_ms() + timeout_ms
        unstable: UnstableOffsetCommitError | None = None
        while True:
            left_ms = max(0.0, deadline - clock.ticks_ms())
            if unstable is not None and left_ms <= 0:
                raise unstable.with_traceback(None)
            try:
                return self._await(coordinator.fetch({partition}), left_ms)
            except UnstableOffsetCommitError as error:
                unstable = error
                self._session.wait(lambda: False, min(left_ms, _UNSTABLE_RETRY_MS))
            except KafkaTimeoutError:
                if unstable is None:
                    raise

    def _await(self, future: Future[Rows], timeout_ms: float) -> Rows:
        """What the offset table says. Raises what that raises, ``KafkaTimeoutError``, ``WakeupError``."""
        if not self._session.wait(future.done, timeout_ms):
            raise KafkaTimeoutError(f"timed out after {timeout_ms:g} ms while waiting for the group's offset table")
        return _result(future)

    def _timeout(self, timeout_ms: float | None) -> float:
        _check_timeout(0 if timeout_ms is None else timeout_ms)
        return self._session.config.default_api_timeout_ms if timeout_ms is None else timeout_ms


def _positive(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise InvalidArgumentError(f"{name}={value!r}: expected a whole number, 1 or more")
    return value


def _result(future: Future[Rows]) -> Rows:
    """Of a future that is done. Raises its error."""
    error = future.exception()
    if error is not None:
        raise error.with_traceback(None)
    return future.result()


def _check_offset(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LONG_MAX:
        raise InvalidArgumentError(f"seek to {value!r}: expected an offset, 0 or more")


def _check_offsets(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets: got {offsets!r}, expected a dict of TopicPartition to OffsetAndMetadata")
    found = {}
    for partition, committed in offsets.items():
        if not isinstance(committed, tuple) or not 1 <= len(committed) <= len(OffsetAndMetadata._fields):
            raise TypeError(f"offset of {partition}: got {committed!r}, expected an OffsetAndMetadata")
        found[check_partition(partition)] = OffsetAndMetadata(*committed)
    return found


def _check_timestamp(partition: TopicPartition, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgumentError(f"timestamp {value!r} for {partition}: expected milliseconds, 0 or more")


def _check_timeout(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidArgumentError(f"timeout_ms={value!r}: expected 0 or more")
