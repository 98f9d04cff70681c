"""SQL views over topics and groups, and ``read_topic``: what is seen, and which files are read for it."""

import os
import re
import threading
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest

import sparklog.spark as ss
from sparklog.admin import HIGH_WATERMARK, Admin, NewTopic
from sparklog.errors import InvalidArgumentError, UnknownTopicOrPartitionError
from sparklog.log import create_topic
from sparklog.log.cluster import open_cluster
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.producer import Producer
from sparklog.spark.views import views
from sparklog.spark.views.sqltext import RECORD_COLUMNS
from tests.spark.spark_support import HOUR_MS, a_cluster, files_read, put, seen
from tests.support import T0_MS, unsequenced_file
from tests.txn.support import Driver
from tests.txn.test_consistent_read import decide_and_publish_in

pytestmark = pytest.mark.spark

T0 = datetime(2100, 1, 1, tzinfo=UTC)


def test_a_topic_is_a_view_with_the_columns_of_kafkas_source(spark, tmp_path):
    cluster = a_cluster(tmp_path / "a folder: 100%", "my-topic.x", {"message.timestamp.type": "LogAppendTime"})
    with Producer(cluster) as producer:
        producer.send("my-topic.x", b"v", key=b"k", headers=[("h", b"1"), ("h", None)], partition=1)
    names = ss.register(spark, tmp_path / "a folder: 100%")
    assert names == ["my-topic.x", "consumer_offsets", "consumer_lag", "transactions"]
    view = spark.table("`my-topic.x`")
    assert tuple(view.columns) == RECORD_COLUMNS
    kinds = {name: kind for name, kind in view.dtypes if name != "headers"}
    assert kinds == {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
    }
    [row] = view.collect()
    assert (bytes(row.key), bytes(row.value), row.topic, row.partition, row.offset) == (b"k", b"v", "my-topic.x", 1, 0)
    assert [(header.key, header.value) for header in row.headers] == [("h", b"1"), ("h", None)]
    assert row.timestampType == 1


def test_tables_of_several_topics_are_loaded_side_by_side_and_shown_all_or_none(spark, tmp_path, monkeypatch):
    Admin(a_cluster(tmp_path, "first")).create_topics(["second"])
    meeting, records = threading.Barrier(2, timeout=300), views._records

    def meet(table, topic, head):
        meeting.wait()
        if topic == "second" and fails:
            raise InvalidArgumentError("second")
        return records(table, topic, head)

    monkeypatch.setattr(views, "_records", meet)
    for fails in (True, False):
        with pytest.raises(InvalidArgumentError, match="second") if fails else nullcontext():
            ss.register(spark, tmp_path, ["first", "second"])
        assert spark.catalog.tableExists("first") is not fails


def test_a_view_shows_what_is_in_the_log_and_nothing_else(spark, tmp_path):
    cluster = a_cluster(tmp_path)
    put(cluster, (0, "abc"), (1, "x"))
    put(cluster, (0, "de"))
    unsequenced_file(cluster.topic_log("t"), "not yet")
    Admin(cluster).delete_records({TopicPartition("t", 0): 2, TopicPartition("t", 1): HIGH_WATERMARK})
    ss.register(spark, tmp_path)
    view = spark.table("t")
    assert seen(view) == [(0, 2, "c"), (0, 3, "d"), (0, 4, "e")]
    put(cluster, (1, "y"))
    Admin(cluster).create_partitions({"t": 3})
    put(cluster, (2, "z"))
    assert seen(spark.table("t")) == [(0, 2, "c"), (0, 3, "d"), (0, 4, "e"), (1, 1, "y"), (2, 0, "z")]
    Admin(cluster).delete_records({TopicPartition("t", 0): 4})
    ss.register(spark, tmp_path)
    assert seen(spark.table("t")) == [(0, 4, "e"), (1, 1, "y"), (2, 0, "z")]


def test_a_filter_on_partition_or_time_reads_only_files_that_can_match(spark, tmp_path):
    cluster = a_cluster(tmp_path)
    for hour in range(3):
        put(cluster, (0, "ab"), (1, "cd"), timestamp_ms=T0_MS + hour * HOUR_MS)
    unsequenced_file(cluster.topic_log("t"), "not yet")
    ss.register(spark, tmp_path)

    def read(where):
        return files_read(spark.sql(f"SELECT value FROM t WHERE {where}"))

    assert read("true") == (12, 6)
    assert read("partition = 1") == (6, 3)
    assert read("timestamp >= TIMESTAMP '2100-01-01 01:30:00'") == (4, 2)
    assert read("timestamp < TIMESTAMP '2100-01-01 00:30:00' AND partition IN (1, 7)") == (2, 1)
    assert read("topic = 'other'") == (0, 0)


def test_read_topic_reads_only_the_files_of_a_range(spark, tmp_path):
    cluster = a_cluster(tmp_path)
    for hour in range(5):
        put(cluster, (0, "abc"), (1, "x"), timestamp_ms=T0_MS + hour * HOUR_MS)

    def read(**limits):
        return files_read(ss.read_topic(spark, tmp_path, "t", **limits).select("value"))

    assert read() == (20, 10)
    assert read(starting={0: 7, 1: 5}, ending={0: 10}) == (3, 2)  # 7, 8 and 9 are in two files
    assert read(starting={0: 12}) == (3 + 5, 1 + 5)
    assert read(ending=1) == (2, 2)
    assert read(starting=1_000) == (0, 0)
    assert read(starting=T0 + timedelta(hours=3), ending=T0 + timedelta(hours=4)) == (4, 2)
    assert seen(ss.read_topic(spark, tmp_path, "t", starting={0: 13, 1: 4})) == [
        (0, 13, "b"),
        (0, 14, "c"),
        (1, 4, "x"),
    ]
    with pytest.raises(InvalidArgumentError, match="no partition 2"):
        ss.read_topic(spark, tmp_path, "t", starting={2: 0})


def test_read_topic_travels_in_time(spark, tmp_path):
    cluster = a_cluster(tmp_path)
    put(cluster, (0, "abc"))
    put(cluster, (0, "de"))
    Admin(cluster).delete_records({TopicPartition("t", 0): 4})
    now = ss.read_topic(spark, tmp_path, "t")
    put(cluster, (0, "f"))
    assert seen(now) == [(0, 4, "e")]  # as of when it was asked for
    assert seen(ss.read_topic(spark, tmp_path, "t", version=1)) == [(0, 0, "a"), (0, 1, "b"), (0, 2, "c")]
    assert seen(ss.read_topic(spark, tmp_path, "t", version=2, starting=2, ending=4)) == [(0, 2, "c"), (0, 3, "d")]
    assert seen(ss.read_topic(spark, tmp_path, "t", version=3)) == [(0, 4, "e")]
    with pytest.raises(InvalidArgumentError, match="version 9"):
        ss.read_topic(spark, tmp_path, "t", version=9)
    with pytest.raises(UnknownTopicOrPartitionError):
        ss.read_topic(spark, tmp_path, "u")


def test_groups_are_views_of_what_they_are_now(spark, tmp_path):
    cluster = a_cluster(tmp_path)
    admin = Admin(cluster)
    put(cluster, (0, "abc"), (1, "x"))
    admin.alter_group_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(1, "note")})
    admin.alter_group_offsets("gone", {TopicPartition("t", 0): OffsetAndMetadata(1)})
    admin.delete_group_offsets("gone", [TopicPartition("t", 0)])
    ss.register(spark, tmp_path)
    [row] = spark.table("consumer_offsets").collect()
    assert (row.group_id, row.topic, row.partition, row.offset, row.metadata) == ("g", "t", 0, 1, "note")
    assert abs(row.commit_timestamp - datetime.now()) < timedelta(hours=24)
    put(cluster, (0, "d"))
    lag = "SELECT group_id, partition, committed_offset, log_end_offset, lag FROM consumer_lag"
    assert [tuple(row) for row in spark.sql(lag).collect()] == [("g", 0, 1, 4, 3)]
    assert spark.sql("SELECT sum(lag) AS total FROM consumer_lag WHERE topic = 't'").collect()[0].total == 3


def test_transactions_are_a_view(spark, tmp_path):
    cluster = a_cluster(tmp_path, "transactions")
    assert ss.register(spark, tmp_path)[-1] == "sparklog_transactions"  # the topic has the name
    assert spark.table("sparklog_transactions").collect() == []
    with Producer(cluster, transactional_id="p") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("transactions", b"v")
        [row] = spark.table("sparklog_transactions").collect()
        assert (row.transactional_id, row.state) == ("p", "Ongoing")
        assert spark.table("transactions").count() == 0
        producer.commit_transaction()
    [row] = spark.table("sparklog_transactions").collect()
    assert (row.transactional_id, row.state) == ("p", "CompleteCommit")
    assert spark.table("transactions").count() == 1


def test_a_permanent_view_needs_no_sparklog_in_later_sessions(spark, tmp_path):
    root = tmp_path / "a `folder: 100%"
    cluster = a_cluster(root, "t", {"message.timestamp.type": "LogAppendTime"})
    put(cluster, (0, "ab"), (1, "c"), topic="t")
    unsequenced_file(cluster.topic_log("t"), "not yet")
    spark.sql("CREATE SCHEMA lake")
    assert ss.create_view(spark, root, "t", name="lake.orders") == "`lake`.`orders`"
    another = spark.newSession()
    view = another.table("lake.orders")
    assert tuple(view.columns) == RECORD_COLUMNS
    assert seen(view) == [(0, 0, "a"), (0, 1, "b"), (1, 0, "c")]
    assert {(row.topic, row.timestampType) for row in view.collect()} == {("t", 1)}
    put(cluster, (1, "d"), topic="t")
    assert seen(another.table("lake.orders").where("partition = 1")) == [(1, 0, "c"), (1, 1, "d")]
    # Records below the log start are seen until their file goes: a view can't know of them.
    Admin(cluster).delete_records({TopicPartition("t", 0): 1, TopicPartition("t", 1): 1})
    assert seen(another.table("lake.orders")) == [(0, 0, "a"), (0, 1, "b"), (1, 1, "d")]
    assert ss.create_view(spark, root, "t", name="lake.`orders`") == "`lake`.`orders`"  # it is replaced
    with pytest.raises(Exception, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        ss.create_view(spark, root, "t", name="lake.orders", replace=False)
    assert ss.create_view(spark, root, "t") == "`t`"
    assert another.table("default.t").count() == 3
    with pytest.raises(UnknownTopicOrPartitionError):
        ss.create_view(spark, root, "other")
    spark.sql("DROP VIEW default.t")
    spark.sql("DROP SCHEMA lake CASCADE")


def test_a_relative_folder_is_the_same_for_spark_and_for_this_process_or_refused(spark, tmp_path, monkeypatch):
    put(a_cluster(tmp_path), (0, "a"))
    assert ss.register(spark, os.path.relpath(tmp_path), ["t"])[0] == "t"
    here = os.getcwd()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match=re.escape(f"to {tmp_path} for this process, to {here} for Spark")):
        ss.register(spark, ".")
    assert seen(ss.read_topic(spark, tmp_path.as_uri(), "t")) == [(0, 0, "a")]


def test_what_cant_be_registered_is_told(spark, tmp_path):
    with pytest.raises(InvalidArgumentError, match="no sparklog cluster"):
        ss.register(spark, tmp_path)
    with pytest.raises(InvalidArgumentError, match="don't share memory"):
        ss.register(spark, "memory://somewhere")
    cluster = a_cluster(tmp_path)
    Admin(cluster).create_topics([NewTopic("T")])
    with pytest.raises(InvalidArgumentError, match="differ in case alone"):
        ss.register(spark, tmp_path, ["T", "t"])
    assert "t" in ss.register(spark, tmp_path)
    assert "T" not in ss.register(spark, tmp_path)
    assert ss.register(spark, tmp_path, ["T"])[0] == "T"


def test_several_topics_are_read_as_of_one_consistent_cut(spark, tmp_path):
    """A transaction that is in one topic, and not yet in the other, is carried out before it is shown."""
    cluster = open_cluster(tmp_path)
    for topic in ("orders", "payments"):
        create_topic(cluster.topic_log(topic), topic, num_partitions=1)
    driver = Driver(cluster, topics=("orders", "payments")).init()
    driver.begin()
    for topic in driver.topics:
        driver.send(topic, "a")
    decide_and_publish_in(driver, "orders")
    assert seen(ss.read_topic(spark, tmp_path, "payments")) == []
    frames = ss.read_consistent(spark, tmp_path, ["orders", "payments"])
    with Producer(cluster) as producer:
        producer.send("orders", b"later")
    assert {topic: seen(frame) for topic, frame in frames.items()} == {
        "orders": [(0, 0, "a")],
        "payments": [(0, 0, "a")],
    }
    assert tuple(frames["orders"].columns) == RECORD_COLUMNS
    with pytest.raises(UnknownTopicOrPartitionError, match="nosuch"):
        ss.read_consistent(spark, tmp_path, ["orders", "nosuch"])
