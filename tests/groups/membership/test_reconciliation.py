"""Releasing, claiming, taking: one member's way from what it has to what a generation gives it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sparklog.groups.membership.generations import Generation, GenerationPlan, TopicFacts
from sparklog.groups.membership.reconciliation import Reconciliation
from sparklog.groups.offsets.rows import OffsetRow, Stamp
from sparklog.model import OffsetAndMetadata, TopicPartition


def tps(numbers: Iterable[int], topic: str = "t") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def generation(number: int) -> Generation:
    topics = {"t": TopicFacts(topic_id="id", partition_count=4, first_count=3)}
    plan = GenerationPlan(members={}, topics=topics, assignment={}, created_ms=0)
    return Generation(version=number, token=f"token{number}", plan=plan)


def take(member: Reconciliation, number: int, partitions: frozenset[TopicPartition]) -> None:
    """Have the stamps of ``partitions`` written under generation ``number``."""
    stamp = Stamp(number, "me")
    member.begin_take(partitions, stamp)
    member.taken(stamp, {p: a_row(stamp) for p in partitions})


def a_row(stamp: Stamp) -> OffsetRow:
    return OffsetRow(topic_id="id", stamp=stamp, committed=None, commit_timestamp_ms=0)


def a_member(number: int, numbers: Iterable[int], *, is_eager: bool = False) -> Reconciliation:
    """Has taken and handed over ``numbers`` in generation ``number``."""
    member = Reconciliation(is_eager=is_eager)
    member.apply(generation(number), tps(numbers))
    take(member, number, tps(numbers))
    member.hand_over()
    return member


def test_what_is_to_be_ours_is_claimed_before_it_is_taken():
    member = Reconciliation()
    member.apply(generation(1), tps([0, 1]))
    assert member.claims() == tps([0, 1])
    assert member.takeable([], written=frozenset()) == frozenset()
    assert member.takeable([], written=tps([0])) == tps([0])


def test_what_another_claims_is_not_taken():
    member = Reconciliation()
    member.apply(generation(1), tps([0, 1]))
    assert member.takeable(tps([1, 2]), written=tps([0, 1])) == tps([0])


def test_what_is_being_taken_or_held_is_not_taken_again():
    member = Reconciliation()
    member.apply(generation(1), tps([0, 1, 2]))
    take(member, 1, tps([0]))
    member.begin_take(tps([1]), Stamp(1, "me"))
    assert member.takeable([], written=member.claims()) == tps([2])
    assert not member.is_settled


def test_a_partition_is_handed_over_once():
    member = Reconciliation()
    member.apply(generation(1), tps([0]))
    take(member, 1, tps([0]))
    assert member.hand_over().keys() == tps([0])
    assert member.hand_over() == {}
    assert member.is_settled


def test_keeping_a_partition_over_generations_keeps_its_stamp():
    member = a_member(1, [0, 1])
    member.apply(generation(2), tps([0]))
    assert member.stamps(tps([0, 1])) == dict.fromkeys(tps([0, 1]), Stamp(1, "me"))
    assert member.to_release == tps([1])


def test_what_is_to_be_given_up_is_claimed_until_the_application_has_let_go():
    member = a_member(1, [0, 1])
    member.apply(generation(2), tps([0]))
    assert member.claims() == tps([0, 1])
    member.released(tps([1]))
    assert member.claims() == tps([0])
    assert member.is_settled


def test_what_the_application_never_had_is_given_up_at_once():
    member = Reconciliation()
    member.apply(generation(1), tps([0]))
    take(member, 1, tps([0]))
    member.apply(generation(2), frozenset())
    assert (member.to_release, member.claims()) == (set(), frozenset())


def test_what_a_skipped_generation_gave_away_is_released_and_taken_anew():
    """✗ A sleeper skips the generation in which another owned its partition, and goes on under its old stamp."""
    member = a_member(1, [0, 1])
    member.apply(generation(2), tps([0]))
    member.apply(generation(3), tps([0, 1]))
    assert member.to_release == tps([1])
    assert member.takeable([], written=member.claims()) == frozenset()
    member.released(tps([1]))
    assert member.takeable([], written=member.claims()) == tps([1])
    take(member, 3, tps([1]))
    member.hand_over()
    assert member.stamps(tps([0, 1])) == {
        TopicPartition("t", 0): Stamp(1, "me"),
        TopicPartition("t", 1): Stamp(3, "me"),
    }


def test_a_stamp_that_was_written_too_late_gives_nothing():
    member = Reconciliation()
    member.apply(generation(1), tps([0, 1]))
    member.begin_take(tps([0, 1]), Stamp(1, "me"))
    member.apply(generation(2), tps([1]))
    member.taken(Stamp(1, "me"), {p: a_row(Stamp(1, "me")) for p in tps([0, 1])})
    assert member.held.keys() == tps([1])


def test_a_stamp_that_could_not_be_written_is_tried_again():
    member = Reconciliation()
    member.apply(generation(1), tps([0]))
    member.begin_take(tps([0]), Stamp(1, "me"))
    member.not_taken(Stamp(1, "me"))
    assert member.takeable([], written=member.claims()) == tps([0])


def test_an_eager_member_gives_up_everything_before_it_takes_anything():
    member = a_member(1, [0, 1], is_eager=True)
    member.apply(generation(2), tps([1, 2]))
    assert member.to_release == tps([0, 1])
    assert member.takeable([], written=member.claims()) == frozenset()
    member.released(tps([0, 1]))
    assert member.takeable([], written=member.claims()) == tps([1, 2])


def test_an_eager_member_takes_nothing_over_from_an_older_generation():
    member = Reconciliation(is_eager=True)
    member.apply(generation(1), tps([0]))
    member.begin_take(tps([0]), Stamp(1, "me"))
    member.apply(generation(2), tps([0]))
    member.taken(Stamp(1, "me"), {p: a_row(Stamp(1, "me")) for p in tps([0])})
    assert member.held == {}
    assert member.takeable([], written=member.claims()) == tps([0])


def test_losing_everything_tells_only_what_the_application_had():
    member = a_member(1, [0])
    member.apply(generation(2), tps([0, 1, 2]))
    take(member, 2, tps([1]))
    member.begin_take(tps([2]), Stamp(2, "me"))
    member.lose_all()
    assert member.lost == tps([0])
    assert (member.claims(), member.held, member.taking, member.generation) == (frozenset(), {}, {}, 0)


def test_topics_that_are_no_longer_wanted_go_before_a_generation_says_so():
    member = a_member(1, [0])
    member.apply(generation(2), tps([0]) | tps([0], "u"), topics=frozenset({"t"}))
    assert member.target == tps([0])
    member.restrict(frozenset({"u"}))
    assert (member.to_release, member.target) == (set(tps([0])), tps([0], "u"))


def test_the_counts_of_partitions_that_the_group_began_with_come_with_the_generation():
    assert a_member(1, [0]).first_counts == {"t": 3}


def test_the_counts_of_before_are_those_where_the_group_has_committed():
    topics = {name: TopicFacts(topic_id="id", partition_count=4, first_count=3, earlier_count=1) for name in "tuv"}
    plan = GenerationPlan(members={}, topics=topics, assignment={}, created_ms=0)
    member = Reconciliation()
    member.apply(Generation(version=1, token="", plan=plan), tps([0]))
    assert member.first_counts == {"t": 3, "u": 3, "v": 3}
    row = replace(a_row(Stamp(1, "me")), committed=OffsetAndMetadata(1))
    at_t, at_u, at_v = (TopicPartition(name, 0) for name in "tuv")
    rows = {at_t: row, at_u: replace(row, committed=None), at_v: replace(row, topic_id="of before")}
    member.taken(Stamp(1, "me"), rows)
    assert member.first_counts == {"t": 1, "u": 3, "v": 3}


def test_of_two_takes_under_one_stamp_each_brings_what_it_has_written():
    """✗ The first that is done marks what the second was to take as held, too, with a row of another's stamp: the
    member reads a partition that it never took."""
    p0, p1 = TopicPartition("t", 0), TopicPartition("t", 1)
    mine, other = Stamp(2, "me"), Stamp(1, "other")
    member = Reconciliation()
    member.apply(generation(2), tps([0, 1]))
    member.begin_take([p0], mine)
    member.begin_take([p1], mine)
    member.taken(mine, {p0: a_row(mine), p1: a_row(other)})
    assert member.held.keys() == {p0}
    member.taken(mine, {p0: a_row(mine), p1: a_row(mine)})
    assert member.held.keys() == {p0, p1}
