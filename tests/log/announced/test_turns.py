"""When a writer may create, and how often it looks."""

import pytest

from sparklog.log.announced.turns import Turns, is_on


def turns(chance=1.0):
    return Turns(lambda: chance)


def test_group_commit_is_on_for_five_seconds_after_an_entry_that_asked_for_it():
    assert not is_on(float("-inf"), 0.0)
    assert is_on(0.0, 5_000.0)
    assert not is_on(0.0, 5_001.0)


def test_a_lone_writer_goes_at_once():
    assert turns().draw(100.0, is_creator=False, left_ms=10_000) == 100.0


def test_who_created_the_newest_version_goes_at_once():
    busy = turns()
    busy.observe(["1", "2", "3"], 100.0)
    assert busy.draw(100.0, is_creator=True, left_ms=10_000) == 100.0
    assert busy.draw(100.0, is_creator=False, left_ms=10_000) > 100.0


@pytest.mark.parametrize(("others", "left_ms", "wait_ms"), [(3, 60_000, 90), (1_000, 60_000, 1_500), (1_000, 400, 100)])
def test_a_turn_comes_the_later_the_more_others_there_are_within_bounds(others, left_ms, wait_ms):
    busy = turns()
    busy.note_cycle(90)
    busy.observe([str(number) for number in range(others)], 0.0)
    assert busy.draw(0.0, is_creator=False, left_ms=left_ms) == pytest.approx(wait_ms)


def test_others_count_for_a_second():
    busy = turns()
    busy.observe(["1"], 0.0)
    assert busy.draw(1_000.0, is_creator=False, left_ms=10_000) > 1_000.0
    assert busy.draw(1_001.0, is_creator=False, left_ms=10_000) == 1_001.0


@pytest.mark.parametrize(("lost_races", "wait_ms"), [(1, 90), (8, 720), (9, 720)])
def test_after_a_loss_the_turn_comes_the_later_the_more_were_lost(lost_races, wait_ms):
    busy = turns()
    busy.note_cycle(90)
    assert busy.draw_after_loss(0.0, lost_races=lost_races, left_ms=60_000) == pytest.approx(wait_ms)


def test_no_time_is_left_for_a_wait_at_the_deadline():
    busy = turns()
    busy.observe(["1"], 0.0)
    assert busy.draw(0.0, is_creator=False, left_ms=0) == 0.0
    assert busy.draw_after_loss(0.0, lost_races=3, left_ms=-5) == 0.0


def test_a_cycle_is_a_second_at_most():
    slow = turns()
    slow.note_cycle(60_000)
    assert slow.look_every_ms == pytest.approx(350)


@pytest.mark.parametrize(("entries", "ahead"), [(0, 1), (26, 1), (80, 3), (1_000, 8)])
def test_a_look_reads_as_many_versions_as_are_to_be_expected(entries, ahead):
    busy = turns()
    busy.note_cycle(100)
    for _ in range(entries):
        busy.observe([], 0.0)
    assert busy.ahead(500.0) == ahead
