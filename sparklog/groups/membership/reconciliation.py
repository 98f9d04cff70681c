"""The steps from a member's present partitions to those of its newest generation: releasing, claiming, taking.

Pure; a lock guards it. A partition moves without stopping the rest: its owner gives it up and withdraws its claim, and
the new owner takes it once nobody who lives claims it any more. A member claims what it owns *and* what it is to get;
it takes a partition only after a listing of the members that began after its own claim was written. Of two that claim
the same partition at least one sees the other, and the one that the newest generation doesn't name withdraws.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from sparklog.groups.membership.generations import Generation, GenerationPlan, TopicFacts
from sparklog.groups.membership.liveness import TrackedMember
from sparklog.groups.offsets.rows import OffsetRow, Rows, Stamp
from sparklog.model import TopicPartition

__all__ = ["HeldPartition", "Reconciliation", "claimed_by_others"]


@dataclass(slots=True, kw_only=True)
class HeldPartition:
    """A partition that a member took."""

    stamp: Stamp
    row: OffsetRow
    """The row as it was when the stamp was written."""
    is_handed: bool = False
    """Does the application have it?"""


@dataclass(slots=True, kw_only=True)
class Reconciliation:
    """The partitions of one member: given to it, held by it, being taken, to be released."""

    is_eager: bool = False
    """Give everything up at each new generation, as the members of eager assignors do."""
    generation: int = 0
    """The newest one applied; 0 before the first that has this member."""
    given: frozenset[TopicPartition] = frozenset()
    """The partitions that this generation gives it."""
    target: frozenset[TopicPartition] = frozenset()
    """The partitions that it is to have: ``given``, but for topics that aren't wanted any more."""
    held: dict[TopicPartition, HeldPartition] = field(default_factory=dict)
    taking: dict[TopicPartition, Stamp] = field(default_factory=dict)
    """The partitions whose stamp is being written."""
    to_release: set[TopicPartition] = field(default_factory=set)
    """Held, and to be given up by the application."""
    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    """The topics of that generation."""
    committed: frozenset[tuple[str, str]] = frozenset()
    """The topics that the group had committed an offset of, as of the newest take, by name and id."""
    lost: set[TopicPartition] = field(default_factory=set)
    """Were handed to the application and may belong to other members by now; it doesn't know yet."""

    def apply(
        self,
        generation: Generation,
        given: frozenset[TopicPartition],
        *,
        topics: frozenset[str] | None = None,
        keeps: bool = False,
    ) -> None:
        """Act upon the next generation.

        One that was skipped is applied like every other, in order: what it gave to another member is given up, even if
        a later one gives it back (rule G2, silence). So is what belongs to another topic of the same name by now.

        Args:
            topics: no others are wanted any more.
            keeps: nothing moves, so that eager members don't give up anything either.
        """
        self.generation = generation.version
        self.given = given
        self.target = given if topics is None else frozenset(p for p in given if p.topic in topics)
        facts = generation.plan.topics
        self.topics = facts
        self._release(
            partition
            for partition, held in [*self.held.items()]
            if (self.is_eager and not keeps)
            or partition not in self.target
            or held.row.topic_id != facts[partition.topic].topic_id
        )

    def restrict(self, topics: frozenset[str]) -> None:
        """Keep only these topics: the others' partitions go before a generation says so. Those of topics that
        are wanted again come back, if no generation was in between."""
        self.target = frozenset(partition for partition in self.given if partition.topic in topics)
        self._release(partition for partition in [*self.held] if partition.topic not in topics)

    def _release(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if self.held[partition].is_handed:
                self.to_release.add(partition)
            else:
                del self.held[partition]

    def claims(self) -> frozenset[TopicPartition]:
        """The partitions that no other member may take while this member lives."""
        return self.target | self.held.keys() | self.taking.keys()

    def takeable(
        self, claimed: Collection[TopicPartition], *, written: frozenset[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """The partitions that may be taken now.

        Args:
            claimed: by others who live, from a look that began after ``written`` was.
            written: the claims of this member that the others could see then.
        """
        if self.is_eager and self.to_release:
            return frozenset()
        return (self.target & written) - self.held.keys() - self.taking.keys() - frozenset(claimed)

    def begin_take(self, partitions: Iterable[TopicPartition], stamp: Stamp) -> None:
        """Note that the stamp of partitions is being written."""
        self.taking.update(dict.fromkeys(partitions, stamp))

    def taken(self, stamp: Stamp, rows: Rows) -> None:
        """Hold the partitions whose stamp was written, as far as they are still wanted.

        Another take under the same stamp may still be on its way: partitions whose rows don't show it aren't held yet.
        """
        self.committed = frozenset(
            (at.topic, row.topic_id) for at, row in rows.items() if row.committed is not None or row.pending is not None
        )
        written = [p for p, taking in self.taking.items() if taking == stamp and p in rows and rows[p].stamp == stamp]
        for partition in written:
            del self.taking[partition]
            if partition in self.target and (stamp.generation == self.generation or not self.is_eager):
                self.held[partition] = HeldPartition(stamp=stamp, row=rows[partition])

    def not_taken(self, stamp: Stamp) -> None:
        """Forget a take: its stamp wasn't written, or that is unknown."""
        self.taking = {p: taking for p, taking in self.taking.items() if taking != stamp}

    def hand_over(self, assigned: Collection[TopicPartition] | None = None) -> dict[TopicPartition, OffsetRow]:
        """The partitions that the application gets now, each with its row; nothing while it must release something
        first, or learn what it lost: that may be the same partitions.

        Args:
            assigned: what it has; what was handed over and isn't among it is so again, since an interrupt came before
                it was taken up. None: all that was handed over.
        """
        if self.to_release or self.lost:
            return {}
        new = {p: h for p, h in self.held.items() if not h.is_handed or (assigned is not None and p not in assigned)}
        for held in new.values():
            held.is_handed = True
        return {partition: held.row for partition, held in new.items()}

    def released(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that the application gave up."""
        for partition in partitions:
            self.to_release.discard(partition)
            self.held.pop(partition, None)

    @property
    def first_counts(self) -> dict[str, int]:
        """The number of partitions that each topic had when the group first subscribed to it. Where members were away
        from it since, that of before counts if the group has committed there: what came later is younger than that."""
        return {
            topic: facts.least_count if (topic, facts.topic_id) in self.committed else facts.first_count
            for topic, facts in self.topics.items()
        }

    def lose_all(self) -> None:
        """Hold nothing any more: this member was silent for too long, or the group went on without it."""
        self.lost.update(p for p, held in self.held.items() if held.is_handed)
        self.held.clear()
        self.taking.clear()
        self.to_release.clear()
        self.given = self.target = frozenset()
        self.generation = 0

    def stamps(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Stamp]:
        """The stamps of those that the application has; the others are left out.

        What was lost and taken again, and not handed over since, is left out too: the application still stands where
        it stood under an older stamp (rule G1, stamps).
        """
        return {p: self.held[p].stamp for p in partitions if p in self.held and self.held[p].is_handed}

    @property
    def is_settled(self) -> bool:
        """Has the member all that it is to have, and no more?"""
        return not self.taking and not self.to_release and self.held.keys() == self.target


def claimed_by_others(
    members: Mapping[str, TrackedMember], plan: GenerationPlan, *, own_id: str, left_out_ms: float
) -> set[TopicPartition]:
    """The partitions that other members own, or are about to take.

    Args:
        members: all that were listed, by member id.
        plan: the newest generation's. A member whose instance id another has in it claims nothing any more.
        own_id: the member whose own claims don't count.
        left_out_ms: a member that ``plan`` left out claims nothing any more once it was silent for so long.
    """
    claimed: set[TopicPartition] = set()
    for member_id, member in members.items():
        if member_id == own_id or member.state is None or member.is_dead:
            continue
        is_replaced = plan.holder_of(member.state.instance_id) not in ("", member_id)
        if not is_replaced and (member_id in plan.members or member.silence_ms < left_out_ms):
            claimed |= member.state.claims
    return claimed
