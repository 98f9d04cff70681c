"""The topics that one member subscribes to: resolving names and patterns, and following its group's generations."""

from __future__ import annotations

import logging

from sparklog.clock import Clock
from sparklog.groups.membership.generations import GenerationPlan
from sparklog.groups.membership.member_state import pattern_text
from sparklog.groups.membership.membership import Membership, Wanted
from sparklog.groups.membership.topic_catalog import TopicCatalog
from sparklog.logs import about

__all__ = ["SubscribedTopics"]

_LOGGER = logging.getLogger("sparklog.groups")


class SubscribedTopics:
    """One member's topics. Owned by the thread that runs the member's heartbeat rounds."""

    def __init__(self, membership: Membership, catalog: TopicCatalog, clock: Clock) -> None:
        self.catalog = catalog
        self.topics: frozenset[str] = frozenset()
        """Subscribed to by name, or found by the pattern."""
        self.pattern = ""
        """By which they were found, as text; empty: by name."""
        self._membership = membership
        self._clock = clock
        self._version = -1
        """The version of the subscription that was resolved last."""
        self._resolved_ticks_ms = 0.0
        self._existed: frozenset[str] = frozenset()
        """Topics that are subscribed by name and were there at some time since."""
        self._deleted: frozenset[str] = frozenset()
        """The topics of these that aren't there any more."""

    def resolve(self, wanted: Wanted) -> None:
        """Find the topics of the subscription.

        All are looked at when the subscription is new and every ``metadata_max_age_ms``. In between only those are that
        reading didn't find any more, and in each round those names for which there is no topic.

        Raises:
            StoreError, CorruptLogError, UnsupportedVersionError: what was known before still counts.
        """
        membership, now, catalog = self._membership, self._clock.ticks_ms(), self.catalog
        with membership.lock:
            reported, membership.reported = membership.reported, {}
            doubted = frozenset(membership.doubted)
        for topic, (topic_id, partition_count) in reported.items():
            catalog.update(topic, topic_id, partition_count)
        is_new = wanted.version != self._version
        is_due = is_new or now - self._resolved_ticks_ms >= membership.settings.metadata_max_age_ms
        if wanted.pattern is None:
            catalog.refresh(wanted.topics if is_due else wanted.topics & (catalog.missing | doubted))
            self.topics = wanted.topics
            self._report_missing(is_new=is_new)
        elif is_due:
            self.topics = frozenset(catalog.matching(wanted.pattern))
        elif doubted:
            matching = {topic for topic in doubted if wanted.pattern.match(topic)}
            self.topics = (self.topics | matching) - catalog.refresh(matching)
        self.pattern = pattern_text(wanted.pattern)
        with membership.lock:
            membership.doubted -= doubted
            membership.resolved = self.topics
        if is_due:
            self._version, self._resolved_ticks_ms = wanted.version, now

    def adopt(self, before: GenerationPlan | None, plan: GenerationPlan, member_id: str) -> None:
        """Take over what a generation says of the topics: its proposer has looked at them. So whoever finds a topic
        that the pattern of several members matches, or finds it deleted, does so for all of them.

        Args:
            before: the generation that ``plan`` follows.
            member_id: of this member, which ``plan`` has.
        """
        membership = self._membership
        wanted = membership.wanted
        if wanted is None or wanted.version != self._version:  # the next round resolves another subscription
            return
        looked_for = self.catalog.missing & plan.topics.keys()
        for topic, facts in plan.topics.items():
            known = self.catalog.seen.get(topic)
            if known is None or (known[0] == facts.topic_id and known[1] < facts.partition_count):
                self.catalog.update(topic, facts.topic_id, facts.partition_count)
        gone = self._gone(before, plan, member_id)
        for topic in gone:
            self.catalog.mark_missing(topic)
        with membership.lock:
            # Which look was later, the proposer's or this member's, isn't known: the next round looks again.
            membership.doubted |= looked_for | gone
            if wanted.pattern is not None:
                planned = plan.topics.keys() & plan.members[member_id].topics
                came = {topic for topic in planned if wanted.pattern.match(topic)}
                self.topics = membership.resolved = (self.topics | came) - gone

    def _gone(self, before: GenerationPlan | None, plan: GenerationPlan, member_id: str) -> frozenset[str]:
        """Topics that this member had until this generation."""
        former = before.members.get(member_id) if before is not None else None
        if before is None or former is None:
            return frozenset()
        return self.topics.intersection(former.topics, before.topics).difference(plan.topics)

    def _report_missing(self, *, is_new: bool) -> None:
        """Report names for which there never was a topic: they may be misspelt. A topic that was deleted leaves the
        group with the next generation, and comes back with another once it is created again.

        Source: Kafka ``ConsumerCoordinator.rejoinNeededOrPending``: a group rebalances when its leader's metadata has
        other topics, and no poll raises anything.
        """
        if is_new:
            self._existed, self._deleted = frozenset(), frozenset()
        missing = self.topics & self.catalog.missing
        self._existed |= self.topics & self.catalog.seen.keys()
        deleted = missing & self._existed
        if deleted - self._deleted:
            group, names = self._membership.settings.group_id, ", ".join(sorted(deleted - self._deleted))
            _LOGGER.warning(
                "group %s continues without topics that were deleted: %s", group, names, extra=about(group=group)
            )
        self._deleted = deleted
        self._membership.report_missing(set(missing - deleted))
