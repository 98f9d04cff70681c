"""The group side of a consumer with a ``group_id``: membership and committed offsets."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection

from sparklog.clock import Clock
from sparklog.config import ConsumerConfig
from sparklog.consumer.assignment_changes import AssignmentChanges
from sparklog.consumer.committed_positions import CommittedPositions
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.group_member import GroupMember
from sparklog.consumer.listener import ConsumerRebalanceListener
from sparklog.consumer.member_settings import member_settings
from sparklog.consumer.metrics import ASSIGNED, LOST, REVOKED, ConsumerMetrics
from sparklog.consumer.offset_commits import OffsetCommits
from sparklog.consumer.revocation_commit import RevocationCommit
from sparklog.consumer.subscription import Subscription
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.groups.membership.membership import member_prefix
from sparklog.groups.offsets.commit_thread import OffsetCommitThread
from sparklog.log import Cluster
from sparklog.log.key_lengths import check_group_lengths
from sparklog.logs import about
from sparklog.model import ConsumerGroupMetadata
from sparklog.txn.deciding_for_groups import deciding_for

__all__ = ["Coordinator"]

_LOGGER = logging.getLogger("sparklog.consumer")

_RECHECK_MS = 1_000.0
"""The time to wait for the group's next generation before the fetcher looks again for a topic that it didn't find."""


class Coordinator:
    """Used by the consumer's own thread alone; two threads of its own do what mustn't wait for the application.

    ``sparklog-heartbeat`` does the member's rounds, ``sparklog-offsets`` reads and writes the offset table.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        fetch_state: FetchState,
        metrics: ConsumerMetrics,
        group_id: str,
    ) -> None:
        settings = member_settings(config, group_id)
        check_group_lengths(cluster.store, group_id, member_prefix(settings))
        self._config = config
        self._fetch_state = fetch_state
        self._metrics = metrics
        self._clock: Clock = cluster.clock
        self._group_id = group_id
        self._commit_thread = OffsetCommitThread(
            cluster,
            group_id,
            deciding_for(
                cluster,
                reason=f"its partitions moved to another member of group {group_id!r}",
                timeout_ms=config.session_timeout_ms,
            ),
            notify=fetch_state.notify_application,
        )
        self._member = GroupMember(
            cluster,
            settings,
            self._commit_thread,
            notify_application=fetch_state.notify_application,
            on_heartbeat=metrics.heartbeat,
        )
        self.commits = OffsetCommits(cluster, config, fetch_state, metrics, self._member, self._commit_thread)
        self._changes = AssignmentChanges(config, fetch_state, metrics, self._clock)
        self._committed_positions = CommittedPositions(fetch_state, self._clock, config, self.commits.fetch)
        self._revocation_commit = RevocationCommit(
            fetch_state,
            self._clock,
            self.commits.begin_revocation_commit,
            timeout_ms=float(config.default_api_timeout_ms),
        )
        self._has_raised = False
        self._views_version = -1
        self._generation = -1
        """The member's generation at the last poll."""
        self._recheck_ticks_ms: dict[str, float] = {}
        """Topics that the fetcher didn't find any more, and when to look again unless the group has gone on by then."""

    @property
    def is_member(self) -> bool:
        """Are topics subscribed, so that the group decides which partitions are read?"""
        return self._member.is_subscribed

    def metadata(self) -> ConsumerGroupMetadata:
        """This member, as ``send_offsets_to_transaction`` wants it."""
        return self._member.membership.metadata()

    def subscribe(self, subscription: Subscription) -> None:
        """Want what is subscribed now; the heartbeats begin with the first poll."""
        self._member.subscribe(subscription)

    def begin_at_committed(self) -> None:
        """Ask where partitions begin that the application has assigned: at what was committed."""
        self._committed_positions.ask()

    def reconcile(self, subscription: Subscription, listener: ConsumerRebalanceListener | None) -> None:
        """Take up what the group has decided: what was lost, then what must be given up, then what is new.

        Source of the order: Kafka ``ConsumerCoordinator.onJoinComplete``.
        """
        if not self.is_member:
            self._take_up_committed_positions()
            return
        membership = self._member.membership
        self._member.polled()
        self._note_generation()
        lost = membership.take_lost()
        if lost:
            _LOGGER.warning(
                "group %s: lost %d partitions", self._group_id, len(lost), extra=about(group=self._group_id)
            )
            self._metrics.rebalance_failed()
            self._changes.remove(lost, LOST, listener)
        if subscription.pattern is not None:
            subscription.found(membership.resolved)
        self._release(listener)
        with self._fetch_state.lock:
            assigned = self._fetch_state.assignment.partitions()
        added = membership.hand_over(assigned)
        if added:
            first_counts = membership.first_counts()  # before the lock: whoever holds the membership's may want ours
            self._changes.add(added, first_counts)
            self._changes.call_listener(sorted(added), ASSIGNED, listener)
        self._report_topics()
        self._raise_errors()  # last: others wait for what is to be released, whatever is wrong here

    def report_unknown_topics(self, topics: Collection[str]) -> None:
        """Have the group look at topics that the fetcher doesn't find any more, or not with as many partitions: its
        next generation goes on without them, or with what was created under their names. No poll raises it.

        Source: Kafka ``FetchCollector.handleInitializeErrors``, which asks for new metadata.
        """
        now = self._clock.ticks_ms()
        due = {topic for topic in topics if self._recheck_ticks_ms.get(topic, math.inf) <= now}
        new = set(topics) - self._recheck_ticks_ms.keys()
        if not (due or new):
            return
        self._recheck_ticks_ms = {topic: self._recheck_ticks_ms.get(topic, 0.0) for topic in topics}
        self._recheck_ticks_ms |= dict.fromkeys(due | new, now + _RECHECK_MS)
        if due:
            with self._fetch_state.lock:
                self._fetch_state.forgive(due)
        self._member.membership.doubt_topics(due | new)

    def leave(
        self,
        listener: ConsumerRebalanceListener | None,
        *,
        auto_commit: bool = True,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit, give up all partitions and leave the group.

        Args:
            timeout_ms: for all of it together; ``default_api_timeout_ms`` by default.
        """
        timeout_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._clock.deadline_in(timeout_ms)
        self._committed_positions.forget()
        self._revocation_commit.forget()
        try:
            if auto_commit and self._config.enable_auto_commit:
                self.commits.commit_before_closing(timeout_ms)
            self.commits.wait_for_callbacks(deadline)
        finally:
            if self.is_member:
                try:
                    self._give_up_all(listener)
                    self.commits.wait_for_callbacks(deadline)  # of what the listener committed
                finally:
                    self._generation = -1
                    self._member.end(deadline)

    def stop(self) -> None:
        """End the threads as soon as they can, without leaving. From any thread."""
        self._member.stop()
        self._commit_thread.stop()

    def join(self, timeout_s: float) -> bool:
        """Wait for the ends of the threads. True: they have ended."""
        deadline = time.monotonic() + timeout_s
        ended = self._member.join(timeout_s)
        return self._commit_thread.join(max(0.0, deadline - time.monotonic())) and ended

    def _take_up_committed_positions(self) -> None:
        rows = self._committed_positions.answer()
        if rows is not None:
            self._changes.begin_held(rows)
            self._committed_positions.forget()  # at last: what an interrupt cuts off before, the next poll does

    def _note_generation(self) -> None:
        generation = self._member.membership.metadata().generation_id
        if generation not in (-1, self._generation):
            self._metrics.rebalanced()
        self._generation = generation

    def _release(self, listener: ConsumerRebalanceListener | None) -> None:
        """Give up what the group takes away, once its automatic commit is over."""
        membership = self._member.membership
        released = membership.to_release()
        if not released:
            self._revocation_commit.forget()
        elif not self._config.enable_auto_commit or self._revocation_commit.is_over(released):
            try:
                self._changes.remove(released, REVOKED, listener)
            finally:
                membership.released(released)

    def _report_topics(self) -> None:
        """Let the membership know what the fetcher has found: a partition that came is noticed at once."""
        with self._fetch_state.lock:
            if self._views_version == self._fetch_state.views_version:
                return
            self._views_version = self._fetch_state.views_version
            views = {topic: (view.topic_id, view.partition_count) for topic, view in self._fetch_state.views.items()}
        self._member.membership.report_topics(views)

    def _raise_errors(self) -> None:
        """Raise what went wrong in the rounds of heartbeats, and which topics don't exist.

        Where the last call raised too, records are returned before the next error: what fails again and again doesn't
        stop the rest.
        """
        with self._fetch_state.lock:
            waits = self._has_raised and bool(self._fetch_state.assignment.ready())
        self._has_raised = not waits
        if waits:
            return
        self._member.membership.raise_error()
        missing = self._member.membership.next_missing()
        if missing is not None:
            raise UnknownTopicOrPartitionError(f"unknown topic {missing!r}: it is read once it exists")
        self._has_raised = False

    def _give_up_all(self, listener: ConsumerRebalanceListener | None) -> None:
        with self._fetch_state.lock:
            assigned = self._fetch_state.assignment.partitions()
        lost = self._member.membership.take_lost() & assigned
        try:
            if lost:
                self._changes.remove(lost, LOST, listener)
        finally:
            self._changes.remove(assigned - lost, REVOKED, listener)
