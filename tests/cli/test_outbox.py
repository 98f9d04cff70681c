"""``sparklog outbox``: the relay as a command."""

import signal
import subprocess
import sys
import time

import pytest
import sqlalchemy as sa

from sparklog.outbox import send
from tests.cli.support import done, failure, json_lines
from tests.outbox.support import ORDERS, a_database, insert, rows_left, write


@pytest.fixture
def url(tmp_path):
    url = f"sqlite:///{tmp_path}/a.db"
    assert done("outbox", "create-table", "--url", url) == ""
    return url


@pytest.fixture
def cluster(tmp_path):
    root = f"{tmp_path}/cluster"
    done("topics", "create", ORDERS, cluster=root)
    return root


def test_rows_are_sent_once(url, cluster):
    engine = sa.create_engine(url)
    write(engine, 1, 2)
    assert done("outbox", "status", "--url", url, cluster=cluster).startswith("2 rows wait")
    assert done("outbox", "relay", "--url", url, "--once", cluster=cluster) == "sent 2 rows\n"
    assert done("outbox", "relay", "--url", url, "--once", cluster=cluster) == "sent 0 rows\n"
    assert done("outbox", "status", "--url", url, cluster=cluster) == "0 rows wait\n"
    records = json_lines(done("consume", ORDERS, "--from-beginning", "--json", cluster=cluster))
    assert [record["value"] for record in records] == ["1", "2"]
    engine.dispose()


def test_a_row_that_cannot_be_sent_is_named(url, cluster):
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        send(connection, "missing", "1", id="m-1")
    engine.dispose()
    assert "row m-1 of table 'outbox'" in failure("outbox", "relay", "--url", url, "--once", cluster=cluster)


def test_an_order_is_named_or_not_needed(tmp_path, cluster):
    url = f"sqlite:///{tmp_path}/five.db"
    engine = a_database(url, "id TEXT PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, payload BLOB, written INTEGER")
    command = ("outbox", "relay", "--url", url, "--once")
    assert "--order-by" in failure(*command, cluster=cluster)
    insert(engine, "b", payload=b"0", written=1)
    insert(engine, "a", payload=b"1", written=2)
    assert done(*command, "--order-by", "written", cluster=cluster) == "sent 2 rows\n"
    insert(engine, "c", payload=b"2", written=0)
    assert done(*command, "--unordered", cluster=cluster) == "sent 1 rows\n"
    records = json_lines(done("consume", ORDERS, "--from-beginning", "--json", cluster=cluster))
    assert [record["value"] for record in records] == ["0", "1", "2"]
    engine.dispose()


def test_a_table_that_was_moved_is_accepted_once(tmp_path, url, cluster):
    engine = sa.create_engine(url)
    write(engine, 1)
    assert done("outbox", "relay", "--url", url, "--once", cluster=cluster) == "sent 1 rows\n"
    engine.dispose()
    (tmp_path / "a.db").rename(tmp_path / "b.db")
    moved = ("outbox", "relay", "--url", f"sqlite:///{tmp_path}/b.db", "--once")
    assert "--same-table" in failure(*moved, cluster=cluster)
    assert done(*moved, "--same-table", cluster=cluster) == "sent 0 rows\n"
    assert done(*moved, cluster=cluster) == "sent 0 rows\n"


@pytest.mark.slow
def test_a_signal_ends_the_relay_after_its_batch(url, cluster):
    engine = sa.create_engine(url)
    write(engine, 1)
    command = [sys.executable, "-m", "sparklog", "--cluster", cluster, "outbox", "relay", "--url", url]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as relay:
        deadline = time.monotonic() + 60
        while rows_left(engine) and time.monotonic() < deadline:
            time.sleep(0.02)
        relay.send_signal(signal.SIGTERM)
        _, said = relay.communicate(timeout=60)
    engine.dispose()
    assert (relay.returncode, said) == (0, "sent 1 rows\n")
