"""What a row becomes: payload and headers as the database gives them as texts, and the order of records."""

from __future__ import annotations

import datetime
import uuid

import pytest
import sqlalchemy as sa

from sparklog.errors import InvalidArgumentError, InvalidTypeError
from sparklog.outbox import OutboxError, Relay
from sparklog.outbox.headers import parse_headers
from tests.outbox.support import a_cluster, a_database, insert, records_of, rows_left, values_of

JSON = '{"price": 12345678901234567890.123456789, "rate": 1.10}'
FIVE = "id VARCHAR(40) PRIMARY KEY, aggregatetype VARCHAR(40), aggregateid VARCHAR(40), type VARCHAR(40), payload {}"


def json_of(url, kind):
    return a_database(
        url,
        f"id INTEGER PRIMARY KEY, aggregatetype VARCHAR(40), aggregateid VARCHAR(40), payload {kind}, "
        f"headers {kind}, published_at TIMESTAMP NULL",
    )


@pytest.mark.parametrize("kind", ["JSON", "JSONB"])
def test_json_is_sent_as_the_database_has_it(database_url, kind):
    if kind == "JSONB" and not database_url.startswith("postgresql"):
        kind = "TEXT"
    engine = json_of(database_url, kind)
    texts = [JSON, '"text"', "null", "[1.10, 1e2]", None]
    given = (
        "CAST(:payload AS JSON)" if kind.startswith("JSON") and database_url.startswith("postgresql") else ":payload"
    )
    with engine.begin() as connection:
        for number, text in enumerate(texts):
            values = {"id": number, "payload": text}
            statement = f"INSERT INTO outbox VALUES (:id, 'order', 'k', {given}, NULL, NULL)"
            connection.execute(sa.text(statement), values)
        stored = list(
            connection.execute(
                sa.text(
                    f"SELECT CAST(payload AS {'CHAR' if 'mysql' in database_url else 'TEXT'}) FROM outbox ORDER BY id"
                )
            ).scalars()
        )
    cluster = a_cluster()
    with Relay(cluster, engine, after="mark") as relay:
        relay.run_until_empty()
    sent = [record.value for record in records_of(cluster)]
    assert sent == [None if each is None else each.encode() for each in stored]
    if kind != "JSONB":  # which has spaces and numbers of its own
        assert stored == texts
    engine.dispose()


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
def test_values_of_sqlite_are_sent_by_their_own_types(tmp_path, encoding):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/a.db")
    with engine.begin() as connection:
        connection.exec_driver_sql(f"PRAGMA encoding = '{encoding}'")
        connection.exec_driver_sql(
            "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, aggregatetype TEXT, aggregateid, payload)"
        )
        for value in ("é\x00x", b"\xff\x00", 5, 1.25, None):
            connection.exec_driver_sql(
                "INSERT INTO outbox (aggregatetype, payload, aggregateid) VALUES ('order', ?, 7)", (value,)
            )
    cluster = a_cluster()
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == 5
    assert [(record.key, record.value) for record in records_of(cluster)] == [
        (b"7", value) for value in ("é\x00x".encode(), b"\xff\x00", b"5", b"1.25", None)
    ]
    engine.dispose()


@pytest.mark.parametrize(
    "headers", ["5", "[1]", "null", "{", '[["a"]]', '[[1, "b"]]', '"a"', "[[]]", '[{"a": 1, "b": 2}]']
)
@pytest.mark.parametrize("kind", ["JSON", "TEXT"])
def test_headers_that_arent_pairs_are_an_error_that_names_the_row(database_url, headers, kind):
    is_postgresql = database_url.startswith("postgresql")
    if kind == "JSON" and headers == "{" and not database_url.startswith("sqlite"):
        pytest.skip("which the database refuses")
    engine = json_of(database_url, kind)
    with engine.begin() as connection:
        given = "CAST(:headers AS JSON)" if kind == "JSON" and is_postgresql else ":headers"
        connection.execute(
            sa.text(f"INSERT INTO outbox VALUES (77, 'order', 'k', NULL, {given}, NULL)"), {"headers": headers}
        )
    cluster = a_cluster()
    with (
        Relay(cluster, engine, after="mark") as relay,
        pytest.raises(OutboxError, match="row 77 of table 'outbox' can't be sent: headers"),
    ):
        relay.run_until_empty()
    assert records_of(cluster) == []
    engine.dispose()


def test_headers_keep_the_digits_of_numbers():
    assert parse_headers("") == parse_headers("[]") == parse_headers("{}") == []
    assert parse_headers('{"a": "b", "a": "c", "n": 1.10, "none": null, "yes": true}') == [
        ("a", b"b"),
        ("a", b"c"),
        ("n", b"1.10"),
        ("none", None),
        ("yes", b"true"),
    ]
    assert parse_headers('[["x", {"a": [1.10, "é", null], "b": {}}]]') == [
        ("x", b'{"a": [1.10, "\\u00e9", null], "b": {}}')
    ]
    with pytest.raises(InvalidTypeError, match="no JSON"):
        parse_headers("[" * 100_000)


# The order of records


def test_five_columns_with_uuids_have_no_order_that_is_known(database_url):
    columns = FIVE.format("BYTEA" if database_url.startswith("postgresql") else "BLOB")
    engine = a_database(database_url, columns)
    cluster = a_cluster()
    ids = [str(uuid.uuid4()) for _ in range(3)]
    insert(engine, *ids)
    with Relay(cluster, engine) as relay, pytest.raises(InvalidArgumentError, match=r"--order-by .*--unordered"):
        relay.run_until_empty()
    with (
        Relay(cluster, engine, order_by="nothing") as relay,
        pytest.raises(InvalidArgumentError, match="no column nothing to order by; it has id,"),
    ):
        relay.run_until_empty()
    assert values_of(cluster) == []
    with Relay(cluster, engine, unordered=True) as relay:
        assert relay.run_until_empty() == 3
    engine.dispose()


@pytest.mark.parametrize(
    "column", ["created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP", "timestamp BIGINT", "position VARCHAR(40)"]
)
def test_a_column_that_may_be_the_same_for_several_rows_gives_no_order(tmp_path, column):
    engine = a_database(f"sqlite:///{tmp_path}/a.db", f"{FIVE.format('BLOB')}, {column}")
    with (
        Relay(a_cluster(), engine) as relay,
        pytest.raises(InvalidArgumentError, match="which may be the same for several rows"),
    ):
        relay.run_once()
    engine.dispose()


def test_rows_are_sent_in_the_order_of_the_column_that_the_user_names(database_url):
    columns = FIVE.format("BYTEA" if database_url.startswith("postgresql") else "BLOB")
    engine = a_database(database_url, f"{columns}, written BIGINT")
    for number in range(8):
        insert(engine, str(uuid.uuid4()), payload=b"%d" % number, written=number)
    cluster = a_cluster()
    with Relay(cluster, engine, order_by="written", batch_size=3) as relay:
        assert relay.run_until_empty() == 8
    assert values_of(cluster) == list(range(8))
    engine.dispose()


def test_numbers_give_the_order_whatever_the_times_are(database_url):
    """PostgreSQL's now() is the beginning of the transaction: one that waited has an earlier one."""
    columns = FIVE.format("BYTEA" if database_url.startswith("postgresql") else "BLOB")
    engine = a_database(database_url, f"{columns.replace('id VARCHAR(40)', 'id BIGINT', 1)}, created_at TIMESTAMP")
    for number in range(3):
        insert(engine, number, payload=b"%d" % number, created_at=datetime.datetime(2026, 1, 2, 0, 0, 3 - number))
    cluster = a_cluster()
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == 3
    assert values_of(cluster) == [0, 1, 2]
    engine.dispose()


def test_a_row_without_a_place_in_the_order_stops_the_relay(database_url):
    columns = FIVE.format("BYTEA" if database_url.startswith("postgresql") else "BLOB")
    engine = a_database(database_url, f"{columns}, written BIGINT")
    insert(engine, "b", written=1)
    insert(engine, "a", written=None)
    cluster = a_cluster()
    with (
        Relay(cluster, engine, order_by="written") as relay,
        pytest.raises(OutboxError, match=r"row a of .* its written is NULL"),
    ):
        relay.run_until_empty()
    assert rows_left(engine) == 2
    engine.dispose()


@pytest.mark.parametrize("declared", ["BIGINT", "NUMERIC", "position"])
def test_numbers_give_an_order_without_being_named(database_url, declared):
    columns = FIVE.format("BYTEA" if database_url.startswith("postgresql") else "BLOB")
    is_position = declared == "position"
    columns = f"{columns}, position INTEGER" if is_position else columns.replace("id VARCHAR(40)", f"id {declared}", 1)
    engine = a_database(database_url, columns)
    for number in range(5):
        if is_position:
            insert(engine, str(uuid.uuid4()), payload=b"%d" % number, position=number)
        else:
            insert(engine, number, payload=b"%d" % number)
    cluster = a_cluster()
    with Relay(cluster, engine, batch_size=2) as relay:
        assert relay.run_until_empty() == 5
    assert values_of(cluster) == list(range(5))
    engine.dispose()


def test_an_order_and_none_are_not_both_asked_for(tmp_path):
    with pytest.raises(InvalidArgumentError, match="order_by='id' and unordered=True"):
        Relay(a_cluster(), f"sqlite:///{tmp_path}/a.db", order_by="id", unordered=True)
