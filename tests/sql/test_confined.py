"""A confined statement reads topics and nothing else, and ends when it is cancelled."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from sparklog.errors import InvalidArgumentError
from sparklog.log import Cluster, open_cluster
from sparklog.log.topic import create_topic
from sparklog.sql.confined import ConfinedQuery
from sparklog.storage import MemoryStore
from tests.support import a_writer, append


@pytest.fixture
def cluster() -> Cluster:
    cluster = open_cluster(MemoryStore())
    log = cluster.topic_log("orders")
    create_topic(log, "orders")
    append(a_writer(log, topic="orders"), "a", "b")
    return cluster


def rows(cluster: Cluster, text: str) -> list[dict[str, object]]:
    query = ConfinedQuery(cluster, text)
    try:
        query.run()
        return [row for batch in query.batches() for row in batch.to_pylist()]
    finally:
        query.close()


def test_topics_are_read(cluster: Cluster) -> None:
    assert rows(cluster, 'select "offset", decode(value) as v from orders order by 1') == [
        {"offset": 0, "v": "a"},
        {"offset": 1, "v": "b"},
    ]
    assert len(rows(cluster, "describe orders")) == 8


@pytest.mark.parametrize(
    "text",
    [
        "select * from read_text('/etc/passwd')",
        "select * from '/etc/passwd'",
        "select * from glob('/*')",
        "select * from glob('.tmp/*')",
        "select * from cluster",  # a variable of this program
        "select * from read_csv('http://127.0.0.1:1/x')",
    ],
)
def test_nothing_else_is_read(cluster: Cluster, text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        rows(cluster, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (" ", "empty"),
        ("select 1; select 2", "2 statements"),
        ("create table x as select 1", "CREATE"),
        ("copy orders to '/tmp/x'", "COPY"),
        ("attach '/tmp/x'", "ATTACH"),
        ("set memory_limit = '1TB'", "SET"),
        ("install httpfs", "LOAD"),
        ("delete from orders", "DELETE"),
        ("select", "Error"),
    ],
)
def test_only_one_select_is_run(cluster: Cluster, text: str, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        rows(cluster, text)


def test_any_thread_cancels_it(cluster: Cluster) -> None:
    query = ConfinedQuery(cluster, "select max(hash(range)) from range(100000000000)")
    timer = threading.Timer(0.05, query.cancel)
    timer.start()
    with pytest.raises(InvalidArgumentError, match="cancelled"):
        [query.run(), *query.batches()]
    timer.join()
    query.close()
    query.cancel()  # too late, and no error


def test_a_cancel_that_duckdb_forgets_comes_again(cluster: Cluster) -> None:
    """DuckDB forgets an interrupt that comes while it plans, before it executes."""
    query = ConfinedQuery(cluster, "select max(hash(range)) from range(100000000000)")
    connection = query._connection

    class Planning:
        def sql(self, text: str) -> Any:
            query.cancel()
            return connection.sql(text)

        def __getattr__(self, name: str) -> Any:
            return getattr(connection, name)

    query._connection = cast(Any, Planning())
    with pytest.raises(InvalidArgumentError, match="cancelled"):
        query.run()
    query.close()


def test_one_that_was_cancelled_before_it_began_does_not_begin(cluster: Cluster) -> None:
    query = ConfinedQuery(cluster, "select 1")
    query.cancel()
    with pytest.raises(InvalidArgumentError, match="cancelled"):
        query.run()
    query.close()
