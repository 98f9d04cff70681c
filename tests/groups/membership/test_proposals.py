"""Whether a generation is needed, who is in it, and what it decides."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sparklog.errors import InconsistentGroupProtocolError, InvalidArgumentError
from sparklog.groups.assignors import ASSIGNORS, Assignor, MemberSubscription
from sparklog.groups.membership import proposals
from sparklog.groups.membership.generations import Generation, GenerationPlan, TopicFacts
from sparklog.groups.membership.liveness import MemberMarks, TrackedMember
from sparklog.groups.membership.member_state import MemberState
from sparklog.groups.membership.proposals import (
    common_assignors,
    empty_plan,
    living_members,
    need_of,
    plan_generation,
    same_decision,
)
from sparklog.model import TopicPartition
from tests.groups.membership.test_liveness import SESSION_MS, a_state

SEEN = {"t": ("id", 4)}


def members(*ids: str, **changes: object) -> dict[str, MemberState]:
    return {member_id: a_state(member_id, **changes) for member_id in ids}


def planned(
    living: Mapping[str, MemberState], newest: Generation | None = None, seen: Mapping[str, tuple[str, int]] = SEEN
) -> GenerationPlan:
    return plan_generation(newest, living, seen, ASSIGNORS, now_ms=1)


def as_generation(plan: GenerationPlan, number: int = 1) -> Generation:
    return Generation(version=number, token="x", plan=plan)


def watched(state: MemberState | None, *, silence_ms: float = 0, heartbeats_seen: int = 1) -> TrackedMember:
    marks = MemberMarks("s" if state is not None else None, "h")
    return TrackedMember(marks=marks, silence_ms=silence_ms, heartbeats_seen=heartbeats_seen, state=state)


def numbers(plan: GenerationPlan) -> dict[str, list[int]]:
    return {member_id: sorted(p.partition for p in given) for member_id, given in plan.assignment.items()}


# Who lives


def test_the_dead_and_those_without_a_state_are_left_out():
    found = living_members(
        {"a": watched(a_state("a")), "b": watched(a_state("b"), silence_ms=SESSION_MS + 1), "c": watched(None)},
        None,
        me=None,
    )
    assert found.keys() == {"a"}


def test_objects_of_a_dead_process_are_no_member_until_a_heartbeat_was_seen():
    left = {"a": watched(a_state("a"), heartbeats_seen=0)}
    assert living_members(left, None, me=a_state("me")).keys() == {"me"}
    assert living_members(left, planned(members("a")), me=a_state("me")).keys() == {"a", "me"}


def test_of_two_with_one_instance_id_the_younger_stays():
    newest = planned(members("z-old", instance_id="i"))
    old = {"z-old": watched(a_state("z-old", instance_id="i"))}
    young = a_state("a-new", instance_id="i", replaces="z-old")
    assert living_members(old, newest, me=young).keys() == {"a-new"}
    assert living_members({**old, "a-new": watched(young)}, newest, me=None).keys() == {"a-new"}


def test_of_two_that_replace_one_member_the_first_that_a_generation_has_stays():
    newest = planned(members("m-first", instance_id="i", replaces="gone"))
    first = {"m-first": watched(a_state("m-first", instance_id="i", replaces="gone", generation=1))}
    for other in ("a-second", "z-second"):
        late = {other: watched(a_state(other, instance_id="i", replaces="gone"))}
        assert living_members({**first, **late}, newest, me=None).keys() == {"m-first"}


def test_one_that_the_newest_generation_left_out_is_not_fetched_back():
    newest = planned(members("a"))
    there = {"a": watched(a_state("a", generation=2)), "b": watched(a_state("b", generation=1))}
    assert living_members(there, newest, me=None).keys() == {"a"}
    assert living_members(there, newest, me=a_state("b", generation=1)).keys() == {"a"}


def test_of_two_that_join_at_once_with_one_instance_id_exactly_one_stays():
    first, second = a_state("a", instance_id="i"), a_state("b", instance_id="i")
    seen_by_first = living_members({"b": watched(second)}, None, me=first)
    seen_by_second = living_members({"a": watched(first)}, None, me=second)
    assert seen_by_first == seen_by_second
    assert len(seen_by_first) == 1


def test_one_that_shares_no_assignor_with_the_group_is_left_out():
    newest = planned(members("z", assignors=("range",)))
    there = {"z": watched(a_state("z", assignors=("range",)))}
    assert living_members(there, newest, me=a_state("a", assignors=("sticky",))).keys() == {"z"}


# Assignors


@pytest.mark.parametrize(
    ("supported", "expected"),
    [
        ([("range", "sticky"), ("sticky", "range"), ("sticky",)], ["sticky"]),
        ([("range", "sticky"), ("sticky", "range"), ("sticky", "range")], ["sticky", "range"]),
        ([("range", "sticky"), ("roundrobin", "sticky", "range")], ["range", "sticky"]),
        ([("range",), ("sticky",)], []),
        ([], []),
    ],
)
def test_the_assignor_that_all_support_and_most_like_best_is_agreed_on(supported, expected):
    assert common_assignors([a_state(assignors=names) for names in supported]) == expected


def test_a_proposer_that_lacks_the_agreed_assignor_says_so():
    with pytest.raises(InconsistentGroupProtocolError, match="agree on mine; this consumer has cooperative-sticky"):
        planned(members("a", assignors=("mine",)))


class Forgetful(Assignor):
    """Gives nobody anything."""

    name = "forgetful"

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        return {member_id: [] for member_id in members}


def test_what_a_pluggable_assignor_gives_is_checked():
    with pytest.raises(InvalidArgumentError, match="forgetful"):
        plan_generation(None, members("a", assignors=("forgetful",)), SEEN, {"forgetful": Forgetful()}, now_ms=1)


# Need


def test_the_first_member_needs_a_generation():
    assert need_of(None, members("a"), SEEN) is not None


def test_nothing_new_needs_nothing():
    assert need_of(as_generation(planned(members("a", "b"))), members("a", "b"), SEEN) is None


@pytest.mark.parametrize(
    ("now", "seen"),
    [
        (members("a"), SEEN),
        (members("a", "b", "c"), SEEN),
        (members("a", "b", topics=("t", "u")), SEEN),
        (members("a", "b", assignors=("sticky",)), SEEN),
        (members("a", "b"), {"t": ("id", 5)}),
        (members("a", "b"), {"t": ("another", 4)}),
        (members("a", "b", pattern="32:t"), SEEN),
    ],
    ids=["left", "joined", "subscribed", "other assignor", "partitions added", "created again", "by pattern"],
)
def test_what_changed_needs_a_generation(now, seen):
    newest = as_generation(planned(members("a", "b")))
    need = need_of(newest, now, seen)
    assert need is not None
    assert need == need_of(newest, now, seen)
    assert need_of(as_generation(planned(now, newest, {**SEEN, **seen}), 2), now, seen) is None


def test_a_topic_that_appears_needs_a_generation_and_one_that_nobody_wants_does_not():
    newest = as_generation(planned(members("a", topics=("t", "u"))))
    assert need_of(newest, members("a", topics=("t", "u")), {**SEEN, "u": ("id2", 1)}) is not None
    assert need_of(newest, members("a", topics=("t", "u")), {**SEEN, "v": ("id2", 1)}) is None


def test_a_topic_of_which_the_proposer_knows_nothing_is_not_its_business():
    assert need_of(as_generation(planned(members("a"))), members("a"), {}) is None


def test_a_topic_that_is_gone_needs_a_generation_once():
    both = members("a", topics=("t", "u"))
    newest = as_generation(planned(both, seen={**SEEN, "u": ("id2", 1)}))
    assert need_of(newest, both, SEEN, {"u"}) is not None
    after = as_generation(planned(both, newest), 2)
    assert need_of(after, both, SEEN, {"u"}) is None
    assert set(after.plan.topics) == {"t"}


# Plans


def test_every_partition_goes_to_one_member():
    assert numbers(planned(members("a", "b"))) == {"a": [0, 1], "b": [2, 3]}


def test_a_topic_that_does_not_exist_gives_nothing():
    plan = planned(members("a", topics=("t", "u")))
    assert (set(plan.topics), numbers(plan)) == ({"t"}, {"a": [0, 1, 2, 3]})


def test_a_static_member_that_came_back_gets_its_partitions_and_nothing_else_moves():
    before = planned({**members("a-1", instance_id="i"), **members("b")})
    after = planned({**members("z-2", instance_id="i"), **members("b")}, as_generation(before))
    assert numbers(after) == {"z-2": numbers(before)["a-1"], "b": numbers(before)["b"]}


def test_sticky_members_keep_what_the_previous_generation_gave_them():
    before = planned(members("a", "b", assignors=("sticky",)))
    after = planned(members("a", "b", "c", assignors=("sticky",)), as_generation(before))
    assert all(set(numbers(after)[i]) <= set(numbers(before)[i]) for i in "ab")
    assert sorted(map(len, numbers(after).values())) == [1, 1, 2]


def test_the_first_partition_count_of_a_topic_is_remembered_until_it_is_recreated():
    first = planned(members("a"))
    grown = planned(members("a"), as_generation(first), {"t": ("id", 6)})
    again = planned(members("a"), as_generation(grown), {"t": ("other", 5)})
    assert [plan.topics["t"] for plan in (first, grown, again)] == [
        TopicFacts(topic_id="id", partition_count=4, first_count=4),
        TopicFacts(topic_id="id", partition_count=6, first_count=4),
        TopicFacts(topic_id="other", partition_count=5, first_count=0),
    ]


def test_a_topic_that_nobody_subscribes_to_for_a_while_is_remembered_as_it_was_first():
    first = planned(members("a"))
    left = empty_plan(as_generation(first), now_ms=2)
    assert (left.topics, left.former) == ({}, first.topics)
    still_left = empty_plan(as_generation(left), now_ms=3)
    assert still_left.former == first.topics
    back = planned(members("b"), as_generation(still_left), {"t": ("id", 6)})
    assert back.former == {}
    assert back.topics["t"] == TopicFacts(topic_id="id", partition_count=6, first_count=6, earlier_count=4)
    grown = planned(members("b"), as_generation(back), {"t": ("id", 7)})
    assert grown.topics["t"] == TopicFacts(topic_id="id", partition_count=7, first_count=6, earlier_count=4)
    again = planned(members("c"), as_generation(empty_plan(as_generation(grown), now_ms=4)), {"t": ("id", 8)})
    assert (again.topics["t"].first_count, again.topics["t"].least_count) == (8, 4)
    other = planned(members("c"), as_generation(left), {"t": ("other", 8)})
    assert other.topics["t"] == TopicFacts(topic_id="other", partition_count=8, first_count=8)
    assert empty_plan(as_generation(back), now_ms=5, deleted=True).former == {}


def test_no_more_topics_are_remembered_than_a_bound(monkeypatch):
    monkeypatch.setattr(proposals, "_MOST_FORMER", 2)
    names = ("t", "u", "v")
    first = planned(members("a", topics=names), seen=dict.fromkeys(names, ("id", 1)))
    left = empty_plan(as_generation(first), now_ms=2)
    assert len(left.former) == 2


def test_partitions_of_a_topic_that_was_created_again_are_nobodys():
    before = planned(members("b", "c", assignors=("sticky",)))
    after = planned(members("a", "b", "c", assignors=("sticky",)), as_generation(before), {"t": ("other", 3)})
    assert sorted(map(len, numbers(after).values())) == [1, 1, 1]


def test_an_empty_generation_has_nobody():
    plan = empty_plan(now_ms=5, deleted=True)
    assert (plan.members, plan.assignment, plan.deleted) == ({}, {}, True)
    assert not same_decision(plan, empty_plan(now_ms=5))
    assert same_decision(plan, empty_plan(now_ms=6, deleted=True))
