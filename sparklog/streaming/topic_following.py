"""Following the topics that a streaming query reads: they are polled together. Owned by one thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sparklog.delta.actions import Entry
from sparklog.errors import SparklogError, StoreError, UnknownTopicOrPartitionError
from sparklog.log.cluster import Cluster
from sparklog.log.follow import TopicFollower, poll_all
from sparklog.parallel import parallel_map
from sparklog.streaming.limits import Cut

__all__ = ["FollowedTopic", "FollowedTopics", "KnownCut", "cuts_of", "or_raise"]

_MAX_CUTS = 1_000
"""Cuts of a topic that are kept in memory for a query that is behind; more are read again once it comes to them."""


@dataclass(slots=True)
class KnownCut:
    """A cut, and what is known of the commits between it and the one before."""

    cut: Cut
    is_next: bool
    """There is but one commit in between; else there may be others, which can be read from the log..."""
    is_lost: bool = False
    """... or can't any more."""


@dataclass(slots=True)
class FollowedTopic:
    """A topic as far as it was polled."""

    follower: TopicFollower
    cuts: list[KnownCut] = field(default_factory=list)
    """In the order of the log; the last one is as far as the follower is."""
    new_count: int = 0
    """Entries that were new when the topic was polled last …"""
    expected_count: int = 0
    """… and so may be next time."""


class FollowedTopics:
    """The topics of a query, opened when they are polled first, and followed from then on."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.by_name: dict[str, FollowedTopic] = {}
        self.is_frozen = False
        """Do they stay as they are?"""

    def poll(self, topics: Iterable[str]) -> dict[str, FollowedTopic | Exception]:
        """Topics as of now, in the order in which they are given.

        Those that are followed are polled in one call to the store, and again as long as more is found; the others are
        opened side by side. Where a topic was deleted, another of its name is opened.

        Returns:
            Of each topic what is known of it, or why it can't be read: ``UnknownTopicOrPartitionError`` if it is gone.
        Raises:
            StoreError: the store can't be read now.
        """
        wanted = list(dict.fromkeys(topics))
        found: dict[str, FollowedTopic | Exception] = {}
        behind = {} if self.is_frozen else {topic: self.by_name[topic] for topic in wanted if topic in self.by_name}
        for followed in behind.values():
            followed.expected_count, followed.new_count = followed.new_count, 0
        while behind:
            found.update(_poll_once(behind))
            behind = {topic: one for topic, one in behind.items() if found[topic] is one and not one.follower.caught_up}
        for topic, outcome in found.items():
            if isinstance(outcome, UnknownTopicOrPartitionError):
                del self.by_name[topic]
        missing = [topic for topic in wanted if topic not in self.by_name]
        found.update(zip(missing, parallel_map(self._open, missing), strict=True))
        self.by_name.update({topic: one for topic, one in found.items() if isinstance(one, FollowedTopic)})
        return {topic: found.get(topic) or self.by_name[topic] for topic in wanted}

    def _open(self, topic: str) -> FollowedTopic | Exception:
        try:
            follower = TopicFollower(self._cluster.topic_log(topic), topic)
        except StoreError:
            raise  # what fails for one topic fails for all
        except SparklogError as error:
            return error
        return FollowedTopic(follower, [KnownCut(_end_of(follower), is_next=False)])


def or_raise(polled: FollowedTopic | Exception) -> FollowedTopic:
    """The topic, where it could be polled; else raises why it can't be read."""
    if isinstance(polled, Exception):
        raise polled
    return polled


def cuts_of(entries: Iterable[Entry], topic_id: str) -> list[Cut]:
    """The ends of the log after each entry; an entry of another engine has none."""
    return [
        Cut(entry.version, dict(enumerate(entry.info["log_end_offsets"])))
        for entry in entries
        if entry.info is not None and entry.info.get("topic_id") == topic_id
    ]


def _poll_once(behind: Mapping[str, FollowedTopic]) -> dict[str, FollowedTopic | Exception]:
    followers = [one.follower for one in behind.values()]
    versions = [follower.head.delta_version for follower in followers]
    polled = poll_all(followers, [one.expected_count for one in behind.values()])
    found: dict[str, FollowedTopic | Exception] = {}
    for (topic, followed), before, entries in zip(behind.items(), versions, polled, strict=True):
        if isinstance(entries, Exception):
            found[topic] = entries
            continue
        _note_cuts(followed, before, entries)
        _forget_middle(followed.cuts)
        followed.new_count += len(entries)
        followed.expected_count = 0  # it is asked for more and more if there is
        found[topic] = followed
    return found


def _note_cuts(followed: FollowedTopic, before: int, entries: Sequence[Entry]) -> None:
    """Keep where the log ended after each of the entries that were new behind a version."""
    follower = followed.follower
    followed.cuts += [KnownCut(cut, is_next=True) for cut in cuts_of(entries, follower.head.topic_id)]
    if follower.head.delta_version > followed.cuts[-1].cut.delta_version:
        # Another engine's entry, or the log was cleaned under us: then what came in between is not known.
        is_next = follower.head.delta_version == before + len(entries)
        followed.cuts.append(KnownCut(_end_of(follower), is_next=is_next))


def _forget_middle(cuts: list[KnownCut]) -> None:
    """Keep the cuts that come next, and the last one."""
    if len(cuts) > _MAX_CUTS:
        del cuts[_MAX_CUTS - 1 : -1]
        cuts[-1].is_next = False


def _end_of(follower: TopicFollower) -> Cut:
    return Cut(follower.head.delta_version, dict(enumerate(follower.head.log_end_offsets)))
