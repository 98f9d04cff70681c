"""A gateway's membership in a group by sparklog's own protocol, as the coordinator of Kafka's clients.

A gateway that coordinates a group's clients is a member of the group like others are: it shows that it lives, is taken
for dead by the others' rules, and owns partitions by its stamps (rule G1, stamps). Its assignor gives everything to one
member, and no other member supports it: so consumers of sparklog and gateways refuse each other. Decision 0037.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from enum import Enum, auto

from sparklog.clock import Deadline
from sparklog.errors import CommitFailedError, IllegalGenerationError, InconsistentGroupProtocolError, SparklogError
from sparklog.groups.assignors import Assignor, MemberSubscription
from sparklog.groups.assignors.base import partitions_of, ranked_members, wanted_topics
from sparklog.groups.membership.generations import Generation
from sparklog.groups.membership.heartbeat_rounds import HeartbeatRounds
from sparklog.groups.membership.heartbeat_thread import HeartbeatThread
from sparklog.groups.membership.membership import MemberSettings, Membership
from sparklog.groups.offsets.changes import CommitOffsets, TakePartitions
from sparklog.groups.offsets.commit_thread import OffsetCommitThread
from sparklog.groups.offsets.rows import Rows, Stamp
from sparklog.log import Cluster
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.storage.retrying import Patience

__all__ = ["ASSIGNOR", "GroupStay", "Standing"]

_LOGGER = logging.getLogger("sparklog.gateway")
ASSIGNOR = "kafka-clients"
"""The name of the assignor that only gateways support."""
_NEVER_MS = 2**53
_METADATA_MAX_AGE_MS = 60_000


class _OneForAll(Assignor):
    """Gives each topic to one member: partitions are divided among its clients by one of these."""

    name = ASSIGNOR
    is_cooperative = True

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        ranked = ranked_members(members)
        for topic, count in wanted_topics(partition_counts, members).items():
            first = next(member for member in ranked if topic in members[member].topics)
            assigned[first] += partitions_of({topic: count})
        return assigned


class Standing(Enum):
    """Where a gateway stands in a group."""

    JOINING = auto()
    COORDINATES = auto()
    BESIDE_ANOTHER = auto()
    """Another gateway came at the same time, and coordinates."""
    BESIDE_CONSUMERS = auto()
    """The group has members that aren't gateways."""
    OVER = auto()
    """It was silent for too long, or the group went on without it."""


class GroupStay:
    """One stay, with one member id: its end is final.

    Args:
        address: where clients reach this gateway, ``host:port``.
        commit_timeout_ms: for which partitions are tried to be taken as rounds go by: a client's commit may wait for
            that, since a group's thread does one thing after the other. The next round tries again.
        notify: called from any thread when :meth:`standing` may have changed.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        commits: OffsetCommitThread,
        *,
        address: str,
        session_timeout_ms: int,
        heartbeat_interval_ms: int,
        commit_timeout_ms: int,
        notify: Callable[[], None],
    ) -> None:
        settings = MemberSettings(
            group_id=group,
            instance_id=None,
            client_id="gateway",
            host=address,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            max_poll_interval_ms=_NEVER_MS,
            metadata_max_age_ms=_METADATA_MAX_AGE_MS,
            assignors={ASSIGNOR: _OneForAll()},
        )
        self._cluster = cluster
        self._group = group
        self._commits = commits
        self._membership = Membership(settings, cluster.clock, notify=notify, wake=self._wake)
        self._rounds = HeartbeatRounds(cluster, self._membership, self._take)
        self._heartbeat = HeartbeatThread(self._rounds, self._membership, on_heartbeat=notify)
        self._take_timeout_ms = float(min(session_timeout_ms, commit_timeout_ms))
        self._member_id = ""
        self._topics: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._stamps: dict[TopicPartition, tuple[str, Stamp]] = {}
        """Partitions that this stay has taken, with their topics' ids."""
        self._topic_ids: dict[str, str] = {}
        """Ids of these topics, as they were taken last."""

    def begin(self) -> None:
        """Join the group; :meth:`standing` returns the outcome."""
        self._membership.subscribe((), None)
        self._heartbeat.start()

    def _wake(self) -> None:
        self._heartbeat.wake()

    def standing(self) -> Standing:
        """Where this gateway stands now, by its own clock (rule G2, silence)."""
        membership = self._membership
        try:
            membership.raise_error()
        except InconsistentGroupProtocolError as error:
            _LOGGER.warning("%s: Kafka's clients are refused while sparklog's consumers are members", error)
            return Standing.BESIDE_CONSUMERS
        except SparklogError as error:
            _LOGGER.warning("group %s: %s", self._group, error)
        membership.check_silence()
        with membership.lock:
            member_id, generation = membership.member_id, membership.reconciliation.generation
            newest = self._rounds.newest
            self._member_id = self._member_id or member_id
        if self._member_id != member_id:
            return Standing.OVER
        if not generation or newest is None:
            return Standing.JOINING
        return Standing.COORDINATES if _coordinator_of(newest) == member_id else Standing.BESIDE_ANOTHER

    @property
    def generation(self) -> int:
        """The newest generation that it acts upon; 0 before the first."""
        return self._membership.reconciliation.generation

    def metadata(self) -> ConsumerGroupMetadata:
        """The member that this stay is."""
        return ConsumerGroupMetadata(self._group, self.generation, self._member_id)

    def subscribe(self, topics: frozenset[str]) -> None:
        """Announce to the group which topics the clients subscribe to."""
        if topics != self._topics:
            self._topics = topics
            self._membership.subscribe(topics, None)

    def leave(self, deadline: Deadline) -> None:
        """Leave the group, so that others may have it at once. May block; what it can't do ends with the session."""
        self._membership.unsubscribe()
        self._heartbeat.stop()
        if not self._heartbeat.join(deadline.left_ms / 1_000):
            _LOGGER.warning("group %s: the gateway could not leave it; its session ends by itself", self._group)
            return
        try:
            with self._cluster.store.patience(Patience(deadline=deadline)):
                self._rounds.leave()
        except SparklogError as error:
            _LOGGER.warning(
                "group %s: the gateway could not leave it; its session ends by itself: %s", self._group, error
            )

    # Partitions and offsets.

    def has_other_id(self, topic: str, topic_id: str) -> bool:
        """Were partitions taken of a topic of this name that has another id?"""
        with self._lock:
            return self._topic_ids.get(topic, topic_id) != topic_id

    async def own(self, topic_ids: Mapping[TopicPartition, str], *, timeout_ms: float) -> None:
        """Take partitions that this stay hasn't taken, so that nobody commits to them who coordinated before.

        Raises:
            IllegalGenerationError: the group has gone on without this gateway.
            KafkaTimeoutError, CommitStateUnknownError, StoreError, …
        """
        while True:
            with self._lock:
                wanted = {p: i for p, i in topic_ids.items() if p not in self._stamps or self._stamps[p][0] != i}
            if not wanted:
                return
            stamp = self._stamp()
            try:
                await asyncio.wrap_future(self._taking(wanted, stamp, timeout_ms))
            except IllegalGenerationError:
                if self._stamp() == stamp:
                    raise  # else a round has taken them in a newer generation meanwhile

    def _stamp(self) -> Stamp:
        membership = self._membership
        with membership.lock:
            stamp, newest = Stamp(membership.reconciliation.generation, membership.member_id), self._rounds.newest
        if stamp.member != self._member_id or not _may_take(stamp, newest):
            raise self._superseded()
        return stamp

    def _superseded(self) -> IllegalGenerationError:
        return IllegalGenerationError(f"group {self._group!r} has another coordinator by now")

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget that partitions were taken: their rows were deleted, or aren't as they were."""
        with self._lock:
            for partition in partitions:
                self._stamps.pop(partition, None)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | None],
        topic_ids: Mapping[TopicPartition, str],
        *,
        timeout_ms: float,
    ) -> None:
        """Commit offsets under the stamps of this stay (rule G1, stamps).

        Raises:
            CommitFailedError, IllegalGenerationError: another coordinates, or an administrator has changed the rows.
            KafkaTimeoutError, CommitStateUnknownError, StoreError, …
        """
        await self.own(topic_ids, timeout_ms=timeout_ms)

        def change() -> CommitOffsets:
            with self._lock:
                stamps = {p: self._stamps[p][1] for p in offsets if p in self._stamps}
            return CommitOffsets(offsets=offsets, stamps=stamps, topic_ids=topic_ids)

        tried: list[CommitOffsets] = []

        def make() -> CommitOffsets:
            tried.append(change())
            return tried[-1]

        def again(refusal: SparklogError) -> CommitOffsets | None:
            """A take that was carried out together with the commit has changed a stamp."""
            is_changed = isinstance(refusal, CommitFailedError) and change().stamps != tried[-1].stamps
            return make() if is_changed else None

        await asyncio.wrap_future(self._commits.change(make, timeout_ms=timeout_ms, again=again))

    def _take(
        self, topic_ids: Mapping[TopicPartition, str], stamp: Stamp, done: Callable[[Rows | Exception], None]
    ) -> None:
        if not _may_take(stamp, self._rounds.newest):
            done(self._superseded())
            return
        future = self._taking(topic_ids, stamp, self._take_timeout_ms)
        future.add_done_callback(lambda taken: done(taken.exception() or taken.result()))  # type: ignore[arg-type]

    def _taking(self, topic_ids: Mapping[TopicPartition, str], stamp: Stamp, timeout_ms: float) -> Future[Rows]:
        future = self._commits.take(TakePartitions(topic_ids=topic_ids, stamp=stamp), timeout_ms=timeout_ms)
        future.add_done_callback(lambda taken: self._taken(topic_ids, stamp, taken))
        return future

    def _taken(self, topic_ids: Mapping[TopicPartition, str], stamp: Stamp, taken: Future[Rows]) -> None:
        if taken.exception() is None:
            rows = taken.result()
            with self._lock:
                for partition, topic_id in topic_ids.items():
                    if partition in rows and rows[partition].stamp == stamp:
                        self._stamps[partition] = (topic_id, stamp)
                        self._topic_ids[partition.topic] = topic_id


def _coordinator_of(generation: Generation) -> str:
    """The member that coordinates; empty where there is none."""
    return min(generation.plan.members, default="")


def _may_take(stamp: Stamp, newest: Generation | None) -> bool:
    """May partitions be taken by this stamp? Its member must coordinate its generation.

    So no two members write stamps of one generation, and the coordinator of the newest is never refused: an equal stamp
    of another member would keep it from taking partitions until that one has left and a further generation is known.
    """
    return newest is not None and newest.version == stamp.generation and _coordinator_of(newest) == stamp.member
