"""What isn't as clients were told is found."""

from __future__ import annotations

import pytest

from proof.soak.stored import Kept, compare, compare_compacted, compare_transactions, listen

NOTES = ["ok plain 0 0 v0\n", "ok plain 0 1 v1\n", "ok plain 1 0 v2\n", "read 5\n", "read 2\n", "error it broke\n"]


def test_notes_are_read():
    told = listen(NOTES, {0: 1, 1: 0})
    assert told.acknowledged == {(0, 1): "v1", (1, 0): "v2"}
    assert (told.count, told.read, told.disordered, told.errors) == (3, 7, 0, ["it broke"])
    assert listen(NOTES).acknowledged == {}
    with pytest.raises(ValueError, match="got the note 'what'"):
        listen(["what"])


def test_a_missing_and_another_record_are_found():
    told = listen(NOTES, {0: 0, 1: 0})
    stored: dict[tuple[int, int], str | None] = {(0, 0): "v0", (0, 1): "v1", (1, 0): "v2", (1, 1): "unanswered"}
    assert compare("plain", told, Kept(values=stored, begins={0: 0, 1: 0})) == []
    assert compare("plain", told, Kept(values={**stored, (0, 1): "v7"}, begins={0: 0, 1: 0})) == [
        "plain: another value: 1 records, such as (0, 1): 'v7', expected 'v1'"
    ]
    del stored[0, 1]
    assert compare("plain", told, Kept(values=stored, begins={0: 0, 1: 0})) == [
        "plain: acknowledged and not stored: 1 records, such as (0, 1)"
    ]


def test_an_offset_that_was_given_twice_is_found():
    told = listen([*NOTES, "ok plain 0 1 v9\n"], {0: 0, 1: 0})
    kept = Kept(values={(0, 0): "v0", (0, 1): "v9", (1, 0): "v2"}, begins={0: 0, 1: 0})
    assert compare("plain", told, kept) == ["plain: 1 records were acknowledged at or below offsets of earlier ones"]


def test_of_a_compacted_topic_the_last_records_count():
    told = listen(["ok c 0 0 k1:v0\n", "ok c 0 1 k2:v1\n", "ok c 0 2 k1:v2\n", "ok c 0 3 k2:\n"], {0: 0})
    assert compare_compacted("c", told, Kept(values={(0, 2): "k1:v2"}, begins={0: 0})) == []
    assert compare_compacted("c", told, Kept(values={(0, 2): "k1:v2", (0, 3): None}, begins={0: 0})) == []
    assert compare_compacted("c", told, Kept(values={(0, 0): "k1:v0"}, begins={0: 0})) == [
        "c: acknowledged and not stored: 1 records, such as (0, 2)"
    ]
    assert compare_compacted("c", told, Kept(values={(0, 2): "k1:v0", (0, 3): "k2:v"}, begins={0: 0})) == [
        "c: another value: 2 records, such as (0, 2): 'k1:v0', expected 'k1:v2', (0, 3): 'k2:v', expected 'k2:'"
    ]


def test_outputs_of_transactions_are_counted():
    told = listen(["committed 2\n"])
    assert compare_transactions("out", told, Kept(values={(0, 0): "0:0", (1, 5): "0:1"}, begins={})) == []
    assert compare_transactions("out", told, Kept(values={(0, 0): "0:0", (1, 5): "0:0"}, begins={})) == [
        "out: 1 records are outputs of an input that has one already"
    ]
    assert compare_transactions("out", told, Kept(values={(0, 0): "0:0"}, begins={})) == [
        "out: 1 records are stored, 2 were committed"
    ]
