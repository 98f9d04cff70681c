"""The relay of the outbox: every row once and in order, whatever fails when."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time

import pytest
import sqlalchemy as sa

from sparklog import Admin, NewTopic, Producer
from sparklog.errors import InvalidArgumentError, InvalidTypeError, StoreUnavailableError
from sparklog.log.cluster import open_cluster
from sparklog.outbox import OutboxError, Relay, RelayTakenOverError, create_table, send
from sparklog.outbox import relay as relay_module
from sparklog.outbox.positions import position_topic, read_position
from sparklog.outbox.settling import settle_rows
from sparklog.storage import LocalStore, MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore
from sparklog.testing.history import Recorder
from tests.databases import connection_lost_at_commits
from tests.depth import by_depth
from tests.histories import judge, note_promised
from tests.outbox.support import ORDERS, a_cluster, an_engine, records_of, rows_left, values_of, write


@pytest.fixture
def engine(database_url):
    with an_engine(database_url) as engine:
        yield engine


@pytest.fixture
def sqlite(tmp_path):
    with an_engine(f"sqlite:///{tmp_path}/a.db") as engine:
        yield engine


def by_key(records):
    found: dict[bytes | None, list[int]] = {}
    for record in records:
        found.setdefault(record.key, []).append(int(record.value))
    return found


# What is sent


@pytest.mark.parametrize("after", ["delete", "mark"])
def test_every_row_is_sent_once_and_those_of_an_aggregate_in_their_order(engine, after):
    cluster = a_cluster()
    write(engine, *range(25))
    with Relay(cluster, engine, batch_size=10, after=after) as relay:
        assert relay.metrics()["rows-waiting"] == 25
        assert relay.run_until_empty() == 25
        write(engine, *range(25, 30))
        assert relay.run_until_empty() == 5
        metrics = relay.metrics()
    assert metrics["rows-waiting"] == metrics["lag-seconds"] == 0
    assert (metrics["rows-sent-total"], metrics["batches-sent-total"]) == (30, 4)
    assert rows_left(engine) == 0
    records = records_of(cluster)
    assert sorted(int(record.value) for record in records) == list(range(30))
    assert all(numbers == sorted(numbers) for numbers in by_key(records).values())
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM outbox")).scalar() == (30 if after == "mark" else 0)


def test_a_row_becomes_a_record_with_its_id_and_type_as_headers(engine):
    cluster = a_cluster(ORDERS, "payments")
    with engine.begin() as connection:
        first = send(connection, ORDERS, {"total": 12}, "c-7", type="Placed", headers=[("trace", "1")])
        send(connection, "payments", b"\xff\x00", id="p-1")
        send(connection, "payments", None, "é")
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == 3
    (order,) = records_of(cluster)
    assert (json.loads(order.value), order.key) == ({"total": 12}, b"c-7")
    assert order.headers == [("id", first.encode()), ("eventType", b"Placed"), ("trace", b"1")]
    payments = records_of(cluster, "payments")
    assert {(record.key, record.value) for record in payments} == {(None, b"\xff\x00"), ("é".encode(), None)}
    assert ("id", b"p-1") in [header for record in payments for header in record.headers]


def test_what_is_rolled_back_is_never_sent(engine):
    cluster = a_cluster()
    with engine.connect() as connection:
        send(connection, ORDERS, "1")
        connection.rollback()
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == 0
    assert records_of(cluster) == []


def test_a_table_with_the_columns_of_debezium_is_enough(sqlite):
    with sqlite.begin() as connection:
        connection.execute(sa.text("DROP TABLE outbox"))
        columns = "id TEXT PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, type TEXT, payload TEXT, timestamp BIGINT"
        connection.execute(sa.text(f"CREATE TABLE outbox ({columns})"))
        for number in (2, 1, 3):
            values = {"id": f"id-{number}", "at": 10 - number, "payload": f"{number}"}
            connection.execute(
                sa.text("INSERT INTO outbox VALUES (:id, 'order', 'a', 'Placed', :payload, :at)"), values
            )
    cluster = a_cluster()
    with Relay(cluster, sqlite, order_by="timestamp") as relay:
        assert relay.run_until_empty() == 3
    assert values_of(cluster) == [3, 2, 1]


# Deaths


class Death(BaseException):
    """As if the process had been killed."""


@pytest.mark.parametrize("after", ["delete", "mark"])
@pytest.mark.parametrize("moment", ["before the commit", "after the commit", "after the rows are settled"])
def test_a_relay_that_died_is_followed_by_one_that_sends_every_row_once(sqlite, monkeypatch, moment, after):
    cluster = a_cluster()
    write(sqlite, *range(7))
    commit, settle = Producer.commit_transaction, settle_rows

    def dying_commit(producer):
        if moment == "before the commit":
            raise Death
        commit(producer)
        if moment == "after the commit":
            raise Death

    def dying_settle(engine, table, sent, **given):
        settle(engine, table, sent, **given)
        raise Death

    with monkeypatch.context() as patched:
        patched.setattr(Producer, "commit_transaction", dying_commit)
        patched.setattr(relay_module, "settle_rows", dying_settle)
        died = Relay(cluster, sqlite, batch_size=3, after=after)
        with pytest.raises(Death):
            died.run_until_empty()
    write(sqlite, 7)
    with Relay(cluster, sqlite, batch_size=3, after=after) as relay:
        relay.run_until_empty()
    died.close()
    assert sorted(values_of(cluster)) == list(range(8))
    assert rows_left(sqlite) == 0


def test_a_relay_that_is_followed_by_another_ends_and_sends_nothing_more(sqlite):
    cluster = a_cluster()
    write(sqlite, 0, 1)
    with Relay(cluster, sqlite, batch_size=1) as first, Relay(cluster, sqlite, batch_size=1) as second:
        assert first.run_once() == 1
        assert second.run_until_empty() == 1
        write(sqlite, 2)
        with pytest.raises(RelayTakenOverError, match="outbox"):
            first.run_once()
        assert second.run_until_empty() == 1
    assert sorted(values_of(cluster)) == [0, 1, 2]


def test_a_relay_whose_rows_its_follower_has_settled_ends_and_deletes_nothing(sqlite, monkeypatch):
    cluster = a_cluster()
    write(sqlite, 0)
    settle = settle_rows
    first = Relay(cluster, sqlite)

    def late_settle(engine, table, sent, **given):
        monkeypatch.setattr(relay_module, "settle_rows", settle)
        write(sqlite, 1)
        with Relay(cluster, sqlite) as second:
            assert second.run_until_empty() == 1
        write(sqlite, 2)
        settle(engine, table, sent, **given)

    monkeypatch.setattr(relay_module, "settle_rows", late_settle)
    with pytest.raises(RelayTakenOverError, match="outbox"):
        first.run_once()
    first.close()
    with Relay(cluster, sqlite) as third:
        assert third.run_until_empty() == 1
    assert sorted(values_of(cluster)) == [0, 1, 2]


# Outages


def test_a_database_that_goes_away_before_it_answers_is_tried_again(sqlite, monkeypatch):
    cluster = a_cluster()
    write(sqlite, *range(5))
    settle, failures = settle_rows, iter(range(3))

    def failing_settle(engine, table, sent, **given):
        settle(engine, table, sent, **given)
        if next(failures, None) is not None:
            raise sa.exc.OperationalError("DELETE", {}, Exception("server closed the connection"))

    monkeypatch.setattr(relay_module, "settle_rows", failing_settle)
    with Relay(cluster, sqlite, batch_size=2) as relay:
        relay.run_until_empty()
        assert relay.metrics()["outages-total"] == 3
    assert sorted(values_of(cluster)) == list(range(5))


@pytest.mark.parametrize("after", ["delete", "mark"])
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_database_commit_with_an_unknown_outcome_sends_every_row_once(engine, monkeypatch, is_committed, after):
    cluster = a_cluster()
    write(engine, *range(4))
    monkeypatch.setattr(relay_module, "_FIRST_PAUSE_S", 0.001)
    with (
        connection_lost_at_commits(engine, is_committed=is_committed) as counts,
        Relay(cluster, engine, batch_size=2, after=after) as relay,
    ):
        relay.run_until_empty()
        # Each batch's commit; where that had no effect, one as the relay begins again, too.
        assert (relay.metrics()["outages-total"], counts[0]) == ((1, 2) if is_committed else (2, 4))
    assert rows_left(engine) == 0
    records = records_of(cluster)
    assert sorted(int(record.value) for record in records) == list(range(4))
    assert all(numbers == sorted(numbers) for numbers in by_key(records).values())


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_row_written_again_after_an_unknown_outcome_is_sent_once(engine, is_committed):
    cluster = a_cluster()
    with connection_lost_at_commits(engine, is_committed=is_committed):
        outcomes = []
        for _ in range(2):
            try:
                with engine.begin() as connection:
                    send(connection, ORDERS, "7", id="order-7")
                outcomes.append("written")
            except sa.exc.OperationalError:
                outcomes.append("unknown")
            except sa.exc.IntegrityError:
                outcomes.append("known")
    assert outcomes == ["unknown", "known" if is_committed else "written"]
    with Relay(cluster, engine) as relay:
        assert relay.run_until_empty() == 1
    assert values_of(cluster) == [7]


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.THROTTLED])
@pytest.mark.parametrize("number", range(0, 16, 3))
def test_whatever_create_of_the_store_fails_every_row_is_sent_once(sqlite, kind, number):
    memory = MemoryStore()
    a_cluster(store=memory)
    write(sqlite, *range(3))
    faulty = FaultyStore(memory, Fault(kind=kind, ops=["create"], skip=number, times=2))
    with Relay(open_cluster(faulty, create=False), sqlite, batch_size=2) as relay:
        assert relay.run_until_empty() == 3
    assert sorted(values_of(open_cluster(memory, create=False))) == [0, 1, 2]
    assert rows_left(sqlite) == 0


@pytest.mark.slow
@pytest.mark.parametrize("after", ["delete", "mark"])
def test_relays_that_are_killed_send_every_row_once_and_in_order(tmp_path, after):
    root = f"{tmp_path}/cluster"
    cluster = a_cluster(store=LocalStore(root))
    url = f"sqlite:///{tmp_path}/a.db"
    options = ["--batch-size", "7", "--after", after, "--poll-interval-ms", "5", "--cluster", root]
    command = [sys.executable, "-m", "sparklog", "outbox", "relay", "--url", url, *options]
    delays = random.Random(17)
    total, recorder = 0, Recorder()
    with an_engine(url) as engine:
        for _ in range(by_depth(gate=1, nightly=8)):
            write(engine, *range(total, total + 60))
            for key in range(3):
                numbers = [number for number in range(total, total + 60) if number % 3 == key]
                note_promised(recorder, f"k{key} from {total}", ORDERS, numbers)
            total += 60
            with subprocess.Popen(command) as relay:
                deadline = time.monotonic() + 60
                while rows_left(engine) > 55 and time.monotonic() < deadline:
                    time.sleep(0.005)
                time.sleep(delays.uniform(0, 0.15))
                relay.kill()
        done = subprocess.run([*command, "--once"], check=True, capture_output=True, text=True)
        assert "sent" in done.stdout
        assert rows_left(engine) == 0
    records = records_of(cluster)
    assert sorted(int(record.value) for record in records) == list(range(total))
    assert all(numbers == sorted(numbers) for numbers in by_key(records).values())
    judge(recorder, cluster, ORDERS, count=total)


def test_an_outage_that_lasts_is_raised(sqlite, monkeypatch):
    cluster = a_cluster()

    def away(*_):
        raise StoreUnavailableError("away")

    monkeypatch.setattr(relay_module, "read_rows", away)
    with Relay(cluster, sqlite, max_outage_s=0) as relay, pytest.raises(StoreUnavailableError):
        relay.run()


# Rows that can't be sent, and bad arguments


def test_a_row_without_a_topic_stops_the_relay_and_is_not_skipped(sqlite):
    cluster = a_cluster()
    write(sqlite, 0)
    write(sqlite, 1, topic="outbox.event.invoice")
    write(sqlite, 2)
    with Relay(cluster, sqlite) as relay:
        with pytest.raises(OutboxError, match=r"row .* can't be sent to topic 'outbox.event.invoice'"):
            relay.run()
        assert (values_of(cluster), rows_left(sqlite)) == ([], 3)
        with Admin(cluster) as admin:
            admin.create_topics([NewTopic("outbox.event.invoice")])
        assert relay.run_until_empty() == 3
    assert sorted(values_of(cluster)) == [0, 2]


def test_a_row_that_is_too_large_is_named(sqlite):
    cluster = a_cluster()
    with sqlite.begin() as connection:
        send(connection, ORDERS, b"x" * 2_000_000, id="large")
    with Relay(cluster, sqlite) as relay, pytest.raises(OutboxError, match="row large of table 'outbox'"):
        relay.run()


def test_a_row_that_its_typed_topic_refuses_is_named_and_nothing_is_sent(sqlite):
    cluster = a_cluster()
    Admin(cluster).alter_value_schema(ORDERS, "id BIGINT")
    with sqlite.begin() as connection:
        send(connection, ORDERS, {"id": 1}, id="right")
        send(connection, ORDERS, {"id": "x"}, id="wrong")
    with Relay(cluster, sqlite) as relay, pytest.raises(OutboxError, match=r"row wrong .*field id: got 'x'"):
        relay.run_until_empty()
    assert records_of(cluster) == []
    assert rows_left(sqlite) == 2


def test_what_the_table_lacks_is_named(sqlite):
    cluster = a_cluster()
    with pytest.raises(InvalidArgumentError, match=r"no table 'other'.*create-table"):
        Relay(cluster, sqlite, table="other").run_once()
    with sqlite.begin() as connection:
        connection.execute(sa.text("CREATE TABLE few (id INTEGER PRIMARY KEY, payload TEXT)"))
        connection.execute(sa.text("CREATE TABLE reused (id INTEGER PRIMARY KEY, aggregatetype TEXT, payload TEXT)"))
    with pytest.raises(InvalidArgumentError, match="no column aggregatetype; it has id, payload"):
        Relay(cluster, sqlite, table="few").run_once()
    with pytest.raises(InvalidArgumentError, match="AUTOINCREMENT"):
        Relay(cluster, sqlite, table="reused").run_once()
    with pytest.raises(InvalidArgumentError, match="no column published_at"):
        Relay(cluster, sqlite, table="reused", after="mark").run_once()


@pytest.mark.parametrize("given", [{"after": "forget"}, {"batch_size": 0}, {"poll_interval_s": 0}])
def test_bad_arguments_are_refused(sqlite, given):
    with pytest.raises(InvalidArgumentError, match=next(iter(given))):
        Relay(a_cluster(), sqlite, **given)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"topic": ""}, InvalidArgumentError),
        ({"value": {1, 2}}, InvalidTypeError),
        ({"value": float("nan")}, InvalidTypeError),
        ({"key": b"bytes"}, InvalidTypeError),
        ({"id": ""}, InvalidArgumentError),
        ({"type": "x" * 256}, InvalidArgumentError),
        ({"headers": [("a", b"b")]}, InvalidTypeError),
    ],
    ids=str,
)
def test_what_cannot_be_a_row_is_refused(sqlite, given, error):
    with sqlite.begin() as connection, pytest.raises(error):
        send(connection, **{"topic": ORDERS, **given})


# Positions


def test_the_position_is_that_of_the_newest_batch_once_older_ones_are_compacted(sqlite):
    from sparklog.compaction import maintain

    cluster = a_cluster()
    with Relay(cluster, sqlite, batch_size=1) as relay:
        write(sqlite, *range(4))
        relay.run_until_empty()
    maintain(cluster, [position_topic("outbox")], full=True)
    newest = next(value for record in records_of(cluster) if record.value == b"3" for _, value in record.headers[:1])
    assert read_position(cluster, "outbox") == [newest.decode()]


# Running


def test_rows_that_come_while_it_runs_are_sent_until_it_is_stopped(engine):
    cluster = a_cluster()
    with Relay(cluster, engine, poll_interval_s=0.05) as relay:
        running = threading.Thread(target=relay.run)
        running.start()
        write(engine, 0)
        deadline = time.monotonic() + 60
        while rows_left(engine) and time.monotonic() < deadline:
            time.sleep(0.01)
        write(engine, 1)
        while rows_left(engine) and time.monotonic() < deadline:
            time.sleep(0.01)
        relay.stop()
        running.join(60)
        assert not running.is_alive()
    assert sorted(values_of(cluster)) == [0, 1]


@pytest.mark.slow
def test_postgresql_wakes_the_relay(postgresql):
    with an_engine(postgresql) as engine:
        cluster = a_cluster()
        write(engine, 0)
        with Relay(cluster, engine, poll_interval_s=1_000) as relay:
            running = threading.Thread(target=relay.run)
            running.start()
            deadline = time.monotonic() + 60
            for number in range(1, 4):
                while rows_left(engine) and time.monotonic() < deadline:
                    time.sleep(0.01)
                write(engine, number)
            while rows_left(engine) and time.monotonic() < deadline:
                time.sleep(0.01)
            relay.stop()
            running.join(60)
    assert sorted(values_of(cluster)) == [0, 1, 2, 3]


def test_a_table_in_the_database_is_made_once(sqlite):
    create_table(sqlite)
    create_table(sqlite, "another")
    assert {"outbox", "another"} <= set(sa.inspect(sqlite).get_table_names())
