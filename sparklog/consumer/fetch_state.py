"""The state that the application's thread and the fetcher share: one lock, two conditions, and what they guard."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Container

from sparklog.clock import Clock
from sparklog.consumer.assignment import Assignment, Handover
from sparklog.consumer.followed_topics import TopicView
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.interrupts import EventCount
from sparklog.model import TopicPartition

__all__ = ["FetchState"]


class FetchState:
    """Every attribute but ``lock`` is read and written under it, or by the one thread that is named.

    The consumer's own thread alone takes records away (but where another topic has taken the name of theirs); the
    fetcher alone adds them.
    """

    def __init__(self, clock: Clock) -> None:
        self.lock = threading.RLock()
        self.fetcher_condition = threading.Condition(self.lock)
        """The fetcher waits here."""
        self.updates = EventCount()
        """The consumer waits here, without the lock."""
        self.update_count = 0
        self.assignment = Assignment()
        self.only: Container[TopicPartition] | None = None
        """The partitions whose records the application waits for; None: all that are assigned."""
        self.topics: frozenset[str] = frozenset()
        """Subscribed to by name."""
        self.pattern: re.Pattern[str] | None = None
        self.matched_topics: frozenset[str] | None = None
        """Found by the pattern; None before the first listing."""
        self.views: dict[str, TopicView] = {}
        self.looked_ms: dict[str, int] = {}
        """By topic: when the fetcher looked at it last, in milliseconds since the epoch."""
        self.views_version = 0
        """Goes up when topics or partitions come or go."""
        self.errors: dict[str, Exception] = {}
        """By topic, or by "" where it concerns all. Nothing more is done for a topic until its error was raised."""
        self.is_update_requested = True
        """Did the consumer change what it wants since the fetcher looked last?"""
        self.has_room = True
        """Were records taken since the fetcher looked last?"""
        self.is_parked = False
        """Does the fetcher wait until it is notified?"""
        self.is_waiting_for_room = False
        """Does the fetcher wait though there may be more to read, because there was no room for it?"""
        self.is_stopped = False
        self.is_woken = False
        self.waits: dict[object, None] = {}
        """A key for each wait of the consumer: calls of its listeners may wait within its own."""
        self.last_wait_ticks_ms = 0.0
        """When the consumer's last wait ended."""
        self._clock = clock

    def notify(self) -> None:
        """Let the consumer, if it waits, look at this state again. Under the lock."""
        self.update_count += 1
        self.updates.notify_all()

    def notify_application(self) -> None:
        """Notify as :meth:`notify` does, from any thread and without the lock."""
        with self.lock:
            self.notify()

    def wait_for_update(self, seen_count: int, timeout_s: float) -> None:
        """Wait, without the lock, until the consumer is notified more often than ``seen_count`` times."""
        self.updates.wait_for(lambda: seen_count != self.update_count, timeout_s)

    def note_looks(self, topics: Collection[str]) -> None:
        """Note that the fetcher has looked at topics just now."""
        now_ms = self._clock.now_ms()
        with self.lock:
            self.looked_ms.update(dict.fromkeys(topics, now_ms))

    def request_update(self) -> None:
        """Have the fetcher look at once at what the consumer wants now. Under the lock."""
        self.is_update_requested = True
        self.fetcher_condition.notify()

    def notify_room(self) -> None:
        """Note that the consumer took records, so that the fetcher has room again. Under the lock."""
        self.has_room = True
        if self.is_parked or self.is_waiting_for_room:
            self.fetcher_condition.notify()

    def give_back(self, handover: Handover) -> None:
        """Have fetched again what was taken with ``handover`` and that no caller has. Under the lock."""
        self.assignment.give_back(handover)
        self.request_update()

    def begin_wait(self, key: object) -> None:
        """Note that the consumer waits for records: the fetcher goes on if it rested. Under the lock."""
        self.waits[key] = None
        if self.is_parked:
            self.fetcher_condition.notify()

    def end_wait(self, key: object) -> None:
        """Note that the consumer waits no longer. Under the lock."""
        self.waits.pop(key, None)
        self.last_wait_ticks_ms = self._clock.ticks_ms()

    def stop(self) -> None:
        """Let the fetcher end as soon as it can. From any thread."""
        with self.lock:
            self.is_stopped = True
            self.fetcher_condition.notify_all()

    def wake(self) -> None:
        """End the consumer's wait. From any thread."""
        with self.lock:
            self.is_woken = True
            self.notify()

    def next_error(self, *, without: Collection[str] = ()) -> tuple[str, Exception] | None:
        """An error to raise, and its topic; it is then forgotten, so that the fetcher tries again. Under the lock.

        Args:
            without: topics whose errors stay as they are.
        """
        for topic in self.errors:
            if topic not in without:
                self.fetcher_condition.notify()
                return topic, self.errors.pop(topic)
        for state in self.assignment.failed.values():
            if state.error is not None and not state.chunks and state.partition.topic not in without:
                error = state.error
                self.assignment.forgive(state)
                self.request_update()
                return state.partition.topic, error
        return None

    def unknown_topics(self) -> set[str]:
        """Topics that the fetcher didn't find any more, or not with as many partitions. Under the lock."""
        failed = self.assignment.failed.values()
        partitions = {s.partition.topic for s in failed if isinstance(s.error, UnknownTopicOrPartitionError)}
        return partitions | {t for t, error in self.errors.items() if isinstance(error, UnknownTopicOrPartitionError)}

    def forgive(self, topics: Collection[str]) -> None:
        """Forget the errors of topics, so that the fetcher tries again. Under the lock."""
        for topic in topics:
            self.errors.pop(topic, None)
        for state in [*self.assignment.failed.values()]:
            if state.partition.topic in topics:
                self.assignment.forgive(state)
        self.request_update()

    def set_views(self, views: dict[str, TopicView]) -> bool:
        """Give the consumer the fetcher's views of the topics. True: something is new. Under the lock."""
        before = self.views
        if views is before or views == before:
            return False
        self.views = views
        if before.keys() != views.keys() or any(not _is_same_topic(views[t], view) for t, view in before.items()):
            self.views_version += 1
            self.notify()
        return True

    def set_matched_topics(self, pattern: re.Pattern[str], topics: frozenset[str]) -> None:
        """Give the consumer the topics that match a pattern, if it still wants that. Under the lock."""
        if self.pattern is pattern:
            self.matched_topics = topics
            self.views_version += 1
            self.notify()

    def fail(self, topic: str, error: Exception, *, was_never_there: bool) -> None:
        """Have an error of a topic raised, if the topic is wanted. Under the lock.

        Args:
            was_never_there: the name was only listed, and is no topic's: it is dropped, and nothing is raised.
        """
        if topic not in self.wanted_topics():
            return
        if self.matched_topics is not None and (was_never_there or isinstance(error, UnknownTopicOrPartitionError)):
            self.matched_topics -= {topic}
        if was_never_there:
            self.views_version += 1
        else:
            self.errors[topic] = error
        self.notify()

    def wanted_topics(self) -> frozenset[str]:
        """The topics that the fetcher is to follow: the subscribed, else those of the assignment. Under the lock."""
        if self.topics or self.pattern is not None:
            return self.topics | (self.matched_topics or frozenset())
        return frozenset(self.assignment.topics())

    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None) -> None:
        """Have these topics followed, and those that match the pattern, and no others. Under the lock."""
        if pattern != self.pattern:
            self.pattern, self.matched_topics = pattern, None
        self.topics = topics
        self.views_version += 1
        self.forget_unwanted_errors()
        self.request_update()

    def forget_unwanted_errors(self) -> None:
        """Forget errors of topics that aren't wanted any more; where nothing is wanted, all. Under the lock."""
        wanted = self.wanted_topics()
        is_reading = bool(wanted) or self.pattern is not None
        self.errors = {
            topic: error for topic, error in self.errors.items() if topic in wanted or (topic == "" and is_reading)
        }


def _is_same_topic(view: TopicView, before: TopicView) -> bool:
    """Is it the topic that it was, with as many partitions?"""
    if view is before:
        return True
    return view.topic_id == before.topic_id and len(view.log_end_offsets) == len(before.log_end_offsets)
