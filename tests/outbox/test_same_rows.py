"""A relay settles the rows that it has sent, and no other: two databases, schemas, renamed tables, restored backups."""

from __future__ import annotations

import logging
import os
import shutil

import pytest
import sqlalchemy as sa

from sparklog import Admin
from sparklog.errors import InvalidArgumentError
from sparklog.outbox import OutboxError, Relay, create_table, send
from sparklog.outbox.places import look_at
from sparklog.outbox.positions import position_topic
from sparklog.outbox.tables import inspect_table
from tests.outbox.support import (
    ORDERS,
    a_cluster,
    a_database,
    dies_before_it_settles,
    insert,
    rows_left,
    values_of,
    write,
)

NUMBERED = "id INTEGER PRIMARY KEY AUTOINCREMENT, aggregatetype TEXT, aggregateid TEXT, payload BLOB"


@pytest.fixture
def cluster():
    return a_cluster()


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/a.db"


@pytest.fixture
def engine(url):
    engine = a_database(url, NUMBERED)
    yield engine
    engine.dispose()


@pytest.fixture
def other(tmp_path):
    engine = a_database(f"sqlite:///{tmp_path}/b.db", NUMBERED)
    yield engine
    engine.dispose()


def sent(cluster):
    return sorted(values_of(cluster))


# Another table


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("first", [0, 100], ids=["the same contents", "other contents"])
def test_a_relay_refuses_the_table_of_another_database(cluster, engine, other, monkeypatch, first, is_killed):
    insert(engine, 1, 2, 3)
    insert(other, 1, 2, 3, 4, payload=b"%d" % first)
    relay = Relay(cluster, engine)
    if is_killed:
        dies_before_it_settles(relay, monkeypatch)
    else:
        assert relay.run_until_empty() == 3
        relay.close()
    with (
        Relay(cluster, other) as second,
        pytest.raises(InvalidArgumentError, match=r"a\.db, and this is .*b\.db: .*--name"),
    ):
        second.run_until_empty()
    assert rows_left(other) == 4
    with Relay(cluster, other, name="payments") as second:
        assert second.run_until_empty() == 4
    with Relay(cluster, engine) as again:
        assert again.run_until_empty() == 0
    assert sent(cluster) == sorted([0, 1, 2, *[first] * 4])
    assert rows_left(engine) == rows_left(other) == 0


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_table_that_was_renamed_goes_on_by_its_relays_name(cluster, engine, monkeypatch, is_killed):
    insert(engine, 1, 2, 3)
    relay = Relay(cluster, engine, batch_size=2)
    if is_killed:
        dies_before_it_settles(relay, monkeypatch)
    else:
        relay.run_once()
        relay.close()
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE outbox RENAME TO events"))
    if is_killed:
        with (
            Relay(cluster, engine, table="events") as renamed,
            pytest.raises(InvalidArgumentError, match="'outbox' has sent"),
        ):
            renamed.run_until_empty()
    with (
        Relay(cluster, engine, table="events", name="outbox") as renamed,
        pytest.raises(InvalidArgumentError, match="--same-table"),
    ):
        renamed.run_until_empty()
    with Relay(cluster, engine, table="events", name="outbox", same_table=True) as renamed:
        assert renamed.run_until_empty() == 1
    with Relay(cluster, engine, table="events", name="outbox") as renamed:  # whoever has been told knows
        assert renamed.run_until_empty() == 0
    assert sent(cluster) == [0, 1, 2]
    assert rows_left(engine, "events") == 0


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_relay_that_is_renamed_is_refused_until_the_old_one_is_gone(cluster, engine, monkeypatch, is_killed):
    insert(engine, 1, 2, 3)
    relay = Relay(cluster, engine, name="a")
    if is_killed:
        dies_before_it_settles(relay, monkeypatch)
    else:
        assert relay.run_until_empty() == 3
        relay.close()
    insert(engine, 4)
    for is_same in (False, True):
        with (
            Relay(cluster, engine, name="b", same_table=is_same) as renamed,
            pytest.raises(InvalidArgumentError, match=r"--name a "),
        ):
            renamed.run_until_empty()
    with Relay(cluster, engine, name="a") as old:
        assert old.run_until_empty() == 1
    Admin(cluster).delete_topics([position_topic("a")])
    insert(engine, 5)
    with Relay(cluster, engine, name="b") as renamed:
        assert renamed.run_until_empty() == 1
    assert sent(cluster) == [0, 0, 0, 1, 2]


def test_schemas_have_relays_of_their_own(tmp_path, cluster, monkeypatch):
    engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
    with engine.begin() as connection:
        for schema in ("shop", "billing"):
            connection.execute(sa.text(f"ATTACH DATABASE '{tmp_path}/{schema}.db' AS {schema}"))
            connection.execute(sa.text(f"CREATE TABLE {schema}.outbox ({NUMBERED})"))
    insert(engine, 1, 2, table="shop.outbox")
    insert(engine, 1, 2, table="billing.outbox")
    shop = Relay(cluster, engine, table="shop.outbox")
    assert shop.name == "shop.outbox"
    dies_before_it_settles(shop, monkeypatch)
    for table in ("billing.outbox", "shop.outbox"):
        with Relay(cluster, engine, table=table) as relay:
            relay.run_until_empty()
    with (
        Relay(cluster, engine, table="billing.outbox", name="shop.outbox") as relay,
        pytest.raises(InvalidArgumentError),
    ):
        relay.run_once()
    assert sent(cluster) == [0, 0, 1, 1]
    engine.dispose()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_schemas_of_a_server_have_relays_of_their_own(kind, request, cluster, monkeypatch):
    engine = sa.create_engine(request.getfixturevalue(kind))
    columns = "id {}, aggregatetype VARCHAR(40), aggregateid VARCHAR(40), payload {}"
    columns = columns.format(
        *(("BIGSERIAL PRIMARY KEY", "BYTEA") if kind == "postgresql" else ("BIGINT PRIMARY KEY AUTO_INCREMENT", "BLOB"))
    )
    with engine.begin() as connection:
        for schema in ("shop", "billing"):
            connection.execute(sa.text(f"DROP SCHEMA IF EXISTS {schema}{' CASCADE' if kind == 'postgresql' else ''}"))
            connection.execute(sa.text(f"CREATE SCHEMA {schema}"))
            connection.execute(sa.text(f"CREATE TABLE {schema}.outbox ({columns})"))
    insert(engine, None, None, table="shop.outbox")
    insert(engine, None, None, table="billing.outbox")
    dies_before_it_settles(Relay(cluster, engine, table="shop.outbox", name="one"), monkeypatch)
    told = r"shop\.outbox of .* and this is billing\.outbox"
    with (
        Relay(cluster, engine, table="billing.outbox", name="one") as relay,
        pytest.raises(InvalidArgumentError, match=told),
    ):
        relay.run_once()
    with Relay(cluster, engine, table="billing.outbox", name="two") as relay:
        assert relay.run_until_empty() == 2
    with Relay(cluster, engine, table="shop.outbox", name="one") as relay:
        assert relay.run_until_empty() == 0
    assert sent(cluster) == [0, 0, 1, 1]
    with engine.begin() as connection:
        for schema in ("shop", "billing"):
            connection.execute(sa.text(f"DROP SCHEMA {schema}{' CASCADE' if kind == 'postgresql' else ''}"))
    engine.dispose()


# The same table, and other rows


@pytest.mark.parametrize("after", ["delete", "mark"])
@pytest.mark.parametrize("batch_size", [2, 10])
def test_rows_that_come_back_with_a_backup_arent_sent_again(tmp_path, url, cluster, caplog, batch_size, after):
    engine = a_database(url)
    write(engine, *range(6))
    shutil.copy(tmp_path / "a.db", tmp_path / "backup")
    with Relay(cluster, engine, batch_size=batch_size, after=after) as relay:
        assert relay.run_until_empty() == 6
        write(engine, 6, 7)
        assert relay.run_until_empty() == 2
    engine.dispose()
    shutil.copyfile(tmp_path / "backup", tmp_path / "a.db")  # into the same file
    write(engine, 8)  # gets the position of a row that was sent
    with caplog.at_level(logging.WARNING), Relay(cluster, engine, batch_size=batch_size, after=after) as relay:
        assert relay.run_until_empty() == 1
        assert "came back after being sent" in caplog.text
    assert sent(cluster) == list(range(9))
    assert rows_left(engine) == 0
    engine.dispose()


def test_rows_come_back_while_the_relay_runs(tmp_path, url, cluster):
    engine = a_database(url)
    write(engine, *range(4))
    shutil.copy(tmp_path / "a.db", tmp_path / "backup")
    with Relay(cluster, engine, batch_size=2) as relay:
        assert relay.run_until_empty() == 4
        engine.dispose()
        shutil.copyfile(tmp_path / "backup", tmp_path / "a.db")
        assert relay.run_until_empty() == 0
    assert (sent(cluster), rows_left(engine)) == ([0, 1, 2, 3], 0)
    engine.dispose()


@pytest.mark.parametrize("batch_size", [2, 10])
def test_a_backup_in_another_file_is_accepted_by_name(tmp_path, url, cluster, batch_size):
    engine = a_database(url)
    write(engine, *range(5))
    shutil.copy(tmp_path / "a.db", tmp_path / "backup")
    with Relay(cluster, engine, batch_size=batch_size) as relay:
        assert relay.run_until_empty() == 5
    engine.dispose()
    os.replace(tmp_path / "backup", tmp_path / "a.db")
    with (
        Relay(cluster, engine, batch_size=batch_size) as relay,
        pytest.raises(OutboxError, match=r"anew or restored.*--same-table"),
    ):
        relay.run_until_empty()
    assert rows_left(engine) == 5
    with Relay(cluster, engine, batch_size=batch_size, same_table=True) as relay:
        assert relay.run_until_empty() == 0
    assert (sent(cluster), rows_left(engine)) == ([0, 1, 2, 3, 4], 0)
    engine.dispose()


def test_rows_of_a_backup_that_are_older_than_what_is_remembered_stop_the_relay(tmp_path, url, cluster, monkeypatch):
    monkeypatch.setattr("sparklog.outbox.memory.REMEMBERED_BATCHES", 3)
    engine = a_database(url)
    write(engine, 0, 1)
    shutil.copy(tmp_path / "a.db", tmp_path / "backup")
    with Relay(cluster, engine, batch_size=1) as relay:
        for number in range(2, 8):
            write(engine, number)
            relay.run_until_empty()
    engine.dispose()
    shutil.copyfile(tmp_path / "backup", tmp_path / "a.db")
    told = r"was set back, as to a backup: its counter is 2, expected 8 or more"
    with Relay(cluster, engine, batch_size=1) as relay, pytest.raises(OutboxError, match=told):
        relay.run_until_empty()
    assert (sent(cluster), rows_left(engine)) == (list(range(8)), 2)
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM outbox"))
    write(engine, 8)
    with Relay(cluster, engine, same_table=True) as relay:
        assert relay.run_until_empty() == 1
    write(engine, 9)
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == 1
    assert sent(cluster) == list(range(10))
    engine.dispose()


def test_the_counter_of_a_database_grows_with_its_rows(database_url):
    engine = a_database(database_url)
    found = inspect_table(engine, "outbox", marks=False)
    counters: list[int] = []

    def counter():
        with engine.connect() as connection:
            return look_at(connection, found.table).counter or 0

    for number in range(3):
        write(engine, number)
        counters.append(counter())
    assert counters == sorted(set(counters))
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM outbox"))
    assert counter() >= counters[-1] > 0
    engine.dispose()


def test_a_database_that_is_made_anew_with_the_same_rows_loses_none(tmp_path, url, cluster):
    for attempt in range(2):
        engine = a_database(url, NUMBERED)
        insert(engine, None, None, None)
        with Relay(cluster, engine, batch_size=2) as relay:
            if attempt == 0:
                assert relay.run_until_empty() == 3
            else:
                with pytest.raises(OutboxError, match="anew"):
                    relay.run_until_empty()
        engine.dispose()
        if attempt == 0:
            (tmp_path / "a.db").unlink()
    assert rows_left(engine) == 3
    Admin(cluster).delete_topics([position_topic("outbox")])  # as the error says
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == 3
    assert sent(cluster) == [0, 0, 1, 1, 2, 2]
    engine.dispose()


def test_an_id_that_is_given_again_is_never_taken_for_the_row_that_was_sent(cluster, engine, monkeypatch):
    insert(engine, 1, 2)
    dies_before_it_settles(Relay(cluster, engine), monkeypatch)
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM outbox"))
    insert(engine, 2, 3, payload=b"9")
    with (
        Relay(cluster, engine) as relay,
        pytest.raises(OutboxError, match=r"row 2 of table 'outbox' isn't as relay 'outbox' has sent it"),
    ):
        relay.run_until_empty()
    assert rows_left(engine) == 2
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE outbox SET id = 4 WHERE id = 2"))
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == 2
    assert sent(cluster) == [0, 1, 9, 9]


def test_a_column_that_is_added_after_the_commit_changes_no_row(cluster, engine, monkeypatch):
    """SQLite alone can't tell a changed schema from a table made anew, and asks."""
    insert(engine, 1, 2)
    dies_before_it_settles(Relay(cluster, engine), monkeypatch)
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE outbox ADD COLUMN tenant TEXT DEFAULT 'a'"))
    insert(engine, 3, payload=b"2")
    with Relay(cluster, engine) as relay, pytest.raises(OutboxError, match=r"row 1, 2: .*--same-table"):
        relay.run_until_empty()
    with Relay(cluster, engine, same_table=True) as relay:
        assert relay.run_until_empty() == 1
    assert sent(cluster) == [0, 1, 2]


@pytest.mark.parametrize("after", ["delete", "mark"])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            "DELETE FROM outbox WHERE position = 2",
            "1 rows were to be .*, expected the 2 that were sent; 1 aren't there",
        ),
        ("UPDATE outbox SET payload = '9' WHERE position = 2", "2 rows were to be .* 1 aren't the rows that were sent"),
        ("UPDATE outbox SET published_at = '2020-01-01' WHERE position = 2", "1 rows were to be .*, expected the 2"),
    ],
)
def test_rows_that_change_before_they_are_settled_stop_the_relay(url, cluster, monkeypatch, after, change, told):
    from sparklog.outbox import relay as relay_module
    from sparklog.outbox.settling import settle_rows

    engine = a_database(url)
    write(engine, 0, 1)

    def late(*given, **options):
        with engine.begin() as connection:
            connection.execute(sa.text(change))
        settle_rows(*given, **options)

    monkeypatch.setattr(relay_module, "settle_rows", late)
    with Relay(cluster, engine, after=after) as relay, pytest.raises(OutboxError, match=told):
        relay.run_until_empty()
    with engine.connect() as connection:
        left = connection.execute(
            sa.text("SELECT payload FROM outbox WHERE published_at IS NULL ORDER BY position")
        ).scalars()
        assert next(iter(left)) == b"0"  # nothing is settled in part
    engine.dispose()


# Positions of earlier versions


def an_old_position(cluster, ids, name="outbox"):
    from sparklog import Producer
    from sparklog.outbox.positions import ensure_position_topic

    ensure_position_topic(cluster, name)
    with Producer(cluster) as producer:
        value = '{"format":1,"ids":[' + ",".join(f'"{id}"' for id in ids) + "]}"
        producer.send(position_topic(name), value.encode(), name.encode()).get(60)


def test_a_position_of_ids_alone_deletes_nothing_unless_the_user_says_so(cluster, engine):
    insert(engine, 1, 2, 3)
    an_old_position(cluster, [1, 2])
    with (
        Relay(cluster, engine) as relay,
        pytest.raises(OutboxError, match=r"earlier version .*row 1, 2 .*--same-table"),
    ):
        relay.run_until_empty()
    assert rows_left(engine) == 3
    with Relay(cluster, engine, same_table=True) as relay:
        assert relay.run_until_empty() == 1
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == 0
    assert sent(cluster) == [2]


def test_a_position_of_ids_that_are_settled_goes_on(cluster, engine):
    insert(engine, 3, 4)
    an_old_position(cluster, [1, 2])
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == 2
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == 0


def test_a_relay_of_a_schema_that_has_a_position_by_its_earlier_name_keeps_it(cluster):
    an_old_position(cluster, ["a"])
    with Relay(cluster, "sqlite://", table="shop.outbox") as relay:
        assert relay.name == "outbox"
    with Relay(cluster, "sqlite://", table="shop.events") as relay:
        assert relay.name == "shop.events"


def test_a_new_name_beside_an_old_position_with_this_tables_ids_is_refused(cluster, url):
    engine = create_and_send(url, "order-7")
    an_old_position(cluster, ["order-7"], name="a")
    with Relay(cluster, engine) as relay, pytest.raises(InvalidArgumentError, match="--name a "):
        relay.run_until_empty()
    engine.dispose()


def create_and_send(url, id):
    engine = sa.create_engine(url)
    create_table(engine)
    with engine.begin() as connection:
        send(connection, ORDERS, "1", id=id)
    return engine
