"""A consumer's membership in its group while it subscribes to topics, and the thread of its heartbeats."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from sparklog.clock import Clock, Deadline
from sparklog.consumer.subscription import Subscription
from sparklog.groups.membership.heartbeat_rounds import HeartbeatRounds
from sparklog.groups.membership.heartbeat_thread import HeartbeatThread
from sparklog.groups.membership.membership import MemberSettings, Membership
from sparklog.groups.offsets.changes import TakePartitions
from sparklog.groups.offsets.commit_thread import OffsetCommitThread
from sparklog.groups.offsets.rows import Rows, Stamp
from sparklog.interrupts import uninterrupted
from sparklog.log import Cluster
from sparklog.logs import about
from sparklog.model import TopicPartition
from sparklog.storage.retrying import Patience

__all__ = ["GroupMember"]

_LOGGER = logging.getLogger("sparklog.consumer")


class GroupMember:
    """Joins the group with the first poll after :meth:`subscribe`, and leaves it in :meth:`end`.

    Used by the consumer's own thread alone, but for :meth:`stop`.

    Args:
        commit_thread: takes the partitions that the group assigns to this member.
        notify_application: called when there is something for the application.
        on_heartbeat: called after each round of heartbeats in which the others could see that this member lives.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: MemberSettings,
        commit_thread: OffsetCommitThread,
        *,
        notify_application: Callable[[], None],
        on_heartbeat: Callable[[], object],
    ) -> None:
        self._cluster = cluster
        self._clock: Clock = cluster.clock
        self._commit_thread = commit_thread
        self._notify_application = notify_application
        self._on_heartbeat = on_heartbeat
        self.membership = self._new_membership(settings)
        """State of the membership; another object after an :meth:`end` that a hanging round outlived."""
        self.is_subscribed = False
        """Are topics subscribed, so that the group decides which partitions are read?"""
        self._starting = threading.Lock()
        self._heartbeat: HeartbeatThread | None = None
        self._rounds: HeartbeatRounds | None = None

    def subscribe(self, subscription: Subscription) -> None:
        """Want what is subscribed now; the heartbeats begin with the first poll."""
        by_name = subscription.topics or frozenset()
        self.membership.subscribe(() if subscription.pattern is not None else by_name, subscription.pattern)
        self.is_subscribed = True

    def polled(self) -> None:
        """Note that the application polls, which shows that it lives; where topics are subscribed."""
        if self.is_subscribed:
            if self._heartbeat is None or not self._heartbeat.is_running:
                uninterrupted(self._start_heartbeats)
            self.membership.polled()

    def end(self, deadline: Deadline) -> None:
        """Leave the group, unless a round of heartbeats hangs beyond the deadline; errors are logged."""
        self.is_subscribed = False
        self.membership.unsubscribe()
        heartbeat, rounds, self._heartbeat, self._rounds = self._heartbeat, self._rounds, None, None
        if heartbeat is not None and rounds is not None:
            heartbeat.stop()
            if heartbeat.join(deadline.left_ms / 1_000):
                self._leave(rounds, deadline)
            else:
                self._replace_membership()

    def stop(self) -> None:
        """End the heartbeats as soon as they can, without leaving. From any thread."""
        heartbeat = self._heartbeat
        if heartbeat is not None:
            heartbeat.stop()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the heartbeats' thread. True: it has ended."""
        heartbeat = self._heartbeat
        return heartbeat is None or heartbeat.join(timeout_s)

    def _new_membership(self, settings: MemberSettings) -> Membership:
        return Membership(settings, self._clock, notify=self._notify_application, wake=self._wake_heartbeat)

    def _start_heartbeats(self) -> None:
        with self._starting:
            if self._heartbeat is None:
                self._rounds = HeartbeatRounds(self._cluster, self.membership, self._take)
                self._heartbeat = HeartbeatThread(self._rounds, self.membership, on_heartbeat=self._on_heartbeat)
            self._heartbeat.start()

    def _replace_membership(self) -> None:
        """Give whoever subscribes again a membership of their own: the round that hangs goes on with the old one."""
        hanging = self.membership
        self.membership = self._new_membership(hanging.settings)
        self.membership.old_member_ids = {*hanging.old_member_ids, hanging.member_id} - {""}

    def _leave(self, rounds: HeartbeatRounds, deadline: Deadline) -> None:
        try:
            with self._cluster.store.patience(Patience(deadline=deadline)):
                rounds.leave()
        except Exception as error:  # also of an assignor that isn't ours
            group_id = self.membership.settings.group_id
            _LOGGER.warning(
                "group %s: the consumer could not leave it; its session ends by itself: %s",
                group_id,
                error,
                extra=about(group=group_id),
            )

    def _take(
        self, topic_ids: Mapping[TopicPartition, str], stamp: Stamp, done: Callable[[Rows | Exception], None]
    ) -> None:
        """Take partitions in the offset table, by its thread; ``done`` gets the rows, or why they couldn't be taken."""
        change = TakePartitions(topic_ids=topic_ids, stamp=stamp)
        future = self._commit_thread.take(change, timeout_ms=self.membership.settings.session_timeout_ms)
        future.add_done_callback(lambda f: done(f.exception() or f.result()))  # type: ignore[arg-type]

    def _wake_heartbeat(self) -> None:
        heartbeat = self._heartbeat
        if heartbeat is not None:
            heartbeat.wake()
