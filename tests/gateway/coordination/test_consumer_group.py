"""The state machine of groups of the protocol ``consumer``: epochs, targets, giving up before getting."""

from __future__ import annotations

import pytest

from sparklog import TopicPartition
from sparklog.gateway.coordination.consumer_group import ConsumerGroup
from sparklog.gateway.coordination.consumer_members import ConsumerHeartbeat, TopicFacts
from sparklog.gateway.error_codes import ErrorCode

FACTS = {"jobs": TopicFacts("id of jobs", 4)}


def a_group():
    group = ConsumerGroup("g", epoch=10, session_timeout_ms=1_000, max_size=3)
    group.look(frozenset({"jobs"}), FACTS, {})
    return group


def said(member_id, epoch, owned=None, **settings):
    given = {
        "instance_id": None,
        "client_id": "client",
        "client_host": "/host",
        "rebalance_timeout_ms": -1,
        "topics": None,
        "pattern": None,
        "assignor": None,
        **settings,
    }
    return ConsumerHeartbeat(member_id=member_id, epoch=epoch, owned=owned, **given)


def join(group, member_id, **settings):
    settings = {"topics": frozenset({"jobs"}), "rebalance_timeout_ms": 500, **settings}
    return group.heartbeat(said(member_id, 0, frozenset(), **settings))


def numbers(partitions):
    return sorted(number for _, number in partitions)


def test_a_lone_member_has_all_at_once():
    heard = join(a_group(), "a")
    assert (heard.code, heard.epoch, numbers(heard.assigned)) == (ErrorCode.NONE, 11, [0, 1, 2, 3])


def test_a_partition_is_given_up_before_another_gets_it():
    group = a_group()
    first = join(group, "a")
    second = join(group, "b")
    assert (second.epoch, second.assigned) == (12, frozenset())
    told = group.heartbeat(said("a", first.epoch))
    assert (told.epoch, len(told.assigned)) == (11, 2)  # it stays in its epoch until it has given up
    assert group.heartbeat(said("b", 12)).assigned is None
    assert group.heartbeat(said("a", 11, first.assigned)).epoch == 11
    assert group.state == "Reconciling"
    assert group.heartbeat(said("a", 11, told.assigned)).epoch == 12
    got = group.heartbeat(said("b", 12))
    assert got.assigned == first.assigned - told.assigned
    assert group.state == "Stable"
    assert group.heartbeat(said("b", 12)).assigned is None  # as before


def test_a_member_that_gives_nothing_up_is_out_in_time():
    group = a_group()
    first = join(group, "a")
    join(group, "b")
    group.heartbeat(said("a", first.epoch))
    for _ in range(3):
        group.tick(200)
        told = group.heartbeat(said("b", group.members["b"].epoch))
    assert group.heartbeat(said("a", 11)).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert numbers(told.assigned) == [0, 1, 2, 3]


def test_a_session_ends():
    group = a_group()
    join(group, "a")
    group.tick(900)
    assert group.heartbeat(said("a", 11)).code is ErrorCode.NONE
    group.tick(900)
    assert not group.is_unused
    group.tick(200)
    assert (group.is_unused, group.state) == (True, "Empty")


def test_an_answer_that_was_lost_is_given_again():
    group = a_group()
    first = join(group, "a")
    group.look(frozenset({"jobs"}), {"jobs": TopicFacts("id of jobs", 5)}, {})
    assert group.heartbeat(said("a", first.epoch)).epoch == 12
    again = group.heartbeat(said("a", first.epoch, first.assigned, topics=frozenset({"jobs"})))
    assert (again.epoch, numbers(again.assigned)) == (12, [0, 1, 2, 3, 4])
    assert group.heartbeat(said("a", 10, frozenset())).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.heartbeat(said("a", 13)).code is ErrorCode.FENCED_MEMBER_EPOCH
    elsewhere = frozenset({TopicPartition("other", 0)})
    assert group.heartbeat(said("a", 11, elsewhere)).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert numbers(join(group, "a").assigned) == [0, 1, 2, 3, 4]  # a fenced member joins again under its id


def test_a_topic_that_is_gone_is_given_up():
    group = a_group()
    join(group, "a")
    group.look(frozenset({"jobs"}), {}, {})
    told = group.heartbeat(said("a", 11))
    assert told.assigned == frozenset()
    assert group.heartbeat(said("a", 11, frozenset())).epoch == 12


def test_topics_that_match_a_pattern_are_assigned():
    group = a_group()
    group.look(frozenset({"jobs"}), FACTS, {"j.*": frozenset({"jobs"})})
    heard = join(group, "a", topics=frozenset(), pattern="j.*")
    assert numbers(heard.assigned) == [0, 1, 2, 3]
    assert (group.patterns(), group.topics()) == ({"j.*"}, {"jobs"})
    more = FACTS | {"jokes": TopicFacts("id of jokes", 1)}
    group.look(frozenset(more), more, {"j.*": frozenset(more)})
    assert len(group.heartbeat(said("a", heard.epoch)).assigned) == 5
    told = group.heartbeat(said("a", group.epoch, topics=frozenset({"jokes"}), pattern=""))
    assert told.assigned == {TopicPartition("jokes", 0)}


def test_leaving_gives_all_to_the_others():
    group = a_group()
    join(group, "a")
    join(group, "b")
    assert group.heartbeat(said("a", -1)).epoch == -1
    assert numbers(group.heartbeat(said("b", 12)).assigned) == [0, 1, 2, 3]
    assert group.heartbeat(said("a", -1)).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_has_its_place_for_a_while():
    group = a_group()
    first = join(group, "a", instance_id="one")
    assert join(group, "b", instance_id="one").code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert group.heartbeat(said("a", -2, instance_id="one")).epoch == -2
    again = join(group, "b", instance_id="one")
    assert (again.epoch, again.assigned) == (first.epoch, first.assigned)
    assert group.heartbeat(said("a", 11, instance_id="one")).code is ErrorCode.FENCED_INSTANCE_ID
    assert group.may_commit("a", "one", 11) is ErrorCode.FENCED_INSTANCE_ID
    group.heartbeat(said("b", -2, instance_id="one"))
    group.tick(1_100)
    assert group.is_unused


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_assignor_that_most_like_is_chosen(assignor):
    group = a_group()
    for member_id in "abc":
        join(group, member_id, assignor="range" if member_id == "a" else assignor)
    assert group.assignor == assignor


def test_what_cannot_be_is_refused():
    group = a_group()
    assert join(group, "a", assignor="mine").code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert join(group, "a", topics=None).code is ErrorCode.INVALID_REQUEST
    assert group.heartbeat(said("a", 1)).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.is_unused
    assert join(group, "").member_id


def test_a_commit_of_another_epoch_is_stale():
    group = a_group()
    join(group, "a")
    assert group.may_commit("a", None, 11) is ErrorCode.NONE
    assert group.may_commit("a", None, 10) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.may_commit("b", None, 11) is ErrorCode.UNKNOWN_MEMBER_ID
    group.end()
    assert group.may_commit("a", None, 11) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_more():
    group = a_group()
    for member_id in "abc":
        join(group, member_id)
    assert join(group, "d").code is ErrorCode.GROUP_MAX_SIZE_REACHED
