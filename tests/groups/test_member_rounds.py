"""Members on one store, round by round: joining, taking over, coming back, and what a round costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from sparklog.errors import CommitFailedError, FencedInstanceIdError, SparklogError
from sparklog.groups.assignors import ASSIGNORS
from sparklog.groups.changes import CommitOffsets, TakePartitions
from sparklog.groups.membership import MemberSettings, Membership
from sparklog.groups.offset_table import OffsetTable
from sparklog.groups.rounds import Rounds
from sparklog.groups.rows import Rows, Stamp
from sparklog.log import Cluster, create_partitions, create_topic, describe_topic
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.storage import MemoryStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import FaultyStore, ManualClock
from sparklog.testing.interrupted_store import InterruptedStore

INTERVAL_MS = 3_000
SESSION_MS = 45_000


class Group:
    """A topic ``t`` in memory, and a clock that all members share."""

    def __init__(self, partitions: int = 4) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(clock=self.clock)
        create_topic(self.cluster(FaultyStore(self.memory)).topic_log("t"), "t", num_partitions=partitions)

    def cluster(self, store: FaultyStore) -> Cluster:
        return Cluster(cluster_id="c", store=RetryingStore(store, clock=self.clock, retry_ms=0), clock=self.clock)

    def rounds(self, *members: Member, intervals: int = 4) -> None:
        """Let members do their rounds as often as they want for so many heartbeat intervals."""
        due = dict.fromkeys(members, self.clock.ticks_ms())
        end = self.clock.ticks_ms() + intervals * INTERVAL_MS
        while (now := min(due.values())) <= end:
            self.clock.advance(max(0.0, now - self.clock.ticks_ms()))
            for member in members:
                if due[member] <= now:
                    due[member] = now + member.round()


class Member:
    """A consumer's part in the group, without threads."""

    def __init__(self, group: Group, name: str, *, instance_id: str | None = None, strategy: str = "range") -> None:
        self.interrupted = InterruptedStore(group.memory)
        self.store = FaultyStore(self.interrupted)
        self.clock = group.clock
        cluster = group.cluster(self.store)
        settings = MemberSettings(
            group_id="g",
            instance_id=instance_id,
            client_id=name,
            host="h",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=INTERVAL_MS,
            max_poll_interval_ms=10**9,
            metadata_max_age_ms=300_000,
            assignors={strategy: ASSIGNORS[strategy]},
        )
        self.membership = Membership(settings, group.clock)
        self.membership.subscribe(["t"], None)
        self.table = OffsetTable(cluster, "g")
        self.loop = Rounds(cluster, self.membership, self._take)
        self.has: dict[TopicPartition, int] = {}
        """What the application has, and the committed offset that it began with."""
        self.lost: set[TopicPartition] = set()

    def round(self) -> float:
        wait_ms = self.loop.round()
        self.app()
        return wait_ms

    def app(self) -> None:
        gone = self.membership.take_lost()
        self.lost |= gone
        released = self.membership.to_release()
        self.membership.released(released)
        self.has = {p: offset for p, offset in self.has.items() if p not in gone | released}
        for partition, row in self.membership.hand_over().items():
            self.has[partition] = row.committed.offset if row.committed else 0

    def stamps(self) -> Mapping[TopicPartition, Stamp]:
        return dict(self.membership.stamps(self.has))

    def commit(self, offset: int, stamps: Mapping[TopicPartition, Stamp] | None = None) -> SparklogError | None:
        stamps = self.stamps() if stamps is None else stamps
        offsets = {partition: OffsetAndMetadata(offset) for partition in stamps}
        change = CommitOffsets(offsets=offsets, stamps=stamps, topic_ids={})
        return self.table.change([change], deadline_ticks_ms=self.clock.ticks_ms() + 30_000).errors[0]

    def _take(
        self, topic_ids: Mapping[TopicPartition, str], stamp: Stamp, done: Callable[[Rows | Exception], None]
    ) -> None:
        change = TakePartitions(topic_ids=topic_ids, stamp=stamp)
        changed = self.table.change([change], deadline_ticks_ms=self.clock.ticks_ms() + 30_000)
        done(changed.errors[0] or changed.rows)


def topic_id(group: Group) -> str:
    return describe_topic(group.cluster(FaultyStore(group.memory)).topic_log("t"), "t").topic_id


def owned_once(*members: Member) -> list[int]:
    return sorted(partition.partition for member in members for partition in member.has)


def test_a_lone_member_has_everything_after_its_first_round():
    group = Group()
    member = Member(group, "a")
    member.round()
    assert owned_once(member) == [0, 1, 2, 3]


def test_members_that_come_and_go_share_every_partition_once():
    group = Group()
    members = [Member(group, name) for name in "abc"]
    group.rounds(*members[:1])
    group.rounds(*members)
    assert owned_once(*members) == [0, 1, 2, 3]
    assert [bool(member.has) for member in members] == [True, True, True]
    members[1].has.clear()
    members[1].membership.unsubscribe()
    members[1].loop.leave()
    group.rounds(members[0], members[2])
    assert owned_once(members[0], members[2]) == [0, 1, 2, 3]


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(16))
def test_whoever_joins_within_anothers_first_round_is_not_left_out(at: int, is_late: bool):
    """✗ One lists the members; another joins, creates a generation and takes everything; the first finds that
    generation, takes its only member for gone, and gives its partitions away."""
    group = Group()
    slow, quick = Member(group, "a"), Member(group, "b")
    slow.interrupted.interrupt(quick.round, at=at, after=is_late)
    slow.round()
    assert slow.interrupted.call_count > at, "the round has fewer calls than this test takes it to have"
    group.rounds(slow, quick)
    assert owned_once(slow, quick) == [0, 1, 2, 3]
    assert (slow.lost, quick.lost) == (set(), set())


def test_a_newcomer_goes_on_at_what_was_committed():
    group = Group()
    first, second = Member(group, "a"), Member(group, "b")
    first.round()
    assert first.commit(17) is None
    group.rounds(first, second)
    assert set(second.has.values()) == {17}


def test_others_take_over_from_a_dead_member_within_two_sessions():
    group = Group()
    first, second = Member(group, "a"), Member(group, "b")
    group.rounds(first, second)
    assert first.commit(5) is None
    began = group.clock.ticks_ms()
    while len(second.has) < 4:
        group.rounds(second, intervals=1)
    assert SESSION_MS - INTERVAL_MS <= group.clock.ticks_ms() - began <= 2 * SESSION_MS


def test_a_sleeper_loses_everything_and_its_stale_commit_is_refused_though_it_is_in_the_group_again():
    """G1, G2. ✗ A sleeper skips the generation in which another owned its partition, gets it back, and sends its stale
    buffer."""
    group = Group()
    first, second = Member(group, "a"), Member(group, "b")
    group.rounds(first, second)
    stale, old_id = first.stamps(), first.membership.member_id
    group.rounds(second, intervals=40)
    assert len(second.has) == 4
    assert second.commit(9) is None
    group.rounds(first, second)
    assert first.lost == stale.keys()
    assert first.membership.member_id not in ("", old_id)
    assert owned_once(first, second) == [0, 1, 2, 3]
    assert isinstance(first.commit(3, stale), CommitFailedError)
    assert set(first.has.values()) == {9}


def test_a_static_member_comes_back_at_once_and_nothing_moves():
    group = Group()
    before, other = Member(group, "a", instance_id="i"), Member(group, "b")
    group.rounds(before, other)
    had, others, stamps = set(before.has), dict(other.stamps()), before.stamps()
    after = Member(group, "a", instance_id="i")
    group.rounds(after, other, intervals=1)
    assert set(after.has) == had
    assert other.stamps() == others
    assert isinstance(before.commit(1, stamps), CommitFailedError)
    before.round()
    with pytest.raises(FencedInstanceIdError):
        before.membership.raise_error()


def test_partitions_that_are_added_are_handed_out():
    group = Group()
    members = [Member(group, name) for name in "ab"]
    group.rounds(*members)
    create_partitions(group.cluster(FaultyStore(group.memory)).topic_log("t"), "t", 6)
    members[1].membership.tell_topics({"t": (topic_id(group), 6)})  # as its own reading would have found it
    group.rounds(*members)
    assert owned_once(*members) == [0, 1, 2, 3, 4, 5]


def test_a_member_that_slept_for_less_than_its_session_loses_nothing():
    group = Group()
    first, second = Member(group, "a"), Member(group, "b")
    group.rounds(first, second)
    kept = second.stamps()
    group.rounds(second, intervals=3)  # ``first`` sleeps, shorter than its session
    group.rounds(first, second)
    assert {p: s for p, s in second.stamps().items() if p in kept} == kept
    assert (first.lost, second.lost) == (set(), set())


@pytest.mark.parametrize("size", [1, 2, 10])
def test_a_steady_member_costs_three_requests_per_heartbeat_whatever_the_groups_size(size):
    """G4."""
    group = Group(partitions=10)
    members = [Member(group, f"m{number}") for number in range(size)]
    group.rounds(*members, intervals=6)
    before = [len(member.store.calls) for member in members]
    for _ in range(3):
        group.clock.advance(INTERVAL_MS)
        for member in members:
            assert member.round() == INTERVAL_MS
    for member, seen in zip(members, before, strict=True):
        assert Counter(call.op for call in member.store.calls[seen:]) == {"put": 3, "list": 3, "get": 3}


@pytest.mark.slow
def test_fifty_members_that_come_at_once_settle_within_three_heartbeat_intervals():
    group = Group(partitions=100)
    members = [Member(group, f"m{number:02}") for number in range(50)]
    group.rounds(*members, intervals=3)
    assert owned_once(*members) == list(range(100))
    assert {len(member.has) for member in members} == {2}
