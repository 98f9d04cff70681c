"""Entries of a share group's log were deleted by others than sparklog, say by a rule that goes by age."""

from __future__ import annotations

from dataclasses import replace

from sparklog.groups.sharing.changes import ShareChange
from sparklog.groups.sharing.exchange import PartitionExchange
from sparklog.log import Cluster
from sparklog.model import TopicPartition
from sparklog.paths import share_log
from sparklog.storage import MemoryStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import ManualClock
from tests.groups.sharing.test_changes import wants

AT = TopicPartition("t", 0)


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(clock=self.clock)
        self.cluster = Cluster(cluster_id="c", store=RetryingStore(self.memory, clock=self.clock), clock=self.clock)

    def member(self) -> PartitionExchange:
        exchange = PartitionExchange(self.cluster, "g", AT, interval_ms=1_000)
        exchange.look()
        exchange.begin(facts, 0, deadline=self.clock.deadline_in(10_000))
        return exchange

    def acquire(self, exchange: PartitionExchange, first: int, last: int, member: str) -> None:
        change = replace(ShareChange(), acquisition=wants(10, member=member, read_from=first, until=last + 1))
        decision = exchange.submit(change, facts, read_of="t1", deadline=self.clock.deadline_in(10_000))
        assert decision.accepted is not None

    def lose(self) -> None:
        self.memory.delete([found.path for found in self.memory.list(share_log("g", *AT))])


def facts(again: bool) -> tuple[str, int]:
    return "t1", 0


def test_a_member_that_lives_through_it_keeps_the_groups_state() -> None:
    world = World()
    living = world.member()
    world.acquire(living, 0, 4, "living")
    world.lose()
    world.acquire(living, 5, 9, "living")
    new = world.member()
    assert new.state == living.state
    assert new.version == living.version == 3


def test_members_that_went_on_under_two_runs_of_numbers_meet() -> None:
    world = World()
    living = world.member()
    for number in range(5):
        world.acquire(living, number, number, "living")
    world.lose()
    new = world.member()  # it begins as one that has never been here
    world.acquire(new, 0, 0, "new")
    world.acquire(living, 5, 5, "living")
    assert (new.version, living.version) == (2, 7)
    new.look()
    assert new.version == 2
    world.clock.advance(world.cluster.tail_trust_ms + 1)
    for exchange in (living, new):
        exchange.look()
    assert new.version == living.version == 7
    assert new.state == living.state
    world.acquire(new, 6, 6, "new")
    living.look()
    assert living.state == new.state
