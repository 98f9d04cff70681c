from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidArgumentError
from sparklog.model import OffsetAndMetadata
from sparklog.processing.replay_position import CHUNK, IN_TOPIC, ReplayPosition, chunks_of
from tests.depth import each_nth


@given(st.sets(st.integers(0, 40)), st.lists(st.sets(st.integers(0, 40)), max_size=5))
def test_a_position_knows_exactly_what_was_replayed(letters, replays):
    """Whatever is replayed, offsets with gaps between them."""
    looked = sorted(letters)
    position, done = ReplayPosition(), set[int]()
    for wanted in replays:
        now = [offset for offset in looked if offset in wanted and not position.holds(offset)]
        position = position.after(now, looked)
        done.update(now)
        assert {offset for offset in looked if position.holds(offset)} == done
    every = position.after(looked, looked)
    assert every.ranges == ()
    assert every.offset == (looked[-1] + 1 if looked else position.offset)


def one_walk(seed: int) -> None:
    """Several replays of random letters, in polls of 1 to 20, some of which end in the middle, after the commit or
    before it. Letters are added, and deleted from the log start."""
    chance = random.Random(seed)
    letters, sent = sorted(chance.sample(range(200), chance.randrange(1, 80))), Counter[int]()
    position, start = ReplayPosition(), 0
    for _ in range(chance.randrange(1, 6)):
        share, most = chance.choice([0.1, 0.5, 0.9, 1.0]), chance.choice([None, None, 3, 10])
        at, left, since = 0, 1_000 if most is None else most, start
        while at < len(letters) and left > 0:
            piece = letters[at : at + chance.randrange(1, 21)]
            at += len(piece)
            known = position.from_log_start(start)
            wanted = [each for each in piece if not known.holds(each) and chance.random() < share][:left]
            left -= len(wanted)
            if chance.random() < 0.05:  # killed before the commit
                break
            if wanted:
                position = known.after(wanted, piece, since=since)
                sent.update(wanted)
            since = piece[-1] + 1
            if chance.random() < 0.05:  # killed after it
                break
        assert {each for each in letters if position.holds(each)} == {each for each in letters if sent[each]}
        if chance.random() < 0.3:  # letters are purged, or end by retention
            start = chance.randrange(start, 200)
            letters = [each for each in letters if each >= start]
        end = max(letters, default=start)
        letters += sorted(chance.sample(range(end + 1, end + 20), 5))  # and others come
    assert max(sent.values(), default=0) <= 1
    known = position.from_log_start(start)
    whole = known.after([each for each in letters if not known.holds(each)], letters, since=start)
    assert whole.ranges == ()
    assert all(whole.holds(each) for each in letters)


def test_each_letter_is_sent_once_by_replays_of_any_selections():
    """✗ A range that crosses the end of a poll is cut there, and its letters are sent again."""
    for seed in each_nth(range(20_000), 16):
        one_walk(seed)


def test_a_piece_leaves_what_lies_beyond_it_as_it_is():
    position = ReplayPosition(0, ((10, 12), (20, 20)))
    assert position.after([0, 2], [0, 1, 2]) == ReplayPosition(1, ((2, 2), (10, 12), (20, 20)))
    assert position.after([11], [10, 11], since=9) == ReplayPosition(0, ((9, 12), (20, 20)))
    assert position.after([13], [13], since=13) == ReplayPosition(0, ((10, 13), (20, 20)))


def test_positions_of_others_are_refused():
    assert ReplayPosition.of(None) == ReplayPosition()
    assert ReplayPosition.of(OffsetAndMetadata(3)) == ReplayPosition(3)
    assert ReplayPosition.of(OffsetAndMetadata(3, IN_TOPIC)) == ReplayPosition(3)
    with pytest.raises(InvalidArgumentError, match="committed metadata is 'mine', expected that of a replay"):
        ReplayPosition.of(OffsetAndMetadata(3, "mine"))


def test_positions_of_earlier_versions_are_read():
    """They were ranges in the metadata of the group's offset."""
    assert ReplayPosition.of(OffsetAndMetadata(3, "replayed:5-7,9-9")) == ReplayPosition(3, ((5, 7), (9, 9)))
    assert ReplayPosition.of(OffsetAndMetadata(3, "replayed:")) == ReplayPosition(3)


@given(st.sets(st.integers(0, 5 * CHUNK), max_size=60), st.integers(0, 5 * CHUNK), st.integers(0, 5 * CHUNK))
def test_chunks_have_all_ranges_that_they_touch(offsets, low, high):
    position = ReplayPosition().with_ranges((each, each + each % 7_000) for each in offsets)
    found = chunks_of(position, min(low, high), max(low, high))
    for chunk, pairs in found.items():
        assert all(chunk <= first <= last < chunk + CHUNK for first, last in pairs)
    every = chunks_of(position, 0, 20 * CHUNK)
    assert ReplayPosition(position.offset).with_ranges(pair for pairs in every.values() for pair in pairs) == position
    assert found == {
        chunk: pairs for chunk, pairs in every.items() if min(low, high) // CHUNK * CHUNK <= chunk <= max(low, high)
    }
