"""Ids of every type that a relay settles rows by, byte for byte; other types are refused before anything is sent."""

from __future__ import annotations

import uuid
from decimal import Decimal

import pytest
import sqlalchemy as sa

from sparklog.errors import InvalidArgumentError
from sparklog.outbox import OutboxError, Relay, create_table, send
from sparklog.outbox.tables import inspect_table
from tests.outbox.support import (
    ORDERS,
    a_cluster,
    a_database,
    dies_before_it_settles,
    insert,
    records_of,
    rows_left,
    values_of,
)

UUIDS = [uuid.UUID(int=2**120 + number) for number in range(5)]
UUID_TEXTS = [str(each) for each in UUIDS]
TEXTS = ["abc", "ABC", "é", "e", "abc2 ", "abc2", "x' y", "1", "01"]
BYTES = [each.bytes for each in UUIDS]
COLUMNS = "id {}, aggregatetype VARCHAR(40), aggregateid VARCHAR(40), payload {}, published_at TIMESTAMP NULL"
SETTLED = {
    "sqlite": [
        ("INTEGER PRIMARY KEY AUTOINCREMENT", [1, 2, 3]),
        ("BIGINT PRIMARY KEY", [10**17, 2, 3]),
        ("NUMERIC PRIMARY KEY", [1, 2, 3]),
        ("UUID PRIMARY KEY", UUID_TEXTS),
        ("TEXT PRIMARY KEY", TEXTS),
        ("TEXT COLLATE NOCASE", TEXTS),
        ("TEXT COLLATE RTRIM", ["a", "a ", "a  "]),
        ("BINARY(16) PRIMARY KEY", BYTES),
        ("BLOB PRIMARY KEY", BYTES),
        ("", [1, "1", b"1", 2, "a"]),
    ],
    "postgresql": [
        ("UUID PRIMARY KEY", UUIDS),
        ("BIGINT PRIMARY KEY", [10**17, 2, 3]),
        ("INTEGER PRIMARY KEY", [1, 2, 3]),
        ("NUMERIC", [Decimal("1.0"), Decimal("1.00"), Decimal(10**30)]),
        ("NUMERIC(20, 0) PRIMARY KEY", [1, 2, 3]),
        ("TEXT PRIMARY KEY", TEXTS),
        ("TEXT COLLATE loose", TEXTS),
        ("CHAR(40) PRIMARY KEY", ["a", "b", "A"]),
        ("BYTEA PRIMARY KEY", BYTES),
    ],
    "mariadb": [
        ("UUID PRIMARY KEY", UUID_TEXTS),
        ("BIGINT UNSIGNED PRIMARY KEY", [2**64 - 1, 2, 3]),
        ("INTEGER PRIMARY KEY", [1, 2, 3]),
        ("DECIMAL(30, 0) PRIMARY KEY", [1, 2, 10**29]),
        ("VARCHAR(40)", TEXTS),
        ("VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", TEXTS),
        ("VARCHAR(40) CHARACTER SET latin1", TEXTS),
        ("CHAR(36) PRIMARY KEY", UUID_TEXTS),
        ("BINARY(16) PRIMARY KEY", BYTES),
        ("VARBINARY(40) PRIMARY KEY", [b"a", b"A", b"a "]),
    ],
}
REFUSED = {
    "sqlite": ["REAL", "DOUBLE", "INTEGER PRIMARY KEY"],
    "postgresql": ["DOUBLE PRECISION", "TIMESTAMP", "INET", "JSONB", "BOOLEAN"],
    "mariadb": ["DOUBLE", "DATETIME", "BIT(8)", "ENUM('a', 'b')", "INET6"],
}
KINDS = ["sqlite", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("postgresql", "mariadb"))]


def url_of(kind, request, tmp_path):
    return f"sqlite:///{tmp_path}/a.db" if kind == "sqlite" else request.getfixturevalue(kind)


def tables_of(kind, url):
    """An engine with a table of each type of ids, one after the other."""
    engine = sa.create_engine(url)
    if kind == "postgresql":
        with engine.begin() as connection:
            connection.execute(sa.text("DROP TABLE IF EXISTS outbox"))
            connection.execute(sa.text("DROP COLLATION IF EXISTS loose"))
            loose = "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
            connection.execute(sa.text(loose))
    engine.dispose()
    payload = "BYTEA" if kind == "postgresql" else "BLOB"
    for declared, ids in SETTLED[kind]:
        engine = a_database(url, COLUMNS.format(declared, payload))
        yield declared, engine, ids
        engine.dispose()


@pytest.mark.parametrize("after", ["delete", "mark"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_settled_by_ids_of_every_type_also_after_a_death(kind, after, request, tmp_path, monkeypatch):
    for declared, engine, ids in tables_of(kind, url_of(kind, request, tmp_path)):
        cluster = a_cluster()
        insert(engine, *ids)
        options = {"after": after, "unordered": True}
        dies_before_it_settles(Relay(cluster, engine, batch_size=2, **options), monkeypatch)
        with Relay(cluster, engine, batch_size=1, **options) as relay:
            assert relay.run_until_empty() == len(ids) - 2, declared
        assert sorted(values_of(cluster)) == list(range(len(ids))), declared
        assert rows_left(engine) == 0
        found = {dict(record.headers)["id"] for record in records_of(cluster)}
        if isinstance(ids[0], bytes):
            assert found == set(ids)
        else:
            assert found == {each if isinstance(each, bytes) else str(each).encode() for each in ids}


@pytest.mark.parametrize("kind", KINDS)
def test_other_types_of_ids_are_refused_before_anything_is_sent(kind, request, tmp_path):
    url = url_of(kind, request, tmp_path)
    for declared in REFUSED[kind]:
        engine = a_database(url, COLUMNS.format(declared, "BYTEA" if kind == "postgresql" else "BLOB"))
        with (
            Relay(a_cluster(), engine, unordered=True) as relay,
            pytest.raises(InvalidArgumentError, match=r"column id has|AUTOINCREMENT"),
        ):
            relay.run_once()
        engine.dispose()


@pytest.mark.parametrize("id", [1.5, None])
def test_an_id_of_sqlite_that_is_no_exact_value_is_named(tmp_path, id):
    engine = a_database(f"sqlite:///{tmp_path}/a.db", "id, aggregatetype TEXT, payload BLOB")
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO outbox VALUES (:id, 'order', x'31')"), {"id": id})
    cluster = a_cluster()
    with Relay(cluster, engine, unordered=True) as relay, pytest.raises(OutboxError, match=f"the id {id}"):
        relay.run_once()
    assert values_of(cluster) == []
    engine.dispose()


def test_a_second_row_of_an_id_that_was_sent_is_not_deleted(tmp_path, monkeypatch):
    engine = a_database(f"sqlite:///{tmp_path}/a.db", "id TEXT, aggregatetype TEXT, aggregateid TEXT, payload BLOB")
    insert(engine, "a")
    cluster = a_cluster()
    with Relay(cluster, engine, unordered=True, batch_size=1) as relay:
        insert(engine, "a", payload=b"7")
        with pytest.raises(OutboxError, match=r"2 rows were to be deleted, expected the 1"):
            relay.run_once()
    assert rows_left(engine) == 2
    engine.dispose()


def test_ids_of_create_table_equal_only_themselves(database_url):
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS outbox"))
    create_table(engine)
    cluster = a_cluster()
    for number, id in enumerate(TEXTS):
        with engine.begin() as connection:
            send(connection, ORDERS, str(number), id=id)
    with pytest.raises(sa.exc.IntegrityError), engine.begin() as connection:
        send(connection, ORDERS, "9", id="abc")
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == len(TEXTS)
    assert sorted(values_of(cluster)) == list(range(len(TEXTS)))
    engine.dispose()


STRANGE = [str(2**70), "-1", "日本", "x\0y", "NaN", "sNaN", "Infinity", "1e400000000", "-0", "\u0661"]


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_other_relays_that_a_column_cannot_have_hinder_no_relay(kind, request, tmp_path):
    cluster = a_cluster()
    other = a_database(f"sqlite:///{tmp_path}/other.db", "id, aggregatetype TEXT, payload BLOB")
    insert_ids = sa.text("INSERT INTO outbox VALUES (:id, 'order', x'31')")
    with other.begin() as connection:
        connection.execute(insert_ids, [{"id": each} for each in (*STRANGE, b"\xff")])
    with Relay(cluster, other, unordered=True, name="other") as relay:
        assert relay.run_until_empty() == len(STRANGE) + 1
    other.dispose()
    for number, (declared, engine, ids) in enumerate(tables_of(kind, url_of(kind, request, tmp_path))):
        with engine.begin() as connection:
            connection.execute(sa.text(f"DROP TABLE IF EXISTS t{number}"))
            connection.execute(sa.text(f"ALTER TABLE outbox RENAME TO t{number}"))
        insert(engine, ids[0], table=f"t{number}", payload=b"%d" % number)
        with Relay(cluster, engine, table=f"t{number}", unordered=True, max_outage_s=0) as relay:
            assert relay.run_until_empty() == 1, declared


def test_a_relay_goes_on_beside_one_with_numbers_beyond_those_of_its_database(tmp_path):
    engine = a_database(f"sqlite:///{tmp_path}/a.db", COLUMNS.format("INTEGER PRIMARY KEY AUTOINCREMENT", "BLOB"))
    found = inspect_table(engine, "outbox", marks=False).ids
    assert found.possible([2**64 - 1, -(2**63), "a", "\ud800", b"b"]) == [-(2**63), "a", b"b"]
    engine.dispose()
