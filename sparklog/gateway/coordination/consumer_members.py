"""A member of a group of the protocol ``consumer``: its target assignment, its present one, and the steps between them.

Source: Kafka ``ConsumerGroupMember``, ``CurrentAssignmentBuilder``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from sparklog.model import TopicPartition

__all__ = ["LEAVES", "LEAVES_FOR_A_WHILE", "ConsumerHeartbeat", "ConsumerMember", "Partitions", "TopicFacts"]

LEAVES, LEAVES_FOR_A_WHILE = -1, -2
"""Member epochs that say goodbye; the second is a static member's, which keeps its place."""
Partitions = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as the coordinator saw it last."""

    topic_id: str
    count: int
    """The number of its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """A member's words."""

    member_id: str
    """Empty: it has none yet."""
    epoch: int
    """0: it joins."""
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    """-1: as before."""
    topics: frozenset[str] | None
    """None: as before."""
    pattern: str | None
    """An expression of RE2 that whole names of topics match; None: as before, empty: none any more."""
    assignor: str | None
    """None: as before, or the coordinator's choice."""
    owned: Partitions | None
    """None: as before."""


@dataclass(slots=True, kw_only=True)
class ConsumerMember:
    """A member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = 45_000
    topics: frozenset[str] = frozenset()
    """Subscribed to by name."""
    pattern: str = ""
    assignor: str = ""
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = frozenset()
    """The partitions that it may read."""
    revoking: Partitions = frozenset()
    """The partitions that it is to give up, and hasn't yet: nobody else gets them."""
    target: Partitions = frozenset()
    """The partitions that it is to have in the end."""
    silence_ms: float = 0.0
    revoking_ms: float = field(default=0.0)
    """How long it has been giving up partitions."""

    @property
    def is_away(self) -> bool:
        """Is it a static member that has left for a while?"""
        return self.epoch == LEAVES_FOR_A_WHILE

    @property
    def holds(self) -> Partitions:
        """The partitions that nobody else gets."""
        return self.assigned | self.revoking

    def hear(self, said: ConsumerHeartbeat) -> bool:
        """Take over what it says; true if the group has to be assigned anew for it."""
        self.silence_ms = 0.0
        self.client_id, self.client_host = said.client_id, said.client_host
        if said.rebalance_timeout_ms >= 0:
            self.rebalance_timeout_ms = said.rebalance_timeout_ms
        before = (self.topics, self.pattern, self.assignor)
        if said.topics is not None:
            self.topics = said.topics
        if said.pattern is not None:
            self.pattern = said.pattern
        if said.assignor is not None:
            self.assignor = said.assignor
        return before != (self.topics, self.pattern, self.assignor)

    def advance(
        self, target_epoch: int, owned: Partitions | None, taken: Callable[[Collection[TopicPartition]], Partitions]
    ) -> None:
        """Come nearer to the target: give up first, then get what others have given up.

        Args:
            target_epoch: the epoch of the target.
            owned: the partitions that the client says it has; None: it doesn't say.
            taken: which of some partitions others hold.
        """
        if self.revoking:
            if owned is None or owned & self.revoking:
                return
            self.revoking, self.revoking_ms = frozenset(), 0.0
        to_revoke = self.assigned - self.target
        self.assigned &= self.target
        if to_revoke and (owned is None or owned & to_revoke):
            self.revoking = to_revoke
            return
        missing = self.target - self.assigned
        self.assigned |= missing - taken(missing)
        if self.epoch != target_epoch:
            self.previous_epoch, self.epoch = self.epoch, target_epoch
