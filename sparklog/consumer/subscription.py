"""The subscription of a consumer: topics, a pattern, or partitions of its own choice. No I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sparklog.config.consumer import ResetPolicy
from sparklog.consumer.followed_topics import TopicView
from sparklog.errors import IllegalStateError, InvalidArgumentError
from sparklog.model import TopicPartition
from sparklog.paths import check_topic_name

__all__ = ["EARLIEST", "HELD", "LATEST", "Subscription"]

EARLIEST = ResetPolicy("earliest")
LATEST = ResetPolicy("latest")
HELD = ResetPolicy("held")
"""The policy until it is known what the group has committed."""

_EXCLUSIVE = "subscribe to topics, to a pattern, and assign partitions exclude one another: unsubscribe first"


@dataclass(slots=True)
class Subscription:
    """The topics or partitions that the application asked for. Changed by the consumer's own thread alone."""

    topics: frozenset[str] | None = None
    """Subscribed by name, or found by the pattern; None where neither was asked for."""
    pattern: re.Pattern[str] | None = None
    manual: bool = False
    _known: set[str] = field(default_factory=set)
    """Topics that were seen, or that were looked for and weren't there: partitions that they get later are younger
    than the subscription."""
    _listed: bool = False

    @property
    def is_empty(self) -> bool:
        """Was nothing asked for yet?"""
        return self.topics is None and not self.manual

    def subscribe(self, topics: Collection[str], pattern: str | re.Pattern[str] | None) -> None:
        """Ask for topics or for a pattern, in place of what was subscribed before.

        Raises:
            InvalidArgumentError: neither was given, or ``pattern`` is no regular expression.
            IllegalStateError: both were given, or partitions were assigned, or a pattern follows topics or the reverse.
            InvalidTopicError, TypeError.
        Source: kafka-python ``SubscriptionState.subscribe``.
        """
        if isinstance(topics, str) or not isinstance(topics, Collection):
            raise TypeError(f"topics: got {topics!r}, expected a list of names")
        if not topics and pattern is None:
            raise InvalidArgumentError("subscribe: expected topics or a pattern; unsubscribe() ends a subscription")
        if topics and pattern is not None:
            raise IllegalStateError("subscribe: got topics and a pattern, expected one of them")
        if self.manual or (self.topics is not None and (self.pattern is None) != (pattern is None)):
            raise IllegalStateError(_EXCLUSIVE)
        if pattern is not None:
            try:
                compiled = re.compile(pattern)
                compiled.match("")  # one of bytes matches no names
            except (re.error, TypeError) as error:
                raise InvalidArgumentError(f"subscribe: pattern {pattern!r}: {error}") from None
            if compiled != self.pattern:
                self.topics, self.pattern, self._listed = frozenset(), compiled, False
        else:
            self.topics = frozenset(check_topic_name(topic) for topic in topics)
            self._known &= self.topics

    def assign(self) -> None:
        """Ask for partitions of the caller's choice. Raises ``IllegalStateError``: topics are subscribed."""
        if self.topics is not None:
            raise IllegalStateError(_EXCLUSIVE)
        self.manual = True

    def clear(self) -> None:
        """Ask for nothing."""
        self.topics, self.pattern, self.manual = None, None, False
        self._known.clear()
        self._listed = False

    def found(self, topics: Collection[str]) -> None:
        """Note the pattern's topics as of now. Those of later listings are younger than the subscription."""
        now = frozenset(topics)
        if self._listed and self.topics is not None:
            self._known |= now - self.topics
        self.topics = now
        self._listed = True

    def missing(self, topic: str) -> None:
        """Note that a topic isn't there (any more): one that comes later is younger than the subscription."""
        self._known.add(topic)

    def partitions(self, views: Mapping[str, TopicView], policy: ResetPolicy) -> dict[TopicPartition, ResetPolicy]:
        """Every partition of the subscribed topics that are there, and where to begin with it if it is new.

        A partition that appears while its topic is subscribed holds nothing older than the subscription: with
        ``latest`` what came before it was noticed would be passed over, so it is read from its beginning. With
        ``none`` nobody but the application decides.
        """
        later = policy if policy.kind == "none" else EARLIEST
        wanted = {}
        for topic in sorted(self.topics or ()):
            if topic in views:
                begin = later if topic in self._known else policy
                for partition in range(views[topic].partition_count):
                    wanted[TopicPartition(topic, partition)] = begin
                self._known.add(topic)
        return wanted
