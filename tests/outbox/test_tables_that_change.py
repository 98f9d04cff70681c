"""Tables that are made anew, renamed or changed beside their relay, with the same ids and contents as before."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from sparklog import Admin, NewPartitions
from sparklog.errors import InvalidArgumentError
from sparklog.outbox import OutboxError, Relay
from sparklog.outbox.positions import position_topic
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
from tests.outbox.test_ids import KINDS, url_of

NUMBERED = {
    "sqlite": "id INTEGER PRIMARY KEY AUTOINCREMENT, aggregatetype TEXT, aggregateid TEXT, payload BLOB",
    "postgresql": "id BIGSERIAL PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, payload BYTEA",
    "mariadb": "id BIGINT PRIMARY KEY AUTO_INCREMENT, aggregatetype TEXT, aggregateid TEXT, payload BLOB",
}


def run(engine, *statements):
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


@pytest.fixture
def numbered(request, tmp_path):
    """An engine with a table of numbered rows, and the columns of that table."""
    engine = a_database(url_of(request.param, request, tmp_path), NUMBERED[request.param])
    run(engine, "DROP TABLE IF EXISTS events")
    yield engine, NUMBERED[request.param]
    engine.dispose()


def remake(engine, columns):
    if engine.dialect.name == "mysql":  # which notes the time of making in seconds
        run(engine, "DROP TABLE outbox", "DO SLEEP(1.1)")
    else:
        run(engine, "DROP TABLE outbox")
    run(engine, f"CREATE TABLE outbox ({columns})")


@pytest.mark.parametrize("runs_on", [False, True])
@pytest.mark.parametrize("numbered", KINDS, indirect=True)
def test_equal_rows_of_a_table_that_was_made_anew_arent_deleted_unsent(numbered, runs_on):
    engine, columns = numbered
    cluster = a_cluster()
    insert(engine, None, None)
    relay = Relay(cluster, engine)
    assert relay.run_until_empty() == 2
    if not runs_on:
        relay.close()
        relay = Relay(cluster, engine)
    remake(engine, columns)
    insert(engine, None, None)
    with relay, pytest.raises(OutboxError, match="made anew"):
        relay.run_until_empty()
    assert rows_left(engine) == 2
    Admin(cluster).delete_topics([position_topic("outbox")])
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == 2
    assert sorted(values_of(cluster)) == [0, 0, 1, 1]


@pytest.mark.parametrize("numbered", KINDS, indirect=True)
def test_a_running_relay_sends_the_new_rows_of_a_table_that_was_made_anew(numbered):
    engine, columns = numbered
    cluster = a_cluster()
    insert(engine, None, None)
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == 2
        remake(engine, columns)
        insert(engine, None, None, payload=b"7")
        assert relay.run_until_empty() == 2
    assert sorted(values_of(cluster)) == [0, 1, 7, 7]


@pytest.mark.slow
def test_a_table_of_postgresql_that_was_emptied_with_its_sequence(postgresql):
    engine = a_database(postgresql, NUMBERED["postgresql"])
    cluster = a_cluster()
    insert(engine, None, None)
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == 2
        run(engine, "TRUNCATE outbox RESTART IDENTITY")
        insert(engine, None, None)
        with pytest.raises(OutboxError, match="made anew"):
            relay.run_until_empty()
    assert rows_left(engine) == 2
    engine.dispose()


def test_two_databases_in_memory_are_two():
    cluster = a_cluster()
    for attempt in range(2):
        engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
        run(engine, f"CREATE TABLE outbox ({NUMBERED['sqlite']})")
        insert(engine, None, None)
        with Relay(cluster, engine) as relay:
            if attempt == 0:
                assert relay.run_until_empty() == 2
            else:
                with pytest.raises(OutboxError, match="made anew"):
                    relay.run_until_empty()
                assert rows_left(engine) == 2
        engine.dispose()


@pytest.mark.parametrize("numbered", KINDS, indirect=True)
def test_a_table_that_was_renamed_and_remade_isnt_sent_by_a_new_relay(numbered, monkeypatch):
    engine, columns = numbered
    cluster = a_cluster()
    insert(engine, None, None)
    dies_before_it_settles(Relay(cluster, engine), monkeypatch)
    if engine.dialect.name == "mysql":
        run(engine, "DO SLEEP(1.1)")
    run(engine, "ALTER TABLE outbox RENAME TO events")
    run(engine, f"CREATE TABLE outbox ({columns.replace('BIGSERIAL', 'BIGINT')})")
    with Relay(cluster, engine, table="events") as relay, pytest.raises(InvalidArgumentError, match=r"row.* 1, 2"):
        relay.run_until_empty()
    with Relay(cluster, engine, table="events", name="outbox", same_table=True) as relay:
        assert relay.run_until_empty() == 0
    assert sorted(values_of(cluster)) == [0, 1]
    assert rows_left(engine, "events") == 0


@pytest.mark.parametrize("numbered", KINDS, indirect=True)
def test_a_second_table_with_equal_rows_has_a_relay_of_its_own(numbered):
    engine, columns = numbered
    cluster = a_cluster()
    run(engine, f"CREATE TABLE events ({columns})")
    for table in ("outbox", "events"):
        insert(engine, None, None, table=table)
    for table in ("outbox", "events"):
        with Relay(cluster, engine, table=table) as relay:
            assert relay.run_until_empty() == 2


@pytest.mark.parametrize("numbered", KINDS, indirect=True)
def test_columns_that_are_added_under_a_running_relay_count(numbered):
    engine, _ = numbered
    cluster = a_cluster(ORDERS, "other")
    with Relay(cluster, engine) as relay:
        insert(engine, None)
        assert relay.run_until_empty() == 1
        run(engine, "ALTER TABLE outbox ADD topic VARCHAR(40)", "ALTER TABLE outbox ADD headers VARCHAR(40)")
        insert(engine, None, topic="other", headers='{"a": "b"}')
        assert relay.run_until_empty() == 1
    assert values_of(cluster) == [0]
    [record] = records_of(cluster, "other")
    assert record.headers[1:] == [("a", b"b")]


@pytest.mark.slow
def test_a_payload_that_is_given_another_type_is_read_by_it(postgresql):
    engine = a_database(postgresql, NUMBERED["postgresql"].replace("BYTEA", "TEXT"))
    cluster = a_cluster()
    with Relay(cluster, engine) as relay:
        insert(engine, None, payload="0")
        assert relay.run_until_empty() == 1
        run(engine, "ALTER TABLE outbox ALTER COLUMN payload TYPE BYTEA USING payload::bytea")
        insert(engine, None, payload=b"7")
        assert relay.run_until_empty() == 1
    assert values_of(cluster) == [0, 7]
    engine.dispose()


def test_positions_stay_readable_when_partitions_are_added_to_their_topic(tmp_path, monkeypatch):
    engine = a_database(f"sqlite:///{tmp_path}/a.db", NUMBERED["sqlite"])
    cluster = a_cluster()
    with Relay(cluster, engine) as relay:
        relay.run_until_empty()
    Admin(cluster).create_partitions({position_topic("outbox"): NewPartitions(6)})
    for number in range(4):
        insert(engine, None, payload=b"%d" % number)
        dies_before_it_settles(Relay(cluster, engine), monkeypatch)
    with Relay(cluster, engine) as relay:
        relay.run_until_empty()
    assert values_of(cluster) == [0, 1, 2, 3]
    engine.dispose()


# Engines and tables without transactions


def test_an_engine_that_commits_each_statement_is_refused(database_url):
    a_database(database_url, None).dispose()
    engine = sa.create_engine(database_url, isolation_level="AUTOCOMMIT")
    with Relay(a_cluster(), engine) as relay, pytest.raises(InvalidArgumentError, match="AUTOCOMMIT"):
        relay.run_once()
    engine.dispose()


@pytest.mark.slow
def test_a_table_without_transactions_is_refused(mariadb):
    engine = a_database(mariadb, NUMBERED["mariadb"])
    run(engine, "ALTER TABLE outbox ENGINE = MyISAM")
    with Relay(a_cluster(), engine) as relay, pytest.raises(InvalidArgumentError, match="MyISAM"):
        relay.run_once()
    engine.dispose()


# Sessions


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_row_is_known_in_a_session_with_other_settings(kind, request, monkeypatch):
    url = request.getfixturevalue(kind)
    if kind == "postgresql":
        columns = (
            "a TIMESTAMPTZ DEFAULT now(), b TIMESTAMPTZ[] DEFAULT array[now()], "
            "c TSTZRANGE DEFAULT tstzrange(now(), NULL),"
            " d DATE DEFAULT now(), e INTERVAL DEFAULT '1 month 2 days', f FLOAT DEFAULT 0.1, g TIMETZ DEFAULT now(), "
            "h TIMESTAMPTZ DEFAULT 'infinity', i DATE DEFAULT '0044-03-15 BC', j JSONB DEFAULT '[1.10]'"
        )
        settings = "-c timezone=Asia/Tokyo -c datestyle=SQL,DMY -c intervalstyle=iso_8601 -c extra_float_digits=-3"
        options = {"options": settings}
    else:
        columns = "a TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6)"
        options = {"init_command": "SET time_zone = '+05:00'"}
    engine = a_database(url, f"{NUMBERED[kind]}, {columns}")
    cluster = a_cluster()
    insert(engine, None, None)
    dies_before_it_settles(Relay(cluster, engine), monkeypatch)
    other = sa.create_engine(url, connect_args=options)
    with Relay(cluster, other) as relay:
        assert relay.run_until_empty() == 0
    assert (values_of(cluster), rows_left(engine)) == ([0, 1], 0)
    other.dispose()
    engine.dispose()
