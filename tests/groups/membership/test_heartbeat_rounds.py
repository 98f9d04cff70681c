"""Members on one store, round by round: joining, taking over, coming back, and what a round costs."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from sparklog.errors import CommitFailedError, FencedInstanceIdError
from sparklog.groups.membership.member_state import decode_member
from sparklog.log import create_partitions, create_topic
from sparklog.model import TopicPartition
from sparklog.paths import member_state
from sparklog.testing import Fault, FaultKind
from tests.depth import each_nth
from tests.groups.membership.support import INTERVAL_MS, SESSION_MS, Group, Member, owned_once


def test_a_lone_member_has_everything_after_its_first_round():
    group = Group()
    member = Member(group, "a")
    member.round()
    assert owned_once(member) == [0, 1, 2, 3]


def test_members_that_come_and_go_share_every_partition_once():
    group = Group()
    members = [Member(group, name) for name in "abc"]
    group.rounds(*members[:1])
    group.rounds(*members)
    assert owned_once(*members) == [0, 1, 2, 3]
    assert [bool(member.has) for member in members] == [True, True, True]
    members[1].has.clear()
    members[1].membership.unsubscribe()
    members[1].loop.leave()
    group.rounds(members[0], members[2])
    assert owned_once(members[0], members[2]) == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(16))
def test_whoever_joins_within_anothers_first_round_is_not_left_out(at: int, is_late: bool):
    """✗ One lists the members; another joins, creates a generation and takes everything; the first finds that
    generation, takes its only member for gone, and gives its partitions away."""
    group = Group()
    slow, quick = Member(group, "a"), Member(group, "b")
    slow.interrupted.interrupt(quick.round, at=at, after=is_late)
    slow.round()
    assert slow.interrupted.call_count > at, "the round has fewer calls than this test takes it to have"
    group.rounds(slow, quick)
    assert owned_once(slow, quick) == [0, 1, 2, 3]
    assert (slow.lost, quick.lost) == (set(), set())


def test_a_newcomer_goes_on_at_what_was_committed():
    group = Group()
    first, second = Member(group, "a"), Member(group, "b")
    first.round()
    assert first.commit(17) is None
    group.rounds(first, second)
    assert set(second.has.values()) == {17}


def test_others_take_over_from_a_dead_member_within_two_sessions():
    group = Group()
    first, second = Member(group, "a"), Member(group, "b")
    group.rounds(first, second)
    assert first.commit(5) is None
    began = group.clock.ticks_ms()
    while len(second.has) < 4:
        group.rounds(second, intervals=1)
    assert SESSION_MS - INTERVAL_MS <= group.clock.ticks_ms() - began <= 2 * SESSION_MS


def test_who_lost_everything_is_known_by_its_old_id_until_the_application_was_told():
    """G1. ✗ A sleeper is back under another id and has its partitions again before its application knows: the offsets
    of what it had read before become part of a transaction under the new id."""
    group = Group()
    first, second = Member(group, "a"), Member(group, "b")
    group.rounds(first, second)
    old_id = first.membership.metadata().member_id
    group.rounds(second, intervals=40)
    for _ in range(8):
        group.clock.advance(INTERVAL_MS)
        first.loop.run_round()
        second.round()
    assert first.membership.member_id not in ("", old_id)
    assert first.membership.metadata().member_id == old_id
    first.app()
    assert first.membership.metadata().member_id == first.membership.member_id


def test_a_sleeper_loses_everything_and_its_stale_commit_is_refused_after_it_rejoins():
    """G1, G2. ✗ A sleeper skips the generation in which another owned its partition, gets it back, and sends its stale
    buffer."""
    group = Group()
    first, second = Member(group, "a"), Member(group, "b")
    group.rounds(first, second)
    stale, old_id = first.stamps(), first.membership.member_id
    group.rounds(second, intervals=40)
    assert len(second.has) == 4
    assert second.commit(9) is None
    group.rounds(first, second)
    assert first.lost == stale.keys()
    assert first.membership.member_id not in ("", old_id)
    assert owned_once(first, second) == [0, 1, 2, 3]
    assert isinstance(first.commit(3, stale), CommitFailedError)
    assert set(first.has.values()) == {9}


def test_a_static_member_comes_back_at_once_and_nothing_moves():
    group = Group()
    before, other = Member(group, "a", instance_id="i"), Member(group, "b")
    group.rounds(before, other)
    had, others, stamps = set(before.has), dict(other.stamps()), before.stamps()
    after = Member(group, "a", instance_id="i")
    group.rounds(after, other, intervals=1)
    assert set(after.has) == had
    assert other.stamps() == others
    assert isinstance(before.commit(1, stamps), CommitFailedError)
    before.round()
    with pytest.raises(FencedInstanceIdError):
        before.membership.raise_error()


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "taken for dead"])
@pytest.mark.parametrize("rounds", range(4))
@pytest.mark.parametrize("at", each_nth(range(7), 2))
def test_a_static_member_that_comes_back_twice_within_a_moment_has_its_partitions(
    at: int, rounds: int, is_killed: bool
):
    """✗ The second is killed before a generation has it; the third comes within another member's round, which doesn't
    see it any more and proposes the second; the third takes that for a member that replaced it. Found by the
    simulation: seed 908523."""
    group = Group()
    other, first = Member(group, "b"), Member(group, "a", instance_id="i")
    group.rounds(other, first)
    had = set(first.has)
    second = Member(group, "a", instance_id="i")
    third = Member(group, "a", instance_id="i") if is_killed else second
    second.round()
    for _ in range(rounds):
        other.round()
        second.round()
        group.clock.advance(INTERVAL_MS / 10)
    if not is_killed:
        second.membership.lose()  # and joins under another id
    other.interrupted.interrupt(third.round, at=at, after=False)
    other.round()
    assert other.interrupted.call_count >= min(at, 3)
    group.rounds(other, third)
    third.membership.raise_error()
    assert set(third.has) == had
    assert owned_once(other, third) == [0, 1, 2, 3]


def one_that_comes_back_again(**arguments: Any) -> tuple[Group, Member, Member, set[TopicPartition]]:
    """A group whose static member came back, was seen to live, and died.

    Returns:
        The group, its other member, the static member as it comes back once more, and what it had at first.
    """
    group = Group()
    other, first = Member(group, "b"), Member(group, "a", instance_id="i")
    group.rounds(other, first)
    had = set(first.has)
    second = Member(group, "a", instance_id="i")
    for _ in range(2):
        second.round()
        other.round()
        group.clock.advance(INTERVAL_MS / 10)
    return group, other, Member(group, "a", instance_id="i", **arguments), had


TROUBLES = [FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER, FaultKind.THROTTLED, FaultKind.LOST_ANSWER]


@pytest.mark.slow
@pytest.mark.parametrize("kind", TROUBLES, ids=lambda kind: kind.name.lower())
def test_a_static_member_may_meet_trouble_at_any_call_as_it_comes_back(kind: FaultKind):
    """Of those that die the next one takes the place, whatever was written."""
    for at in each_nth(range(100), 3):
        group, other, third, had = one_that_comes_back_again(faults=[Fault(kind=kind, at=at)])
        group.rounds(other, third, intervals=1)
        if len(third.store.calls) <= at:
            break
        newest = Member(group, "a", instance_id="i") if third.is_dead else third
        group.rounds(other, newest, intervals=8)
        newest.membership.raise_error()
        assert set(newest.has) == had
        assert owned_once(other, newest) == [0, 1, 2, 3]
    assert 20 <= at < 99


@pytest.mark.slow
@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
def test_a_static_member_may_sleep_beyond_its_session_at_any_call_as_it_comes_back(is_late: bool):
    for at in each_nth(range(100), 3):
        group, other, third, _ = one_that_comes_back_again()
        asleep = partial(group.rounds, other, intervals=3 * SESSION_MS / INTERVAL_MS)
        third.interrupted.interrupt(asleep, at=at, after=is_late)
        third.round()
        if third.interrupted.call_count <= at:
            break
        group.settle(other, third)
        third.membership.raise_error()
        assert owned_once(other, third) == [0, 1, 2, 3]
        assert len(third.has) == 2
    assert 8 <= at < 99


def test_a_static_member_looks_once_more_as_it_joins():
    group = Group()
    dynamic, static = Member(group, "a"), Member(Group(), "a", instance_id="i")
    dynamic.round()
    static.round()
    plain, with_look = (Counter(call.op for call in member.store.calls) for member in (dynamic, static))
    assert with_look - plain == {"list": 1}
    assert plain - with_look == {}


def test_of_two_static_members_the_one_that_came_last_has_the_partitions():
    """Source: Kafka: a member that joins with an instance id fences the one that has it."""
    group = Group()
    other, older = Member(group, "b"), Member(group, "a", instance_id="i")
    older.round()
    newer = Member(group, "a", instance_id="i")
    newer.round()
    group.rounds(other, older, newer)
    with pytest.raises(FencedInstanceIdError):
        older.membership.raise_error()
    newer.membership.raise_error()
    assert owned_once(other, newer) == [0, 1, 2, 3]


def test_partitions_that_are_added_are_handed_out():
    group = Group()
    members = [Member(group, name) for name in "ab"]
    group.rounds(*members)
    create_partitions(group.cluster(group.memory).topic_log("t"), "t", 6)
    members[1].membership.report_topics({"t": (group.topic_id, 6)})  # as its own reading would have found it
    group.rounds(*members)
    assert owned_once(*members) == [0, 1, 2, 3, 4, 5]


def test_a_member_that_slept_for_less_than_its_session_loses_nothing():
    group = Group()
    first, second = Member(group, "a"), Member(group, "b")
    group.rounds(first, second)
    kept = second.stamps()
    group.rounds(second, intervals=3)  # ``first`` sleeps, shorter than its session
    group.rounds(first, second)
    assert {p: s for p, s in second.stamps().items() if p in kept} == kept
    assert (first.lost, second.lost) == (set(), set())


@pytest.mark.parametrize("size", [1, 2, 10])
def test_a_steady_member_costs_three_requests_per_heartbeat_whatever_the_groups_size(size):
    """G4."""
    group = Group(partitions=10)
    members = [Member(group, f"m{number}") for number in range(size)]
    group.rounds(*members, intervals=6)
    before = [len(member.store.calls) for member in members]
    for _ in range(3):
        group.clock.advance(INTERVAL_MS)
        for member in members:
            assert member.round() == INTERVAL_MS
    for member, seen in zip(members, before, strict=True):
        assert Counter(call.op for call in member.store.calls[seen:]) == {"put": 3, "list": 3, "get": 3}


@pytest.mark.slow
def test_fifty_members_that_come_at_once_settle_within_three_heartbeat_intervals():
    group = Group(partitions=100)
    members = [Member(group, f"m{number:02}") for number in range(50)]
    group.rounds(*members, intervals=3)
    assert owned_once(*members) == list(range(100))
    assert {len(member.has) for member in members} == {2}


def test_a_group_that_died_out_hinders_nobody_with_another_assignor():
    """✗ All members die; those that are started again name another assignor, and each is refused because of the
    generation of the dead."""
    group = Group()
    group.rounds(Member(group, "a", strategy="range"))
    member = Member(group, "b", strategy="roundrobin")
    group.settle(member)
    member.membership.raise_error()
    assert owned_once(member) == [0, 1, 2, 3]


def test_a_topic_that_can_not_be_read_costs_the_other_topics_nothing():
    """✗ Looking for the topics fails before the heartbeat is written: the group goes on without the member."""
    group = Group()
    create_topic(group.cluster(group.memory).topic_log("u"), "u")
    member = Member(group, "a")
    member.membership.subscribe(["t", "u"], None)
    group.rounds(member)
    group.memory.put("topics/u/_delta_log/00000000000000000000.json", b"{")
    group.rounds(member, intervals=150)  # longer than the topics are known for, and a session
    assert (len(member.has), member.lost) == (5, set())


def test_a_sign_of_life_during_a_slow_listing_is_not_taken_for_silence():
    """✗ A member's heartbeat comes while the listing of another is answered, which takes as long as its session lacked:
    the time of the answer counts as silence, and it is taken for dead though it lives (G3)."""
    group = Group()
    slow, other = Member(group, "a"), Member(group, "b")
    group.rounds(slow, other)
    for _ in range(2):
        group.clock.advance(1_000)
        slow.round()
        other.round()

    def answer_slowly() -> None:
        group.clock.advance(1_500)
        slow.round()
        group.clock.advance(4_000)

    for _ in range(14):
        group.clock.advance(INTERVAL_MS)
        other.round()
    other.interrupted.interrupt(answer_slowly, at=2, after=True)
    group.clock.advance(400)
    other.round()
    group.settle(slow, other)
    assert slow.lost == set()


def test_an_older_state_that_lands_late_is_written_over_before_anything_is_taken():
    """✗ The answer to a write is lost, it is repeated, and the first lands after the second: nobody sees what the
    member claims by now."""
    group = Group()
    first, second = Member(group, "a"), Member(group, "b")
    first.loop.run_round()
    path = member_state("g", first.membership.member_id)
    older = group.memory.read(path)
    group.rounds(first, second)
    newer = group.memory.read(path)
    assert older != newer
    group.memory.put(path, older)
    first.round()
    assert decode_member(path, group.memory.read(path)) == decode_member(path, newer)
    assert (first.lost, owned_once(first, second)) == (set(), [0, 1, 2, 3])
