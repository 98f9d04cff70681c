"""The search itself, on a model small enough to know all of it: two counters that are raised by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from proof.model.search import replay, search

Pair = tuple[int, int]


@dataclass(frozen=True)
class Counters:
    most: int
    forbidden: Pair = (-1, -1)

    def starts(self) -> Iterator[tuple[str, Pair]]:
        yield "zero", (0, 0)

    def moves(self, state: Pair) -> Iterator[tuple[str, Pair]]:
        first, second = state
        if first < self.most:
            yield "first", (first + 1, second)
        if second < self.most:
            yield "second", (first, second + 1)

    def broken(self, state: Pair) -> Iterator[str]:
        if state == self.forbidden:
            yield f"not {state}"


def test_every_state_is_seen_once_and_the_end_is_noticed() -> None:
    found = search(Counters(3), max_depth=100)
    assert (found.state_count, found.move_count, found.is_exhausted) == (16, 24, True)
    assert found.violation is None


@pytest.mark.parametrize(("depth", "states"), [(0, 1), (1, 3), (2, 6), (3, 10)])
def test_a_bound_is_kept(depth: int, states: int) -> None:
    found = search(Counters(9), max_depth=depth)
    assert (found.state_count, found.depth, found.is_exhausted) == (states, depth, False)


def test_the_way_to_a_violation_is_the_shortest_and_can_be_gone_again() -> None:
    model = Counters(9, forbidden=(1, 2))
    violation = search(model, max_depth=9).violation
    assert violation is not None
    assert violation.invariants == ("not (1, 2)",)
    assert sorted(violation.trace) == ["first", "second", "second", "zero"]
    assert replay(model, violation.trace) == (1, 2)
    assert str(violation).splitlines()[0] == "  0  zero"
    assert search(model, max_depth=2).violation is None


def test_a_start_may_be_wrong() -> None:
    violation = search(Counters(1, forbidden=(0, 0)), max_depth=1).violation
    assert violation is not None
    assert violation.trace == ("zero",)


def test_a_step_that_isnt_possible_cant_be_replayed() -> None:
    with pytest.raises(LookupError, match=r"'first' isn't possible here; expected one of \['second'\]"):
        replay(Counters(1), ("zero", "first", "first"))


def test_more_states_than_were_allowed_for_are_no_proof() -> None:
    with pytest.raises(MemoryError, match="more than 5 states within 2 of 9 steps"):
        search(Counters(9), max_depth=9, max_states=5)
