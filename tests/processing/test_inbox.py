"""The inbox: an effect in the database of the application, once for each message."""

from __future__ import annotations

import datetime
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import sqlalchemy as sa

from sparklog import outbox
from sparklog.errors import InvalidArgumentError
from sparklog.model import ConsumerRecord
from sparklog.processing import App, Record, Retry, inbox
from sparklog.testing.processing import AppDriver
from tests.databases import connection_lost_at_commits


@pytest.fixture
def engine(database_url):
    engine = sa.create_engine(database_url)
    metadata = sa.MetaData()
    metadata.reflect(engine)
    metadata.drop_all(engine)
    inbox.create_table(engine)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE account (id INTEGER PRIMARY KEY, total INTEGER, version INTEGER)"))
        connection.execute(sa.text("INSERT INTO account VALUES (1, 0, 0)"))
    yield engine
    engine.dispose()


def a_record(offset=0, headers=()):
    return ConsumerRecord(
        topic="orders",
        partition=0,
        leader_epoch=-1,
        offset=offset,
        timestamp=0,
        timestamp_type=0,
        key=None,
        value=b"1",
        headers=list(headers),
        checksum=None,
        serialized_key_size=-1,
        serialized_value_size=1,
        serialized_header_size=-1,
    )


def add(connection):
    connection.execute(sa.text("UPDATE account SET total = total + 1 WHERE id = 1"))


def total(engine):
    with engine.connect() as connection:
        return connection.execute(sa.text("SELECT total FROM account")).scalar()


def test_an_effect_is_had_once_for_each_message_of_a_group(engine):
    for _ in range(3):
        for offset in (0, 1):
            with (
                suppress(inbox.AlreadyProcessedError),
                engine.begin() as connection,
                inbox.once(connection, a_record(offset), group="billing"),
            ):
                add(connection)
    assert total(engine) == 2
    with (
        engine.begin() as connection,
        pytest.raises(inbox.AlreadyProcessedError, match="'billing' has dealt with message 'orders-0-1'"),
        inbox.once(connection, a_record(1), group="billing"),
    ):
        add(connection)
    with engine.begin() as connection, inbox.once(connection, a_record(), group="another"):
        add(connection)
    assert total(engine) == 3


def test_an_effect_that_is_rolled_back_is_had_by_the_next_try(engine):
    with engine.connect() as connection, inbox.once(connection, a_record(), group="g"):
        add(connection)
        connection.rollback()
    assert total(engine) == 0
    with engine.begin() as connection, inbox.once(connection, a_record(), group="g") as message:
        add(connection)
    assert (total(engine), message) == (1, "orders-0-0")


@pytest.mark.parametrize("is_committed", [False, True])
def test_an_effect_whose_commit_has_an_unknown_outcome_is_had_once(engine, is_committed):
    """The worker tries again. ✗ It takes the error for a failure, and the effect is had twice."""
    app, calls = App("nowhere", group_id="billing"), []

    @app.subscriber("orders", retry=Retry(attempts=3))
    def bill(record: Record[str]) -> None:
        calls.append(record.value)
        with engine.begin() as connection, inbox.once(connection, record):
            add(connection)

    driver = AppDriver(app)
    driver.send("orders", "a")
    driver.send("orders", "b")
    with connection_lost_at_commits(engine, is_committed=is_committed):
        driver.run()
        for _ in range(3):
            driver.advance(60_000)
    # With the first effect committed the second try has nothing to commit, and the next commit is one that goes well.
    assert calls == (["a", "a", "b"] if is_committed else ["a", "a", "b", "b"])
    assert (total(engine), driver.committed("orders"), driver.dead_letters) == (2, 2, [])


def test_the_rest_of_a_transaction_goes_on_after_a_message_that_is_known(engine):
    for _ in range(2):
        with engine.begin() as connection:
            if inbox.check_and_record(connection, a_record(), group="g"):
                add(connection)
            add(connection)
    assert total(engine) == 3


def test_of_two_at_the_same_time_one_has_the_effect(engine):
    start, outcomes = threading.Barrier(2), []

    def deal():
        start.wait(60)
        try:
            with engine.begin() as connection, inbox.once(connection, a_record(), group="g"):
                add(connection)
            outcomes.append("done")
        except inbox.AlreadyProcessedError:
            outcomes.append("known")
        except sa.exc.OperationalError:  # a lock, or a deadlock: the caller tries again
            outcomes.append("again")

    threads = [threading.Thread(target=deal) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert outcomes.count("done") == 1
    assert total(engine) == 1


def test_the_group_of_the_worker_is_the_default(engine):
    before = inbox.current_group.set("billing")
    try:
        with engine.begin() as connection:
            assert inbox.check_and_record(connection, a_record())
            assert not inbox.check_and_record(connection, a_record(), group="billing")
    finally:
        inbox.current_group.reset(before)


@pytest.mark.parametrize("given", [{}, {"group": ""}])
def test_a_message_of_no_group_is_refused(engine, given):
    """✗ All that name no group are one: the second application's effects don't happen."""
    with engine.begin() as connection:
        with pytest.raises(InvalidArgumentError, match=r"no group is given, .* expected group="):
            inbox.check_and_record(connection, a_record(), **given)
        with (
            pytest.raises(InvalidArgumentError, match="no group is given"),
            inbox.once(connection, a_record(), **given),
        ):
            add(connection)
    assert total(engine) == 0


def test_a_thread_that_a_handler_hands_its_work_to_has_to_name_the_group(engine):
    app, errors = App("nowhere", group_id="billing"), []

    def effect(record, **given):
        with engine.begin() as connection:
            return inbox.check_and_record(connection, record, **given)

    @app.subscriber("orders")
    def bill(record: Record[str]) -> None:
        with ThreadPoolExecutor(1) as pool:
            errors.append(pool.submit(effect, record).exception())
            assert pool.submit(effect, record, group="billing").result()

    driver = AppDriver(app)
    driver.send("orders", "a")
    driver.run()
    assert isinstance(errors[0], InvalidArgumentError)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], "orders-0-7"),
        ([("id", b"a-1")], "a-1"),
        ([("id", b"the relay's"), ("id", b"the application's")], "the relay's"),
        ([("id", None)], "orders-0-7"),
        ([("id", b"")], "orders-0-7"),
    ],
)
def test_the_id_of_a_message_is_its_header_or_its_offset(headers, expected):
    assert inbox.message_id(a_record(7, headers)) == expected


@pytest.mark.parametrize("given", [b"\xff", b"x" * 256])
def test_an_id_that_does_not_fit_stands_as_its_hash(given):
    found = inbox.message_id(a_record(7, [("id", given)]))
    assert found.startswith("sha256:")
    assert len(found) == 71


IDS = [
    *(b"a", b"A", b"a ", b"a  ", b" a", b"A ", b"a\x00", b"\x00a", b"a\t", b"a\n", b"a\x1f", b"a\xc2\xa0"),
    *(
        "é".encode(),
        b"e",
        b"E",
        "e\u0301".encode(),
        "ß".encode(),
        b"ss",
        "ø".encode(),
        b"o",
        b"I",
        "\u0131".encode(),
    ),
    *(
        "\u200b".encode(),
        "x\u200b".encode(),
        b"x",
        "😀".encode(),
        "😁".encode(),
        "日".encode(),
        "月".encode(),
        b"?",
        b"??",
    ),
    *(b"\xff", b"\xfe", b"x" * 255, b"x" * 256, b"x" * 255 + b"y", b"0", b"00", b"0.0", b"1e0", b"-0"),
]


def make_table(engine, columns):
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE sparklog_inbox"))
        connection.execute(
            sa.text(
                f"CREATE TABLE sparklog_inbox (group_id {columns}, message_id {columns}, "
                "processed_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL, PRIMARY KEY (group_id, message_id))"
            )
        )


def judge_ids(engine):
    for given in IDS:
        with engine.begin() as connection:
            assert inbox.check_and_record(connection, a_record(headers=[("id", given)]), group="g"), given
    for given in IDS:
        with engine.begin() as connection:
            assert not inbox.check_and_record(connection, a_record(headers=[("id", given)]), group="g"), given
    groups = ["g ", "G", "h", "h ", "H", "é", "e"]
    for group in groups:
        for is_new in (True, False):
            with engine.begin() as connection:
                assert inbox.check_and_record(connection, a_record(), group=group) is is_new, group


def test_ids_are_compared_byte_for_byte(engine):
    judge_ids(engine)


COLUMNS = {
    "mysql": [
        "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
        "VARCHAR(255) CHARACTER SET latin1",
        "VARCHAR(255) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin",
        "VARBINARY(1020)",
    ],
    "sqlite": ["VARCHAR(255)", "TEXT", "TEXT COLLATE NOCASE", "TEXT COLLATE RTRIM", ""],
    "postgresql": ["VARCHAR(255)", "TEXT", "TEXT COLLATE loose", "CHAR(255)"],
}


def test_ids_are_compared_byte_for_byte_in_tables_of_others(engine):
    """A table of an earlier version, of SQLAlchemy's dialect ``mariadb``, or of a migration by hand."""
    if engine.dialect.name == "postgresql":
        loose = (
            "CREATE COLLATION IF NOT EXISTS loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
        )
        with engine.begin() as connection:
            connection.execute(sa.text(loose))
    for columns in COLUMNS[engine.dialect.name]:
        make_table(engine, columns)
        inbox_engine = sa.create_engine(engine.url)  # which hasn't seen the table before
        judge_ids(inbox_engine)
        inbox_engine.dispose()


def test_messages_that_an_earlier_version_has_recorded_stay_known(engine):
    """It stored each id as it was, and its tables had the collation of the database."""
    for columns in COLUMNS[engine.dialect.name][:3]:
        if columns.endswith("loose"):
            continue
        make_table(engine, columns)
        other = sa.create_engine(engine.url)
        with other.begin() as connection:
            for text in ("Order-7", "x y ", "é"):
                connection.execute(
                    sa.text("INSERT INTO sparklog_inbox (group_id, message_id) VALUES ('Billing', :text)"),
                    {"text": text},
                )
        for text in ("Order-7", "x y ", "é", "order-7", "x y", "e", "ORDER-7"):
            with other.begin() as connection:
                is_new = text not in ("Order-7", "x y ", "é")
                record = a_record(headers=[("id", text.encode())])
                assert inbox.check_and_record(connection, record, group="Billing") is is_new, (columns, text)
                assert not inbox.check_and_record(connection, record, group="Billing")
                assert inbox.check_and_record(connection, record, group="billing")
        other.dispose()


def test_a_table_that_is_made_through_the_dialect_mariadb_compares_bytes(engine):
    if engine.dialect.name != "mysql":
        pytest.skip("the dialect's name is that of the URL")
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE sparklog_inbox"))
    other = sa.create_engine(engine.url.set(drivername=engine.url.drivername.replace("mysql+", "mariadb+")))
    inbox.create_table(other)
    with other.connect() as connection:
        [(_, ddl)] = connection.execute(sa.text("SHOW CREATE TABLE sparklog_inbox"))
    assert "utf8mb4_bin" in ddl
    judge_ids(other)
    other.dispose()


def test_what_the_table_refuses_for_another_reason_is_an_error(engine):
    """✗ INSERT IGNORE stores nothing, or a part, and says that the message is known."""
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite doesn't bound texts")
    make_table(engine, "VARCHAR(10)")
    with (
        pytest.raises((sa.exc.DataError, InvalidArgumentError), match=r"10|too long"),
        engine.begin() as connection,
    ):
        inbox.check_and_record(connection, a_record(headers=[("id", b"longer-than-ten")]), group="g")


@pytest.mark.parametrize(
    "columns",
    [
        "group_id VARCHAR(255), message_id VARCHAR(255)",
        "group_id VARCHAR(255), message_id VARCHAR(255) PRIMARY KEY",
        "group_id VARCHAR(255), message_id VARCHAR(255), number INTEGER DEFAULT 0, "
        "PRIMARY KEY (group_id, message_id, number)",
        "group_id VARCHAR(255), message_id VARCHAR(255) UNIQUE, PRIMARY KEY (group_id, message_id)",
        "group_id VARCHAR(255), id VARCHAR(255), PRIMARY KEY (group_id, id)",
        "group_id VARCHAR(255), message_id NUMERIC, PRIMARY KEY (group_id, message_id)",
    ],
)
def test_a_table_in_which_effects_would_be_lost_or_doubled_is_refused(engine, columns):
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE sparklog_inbox"))
        connection.execute(sa.text(f"CREATE TABLE sparklog_inbox ({columns})"))
    with pytest.raises(InvalidArgumentError, match="table 'sparklog_inbox'"), engine.begin() as connection:
        inbox.check_and_record(connection, a_record(), group="g")


def test_a_unique_key_of_another_name_will_do(engine):
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE sparklog_inbox"))
        connection.execute(
            sa.text("CREATE TABLE sparklog_inbox (group_id VARCHAR(255) NOT NULL, message_id VARCHAR(255) NOT NULL)")
        )
        connection.execute(sa.text("CREATE UNIQUE INDEX messages ON sparklog_inbox (message_id, group_id)"))
    for is_new in (True, False):
        with engine.begin() as connection:
            assert inbox.check_and_record(connection, a_record(), group="g") is is_new


def test_a_table_that_is_not_there_is_named(engine):
    with pytest.raises(InvalidArgumentError, match=r"no table 'other'.*create_table"), engine.begin() as connection:
        inbox.check_and_record(connection, a_record(), group="g", table="other")


def test_an_effect_that_could_not_be_rolled_back_is_refused(engine):
    committing = sa.create_engine(engine.url, isolation_level="AUTOCOMMIT")
    with pytest.raises(InvalidArgumentError, match="AUTOCOMMIT"), committing.connect() as connection:
        inbox.check_and_record(connection, a_record(), group="g")
    committing.dispose()
    if engine.dialect.name == "mysql":
        with engine.begin() as connection:
            connection.execute(sa.text("ALTER TABLE sparklog_inbox ENGINE = Aria"))
        with pytest.raises(InvalidArgumentError, match="Aria"), engine.begin() as connection:
            inbox.check_and_record(connection, a_record(), group="g")


def test_a_row_is_changed_if_it_has_the_version_that_was_expected(engine):
    account = sa.Table("account", sa.MetaData(), autoload_with=engine)
    for expected in (True, False):
        with engine.begin() as connection:
            assert inbox.update_if_version(connection, account, {"id": 1}, 0, {"total": 12}) is expected
    with engine.connect() as connection:
        assert tuple(connection.execute(sa.select(account)).one()) == (1, 12, 1)


def test_messages_that_are_old_are_forgotten(engine):
    with engine.begin() as connection:
        for offset in range(5):
            assert inbox.check_and_record(connection, a_record(offset), group="g")
        connection.execute(
            sa.text("UPDATE sparklog_inbox SET processed_at = '2020-01-01 00:00:00' WHERE message_id <> 'orders-0-3'")
        )
    assert inbox.prune(engine, older_than=datetime.timedelta(days=1)) == 4
    assert inbox.prune(engine, older_than=datetime.timedelta(days=1)) == 0
    with engine.begin() as connection:
        assert not inbox.check_and_record(connection, a_record(3), group="g")
        assert inbox.check_and_record(connection, a_record(0), group="g")


def test_a_group_that_does_not_fit_is_refused(engine):
    with engine.begin() as connection, pytest.raises(InvalidArgumentError, match="256 characters"):
        inbox.check_and_record(connection, a_record(), group="g" * 256)


@pytest.mark.parametrize("name", ["id", "eventType"])
def test_the_outbox_refuses_headers_that_the_relay_sets(engine, name):
    """✗ The application's stands behind the relay's, and two messages have one id."""
    outbox.create_table(engine)
    with engine.begin() as connection, pytest.raises(InvalidArgumentError, match=f"header '{name}' is the relay's own"):
        outbox.send(connection, "outbox.event.order", b"x", headers=[(name, "order-7")])
