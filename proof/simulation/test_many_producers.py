"""Producers that share a topic on a slow store, in simulated time."""

from __future__ import annotations

import pytest

from proof.simulation.many_producers import measure


@pytest.mark.parametrize("old", [0, pytest.param(1, marks=pytest.mark.deep)])
def test_no_producer_of_eight_waits_for_seconds_behind_the_others(old: int) -> None:
    figures = measure(8, seconds=7, every_ms=50, seed=1, old=old)
    assert not figures.errors
    assert len(figures.later_ms) == 8 * 40
    assert max(figures.first_ms) < 3_000
    assert max(figures.later_ms) < 1_500


def test_producers_of_a_process_read_each_version_for_each_other() -> None:
    apart, together = (measure(8, seconds=8, every_ms=250, seed=1, warm=True, processes=count) for count in (8, 2))
    each, alone = (one.requests["get"] / one.requests["create"] for one in (together, apart))
    assert each < 0.6 * alone
    assert len(together.later_ms) == len(apart.later_ms)
    assert not together.errors
    assert max(together.later_ms) < 1_500


def test_a_lone_producer_has_the_same_requests_with_group_commit_and_without() -> None:
    with_group_commit, without = (measure(1, seconds=3, every_ms=100, seed=1, old=old) for old in (0, 1))
    assert with_group_commit.requests == without.requests
    assert with_group_commit.first_ms == without.first_ms
