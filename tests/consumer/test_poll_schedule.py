"""When topics are looked at: pure, on times that are made up."""

import math
from itertools import pairwise

import pytest

from sparklog.consumer.poll_schedule import PollSchedule


def looks(
    schedule: PollSchedule, topic: str, until_ms: float, *, took_ms: float = 20.0, now: float = 0.0
) -> list[float]:
    """The times of the looks at a topic in which nothing is new after the first."""
    found = []
    is_new = True
    while now < until_ms:
        found.append(now)
        now += took_ms
        schedule.looked({topic: is_new}, now_ms=now, took_ms=took_ms)
        is_new = False
        now = max(now, schedule.next_due_ms([topic]))
    return found


def waits(times: list[float], took_ms: float) -> list[float]:
    return [round(after - before - took_ms, 1) for before, after in pairwise(times)]


def test_a_topic_is_looked_at_at_once_after_news_then_after_waits_up_to_three_looks():
    assert waits(looks(PollSchedule(500), "t", 400), 20.0) == [0.0, 3.8, 5.6, 8.4, 12.7, 19.0, 28.5, 42.7, 60.0]


def test_waits_of_a_quiet_topic_grow_up_to_fetch_max_wait_ms():
    found = waits(looks(PollSchedule(500), "t", 20_000), 20.0)
    assert found == sorted(found)
    assert max(found[:15]) == 60.0
    assert found[-1] == 500.0


@pytest.mark.parametrize(("longest_ms", "expected"), [(0, 1.0), (1, 1.0), (5, 5.0), (50, 50.0), (10_000, 4_000.0)])
def test_fetch_max_wait_ms_is_the_longest_wait(longest_ms, expected):
    """0 means to look without a rest; a fifth of a second for each millisecond that a look takes is enough for any."""
    assert waits(looks(PollSchedule(longest_ms), "t", 200_000 if longest_ms > 50 else 3_000), 20.0)[-1] == expected


@pytest.mark.parametrize(("took_ms", "lately", "later"), [(0.02, 10.0, 50.0), (1.0, 10.0, 200.0), (40.0, 100.0, 500.0)])
def test_waits_are_in_proportion_to_what_a_look_takes(took_ms, lately, later):
    within_a_second = waits(looks(PollSchedule(500), "t", 1_000, took_ms=took_ms), took_ms)
    assert lately / 2 <= max(within_a_second) <= lately
    within_5_seconds = waits(looks(PollSchedule(500), "t", 5_000, took_ms=took_ms), took_ms)
    assert later * 0.8 <= within_5_seconds[-1] <= later


@pytest.mark.parametrize(("took_ms", "longest_ms"), [(0.02, 100.0), (1.0, 200.0), (40.0, 500.0)])
def test_after_long_silence_there_are_ten_looks_a_second_at_most(took_ms, longest_ms):
    found = looks(PollSchedule(500), "t", 100_000, took_ms=took_ms)
    after_ten_seconds = [at for at in found if 10_000 <= at < 20_000]
    assert len(after_ten_seconds) <= 10_000 / 100 + 1
    assert waits(found, took_ms)[-1] == longest_ms
    assert all(wait <= longest_ms for wait in waits(found, took_ms))


def test_a_look_by_another_consumer_counts_but_says_nothing_of_what_looks_take():
    schedule = PollSchedule(500)
    looks(schedule, "t", 20_000)
    schedule.looked({"t": False}, now_ms=30_000, took_ms=None)
    assert schedule.next_due_ms(["t"]) == 30_500
    schedule.postpone({"t", "other"}, now_ms=30_500)
    assert schedule.next_due_ms(["t"]) == 30_510
    assert schedule.due(["other"], 30_500) == {"other"}


def test_news_makes_a_topic_active_again():
    schedule = PollSchedule(500)
    looks(schedule, "t", 10_000)
    schedule.looked({"t": True}, now_ms=10_000, took_ms=20)
    assert schedule.next_due_ms(["t"]) == 10_000
    schedule.looked({"t": False}, now_ms=10_020, took_ms=20)
    assert schedule.next_due_ms(["t"]) < 10_030


def test_a_new_topic_is_due_at_once_and_one_that_is_forgotten_is_new():
    schedule = PollSchedule(500)
    assert schedule.due(["a"], 0.0) == {"a"}
    assert schedule.next_due_ms(["a"]) == -math.inf
    schedule.looked({"a": False}, now_ms=0, took_ms=20)
    assert schedule.due(["a"], 0.0) == set()
    assert schedule.next_due_ms([]) == math.inf
    schedule.keep(["b"])
    assert schedule.due(["a"], 0.0) == {"a"}


def test_quiet_topics_are_looked_at_in_turn_and_no_active_one_waits_for_them():
    schedule = PollSchedule(500)
    topics = [f"t{number:02}" for number in range(50)]
    schedule.looked(dict.fromkeys(topics, True), now_ms=0, took_ms=20)
    for now in (2_000, 60_000):
        schedule.looked(dict.fromkeys(topics, False), now_ms=now, took_ms=20)
    schedule.looked({"t49": True}, now_ms=70_000, took_ms=20)
    turns = []
    for now in range(70_001, 70_005):
        due = schedule.due(topics, now)
        assert "t49" in due
        turns.append(len(due) - 1)
        schedule.looked({topic: topic == "t49" for topic in due}, now_ms=now, took_ms=20)
    assert turns == [16, 16, 16, 1]
