from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidArgumentError
from sparklog.model import OffsetAndMetadata
from sparklog.processing.replay_position import ReplayPosition


@given(st.sets(st.integers(0, 40)), st.lists(st.sets(st.integers(0, 40)), max_size=5))
def test_a_position_knows_exactly_what_was_replayed(letters, replays):
    """Whatever is replayed in whatever pieces, offsets with gaps between them."""
    looked = sorted(letters)
    position, done = ReplayPosition(), set[int]()
    for wanted in replays:
        now = [offset for offset in looked if offset in wanted and not position.holds(offset)]
        position = ReplayPosition.of(position.after(now, looked).committable)
        done.update(now)
        assert {offset for offset in looked if position.holds(offset)} == done
    every = position.after(looked, looked)
    assert every.ranges == ()
    assert every.offset == (looked[-1] + 1 if looked else position.offset)


def test_a_piece_leaves_what_lies_beyond_it_as_it_is():
    position = ReplayPosition(0, ((10, 12), (20, 20)))
    assert position.after([0, 2], [0, 1, 2]) == ReplayPosition(1, ((2, 2), (10, 12), (20, 20)))


def test_positions_of_others_are_refused():
    assert ReplayPosition.of(None) == ReplayPosition()
    assert ReplayPosition.of(OffsetAndMetadata(3)) == ReplayPosition(3)
    with pytest.raises(InvalidArgumentError, match="committed metadata is 'mine', expected that of a replay"):
        ReplayPosition.of(OffsetAndMetadata(3, "mine"))


def test_a_position_that_doesnt_fit_is_refused():
    scattered = ReplayPosition(0, tuple((2 * number + 1, 2 * number + 1) for number in range(1_000)))
    with pytest.raises(InvalidArgumentError, match="are 1000 ranges of offsets, more than"):
        _ = scattered.committable
