"""The inbox: an effect in the database of the application, once for each message."""

from __future__ import annotations

import datetime
import threading
from contextlib import suppress

import pytest
import sqlalchemy as sa

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
    with engine.connect() as connection, inbox.once(connection, a_record()):
        add(connection)
        connection.rollback()
    assert total(engine) == 0
    with engine.begin() as connection, inbox.once(connection, a_record()) as message:
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
            if inbox.check_and_record(connection, a_record()):
                add(connection)
            add(connection)
    assert total(engine) == 3


def test_of_two_at_the_same_time_one_has_the_effect(engine):
    start, outcomes = threading.Barrier(2), []

    def deal():
        start.wait(60)
        try:
            with engine.begin() as connection, inbox.once(connection, a_record()):
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
    with engine.begin() as connection:
        assert inbox.check_and_record(connection, a_record())


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], "orders-0-7"),
        ([("id", b"a-1")], "a-1"),
        ([("id", b"old"), ("id", b"new")], "new"),
        ([("id", None)], "orders-0-7"),
    ],
)
def test_the_id_of_a_message_is_its_header_or_its_offset(headers, expected):
    assert inbox.message_id(a_record(7, headers)) == expected


@pytest.mark.parametrize("given", [b"\xff", b"x" * 256])
def test_an_id_that_does_not_fit_stands_as_its_hash(given):
    found = inbox.message_id(a_record(7, [("id", given)]))
    assert found.startswith("sha256:")
    assert len(found) == 71


def test_ids_that_differ_in_case_alone_are_two_messages(engine):
    with engine.begin() as connection:
        for given in (b"a", b"A"):
            assert inbox.check_and_record(connection, a_record(headers=[("id", given)]))


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
            assert inbox.check_and_record(connection, a_record(offset))
        connection.execute(
            sa.text("UPDATE sparklog_inbox SET processed_at = '2020-01-01 00:00:00' WHERE message_id <> 'orders-0-3'")
        )
    assert inbox.prune(engine, older_than=datetime.timedelta(days=1)) == 4
    assert inbox.prune(engine, older_than=datetime.timedelta(days=1)) == 0
    with engine.begin() as connection:
        assert not inbox.check_and_record(connection, a_record(3))
        assert inbox.check_and_record(connection, a_record(0))


def test_a_group_that_does_not_fit_is_refused(engine):
    with engine.begin() as connection, pytest.raises(InvalidArgumentError, match="256 characters"):
        inbox.check_and_record(connection, a_record(), group="g" * 256)
