"""A consumer's offsets in its group: committed by name or automatically, and read back."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError  # only since Python 3.11 the built-in one
from functools import partial
from typing import NamedTuple

from sparklog.clock import Clock, Deadline
from sparklog.config import ConsumerConfig
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.group_member import GroupMember
from sparklog.consumer.metrics import ConsumerMetrics
from sparklog.errors import (
    CommitFailedError,
    CommitStateUnknownError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    SparklogError,
    UnstableOffsetCommitError,
)
from sparklog.groups.admin.unowned_commits import EmptyGroup, UnownedCommit
from sparklog.groups.offsets.changes import CommitOffsets
from sparklog.groups.offsets.commit_thread import OffsetCommitThread
from sparklog.groups.offsets.rows import OffsetRow, Rows
from sparklog.interrupts import bounded_s
from sparklog.log import Cluster
from sparklog.logs import about
from sparklog.model import OffsetAndMetadata, TopicPartition

__all__ = ["OffsetCommits", "Offsets", "OnCommit", "Wait"]

_LOGGER = logging.getLogger("sparklog.consumer")
_UNSTABLE_RETRY_MS = 100.0

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit = Callable[[Offsets, "Exception | None"], object]
Wait = Callable[[Callable[[], bool], float], "bool | None"]
"""Wait until a predicate holds, for so many milliseconds at most; true if it does. Raises ``WakeupError``."""


class _Callback(NamedTuple):
    future: Future[Rows]
    offsets: Offsets
    call: OnCommit


class OffsetCommits:
    """Commits of one consumer, carried out in the order of the calls. Used by the consumer's own thread alone."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        fetch_state: FetchState,
        metrics: ConsumerMetrics,
        member: GroupMember,
        commit_thread: OffsetCommitThread,
    ) -> None:
        self._config = config
        self._fetch_state = fetch_state
        self._metrics = metrics
        self._clock: Clock = cluster.clock
        self._member = member
        self._commit_thread = commit_thread
        self._group_id: str = member.membership.settings.group_id
        self._empty_group = EmptyGroup(cluster, self._group_id)
        """For commits of partitions that the application assigns; used in the commit thread."""
        self.on_auto_commit: OnCommit = partial(_log_failure, self._group_id)
        """Called with what became of the commits that ``auto_commit_interval_ms`` brings."""
        self._callbacks: deque[_Callback] = deque()
        self._auto_commit_due_ticks_ms = 0.0

    def consumed(self, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of the assigned partitions, or of some of them; of those that have one."""
        with self._fetch_state.lock:
            return {
                state.partition: OffsetAndMetadata(state.position)
                for state in self._fetch_state.assignment
                if state.position is not None and (partitions is None or state.partition in partitions)
            }

    # Commits.

    def commit(self, offsets: Offsets, timeout_ms: float | None = None) -> Future[Rows]:
        """Commit offsets, after all that was to be committed before.

        Args:
            timeout_ms: to commit in; ``default_api_timeout_ms`` by default.
        Raises:
            RebalanceInProgressError, CommitFailedError: see ``Consumer.commit``; those that come from the offset table
            are in the future.
        """
        timeout_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        topic_ids = self._topic_ids(offsets)
        if self._member.is_subscribed:
            stamps = self._member.membership.stamps(offsets)
            missing = sorted(set(offsets) - stamps.keys())
            if missing:
                raise self._not_owned(missing[0])
            change = CommitOffsets(offsets=dict(offsets), stamps=stamps, topic_ids=topic_ids)
            ended = self._metrics.committing(offsets)
            future = self._commit_thread.change(change, timeout_ms=timeout_ms)
        else:
            unowned = UnownedCommit(self._empty_group, offsets, topic_ids)
            ended = self._metrics.committing(offsets)
            future = self._commit_thread.change(unowned.make, timeout_ms=timeout_ms, again=unowned.again)
        future.add_done_callback(ended)
        return future

    def commit_sync(self, offsets: Offsets, timeout_ms: float, *, wait: Wait) -> None:
        """Commit as :meth:`commit` does; wait until the offsets are durable, then call back for commits that are done.

        Raises:
            KafkaTimeoutError, CommitStateUnknownError: as :meth:`give_up`.
            WakeupError: from ``wait``.
            Exception: why the offsets weren't committed.
        """
        try:
            if offsets:
                committing = self.commit(offsets, timeout_ms)
                if not wait(committing.done, timeout_ms):
                    self.give_up(committing, timeout_ms)
                _result(committing)
        finally:
            self.run_callbacks()

    def commit_async(self, offsets: Offsets, callback: OnCommit | None) -> Future[Rows]:
        """Commit as :meth:`commit` does; all errors are in the future, and given to ``callback`` in a later call."""
        try:
            future = self.commit(offsets)
        except Exception as error:
            future = Future()
            future.set_exception(error)
        if callback is not None:
            self._callbacks.append(_Callback(future, dict(offsets), callback))
        return future

    def give_up(self, committing: Future[Rows], timeout_ms: float) -> None:
        """Withdraw a commit that wasn't done in time.

        Raises:
            KafkaTimeoutError: it hadn't begun, and never will be carried out.
            CommitStateUnknownError: it has begun; unless it is done by now.
        """
        waited = f"offsets of group {self._group_id!r} were not committed within {timeout_ms:g} ms"
        if self._commit_thread.withdraw(committing):
            raise KafkaTimeoutError(f"{waited}, and won't be: earlier commits are still under way")
        if not committing.done():
            raise CommitStateUnknownError(f"{waited}: the commit is under way, and may still be carried out")

    # Automatic commits.

    def commit_if_due(self) -> None:
        """Commit the positions if it is time to: all that earlier polls returned is processed by now.

        For ``poll`` alone: in other calls what the last one returned may still be under way.

        Source: Kafka ``ConsumerCoordinator.maybeAutoCommitOffsetsAsync``.
        """
        self.run_callbacks()
        now = self._clock.ticks_ms()
        if not self._config.enable_auto_commit or now < self._auto_commit_due_ticks_ms:
            return
        self._auto_commit_due_ticks_ms = now + self._config.auto_commit_interval_ms
        offsets = self.consumed()
        if offsets:
            self.commit_async(offsets, self.on_auto_commit)

    def commit_before_unassigning(self, kept: Collection[TopicPartition]) -> None:
        """Commit the positions of all assigned partitions but ``kept``, if it is done automatically: the application
        assigns others, and no rebalance will commit what it stops reading.

        Source: Kafka ``KafkaConsumer.assign``.
        """
        with self._fetch_state.lock:
            gone = self._fetch_state.assignment.partitions().difference(kept)
        offsets = self.consumed(gone) if self._config.enable_auto_commit else {}
        if offsets:
            self.commit_async(offsets, self.on_auto_commit)

    def begin_revocation_commit(self, partitions: Collection[TopicPartition]) -> Future[Rows]:
        """Begin to commit the positions of partitions that are taken away; errors are in the future."""
        offsets = self.consumed(partitions)
        if offsets:
            return self.commit_async(offsets, None)
        nothing: Future[Rows] = Future()
        nothing.set_result({})
        return nothing

    def commit_before_closing(self, timeout_ms: float) -> None:
        """Commit the positions, and wait; errors are logged. Source: Kafka ``maybeAutoCommitOffsetsSync``."""
        offsets = self.consumed()
        if not offsets:
            return
        try:
            committing = self.commit(offsets, timeout_ms)
            try:
                committing.exception(bounded_s(timeout_ms / 1_000))
            except FutureTimeoutError:
                self.give_up(committing, timeout_ms)
            committing.result()
        except SparklogError as error:
            _LOGGER.warning("group %s: automatic commit: %s", self._group_id, error, extra=about(group=self._group_id))

    # Callbacks.

    def run_callbacks(self) -> None:
        """Call back for the commits that are done, in their order. Raises what a callback raises."""
        while self._callbacks and self._callbacks[0].future.done():
            future, offsets, call = self._callbacks.popleft()
            error = future.exception()
            call(offsets, error if isinstance(error, Exception) else None)

    def wait_for_callbacks(self, deadline: Deadline) -> None:
        """Wait for the commits that are under way, and call back for those that are done by the deadline."""
        for callback in self._callbacks:
            try:
                callback.future.exception(bounded_s(deadline.left_ms / 1_000))
            except FutureTimeoutError:
                break
        self.run_callbacks()

    # Reading back.

    def fetch(self, partitions: Collection[TopicPartition]) -> Future[Rows]:
        """The group's rows as of now, with all that was to be committed before, and what transactions did of these
        partitions.

        With ``isolation_level=read_committed`` the future has an ``UnstableOffsetCommitError`` while one may still
        change a row. Source: Kafka's ``require_stable``.
        """
        timeout_ms = self._config.default_api_timeout_ms
        waits = self._config.isolation_level == "read_committed"
        return self._commit_thread.fetch(partitions, timeout_ms=timeout_ms, waits=waits)

    def fetch_stable(self, partition: TopicPartition, timeout_ms: float, *, wait: Wait) -> OffsetRow | None:
        """The group's row of a partition, once no transaction may change it, if the isolation level asks for that.

        Raises:
            UnstableOffsetCommitError: one still may after ``timeout_ms``.
            KafkaTimeoutError: the offset table wasn't read within ``timeout_ms``.
            WakeupError: from ``wait``.
        """
        deadline = self._clock.deadline_in(timeout_ms)
        unstable: UnstableOffsetCommitError | None = None
        while True:
            left_ms = deadline.left_ms
            if unstable is not None and left_ms <= 0:
                raise unstable.with_traceback(None)
            try:
                fetching = self.fetch({partition})
                if not wait(fetching.done, left_ms):
                    raise KafkaTimeoutError(
                        f"timed out after {left_ms:g} ms while waiting for the group's offset table"
                    )
                return _result(fetching).get(partition)
            except UnstableOffsetCommitError as error:
                unstable = error
                wait(lambda: False, min(left_ms, _UNSTABLE_RETRY_MS))
            except KafkaTimeoutError:
                if unstable is None:
                    raise

    def _not_owned(self, partition: TopicPartition) -> SparklogError:
        self._member.membership.raise_error()  # it may be out for good
        name = f"{partition.topic}-{partition.partition}"
        with self._fetch_state.lock:
            is_lost = partition in self._fetch_state.assignment  # and the application hasn't been notified yet
        if self._member.membership.is_joining and not is_lost:
            return RebalanceInProgressError(
                f"offsets of {name} weren't committed: group {self._group_id!r} is rebalancing; poll, then try again"
            )
        return CommitFailedError(
            f"offsets of {name} weren't committed: this consumer doesn't own it (any more) in group "
            f"{self._group_id!r}; if it took longer than max_poll_interval_ms between two polls, it left the group"
        )

    def _topic_ids(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        with self._fetch_state.lock:
            states = {p: self._fetch_state.assignment.get(p) for p in partitions}
        return {p: state.topic_id for p, state in states.items() if state is not None and state.topic_id is not None}


def _result(future: Future[Rows]) -> Rows:
    """The result of a future that is done. Raises its error."""
    error = future.exception()
    if error is not None:
        raise error.with_traceback(None)
    return future.result()


def _log_failure(group: str, offsets: Offsets, error: Exception | None) -> None:
    if error is not None:
        count = len(offsets)
        _LOGGER.warning(
            "group %s: automatic commit of %d partitions failed: %s", group, count, error, extra=about(group=group)
        )
