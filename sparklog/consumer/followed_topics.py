"""The topics that a consumer follows: their followers, and views of them for the consumer."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

from sparklog.consumer.shared_looks import Absence, shared_looks_of
from sparklog.consumer.topic_opening import TopicOpener, open_topic
from sparklog.delta.actions import Entry
from sparklog.errors import StoreError, UnknownTopicOrPartitionError
from sparklog.log import Cluster, TopicFollower
from sparklog.log.follow import poll_all
from sparklog.log.head import TopicHead
from sparklog.log.maintenance import Sequencing
from sparklog.log.typed_records import ValueReading
from sparklog.model import CREATE_TIME, LOG_APPEND_TIME
from sparklog.parallel import attempt
from sparklog.paths import TOPICS_FOLDER

__all__ = ["FollowedTopics", "Polled", "TopicView"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic as the fetcher saw it last."""

    topic_id: str
    log_start_offsets: tuple[int, ...]
    log_end_offsets: tuple[int, ...]
    timestamp_type: int
    values: ValueReading | None = None
    """How a typed topic's values are read."""
    caught_up: bool
    """Was this the end of the log a moment ago? If not, it is older, and only a lower bound."""

    @property
    def partition_count(self) -> int:
        """The topic's number of partitions at that look."""
        return len(self.log_end_offsets)


@dataclass(frozen=True, slots=True)
class Polled:
    """The result of a look at several topics."""

    news: Mapping[str, bool] = field(default_factory=dict)
    """Was something new? Of each topic that could be looked at."""
    errors: Mapping[str, Exception] = field(default_factory=dict)
    """Why the others couldn't be looked at."""
    ended: Set[str] = frozenset()
    """The topics whose ends were seen: nothing follows what was found."""
    entries: Mapping[str, Sequence[Entry]] = field(default_factory=dict)
    """The entries that were found and applied."""


class FollowedTopics:
    """The followers of a consumer's topics; owned by one thread.

    Args:
        opened: called by another thread, whenever a topic that is being opened is open or can't be.
        announced: called by another thread with the name of a topic in whose log the store says that something is new.
    """

    def __init__(
        self,
        cluster: Cluster,
        opened: Callable[[], None],
        announced: Callable[[str], None],
        *,
        value_schema_id: int | None = None,
    ) -> None:
        self.cluster = cluster
        self._value_schema_id = value_schema_id
        self._announced = announced
        self._watches: dict[str, Callable[[], None]] = {}
        """End the store's announcements; by topic."""
        self._openings = TopicOpener(cluster, opened)
        self._shared = shared_looks_of(cluster)
        self._seen_ticks_ms: dict[str, float] = {}
        """When the newest look at each topic began, by this or another consumer."""
        self._followers: dict[str, TopicFollower] = {}
        self._views: dict[str, TopicView] = {}
        self._heads: dict[str, TopicHead] = {}
        """The heads that the views were made of."""
        self._unseen: set[str] = set()
        """Topics of which there may be something new that isn't in the views."""
        self._sequencing = Sequencing()
        self._stale: set[str] = set()
        """Topics that couldn't be looked at when it was tried last."""

    def keep(self, topics: Collection[str]) -> None:
        """Follow no other topics than these."""
        self._openings.keep(topics)
        for topic in self._followers.keys() - set(topics):
            self.drop(topic)

    def drop(self, topic: str) -> None:
        """Follow a topic no longer; it may be opened anew."""
        self._end_watch(topic)
        self._followers.pop(topic, None)
        self._heads.pop(topic, None)
        self._seen_ticks_ms.pop(topic, None)
        self._stale.discard(topic)
        self._unseen.add(topic)

    def is_followed(self, topic: str) -> bool:
        """Was the topic opened, and is it still there as far as is known?"""
        return topic in self._followers

    @property
    def opening(self) -> Set[str]:
        """The topics that are being opened."""
        return self._openings.topics

    @property
    def is_opening(self) -> bool:
        """Is a topic being opened, or was one opened that :meth:`open` hasn't returned yet?"""
        return not self._openings.is_idle

    @property
    def have_opened(self) -> bool:
        """Is a topic open, or known not to be there, that :meth:`open` hasn't returned yet?"""
        return self._openings.have_ended

    def open(self, topics: Iterable[str]) -> Polled:
        """Begin to open those of the topics that aren't followed; take those that have been opened meanwhile.

        Opening one takes four requests, one after the other; many are opened side by side, and the others that are open
        go on. One that is alone is opened here: nothing else waits.

        Returns:
            The topics that are followed from now on; errors as :class:`TopicFollower` raises them, and
            ``InvalidTopicError``.
        """
        wanted = [topic for topic in topics if topic not in self._followers and topic not in self._openings]
        if not wanted and self._openings.is_idle:
            return Polled()
        if len(wanted) == 1 and not self._followers and not self._openings:
            ended = {wanted[0]: attempt(self._open, wanted[0])}
        else:
            for topic in wanted:
                self._openings.begin(topic)
            ended = self._openings.take()
        opened = {topic: result for topic, result in ended.items() if isinstance(result, TopicFollower)}
        self._followers.update(opened)
        self._unseen |= opened.keys()
        for topic in opened:
            self._watch(topic)
        errors = {topic: result for topic, result in ended.items() if isinstance(result, Exception)}
        return Polled(dict.fromkeys(opened, True), errors)

    def poll(self, topics: Iterable[str], announced: Set[str] = frozenset()) -> Polled:
        """Look at those of the topics that are followed: a GET each where nothing is new, all at once.

        One that was deleted isn't followed any longer; its error is an ``UnknownTopicOrPartitionError``.

        Args:
            announced: those of which the store says that something is new: an entry and what follows it are asked for,
                so that this look finds the end.
        Raises:
            StoreError: a retriable one; which topic it is about isn't known.
        """
        followers = {topic: self._followers[topic] for topic in sorted(topics) if topic in self._followers}
        self._stale |= followers.keys()
        self._unseen |= followers.keys()
        began = self.cluster.clock.ticks_ms()
        for topic, follower in followers.items():
            self._shared.begin(topic, _next_path(follower), began)
        try:
            expected = [int(topic in announced) for topic in followers] if announced else ()
            results = dict(zip(followers, poll_all([*followers.values()], expected), strict=True))
        except StoreError:
            for topic in followers:
                self._shared.end(topic, None)
            raise
        ended = self.cluster.clock.ticks_ms()
        for topic, follower in followers.items():
            has_seen_end = not isinstance(results[topic], Exception) and follower.caught_up
            self._shared.end(topic, Absence(_next_path(follower), began, ended) if has_seen_end else None)
            self._seen_ticks_ms[topic] = began
        return self._applied(results)

    def poll_announced(self, topic: str) -> Sequence[Entry]:
        """Look at one topic that is followed, of which the store says that something is new. It says so to all
        consumers of this process, and none needs to be told what was found.

        Returns:
            The entries that were found and applied.
        Raises:
            SparklogError: the same as :meth:`poll` tells of a topic: a look by it meets that, too.
        """
        follower = self._followers[topic]
        self._stale.add(topic)
        self._unseen.add(topic)
        self._seen_ticks_ms[topic] = self.cluster.clock.ticks_ms()
        entries = follower.poll(1)
        self._stale.discard(topic)
        return entries

    def shared_looks(self, topics: Iterable[str]) -> dict[str, Absence]:
        """The looks of other consumers of this process which found that nothing follows what was applied of these
        topics, if they began after the newest look at the topic that is known here.

        What a look found is worth the same to everybody: it is a look whose answer came late. One that has to verify
        its position does that itself.
        """
        absences = {}
        for topic in topics:
            follower = self._followers.get(topic)
            if follower is None or follower.must_verify:
                continue
            seen = self._seen_ticks_ms.get(topic, math.inf)
            absence = self._shared.absence(topic, _next_path(follower), after_ticks_ms=seen)
            if absence is not None:
                absences[topic] = absence
        return absences

    def take_shared(self, looks: Mapping[str, Absence]) -> Polled:
        """Apply looks of :meth:`shared_looks`, as :meth:`poll` does its own; no request."""
        results: dict[str, list[Entry] | Exception] = {}
        for topic, absence in looks.items():
            take = self._followers[topic].take
            results[topic] = attempt(partial(take, began_ticks_ms=absence.began_ticks_ms), [None])
            self._seen_ticks_ms[topic] = absence.began_ticks_ms
        self._unseen |= results.keys()
        return self._applied(results)

    def being_looked_at(self, topics: Iterable[str]) -> set[str]:
        """The topics among these about which another consumer of this process asks now what this one would ask."""
        now = self.cluster.clock.ticks_ms()
        followers = {topic: self._followers[topic] for topic in topics if topic in self._followers}
        return {
            topic
            for topic, follower in followers.items()
            if self._shared.is_under_way(topic, _next_path(follower), now_ticks_ms=now)
        }

    def _applied(self, results: Mapping[str, list[Entry] | Exception]) -> Polled:
        news, errors, ended, entries = {}, {}, set(), {}
        for topic, result in results.items():
            if isinstance(result, Exception):
                errors[topic] = result
                if isinstance(result, UnknownTopicOrPartitionError):
                    self.drop(topic)
            else:
                has_ended = self._followers[topic].caught_up
                news[topic] = bool(result) or not has_ended
                if result:
                    entries[topic] = result
                if has_ended:
                    ended.add(topic)
                self._stale.discard(topic)
        return Polled(news, errors, ended, entries)

    def meet_foreign_files(self, topics: Iterable[str]) -> None:
        """Have offsets given, in the background, to records that other engines wrote without (rule F2, sequencing)."""
        for topic in topics:
            self._sequencing.start_if_needed(self._followers[topic].state)

    def close(self) -> None:
        """End announcements, and wait for what is under way in the background."""
        for topic in list(self._watches):
            self._end_watch(topic)
        self._openings.close()
        self._sequencing.close()

    def _watch(self, topic: str) -> None:
        self._end_watch(topic)
        folder = _next_path(self._followers[topic]).rpartition("/")[0] + "/"
        end = self.cluster.store.watch(folder, partial(self._announced, topic))
        if end is not None:
            self._watches[topic] = end
            self._announced(topic)  # what was written since the topic was loaded wasn't announced

    def _end_watch(self, topic: str) -> None:
        end = self._watches.pop(topic, None)
        if end is not None:
            end()

    def follower(self, topic: str) -> TopicFollower:
        """The follower of a topic that is followed."""
        return self._followers[topic]

    def look_anew(self) -> None:
        """Make all views anew: a follower may have loaded its topic anew since it was polled."""
        self._unseen |= self._followers.keys()

    def views(self) -> dict[str, TopicView]:
        """The views of the topics that are followed; the same objects, and the same dict, where nothing changed."""
        changed = {topic: view for topic in self._unseen if (view := self._view(topic)) is not self._views.get(topic)}
        self._unseen.clear()
        if changed:
            views = {**self._views, **changed}
            self._views = {topic: view for topic, view in views.items() if view is not None}
        return self._views

    def behind(self) -> set[str]:
        """The topics whose ends weren't seen yet: more may be there."""
        return {topic for topic, view in self.views().items() if not view.caught_up}

    def _view(self, topic: str) -> TopicView | None:
        follower = self._followers.get(topic)
        if follower is None:
            return None
        head, caught_up = follower.head, follower.caught_up and topic not in self._stale
        known = self._views.get(topic)
        if known is not None and self._heads.get(topic) is head and known.caught_up is caught_up:
            return known
        before = self._heads.get(topic)
        self._heads[topic] = head
        if (
            known is not None
            and before is not None
            and before.config is head.config
            and not (before.schemas or head.schemas)
        ):
            timestamp_type, values = known.timestamp_type, None
        else:
            is_append_time = head.config["message.timestamp.type"] == "LogAppendTime"
            timestamp_type = LOG_APPEND_TIME if is_append_time else CREATE_TIME
            values = ValueReading.of(head, self._schema_id(head))
        return TopicView(
            topic_id=head.topic_id,
            log_start_offsets=head.log_start_offsets,
            log_end_offsets=head.log_end_offsets,
            timestamp_type=timestamp_type,
            caught_up=caught_up,
            values=values,
        )

    def _schema_id(self, head: TopicHead) -> int | None:
        """The schema to read by. One that a topic doesn't have is told by whoever reads its records."""
        wanted = self._value_schema_id
        return wanted if wanted is not None and wanted <= head.value_schema_id else None

    def names(self) -> list[str]:
        """The names under which topics are, or were: those of deleted ones stay."""
        return list(self.cluster.store.list_names(TOPICS_FOLDER))

    def _open(self, topic: str) -> TopicFollower:
        return open_topic(self.cluster, topic)


def _next_path(follower: TopicFollower) -> str:
    """The name of the entry that a follower asks for next."""
    return follower.next_paths(1)[0]
