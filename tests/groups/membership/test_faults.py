"""Bad days of a group, round by round: members die or sleep at any store call, the store goes away.

Whatever befalls them, those who live share every partition once, nothing that was committed moves, and whoever slept
for too long can't commit any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest

from sparklog.errors import CommitFailedError, StoreOutcomeUnknownError
from sparklog.groups.admin.administration import delete_group
from sparklog.groups.offsets.changes import GENERATION_FENCE
from sparklog.groups.offsets.rows import Stamp
from sparklog.log import create_topic, delete_topic
from sparklog.model import TopicPartition
from sparklog.paths import generation_path
from sparklog.testing import Call, SimulatedCrash
from tests.depth import WALK, by_depth
from tests.groups.membership.support import INTERVAL_MS, NO_TRANSACTIONS, SESSION_MS, Group, Member, owned_once

HOUR_MS = 3_600_000
COMMITTED = 17


class Trouble(NamedTuple):
    """What befalls a member at one of its store calls."""

    befall: Callable[[Pair, Member], object]
    is_late: bool
    """After the call was carried out, before its answer is seen."""


class Pair:
    """One member that has everything and has committed it, and one that joins: then each has half of it."""

    def __init__(self, *, is_eager: bool = False, max_poll_interval_ms: int = 10**9) -> None:
        self.group = Group()
        self.owner, self.newcomer = (
            Member(self.group, name, is_eager=is_eager, max_poll_interval_ms=max_poll_interval_ms) for name in "ab"
        )
        self.owner.round()
        assert self.owner.commit(COMMITTED) is None
        self.stale: Mapping[TopicPartition, Stamp] = {}
        """The stamps of the one who sleeps."""

    def play(self) -> None:
        """The newcomer joins, the owner hands over, both go on."""
        self.group.rounds(self.owner, self.newcomer, intervals=3)

    def other(self, member: Member) -> Member:
        return self.newcomer if member is self.owner else self.owner

    def crash(self, victim: Member) -> None:
        raise SimulatedCrash

    def lose(self, victim: Member) -> None:
        raise StoreOutcomeUnknownError("nobody knows (injected)")

    def sleep(self, victim: Member) -> None:
        """An hour, in which the other one lives."""
        self.stale = victim.stamps()
        ends = self.group.clock.ticks_ms() + HOUR_MS
        self.group.settle(self.other(victim))
        while self.group.clock.ticks_ms() < ends:
            self.group.clock.advance(SESSION_MS / 2)
            self.other(victim).round()

    def check(self) -> None:
        """All is settled, and nothing was lost."""
        living = [member for member in (self.owner, self.newcomer) if not member.is_dead]
        assert owned_once(*living) == [0, 1, 2, 3]
        assert all(member.has for member in living)
        rows = self.group.rows
        for member in living:
            stamps = member.stamps()
            assert stamps == {partition: rows[partition].stamp for partition in member.has}
        assert {row.committed and row.committed.offset for row in rows.values()} == {COMMITTED}


TROUBLES = {
    "crash-before": Trouble(Pair.crash, False),
    "crash-after": Trouble(Pair.crash, True),
    "lost-request": Trouble(Pair.lose, False),
    "lost-answer": Trouble(Pair.lose, True),
    "sleep-before": Trouble(Pair.sleep, False),
    "sleep-after": Trouble(Pair.sleep, True),
}


def play(kind: str, victim_name: str, at: int, *, is_eager: bool) -> bool:
    """Let trouble befall one of the two at its call of this number; False where it makes no such call."""
    trouble, pair = TROUBLES[kind], Pair(is_eager=is_eager)
    victim: Member = getattr(pair, victim_name)
    victim.interrupted.interrupt(lambda: trouble.befall(pair, victim), at=at, after=trouble.is_late)
    pair.play()
    if victim.interrupted.call_count <= at:
        return False
    pair.group.settle(pair.owner, pair.newcomer)
    pair.check()
    assert pair.other(victim).lost == set()
    if trouble.befall == Pair.sleep:
        assert victim.lost == pair.stale.keys()
        assert not pair.stale or isinstance(victim.commit(3, pair.stale), CommitFailedError)
    else:
        assert victim.lost == set()
    pair.check()
    return True


def play_all(kind: str, victim: str, *, is_eager: bool, first: int, every: int) -> int:
    """Play with trouble at one call after the other; how many games that makes."""
    at = first
    while play(kind, victim, at, is_eager=is_eager):
        at += every
    return (at - first) // every


@pytest.mark.parametrize("victim", ["newcomer", "owner"])
@pytest.mark.parametrize("kind", TROUBLES)
def test_joining_and_handing_over_with_trouble_at_some_calls(kind: str, victim: str):
    number = [*TROUBLES].index(kind)
    assert play_all(kind, victim, is_eager=number % 3 == 2, first=number, every=11) > 1


@pytest.mark.slow
@pytest.mark.parametrize("is_eager", [False, True], ids=["cooperative", "eager"])
@pytest.mark.parametrize("victim", ["newcomer", "owner"])
@pytest.mark.parametrize("kind", TROUBLES)
def test_joining_and_handing_over_with_trouble_at_any_call(kind: str, victim: str, is_eager: bool):
    every = by_depth(gate=10, nightly=1)
    games = play_all(kind, victim, is_eager=is_eager, first=WALK % every, every=every)
    assert games > {"newcomer": 40, "owner": 15}[victim] // every - 1


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("kind", TROUBLES)
def test_a_steady_round_with_trouble_at_each_of_its_calls(kind: str, at: int):
    trouble, pair = TROUBLES[kind], Pair()
    pair.play()
    pair.owner.interrupted.interrupt(lambda: trouble.befall(pair, pair.owner), at=at, after=trouble.is_late)
    pair.owner.round()
    assert pair.owner.interrupted.call_count > at
    pair.group.settle(pair.owner, pair.newcomer)
    pair.check()
    assert pair.owner.lost == pair.stale.keys()
    assert pair.newcomer.lost == set()


def elect(contest: tuple[int, int] | None = None) -> tuple[Group, list[Member]]:
    """One of three dies; the two others find out and go on.

    Args:
        contest: which of the two stalls, at its call of which number; the other finds out and acts meanwhile.
    """
    group = Group()
    dead, *others = (Member(group, name) for name in "abc")

    def act() -> None:
        for _ in range(5):
            group.clock.advance(INTERVAL_MS)
            other.round()

    if contest is not None:
        who, at = contest
        other = others[1 - who]
        others[who].interrupted.interrupt(act, at=at, after=False)
    group.rounds(dead, *others)
    assert dead.commit(COMMITTED) is None
    group.settle(*others)
    return group, others


def test_of_two_that_propose_the_next_generation_at_once_one_wins_and_both_settle():
    group, members = elect()
    newest = group.generation
    proposal = Call("create", generation_path("g", newest))
    [contest] = [
        (who, one.store.calls.index(proposal)) for who, one in enumerate(members) if proposal in one.store.calls
    ]
    group, members = elect(contest)
    assert all(proposal in member.store.calls for member in members)
    assert group.generation == newest
    assert owned_once(*members) == [0, 1, 2, 3]
    assert [member.lost for member in members] == [set(), set()]
    assert {row.committed and row.committed.offset for row in group.rows.values()} >= {COMMITTED}


def test_what_one_released_and_a_dead_one_never_took_is_taken_by_others():
    pair = Pair()
    while len(pair.owner.has) == 4:
        pair.newcomer.round()
        pair.group.clock.advance(INTERVAL_MS / 10)
        pair.owner.round()
    assert not pair.newcomer.has
    pair.newcomer.is_dead = True
    third = Member(pair.group, "c")
    pair.group.settle(pair.owner, third)
    assert owned_once(pair.owner, third) == [0, 1, 2, 3]
    assert set(third.has.values()) == {COMMITTED}
    assert (pair.owner.lost, third.lost) == (set(), set())


# Without a store


def test_a_store_that_nobody_reaches_for_half_a_minute_costs_nobody_anything():
    pair = Pair()
    pair.play()
    kept, generation = {**pair.owner.stamps(), **pair.newcomer.stamps()}, pair.group.generation
    with pair.group.away():
        pair.group.rounds(pair.owner, pair.newcomer, intervals=10)
    pair.group.settle(pair.owner, pair.newcomer)
    assert {**pair.owner.stamps(), **pair.newcomer.stamps()} == kept
    assert (pair.owner.lost, pair.newcomer.lost) == (set(), set())
    assert pair.group.generation == generation
    pair.check()


def test_a_store_that_one_does_not_reach_for_half_a_minute_costs_nobody_anything():
    pair = Pair()
    pair.play()
    generation = pair.group.generation
    pair.owner.is_away = True
    pair.group.rounds(pair.owner, pair.newcomer, intervals=10)
    pair.owner.is_away = False
    pair.group.settle(pair.owner, pair.newcomer)
    assert (pair.owner.lost, pair.newcomer.lost) == (set(), set())
    assert pair.group.generation == generation
    pair.check()


def test_after_a_store_outage_longer_than_a_session_all_members_come_back():
    pair = Pair()
    pair.play()
    stale = {member: member.stamps() for member in (pair.owner, pair.newcomer)}
    with pair.group.away():
        pair.group.settle(pair.owner, pair.newcomer)
        assert owned_once(pair.owner, pair.newcomer) == []
    pair.group.settle(pair.owner, pair.newcomer)
    pair.check()
    for member, stamps in stale.items():
        assert member.lost == stamps.keys()
        assert isinstance(member.commit(3, stamps), CommitFailedError)


def test_a_member_cut_off_from_the_store_gives_up_before_the_other_takes_over():
    pair = Pair()
    pair.play()
    stale = pair.owner.stamps()
    pair.owner.is_away = True
    while len(pair.newcomer.has) < 4:
        pair.group.rounds(pair.owner, pair.newcomer, intervals=1)
        assert len(owned_once(pair.owner, pair.newcomer)) == len(set(owned_once(pair.owner, pair.newcomer)))
    assert pair.owner.lost == stale.keys()
    pair.owner.is_away = False
    pair.group.settle(pair.owner, pair.newcomer)
    pair.check()
    assert isinstance(pair.owner.commit(3, stale), CommitFailedError)


# Topics that are made anew


def test_a_topic_that_is_made_anew_is_read_from_where_nobody_has_committed():
    pair = Pair()
    pair.play()
    stale = {**pair.owner.stamps(), **pair.newcomer.stamps()}
    log = pair.group.cluster(pair.group.memory).topic_log("t")
    delete_topic(log, "t")
    pair.group.rounds(pair.owner, pair.newcomer)
    assert owned_once(pair.owner, pair.newcomer) == [0, 1, 2, 3]
    create_topic(log, "t", num_partitions=2)
    pair.newcomer.membership.report_topics({"t": (pair.group.topic_id, 2)})  # as its own reading would have found it
    pair.group.rounds(pair.owner, pair.newcomer)
    assert owned_once(pair.owner, pair.newcomer) == [0, 1]
    assert {*pair.owner.has.values(), *pair.newcomer.has.values()} == {0}
    assert isinstance(pair.newcomer.commit(COMMITTED, stale), CommitFailedError)
    assert pair.newcomer.commit(1) is None
    rows = pair.group.rows
    assert {rows[partition].topic_id for partition in pair.newcomer.has} == {pair.group.topic_id}


# An application that doesn't poll


def test_a_member_that_does_not_poll_leaves_and_comes_back_when_it_does():
    pair = Pair(max_poll_interval_ms=2 * INTERVAL_MS)
    pair.play()
    stale, old_id = pair.owner.stamps(), pair.owner.membership.member_id
    pair.owner.is_polling = False
    pair.group.rounds(pair.owner, pair.newcomer, intervals=6)
    assert owned_once(pair.newcomer) == [0, 1, 2, 3]  # long before a session's end
    assert pair.newcomer.commit(COMMITTED + 1) is None
    pair.group.settle(pair.owner, pair.newcomer)
    assert pair.owner.membership.member_id == ""
    assert isinstance(pair.owner.commit(3, stale), CommitFailedError)
    pair.owner.is_polling = True
    pair.owner.app()
    assert pair.owner.lost == stale.keys()
    assert not pair.owner.has
    pair.group.rounds(pair.owner, pair.newcomer)
    assert owned_once(pair.owner, pair.newcomer) == [0, 1, 2, 3]
    assert set(pair.owner.has.values()) == {COMMITTED + 1}
    assert pair.owner.membership.member_id not in ("", old_id)


def test_a_static_member_that_does_not_poll_keeps_its_place_until_its_session_ends():
    """Source: Kafka ``max.poll.interval.ms``: a static member stops to beat, and doesn't leave."""
    group = Group()
    hung = Member(group, "a", instance_id="i", max_poll_interval_ms=2 * INTERVAL_MS)
    other = Member(group, "b")
    group.rounds(hung, other)
    hung.is_polling = False
    group.rounds(hung, other, intervals=6)
    assert len(other.has) == 2
    group.settle(hung, other)
    assert owned_once(other) == [0, 1, 2, 3]
    hung.is_polling = True
    group.rounds(hung, other)
    assert owned_once(hung, other) == [0, 1, 2, 3]
    assert len(hung.has) == 2


# A group that is deleted


@pytest.mark.parametrize("at", range(23))
def test_whoever_sleeps_while_its_group_is_deleted_brings_nothing_back(at: int):
    """✗ It wakes up, finds no row of the partition that it was to take, takes it by a generation that is long gone, and
    commits into the next group of the name."""
    pair = Pair()
    group, sleeper = pair.group, pair.newcomer
    deleted = []

    def delete() -> None:
        group.clock.advance(HOUR_MS)
        delete_group(group.cluster(group.memory), "g", NO_TRANSACTIONS, timeout_ms=0)
        deleted.append(group.generation)

    pair.owner.loop.leave()
    sleeper.interrupted.interrupt(delete, at=at, after=False)
    sleeper.round()
    rows = {partition: row for partition, row in group.rows.items() if partition != GENERATION_FENCE}
    assert all((row.committed, row.stamp.generation > deleted[0]) == (None, True) for row in rows.values())
    group.rounds(sleeper)
    assert {partition.partition: offset for partition, offset in sleeper.has.items()} == dict.fromkeys(range(4), 0)
    assert sleeper.commit(1) is None
