"""The topics that a consumer follows, and what it knows of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sparklog.errors import StoreError, UnknownTopicOrPartitionError
from sparklog.log import Cluster, TopicFollower
from sparklog.log.head import TopicHead
from sparklog.log.maintenance import Sequencing
from sparklog.log.state import open_state
from sparklog.model import CREATE_TIME, LOG_APPEND_TIME
from sparklog.paths import TOPICS_FOLDER

__all__ = ["FollowedTopics", "TopicView"]

_FEW = 2
"""Fewer topics are polled one by one: to look at all at once gains nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic as the fetcher saw it last."""

    topic_id: str
    log_start_offsets: tuple[int, ...]
    log_end_offsets: tuple[int, ...]
    timestamp_type: int
    caught_up: bool
    """Was this the end of the log a moment ago? If not, it is older, and only a lower bound."""

    @property
    def partition_count(self) -> int:
        return len(self.log_end_offsets)


class FollowedTopics:
    """The followers of a consumer's topics; owned by one thread."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._followers: dict[str, TopicFollower] = {}
        self._views: dict[str, tuple[TopicHead, TopicView]] = {}
        self._sequencing = Sequencing()
        self._stale: set[str] = set()
        """Those that couldn't be looked at when it was tried last."""

    def keep(self, topics: Collection[str]) -> None:
        """Follow no other topics than these."""
        for topic in self._followers.keys() - set(topics):
            self.drop(topic)

    def drop(self, topic: str) -> None:
        """Follow a topic no longer; the next poll of it opens it anew."""
        self._followers.pop(topic, None)
        self._views.pop(topic, None)
        self._stale.discard(topic)

    def is_followed(self, topic: str) -> bool:
        """Was the topic opened, and is it still there as far as is known?"""
        return topic in self._followers

    def poll(self, topic: str) -> bool:
        """See what is new in a topic, one GET where nothing is; open it if it isn't followed. True: something was.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic (any more). It isn't followed any longer.
        """
        self._stale.add(topic)
        try:
            follower = self._followers.get(topic)
            if follower is None:
                self._followers[topic] = TopicFollower(self.cluster.topic_log(topic), topic)
            found = follower is None or bool(follower.poll())
        except UnknownTopicOrPartitionError:
            self.drop(topic)
            raise
        self._stale.discard(topic)
        return found

    def quiet(self, topics: Collection[str]) -> set[str]:
        """Those of the topics in which there is nothing new; of the others only :meth:`poll` tells. One GET each, all
        at once.

        Raises:
            StoreError: a retriable one.
        """
        known = {topic: self._followers[topic] for topic in topics if topic in self._followers.keys() - self._stale}
        paths = {topic: path for topic, follower in known.items() if (path := follower.next_entry) is not None}
        if len(paths) < _FEW:
            return set()
        try:
            found = self.cluster.store.read_many([*paths.values()])
        except StoreError as error:
            if error.retriable:
                raise
            return set()  # each poll tells whose it is
        return {
            topic
            for topic, entry in zip(paths, found, strict=True)
            if entry is None and known[topic].next_entry is not None
        }

    def meet_foreign_files(self) -> None:
        """Have offsets given, in the background, to what other engines wrote without (rule F2)."""
        for follower in self._followers.values():
            self._sequencing.meet(follower.state)

    def close(self) -> None:
        """Wait for what is under way in the background."""
        self._sequencing.close()

    def follower(self, topic: str) -> TopicFollower:
        """The follower of a topic that was polled."""
        return self._followers[topic]

    def view(self, topic: str) -> TopicView:
        """What is known of a topic that was polled; the same object as long as nothing changes."""
        follower = self._followers[topic]
        head, caught_up = follower.head, follower.caught_up and topic not in self._stale
        known = self._views.get(topic)
        if known is not None and known[0] is head and known[1].caught_up is caught_up:
            return known[1]
        is_append_time = head.config["message.timestamp.type"] == "LogAppendTime"
        view = TopicView(
            topic_id=head.topic_id,
            log_start_offsets=head.log_start_offsets,
            log_end_offsets=head.log_end_offsets,
            timestamp_type=LOG_APPEND_TIME if is_append_time else CREATE_TIME,
            caught_up=caught_up,
        )
        self._views[topic] = (head, view)
        return view

    def current_follower(self, topic: str) -> TopicFollower:
        """A follower of a topic as it is now; of one that isn't followed, only for this call.

        Raises ``UnknownTopicOrPartitionError``.
        """
        if topic not in self._followers:
            return TopicFollower(self.cluster.topic_log(topic), topic)
        self.poll(topic)
        while not self._followers[topic].caught_up:
            self.poll(topic)
        return self._followers[topic]

    def current_head(self, topic: str) -> TopicHead:
        """A topic as it is now. Raises ``UnknownTopicOrPartitionError``."""
        if topic in self._followers:
            return self.current_follower(topic).head
        head = open_state(self.cluster.topic_log(topic)).head
        if head.deleted:
            raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r} was deleted")
        return head

    def names(self) -> list[str]:
        """The names under which topics are, or were: those of deleted ones stay."""
        return list(self.cluster.store.list_names(TOPICS_FOLDER))
