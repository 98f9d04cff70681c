"""A group that a gateway coordinates: its clients' membership, and what the gateway does in the store for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial

from sparklog.errors import CommitFailedError, IllegalGenerationError, SparklogError
from sparklog.gateway.backend import Backend
from sparklog.gateway.coordination.classic_group import ClassicGroup
from sparklog.gateway.coordination.consumer_group import ConsumerGroup
from sparklog.gateway.coordination.consumer_members import TopicFacts
from sparklog.gateway.error_codes import ErrorCode, coordinator_code_of
from sparklog.gateway.group_offsets import GroupOffsets, KnownTopics
from sparklog.gateway.group_stay import GroupStay
from sparklog.logs import short
from sparklog.model import OffsetAndMetadata, TopicPartition

__all__ = ["Coordinated"]

_LOGGER = logging.getLogger("sparklog.gateway")
_LOOK_AGAIN_MS = 10_000.0
"""How often topics are looked at that members of the protocol ``consumer`` subscribe to."""
_LONGEST_TICK_MS = 500.0
"""A gateway that was suspended for longer lets no more time than this pass at once: its members must be heard first."""


class Coordinated:
    """A group that this gateway coordinates: of the classic protocol, or of the protocol ``consumer``."""

    def __init__(
        self, backend: Backend, group_id: str, stay: GroupStay, offsets: GroupOffsets, topics: KnownTopics
    ) -> None:
        settings = backend.settings
        self.group_id = group_id
        self.stay = stay
        self.offsets = offsets
        self.classic = ClassicGroup(
            group_id,
            generation=stay.generation,
            settle=self._settle,
            initial_delay_ms=settings.group_initial_rebalance_delay_ms,
            max_size=settings.group_max_size,
        )
        self.consumer = ConsumerGroup(
            group_id,
            epoch=stay.generation,
            session_timeout_ms=settings.group_consumer_session_timeout_ms,
            max_size=settings.group_max_size,
        )
        self.unused_ms = 0.0
        self.is_superseded = False
        """Was it found out that another coordinates by now?"""
        self._backend = backend
        self._ticks_ms = backend.cluster.clock.ticks_ms()
        """The clock's ticks at the last tick of this group."""
        self._topics = topics
        self._looking = asyncio.Lock()
        self._looked: frozenset[str] = frozenset()
        self._looked_ticks_ms = 0.0

    @property
    def is_unused(self) -> bool:
        """Is nobody in it, nor about to be?"""
        return self.classic.is_unused and self.consumer.is_unused

    def may_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """May a member of this generation, or member epoch, commit offsets now?"""
        group = self.classic if self.consumer.is_unused else self.consumer
        return group.may_commit(member_id, instance_id, generation)

    def may_fetch(self, member_id: str, epoch: int) -> ErrorCode:
        """May a member of this member epoch read committed offsets? Anybody may in a classic group, whose clients may
        name a member, too. Source: Kafka ``ClassicGroup.validateOffsetFetch``, ``ConsumerGroup.validateOffsetFetch``.
        """
        return self.consumer.may_commit(member_id, None, epoch) if self.classic.is_unused else ErrorCode.NONE

    def tick(self) -> None:
        """Let the time pass that has passed since the last tick: sessions may end."""
        now_ms = self._backend.cluster.clock.ticks_ms()
        elapsed_ms, self._ticks_ms = min(now_ms - self._ticks_ms, _LONGEST_TICK_MS), now_ms
        self.classic.tick(elapsed_ms)
        self.consumer.tick(elapsed_ms)
        self.unused_ms = self.unused_ms + elapsed_ms if self.is_unused else 0.0

    def end(self) -> None:
        """Answer all that wait that this is no longer the coordinator."""
        self.classic.end(ErrorCode.NOT_COORDINATOR)
        self.consumer.end()

    async def look(self, topics: frozenset[str], pattern: str) -> ErrorCode:
        """See to it that the topics of the protocol ``consumer``'s members are known, and their partitions taken.

        Args:
            topics: named by the member that asks.
            pattern: of that member; empty where there is none.
        """
        async with self._looking:
            now = self._backend.cluster.clock.ticks_ms()
            is_known = topics <= self._looked and (not pattern or pattern in self.consumer.matches)
            if is_known and now - self._looked_ticks_ms < _LOOK_AGAIN_MS:
                return ErrorCode.NONE
            try:
                patterns = self.consumer.patterns() | ({pattern} - {""})
                matches = {
                    expression: await self._backend.run_for_group(partial(self._topics.matching, expression))
                    for expression in patterns
                }
                asked = topics.union(self.consumer.topics(), *matches.values())
                facts = await self._own(asked)
            except ValueError as error:
                _LOGGER.info("group %s: pattern %r: %s", self.group_id, short(pattern), short(error))
                return ErrorCode.INVALID_REGULAR_EXPRESSION
            except SparklogError as error:
                self.note(error)
                return coordinator_code_of(error)
            existing = {expression: matched & facts.keys() for expression, matched in matches.items()}
            self.consumer.look(asked, {topic: TopicFacts(*known) for topic, known in facts.items()}, existing)
            self._looked, self._looked_ticks_ms = asked, now
            return ErrorCode.NONE

    async def facts(self, topics: frozenset[str]) -> dict[str, tuple[str, int]]:
        """Topic id and partition count of topics to which offsets are committed; those that exist."""
        facts = await self._backend.run_for_group(lambda: self._topics.facts(topics, is_fresh=False))
        doubted = {topic for topic, (topic_id, _) in facts.items() if self.stay.has_other_id(topic, topic_id)}
        if doubted:  # what was seen last may be older than what was taken
            facts |= await self._backend.run_for_group(lambda: self._topics.facts(doubted))
        return facts

    async def _settle(self, topics: frozenset[str]) -> ErrorCode:
        try:
            await self._own(topics)
        except SparklogError as error:
            self.note(error)
            return coordinator_code_of(error)
        return ErrorCode.NONE

    async def _own(self, topics: frozenset[str]) -> dict[str, tuple[str, int]]:
        """Take the partitions of all topics that are subscribed: what was committed before, and by whomever, is then
        what a client reads, and nobody else commits to them any more. Returns ids and counts of those that exist."""
        self.stay.subscribe(topics)
        facts = await self._backend.run_for_group(lambda: self._topics.facts(topics))
        partitions = {
            TopicPartition(topic, number): topic_id
            for topic, (topic_id, count) in facts.items()
            for number in range(count)
        }
        await self.stay.own(partitions, timeout_ms=self._backend.settings.offset_commit_timeout_ms)
        return facts

    def note(self, error: SparklogError) -> None:
        """Note why partitions or offsets weren't written."""
        if isinstance(error, (IllegalGenerationError, CommitFailedError)):
            _LOGGER.warning("this gateway no longer coordinates group %s: %s", self.group_id, error)
            self.is_superseded = True

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | None],
        topic_ids: Mapping[TopicPartition, str],
        *,
        timeout_ms: float,
    ) -> None:
        """Commit a member's offsets. Raises as :meth:`GroupStay.commit`."""
        try:
            try:
                await self.stay.commit(offsets, topic_ids, timeout_ms=timeout_ms)
            except CommitFailedError:  # an administrator may have deleted rows; taking fails if it was another member
                self.stay.forget(offsets)
                await self.stay.commit(offsets, topic_ids, timeout_ms=timeout_ms)
        except SparklogError as error:
            self.note(error)
            raise
