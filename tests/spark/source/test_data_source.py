"""``format("sparklog")`` in Spark: batch and streaming."""

import json
import time
from pathlib import Path

import pytest

from sparklog.admin import Admin
from sparklog.model import TopicPartition
from sparklog.producer import Producer
from sparklog.storage import open_store
from sparklog.streaming.task_reading import SOURCE_SCHEMA
from tests.depth import NIGHTLY, by_depth
from tests.spark.spark_support import HOUR_MS, a_cluster, put, seen
from tests.support import T0_MS

pytestmark = pytest.mark.spark


def reader(spark, root, *, stream=False, **options):
    found = (spark.readStream if stream else spark.read).format("sparklog")
    return found.options(**{"subscribe": "t", **options}).load(str(root))


def until(holds, within_s=120):
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Query:
    """Runs a streaming query over a topic again and again with one checkpoint, as a job that is started again."""

    def __init__(self, spark, root, checkpoint, **options):
        self._spark, self._root, self._checkpoint, self._options = spark, root, checkpoint, options
        self.batches = []

    def start(self, **trigger):
        frame = reader(self._spark, self._root, stream=True, **{"startingOffsets": "earliest", **self._options})
        writer = frame.writeStream.foreachBatch(self._seen).option("checkpointLocation", str(self._checkpoint))
        return writer.trigger(**trigger).start()

    def run(self):
        """Read what is there; returns the batches of this run."""
        before = len(self.batches)
        query = self.start(availableNow=True)
        assert query.awaitTermination(500)
        return self.batches[before:]

    def _seen(self, frame, number):
        self.batches.append("".join(value for _, _, value in seen(frame)))


def test_sparks_idea_of_the_columns_is_ours(spark, tmp_path):
    from pyspark.sql.pandas.types import to_arrow_schema

    a_cluster(tmp_path)
    frame = reader(spark, tmp_path, includeHeaders="true")
    assert to_arrow_schema(frame.schema, timezone="UTC").equals(SOURCE_SCHEMA)
    assert reader(spark, tmp_path).columns == frame.columns[:-1]
    assert frame.count() == 0


def test_a_job_for_kafka_changes_one_word(spark, tmp_path):
    cluster = a_cluster(tmp_path)
    now_ms = cluster.clock.now_ms()
    with Producer(cluster) as producer:
        producer.send("t", b"v", key=b"k", headers=[("h", b"1"), ("h", None)], partition=1, timestamp_ms=now_ms)
        producer.send("t", None, partition=1)
    frame = (
        spark.read.format("sparklog")
        .option("kafka.bootstrap.servers", str(tmp_path))
        .option("subscribePattern", "t.*")
        .option("startingOffsets", '{"t": {"0": -2, "1": 0}}')
        .option("endingOffsets", "latest")
        .option("includeHeaders", "true")
        .load()
    )
    row, tombstone = frame.orderBy("offset").collect()
    assert (bytes(row.key), bytes(row.value), row.topic, row.partition, row.offset) == (b"k", b"v", "t", 1, 0)
    assert (int(row.timestamp.timestamp() * 1_000), row.timestampType) == (now_ms, 0)
    assert [(header.key, header.value) for header in row.headers] == [("h", b"1"), ("h", None)]
    assert (tombstone.key, tombstone.value, tombstone.headers) == (None, None, None)


def test_a_filter_leaves_files_out(spark, tmp_path):
    """The other files are taken away: a query that tried to read one would fail."""
    cluster = a_cluster(tmp_path)
    folder = tmp_path / "topics" / "t" / "partition=0"
    before: set[Path] = set()
    for hour in range(4):
        before = {*folder.iterdir()} if hour else before
        put(cluster, (0, "ab"), (1, "c"), timestamp_ms=T0_MS + hour * HOUR_MS)
    frame = reader(spark, tmp_path, minPartitions="8")
    assert frame.rdd.getNumPartitions() > 2
    assert len(seen(frame)) == 12
    for file in before:
        file.rename(file.with_suffix(".gone"))
    assert seen(frame.where("partition = 1 AND offset >= 2")) == [(1, 2, "c"), (1, 3, "c")]
    assert seen(frame.where("partition = 0 AND timestamp > TIMESTAMP '2100-01-01 02:30:00'")) == [
        (0, 6, "a"),
        (0, 7, "b"),
    ]
    assert seen(frame.where("offset IN (6, 7)")) == [(0, 6, "a"), (0, 7, "b")]
    with pytest.raises(Exception, match="ObjectNotFoundError"):
        seen(frame.where("offset < 2"))


def test_only_some_columns_may_be_asked_for(spark, tmp_path):
    put(a_cluster(tmp_path), (0, "ab"))
    reading = spark.read.format("sparklog").option("subscribe", "t")
    rows = reading.schema("value BINARY, offset BIGINT").load(str(tmp_path)).orderBy("offset").collect()
    assert [(bytes(row.value), row.offset) for row in rows] == [(b"a", 0), (b"b", 1)]
    with pytest.raises(Exception, match="column value string was asked for"):
        reading.schema("value STRING").load(str(tmp_path)).count()


def test_spark_tells_the_processes_that_it_hands_on(spark):
    """sparklog exempts what is loaded in them from Spark's collections of garbage."""
    import os

    processes = spark.sparkContext.parallelize([0], 1)
    assert processes.map(lambda _: "SPARK_REUSE_WORKER" in os.environ).collect() == [True]


def test_what_a_process_has_loaded_is_exempted_from_collections_as_it_reads_again(tmp_path, monkeypatch):
    import gc
    from itertools import count

    from sparklog.spark.source.data_source import SparklogDataSource
    from sparklog.streaming import reused_process

    cluster = a_cluster(tmp_path)
    put(cluster, (0, "abc"))
    source = SparklogDataSource({"path": str(tmp_path), "subscribe": "t"})
    source_reader = source.reader(source.schema())
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    monkeypatch.setattr(reused_process, "_CALLS", count())
    loaded: list[list[int]] = [[] for _ in range(20_000)]  # collected tests are frozen, and modules may be, too
    before = gc.get_freeze_count()
    [partition] = [each for each in source_reader.partitions() if each.value.partition == 0]
    read = [batch.num_rows for batch in source_reader.read(partition)]
    after_one = gc.get_freeze_count() - before
    again = [batch.num_rows for batch in source_reader.read(partition)]
    after_two = gc.get_freeze_count() - before
    assert (read, again, after_one) == ([3], [3], 0)
    assert after_two > len(loaded)


def test_what_is_wrong_is_told_by_name(spark, tmp_path):
    cluster = a_cluster(tmp_path)
    put(cluster, (0, "abc"))
    Admin(cluster).delete_records({TopicPartition("t", 0): 2})
    limits = {"startingOffsets": '{"t": {"0": 1, "1": 0}}'}
    with pytest.raises(Exception, match="OffsetOutOfRangeError: offset 1 of t-0"):
        reader(spark, tmp_path, **limits).count()
    assert seen(reader(spark, tmp_path, **limits, failOnDataLoss="false")) == [(0, 2, "c")]
    with pytest.raises(Exception, match="has no option startingoffset"):
        reader(spark, tmp_path, startingOffset="earliest")
    with pytest.raises(Exception, match="UnknownTopicOrPartitionError"):
        reader(spark, tmp_path, subscribe="u").count()


def test_a_stream_whose_options_are_wrong_says_so(spark, tmp_path):
    """✗ UnboundLocalError: cannot access local variable 'reader', of Spark's own runner."""
    a_cluster(tmp_path / "data")
    wrong = ({"endingOffsets": "latest"}, {"splitLargeCommits": "true"}, {"failOnDataLoss": "maybe"})
    expected = ("no end: got endingOffsets", "splitLargeCommits=true means nothing", "failOnDataLoss='maybe': expected")
    for options, text in zip(wrong, expected, strict=True):
        with pytest.raises(Exception, match=f"InvalidConfigurationError.*{text}") as caught:
            Query(spark, tmp_path / "data", tmp_path / "checkpoint", **options).run()
        assert "UnboundLocalError" not in str(caught.value)


def test_a_listener_reports_the_lag_of_queries(spark, tmp_path, caplog):
    from prometheus_client import CollectorRegistry, generate_latest

    from sparklog.prometheus import collect
    from sparklog.spark import LagListener

    cluster = a_cluster(tmp_path / "data")
    put(cluster, (0, "ab"))
    put(cluster, (0, "cd"), (1, "e"))
    query = Query(spark, tmp_path / "data", tmp_path / "checkpoint", maxOffsetsPerTrigger="2")
    listener, registry = LagListener(), CollectorRegistry()
    spark.streams.addListener(listener)
    collect(listener, registry=registry)
    running = None
    try:
        with caplog.at_level("INFO", "sparklog.spark"):
            running = query.start(processingTime="0 seconds")
            running.processAllAvailable()
            name = str(running.id)
            until(lambda: [one["offsetsBehindLatest"] for one in listener.lags().get(name, [])] == [0.0])
        [figures] = listener.lags()[name]
        assert (figures["topics"], figures["maxOffsetsBehindLatest"]) == (["t"], 0.0)
        assert any("maxOffsetsBehindLatest=2, avgOffsetsBehindLatest=1.5" in text for text in caplog.messages)
        shown = generate_latest(registry).decode()
        assert "sparklog_streaming_offsets_behind_latest{" in shown
        assert f'query="{name}"' in shown
    finally:
        if running is not None:
            running.stop()
        until(lambda: not listener.lags())
        spark.streams.removeListener(listener)


def test_a_stream_reads_every_record_once_through_restarts_and_splits_no_transaction(spark, tmp_path):
    cluster = a_cluster(tmp_path / "data")
    query = Query(spark, tmp_path / "data", tmp_path / "checkpoint", maxOffsetsPerTrigger="4", groupId="spark")
    with Producer(cluster, transactional_id="p") as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            for partition in (0, 1, 1):
                producer.send("t", f"{number}".encode(), partition=partition)
            producer.commit_transaction()
    assert query.run() == ["000", "111", "222", "333"]
    assert query.run() == []
    [group] = Admin(cluster).describe_groups(["spark"])
    assert [(one.log_end_offset, one.lag) for one in group.partitions] == [(4, 0), (8, 0)]
    put(cluster, (0, "x"))
    [group] = Admin(cluster).describe_groups(["spark"])
    assert [one.lag for one in group.partitions] == [1, 0]
    assert query.run() == ["x"]
    [group] = Admin(cluster).describe_groups(["spark"])
    assert [one.lag for one in group.partitions] == [0, 0]


def test_a_stream_that_runs_shows_its_progress(spark, tmp_path):
    cluster = a_cluster(tmp_path / "data")
    query = Query(spark, tmp_path / "data", tmp_path / "checkpoint")
    running = query.start(processingTime="0 seconds")
    try:
        for value in "ab":
            put(cluster, (0, value))
            running.processAllAvailable()
        assert query.batches == ["a", "b"]
        [source] = json.loads(running.lastProgress.json)["sources"]
        assert source["endOffset"]["t"] == {"0": 2, "1": 0}
        assert source["latestOffset"]["t"] == {"0": 2, "1": 0}
    finally:
        running.stop()


@pytest.mark.deep  # in each run tests/streaming/test_stream.py passes over no records that were deleted
def test_a_stream_below_which_records_were_deleted_fails(spark, tmp_path):
    cluster = a_cluster(tmp_path / "data")
    query = Query(spark, tmp_path / "data", tmp_path / "checkpoint")
    put(cluster, (0, "a"))
    assert query.run() == ["a"]
    put(cluster, (0, "bc"))
    Admin(cluster).delete_records({TopicPartition("t", 0): 2})
    with pytest.raises(Exception, match="OffsetOutOfRangeError: offset 1 of t-0"):
        query.run()
    passing = Query(spark, tmp_path / "data", tmp_path / "checkpoint", failOnDataLoss="false")
    assert passing.run() == ["c"]


@pytest.mark.s3
def test_topics_on_s3_are_read_without_s3a(spark, s3_uri, s3_options, tmp_path):
    cluster = a_cluster(open_store(s3_uri, s3_options))
    put(cluster, (0, "ab"), (1, "x"))
    options = {"storageOptions": json.dumps(s3_options)}
    assert seen(reader(spark, s3_uri, **options)) == [(0, 0, "a"), (0, 1, "b"), (1, 0, "x")]
    query = Query(spark, s3_uri, tmp_path / "checkpoint", groupId="g", **options)
    if NIGHTLY:  # in each run the streams of a folder are started again
        assert query.run() == ["abx"]
    put(cluster, (1, "y"))
    assert query.run() == by_depth(gate=["abxy"], nightly=["y"])
    lag = spark.read.format("sparklog").options(view="consumer_lag", **options).load(s3_uri)
    assert [(row.partition, row.committed_offset, row.lag) for row in lag.orderBy("partition").collect()] == [
        (0, 2, 0),
        (1, 2, 0),
    ]


def test_planning_and_tasks_of_a_process_share_one_client_of_a_store(tmp_path, monkeypatch):
    """Without a session: what Spark does with these objects. To connect to S3 takes 150 to 300 ms of CPU."""
    from sparklog.spark.source.data_source import SparklogDataSource
    from sparklog.streaming.cluster_ref import ClusterRef

    put(a_cluster(tmp_path), (0, "ab"), (1, "c"))
    made = []
    make = ClusterRef.store

    def counted(place):
        made.append(make(place))
        return made[-1]

    monkeypatch.setattr(ClusterRef, "store", counted)
    source = SparklogDataSource({"path": str(tmp_path), "subscribe": "t"})
    for _ in range(3):
        reader = source.reader(source.schema())
        parts = reader.partitions()
        assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 3
    assert len(made) == 1


def test_a_temporary_view_of_sql_is_the_source_and_spark_reads_no_table_of_it(spark, tmp_path):
    put(a_cluster(tmp_path), (0, "abc"))
    using = f"USING sparklog OPTIONS (path '{tmp_path}', subscribe 't')"
    spark.sql(f"CREATE TEMPORARY VIEW by_source {using}")
    assert [row.offset for row in spark.sql("SELECT offset FROM by_source WHERE offset >= 1").collect()] == [1, 2]
    spark.catalog.dropTempView("by_source")
    from pyspark.errors import AnalysisException

    # Once this fails, docs/spark.md is to say that tables can be made.
    spark.sql(f"CREATE TABLE of_source (value BINARY) {using}")
    with pytest.raises(AnalysisException, match="not a valid Spark SQL Data Source"):
        spark.sql("SELECT * FROM of_source")
    spark.sql("DROP TABLE of_source")
    assert spark.read.format("delta").load(f"{tmp_path}/topics/t").count() == 3  # what was dropped was a name alone
