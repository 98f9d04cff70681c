"""What the consumer's own thread and its fetcher share: one lock, two conditions, and the state that they guard."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection

from sparklog.clock import Clock
from sparklog.consumer.partitions import Assignment
from sparklog.consumer.topics import TopicView
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.interrupts import EventCount

__all__ = ["Shared"]


class Shared:
    """Every attribute but ``lock`` is read and written under it, or by the one thread that is named.

    The consumer's own thread alone takes records away (but where another topic has taken the name of theirs); the
    fetcher alone adds them.
    """

    def __init__(self, clock: Clock) -> None:
        self.lock = threading.RLock()
        self.work = threading.Condition(self.lock)
        """Where the fetcher waits."""
        self.news = EventCount()
        """Where the consumer waits, without the lock."""
        self.news_count = 0
        self.assignment = Assignment()
        self.topics: frozenset[str] = frozenset()
        """Subscribed to by name."""
        self.pattern: re.Pattern[str] | None = None
        self.matched: frozenset[str] | None = None
        """Found by the pattern; None before the first listing."""
        self.views: dict[str, TopicView] = {}
        self.views_version = 0
        """Goes up when topics or partitions come or go."""
        self.errors: dict[str, Exception] = {}
        """By topic, or by "" where it concerns all. Nothing more is done for a topic until its error was raised."""
        self.is_changed = True
        """Did the consumer change what it wants since the fetcher looked last?"""
        self.has_room = True
        """Were records taken since the fetcher looked last?"""
        self.is_parked = False
        """Does the fetcher wait until it is told to go on?"""
        self.is_limited = False
        """Does the fetcher wait though there may be more to read, because there was no room for it?"""
        self.is_stopped = False
        self.is_woken = False
        self.polling: dict[object, None] = {}
        """A key for each wait of the consumer: calls of its listeners may wait within its own."""
        self.polled_ticks_ms = 0.0
        self._clock = clock

    def tell(self) -> None:
        """There is something for the consumer to see. Under the lock."""
        self.news_count += 1
        self.news.notify_all()

    def change(self) -> None:
        """The consumer wants something else: the fetcher looks at once. Under the lock."""
        self.is_changed = True
        self.work.notify()

    def took(self) -> None:
        """The consumer took records: there is room again. Under the lock."""
        self.has_room = True
        if self.is_parked or self.is_limited:
            self.work.notify()

    def begin_wait(self, key: object) -> None:
        """The consumer wants records: the fetcher goes on if it rested. Under the lock."""
        self.polling[key] = None
        if self.is_parked:
            self.work.notify()

    def end_wait(self, key: object) -> None:
        """The consumer goes about its own business. Under the lock."""
        self.polling.pop(key, None)
        self.polled_ticks_ms = self._clock.ticks_ms()

    def stop(self) -> None:
        """The fetcher ends as soon as it can. From any thread."""
        with self.lock:
            self.is_stopped = True
            self.work.notify_all()

    def wake(self) -> None:
        """End the consumer's wait. From any thread."""
        with self.lock:
            self.is_woken = True
            self.tell()

    def next_error(self, *, without: Collection[str] = ()) -> tuple[str, Exception] | None:
        """An error to raise, and its topic; it is then forgotten, so that the fetcher tries again. Under the lock.

        Args:
            without: topics whose errors stay where they are.
        """
        for topic in self.errors:
            if topic not in without:
                self.work.notify()
                return topic, self.errors.pop(topic)
        for state in self.assignment.failed.values():
            if state.error is not None and not state.chunks and state.partition.topic not in without:
                error = state.error
                self.assignment.forgive(state)
                self.change()
                return state.partition.topic, error
        return None

    def unknown_topics(self) -> set[str]:
        """Topics that the fetcher didn't find any more, or not with as many partitions. Under the lock."""
        failed = self.assignment.failed.values()
        partitions = {s.partition.topic for s in failed if isinstance(s.error, UnknownTopicOrPartitionError)}
        return partitions | {t for t, error in self.errors.items() if isinstance(error, UnknownTopicOrPartitionError)}

    def look_again(self, topics: Collection[str]) -> None:
        """Forget the errors of topics, so that the fetcher tries again. Under the lock."""
        for topic in topics:
            self.errors.pop(topic, None)
        for state in [*self.assignment.failed.values()]:
            if state.partition.topic in topics:
                self.assignment.forgive(state)
        self.change()

    def wanted_topics(self) -> frozenset[str]:
        """What the fetcher is to follow: what is subscribed, else what is assigned. Under the lock."""
        if self.topics or self.pattern is not None:
            return self.topics | (self.matched or frozenset())
        return frozenset(self.assignment.topics())

    def want(self, topics: frozenset[str], pattern: re.Pattern[str] | None) -> None:
        """Subscribe to other topics or another pattern. Under the lock."""
        if pattern != self.pattern:
            self.pattern, self.matched = pattern, None
        self.topics = topics
        self.views_version += 1
        self.forget_errors()
        self.change()

    def forget_errors(self) -> None:
        """Of topics that aren't wanted any more, and where nothing is wanted all. Under the lock."""
        wanted = self.wanted_topics()
        is_reading = bool(wanted) or self.pattern is not None
        self.errors = {
            topic: error for topic, error in self.errors.items() if topic in wanted or (topic == "" and is_reading)
        }
