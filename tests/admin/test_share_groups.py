"""Share groups by the admin client and the command line."""

import json
from typing import Any

import pytest

from sparklog import Admin, NewTopic, Producer, ShareConsumer
from sparklog.compaction import maintain
from sparklog.errors import GroupIdNotFoundError, InvalidArgumentError, NonEmptyGroupError, UnknownTopicOrPartitionError
from sparklog.groups.admin.description import GroupState
from sparklog.log.cluster import open_cluster
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.cli.support import run
from tests.support import T0_MS

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def clock():
    return ManualClock(start_ms=T0_MS)


@pytest.fixture
def cluster(clock):
    found = open_cluster(MemoryStore(clock=clock), clock=clock)
    fill(found)
    return found


def fill(cluster):
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("t", 2)])
    with Producer(cluster) as producer:
        for number in range(4):
            producer.send("t", b"%d" % number, partition=0)


def member(cluster, **settings):
    settings = {"group_id": "g", "share_auto_offset_reset": "earliest", "client_id": "me", **settings}
    return ShareConsumer("t", cluster=cluster, **settings)


def test_a_group_is_described_while_it_works_and_afterwards(cluster):
    admin = Admin(cluster)
    assert admin.list_share_groups() == []
    [nobody] = admin.describe_share_groups(["g"])
    assert (nobody.state, nobody.members, nobody.partitions) == (GroupState.DEAD, (), ())
    one = member(cluster)
    one.poll(max_records=3)
    assert admin.list_share_groups() == ["g"]
    [group] = admin.describe_share_groups()
    assert (group.group_id, group.state) == ("g", GroupState.STABLE)
    [only] = group.members
    assert (only.client_id, only.topics) == ("me", ("t",))
    at = {row.partition: row for row in group.partitions}
    row = at[P0]
    assert (row.start_offset, row.end_offset, row.log_end_offset) == (0, 3, 4)
    assert (row.acquired, row.available, row.lag, at[P1].lag) == (3, 0, 4, 0)
    one.close()
    [group] = admin.describe_share_groups(["g"])
    assert (group.state, group.members) == (GroupState.EMPTY, ())
    assert [row.available for row in group.partitions] == [3, 0]
    admin.delete_topics(["t"])
    [group] = admin.describe_share_groups(["g"])
    assert [(row.log_end_offset, row.lag) for row in group.partitions] == [(None, None)] * 2


def test_a_place_is_set_and_forgotten_while_nobody_is_there(cluster):
    admin, one = Admin(cluster), member(cluster)
    one.poll()
    for call in (
        lambda: admin.alter_share_group_offsets("g", {P0: 0}),
        lambda: admin.delete_share_group_offsets("g", ["t"]),
        lambda: admin.delete_share_groups(["g"]),
    ):
        with pytest.raises(NonEmptyGroupError, match="has members: me-"):
            call()
    one.commit_sync()
    one.close()
    admin.alter_share_group_offsets("g", {P0: 2})
    assert admin.list_share_group_offsets("g") == {P0: 2, P1: 0}
    with pytest.raises(UnknownTopicOrPartitionError, match="t-7"):
        admin.alter_share_group_offsets("g", {TopicPartition("t", 7): 2})
    wrongs: list[Any] = [-1, 1.5, True, "2"]
    for wrong in wrongs:
        with pytest.raises(InvalidArgumentError, match=r"offset of t-0: got .*, expected 0 or more"):
            admin.alter_share_group_offsets("g", {P0: wrong})
    again = member(cluster)
    assert [record.value for record in again.poll()[P0]] == [b"2", b"3"]
    again.close()
    admin.delete_share_group_offsets("g", ["t"])
    assert admin.list_share_groups() == []
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_share_group_offsets("g", ["t"])
    anew = member(cluster)
    assert len(anew.poll()[P0]) == 4
    anew.close()
    admin.delete_share_groups(["g"])
    with pytest.raises(GroupIdNotFoundError, match="unknown share group: 'g'"):
        admin.delete_share_groups(["g"])


def test_a_member_of_a_group_that_was_deleted_begins_anew(cluster, clock):
    one = member(cluster)
    assert len(one.poll()[P0]) == 4
    one._runtime._member.leave()  # seen dead by the store's time
    Admin(cluster).delete_share_groups(["g"])
    clock.advance(1_000)
    seen = [len(one.poll().get(P0, ())) for _ in range(3)]
    assert sum(seen) == 4


def test_maintenance_cleans_the_logs(cluster, clock):
    one = member(cluster)
    for _ in range(4):
        one.poll(max_records=1)
    folder = "share-groups/g/partitions/t/0/"
    before = list(cluster.store.list(folder))
    clock.advance(3_600_000)
    one.poll()
    maintain(cluster)
    after = [found for found in cluster.store.list(folder) if "_cleaned" not in found.path]
    assert len(after) == 2 < len(before)


def test_the_command_line(tmp_path):
    root = str(tmp_path)
    cluster = open_cluster(root)
    fill(cluster)
    one = member(cluster)
    one.poll(max_records=3)
    assert run("-c", root, "share-groups", "list").output == "g\n"
    shown = run("-c", root, "share-groups", "describe", "g").output
    assert "g: Stable, 1 member\n" in shown
    assert shown.splitlines()[2].split() == ["t", "0", "0", "4", "0", "3", "4"]
    assert "me" in run("-c", root, "share-groups", "describe", "g", "--members").output
    [group] = json.loads(run("-c", root, "share-groups", "describe", "--json").output)
    assert group["partitions"][0] == {
        "topic": "t",
        "partition": 0,
        "start_offset": 0,
        "end_offset": 3,
        "log_end_offset": 4,
        "available": 0,
        "acquired": 3,
        "lag": 4,
    }
    one.commit_sync()
    one.close()
    dry = run("-c", root, "share-groups", "reset-offsets", "g", "--to-latest")
    assert "new start" in dry.output
    assert Admin(cluster).list_share_group_offsets("g")[P0] == 3
    run("-c", root, "share-groups", "reset-offsets", "g", "--to-latest", "--topic", "t", "--execute")
    assert Admin(cluster).list_share_group_offsets("g")[P0] == 4
    run("-c", root, "share-groups", "reset-offsets", "g", "--to-datetime", "0", "--execute")
    assert Admin(cluster).list_share_group_offsets("g")[P0] == 0
    wrong = run("-c", root, "share-groups", "reset-offsets", "g", "--to-datetime", "noon")
    assert "--to-datetime: got 'noon', expected a time" in wrong.stderr
    assert wrong.exit_code == 2
    assert run("-c", root, "share-groups", "reset-offsets", "g").exit_code != 0
    assert run("-c", root, "share-groups", "reset-offsets", "h", "--to-latest").exit_code != 0
    run("-c", root, "share-groups", "delete", "g", "--topic", "t", "--yes")
    assert run("-c", root, "share-groups", "list").output == ""
    assert "unknown share group: 'g'" in run("-c", root, "share-groups", "delete", "g", "--yes").stderr
    assert run("-c", root, "share-groups", "describe", "g").exit_code != 0
