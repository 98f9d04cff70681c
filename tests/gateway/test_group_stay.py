"""Two gateways that both believe that they coordinate a group: the stamps of the later one count."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from sparklog import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from sparklog.errors import CommitFailedError, IllegalGenerationError
from sparklog.gateway.group_look import look_at_group, remove_dead
from sparklog.gateway.group_offsets import GroupOffsets, KnownTopics
from sparklog.gateway.group_stay import GroupStay, Standing
from sparklog.groups.membership.membership import Membership
from sparklog.log.cluster import open_cluster

P0, P1 = TopicPartition("jobs", 0), TopicPartition("jobs", 1)
SESSION_MS = 60_000


@pytest.fixture
def cluster():
    root = f"memory://stay-{uuid.uuid4().hex}"
    Admin(root).create_topics([NewTopic("jobs", 2)])
    return open_cluster(root)


class Gateway:
    """What a gateway has of one group. With so long an interval it notices nothing by itself."""

    def __init__(self, cluster, address, heartbeat_interval_ms=30_000):
        self.cluster = cluster
        self.offsets = GroupOffsets(cluster, "g", timeout_ms=20_000)
        self.stay = GroupStay(
            cluster,
            "g",
            self.offsets.thread,
            address=address,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=heartbeat_interval_ms,
            commit_timeout_ms=10_000,
            notify=lambda: None,
        )
        self.stay.begin()

    def until(self, *standings):
        while (found := self.stay.standing()) not in standings:
            pass
        return found

    async def commit(self, offset, partition=P0):
        topic_id = KnownTopics(self.cluster).facts(["jobs"])["jobs"][0]
        await self.stay.commit({partition: OffsetAndMetadata(offset)}, {partition: topic_id}, timeout_ms=20_000)

    def close(self):
        self.stay.leave(self.cluster.clock.deadline_in(20_000))
        self.offsets.thread.stop()
        self.offsets.thread.join(60)


def committed(cluster):
    return {p.partition: found.offset for p, found in Admin(cluster).list_group_offsets("g").items()}


def put_out(cluster):
    """Take the lone member for dead, once it has said all that it has to say."""
    while (described := Admin(cluster).describe_groups(["g"])[0]).state.value != "Stable":
        pass
    (member,) = described.members
    remove_dead(cluster, "g", (member.member_id, "nobody"))


def test_who_coordinated_before_commits_no_more(cluster):
    async def play():
        first = Gateway(cluster, "first:1")
        first.until(Standing.COORDINATES)
        await first.commit(1)
        await first.commit(1, P1)
        put_out(cluster)
        second = Gateway(cluster, "second:2")
        second.until(Standing.COORDINATES)
        await second.commit(2)
        with pytest.raises(CommitFailedError):
            await first.commit(3)
        assert first.stay.standing() is Standing.COORDINATES  # it has noticed nothing
        first.stay.forget([P0])
        with pytest.raises(IllegalGenerationError):
            await first.commit(3)
        await first.commit(4, P1)  # nobody has taken it since
        await second.commit(5, P1)
        with pytest.raises(CommitFailedError):
            await first.commit(6, P1)
        assert committed(cluster) == {0: 2, 1: 5}
        second.close()
        first.close()

    asyncio.run(play())


def test_a_gateway_that_was_put_out_notices_it_in_its_next_round(cluster):
    gateway = Gateway(cluster, "one:1", heartbeat_interval_ms=50)
    gateway.until(Standing.COORDINATES)
    put_out(cluster)
    gateway.until(Standing.OVER)
    with pytest.raises(IllegalGenerationError):
        asyncio.run(gateway.commit(1))
    gateway.close()


def test_of_two_gateways_in_a_group_one_coordinates(cluster):
    gateways = [Gateway(cluster, f"host:{number}", heartbeat_interval_ms=50) for number in range(2)]
    while True:
        found = [gateway.stay.standing() for gateway in gateways]
        if Standing.BESIDE_ANOTHER in found:
            break
    loser = gateways.pop(found.index(Standing.BESIDE_ANOTHER))
    loser.close()
    gateways[0].until(Standing.COORDINATES)
    asyncio.run(gateways[0].commit(1))
    (member,) = Admin(cluster).describe_groups(["g"])[0].members
    assert look_at_group(cluster, "g").coordinator == member.host
    gateways[0].close()
    assert look_at_group(cluster, "g").coordinator == ""


def two_gateways(cluster, monkeypatch):
    """Two that came at the same time: the first has coordinated, and knows by now that the second does."""
    ids = iter(["z", "a"])
    monkeypatch.setattr(Membership, "new_member_id", lambda _: next(ids))
    first = Gateway(cluster, "first:1")
    first.until(Standing.COORDINATES)
    second = Gateway(cluster, "second:2")  # which hasn't looked for others
    second.until(Standing.COORDINATES)
    first.stay._wake()
    first.until(Standing.BESIDE_ANOTHER)
    return first, second


async def check_second_commits(cluster, first, second):
    await second.commit(2)
    await second.commit(2, P1)
    assert committed(cluster) == {0: 2, 1: 2}
    first.close()
    second.close()


def test_who_no_longer_coordinates_takes_no_partitions_by_the_same_generation(cluster, monkeypatch):
    async def play():
        first, second = two_gateways(cluster, monkeypatch)
        assert first.stay.generation == second.stay.generation
        with pytest.raises(IllegalGenerationError):
            await first.commit(1)
        await check_second_commits(cluster, first, second)

    asyncio.run(play())


def test_rounds_of_who_no_longer_coordinates_take_no_partitions(cluster, monkeypatch):
    async def play():
        first, second = two_gateways(cluster, monkeypatch)
        generation = first.stay.generation
        first.stay.subscribe(frozenset({"jobs"}))  # the next plan gives its partitions to their only subscriber
        while first.stay.generation == generation or not first.stay._membership.reconciliation.claims():
            first.stay._wake()
            second.stay._wake()
        first.stay._wake()
        while second.stay.generation != first.stay.generation:
            second.stay._wake()
        await check_second_commits(cluster, first, second)

    asyncio.run(play())


def test_a_round_that_takes_partitions_in_a_newer_generation_hinders_no_commit(cluster):
    async def play():
        gateway = Gateway(cluster, "one:1", heartbeat_interval_ms=50)
        gateway.until(Standing.COORDINATES)
        generation = gateway.stay.generation
        for offset in range(20):
            gateway.stay.subscribe(frozenset({"jobs"} if offset % 2 else {"jobs", "none"}))
            await gateway.commit(offset)
        while gateway.stay.generation == generation:
            await gateway.commit(20)
        await gateway.commit(21)
        assert committed(cluster) == {0: 21}
        gateway.close()

    asyncio.run(play())
