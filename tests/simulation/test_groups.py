"""Random schedules of join, leave, crash, pause, slow and unreachable stores: what groups promise holds in each.

A schedule's violations name the moment and the members; the same seed plays the same schedule again.
"""

from __future__ import annotations

import pytest

from tests.simulation.group_schedules import cheap_rows, run_schedule


def violations(first_seed: int, count: int) -> dict[int, list[str]]:
    """Of the seeds whose schedules break a promise: no partition with two owners, offsets that don't go back, and a
    group that settles."""
    found = {}
    with cheap_rows():
        for seed in range(first_seed, first_seed + count):
            broken = list(run_schedule(seed).violations)
            if broken:
                found[seed] = broken
    return found


def test_a_few_schedules_keep_every_promise():
    assert violations(0, 12) == {}


@pytest.mark.slow
def test_many_schedules_keep_every_promise():
    assert violations(1_000, 500) == {}
