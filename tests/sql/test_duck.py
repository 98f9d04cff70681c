"""SQL over topics: the views' columns, which records and files are read, and what goes wrong."""

import logging
import random
import sys
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from sparklog.admin import HIGH_WATERMARK, Admin, NewTopic
from sparklog.errors import (
    InvalidArgumentError,
    InvalidConfigurationError,
    ObjectNotFoundError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.cluster import open_cluster
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.sql import TOPIC_COLUMNS, connect, duck, query
from sparklog.sql.names import SYSTEM_VIEWS
from sparklog.sql.search import Search, TopicSearch
from sparklog.storage import LocalStore, MemoryStore
from sparklog.testing import CountingStore, ManualClock
from tests.overlapping import SlowStore, copy_topic, overlapping
from tests.support import (
    T0_MS,
    a_writer,
    foreign_commit,
    foreign_file,
    foreign_records,
    records,
    unsequenced_file,
    within,
)

T0 = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["memory", "folder"])
def cluster(request, tmp_path):
    """One whose files are copied for Arrow, and one whose files Arrow reads by itself."""
    clock = ManualClock(start_ms=T0_MS)
    store = MemoryStore(clock=clock) if request.param == "memory" else LocalStore(tmp_path / "a folder: 100%")
    return open_cluster(store, clock=clock)


def fill(cluster, topic, *values, partition=0, timestamp_ms=T0_MS):
    writer = a_writer(cluster.topic_log(topic), topic=topic)
    writer.append(
        writer.upload([(partition, records(*values, timestamp_ms=timestamp_ms))]), deadline=within(writer, 1_000)
    )


def rows(cluster, text):
    with query(cluster, text) as result:
        return [row for batch in result for row in batch.to_pylist()]


def values(cluster, where="true", topic="t"):
    found = rows(cluster, f'select "offset", decode(value) as v from {topic} where {where} order by partition, 1')
    return [(row["offset"], row["v"]) for row in found]


def test_a_topic_is_a_view_with_the_columns_of_sparks_kafka_source(cluster):
    Admin(cluster).create_topics([NewTopic("t", 2)])
    fill(cluster, "t", "a", "b", partition=1)
    with query(cluster, "select * from t") as found:
        assert tuple(found.schema.names) == TOPIC_COLUMNS
        [first, second] = [row for batch in found for row in batch.to_pylist()]
    assert first == {
        "topic": "t",
        "partition": 1,
        "offset": 0,
        "timestamp": T0,
        "timestamp_type": 0,
        "key": b"a",
        "value": b"a",
        "headers": None,
    }
    assert (second["offset"], second["timestamp"]) == (1, T0 + timedelta(milliseconds=1))


def test_an_empty_topic_is_an_empty_view(cluster):
    Admin(cluster).create_topics(["t"])
    assert rows(cluster, "select count(*) as n from t") == [{"n": 0}]
    assert rows(cluster, "select * from t") == []


def test_timestamps_of_the_log_are_told_apart(cluster):
    Admin(cluster).create_topics([NewTopic("t", configs={"message.timestamp.type": "LogAppendTime"})])
    fill(cluster, "t", "a")
    assert rows(cluster, "select timestamp_type from t") == [{"timestamp_type": 1}]


@pytest.mark.slow
def test_only_what_a_consumer_may_read_is_seen(cluster):
    Admin(cluster).create_topics([NewTopic("t", 2)])
    fill(cluster, "t", "a", "b", "c")
    fill(cluster, "t", "d", "e")
    fill(cluster, "t", "x", "y", partition=1)
    unsequenced_file(cluster.topic_log("t"), "not yet")
    assert values(cluster) == [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e"), (0, "x"), (1, "y")]
    Admin(cluster).delete_records({TopicPartition("t", 0): 2})
    assert values(cluster) == [(2, "c"), (3, "d"), (4, "e"), (0, "x"), (1, "y")]
    Admin(cluster).delete_records({TopicPartition("t", 0): 3, TopicPartition("t", 1): HIGH_WATERMARK})
    assert values(cluster) == [(3, "d"), (4, "e")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("true", "0/0 0/1 1/0 1/1 2/0 2/1"),
        ("partition = 1", "0/1 1/1 2/1"),
        ("partition in (1, 7)", "0/1 1/1 2/1"),
        ("timestamp >= '2100-01-01 01:30:00'", "2/0 2/1"),
        ("timestamp = '2100-01-01 01:00:00' and partition = 0", "1/0"),
        ("timestamp < '2100-01-01'", ""),
        ("topic = 'u'", ""),
    ],
)
def test_a_filter_on_partition_or_time_reads_no_file_that_cannot_match(tmp_path, where, found):
    """The other files are taken away: a query that tried to read one would fail."""
    cluster = open_cluster(tmp_path, clock=ManualClock(start_ms=T0_MS))
    Admin(cluster).create_topics([NewTopic("t", 2)])
    for hour in range(3):
        for partition in range(2):
            fill(cluster, "t", f"{hour}/{partition}", partition=partition, timestamp_ms=T0_MS + hour * 3_600_000)
    files = {
        decoded(file): file for file in (tmp_path / "topics" / "t").rglob("*.parquet") if "_delta_log" not in str(file)
    }
    assert len(files) == 6
    for value, file in files.items():
        if value not in found.split():
            file.unlink()
    assert sorted(value for _, value in values(cluster, where)) == found.split()


def decoded(file):
    return pq.read_table(file)["value"][0].as_py().decode()


@pytest.mark.slow
def test_records_of_other_engines_without_time_or_with_microseconds_are_found(cluster):
    Admin(cluster).create_topics(["t"])
    log = cluster.topic_log("t")
    table = foreign_records("a", "b", timestamp_ms=T0_MS)
    times = [T0_MS * 1_000 + 999, None]
    table = table.set_column(1, "timestamp", pa.array(times, pa.timestamp("us", "UTC")))
    foreign_commit(log, foreign_file(log, table, base_offset=0))
    assert values(cluster, "timestamp > '2100-01-01'") == [(0, "a")]
    assert values(cluster, "timestamp is null") == [(1, "b")]
    assert len(values(cluster)) == 2


@pytest.mark.slow
def test_names_are_found_in_the_query_in_any_case_and_no_others_are_loaded(cluster):
    Admin(cluster).create_topics(["Orders", "order-items", "a.b", "broken", "gone"])
    Admin(cluster).delete_topics(["gone"])
    fill(cluster, "Orders", "1")
    cluster.store.put("topics/broken/_delta_log/00000000000000000001.json", b"no json")
    assert len(rows(cluster, "select * from orders")) == 1
    assert rows(cluster, 'select count(*) as n from ORDERS o, "order-items", "a.b" where o.partition = 0') == [{"n": 0}]
    assert rows(cluster, "with gone as (select 1 as x) select x from gone, orders") == [{"x": 1}]
    assert rows(cluster, "select 7 as x") == [{"x": 7}]
    assert [row["column_name"] for row in rows(cluster, "describe orders")] == list(TOPIC_COLUMNS)


def test_show_tables_lists_the_topics(cluster):
    Admin(cluster).create_topics(["a", "b"])
    assert {row["name"] for row in rows(cluster, "show tables")} == {"a", "b", *SYSTEM_VIEWS}


@pytest.mark.slow
def test_groups_and_transactions_are_views(cluster):
    Admin(cluster).create_topics([NewTopic("t", 2), "Transactions"])
    fill(cluster, "t", "a", "b", "c", partition=1)
    Admin(cluster).alter_group_offsets("g", {TopicPartition("t", 1): OffsetAndMetadata(1, "why")})
    [row] = rows(cluster, 'select group_id, topic, partition, "offset", metadata from consumer_offsets')
    assert row == {"group_id": "g", "topic": "t", "partition": 1, "offset": 1, "metadata": "why"}
    lag = rows(cluster, "select group_id, committed_offset, log_end_offset, lag from CONSUMER_LAG where topic = 't'")
    assert lag == [{"group_id": "g", "committed_offset": 1, "log_end_offset": 3, "lag": 2}]
    assert rows(cluster, "select * from sparklog_transactions") == []
    assert rows(cluster, "select key from transactions") == []  # a topic has the name
    with connect(cluster, ["t", "consumer_lag"]) as connection:
        assert connection.sql("select count(*) from consumer_lag join t using (partition)").fetchall() == [(3,)]


def test_topics_that_differ_in_case_alone(cluster):
    Admin(cluster).create_topics(["T", "t", "u"])
    fill(cluster, "t", "small")
    assert values(cluster, topic="t") == [(0, "small")]
    assert values(cluster, topic="T") == []
    for attempt in (lambda: query(cluster, "select * from t, T"), lambda: connect(cluster, ["T", "u", "t"])):
        with pytest.raises(InvalidArgumentError, match="T and t differ in case alone"):
            attempt()


def test_the_oldest_of_topics_that_differ_in_case_alone_keeps_its_name(tmp_path, caplog):
    cluster = open_cluster(tmp_path)
    for topic in ("orders", "Orders", "u"):
        Admin(cluster).create_topics([topic])
        time.sleep(0.002)  # their ages are in milliseconds
    fill(cluster, "orders", "first")
    with caplog.at_level(logging.WARNING), connect(cluster) as connection:
        assert connection.execute("select decode(value) from ORDERS").fetchall() == [("first",)]
        assert {"orders", "u"} <= {name for (name,) in connection.execute("show tables").fetchall()}
    assert "topic Orders is left out of SQL over all topics" in caplog.text
    assert values(cluster, topic="oRDERS") == [(0, "first")]
    assert {"orders", "u"} <= {row["name"] for row in rows(cluster, "show tables")}
    Admin(cluster).delete_topics(["orders"])
    with connect(cluster) as connection:
        assert connection.execute("select count(*) from orders").fetchall() == [(0,)]
        assert "Orders" in {name for (name,) in connection.execute("show tables").fetchall()}
    assert "Orders" in {row["name"] for row in rows(cluster, "show tables")}


def test_a_connection_serves_python(tmp_path):
    cluster = open_cluster(tmp_path)
    Admin(cluster).create_topics(["t", "u"])
    writer = a_writer(cluster.topic_log("t"))
    writer.append(writer.upload([(0, records("a", "b"))]), deadline=within(writer, 60_000))
    with connect(tmp_path) as connection:
        assert connection.sql("select decode(value), timestamp from t").fetchall() == [
            ("a", T0),
            ("b", T0 + timedelta(milliseconds=1)),
        ]
        assert connection.sql("select count(*) from t join u using (key)").fetchall() == [(0,)]
    with connect(LocalStore(tmp_path), ["u"]) as connection:
        assert connection.sql("show tables").fetchall() == [("u",)]
    with pytest.raises(UnknownTopicOrPartitionError, match="nosuch"):
        connect(tmp_path, ["nosuch"])


def test_a_connection_to_named_topics_looks_at_no_other(tmp_path):
    store = CountingStore(LocalStore(tmp_path))
    cluster = open_cluster(store)
    calls = []
    for created in (["t"], ["u", "v"]):
        Admin(cluster).create_topics(created)
        store.reset()
        connect(cluster, ["t"]).close()
        calls.append(store.counts())
    assert calls[0] == calls[1]


def test_a_topic_that_cannot_be_opened_leaves_no_connection_open(tmp_path, monkeypatch):
    cluster = open_cluster(tmp_path)
    made = []
    empty_connection = duck._empty_connection

    def make():
        made.append(empty_connection())
        return made[-1]

    monkeypatch.setattr(duck, "_empty_connection", make)
    with pytest.raises(UnknownTopicOrPartitionError, match="nosuch"):
        connect(cluster, ["nosuch"])
    with pytest.raises(duck.duckdb_module().ConnectionException):
        made[0].execute("select 1")


def test_where_duckdb_cannot_be_set_up_its_error_is_raised(tmp_path, monkeypatch):
    def fail():
        raise OSError("no memory")

    cluster = open_cluster(tmp_path)
    Admin(cluster).create_topics(["t"])
    monkeypatch.setattr(duck, "_empty_connection", fail)
    for topics in (["t"], ["nosuch"]):
        with pytest.raises(OSError, match="no memory"):
            connect(cluster, topics)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selec", r"^Parser Error: syntax error at or near \"selec\"$"),
        ("select * from nosuch", r"^Catalog Error: Table with name nosuch does not exist!"),
        ("select x from t", r"^Binder Error: .*\"x\""),
        ("select decode(value)::int from t", r"^Conversion Error: .*"),
        ("insert into t values (1)", "t"),
    ],
)
def test_what_duckdb_says_of_a_wrong_query_is_told_in_one_line(cluster, text, message):
    Admin(cluster).create_topics(["t"])
    fill(cluster, "t", "a")
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        rows(cluster, text)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_file_that_is_gone_is_named(cluster):
    Admin(cluster).create_topics(["t"])
    fill(cluster, "t", "a")
    connection = connect(cluster)
    [path] = [found.path for found in cluster.store.list("topics/t/partition=0/")]
    cluster.store.delete([path])
    for _ in range(5):
        with pytest.raises((InvalidArgumentError, ObjectNotFoundError), match=path):
            rows(cluster, "select * from t")
    if isinstance(cluster.store.arrow_filesystem(), pafs.FileSystem):
        with pytest.raises(Exception, match=path):
            connection.sql("select * from t").fetchall()
    else:  # it was copied
        assert len(connection.sql("select * from t").fetchall()) == 1
    connection.close()


@pytest.mark.slow
def test_a_query_may_be_left_before_its_end(cluster):
    Admin(cluster).create_topics(["t"])
    for _ in range(5):
        fill(cluster, "t", *["x" * 1_000] * 100)
    with query(cluster, "select value from t") as result:
        assert next(iter(result)).num_rows > 0


def test_a_file_that_is_no_parquet_is_named(cluster):
    Admin(cluster).create_topics(["t"])
    fill(cluster, "t", "a")
    [path] = [found.path for found in cluster.store.list("topics/t/partition=0/")]
    cluster.store.put(path, b"no parquet")
    with pytest.raises(InvalidArgumentError, match=path):
        rows(cluster, "select * from t")


def test_without_duckdb_or_a_cluster_it_says_what_to_do(cluster, monkeypatch, tmp_path):
    with pytest.raises(InvalidArgumentError, match="no sparklog cluster at"):
        query(tmp_path / "nosuch", "select 1")
    assert not (tmp_path / "nosuch").exists()
    monkeypatch.setitem(sys.modules, "duckdb", None)
    for attempt in (lambda: query(cluster, "select 1"), lambda: connect(cluster)):
        with pytest.raises(InvalidConfigurationError, match=r"pip install 'sparklog\[sql\]'"):
            attempt()


@pytest.mark.s3
def test_sql_and_admin_on_s3(s3_uri, s3_options):
    with Admin(s3_uri, storage_options=s3_options) as admin:
        admin.create_topics(["t", "u", "gone"])
        admin.delete_topics(["gone"])
        assert admin.list_topics() == ["t", "u"]
    cluster = open_cluster(s3_uri, storage_options=s3_options)
    big = random.Random(0).randbytes(6_000_000)
    writer = a_writer(cluster.topic_log("t"), topic="t")
    for data in (b"small", big):
        writer.append(writer.upload([(0, records(data))]), deadline=within(writer, 60_000))
    assert rows(cluster, "select octet_length(value) as n from t order by 1") == [{"n": 5}, {"n": len(big)}]
    [path, *_] = [found.path for found in cluster.store.list("topics/t/partition=0/")]
    cluster.store.delete([path])
    with pytest.raises(InvalidArgumentError, match=path):
        rows(cluster, "select value from t")
    with query(s3_uri, "select 7 as x", storage_options=s3_options) as result:
        assert [batch.to_pylist() for batch in result] == [[{"x": 7}]]


def test_the_topics_of_a_query_are_loaded_side_by_side():
    with overlapping() as clock:
        memory = MemoryStore(clock=clock)
        cluster = open_cluster(memory, clock=clock)
        Admin(cluster).create_topics(["t"])
        fill(cluster, "t", "a")
        copy_topic(memory, "t", [f"t{number}" for number in range(6)])
        slow = open_cluster(SlowStore(memory, clock, latency_ms=20.0), clock=clock)
        began = clock.now
        both = " union all ".join(f"select * from t{number}" for number in range(6))
        assert len(rows(slow, both)) == 6
        assert clock.now - began <= 7 * 20.0


def test_topics_are_shown_as_of_older_versions(cluster):
    for topic in ("t", "u"):
        Admin(cluster).create_topics([NewTopic(topic)])
        for value in "abc":
            fill(cluster, topic, value)
    counts = "select (select count(*) from t) as t, (select count(*) from u) as u"
    with query(cluster, counts, versions={"t": 2}) as found:
        assert [row for batch in found for row in batch.to_pylist()] == [{"t": 2, "u": 3}]
    connection = connect(cluster, ["t"], versions={"t": 1})
    assert connection.sql("select decode(value) from t").fetchall() == [("a",)]
    connection.close()


def test_versions_that_cannot_be_shown(cluster):
    Admin(cluster).create_topics([NewTopic("t"), NewTopic("u")])
    for versions, told in (({"t": 7}, "as of version 7"), ({"u": 0}, "among the topics of the query")):
        with pytest.raises(InvalidArgumentError, match=told):
            query(cluster, "select * from t", versions=versions)
    with pytest.raises(InvalidArgumentError, match="got both"):
        query(cluster, "select * from t", versions={"t": 0}, consistent=True)


def test_a_version_of_another_topic_of_the_name_is_refused(cluster):
    """By a query and by a search: of a topic that was deleted, and of one that was made anew since."""
    admin = Admin(cluster)
    admin.create_topics([NewTopic("t")])
    fill(cluster, "t", "a")
    admin.delete_topics(["t"])

    def refused(version, error, match):
        with pytest.raises(error, match=match):
            query(cluster, "select * from t", versions={"t": version})
        with pytest.raises(error, match=match):
            connect(cluster, ["t"], versions={"t": version})
        with pytest.raises(error, match=match):
            TopicSearch(cluster, "t", Search(), version=version)

    for version in (0, 1, 2):
        refused(version, UnknownTopicOrPartitionError, "'t' was deleted")
    admin.create_topics([NewTopic("t")])
    for version in (0, 1, 2):
        refused(version, InvalidArgumentError, f"as of version {version}: that is of another topic")
    fill(cluster, "t", "b")
    with query(cluster, "select decode(value) as value from t", versions={"t": 4}) as found:
        assert [row for batch in found for row in batch.to_pylist()] == [{"value": "b"}]
    foreign_commit(cluster.topic_log("t"))  # its entry tells of no topic
    refused(1, InvalidArgumentError, "that is of another topic")
    assert len(list(TopicSearch(cluster, "t", Search(), version=4))) == 1
