"""Members of a group on one store and one clock, without threads: a test decides who does a round, and when."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sparklog.errors import SparklogError
from sparklog.groups.assignors import ASSIGNORS
from sparklog.groups.membership.generations import generation_log
from sparklog.groups.membership.heartbeat_rounds import HeartbeatRounds
from sparklog.groups.membership.membership import MemberSettings, Membership
from sparklog.groups.offsets.changes import CommitOffsets, TakePartitions
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.pending import Deciding
from sparklog.groups.offsets.rows import Rows, Stamp
from sparklog.log import Cluster, create_topic, describe_topic
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.storage import MemoryStore
from sparklog.storage.base import ObjectStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import Disk, Fault, FaultKind, FaultyStore, ManualClock, PowerLossStore, SimulatedCrash
from sparklog.testing.interrupted_store import InterruptedStore

INTERVAL_MS = 3_000
SESSION_MS = 45_000
NO_TRANSACTIONS = Deciding(decide=lambda _: {}, look=lambda _: {}, finish=lambda _: {})
"""For groups that no transaction ever touched."""
_RETRY_MS = 1_000.0
"""As the heartbeat's thread does."""


class Group:
    """A topic ``t`` in memory, and a clock that all members share."""

    def __init__(self, partitions: int = 4) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(clock=self.clock)
        self.is_away = False
        """Can nobody reach the store?"""
        self.disk: Disk | None = None
        """Of the one machine that all are on, if its power may fail."""
        self.calls_left = math.inf
        """Members' store calls until it does."""
        create_topic(self.cluster(self.memory).topic_log("t"), "t", num_partitions=partitions)

    def cluster(self, store: ObjectStore) -> Cluster:
        store = store if self.disk is None else PowerLossStore(self.disk, store)
        return Cluster(cluster_id="c", store=RetryingStore(store, clock=self.clock, retry_ms=0), clock=self.clock)

    def has_no_power(self) -> bool:
        """Asked before each call of a member."""
        self.calls_left -= 1
        return self.calls_left < 0

    @property
    def rows(self) -> Rows:
        """The offset table's."""
        return OffsetTable(self.cluster(self.memory), "g").fetch()

    @property
    def generation(self) -> int:
        """The newest one's number."""
        newest, _ = generation_log(self.cluster(self.memory), "g").open_newest()
        return newest.version if newest is not None else 0

    @property
    def topic_id(self) -> str:
        return describe_topic(self.cluster(self.memory).topic_log("t"), "t").topic_id

    def rounds(self, *members: Member, intervals: float = 4) -> None:
        """Let members do their rounds as often as they want for so many heartbeat intervals."""
        due = dict.fromkeys(members, self.clock.ticks_ms())
        end = self.clock.ticks_ms() + intervals * INTERVAL_MS
        while (now := min(due.values())) <= end:
            self.clock.advance(max(0.0, now - self.clock.ticks_ms()))
            for member in members:
                if due[member] <= now:
                    wait_ms = member.round()
                    due[member] = self.clock.ticks_ms() + wait_ms
            if min(due.values()) == math.inf:
                return

    def settle(self, *members: Member) -> None:
        """Let members do their rounds until the sessions of all others have ended, and some more."""
        self.rounds(*members, intervals=2 * SESSION_MS / INTERVAL_MS)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Nobody reaches the store."""
        self.is_away = True
        try:
            yield
        finally:
            self.is_away = False


class Member:
    """A consumer's part in the group, without threads."""

    def __init__(
        self,
        group: Group,
        name: str,
        *,
        instance_id: str | None = None,
        strategy: str = "range",
        is_eager: bool = False,
        max_poll_interval_ms: int = 10**9,
        faults: Sequence[Fault] = (),
    ) -> None:
        self.interrupted = InterruptedStore(group.memory)
        self.is_away = False
        """Can this one alone not reach the store?"""
        away = Fault(kind=FaultKind.THROTTLED, times=None, when=lambda _: self.is_away or group.is_away)
        outage = Fault(kind=FaultKind.CRASH_BEFORE, times=None, when=lambda _: group.has_no_power())
        self.store = FaultyStore(self.interrupted, away, outage, *faults)
        self.clock = group.clock
        cluster = group.cluster(self.store)
        settings = MemberSettings(
            group_id="g",
            instance_id=instance_id,
            client_id=name,
            host="h",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=INTERVAL_MS,
            max_poll_interval_ms=max_poll_interval_ms,
            metadata_max_age_ms=300_000,
            assignors={strategy: ASSIGNORS[strategy]},
            is_eager=is_eager,
        )
        self.membership = Membership(settings, group.clock)
        self.membership.subscribe(["t"], None)
        self.table = OffsetTable(cluster, "g")
        self.loop = HeartbeatRounds(cluster, self.membership, self._take)
        self.is_dead = False
        self.is_polling = True
        """Does the application poll after each round?"""
        self.has: dict[TopicPartition, int] = {}
        """What the application has, and the committed offset that it began with."""
        self.lost: set[TopicPartition] = set()
        self.given = 0
        """How often it was given something."""

    def round(self) -> float:
        """A round as the heartbeat's thread does it, then a poll; in how many milliseconds the next is due."""
        if self.is_dead:
            return math.inf
        try:
            wait_ms = self.loop.run_round()
        except SimulatedCrash:
            self.is_dead, self.has = True, {}
            return math.inf
        except SparklogError as error:
            if not error.retriable:
                raise
            wait_ms = _RETRY_MS
        if self.is_polling:
            self.app()
        return wait_ms

    def app(self) -> None:
        """What the application does in a poll."""
        self.membership.polled()
        gone = self.membership.take_lost()
        self.lost |= gone
        released = self.membership.to_release()
        self.membership.released(released)
        self.has = {p: offset for p, offset in self.has.items() if p not in gone | released}
        for partition, row in self.membership.hand_over().items():
            self.has[partition] = row.committed.offset if row.committed else 0
            self.given += 1

    def stamps(self) -> Mapping[TopicPartition, Stamp]:
        return dict(self.membership.stamps(self.has))

    def commit(self, offset: int, stamps: Mapping[TopicPartition, Stamp] | None = None) -> SparklogError | None:
        stamps = self.stamps() if stamps is None else stamps
        offsets = {partition: OffsetAndMetadata(offset) for partition in stamps}
        change = CommitOffsets(offsets=offsets, stamps=stamps, topic_ids={})
        return self.table.change([change], deadline=self.clock.deadline_in(30_000)).errors[0]

    def _take(
        self, topic_ids: Mapping[TopicPartition, str], stamp: Stamp, done: Callable[[Rows | Exception], None]
    ) -> None:
        change = TakePartitions(topic_ids=topic_ids, stamp=stamp)
        try:
            changed = self.table.change([change], deadline=self.clock.deadline_in(30_000))
        except SparklogError as error:
            done(error)
        else:
            done(changed.errors[0] or changed.rows)


def owned_once(*members: Member) -> list[int]:
    """The numbers of the partitions that members have; one that two have is there twice."""
    return sorted(partition.partition for member in members for partition in member.has)
