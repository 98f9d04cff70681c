"""The admin client's calls about consumer groups, beside consumers that are at work."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sparklog import Admin, Consumer, NewTopic, OffsetAndMetadata, ResetTo, TopicPartition
from sparklog.errors import (
    CorruptLogError,
    GroupIdNotFoundError,
    IllegalStateError,
    InvalidArgumentError,
    InvalidTopicError,
    InvalidTypeError,
    NonEmptyGroupError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import open_cluster
from sparklog.storage import MemoryStore
from tests.support import a_writer, records, within

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
MEMBER: dict[str, Any] = {"heartbeat_interval_ms": 50, "session_timeout_ms": 60_000, "auto_offset_reset": "earliest"}


@pytest.fixture
def cluster():
    opened = open_cluster(MemoryStore())
    Admin(opened).create_topics([NewTopic("t", num_partitions=2), "u"])
    writer = a_writer(opened.topic_log("t"))
    for value in range(5):
        writer.append(
            writer.upload([(0, records(str(value), timestamp_ms=1_000 * value))]), deadline=within(writer, 1_000)
        )
    return opened


@pytest.fixture
def admin(cluster):
    with Admin(cluster) as client:
        yield client


def committed(admin, group="g"):
    return {at: found.offset for at, found in admin.list_group_offsets(group).items()}


def until(condition, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)


# With consumers


def test_a_running_group_is_described_and_left_alone(cluster, admin):
    with Consumer("t", cluster=cluster, group_id="g", client_id="shop", **MEMBER) as consumer:
        while not consumer.poll(timeout_ms=100):
            pass
        consumer.commit()
        [seen] = admin.describe_groups(["g"])
        assert (seen.state, seen.assignor, admin.list_groups()) == ("Stable", "range", ["g"])
        [member] = seen.members
        assert (member.client_id, member.topics, member.assignment) == ("shop", ("t",), {P0, P1})
        assert {one.partition: one.lag for one in seen.partitions} == {P0: 0, P1: 0}
        with pytest.raises(UnknownMemberIdError):
            admin.alter_group_offsets("g", {P0: OffsetAndMetadata(1)})
        with pytest.raises(UnknownMemberIdError):
            admin.reset_group_offsets("g", ResetTo("earliest"), dry_run=True)
        with pytest.raises(NonEmptyGroupError):
            admin.delete_groups(["g"])
        assert committed(admin) == {P0: 5, P1: 0}
    [seen] = admin.describe_groups(["g"])
    assert (seen.state, seen.members) == ("Empty", ())


def test_a_consumer_goes_on_where_an_administrator_set_it(cluster, admin):
    admin.alter_group_offsets("g", {P0: OffsetAndMetadata(3, "set by hand"), P1: OffsetAndMetadata(0)})
    assert admin.list_group_offsets("g", [P0]) == {P0: OffsetAndMetadata(3, "set by hand")}
    with Consumer("t", cluster=cluster, group_id="g", **MEMBER) as consumer:
        until(lambda: consumer.poll(timeout_ms=50) and consumer.position(P0) == 5)
    assert committed(admin)[P0] == 5  # by close
    admin.delete_groups(["g"])
    assert (admin.list_groups(), committed(admin)) == ([], {})
    with Consumer("t", cluster=cluster, group_id="g", **MEMBER) as consumer:
        found: list[int] = []
        while len(found) < 5:
            found += [record.offset for record in consumer.poll(timeout_ms=50).get(P0, [])]
    assert found == [0, 1, 2, 3, 4]


def test_a_static_member_that_was_closed_for_good_is_put_out(cluster, admin):
    gone = Consumer("t", cluster=cluster, group_id="g", group_instance_id="i", **MEMBER)
    until(lambda: gone.poll(timeout_ms=50))
    gone.close()
    with pytest.raises(NonEmptyGroupError):
        admin.delete_groups(["g"])
    [member_id] = admin.remove_group_members("g", ["i"])
    assert member_id.startswith("i-")
    admin.delete_groups(["g"])
    with pytest.raises(UnknownMemberIdError, match="no member 'i'"):
        admin.remove_group_members("g", ["i"])


def test_a_member_that_was_put_out_and_runs_joins_again(cluster, admin):
    with Consumer("t", cluster=cluster, group_id="g", **MEMBER) as consumer:
        until(lambda: consumer.poll(timeout_ms=50))
        [before] = admin.describe_groups(["g"])[0].members
        admin.remove_group_members("g", [before.member_id])

        def has_joined_again():
            consumer.poll(timeout_ms=50)
            [seen] = admin.describe_groups(["g"])
            return seen.state == "Stable" and seen.members[0].member_id != before.member_id

        until(has_joined_again)


# Resets


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (ResetTo("earliest"), {P0: 0, P1: 0}),
        (ResetTo("latest"), {P0: 5, P1: 0}),
        (ResetTo("current"), {P0: 2, P1: 0}),
        (ResetTo("offset", 4), {P0: 4, P1: 0}),
        (ResetTo("shift", 2), {P0: 4, P1: 0}),
        (ResetTo("time", 1_001), {P0: 2, P1: 0}),
        ({P0: 1}, {P0: 1, P1: 0}),
    ],
)
def test_offsets_are_reset_after_a_dry_run(admin, to, expected):
    admin.alter_group_offsets("g", {P0: OffsetAndMetadata(2), P1: OffsetAndMetadata(0)})
    plan = admin.reset_group_offsets("g", to, dry_run=True)
    assert {one.partition: one.new_offset for one in plan}.items() <= expected.items()
    assert committed(admin) == {P0: 2, P1: 0}
    assert admin.reset_group_offsets("g", to) == plan
    assert committed(admin) == expected


def test_partitions_to_reset_are_chosen(admin):
    plan = admin.reset_group_offsets("g", ResetTo("latest"), [P1, P0])
    assert [(one.partition, one.current_offset, one.new_offset) for one in plan] == [(P0, None, 5), (P1, None, 0)]
    admin.reset_group_offsets("g", ResetTo("earliest"), [P0])
    assert committed(admin) == {P0: 0, P1: 0}
    assert admin.reset_group_offsets("g", ResetTo("earliest"), []) == []
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.reset_group_offsets("g", ResetTo("earliest"), [TopicPartition("t", 2)], dry_run=True)
    with pytest.raises(InvalidArgumentError, match="t-1: got None"):
        admin.reset_group_offsets("g", {P0: 1}, [P0, P1])


def test_a_group_that_is_not_there_is_reset_only_where_partitions_are_named(admin):
    with pytest.raises(GroupIdNotFoundError, match="unknown group: 'nosuch'"):
        admin.reset_group_offsets("nosuch", ResetTo("earliest"))
    assert len(admin.reset_group_offsets("nosuch", {P0: 3})) == 1
    assert admin.list_groups() == ["nosuch"]


# Several at once, and bad input


def test_an_error_tells_which_groups_were_done(admin):
    for group in ("a", "b", "c"):
        admin.alter_group_offsets(group, {P0: OffsetAndMetadata(1)})
    with pytest.raises(GroupIdNotFoundError, match=r"unknown group: 'nosuch' \(done: a, b\)"):
        admin.delete_groups(["a", "nosuch", "b"])
    assert admin.list_groups() == ["c"]
    assert [one.group_id for one in admin.describe_groups()] == ["c"]
    assert [one.exists for one in admin.describe_groups(["c", "nosuch"])] == [True, False]


def test_a_group_that_can_not_be_understood_hides_no_other(cluster, admin):
    for group, partition in (("bad", P0), ("good", P0), ("reads-u", TopicPartition("u", 0))):
        admin.alter_group_offsets(group, {partition: OffsetAndMetadata(1)})
    cluster.store.put("groups/bad/generations/00000000000000000001.json", b"{")
    cluster.store.put("topics/u/_delta_log/00000000000000000000.json", b"{")
    bad, good, reads_u = admin.describe_groups()
    assert [one.state for one in (bad, good, reads_u)] == ["Unknown", "Empty", "Unknown"]
    assert [one.exists for one in (bad, good, reads_u)] == [True, True, True]
    assert "groups/bad" in str(bad.error)
    assert good.error is None
    assert "topics/u" in str(reads_u.error)
    with pytest.raises(CorruptLogError, match="groups/bad"):
        admin.reset_group_offsets("bad", ResetTo("earliest"))


@pytest.mark.parametrize("group", ["", "x" * 201, 7, None])
def test_a_name_that_no_group_may_have_is_refused_by_every_call(admin, group):
    for call in (
        lambda: admin.describe_groups([group]),
        lambda: admin.list_group_offsets(group),
        lambda: admin.alter_group_offsets(group, {}),
        lambda: admin.reset_group_offsets(group, ResetTo("latest")),
        lambda: admin.delete_group_offsets(group, []),
        lambda: admin.delete_groups(["a", group]),
        lambda: admin.remove_group_members(group, []),
    ):
        with pytest.raises(InvalidArgumentError, match="invalid"):
            call()


def test_what_is_no_partition_or_offset_is_refused(admin):
    for offsets in ({P0: 5}, {P0: (1, 2, 3, 4)}, {"t": OffsetAndMetadata(1)}, {("t", "0"): OffsetAndMetadata(1)}, [P0]):
        with pytest.raises(InvalidTypeError, match="expected"):
            admin.alter_group_offsets("g", offsets)
    with pytest.raises(InvalidTopicError):
        admin.delete_group_offsets("g", [("!", 0)])
    with pytest.raises(InvalidTypeError):
        admin.list_group_offsets("g", [P0, "t"])
    for call in (admin.describe_groups, admin.delete_groups, lambda text: admin.remove_group_members("g", text)):
        with pytest.raises(InvalidArgumentError, match="expected a list"):
            call("text")
    assert admin.list_groups() == []


def test_a_bound_is_checked_and_a_closed_admin_is_closed(admin):
    with pytest.raises(InvalidArgumentError, match="timeout_ms=-1"):
        admin.delete_groups(["g"], timeout_ms=-1)
    admin.close()
    with pytest.raises(IllegalStateError, match="closed"):
        admin.list_groups()
