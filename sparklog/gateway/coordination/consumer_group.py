"""A group of the protocol ``consumer`` (KIP-848): the coordinator assigns, and answers heartbeats with assignments.

As in :mod:`sparklog.gateway.coordination.classic_group` everything happens in the event loop's thread, and time comes
in as steps. Source of all rules: Kafka ``GroupMetadataManager.consumerGroupHeartbeat`` and those around it.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from sparklog.gateway.coordination.consumer_members import (
    LEAVES,
    LEAVES_FOR_A_WHILE,
    ConsumerHeartbeat,
    ConsumerMember,
    Partitions,
    TopicFacts,
)
from sparklog.gateway.error_codes import ErrorCode
from sparklog.groups.assignors import Assignor, CooperativeStickyAssignor, MemberSubscription, RangeAssignor
from sparklog.logs import short
from sparklog.model import TopicPartition

__all__ = ["ASSIGNORS", "ConsumerGroup", "Heard"]

_LOGGER = logging.getLogger("sparklog.gateway")
ASSIGNORS: Mapping[str, Assignor] = {"uniform": CooperativeStickyAssignor(), "range": RangeAssignor()}
"""Kafka's names of a coordinator's assignors; the first is the default."""


class Heard(NamedTuple):
    """The answer to a heartbeat."""

    code: ErrorCode
    message: str | None = None
    member_id: str = ""
    epoch: int = 0
    assigned: Partitions | None = None
    """None: as before."""


class ConsumerGroup:
    """A group whose members share partitions as this coordinator decides.

    Args:
        epoch: numbers of its epochs begin after this one.
        max_size: bound of members.
    """

    def __init__(self, group_id: str, *, epoch: int, session_timeout_ms: float, max_size: int) -> None:
        self.group_id = group_id
        self.epoch = epoch
        """It grows with each change of members, subscriptions and topics."""
        self.target_epoch = epoch
        """The epoch that the members' targets were computed for."""
        self.members: dict[str, ConsumerMember] = {}
        self.assignor = ""
        """The one by which partitions were assigned last."""
        self.matches: dict[str, frozenset[str]] = {}
        """The topics that members' patterns match, as they were seen last."""
        self._session_timeout_ms = session_timeout_ms
        self._max_size = max_size
        self.facts: dict[str, TopicFacts] = {}
        """The topics that exist, as they were seen last."""

    @property
    def is_unused(self) -> bool:
        """Is nobody in it?"""
        return not self.members

    @property
    def state(self) -> str:
        """Kafka's name of its state."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        is_stable = all(
            member.epoch == self.target_epoch and member.assigned == member.target and not member.revoking
            for member in self.members.values()
        )
        return "Stable" if is_stable else "Reconciling"

    def topics(self) -> frozenset[str]:
        """The topics that members subscribe to."""
        return frozenset().union(*(self.topics_of(member) for member in self.members.values()))

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics that a member subscribes to, by name or by its pattern."""
        return member.topics | self.matches.get(member.pattern, frozenset())

    def patterns(self) -> frozenset[str]:
        """The patterns of members."""
        return frozenset(member.pattern for member in self.members.values()) - {""}

    def look(
        self, asked: frozenset[str], facts: Mapping[str, TopicFacts], matches: Mapping[str, frozenset[str]]
    ) -> None:
        """Take over what was seen of topics; the coordinator has their partitions for its own.

        Args:
            asked: the topics that were looked at.
            facts: those of them that exist.
            matches: the topics that match each pattern.
        """
        patterns = self.patterns()
        kept = self.topics() - asked
        matched = {pattern: topics for pattern, topics in self.matches.items() if pattern in patterns} | dict(matches)
        seen = {topic: known for topic, known in self.facts.items() if topic in kept} | dict(facts)
        if (seen, matched) != (self.facts, self.matches) and self.members:
            self.epoch += 1
        self.facts, self.matches = seen, matched

    def heartbeat(self, said: ConsumerHeartbeat) -> Heard:
        """Process a member's heartbeat and return its assignment. :meth:`look` has resolved its topics before."""
        if said.assignor is not None and said.assignor not in ASSIGNORS:
            known = ", ".join(ASSIGNORS)
            return Heard(ErrorCode.UNSUPPORTED_ASSIGNOR, f"assignor {said.assignor} isn't served: expected {known}")
        if said.epoch in (LEAVES, LEAVES_FOR_A_WHILE):
            return self._leave(said)
        member = self._joining(said) if said.epoch == 0 else self._known(said)
        if isinstance(member, Heard):
            return member
        if member.hear(said):
            self.epoch += 1
        self._assign()
        before = (member.epoch, member.assigned)
        member.advance(self.target_epoch, said.owned, lambda wanted: self._held_by_others(member, wanted))
        is_full = said.epoch == 0 or said.topics is not None or said.pattern is not None
        is_told = is_full or before != (member.epoch, member.assigned)
        return Heard(ErrorCode.NONE, None, member.member_id, member.epoch, member.assigned if is_told else None)

    def _joining(self, said: ConsumerHeartbeat) -> ConsumerMember | Heard:
        if not said.topics and not said.pattern:
            return Heard(ErrorCode.INVALID_REQUEST, "a member that joins says to what it subscribes")
        known = self.members.get(said.member_id)
        if known is not None and known.instance_id == said.instance_id and not known.is_away:
            known.previous_epoch, known.epoch = known.epoch, 0
            return known
        former = self._static(said.instance_id)
        if former is not None and not former.is_away:
            message = f"static member {said.instance_id} is in the group as {former.member_id}"
            return Heard(ErrorCode.UNRELEASED_INSTANCE_ID, message)
        if former is None and len(self.members) >= self._max_size:
            return Heard(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {self.group_id} has {len(self.members)} members")
        member = ConsumerMember(
            member_id=said.member_id or str(uuid.uuid4()),
            instance_id=said.instance_id,
            client_id=said.client_id,
            client_host=said.client_host,
        )
        _LOGGER.info("group %s: member %s joins after epoch %d", self.group_id, short(member.member_id), self.epoch)
        if former is not None:  # it takes its own place again, and nothing moves
            del self.members[former.member_id]
            member.topics, member.pattern, member.assignor = former.topics, former.pattern, former.assignor
            member.assigned, member.target = former.assigned, former.target
        self.members[member.member_id] = member
        return member

    def _known(self, said: ConsumerHeartbeat) -> ConsumerMember | Heard:
        code, message = self._check(said.member_id, said.instance_id)
        if code is not ErrorCode.NONE:
            return Heard(code, message)
        member = self.members[said.member_id]
        # The answer with the newer epoch may have been lost; then it has no more than it was given.
        is_behind = said.epoch == member.previous_epoch and said.owned is not None and said.owned <= member.assigned
        if said.epoch != member.epoch and not is_behind:
            message = f"member epoch {said.epoch}: expected {member.epoch}"
            return Heard(ErrorCode.FENCED_MEMBER_EPOCH, message)
        return member

    def _check(self, member_id: str, instance_id: str | None) -> tuple[ErrorCode, str | None]:
        static = self._static(instance_id)
        if static is not None and static.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID, f"static member {instance_id} is {static.member_id} by now"
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.group_id} has no member {member_id}"
        return ErrorCode.NONE, None

    def _static(self, instance_id: str | None) -> ConsumerMember | None:
        if instance_id is None:
            return None
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)

    def _leave(self, said: ConsumerHeartbeat) -> Heard:
        code, message = self._check(said.member_id, said.instance_id)
        if code is not ErrorCode.NONE:
            return Heard(code, message)
        member = self.members[said.member_id]
        if said.epoch == LEAVES_FOR_A_WHILE and member.instance_id is not None:
            member.epoch, member.silence_ms, member.revoking = LEAVES_FOR_A_WHILE, 0.0, frozenset()
        else:
            self.remove(said.member_id, "it leaves")
        return Heard(ErrorCode.NONE, None, said.member_id, said.epoch)

    def remove(self, member_id: str, why: str) -> None:
        """Put a member out; what it had goes to others."""
        _LOGGER.info("group %s: member %s was removed: %s", self.group_id, short(member_id), why)
        del self.members[member_id]
        self.epoch += 1

    def _assign(self) -> None:
        """Compute the members' targets where something has changed."""
        if self.epoch == self.target_epoch:
            return
        liked = Counter(member.assignor for member in self.members.values() if member.assignor)
        default = next(iter(ASSIGNORS))
        self.assignor = max(sorted(liked), key=lambda name: liked[name], default=default)
        counts = {topic: facts.count for topic, facts in self.facts.items()}
        subscriptions = {
            member_id: MemberSubscription(
                topics=tuple(sorted(self.topics_of(member))), instance_id=member.instance_id, owned=member.target
            )
            for member_id, member in self.members.items()
        }
        assigned = ASSIGNORS[self.assignor].assign(counts, subscriptions)
        for member_id, member in self.members.items():
            member.target = frozenset(assigned[member_id])
        self.target_epoch = self.epoch

    def _held_by_others(self, member: ConsumerMember, wanted: Collection[TopicPartition]) -> Partitions:
        held: set[TopicPartition] = set()
        for other in self.members.values():
            if other is not member:
                held |= other.holds
        return frozenset(held.intersection(wanted))

    def may_commit(self, member_id: str, instance_id: str | None, epoch: int) -> ErrorCode:
        """May this member commit offsets now? Source: Kafka ``ConsumerGroup.validateOffsetCommit``."""
        code, _ = self._check(member_id, instance_id)
        if code is not ErrorCode.NONE:
            return code
        member = self.members[member_id]
        member.silence_ms = 0.0
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def tick(self, elapsed_ms: float) -> None:
        """Let time pass: sessions end, and so does the time to give partitions up."""
        for member in [*self.members.values()]:
            member.silence_ms += elapsed_ms
            member.revoking_ms = member.revoking_ms + elapsed_ms if member.revoking else 0.0
            if member.silence_ms > self._session_timeout_ms:
                self.remove(member.member_id, "its session ended")
            elif member.revoking_ms > member.rebalance_timeout_ms:
                self.remove(member.member_id, "it didn't give up what it was to")

    def end(self) -> None:
        """Forget all members: this is no longer the coordinator."""
        self.members = {}
