"""Topics that come and go while a group subscribes to them, by name or by pattern: how many generations, and when."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from sparklog.groups.membership.generations import Generation, generation_log
from sparklog.groups.membership.proposals import need_of, subscribed_topics
from sparklog.log import create_topic, delete_topic
from sparklog.model import TopicPartition
from tests.groups.membership.support import Group, Member
from tests.groups.membership.test_proposals import SEEN, as_generation, members, planned


def add(group: Group, topic: str, partitions: int = 1) -> None:
    create_topic(group.cluster(group.memory).topic_log(topic), topic, num_partitions=partitions)


def remove(group: Group, topic: str) -> None:
    delete_topic(group.cluster(group.memory).topic_log(topic), topic)


def of_pattern(group: Group, *names: str, pattern: str = "[tu].*") -> list[Member]:
    """Members that have settled."""
    found = [Member(group, name) for name in names]
    for member in found:
        member.membership.subscribe((), re.compile(pattern))
    group.rounds(*found)
    return found


def newest(group: Group) -> Generation:
    found, _ = generation_log(group.cluster(group.memory), "g").open_newest()
    assert found is not None
    return found


def let_look(*members: Member) -> None:
    """It is time for members to look at the topics of their subscriptions."""
    for member in members:
        member.loop._subscribed._resolved_ticks_ms = -1e9


def topics_of(*group: Member) -> list[list[str]]:
    """Of each member, the topics that its application has partitions of."""
    return [sorted({partition.topic for partition in member.has}) for member in group]


def shares(group: Group, topic: str) -> list[int]:
    """How many partitions of a topic the newest generation gives to each member."""
    given = newest(group).plan.assignment.values()
    return sorted(Counter(p.topic for p in partitions)[topic] for partitions in given)


# Patterns


def test_members_of_one_pattern_have_the_existing_topics_that_any_of_them_found():
    living = {
        **members("a", topics=("t", "u"), pattern="32:."),
        **members("b", topics=("t", "gone"), pattern="32:."),
        **members("c", topics=("t", "v"), pattern="32:v"),
        **members("d", topics=("gone",)),
    }
    assert subscribed_topics(living, {"gone"}) == {"a": ("t", "u"), "b": ("t", "u"), "c": ("t", "v"), "d": ("gone",)}


def test_a_topic_that_one_member_found_needs_no_generation_once_one_has_it():
    before = as_generation(planned(members("a", "b", pattern="32:.")))
    found = {**members("a", topics=("t", "u"), pattern="32:."), **members("b", pattern="32:.")}
    seen = {**SEEN, "u": ("id2", 2)}
    assert need_of(before, found, seen) is not None
    after = as_generation(planned(found, before, seen), 2)
    assert need_of(after, found, seen) is None
    assert need_of(after, found, {}) is None  # of one that hasn't looked


@pytest.mark.slow
@pytest.mark.parametrize("finder", [0, 5])
def test_a_topic_that_comes_moves_a_group_of_six_once_whoever_finds_it(finder: int):
    """✗ Each member finds it for itself: a generation each, and its first partitions move from one to the other."""
    group = Group(partitions=6)
    six = of_pattern(group, *"abcdef")
    before = group.generation
    add(group, "u1", 6)
    let_look(six[finder])
    group.rounds(*six)
    assert group.generation == before + 1
    assert shares(group, "u1") == [1, 1, 1, 1, 1, 1]
    assert topics_of(*six) == [["t", "u1"]] * 6
    assert [member.membership.resolved for member in six] == [{"t", "u1"}] * 6
    let_look(*six)
    group.rounds(*six, intervals=2)
    assert group.generation == before + 1


def test_a_topic_of_a_pattern_leaves_and_comes_back_with_one_generation_each():
    group = Group()
    add(group, "u")
    three = of_pattern(group, *"abc")
    before = group.generation
    remove(group, "u")
    three[1].membership.doubt_topics({"u", "other"})  # as its own reading would
    group.rounds(*three, intervals=8)
    assert (group.generation, set(newest(group).plan.topics)) == (before + 1, {"t"})
    assert [member.membership.resolved for member in three] == [{"t"}] * 3
    add(group, "u")
    let_look(*three)
    group.rounds(*three)
    assert (group.generation, set(newest(group).plan.topics)) == (before + 2, {"t", "u"})


def test_members_of_different_patterns_and_of_none_keep_to_their_own():
    group = Group()
    add(group, "u")
    by_name, first, second = Member(group, "n"), *of_pattern(group, "a", pattern="u.*"), *of_pattern(group, "b")
    group.rounds(by_name, first, second)
    add(group, "u2")
    let_look(by_name, first, second)
    group.rounds(by_name, first, second)
    assert {topic for topic, _ in by_name.has} == {"t"}
    assert {topic for topic, _ in first.has} <= {"u", "u2"}
    assert {p for member in (by_name, first, second) for p in member.has} >= {TopicPartition("u2", 0)}
    assert [member.membership.resolved for member in (by_name, first, second)] == [{"t"}, {"u", "u2"}, {"t", "u", "u2"}]


def test_a_topic_that_another_found_is_not_adopted_under_another_pattern():
    group = Group()
    both = of_pattern(group, *"ab")
    add(group, "u")
    let_look(both[0])
    both[0].round()
    both[1].membership.subscribe((), re.compile("t"))
    group.rounds(*both)
    assert both[1].membership.resolved == {"t"}
    assert topics_of(*both) == [["t", "u"], ["t"]]


# Names


def test_a_deleted_topic_leaves_the_group_and_comes_back_once_it_is_created_again():
    """✗ What a member doesn't know of it has no say about: the topic stays in every generation, and who was given its
    partitions is told an error by each poll."""
    group = Group()
    add(group, "u", 2)
    both = [Member(group, name) for name in "ab"]
    for member in both:
        member.membership.subscribe(["t", "u"], None)
    group.rounds(*both)
    before = group.generation
    remove(group, "u")
    both[1].membership.doubt_topics({"u"})
    group.rounds(*both)
    assert (group.generation, topics_of(*both)) == (before + 1, [["t"], ["t"]])
    assert [member.membership.next_missing() for member in both] == [None, None]  # it is no misspelt name
    add(group, "u", 2)
    group.rounds(*both)
    assert (group.generation, shares(group, "u")) == (before + 2, [1, 1])


def test_a_deletion_that_nobody_reads_of_is_found_when_the_topics_are_looked_at():
    group = Group()
    add(group, "u")
    member = Member(group, "a")
    member.membership.subscribe(["t", "u"], None)
    group.rounds(member)
    remove(group, "u")
    let_look(member)
    group.rounds(member)
    assert topics_of(member) == [["t"]]


@pytest.mark.parametrize("pattern", [None, "[tu].*"])
def test_a_look_at_a_topic_is_not_undone_by_a_generation_of_before_its_deletion(pattern: str | None):
    """✗ Who applies the generation after its look takes the topic for an existing one, and nobody looks again for
    minutes."""
    group = Group()
    add(group, "u")
    first, second = Member(group, "a"), Member(group, "b")
    for member in (first, second):
        member.membership.subscribe(() if pattern else ["t", "u"], re.compile(pattern) if pattern else None)
    group.rounds(first)
    for _ in range(2):
        second.round()
        group.rounds(first, intervals=1)
    assert set(newest(group).plan.assignment) == {first.membership.member_id, second.membership.member_id}
    remove(group, "u")
    let_look(second)
    group.rounds(first, second)
    assert set(newest(group).plan.topics) == {"t"}


def test_a_topic_that_reading_did_not_find_though_it_is_there_stays():
    group = Group()
    member = Member(group, "a")
    group.rounds(member)
    before = group.generation
    member.membership.doubt_topics({"t"})
    group.rounds(member)
    assert (group.generation, topics_of(member)) == (before, [["t"]])


def test_a_doubt_outlives_a_round_that_could_not_look():
    group = Group()
    add(group, "u")
    member = Member(group, "a")
    member.membership.subscribe(["t", "u"], None)
    group.rounds(member)
    remove(group, "u")
    member.membership.doubt_topics({"u"})
    with group.away():
        member.round()
    group.rounds(member)
    assert topics_of(member) == [["t"]]


@pytest.mark.parametrize("pattern", ["", "0:u"])
def test_all_that_a_topic_holds_is_younger_than_a_subscription_that_waited_for_it(pattern: str):
    waiting = members("a", topics=("t",) if pattern else ("t", "u"), pattern=pattern)
    before = as_generation(planned(waiting))
    found = members("a", topics=("t", "u"), pattern=pattern)
    assert planned(found, before, {**SEEN, "u": ("id2", 3)}).topics["u"].first_count == 0
    joined_by_another = members("a", topics=("t", "u"), pattern="another")
    if pattern:
        assert planned(joined_by_another, before, {**SEEN, "u": ("id2", 3)}).topics["u"].first_count == 3


def test_a_topic_of_a_new_subscription_was_there_before():
    before = as_generation(planned(members("a")))
    assert planned(members("a", topics=("t", "u")), before, {**SEEN, "u": ("id2", 3)}).topics["u"].first_count == 3
