"""Positions of relays: as bytes, in their topic, and what a relay remembers of them."""

from __future__ import annotations

import pytest

from sparklog.errors import CorruptRecordError
from sparklog.outbox import Relay
from sparklog.outbox.memory import Memory
from sparklog.outbox.places import Place
from sparklog.outbox.positions import Position, decode_position, encode_position, position_topic, read_positions
from sparklog.outbox.rows import Seen, digest_of
from sparklog.outbox.settling import Sent
from tests.outbox.support import a_cluster, a_database, values_of, write

PLACE = Place("PostgreSQL 1/shop", "public", "outbox", "16384")


def a_position(number, *ids, first=1, columns=("id",)):
    sent = Sent(columns, [(id, digest_of(Seen(id, ("id",), [id]), columns)) for id in ids])
    return Position(number=number, first=first, place=PLACE, sent=sent, counter=7)


def test_a_position_is_read_back():
    position = a_position(3, 5, "5", b"5", "é", "a ")
    assert decode_position(encode_position(position), "t") == position
    assert [id for id, _ in position.sent.digests] == [5, "5", b"5", "é", "a "]
    assert len({digest for _, digest in position.sent.digests}) == 5


def test_a_position_of_an_earlier_version_has_ids_alone():
    position = decode_position(b'{"format":1,"ids":["a","7"]}', "t")
    assert (position.number, position.place, position.sent.digests) == (0, None, [("a", ""), ("7", "")])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        None,
        b"[]",
        b'{"format":3,"ids":[]}',
        b'{"format":1,"ids":[1]}',
        b'{"format":2}',
        encode_position(a_position(1, 1)).replace(b'"server"', b'"servant"'),
        encode_position(a_position(1, 1)).replace(b"[[1,", b"[[null,"),
    ],
)
def test_nothing_else_is_taken_for_one(data):
    with pytest.raises(CorruptRecordError, match="topic 't'"):
        decode_position(data, "t")


def test_batches_are_remembered_until_they_are_too_many(monkeypatch):
    monkeypatch.setattr("sparklog.outbox.memory.REMEMBERED_BATCHES", 3)
    memory = Memory()
    assert memory.next_numbers() == (1, 1)
    for number in range(1, 6):
        memory.add(a_position(number, number))
    assert memory.next_numbers() == (6, 4)
    rows = {id: Seen(id, ("id",), [id]) for id in range(1, 6)}
    known = [id for id, row in rows.items() if memory.batch_of(row, ("id",), digest_of(row, ("id",)))]
    assert known == [3, 4, 5]
    assert memory.is_set_back(6)
    assert not memory.is_set_back(7)
    assert not memory.is_set_back(None)


def test_a_row_is_known_by_the_columns_that_the_table_had_then():
    memory = Memory([a_position(1, "a")])
    row = Seen("a", ("id", "tenant"), ["a", "x"])
    assert memory.batch_of(row, row.columns, digest_of(row, row.columns)) is not None
    other = Seen("b", ("id", "tenant"), ["b", "x"])
    assert memory.batch_of(other, other.columns, digest_of(other, other.columns)) is None


def test_what_is_remembered_outlives_compaction(tmp_path):
    from sparklog.compaction import maintain

    engine = a_database(f"sqlite:///{tmp_path}/a.db")
    cluster = a_cluster()
    with Relay(cluster, engine, batch_size=1) as relay:
        write(engine, *range(5))
        relay.run_until_empty()
    maintain(cluster, [position_topic("outbox")], full=True)
    assert [position.number for position in read_positions(cluster, "outbox")] == [1, 2, 3, 4, 5]
    engine.dispose()


def test_a_batch_whose_position_is_too_large_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr("sparklog.outbox.relay._MOST_POSITION_BYTES", 1_000)
    engine = a_database(f"sqlite:///{tmp_path}/a.db")
    cluster = a_cluster()
    write(engine, *range(30))
    with Relay(cluster, engine) as relay:
        assert 0 < relay.run_once() < 30
        relay.run_until_empty()
    assert sorted(values_of(cluster)) == list(range(30))
    engine.dispose()
