"""The parts of a consumer together: threads, waits, positions, and changes of the subscription."""

from __future__ import annotations

import logging
import re
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from sparklog.clock import Clock
from sparklog.config import ConsumerConfig
from sparklog.consumer.arguments import check_timeout
from sparklog.consumer.assigned_partitions import AssignedPartitions
from sparklog.consumer.assignment import HANDED_OVER, Handover, PartitionState
from sparklog.consumer.at_exit import end_at_exit, forget_at_exit
from sparklog.consumer.coordinator import Coordinator
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.fetcher import Fetcher
from sparklog.consumer.fetcher_thread import FetcherThread
from sparklog.consumer.listener import ConsumerRebalanceListener
from sparklog.consumer.lookups import Lookup, Lookups
from sparklog.consumer.metrics import ConsumerMetrics
from sparklog.consumer.offset_commits import OffsetCommits, OnCommit
from sparklog.consumer.record_buffer import GivesBack, Only, RecordBuffer, RecordIterator, Records
from sparklog.consumer.segment_fetcher import ReadLimits
from sparklog.consumer.single_thread_guard import SingleThreadGuard
from sparklog.consumer.subscription import HELD, Subscription
from sparklog.consumer.transaction_help import TransactionHelp
from sparklog.consumer.ungrouped_assignment import UngroupedAssignment
from sparklog.errors import IllegalStateError, KafkaTimeoutError, UnknownTopicOrPartitionError, WakeupError
from sparklog.interrupts import uninterrupted
from sparklog.log import Cluster
from sparklog.metrics import ClientMetrics
from sparklog.model import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata, TopicPartition

__all__ = ["ConsumerRuntime"]

_LOGGER = logging.getLogger("sparklog.consumer")
_LONGEST_WAIT_MS = 100.0
"""Between two looks at a clock that may be another than the machine's."""

T = TypeVar("T")


class ConsumerRuntime:
    """Used by the consumer's own thread alone, but for what ``fetch_state`` and single methods say of other threads.

    Args:
        owns_store: close the store in the end.
    """

    def __init__(self, cluster: Cluster, config: ConsumerConfig, limits: ReadLimits, *, owns_store: bool) -> None:
        self.cluster = cluster
        self.config = config
        self.guard = SingleThreadGuard()
        self.fetch_state = FetchState(cluster.clock)
        self.subscription = Subscription()
        self.metrics = ConsumerMetrics(cluster.clock)
        self.record_buffer = RecordBuffer(self.fetch_state, config, self.metrics, cluster.clock)
        self.assigned = AssignedPartitions(config, self.fetch_state)
        self._listener: ConsumerRebalanceListener | None = None
        self._handover = HANDED_OVER
        """The handover of the newest poll."""
        self.record_iterator: GivesBack | None = None
        """Whoever hands out records of polls, and has some left."""
        self._clock: Clock = cluster.clock
        self._owns_store = owns_store
        self._limits = limits
        self._thread: FetcherThread | None = None
        self._lookups = Lookups(cluster)
        self._lookup: Lookup[Any] | None = None
        """The newest; it may be under way though nobody waits for it any more."""
        self._has_raised = False
        self._ungrouped = UngroupedAssignment(config, self.fetch_state, self.metrics, self.subscription)
        group_id = config.group_id
        self.coordinator = (
            None if group_id is None else Coordinator(cluster, config, self.fetch_state, self.metrics, group_id)
        )
        """None without a group."""
        self._transaction_help = TransactionHelp(cluster)
        weakref.finalize(self, _abandon, self.fetch_state, self.guard, self.coordinator).atexit = False
        end_at_exit(self)

    # Polling and waiting.

    def poll(self, max_records: int, handover: Handover | None, timeout_ms: float, only: Only = None) -> Records:
        """The next records, at most ``max_records``; none if there are none in time. Raises as ``Consumer.poll``.

        Args:
            handover: moves the positions; None: whoever hands out the records moves them.
            only: none but these partitions; None: all.
        """
        return self._poll(partial(self.record_buffer.records, max_records, handover, only), timeout_ms, only) or {}

    def poll_batches(
        self, max_records: int | None, handover: Handover, timeout_ms: float
    ) -> dict[TopicPartition, pa.RecordBatch]:
        """The next records as Arrow data, without a bound where ``max_records`` is None; see :meth:`poll`."""
        return self._poll(partial(self.record_buffer.batches, max_records, handover), timeout_ms) or {}

    def begin_poll(self) -> Handover:
        """Begin a poll whose records are handed over all at once; see :meth:`poll`."""
        self.stop_iteration()
        self._handover = Handover()
        return self._handover

    def iterate(self, records: Records) -> Iterator[ConsumerRecord]:
        """Iterate over records of a poll without a handover; each moves the position of its partition."""
        self.record_iterator = iterator = RecordIterator(self.fetch_state, records)
        return iter(iterator)

    def stop_iteration(self) -> None:
        """Have records fetched again that iteration hasn't returned."""
        self._begin_again_if_interrupted()
        if self.record_iterator is not None:
            self.record_iterator.give_back()
            self.record_iterator = None

    def wait(self, attempt: Callable[[], T | None], timeout_ms: float) -> T | None:
        """The first result of ``attempt`` that isn't empty, tried whenever there is news; None after the time-out.

        Raises:
            WakeupError: another thread called ``wakeup``.
        """
        self._start()
        fetch_state, key = self.fetch_state, object()
        deadline = self._clock.deadline_in(timeout_ms)
        try:
            with fetch_state.lock:
                fetch_state.begin_wait(key)
            while True:
                with fetch_state.lock:
                    update_count = fetch_state.update_count
                    if fetch_state.is_woken:
                        fetch_state.is_woken = False
                        raise WakeupError("wakeup() was called")
                result = attempt()
                if result:
                    return result
                ready_in_ms = self.record_buffer.ready_in_ms() if self.record_buffer.waits_for_bytes else None
                left_ms = deadline.left_ms
                if left_ms <= 0:
                    return None
                longest_ms = min(left_ms, ready_in_ms or _LONGEST_WAIT_MS, _LONGEST_WAIT_MS)
                fetch_state.wait_for_update(update_count, longest_ms / 1000)
        finally:
            with fetch_state.lock:
                fetch_state.end_wait(key)

    def ask(self, question: Callable[[Lookups], T], timeout_ms: float | None) -> T:
        """The answer to a question about topics, whatever this consumer reads meanwhile.

        Args:
            timeout_ms: ``default_api_timeout_ms`` by default.
        Raises:
            KafkaTimeoutError, WakeupError.
            Exception: what the answer raises.
        """
        bound = self.api_timeout_ms(timeout_ms)
        self._lookup = lookup = Lookup(partial(question, self._lookups), ended=self.fetch_state.notify_application)
        if not self.wait(lambda: lookup.is_done, bound):
            raise KafkaTimeoutError(f"timed out after {bound:g} ms while reading the log")
        return lookup.result()

    def api_timeout_ms(self, timeout_ms: float | None) -> float:
        """The time that a call may take; ``default_api_timeout_ms`` by default. Raises ``InvalidArgumentError``."""
        check_timeout(0 if timeout_ms is None else timeout_ms)
        return self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms

    def _poll(self, take: Callable[[], T], timeout_ms: float, only: Only = None) -> T | None:
        if self.subscription.is_empty:
            raise IllegalStateError("poll: subscribe to topics or assign partitions first")
        self.metrics.poll_begins()
        try:
            polled = self.wait(partial(self._poll_once, take, only), timeout_ms)
        except BaseException as error:
            self.metrics.poll_ends(error)
            raise
        self.metrics.poll_ends(None)
        return polled

    def _poll_once(self, take: Callable[[], T], only: Only) -> T | None:
        if self.coordinator is not None:
            self.coordinator.commits.commit_if_due()
        self._transaction_help.polled()
        self._reconcile()
        self._raise_next_error(records_first=True, only=only)
        self._update_ungrouped()
        self.record_buffer.want(only)
        return take() if self.record_buffer.ready_in_ms(only) == 0 else None

    def _begin_again_if_interrupted(self) -> None:
        """Have all fetched again from where the positions are, if an interrupt ended a call in the middle of a change,
        or before its records were handed over."""
        if self._handover.was_interrupted or self.guard.was_interrupted:
            with self.fetch_state.lock:
                self.fetch_state.waits.clear()
                self.fetch_state.assignment.begin_again()
                self.fetch_state.notify_room()
                self.fetch_state.request_update()
            self._handover = HANDED_OVER
            self.guard.was_interrupted = False

    # Errors, and partitions that come and go.

    def _has_position(self, state: PartitionState) -> bool:
        """Is a position known by now? Raises what went wrong in the background.

        Partitions that the group gives and takes wait for the next ``poll``, when what the last one returned is
        processed.
        """
        if self.subscription.manual:
            self._reconcile()
        self._raise_next_error(records_first=False)
        self._update_ungrouped()
        return state.position is not None

    def _reconcile(self) -> None:
        """Take up what the group has decided; before errors are raised: a member that can't read still polls, and
        others wait for what it must give up."""
        if self.coordinator is not None:
            self.coordinator.reconcile(self.subscription, self._listener)

    def _raise_next_error(self, *, records_first: bool, only: Only = None) -> None:
        """Raise what went wrong in the background.

        Args:
            records_first: where the last call raised too, let records be returned before the next error: what fails
                again and again doesn't stop the rest.
            only: the partitions whose records would be returned; None: all.
        """
        unknown: set[str] = set()
        if not (self.fetch_state.errors or self.fetch_state.assignment.failed):  # what comes next is raised next time
            self._has_raised = False
            return
        with self.fetch_state.lock:
            if self.coordinator is not None and self.coordinator.is_member:
                unknown = self.fetch_state.unknown_topics()
            waits = records_first and self._has_raised and bool(self.fetch_state.assignment.ready(only))
            failure = None if waits else self.fetch_state.next_error(without=unknown)
        if self.coordinator is not None and unknown:
            self.coordinator.report_unknown_topics(unknown)
        self._has_raised = failure is not None
        if failure is not None:
            topic, error = failure
            if isinstance(error, UnknownTopicOrPartitionError):
                self.subscription.missing(topic)
            raise error.with_traceback(None)

    def _update_ungrouped(self) -> None:
        if self.coordinator is None:
            self._ungrouped.update(self._listener)

    def wake(self) -> None:
        """End the wait that is under way, or else the next one, with ``WakeupError``. From any thread."""
        self.fetch_state.wake()

    # Subscription and assignment.

    def subscribe(
        self,
        topics: Collection[str],
        pattern: str | re.Pattern[str] | None,
        listener: ConsumerRebalanceListener | None,
    ) -> None:
        """Read topics, or those that match a pattern. Raises as ``Consumer.subscribe``."""
        self.subscription.subscribe(topics, pattern)
        self._listener = listener
        if self.coordinator is not None:  # only what is assigned is followed
            self.coordinator.subscribe(self.subscription)
        else:
            self._ungrouped.subscribe()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions."""
        self.subscription.assign()
        if self.coordinator is not None:
            self.coordinator.commits.commit_before_unassigning(partitions)
        self._replace(partitions)

    def unsubscribe(self, *, auto_commit: bool = True, timeout_ms: float | None = None) -> None:
        """Read nothing.

        Args:
            auto_commit: commit the positions first, if it is done automatically.
            timeout_ms: to leave the group in; ``default_api_timeout_ms`` by default.
        """
        if self.coordinator is not None:
            listener, self._listener = self._listener, None
            try:
                self.coordinator.leave(listener, auto_commit=auto_commit, timeout_ms=timeout_ms)
            finally:
                self.subscription.clear()
                self._replace([])
            return
        listener = self._listener
        revoked = self._ungrouped.clear_subscription()
        self._listener = None  # only now: an interrupt before leaves a consumer that reads on and calls its listener
        try:
            if revoked and listener is not None:
                listener.on_partitions_revoked(revoked)
        finally:
            self._ungrouped.follow_nothing()
            self._replace([])

    def _replace(self, partitions: Collection[TopicPartition]) -> None:
        begin = self.config.auto_offset_reset if self.coordinator is None else HELD
        with self.fetch_state.lock:
            self.fetch_state.assignment.replace(dict.fromkeys(partitions, begin))
            self.fetch_state.forget_unwanted_errors()
            self.fetch_state.request_update()
        self.metrics.keep(partitions)
        if self.coordinator is not None:
            self.coordinator.begin_at_committed()

    # Positions.

    def position(self, partition: TopicPartition, timeout_ms: float | None) -> int:
        """The offset of the next record; waits until it is known.

        Raises:
            IllegalStateError: the partition isn't assigned.
            KafkaTimeoutError: not known within ``timeout_ms`` (``default_api_timeout_ms`` by default).
            As ``Consumer.poll``.
        """
        self._begin_again_if_interrupted()
        state = self.assigned.state_of(partition)
        if state.position is None:
            bound = self.api_timeout_ms(timeout_ms)
            if not self.wait(partial(self._has_position, state), bound):
                raise KafkaTimeoutError(f"the position of {partition} was not found within {bound:g} ms")
        if self.record_iterator is None:
            self.record_buffer.skip_empty(state)
        if state.position is None:
            raise IllegalStateError(f"the position of {partition} was lost while it was determined")
        return state.position

    # The group.

    def commits_for(self, call: str) -> OffsetCommits:
        """The group's offsets. Raises ``IllegalStateError``, which names the call: there is no ``group_id``."""
        return self._coordinator_for(call).commits

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This member, as ``send_offsets_to_transaction`` wants it. Raises ``IllegalStateError``: no group."""
        return self._coordinator_for("group_metadata").metadata()

    def call_after_auto_commits(self, callback: OnCommit) -> None:
        """Call back with what became of automatic commits, rather than log it; without a group there are none."""
        if self.coordinator is not None:
            self.coordinator.commits.on_auto_commit = callback

    def committed(self, partition: TopicPartition, timeout_ms: float | None) -> OffsetAndMetadata | None:
        """The group's committed offset of a partition, for the topic that is there now; None if there is none.

        Args:
            timeout_ms: ``default_api_timeout_ms`` by default.
        Raises:
            As ``Consumer.committed``.
        """
        commits, bound = self.commits_for("committed"), self.api_timeout_ms(timeout_ms)
        deadline = self._clock.deadline_in(bound)
        row = commits.fetch_stable(partition, bound, wait=self.wait)
        if row is None or row.committed is None:
            return None
        topic_id = self.ask(lambda lookups: lookups.topic_id(partition), deadline.left_ms)
        return None if topic_id is None else row.committed_for(topic_id)

    def _coordinator_for(self, call: str) -> Coordinator:
        if self.coordinator is None:
            raise IllegalStateError(f"{call}: this consumer has no group_id; keep position(…) yourself and seek")
        return self.coordinator

    # Metrics, threads and the end.

    def client_metrics(self) -> ClientMetrics:
        """Kafka's consumer metrics. From any thread."""
        return ClientMetrics(
            kind="consumer",
            client_id=self.config.client_id,
            is_closed=self.guard.is_closed or self.guard.is_forked,
            groups=[*self.metrics.groups(assigned_count=self.assigned.count()), *self.cluster.store.counts.groups()],
        )

    def close(self, timeout_ms: float, *, auto_commit: bool) -> None:
        """Read nothing any more, and end the threads.

        Args:
            timeout_ms: for all of it together.
            auto_commit: see :meth:`unsubscribe`.
        """
        deadline = self._clock.deadline_in(timeout_ms)
        self.stop_iteration()
        try:
            self.unsubscribe(auto_commit=auto_commit, timeout_ms=deadline.left_ms)
        finally:
            self.guard.is_closed = True
            self._close(deadline.left_ms)

    def _close(self, timeout_ms: float) -> None:
        """End the threads; the store is left open for a thread that doesn't end in time."""
        forget_at_exit(self)
        self.stop()
        if not self.join(timeout_ms / 1000):
            _LOGGER.warning("threads did not end within %g ms; they end after their current request", timeout_ms)
        elif self._owns_store:
            self.cluster.store.close()

    def stop(self) -> None:
        """Let the threads end as soon as they can."""
        self.fetch_state.stop()
        self._transaction_help.stop()
        if self.coordinator is not None:
            self.coordinator.stop()

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads' ends. True: they have ended."""
        deadline = time.monotonic() + timeout_s
        ended = self._thread is None or self._thread.join(timeout_s)
        for other in (self._lookup, self.coordinator, self._transaction_help):
            if other is not None:
                ended = other.join(max(0.0, deadline - time.monotonic())) and ended
        return ended

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_running:
            uninterrupted(self._start_fetcher)

    def _start_fetcher(self) -> None:
        with self.fetch_state.lock:
            if self._thread is None:
                fetcher = Fetcher(self.cluster, self.config, self.fetch_state, self.metrics, self._limits)
                self._thread = FetcherThread(fetcher, self.fetch_state, self._clock)
            self._thread.start()


def _abandon(fetch_state: FetchState, guard: SingleThreadGuard, coordinator: Coordinator | None) -> None:
    if guard.is_forked:  # in a child the lock may be held by a thread that isn't there
        return
    fetch_state.stop()
    if coordinator is not None:
        coordinator.stop()
