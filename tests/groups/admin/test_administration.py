"""What an administrator sees of groups and does to them, beside members that were written by hand."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

import pytest

from sparklog.delta import listing
from sparklog.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from sparklog.groups.admin import administration
from sparklog.groups.admin.administration import (
    alter_offsets,
    committed_offsets,
    delete_group,
    delete_offsets,
    describe_groups,
    remove_members,
)
from sparklog.groups.admin.description import GroupDescription, GroupState
from sparklog.groups.admin.emptiness import empty_generation
from sparklog.groups.admin.inspection import group_listings, group_names, inspect_group
from sparklog.groups.assignors import ASSIGNORS
from sparklog.groups.membership.generations import GenerationPlan, encode_generation, generation_log
from sparklog.groups.membership.member_state import MemberState, encode_member
from sparklog.groups.membership.proposals import empty_plan, plan_generation
from sparklog.groups.offsets.changes import Change, CommitOffsets, CommitUnowned, TakePartitions
from sparklog.groups.offsets.offset_state import has_committed, load_whole, look_once, offset_log
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.rows import Stamp
from sparklog.log import Cluster, create_partitions, create_topic, delete_topic, describe_topic, open_cluster
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.paths import group_members, group_probes, member_heartbeat, member_state
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, ManualClock
from sparklog.testing.interrupted_store import InterruptedStore
from tests.groups.membership.support import NO_TRANSACTIONS
from tests.support import T0_MS, a_writer, records, resealed, within

SESSION_MS = 10_000
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_MS = 1_000


@dataclass
class Stage:
    """A cluster on a clock that stands still, with a topic ``t`` of two partitions, and what members leave there."""

    cluster: Cluster
    clock: ManualClock
    group: str = "g"

    def join(self, member_id: str, *, claims: Collection[TopicPartition] = (), **said: object) -> MemberState:
        """A member describes itself, and so shows that it lives."""
        state = MemberState(
            member_id=member_id,
            instance_id=None,
            client_id=f"client of {member_id}",
            host="host",
            topics=("t",),
            assignors=("range",),
            session_timeout_ms=SESSION_MS,
            generation=0,
            claims=frozenset(claims),
        )
        state = replace(state, **said)  # type: ignore[arg-type]
        self.cluster.store.put(member_state(self.group, member_id), encode_member(state))
        return state

    def decide(self, *states: MemberState) -> GenerationPlan:
        """The next generation; an empty one of no members."""
        log = generation_log(self.cluster, self.group)
        newest, position = log.open_newest()
        plan = empty_plan(now_ms=T0_MS)
        if states:
            topic = describe_topic(self.cluster.topic_log("t"), "t")
            seen = {"t": (topic.topic_id, topic.partition_count)}
            plan = plan_generation(newest, {s.member_id: s for s in states}, seen, ASSIGNORS, now_ms=T0_MS)
        log.create_next(
            position, partial(encode_generation, plan), tokens=set(), deadline=log.clock.deadline_in(None), sync=True
        )
        return plan

    def settle(self, member_id: str, number: int, plan: GenerationPlan, **said: object) -> None:
        """A member takes what the generation gives it, and says so."""
        given = plan.assignment[member_id]
        self.change(TakePartitions(topic_ids=dict.fromkeys(given, self.topic_id()), stamp=Stamp(number, member_id)))
        self.join(member_id, claims=given, generation=number, **said)

    def a_stable_group(self) -> None:
        """Members a and b have a partition each, and a has committed offset 3."""
        plan = self.decide(self.join("a"), self.join("b"))
        for member_id in ("a", "b"):
            self.settle(member_id, 1, plan)
        self.commit(Stamp(1, "a"), {P0: 3})

    def commit(self, stamp: Stamp, offsets: Mapping[TopicPartition, int]) -> None:
        wanted = {at: OffsetAndMetadata(offset) for at, offset in offsets.items()}
        self.change(CommitOffsets(offsets=wanted, stamps=dict.fromkeys(offsets, stamp), topic_ids={}))

    def commit_unowned(self, offsets: Mapping[TopicPartition, int], topic_id: str | None = None) -> None:
        """As a consumer does that assigns partitions itself."""
        wanted = {at: OffsetAndMetadata(offset) for at, offset in offsets.items()}
        ids = {at: self.topic_id(at.topic) if topic_id is None else topic_id for at in offsets}
        self.change(CommitUnowned(offsets=wanted, topic_ids=ids, generation=0))

    def change(self, change: Change) -> None:
        deadline = self.clock.deadline_in(TIMEOUT_MS)
        [error] = OffsetTable(self.cluster, self.group).change([change], deadline=deadline).errors
        if error is not None:
            raise error

    def topic_id(self, topic: str = "t") -> str:
        return describe_topic(self.cluster.topic_log(topic), topic).topic_id

    def seen(self) -> GroupDescription:
        return describe_groups(self.cluster, [self.group])[0]

    def names_in(self, folder: str) -> list[str]:
        return list(self.cluster.store.list_names(folder))

    def alter(self, offsets: Mapping[TopicPartition, int]) -> None:
        wanted = {at: OffsetAndMetadata(offset) for at, offset in offsets.items()}
        alter_offsets(self.cluster, self.group, wanted, NO_TRANSACTIONS, timeout_ms=TIMEOUT_MS)

    def forget(self, *partitions: TopicPartition) -> None:
        delete_offsets(self.cluster, self.group, partitions, NO_TRANSACTIONS, timeout_ms=TIMEOUT_MS)

    def delete(self) -> None:
        delete_group(self.cluster, self.group, NO_TRANSACTIONS, timeout_ms=TIMEOUT_MS)

    def offsets(self) -> dict[TopicPartition, int]:
        return {
            at: committed.offset
            for at, committed in committed_offsets(self.cluster, self.group, NO_TRANSACTIONS).items()
        }


@pytest.fixture
def stage() -> Stage:
    clock = ManualClock(start_ms=T0_MS)
    cluster = open_cluster(MemoryStore(clock=clock), clock=clock)
    create_topic(cluster.topic_log("t"), "t", num_partitions=2)
    writer = a_writer(cluster.topic_log("t"))
    writer.append(writer.upload([(0, records(*"abcde"))]), deadline=within(writer, TIMEOUT_MS))
    return Stage(cluster, clock)


# States


def test_a_group_that_is_not_there_is_dead_and_looking_leaves_nothing(stage):
    seen = stage.seen()
    assert (seen.state, seen.exists, seen.members, seen.partitions, seen.generation_id) == ("Dead", False, (), (), 0)
    assert (stage.offsets(), group_names(stage.cluster), stage.names_in("groups/")) == ({}, [], [])


def test_a_settled_group_is_stable_and_shows_who_has_read_how_far(stage):
    stage.a_stable_group()
    seen = stage.seen()
    assert (seen.state, seen.generation_id, seen.assignor, seen.protocol_type) == ("Stable", 1, "range", "consumer")
    assert not seen.is_simple_consumer_group
    a, b = seen.members
    assert (a.member_id, a.client_id, a.host, a.topics) == ("a", "client of a", "host", ("t",))
    assert a.assignment == a.target_assignment == {P0}
    assert b.assignment == b.target_assignment == {P1}
    found = [(one.partition, one.committed, one.log_end_offset, one.lag, one.member_id) for one in seen.partitions]
    assert found == [(P0, OffsetAndMetadata(3), 5, 2, "a"), (P1, None, 0, None, "b")]


def test_a_newcomer_is_a_rebalance_to_come(stage):
    stage.join("a")
    assert stage.seen().state is GroupState.PREPARING_REBALANCE
    stage.a_stable_group()
    stage.join("c")
    seen = stage.seen()
    assert (seen.state, [member.member_id for member in seen.members]) == ("PreparingRebalance", ["a", "b", "c"])
    assert seen.members[2].target_assignment == frozenset()


@pytest.mark.parametrize("said", [{"topics": ("t", "u")}, {"assignors": ("sticky",)}])
def test_another_subscription_is_a_rebalance_to_come(stage, said):
    stage.a_stable_group()
    stage.join("a", generation=1, claims=[P0], **said)
    assert stage.seen().state is GroupState.PREPARING_REBALANCE


def test_a_partition_on_its_way_is_a_rebalance_under_way(stage):
    alone = stage.decide(a := stage.join("a"))
    stage.settle("a", 1, alone)
    plan = stage.decide(a, b := stage.join("b"))
    assert stage.seen().state is GroupState.COMPLETING_REBALANCE
    stage.join("b", generation=2, claims=plan.assignment["b"])
    moving, kept = next(iter(plan.assignment["b"])), next(iter(plan.assignment["a"]))
    stage.join("a", generation=2, claims=[kept])  # released; b hasn't taken it yet
    seen = stage.seen()
    assert seen.state is GroupState.COMPLETING_REBALANCE
    assert {one.partition: one.member_id for one in seen.partitions} == {kept: "a", moving: None}
    stage.settle(b.member_id, 2, plan)
    seen = stage.seen()
    assert (seen.state, {one.partition: one.member_id for one in seen.partitions}) == (
        "Stable",
        {kept: "a", moving: "b"},
    )


def test_who_is_silent_for_a_session_is_no_member_by_the_stores_clock(stage):
    stage.a_stable_group()
    stage.clock.advance(SESSION_MS)
    stage.cluster.store.put(member_heartbeat("g", "b"), b"1")
    assert [member.member_id for member in stage.seen().members] == ["a", "b"]
    stage.clock.advance(1)
    seen = stage.seen()
    assert (seen.state, [member.member_id for member in seen.members]) == ("PreparingRebalance", ["b"])
    assert [(one.partition, one.member_id) for one in seen.partitions] == [(P0, None), (P1, "b")]
    stage.clock.advance(SESSION_MS)
    seen = stage.seen()
    assert (seen.state, seen.members, [one.partition for one in seen.partitions]) == ("Empty", (), [P0])
    assert (seen.is_simple_consumer_group, seen.protocol_type, seen.assignor) == (False, "consumer", "")
    assert stage.names_in(group_probes("g")) == []


def test_a_look_takes_the_newest_of_the_stores_times_where_this_clock_is_behind(stage):
    """✗ A member that died an hour before the other's last heartbeat is shown as living."""
    stage.a_stable_group()
    behind = ManualClock(start_ms=stage.clock.now_ms())
    stage.clock.advance(SESSION_MS + 1)
    stage.cluster.store.put(member_heartbeat("g", "b"), b"1")
    [seen] = describe_groups(replace(stage.cluster, clock=behind), ["g"])
    assert [member.member_id for member in seen.members] == ["b"]


def test_a_member_that_was_put_out_and_does_not_know_is_none(stage):
    plan = stage.decide(stage.join("old", instance_id="i"))
    stage.settle("old", 1, plan, instance_id="i")
    plan = stage.decide(stage.join("new", instance_id="i"))
    stage.settle("new", 2, plan, instance_id="i")
    seen = stage.seen()
    assert (seen.state, [member.group_instance_id for member in seen.members]) == ("Stable", ["i"])


def test_offsets_alone_are_a_simple_group(stage):
    stage.commit_unowned({P0: 1})
    seen = stage.seen()
    assert (seen.state, seen.is_simple_consumer_group, seen.protocol_type) == ("Empty", True, "")
    assert group_names(stage.cluster) == ["g"]


def test_groups_are_listed_without_those_that_never_were(stage):
    for name in ("z", "a b/ü", "g"):
        replace(stage, group=name).commit_unowned({P0: 1})
    replace(stage, group="joining").join("m")
    replace(stage, group="left").decide()
    stage.cluster.store.put("groups/dead/members/m/heartbeat", b"1")
    stage.cluster.store.put("groups/not%%ours/x", b"1")
    assert group_names(stage.cluster) == ["a b/ü", "g", "joining", "left", "z"]


def test_a_group_that_can_not_be_understood_is_listed(stage):
    stage.cluster.store.put("groups/g/generations/00000000000000000001.json", b"{")
    assert group_names(stage.cluster) == ["g"]


def test_topics_that_many_groups_read_are_looked_at_once(stage):
    for number in range(20):
        replace(stage, group=f"g{number:02}").commit_unowned({P0: 1, P1: 0})
    counting = CountingStore(stage.cluster.store)
    cluster = open_cluster(counting, clock=stage.clock, create=False)

    def cost(count):
        counting.reset()
        described = describe_groups(cluster, names[:count])
        assert [(one.group_id, len(one.partitions)) for one in described] == [(name, 2) for name in names[:count]]
        return sum(counting.counts().values())

    names = group_names(cluster)
    of_a_group = cost(2) - cost(1)
    of_the_topic = cost(1) - of_a_group
    assert cost(20) == 20 * of_a_group + of_the_topic
    assert (of_a_group, of_the_topic) == (4, 3)


def test_groups_and_the_states_of_those_without_members_take_three_requests_each(stage):
    """✗ Whoever lists groups opens every offset table, or describes every group with all its topics."""
    for number in range(10):
        replace(stage, group=f"simple{number}").commit_unowned({P0: 1})
        left = replace(stage, group=f"left{number}")
        left.decide()
        left.change(CommitUnowned(offsets={P0: OffsetAndMetadata(1)}, topic_ids={P0: "id"}, generation=1))
    counting = CountingStore(stage.cluster.store)
    cluster = open_cluster(counting, clock=stage.clock, create=False)
    states = [(f"left{n}", "Empty", "consumer") for n in range(10)] + [(f"simple{n}", "Empty", "") for n in range(10)]
    for call, found in ((group_names, [name for name, _, _ in states]), (group_listings, states)):
        counting.reset()
        told = [one if isinstance(one, str) else (one.group_id, one.state, one.protocol_type) for one in call(cluster)]
        assert told == found
        assert counting.counts() == {"list": 1 + 10 + 20, "get": 10 + 10}
    for number in range(5):
        replace(stage, group=f"running{number}").a_stable_group()
    counting.reset()
    assert [one.state for one in group_listings(cluster)][10:15] == ["Stable"] * 5
    of_members = {"list": 2 * 5, "get": 5 * (1 + 2 + 2)}
    assert counting.counts() == {**of_members, "list": 31 + of_members["list"], "get": 20 + of_members["get"]}


@pytest.mark.parametrize("age", ["young", "long", "of an older version", "of another engine"])
def test_a_table_of_offsets_is_read_once_as_it_is_read_by_members(stage, age, monkeypatch):
    stage.commit_unowned({P0: 1})
    log = offset_log(stage.cluster, "g")
    if age == "long":
        monkeypatch.setattr(listing, "_PAGE", 3)
        for offset in range(2, 6):
            stage.commit_unowned({P0: offset})
    elif age == "of an older version":
        path = log.path_of(0)
        stage.cluster.store.put(path, resealed(re.sub(rb',? *"committed": *1', b"", stage.cluster.store.read(path))))
        assert b"committed" not in stage.cluster.store.read(path)
    elif age == "of another engine":
        ours = stage.cluster.store.read(log.path_of(0)).splitlines()
        stage.cluster.store.put(log.path_of(0), b"\n".join(line for line in ours if b"commitInfo" not in line))
    assert look_once(log) == load_whole(log)[0].rows
    assert look_once(log)[P0].committed is not None
    assert has_committed(log)
    stage.forget(P0)
    assert not has_committed(log)
    assert not has_committed(offset_log(stage.cluster, "none"))
    assert look_once(offset_log(stage.cluster, "none")) == {}


def test_a_member_that_acts_upon_a_generation_is_not_judged_by_the_one_before(stage):
    """✗ The group is listed, a member joins by the next generation, and what it says of itself is read then."""
    plan = stage.decide(stage.join("a"))
    stage.settle("a", 1, plan)
    joined = InterruptedStore(stage.cluster.store)

    def join() -> None:
        plan = stage.decide(stage.join("a", generation=1), stage.join("b"))
        for member_id in ("a", "b"):
            stage.settle(member_id, 2, plan)

    joined.interrupt(join, at=1, after=False)
    [seen] = describe_groups(replace(stage.cluster, store=joined), ["g"])
    assert (seen.generation_id, [member.member_id for member in seen.members]) == (2, ["a"])


# Topics that changed


def test_offsets_of_a_topic_that_was_deleted_do_not_count(stage):
    create_topic(stage.cluster.topic_log("u"), "u")
    stage.commit_unowned({TopicPartition("u", 0): 7, P0: 2})
    assert stage.offsets() == {P0: 2, TopicPartition("u", 0): 7}
    delete_topic(stage.cluster.topic_log("u"), "u")
    assert stage.offsets() == {P0: 2}
    create_topic(stage.cluster.topic_log("u"), "u")  # another one of that name
    assert stage.offsets() == {P0: 2}
    assert [one.partition for one in stage.seen().partitions] == [P0]


def test_offsets_of_a_partition_that_is_not_there_do_not_count(stage):
    stage.commit_unowned({TopicPartition("t", 7): 3, P1: 1})
    assert stage.offsets() == {P1: 1}
    create_partitions(stage.cluster.topic_log("t"), "t", 8)
    assert stage.offsets() == {P1: 1, TopicPartition("t", 7): 3}


def test_offsets_that_do_not_say_of_which_topic_they_are_count(stage):
    stage.commit_unowned({P0: 1}, topic_id="")
    assert stage.offsets() == {P0: 1}


# Setting offsets


def test_setting_offsets_makes_a_group(stage):
    stage.alter({P0: 2, P1: 0})
    assert (stage.offsets(), group_names(stage.cluster)) == ({P0: 2, P1: 0}, ["g"])
    assert stage.seen().is_simple_consumer_group


def test_offsets_of_a_group_with_members_are_not_set(stage):
    stage.join("a")
    with pytest.raises(UnknownMemberIdError, match="'g' has members"):
        stage.alter({P0: 2})
    assert stage.offsets() == {}


def test_a_member_that_was_taken_for_dead_can_not_commit_over_what_was_set(stage):
    stage.a_stable_group()
    stage.clock.advance(SESSION_MS + 1)
    stage.alter({P0: 1})
    with pytest.raises(Exception, match="wasn't committed"):
        stage.commit(Stamp(1, "a"), {P0: 4})
    assert (stage.offsets(), stage.seen().generation_id) == ({P0: 1}, 2)


def test_a_member_that_takes_a_partition_meanwhile_is_not_overwritten(stage, monkeypatch):
    """The administrator found the group empty; before its commit a member joins and takes a partition."""
    stage.a_stable_group()
    stage.clock.advance(SESSION_MS + 1)

    def then_a_member_comes(*arguments, **named):
        number = empty_generation(*arguments, **named)
        stage.settle("c", number + 1, stage.decide(stage.join("c")))
        return number

    monkeypatch.setattr(administration, "empty_generation", then_a_member_comes)
    with pytest.raises(UnknownMemberIdError, match="owned by member 'c'"):
        stage.alter({P0: 1})
    assert stage.offsets() == {P0: 3}
    stage.clock.advance(SESSION_MS + 1)
    with pytest.raises(NonEmptyGroupError):
        stage.delete()
    assert (stage.offsets(), group_names(stage.cluster)) == ({P0: 3}, ["g"])


@pytest.mark.parametrize(
    ("offsets", "error"),
    [
        ({TopicPartition("nosuch", 0): OffsetAndMetadata(1)}, UnknownTopicOrPartitionError),
        ({TopicPartition("t", 2): OffsetAndMetadata(1)}, UnknownTopicOrPartitionError),
        ({P0: OffsetAndMetadata(1), TopicPartition("t", -1): OffsetAndMetadata(1)}, UnknownTopicOrPartitionError),
        ({P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(-1)}, ValueError),
        ({P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(1, "x" * 4_097)}, OffsetMetadataTooLargeError),
    ],
)
def test_all_offsets_are_set_or_none(stage, offsets, error):
    with pytest.raises(error):
        alter_offsets(stage.cluster, "g", offsets, NO_TRANSACTIONS, timeout_ms=TIMEOUT_MS)
    assert (stage.offsets(), group_names(stage.cluster)) == ({}, [])


# Deleting offsets


def test_offsets_are_deleted_where_nobody_subscribes(stage):
    create_topic(stage.cluster.topic_log("u"), "u")
    stage.commit_unowned({TopicPartition("u", 0): 7, P0: 2})
    stage.join("a")
    with pytest.raises(GroupSubscribedToTopicError, match=r"topic 't'.*member 'a' of group 'g'"):
        stage.forget(P0, TopicPartition("u", 0))
    stage.forget(TopicPartition("u", 0), TopicPartition("gone", 3))
    assert stage.offsets() == {P0: 2}
    with pytest.raises(GroupIdNotFoundError, match="unknown group: 'nosuch'"):
        delete_offsets(stage.cluster, "nosuch", [P0], NO_TRANSACTIONS, timeout_ms=TIMEOUT_MS)


def test_a_partition_that_a_member_takes_meanwhile_is_not_forgotten(stage, monkeypatch):
    stage.commit_unowned({P0: 2})

    def then_a_member_comes(*arguments):
        monkeypatch.setattr(administration, "inspect_group", inspect_group)
        seen = inspect_group(*arguments)
        stage.settle("c", 1, stage.decide(stage.join("c")))
        return seen

    monkeypatch.setattr(administration, "inspect_group", then_a_member_comes)
    with pytest.raises(GroupSubscribedToTopicError):
        stage.forget(P0)
    stage.commit(Stamp(1, "c"), {P0: 4})


# Deleting groups


def test_a_deleted_group_is_gone_with_what_its_dead_left(stage):
    stage.a_stable_group()
    with pytest.raises(NonEmptyGroupError, match="'g' wasn't deleted: it has members"):
        stage.delete()
    stage.clock.advance(SESSION_MS + 1)
    stage.delete()
    assert (group_names(stage.cluster), stage.offsets(), stage.names_in(group_members("g"))) == ([], {}, [])
    assert (stage.seen().state, stage.seen().generation_id) == ("Dead", 2)
    with pytest.raises(GroupIdNotFoundError):
        stage.delete()
    with pytest.raises(GroupIdNotFoundError):
        stage.forget(P0)


def test_a_deleted_groups_member_that_wakes_up_brings_nothing_back(stage):
    stage.a_stable_group()
    stage.clock.advance(SESSION_MS + 1)
    stage.delete()
    with pytest.raises(Exception, match="owned by nobody"):
        stage.commit(Stamp(1, "a"), {P0: 4})
    assert group_names(stage.cluster) == []


def test_a_name_that_is_used_again_is_a_new_group_and_numbers_go_on(stage):
    stage.a_stable_group()
    stage.clock.advance(SESSION_MS + 1)
    stage.delete()
    stage.alter({P1: 0})
    assert stage.seen().is_simple_consumer_group
    assert (group_names(stage.cluster), stage.offsets()) == (["g"], {P1: 0})
    stage.delete()
    assert group_names(stage.cluster) == []
    stage.settle("a2", 3, stage.decide(stage.join("a2")))
    assert (stage.seen().state, stage.seen().generation_id) == ("Stable", 3)


def test_a_simple_group_is_deleted(stage):
    stage.commit_unowned({P0: 1})
    stage.delete()
    assert (group_names(stage.cluster), stage.seen().state) == ([], "Dead")


def test_a_deletion_that_was_cut_short_is_finished_by_the_next(stage, monkeypatch):
    stage.a_stable_group()
    stage.clock.advance(SESSION_MS + 1)

    def crash(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(administration, "_change", crash)
    with pytest.raises(KeyboardInterrupt):
        stage.delete()
    monkeypatch.undo()
    assert (stage.seen().state, stage.offsets()) == ("Empty", {P0: 3})
    stage.delete()
    assert (stage.seen().state, stage.offsets()) == ("Dead", {})


# Removing members


def test_members_are_removed_by_either_id(stage):
    plan = stage.decide(stage.join("a"), stage.join("b", instance_id="i"))
    stage.settle("a", 1, plan)
    stage.settle("b", 1, plan, instance_id="i")
    with pytest.raises(UnknownMemberIdError, match="no member 'x'"):
        remove_members(stage.cluster, "g", ["a", "x"])
    assert remove_members(stage.cluster, "g", ["i"]) == ["b"]
    assert [member.member_id for member in stage.seen().members] == ["a"]
    assert stage.seen().state is GroupState.PREPARING_REBALANCE  # a takes b's partition over
    assert remove_members(stage.cluster, "g", ["a", "a"]) == ["a"]
    assert (stage.seen().state, stage.names_in(group_members("g"))) == ("Empty", [])
