"""A consumer's inner life: its thread, what it waits for, and how its partitions change."""

from __future__ import annotations

import atexit
import logging
import time
import weakref
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, TypeVar

from sparklog.clock import Clock
from sparklog.config import ConsumerConfig
from sparklog.consumer.coordinator import Coordinator
from sparklog.consumer.fetch_state import Shared
from sparklog.consumer.fetcher import Fetcher
from sparklog.consumer.fetching import FetcherThread
from sparklog.consumer.guard import Guard
from sparklog.consumer.helping import Helping
from sparklog.consumer.listener import ConsumerRebalanceListener
from sparklog.consumer.lookups import Lookup, Lookups
from sparklog.consumer.metrics import ConsumerMetrics
from sparklog.consumer.partitions import PartitionState
from sparklog.consumer.reading import ReadLimits
from sparklog.consumer.record_buffer import Draining
from sparklog.consumer.subscription import HELD, Subscription
from sparklog.errors import IllegalStateError, KafkaTimeoutError, UnknownTopicOrPartitionError, WakeupError
from sparklog.interrupts import uninterrupted
from sparklog.log import Cluster
from sparklog.model import TopicPartition

__all__ = ["Session"]

_LOGGER = logging.getLogger("sparklog.consumer")
_LONGEST_WAIT_MS = 100.0
"""Between two looks at a clock that may be another than the machine's."""
_JOIN_AT_EXIT_S = 1.0

T = TypeVar("T")


class Session:
    """Used by the consumer's own thread alone, but for what ``shared`` says of other threads.

    Args:
        owns_store: close the store in the end.
    """

    def __init__(self, cluster: Cluster, config: ConsumerConfig, limits: ReadLimits, *, owns_store: bool) -> None:
        self.cluster = cluster
        self.config = config
        self.guard = Guard()
        self.shared = Shared(cluster.clock)
        self.metrics = ConsumerMetrics(cluster.clock)
        self.subscription = Subscription()
        self.draining = Draining(self.shared, config, self.metrics, cluster.clock)
        self.listener: ConsumerRebalanceListener | None = None
        self._clock: Clock = cluster.clock
        self._owns_store = owns_store
        self._limits = limits
        self._thread: FetcherThread | None = None
        self._lookups = Lookups(cluster)
        self._lookup: Lookup[Any] | None = None
        """The newest; it may be under way though nobody waits for it any more."""
        self._views_version = -1
        self._has_raised = False
        group_id = config.group_id
        self.coordinator = (
            None if group_id is None else Coordinator(cluster, config, self.shared, self.metrics, group_id)
        )
        """None without a group."""
        self._helping = Helping(cluster)
        weakref.finalize(self, _abandon, self.shared, self.guard, self.coordinator).atexit = False
        _LIVE.add(self)

    def wait(self, attempt: Callable[[], T | None], timeout_ms: float) -> T | None:
        """The first result of ``attempt`` that isn't empty, tried whenever there is news; None after the time-out.

        Raises:
            WakeupError: another thread called ``wakeup``.
        """
        self._start()
        shared, own = self.shared, object()
        deadline = self._clock.ticks_ms() + timeout_ms
        try:
            with shared.lock:
                shared.begin_wait(own)
            while True:
                with shared.lock:
                    news_count = shared.news_count
                    if shared.is_woken:
                        shared.is_woken = False
                        raise WakeupError("wakeup() was called")
                result = attempt()
                if result:
                    return result
                ready_in_ms = self.draining.ready_in_ms()
                left = deadline - self._clock.ticks_ms()
                if left <= 0:
                    return None
                longest = min(left, ready_in_ms or _LONGEST_WAIT_MS, _LONGEST_WAIT_MS)
                shared.news.wait_for(lambda seen=news_count: seen != shared.news_count, longest / 1000)  # type: ignore[misc]
        finally:
            with shared.lock:
                shared.end_wait(own)

    def ask(self, question: Callable[[Lookups], T], timeout_ms: float) -> T:
        """The answer to a question about topics, whatever this consumer reads meanwhile. Raises what the answer raises,
        ``KafkaTimeoutError``, ``WakeupError``."""
        self._lookup = lookup = Lookup(partial(question, self._lookups), ended=self._tell)
        if not self.wait(lambda: lookup.is_done, timeout_ms):
            raise KafkaTimeoutError(f"timed out after {timeout_ms:g} ms while reading the log")
        return lookup.result()

    def catch_up(self, *, records_first: bool = False, rebalance: bool = True) -> None:
        """Raise what went wrong in the background, and take up partitions that came or went.

        Args:
            records_first: where the last call raised too, let records be returned before the next error: what fails
                again and again doesn't stop the rest.
            rebalance: also those that the group gives and takes: inside ``poll`` alone, when what the last one
                returned is processed.
        """
        if rebalance:
            self._helping.polled()
        if self.coordinator is not None and (rebalance or self.subscription.manual):
            # First: a member that can't read still polls, and others wait for what it must give up.
            self.coordinator.reconcile(self.subscription, self.listener)
        unknown: set[str] = set()
        with self.shared.lock:
            if self.coordinator is not None and self.coordinator.is_member:
                unknown = self.shared.unknown_topics()
            waits = records_first and self._has_raised and bool(self.shared.assignment.ready())
            found = None if waits else self.shared.next_error(without=unknown)
        if self.coordinator is not None and unknown:
            self.coordinator.doubt(unknown)
        self._has_raised = found is not None
        if found is not None:
            topic, error = found
            if isinstance(error, UnknownTopicOrPartitionError):
                self.subscription.missing(topic)
            raise error.with_traceback(None)
        if self.coordinator is None:
            self._reassign()

    def begin_again(self) -> None:
        """Fetch all again from where the positions are: an interrupt has ended a call in the middle of a change."""
        with self.shared.lock:
            self.shared.polling.clear()
            self.shared.assignment.begin_again()
            self.shared.took()
            self.shared.change()

    def state_of(self, partition: TopicPartition) -> PartitionState:
        """The state of an assigned partition. Raises ``IllegalStateError``."""
        with self.shared.lock:
            state = self.shared.assignment.get(partition)
        if state is None:
            raise IllegalStateError(f"partition {partition.topic}-{partition.partition} is not assigned")
        return state

    def subscribe(self, listener: ConsumerRebalanceListener | None) -> None:
        """What is subscribed has changed."""
        self.listener = listener
        subscription, shared = self.subscription, self.shared
        if self.coordinator is not None:  # only what is assigned is followed
            self.coordinator.subscribe(subscription)
            return
        by_name = subscription.topics if subscription.pattern is None and subscription.topics else frozenset()
        with shared.lock:
            shared.want(by_name, subscription.pattern)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions."""
        if self.coordinator is not None:
            self.coordinator.forsake(partitions)
        self._replace(partitions)

    def _replace(self, partitions: Collection[TopicPartition]) -> None:
        begin = self.config.auto_offset_reset if self.coordinator is None else HELD
        with self.shared.lock:
            self.shared.assignment.replace(dict.fromkeys(partitions, begin))
            self.shared.forget_errors()
            self.shared.change()
        self.metrics.keep(partitions)
        if self.coordinator is not None:
            self.coordinator.restore()

    def unsubscribe(self, *, auto_commit: bool = True, timeout_ms: float | None = None) -> None:
        """Read nothing.

        Args:
            auto_commit: commit first where the application stands, if it is done automatically.
            timeout_ms: to leave the group in; ``default_api_timeout_ms`` by default.
        """
        if self.coordinator is not None:
            listener, self.listener = self.listener, None
            try:
                self.coordinator.leave(listener, auto_commit=auto_commit, timeout_ms=timeout_ms)
            finally:
                self.subscription.clear()
                self._replace([])
            return
        with self.shared.lock:
            revoked = self.shared.assignment.partitions()
        listener, is_manual = self.listener, self.subscription.manual
        self.subscription.clear()
        self.listener = None
        try:
            if revoked and listener is not None and not is_manual:
                listener.on_partitions_revoked(sorted(revoked))
        finally:
            with self.shared.lock:
                self.shared.want(frozenset(), None)
            self._replace([])

    def close(self, timeout_ms: float) -> None:
        """End the thread; the store is left open for a thread that doesn't end in time."""
        _LIVE.discard(self)
        self.stop()
        if not self.join(timeout_ms / 1000):
            _LOGGER.warning("threads did not end within %g ms; they end after their current request", timeout_ms)
        elif self._owns_store:
            self.cluster.store.close()

    def stop(self) -> None:
        """Let the threads end as soon as they can."""
        self.shared.stop()
        self._helping.stop()
        if self.coordinator is not None:
            self.coordinator.stop()

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads' ends. True: they have ended."""
        deadline = time.monotonic() + timeout_s
        ended = self._thread is None or self._thread.join(timeout_s)
        for other in (self._lookup, self.coordinator, self._helping):
            if other is not None:
                ended = other.join(max(0.0, deadline - time.monotonic())) and ended
        return ended

    def _start(self) -> None:
        if self._thread is None:
            uninterrupted(self._begin)

    def _begin(self) -> None:
        with self.shared.lock:
            if self._thread is not None:
                return
            fetcher = Fetcher(self.cluster, self.config, self.shared, self.metrics, self._limits)
            thread = FetcherThread(fetcher, self.shared, self._clock)
            thread.start()
            self._thread = thread

    def _tell(self) -> None:
        with self.shared.lock:
            self.shared.tell()

    def _reassign(self) -> None:
        shared, subscription = self.shared, self.subscription
        if subscription.topics is None:
            return
        with shared.lock:
            if self._views_version == shared.views_version:
                return
            self._views_version = shared.views_version
            if subscription.pattern is not None:
                if shared.matched is None:
                    return
                subscription.found(shared.matched)
            wanted = subscription.partitions(shared.views, self.config.auto_offset_reset)
            now = shared.assignment.partitions()
        revoked, added = sorted(now - wanted.keys()), sorted(wanted.keys() - now)
        try:
            if revoked and self.listener is not None:
                self.listener.on_partitions_revoked(revoked)
        finally:
            with shared.lock:
                shared.assignment.replace(wanted)
                shared.change()
            self.metrics.keep(wanted)
        if added and self.listener is not None:
            self.listener.on_partitions_assigned(added)


def _abandon(shared: Shared, guard: Guard, coordinator: Coordinator | None) -> None:
    if guard.is_forked:  # in a child the lock may be held by a thread that isn't there
        return
    shared.stop()
    if coordinator is not None:
        coordinator.stop()


_LIVE: weakref.WeakSet[Session] = weakref.WeakSet()


def _end_all() -> None:
    """A thread that decodes while the interpreter shuts down would crash it."""
    sessions = [session for session in _LIVE if not session.guard.is_forked]
    for session in sessions:
        session.stop()
    for session in sessions:
        session.join(_JOIN_AT_EXIT_S)


atexit.register(_end_all)
