"""Every partition has a member, and every member a partition."""

from __future__ import annotations

import pytest

from sparklog.groups.sharing.spreading import spread
from sparklog.model import TopicPartition


@pytest.mark.parametrize(("members", "partitions"), [(1, 1), (8, 1), (8, 3), (3, 8), (5, 5), (1, 9)])
def test_every_partition_has_a_member_and_every_member_a_partition(members, partitions):
    found = spread({f"m{number}": frozenset({"t"}) for number in range(members)}, {"t": partitions})
    assert set().union(*found.values()) == {TopicPartition("t", number) for number in range(partitions)}
    assert all(found.values())
    sizes = [len(each) for each in found.values()]
    assert max(sizes) - min(sizes) <= 1


def test_members_have_partitions_of_what_they_subscribe_to_alone():
    found = spread({"a": frozenset({"t", "u"}), "b": frozenset({"u"}), "c": frozenset({"v"})}, {"t": 2, "u": 2})
    assert {at.topic for at in found["b"]} == {"u"}
    assert found["c"] == frozenset()
    assert {at for at in found["a"] if at.topic == "t"} == {TopicPartition("t", 0), TopicPartition("t", 1)}
