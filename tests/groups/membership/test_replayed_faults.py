"""Interleavings that once broke a group, each played again.

In simulated time: what of a schedule of ``proof.simulation`` mattered, and no more.
"""

from __future__ import annotations

import pytest

from sparklog.errors import FencedInstanceIdError
from sparklog.model import TopicPartition
from sparklog.testing import Fault, FaultKind
from tests.groups.support import INTERVAL_MS, SESSION_MS, Player, World, partitions


def is_fenced(player: Player) -> bool:
    return any(isinstance(error, FencedInstanceIdError) for error in player.errors)


def test_a_subscription_taken_back_before_anybody_saw_it_gives_everything_back():
    """✗ Other topics are subscribed to, and the old ones again, between two rounds: nobody saw a change, so no
    generation comes, and the partitions that were given up at once are nobody's for ever."""
    world = World(topics={"t": 2, "u": 1})
    member = world.player("a", "t")
    world.settle()
    member.subscribe("u")
    member.subscribe("t")
    world.run(INTERVAL_MS)
    world.settle()
    assert member.handed() == partitions("t", 0, 1)
    assert world.violations == []


@pytest.mark.slow
def test_of_two_that_come_to_replace_one_static_member_one_stays():
    """✗ The second takes the place, the third takes it from the second, which comes back under another id and takes it
    from the third: a generation each round, and nobody is fenced."""
    world = World()
    world.player("m")
    old = world.player("old", instance_id="i", session_ms=60_000)
    world.settle()
    old.crash()
    both = [world.player(name, instance_id="i", session_ms=60_000) for name in ("z-second", "a-third")]
    before = world.generation
    world.run(50_000)
    assert sorted(is_fenced(player) for player in both) == [False, True]
    assert world.generation <= before + 2
    world.settle()


def test_of_two_with_one_instance_id_that_both_sleep_the_younger_stays():
    """✗ The older one sleeps, a younger one takes its place, and sleeps too: to those who look, both live, and the
    place goes back and forth."""
    world = World()
    world.player("m", session_ms=60_000)
    old = world.player("old", instance_id="i", session_ms=60_000)
    world.settle()
    old.pause(30_000)
    new = world.player("new", instance_id="i", session_ms=60_000)
    world.settle()
    new.pause(20_000)
    before = world.generation
    world.run(20_000)
    assert world.generation == before
    world.run(10_000)
    world.settle()
    assert (is_fenced(old), is_fenced(new)) == (True, False)


@pytest.mark.slow
def test_a_static_member_that_wakes_after_it_was_replaced_is_fenced():
    """✗ It slept for longer than its session, so it begins a new stay: under its new id it looks like one that
    restarts, and fences the one that replaced it."""
    world = World()
    world.player("m")
    old = world.player("old", instance_id="i")
    world.settle()
    old.pause(3 * SESSION_MS)
    world.run(1_000)
    new = world.player("new", instance_id="i")
    world.settle()
    world.run(3 * SESSION_MS)
    world.settle()
    assert (is_fenced(old), new.errors) == (True, [])


def test_partitions_of_a_topic_that_was_made_anew_are_taken_anew():
    """✗ The topic is deleted and created again; the member that has its partitions keeps them under the old stamps, and
    what was committed for the old topic is the new one's."""
    world = World(topics={"t": 2})
    member = world.player("a", "t", commits=False, metadata_ms=1_000)
    world.settle()
    assert member.commit({TopicPartition("t", 0): 7}, member.stamps()) is None
    before = member.stamps()
    world.delete_topic("t")
    world.create_topic("t", 2)
    world.run(8_000)
    assert world.committed() == {}
    assert member.stamps().keys() == before.keys()
    assert not member.stamps().items() & before.items()


def test_what_was_lost_and_taken_again_is_committed_only_once_the_application_knows():
    """G1. ✗ While the application is busy its member is taken for dead, joins again and takes the same partitions; the
    application commits what it processed under the new stamp, and the offsets go back behind the heir's. Found by the
    simulation: seed 200967 with threads."""
    world = World(topics={"t": 1})
    member = world.player("a", commits=False)
    world.settle()
    before = member.stamps()
    member.is_polling = False
    member.membership.lose()
    world.run(INTERVAL_MS)
    membership, taken = member.membership, member.stamps()
    assert taken.keys() == before.keys()
    assert not taken.items() & before.items()
    assert membership.stamps(taken) == {}
    assert membership.hand_over() == {}  # or it would be told that it lost what it has just got
    assert membership.take_lost() == taken.keys()
    assert membership.hand_over().keys() == taken.keys()
    assert membership.stamps(taken) == taken


def test_an_eager_member_keeps_everything_when_another_static_one_comes_back():
    """✗ An eager member gives everything up at each generation, also at the one that only names the other's new id."""
    world = World()
    member = world.player("m", assignors=("range",), is_eager=True)
    old = world.player("old", assignors=("range",), is_eager=True, instance_id="i")
    world.settle()
    stamps = member.stamps()
    old.crash()
    new = world.player("new", assignors=("range",), is_eager=True, instance_id="i")
    world.run(2_000)
    world.settle()
    assert member.stamps() == stamps
    assert new.handed()


def test_a_generation_whose_fate_is_unknown_for_long_is_no_error_of_the_applications():
    """✗ No create is answered for longer than a round may last: what the next round settles, the application was told
    as an error that can't be mended."""
    world = World()
    unanswered = Fault(
        kind=FaultKind.LOST_ANSWER,
        ops=("create",),
        path="generations",
        times=None,
        when=lambda call: world.now < 20_000,
    )
    member = world.player("a", faults=[unanswered])
    world.run(20_000)
    world.settle()
    assert member.errors == []


def test_partitions_that_nobody_knows_to_be_taken_are_no_error_of_the_applications():
    """✗ No create in the offset table is answered for longer than a take may last: it is taken again under the same
    stamp, but the application was told an error that can't be mended."""
    world = World()
    unanswered = Fault(
        kind=FaultKind.LOST_ANSWER, ops=("create",), path="offsets", times=None, when=lambda call: world.now < 20_000
    )
    member = world.player("a", faults=[unanswered])
    world.run(20_000)
    world.settle()
    assert member.errors == []
    assert len(member.told("assigned")) == 1
