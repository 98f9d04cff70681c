"""Rule L9 for members: the power fails in any call of a group. Those who come afterwards share every partition, and go
on where the group was told that it had committed."""

from __future__ import annotations

import math
from contextlib import suppress
from random import Random

import pytest

from sparklog.errors import SparklogError
from sparklog.model import TopicPartition
from sparklog.paths import generation_path
from sparklog.testing import Disk, Fault, FaultKind, SimulatedCrash
from tests.depth import each_nth
from tests.groups.membership.support import Group, Member, owned_once
from tests.support import LazyDisk

SEEDS = each_nth(range(48), 2)
CALLS = 160  # of a play, or about so many


def check_after_power_loss(group: Group, acknowledged: dict[TopicPartition, int]) -> None:
    """Members that nobody knows share the group, begin where it stood, and can commit."""
    members = [Member(group, name) for name in "xy"]
    group.settle(*members)
    assert owned_once(*members) == [0, 1, 2, 3]
    begun = {partition: offset for member in members for partition, offset in member.has.items()}
    assert {p: begun[p] for p, offset in acknowledged.items() if begun[p] < offset} == {}
    assert [member.commit(1_000) for member in members] == [None, None]


def outage(seed: int, disk: type[Disk] = Disk) -> tuple[Group, dict[TopicPartition, int]]:
    """A group's life until a power loss, and the offsets that it was told to be committed."""
    random = Random(seed)
    group = Group()
    group.disk = disk(group.memory)
    group.calls_left = random.randrange(CALLS)
    members = [Member(group, name) for name in "abc"[: random.choice([1, 2, 2, 3])]]
    acknowledged: dict[TopicPartition, int] = {}
    with suppress(SimulatedCrash):
        for number in range(1, 9):
            group.rounds(*members[: random.randint(1, len(members))], intervals=random.choice([0, 1, 3]))
            one = random.choice(members)
            stamps = one.stamps()
            if stamps and not one.is_dead and one.commit(number, stamps) is None:
                acknowledged |= dict.fromkeys(stamps, number)
    assert group.calls_left < 0 or not any(member.is_dead for member in members)
    group.calls_left = math.inf
    group.disk.lose_power(random)
    return group, acknowledged


@pytest.mark.parametrize("seed", SEEDS)
def test_those_who_come_after_a_power_loss_go_on_where_the_group_stood(seed: int) -> None:
    check_after_power_loss(*outage(seed))


def test_a_group_whose_commits_nobody_fsyncs_is_found_out() -> None:
    found = 0
    for seed in SEEDS:
        group, acknowledged = outage(seed, LazyDisk)
        try:
            check_after_power_loss(group, acknowledged)
        except (AssertionError, SparklogError):
            found += 1
    assert found > len(SEEDS) / 5


@pytest.mark.parametrize("number", [1, 2])
def test_nobody_acts_upon_a_generation_that_may_be_lost(number: int) -> None:
    """Its leader died before the fsync. ✗ Another takes partitions by it; it is lost, those who come after give its
    number to another, and nobody can tell the two apart."""
    group = Group()
    group.disk = Disk(group.memory)
    dies = Fault(kind=FaultKind.CRASH_BEFORE, ops=["sync"], path=generation_path("g", number))
    leader, follower = Member(group, "a", faults=[dies]), Member(group, "b")
    group.rounds(leader, intervals=0)
    group.rounds(follower, leader, intervals=1)
    assert leader.is_dead
    assert group.generation >= number
    group.settle(follower)
    assert owned_once(follower) == [0, 1, 2, 3]
    assert group.disk.lose([generation_path("g", number)]) == []
    check_after_power_loss(group, {})
