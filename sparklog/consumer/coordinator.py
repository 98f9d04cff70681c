"""What a consumer with a ``group_id`` does beyond reading: its membership, and its committed offsets."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError  # only since Python 3.11 the built-in one
from typing import NamedTuple

from sparklog.clock import Clock
from sparklog.config import ConsumerConfig
from sparklog.consumer.fetch_state import Shared
from sparklog.consumer.listener import ConsumerRebalanceListener
from sparklog.consumer.member_settings import member_settings
from sparklog.consumer.metrics import ASSIGNED, LOST, REVOKED, ConsumerMetrics
from sparklog.consumer.partitions import PartitionState
from sparklog.consumer.restoring import Restoring
from sparklog.consumer.revoking import Revoking
from sparklog.consumer.subscription import EARLIEST, HELD, Subscription
from sparklog.errors import (
    CommitFailedError,
    CommitStateUnknownError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.groups.admin.unowned_commits import EmptyGroup, UnownedCommit
from sparklog.groups.membership.heartbeat_rounds import HeartbeatRounds
from sparklog.groups.membership.heartbeat_thread import HeartbeatThread
from sparklog.groups.membership.membership import MemberSettings, Membership
from sparklog.groups.offsets.changes import CommitOffsets, TakePartitions
from sparklog.groups.offsets.commit_thread import OffsetKeeper
from sparklog.groups.offsets.rows import OffsetRow, Rows, Stamp
from sparklog.interrupts import uninterrupted
from sparklog.log import Cluster
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.storage.retrying import Patience
from sparklog.txn.deciding import deciding_for

__all__ = ["Coordinator", "OnCommit"]

_LOGGER = logging.getLogger("sparklog.consumer")

_DOUBT_AGAIN_MS = 1_000.0

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit = Callable[[Offsets, "Exception | None"], object]


class _Callback(NamedTuple):
    future: Future[Rows]
    offsets: Offsets
    call: OnCommit


class Coordinator:
    """Used by the consumer's own thread alone; two threads of its own do what mustn't wait for the application.

    ``sparklog-heartbeat`` does the member's rounds, ``sparklog-offsets`` reads and writes the offset table.
    """

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, shared: Shared, metrics: ConsumerMetrics, group_id: str
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._shared = shared
        self._metrics = metrics
        self._clock: Clock = cluster.clock
        self._group_id = group_id
        self._membership = self._new_membership(member_settings(config, group_id))
        self._keeper = OffsetKeeper(
            cluster,
            group_id,
            deciding_for(
                cluster,
                reason=f"its partitions moved to another member of group {group_id!r}",
                timeout_ms=config.session_timeout_ms,
            ),
            tell=self._news,
        )
        self._beginning = threading.Lock()
        self._heartbeat: HeartbeatThread | None = None
        self._rounds: HeartbeatRounds | None = None
        self._is_member = False
        self.on_auto_commit: OnCommit = _log_failure
        """Told of what became of the commits that ``auto_commit_interval_ms`` brings."""
        self._callbacks: deque[_Callback] = deque()
        self._commit_due_ticks_ms = 0.0
        self._empty_group = EmptyGroup(cluster, group_id)
        """For commits of partitions that the application assigns; used in the keeper's thread."""
        self._restoring = Restoring(shared, self._clock, config, self.fetch)
        self._revoking = Revoking(
            shared, self._clock, self._begin_commit, timeout_ms=float(config.default_api_timeout_ms)
        )
        self._has_raised = False
        self._views_version = -1
        self._generation = -1
        """As of the last poll."""
        self._doubted: dict[str, float] = {}
        """Topics that reading didn't find any more, and when to look again unless the group has gone on by then."""

    def _new_membership(self, settings: MemberSettings) -> Membership:
        return Membership(settings, self._clock, notify=self._news, wake=self._wake)

    # Partitions.

    def subscribe(self, subscription: Subscription) -> None:
        """Want what is subscribed now; the rounds begin with the first poll."""
        by_name = subscription.topics or frozenset()
        self._membership.subscribe(() if subscription.pattern is not None else by_name, subscription.pattern)
        self._is_member = True

    def polled(self) -> None:
        """The application lives."""
        if self._is_member:
            if self._heartbeat is None:
                uninterrupted(self._begin_rounds)
            self._membership.polled()

    def _begin_rounds(self) -> None:
        with self._beginning:
            if self._heartbeat is None:
                self._rounds = HeartbeatRounds(self._cluster, self._membership, self._take)
                heartbeat = HeartbeatThread(self._rounds, self._membership, on_heartbeat=self._metrics.heartbeat)
                heartbeat.start()
                self._heartbeat = heartbeat

    def reconcile(self, subscription: Subscription, listener: ConsumerRebalanceListener | None) -> None:
        """Take up what the group has decided: what was lost, then what must be given up, then what is new.

        Source of the order: Kafka ``ConsumerCoordinator.onJoinComplete``.
        """
        membership = self._membership
        if not self._is_member:
            self._restore()
            return
        self.polled()
        self._note_generation()
        lost = membership.take_lost()
        if lost:
            _LOGGER.warning("group %s: lost %d partitions", self._group_id, len(lost))
            self._metrics.rebalance_failed()
            self._drop(lost, LOST, listener)
        if subscription.pattern is not None:
            subscription.found(membership.resolved)
        released = membership.to_release()
        if not released:
            self._revoking.forget()
        elif not self._config.enable_auto_commit or self._revoking.is_over(released):
            try:
                self._drop(released, REVOKED, listener)
            finally:
                membership.released(released)
        with self._shared.lock:
            assigned = self._shared.assignment.partitions()
        added = membership.hand_over(assigned)
        if added:
            self._add(added)
            self._tell(sorted(added), ASSIGNED, listener)
        self._tell_topics()
        self._raise_errors()  # last: others wait for what is to be released, whatever is wrong here

    def _raise_errors(self) -> None:
        """Raise what went wrong in the rounds, and which topics don't exist.

        Where the last call raised too, records are returned before the next error: what fails again and again doesn't
        stop the rest.
        """
        with self._shared.lock:
            waits = self._has_raised and bool(self._shared.assignment.ready())
        self._has_raised = not waits
        if waits:
            return
        self._membership.raise_error()
        missing = self._membership.next_missing()
        if missing is not None:
            raise UnknownTopicOrPartitionError(f"unknown topic {missing!r}: it is read once it exists")
        self._has_raised = False

    @property
    def is_member(self) -> bool:
        """Are topics subscribed, so that the group decides which partitions are read?"""
        return self._is_member

    def doubt(self, topics: Collection[str]) -> None:
        """Reading doesn't find these topics any more, or not with as many partitions: the group's next generation goes
        on without them, or with what was created under their names. No poll raises it.

        Source: Kafka ``FetchCollector.handleInitializeErrors``, which asks for new metadata.
        """
        now = self._clock.ticks_ms()
        again = {topic for topic in topics if self._doubted.get(topic, math.inf) <= now}
        fresh = set(topics) - self._doubted.keys()
        if not (again or fresh):
            return
        self._doubted = {topic: self._doubted.get(topic, 0.0) for topic in topics}
        self._doubted |= dict.fromkeys(again | fresh, now + _DOUBT_AGAIN_MS)
        if again:
            with self._shared.lock:
                self._shared.look_again(again)
        self._membership.doubt_topics(again | fresh)

    def forsake(self, kept: Collection[TopicPartition]) -> None:
        """The application assigns these partitions and no others: no rebalance will commit what it stops reading.

        Source: Kafka ``KafkaConsumer.assign``.
        """
        with self._shared.lock:
            gone = self._shared.assignment.partitions().difference(kept)
        offsets = self.consumed(gone) if self._config.enable_auto_commit else {}
        if offsets:
            self.commit_async(offsets, self.on_auto_commit)

    def restore(self) -> None:
        """Partitions were assigned by the application: they begin at what was committed."""
        self._restoring.ask()

    def _restore(self) -> None:
        rows = self._restoring.answer()
        if rows is None:
            return
        with self._shared.lock:
            for state in [*self._shared.assignment]:
                if state.begin == HELD and state.position is None:
                    self._begin(state, rows.get(state.partition), {})
            self._shared.change()
        self._restoring.forget()  # at last: what an interrupt cuts off before, the next poll does

    def _note_generation(self) -> None:
        generation = self._membership.metadata().generation_id
        if generation not in (-1, self._generation):
            self._metrics.rebalanced()
        self._generation = generation

    def _add(self, added: Mapping[TopicPartition, OffsetRow]) -> None:
        shared = self._shared
        first_counts = self._membership.first_counts()  # before the lock: whoever holds the membership's may want ours
        with shared.lock:
            kept = {state.partition: state.begin for state in shared.assignment}
            shared.assignment.replace({**kept, **dict.fromkeys(added, self._config.auto_offset_reset)})
            for partition, row in added.items():
                state = shared.assignment.get(partition)
                if state is not None:
                    self._begin(state, row, first_counts)
            shared.forget_errors()
            shared.change()
            self._metrics.keep(shared.assignment.partitions())

    def _begin(self, state: PartitionState, row: OffsetRow | None, first_counts: Mapping[str, int]) -> None:
        """Where to go on with a partition. A new partition of a topic that the group subscribes to holds nothing older
        than the subscription: with ``latest`` what came before it was noticed would be passed over."""
        policy = self._config.auto_offset_reset
        if row is not None and row.committed is not None:
            self._shared.assignment.seek(state, row.committed.offset)
            state.begin, state.topic_id = policy, row.topic_id or None
            return
        first_count = first_counts.get(state.partition.topic)
        is_later = first_count is not None and state.partition.partition >= first_count
        self._shared.assignment.begin_anew(state, EARLIEST if is_later and policy.kind != "none" else policy)

    def _tell(
        self, partitions: Collection[TopicPartition], event: str, listener: ConsumerRebalanceListener | None
    ) -> None:
        if listener is None:
            return
        call = {
            ASSIGNED: listener.on_partitions_assigned,
            REVOKED: listener.on_partitions_revoked,
            LOST: listener.on_partitions_lost,
        }[event]
        began = self._clock.ticks_ms()
        try:
            call(partitions)
        finally:
            self._metrics.told_listener(event, self._clock.ticks_ms() - began)

    def _drop(self, gone: Collection[TopicPartition], event: str, listener: ConsumerRebalanceListener | None) -> None:
        """Tell the listener, then read these partitions no more, whatever it raises."""
        shared = self._shared
        with shared.lock:
            known = sorted(set(gone) & shared.assignment.partitions())
        try:
            if known:
                self._tell(known, event, listener)
        finally:
            with shared.lock:
                kept = {s.partition: s.begin for s in shared.assignment if s.partition not in gone}
                shared.assignment.replace(kept)
                shared.forget_errors()
                shared.change()
                self._metrics.keep(kept)

    def _tell_topics(self) -> None:
        """Let the rounds know what reading has found of the topics: a partition that came is noticed at once."""
        with self._shared.lock:
            if self._views_version == self._shared.views_version:
                return
            self._views_version = self._shared.views_version
            views = {topic: (view.topic_id, view.partition_count) for topic, view in self._shared.views.items()}
        self._membership.report_topics(views)

    # Offsets.

    def in_poll(self) -> None:
        """Commit, if it is time to, where the application stands: all that earlier polls returned is processed by now.

        For ``poll`` alone: in other calls what the last one returned may still be under way.

        Source: Kafka ``ConsumerCoordinator.maybeAutoCommitOffsetsAsync``.
        """
        self.run_callbacks()
        now = self._clock.ticks_ms()
        if not self._config.enable_auto_commit or now < self._commit_due_ticks_ms:
            return
        self._commit_due_ticks_ms = now + self._config.auto_commit_interval_ms
        offsets = self.consumed()
        if offsets:
            self.commit_async(offsets, self.on_auto_commit)

    def consumed(self, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of the assigned partitions, or of some of them; of those that have one."""
        with self._shared.lock:
            return {
                state.partition: OffsetAndMetadata(state.position)
                for state in self._shared.assignment
                if state.position is not None and (partitions is None or state.partition in partitions)
            }

    def commit(self, offsets: Offsets, timeout_ms: float | None = None) -> Future[Rows]:
        """Commit offsets, after all that was to be committed before.

        Args:
            timeout_ms: to commit in; ``default_api_timeout_ms`` by default.
        Raises:
            RebalanceInProgressError, CommitFailedError: see ``Consumer.commit``; those that the offset table tells are
            in the future.
        """
        timeout_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        topic_ids = self._topic_ids(offsets)
        began = self._clock.ticks_ms()
        if self._is_member:
            stamps = self._membership.stamps(offsets)
            missing = sorted(set(offsets) - stamps.keys())
            if missing:
                raise self._not_owned(missing[0])
            change = CommitOffsets(offsets=dict(offsets), stamps=stamps, topic_ids=topic_ids)
            future = self._keeper.change(change, timeout_ms=timeout_ms)
        else:
            unowned = UnownedCommit(self._empty_group, offsets, topic_ids)
            future = self._keeper.change(unowned.make, timeout_ms=timeout_ms, again=unowned.again)
        future.add_done_callback(lambda _: self._metrics.committed(self._clock.ticks_ms() - began))
        return future

    def give_up(self, committing: Future[Rows], timeout_ms: float) -> None:
        """A commit wasn't done in time.

        Raises:
            KafkaTimeoutError: it hadn't begun, and never will be carried out.
            CommitStateUnknownError: it has begun; unless it is done by now.
        """
        waited = f"offsets of group {self._group_id!r} were not committed within {timeout_ms:g} ms"
        if self._keeper.withdraw(committing):
            raise KafkaTimeoutError(f"{waited}, and won't be: earlier commits are still under way")
        if not committing.done():
            raise CommitStateUnknownError(f"{waited}: the commit is under way, and may still be carried out")

    def commit_async(self, offsets: Offsets, callback: OnCommit | None) -> Future[Rows]:
        """As :meth:`commit`, all errors in the future and told to ``callback`` in a later call of the consumer."""
        try:
            future = self.commit(offsets)
        except Exception as error:
            future = Future()
            future.set_exception(error)
        if callback is not None:
            self._callbacks.append(_Callback(future, dict(offsets), callback))
        return future

    def fetch(self, partitions: Collection[TopicPartition]) -> Future[Rows]:
        """The group's rows as of now, with all that was to be committed before, and what transactions did of these
        partitions.

        With ``isolation_level=read_committed`` the future has an ``UnstableOffsetCommitError`` while one may still
        change a row. Source: Kafka's ``require_stable``.
        """
        timeout_ms = self._config.default_api_timeout_ms
        waits = self._config.isolation_level == "read_committed"
        return self._keeper.fetch(partitions, timeout_ms=timeout_ms, waits=waits)

    def run_callbacks(self) -> None:
        """Call back for the commits that are done, in their order."""
        while self._callbacks and self._callbacks[0].future.done():
            future, offsets, call = self._callbacks.popleft()
            error = future.exception()
            call(offsets, error if isinstance(error, Exception) else None)

    def metadata(self) -> ConsumerGroupMetadata:
        """This member, as ``send_offsets_to_transaction`` wants it."""
        return self._membership.metadata()

    def _not_owned(self, partition: TopicPartition) -> SparklogError:
        self._membership.raise_error()  # it may be out for good
        name = f"{partition.topic}-{partition.partition}"
        with self._shared.lock:
            is_lost = partition in self._shared.assignment  # and the application hasn't been told yet
        if self._membership.is_joining and not is_lost:
            return RebalanceInProgressError(
                f"offsets of {name} weren't committed: group {self._group_id!r} is rebalancing; poll, then try again"
            )
        return CommitFailedError(
            f"offsets of {name} weren't committed: this consumer doesn't own it (any more) in group "
            f"{self._group_id!r}; if it took longer than max_poll_interval_ms between two polls, it left the group"
        )

    def _topic_ids(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        with self._shared.lock:
            states = {p: self._shared.assignment.get(p) for p in partitions}
        return {p: state.topic_id for p, state in states.items() if state is not None and state.topic_id is not None}

    def _begin_commit(self, partitions: Collection[TopicPartition]) -> Future[Rows]:
        """Begin to commit where the application stands in partitions; errors are in the future."""
        offsets = self.consumed(partitions)
        if offsets:
            return self.commit_async(offsets, None)
        nothing: Future[Rows] = Future()
        nothing.set_result({})
        return nothing

    def _commit_quietly(self, timeout_ms: float) -> None:
        """Commit where the application stands, and wait; what goes wrong is logged. Source: Kafka
        ``maybeAutoCommitOffsetsSync``."""
        offsets = self.consumed()
        if not offsets:
            return
        try:
            committing = self.commit(offsets, timeout_ms)
            try:
                committing.exception(timeout_ms / 1_000)
            except FutureTimeoutError:
                self.give_up(committing, timeout_ms)
            committing.result()
        except SparklogError as error:
            _LOGGER.warning("group %s: automatic commit: %s", self._group_id, error)

    # Ending.

    def leave(
        self,
        listener: ConsumerRebalanceListener | None,
        *,
        auto_commit: bool = True,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit, let go of all partitions and leave the group.

        Args:
            timeout_ms: for all of it together; ``default_api_timeout_ms`` by default.
        """
        timeout_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._clock.ticks_ms() + timeout_ms
        self._restoring.forget()
        self._revoking.forget()
        try:
            if auto_commit and self._config.enable_auto_commit:
                self._commit_quietly(timeout_ms)
            self._drain_callbacks(deadline)
        finally:
            if self._is_member:
                try:
                    self._let_go(listener)
                    self._drain_callbacks(deadline)  # of what the listener committed
                finally:
                    self._end_membership(deadline)

    def _let_go(self, listener: ConsumerRebalanceListener | None) -> None:
        with self._shared.lock:
            now = self._shared.assignment.partitions()
        lost = self._membership.take_lost() & now
        try:
            if lost:
                self._drop(lost, LOST, listener)
        finally:
            self._drop(now - lost, REVOKED, listener)

    def _end_membership(self, deadline: float) -> None:
        self._is_member = False
        self._generation = -1
        self._membership.unsubscribe()
        heartbeat, rounds, self._heartbeat, self._rounds = self._heartbeat, self._rounds, None, None
        if heartbeat is not None and rounds is not None:
            heartbeat.stop()
            if heartbeat.join(self._left_ms(deadline) / 1_000):
                self._leave_quietly(rounds, deadline)
            else:
                self._forget_membership()

    def _forget_membership(self) -> None:
        """A round hangs, and would go on with this membership: whoever subscribes again gets one of their own."""
        hanging = self._membership
        self._membership = self._new_membership(hanging.settings)
        self._membership.old_member_ids = {*hanging.old_member_ids, hanging.member_id} - {""}

    def _leave_quietly(self, rounds: HeartbeatRounds, deadline: float) -> None:
        try:
            with self._cluster.store.patience(Patience(deadline_ticks_ms=deadline)):
                rounds.leave()
        except Exception as error:  # also of an assignor that isn't ours
            _LOGGER.warning("group %s: not left, the session ends by itself: %s", self._group_id, error)

    def _left_ms(self, deadline: float) -> float:
        return max(0.0, deadline - self._clock.ticks_ms())

    def stop(self) -> None:
        """End the threads as soon as they can, without leaving. From any thread."""
        heartbeat = self._heartbeat
        if heartbeat is not None:
            heartbeat.stop()
        self._keeper.stop()

    def join(self, timeout_s: float) -> bool:
        """Wait for the ends of the threads. True: they have ended."""
        deadline = time.monotonic() + timeout_s
        heartbeat = self._heartbeat
        ended = heartbeat is None or heartbeat.join(timeout_s)
        return self._keeper.join(max(0.0, deadline - time.monotonic())) and ended

    def _drain_callbacks(self, deadline: float) -> None:
        for callback in self._callbacks:
            try:
                callback.future.exception(self._left_ms(deadline) / 1_000)
            except FutureTimeoutError:
                break
        self.run_callbacks()

    def _take(
        self, topic_ids: Mapping[TopicPartition, str], stamp: Stamp, done: Callable[[Rows | Exception], None]
    ) -> None:
        change = TakePartitions(topic_ids=topic_ids, stamp=stamp)
        future = self._keeper.take(change, timeout_ms=self._config.session_timeout_ms)
        future.add_done_callback(lambda f: done(f.exception() or f.result()))  # type: ignore[arg-type]

    def _news(self) -> None:
        with self._shared.lock:
            self._shared.tell()

    def _wake(self) -> None:
        heartbeat = self._heartbeat
        if heartbeat is not None:
            heartbeat.wake()


def _log_failure(offsets: Offsets, error: Exception | None) -> None:
    if error is not None:
        _LOGGER.warning("automatic commit of %d partitions failed: %s", len(offsets), error)
