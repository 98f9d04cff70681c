"""What members promise each other: of those that live no two have the same partition, nobody commits under a stamp that
isn't the owner's, and without trouble each partition soon has exactly one owner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

from proof.simulation.cluster.world import Process
from sparklog.groups.membership.generations import Generation, generation_log
from sparklog.groups.membership.membership import Membership
from sparklog.groups.offsets.changes import CommitOffsets
from sparklog.groups.offsets.rows import Rows
from sparklog.log import Cluster
from sparklog.model import TopicPartition

__all__ = ["Holders"]


class _Member(NamedTuple):
    process: Process
    membership: Membership

    @property
    def handed(self) -> set[TopicPartition]:
        """What its application has."""
        held = self.membership.reconciliation.held
        return {partition for partition, one in held.items() if one.is_handed}

    @property
    def wants_membership(self) -> bool:
        """Is it in the group, or on its way?"""
        return not self.process.is_dead and self.membership.wanted is not None and not self.membership.is_parked

    def could_hold(self, fastest_rate: float) -> bool:
        """Is it alive, with others having seen so within its session, by the fastest clock in the group?

        By its own, slower clock it may have been silent for less than its session when others count it as dead: that
        nobody reads its partitions then isn't promised (docs/groups.md); its commits are refused all the same.
        """
        membership = self.membership
        if self.process.is_dead or not membership.member_id:
            return False
        silent_ms = (self.process.clock.ticks_ms() - membership._beat_ticks_ms) / self.process.rate
        return silent_ms * fastest_rate <= membership.settings.session_timeout_ms


class Holders:
    """The members of all groups of a world, and what they have.

    Args:
        cluster: the world's, as somebody sees it whom nothing befalls.
        current: the process that acts now.
        violate: told what isn't so.
    """

    def __init__(
        self, cluster: Cluster, *, current: Callable[[], Process | None], violate: Callable[[str], object]
    ) -> None:
        self._cluster = cluster
        self._current = current
        self._violate = violate
        self._members: list[_Member] = []
        self._commits: dict[str, list[CommitOffsets]] = {}
        """By process: what it tried to commit since it last created a version of the offset table."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look wherever a member gets partitions, or tells others that it lives."""
        begin, hand_over, beat = Membership.__init__, Membership.hand_over, Membership.heartbeat_written
        apply = CommitOffsets.apply

        def begun(membership: Membership, *given: Any, **kwargs: Any) -> None:
            begin(membership, *given, **kwargs)
            process = self._current()
            if process is not None:
                self._members.append(_Member(process, membership))

        def handed(membership: Membership, *given: Any) -> Any:
            rows = hand_over(membership, *given)
            if rows:
                self._check(membership)
            return rows

        def beaten(membership: Membership, *given: Any, **kwargs: Any) -> None:
            beat(membership, *given, **kwargs)
            self._check(membership)

        def applied(commit: CommitOffsets, rows: Rows, now_ms: int) -> Rows:
            process = self._current()
            if process is not None:
                self._commits.setdefault(process.name, []).append(commit)
            return apply(commit, rows, now_ms)

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(CommitOffsets, "apply", applied))
            for name, watched in (("__init__", begun), ("hand_over", handed), ("heartbeat_written", beaten)):
                stack.enter_context(mock.patch.object(Membership, name, watched))
            yield

    def see_rows(self, who: str, before: Rows, after: Rows) -> None:
        """Was each offset that a new version of the offset table has committed by its partition's owner (rule G1)?

        The stamp counts that was there before or, where a commit and a take are one version, the one that is.
        """
        commits = self._commits.pop(who, [])
        for partition, row in after.items():
            old = before.get(partition)
            if row.committed is None or (old is not None and old.committed == row.committed):
                continue
            owners = {row.stamp, None if old is None else old.stamp}
            if not any(
                c.offsets.get(partition) == row.committed and c.stamps.get(partition) in owners for c in commits
            ):
                self._violate(f"{who} committed {row.committed.offset} of {partition} without the stamp {row.stamp}")

    def _check(self, membership: Membership) -> None:
        """Has nobody else what this member has (rule G2, silence)?"""
        member = next((one for one in self._members if one.membership is membership), None)
        fastest_rate = max((one.process.rate for one in self._members), default=1.0)
        if member is None or not member.could_hold(fastest_rate):
            return
        mine = member.handed
        for other in self._members:
            if other is member or other.membership.settings.group_id != membership.settings.group_id:
                continue
            both = mine & other.handed
            if both and other.could_hold(fastest_rate) and not (self._is_replaced(member) or self._is_replaced(other)):
                self._violate(f"{sorted(both)} is held by {member.process.name} and by {other.process.name}")

    def _is_replaced(self, member: _Member) -> bool:
        """Has another the instance id of this member in the newest generation? It finds out as soon as it looks."""
        newest = self._newest(member.membership.settings.group_id)
        instance_id = member.membership.settings.instance_id
        holder = "" if newest is None else newest.plan.holder_of(instance_id)
        return holder not in ("", member.membership.member_id)

    def _newest(self, group: str) -> Generation | None:
        return generation_log(self._cluster, group).open_newest()[0]

    def living(self, group: str) -> list[_Member]:
        """The members that are in the group, or on their way."""
        return [one for one in self._members if one.membership.settings.group_id == group and one.wants_membership]

    def why_unsettled(self, group: str, counts: Mapping[str, int]) -> str:
        """Why not each partition that is subscribed to has exactly one owner; empty if each has.

        Args:
            counts: the partitions of each topic.
        """
        newest = self._newest(group)
        living = self.living(group)
        owners: dict[TopicPartition, str] = {}
        wanted: set[TopicPartition] = set()
        for member in living:
            name, reconciliation = member.process.name, member.membership.reconciliation
            wanted |= {TopicPartition(topic, n) for topic in _topics(member, counts) for n in range(counts[topic])}
            if newest is None or reconciliation.generation != newest.version:
                return f"{name} is at generation {reconciliation.generation}, not at the newest"
            if not reconciliation.is_settled or reconciliation.held.keys() != member.handed:
                return f"{name} is on its way from {sorted(member.handed)} to {sorted(reconciliation.target)}"
            for partition in member.handed:
                if partition in owners:
                    return f"{partition} is held by {name} and by {owners[partition]}"
                owners[partition] = name
        member_ids = {one.membership.member_id for one in living}
        if newest is not None and living and newest.plan.members.keys() != member_ids:
            return f"generation {newest.version} has {sorted(newest.plan.members)}, living are {sorted(member_ids)}"
        if owners.keys() != wanted:
            return f"{sorted(owners)} are held, {sorted(wanted)} are subscribed to"
        return ""


def _topics(member: _Member, counts: Mapping[str, int]) -> set[str]:
    """The topics of its subscription."""
    wanted = member.membership.wanted
    if wanted is None:
        return set()
    if wanted.pattern is None:
        return set(wanted.topics)
    return {topic for topic in counts if wanted.pattern.match(topic)}
