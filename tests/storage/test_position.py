"""L1, the pure half: how long a process may believe what it learns of the next version."""

from __future__ import annotations

import pytest

from sparklog.storage.position import Position, advance, needs_verification

AT_5 = Position(version=5, token="five", anchor_ticks_ms=1_000)


@pytest.mark.parametrize(
    ("learned_ticks_ms", "needed"),
    [(1_000, False), (60_999, False), (61_000, False), (61_000.5, True), (10**12, True)],
)
def test_what_was_learned_more_than_the_trust_after_the_anchor_needs_verification(
    learned_ticks_ms: float, needed: bool
) -> None:
    assert needs_verification(AT_5, learned_ticks_ms=learned_ticks_ms, tail_trust_ms=60_000) is needed


def test_reading_newer_entries_doesnt_move_the_anchor_however_often() -> None:
    position = AT_5
    for version in range(6, 100):
        position = advance(position, version=version, token=str(version))
    assert position == Position(version=99, token="99", anchor_ticks_ms=1_000)


def test_a_look_that_found_the_tail_moves_the_anchor_to_when_it_began() -> None:
    assert advance(AT_5, version=5, token="five", tail_seen_at=2_000) == Position(
        version=5, token="five", anchor_ticks_ms=2_000
    )
