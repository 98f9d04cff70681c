"""``format("sparklog")`` as a sink, in Spark: batch queries and streams."""

import json
import shutil

import pyarrow as pa
import pytest

import sparklog.spark as ss
from sparklog.admin import Admin, NewTopic
from sparklog.errors import InvalidArgumentError
from sparklog.log.follow import TopicFollower
from sparklog.log.state import open_state
from sparklog.producer import Producer
from sparklog.producer.partitioner import key_partitions
from sparklog.spark.sink.small_tasks import SMALL_BYTES
from sparklog.storage import open_store
from sparklog.txn.entries import open_transaction_log
from tests.depth import NIGHTLY, by_depth
from tests.spark.spark_support import a_cluster
from tests.support import T0_MS

pytestmark = pytest.mark.spark


def two_topics(root):
    """Topics ``t`` and ``u`` of two partitions."""
    cluster = a_cluster(root)
    Admin(cluster).create_topics([NewTopic("u", 2)])
    return cluster


def rows(cluster, topic="t"):
    """All records: (partition, key, value, timestamp in ms, headers), by partition and offset; offsets are dense."""
    follower = TopicFollower(cluster.topic_log(topic), topic)
    found = []
    for partition in range(follower.head.partition_count):
        table = follower.read(partition, 0, max_records=1_000_000)
        assert table["offset"].to_pylist() == list(range(table.num_rows))
        times = [int(time.timestamp() * 1000) for time in table["timestamp"].to_pylist()]
        columns = [table[name].to_pylist() for name in ("key", "value")]
        found += [(partition, *row) for row in zip(*columns, times, table["headers"].to_pylist(), strict=True)]
    return found


def values(cluster, topic="t"):
    return sorted(value.decode() for _, _, value, *_ in rows(cluster, topic))


def write(frame, root, **options):
    frame.write.format("sparklog").mode("append").options(**options).save(str(root))


def data_files(root, topic="t"):
    return sorted(path.name for path in (root / "topics" / topic).glob("partition=*/*.parquet"))


class Stream:
    """A query from text files to topics, started again and again with one checkpoint."""

    def __init__(self, spark, folder, root, **options):
        self.spark, self.root, self.options = spark, root, options
        self.input, self.checkpoint = folder / "input", folder / "checkpoint"
        self.input.mkdir(exist_ok=True)
        self.files = 0
        self.distribute = lambda frame: frame

    def give(self, *lines):
        """One more file; a line is ``topic key value``."""
        self.files += 1
        (self.input / f"{self.files:04d}.txt").write_text("".join(f"{line}\n" for line in lines))

    def start(self, foreach=None, **trigger):
        lines = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.input))
        parts = "split(value, ' ')"
        frame = lines.selectExpr(f"{parts}[0] AS topic", f"{parts}[1] AS key", f"{parts}[2] AS value")
        frame = self.distribute(frame)
        if foreach is not None:
            writer = frame.writeStream.foreachBatch(foreach)
            return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()
        writer = frame.writeStream.format("sparklog").options(**self.options).outputMode("append")
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start(str(self.root))

    def run(self, foreach=None):
        query = self.start(foreach, availableNow=True)
        assert query.awaitTermination(500)
        return query

    def forget_last_commit(self):
        """As if the driver had died when a batch was in the topics, and not yet noted to be."""
        commits = sorted(
            (path for path in (self.checkpoint / "commits").glob("[0-9]*")), key=lambda path: int(path.name)
        )
        commits[-1].unlink()
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)


def test_a_job_for_kafka_changes_one_word(spark, tmp_path):
    cluster = two_topics(tmp_path)
    now_ms = cluster.clock.now_ms()
    frame = spark.createDataFrame(
        [
            ("t", b"a", b"1", [("h", b"x"), ("h", None)], None),
            ("u", None, b"2", None, 1),
            ("t", b"a", None, [], None),
            ("t", b"a", b"3", None, 1),
        ],
        "topic string, key binary, value binary, headers array<struct<key:string,value:binary>>, partition int",
    ).coalesce(1)
    frame.write.format("sparklog").mode("append").option("kafka.bootstrap.servers", str(tmp_path)).option(
        "kafka.acks", "all"
    ).save()

    with Producer(cluster) as producer:
        partition = producer.send("t", key=b"a").get().partition
    seen = rows(cluster)
    headers = [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]
    expected = [(partition, b"a", b"1", headers), (partition, b"a", None, []), (1, b"a", b"3", None)]
    expected.append((partition, b"a", None, None))  # the producer's
    assert sorted(((row[0], row[1], row[2], row[4] or None) for row in seen), key=repr) == sorted(
        ((*row[:3], row[3] or None) for row in expected), key=repr
    )
    assert all(now_ms <= row[3] <= cluster.clock.now_ms() for row in seen)
    assert [row[:3] for row in rows(cluster, "u")] == [(1, None, b"2")]


def test_rows_of_one_topic_are_one_commit_and_go_where_the_producer_would_send_them(spark, tmp_path):
    cluster = a_cluster(tmp_path)
    version = open_state(cluster.topic_log("t")).position.version
    frame = spark.range(0, 3_000, 1, 3).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    write(frame, tmp_path, topic="t", compression="zstd")

    assert open_state(cluster.topic_log("t")).position.version == version + 1
    assert len(data_files(tmp_path)) == 2  # the driver wrote the few rows of its three tasks
    Admin(cluster).create_topics([NewTopic("other", 2)])
    with Producer(cluster) as producer:
        for number in range(3_000):
            producer.send("other", key=b"%d" % number, value=b"%d" % number)
    written = [row[:3] for row in rows(cluster)]
    assert sorted(written) == sorted(row[:3] for row in rows(cluster, "other"))
    for partition in (0, 1):  # tasks one after the other, rows of a task in their order
        numbers = [int(value) for one, _, value in written if one == partition]
        assert numbers == sorted(numbers)
    assert not (tmp_path / "transactions").exists()


def test_several_topics_are_one_transaction(spark, tmp_path):
    cluster = two_topics(tmp_path)
    frame = spark.range(10).selectExpr("IF(id % 2 = 0, 't', 'u') AS topic", "CAST(id AS STRING) AS value")
    write(frame, tmp_path)
    write(frame, tmp_path, transactionalId="nightly")
    assert values(cluster, "t") == sorted("02468" * 2)
    assert values(cluster, "u") == sorted("13579" * 2)
    ids = sorted(path.name for path in (tmp_path / "transactions").iterdir())
    assert [name[:10] for name in ids] == ["nightly", "spark-job-"]
    assert not any((tmp_path / "transactions-open").rglob("0*"))


@pytest.mark.deep  # in each run test_sink_writing.py shows that all columns arrive, and takes the source's
def test_a_topic_is_copied_as_it_is_read(spark, tmp_path):
    cluster = two_topics(tmp_path)
    with Producer(cluster) as producer:
        for number in range(20):
            producer.send(
                "t", key=b"%d" % number, value=b"v", timestamp_ms=T0_MS - 10**12 + number, headers=[("h", b"")]
            )
    frame = spark.read.format("sparklog").option("subscribe", "t").option("includeHeaders", "true").load(str(tmp_path))
    write(frame, tmp_path, topic="u")
    assert rows(cluster, "u") == rows(cluster, "t")


Case = tuple[list[str], dict[str, str], str]
IN_EACH_RUN: tuple[Case, ...] = (
    (["repeat('v', 2000000) AS value"], {"topic": "t"}, "kafka.max.request.size"),  # a task refuses
    (["id AS value"], {"topic": "t"}, "column value is bigint, expected string or binary"),  # the driver does
)
AT_NIGHT: tuple[Case, ...] = (  # in each run test_sink_writing.py has these refused
    (["'v' AS value"], {}, "give the option topic, or a column topic"),
    (["'v' AS value"], {"topic": "nowhere"}, "nowhere"),
    (["'v' AS value", "IF(id = 3, NULL, 't') AS topic"], {}, "1 rows have a null topic"),
    (["'v' AS value", "9 AS partition"], {"topic": "t"}, "column partition has 9 to 9, expected 0 to 1"),
)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [*IN_EACH_RUN, *(pytest.param(*case, marks=pytest.mark.deep) for case in AT_NIGHT)],
)
def test_what_cant_be_written_is_told_and_nothing_is_left(spark, tmp_path, columns, options, message):
    cluster = a_cluster(tmp_path)
    with pytest.raises(Exception, match=message):
        # One task: of two, Spark kills the other, and what that one has uploaded by then is the sweep's.
        write(spark.range(0, 4, 1, 1).selectExpr(*columns), tmp_path, **options)
    assert rows(cluster) == []
    assert data_files(tmp_path) == []


def test_save_modes_are_the_kafka_sinks(spark, tmp_path):
    a_cluster(tmp_path)
    frame = spark.range(1).selectExpr("'v' AS value")
    for mode, message in (("overwrite", "only appends"), ("ignore", "Ignore")):
        with pytest.raises(Exception, match=message):
            frame.write.format("sparklog").mode(mode).option("topic", "t").save(str(tmp_path))


def test_a_job_of_which_one_task_fails_leaves_nothing(spark, tmp_path):
    cluster = a_cluster(tmp_path)
    frame = spark.range(0, 100, 1, 2)
    with pytest.raises(Exception, match="the last one fails"):
        write(
            frame.selectExpr("IF(id = 99, raise_error('the last one fails'), CAST(id AS STRING)) AS value"),
            tmp_path,
            topic="t",
        )
    assert rows(cluster) == []
    assert data_files(tmp_path) == []
    write(frame.selectExpr("CAST(id AS STRING) AS value"), tmp_path, topic="t")
    assert values(cluster) == sorted(str(number) for number in range(100))


def test_a_stream_is_exactly_once_whatever_is_run_again(spark, tmp_path):
    cluster = two_topics(tmp_path / "cluster")
    stream = Stream(spark, tmp_path, tmp_path / "cluster")
    stream.give("t a 1", "u a 2")
    stream.give("t b 3")
    query = stream.run()
    assert (values(cluster, "t"), values(cluster, "u")) == (["1", "3"], ["2"])
    log = open_transaction_log(cluster, f"spark-{query.id}")
    newest = log.open_newest()[0]
    assert newest is not None
    assert newest.state.value == "CompleteCommit"
    assert [(batch.query_id, batch.batch_id) for batch in newest.batches] == [(query.id, 1)]

    stream.forget_last_commit()
    stream.give("u c 4")
    again = stream.run()
    assert again.id == query.id
    assert (values(cluster, "t"), values(cluster, "u")) == (["1", "3"], ["2", "4"])
    after = log.open_newest()[0]
    assert after is not None
    assert after.header.producer_epoch == newest.header.producer_epoch + 1


def test_rows_by_partition_are_one_file_for_each_partition(spark, tmp_path):
    from pyspark.sql.functions import spark_partition_id

    cluster = a_cluster(tmp_path)
    Admin(cluster).create_partitions({"t": 3})
    large = f"rpad(CAST(id AS STRING), {SMALL_BYTES // 20}, 'x') AS value"  # too much for the driver
    frame = spark.range(0, 120, 1, 4).selectExpr("IF(id % 4 = 0, NULL, CAST(id AS STRING)) AS key", large)
    by_partition = ss.by_partition(frame, tmp_path, "t")
    assert by_partition.columns == ["key", "value", "partition"]
    write(by_partition, tmp_path, topic="t")
    assert len(data_files(tmp_path)) == 3
    seen = rows(cluster)
    assert sorted(int(value.decode().rstrip("x")) for _, _, value, *_ in seen) == list(range(120))
    assert {partition for partition, key, *_ in seen if key is None} == {0, 1, 2}
    keyed = [(partition, key) for partition, key, *_ in seen if key is not None]
    expected = key_partitions(pa.array([key for _, key in keyed], pa.binary()), 3)
    assert [partition for partition, _ in keyed] == expected.tolist()
    # Rows that say where they go, and a stream.
    numbers = spark.range(0, 8, 1, 2).selectExpr("'v' AS value", "CAST(id % 2 AS INT) AS partition", "id")
    given = ss.by_partition(numbers, tmp_path, "t").select("id", "partition", spark_partition_id().alias("task"))
    assert all(row.partition == row.task == row.id % 2 for row in given.collect())
    stream = Stream(spark, tmp_path, tmp_path, topic="t")
    stream.distribute = lambda lines: ss.by_partition(lines, tmp_path, "t")
    stream.give("t a 1", "t b 2")
    stream.run()
    assert len(rows(cluster)) == 122
    with pytest.raises(InvalidArgumentError, match="expected key or value"):
        ss.by_partition(frame.selectExpr("key AS k"), tmp_path, "t")


def test_batch_writes_that_are_numbered_make_foreach_batch_exactly_once(spark, tmp_path):
    cluster = two_topics(tmp_path / "cluster")
    stream = Stream(spark, tmp_path, tmp_path / "cluster")
    runs = []

    def store(frame, batch_id):
        runs.append(batch_id)
        for topic in "tu":
            one = frame.where(f"topic = '{topic}'").select("key", "value")
            write(one, tmp_path / "cluster", topic=topic, txnAppId="app", txnVersion=batch_id)
            if len(runs) == 2 and topic == "t":
                raise RuntimeError("killed between its two topics")

    stream.give("t a 1", "u a 1")
    stream.give("t a 2", "u a 2")
    with pytest.raises(Exception, match="killed"):
        stream.run(foreach=store)
    stream.run(foreach=store)
    assert runs == [0, 1, 1]
    assert values(cluster, "t") == values(cluster, "u") == ["1", "2"]
    assert len(Admin(cluster).list_transactions()) == 2  # an id for each target


@pytest.mark.deep  # in each run tests/txn/test_committing.py refuses a copy of a query that writes elsewhere
def test_a_copy_of_a_checkpoint_that_writes_elsewhere_is_refused(spark, tmp_path):
    cluster = two_topics(tmp_path / "cluster")
    stream = Stream(spark, tmp_path, tmp_path / "cluster", topic="t")
    stream.give("- a 1")
    stream.run()
    copy = Stream(spark, tmp_path, tmp_path / "cluster", topic="u")
    copy.checkpoint = tmp_path / "copy"
    shutil.copytree(stream.checkpoint, copy.checkpoint)
    stream.give("- a 2")
    with pytest.raises(Exception, match="goes to topic 'u', but its number 0 was committed to topic 't'"):
        copy.run()
    copy.options["transactionalId"] = "the copy's own"
    copy.run()
    assert (values(cluster, "t"), values(cluster, "u")) == (["1"], ["2"])


@pytest.mark.deep  # in each run tests/txn/test_committing.py refuses a batch before the newest
def test_a_checkpoint_that_was_taken_back_is_refused(spark, tmp_path):
    cluster = a_cluster(tmp_path / "cluster")
    stream = Stream(spark, tmp_path, tmp_path / "cluster")
    stream.give("t a 1")
    stream.run()
    shutil.copytree(stream.checkpoint, tmp_path / "backup")
    stream.give("t a 2")
    stream.give("t a 3")
    stream.run()
    shutil.rmtree(stream.checkpoint)
    shutil.copytree(tmp_path / "backup", stream.checkpoint)
    with pytest.raises(Exception, match="batch 2 is committed already"):
        stream.run()
    assert values(cluster) == ["1", "2", "3"]


@pytest.mark.deep  # in each run tests/txn/test_committing.py lets another query with the same id begin anew
def test_a_new_checkpoint_with_an_old_transactional_id_loses_nothing(spark, tmp_path):
    cluster = a_cluster(tmp_path / "cluster")
    stream = Stream(spark, tmp_path, tmp_path / "cluster", transactionalId="mine")
    stream.give("t a 1")
    stream.run()
    shutil.rmtree(stream.checkpoint)
    stream.give("t a 2")
    stream.run()
    assert values(cluster) == ["1", "1", "2"]  # the new query reads everything


@pytest.mark.deep  # in each run tests/integration/test_spark_stream.py has a driver with two queries
def test_two_queries_of_one_driver_run_side_by_side(spark, tmp_path):
    cluster = two_topics(tmp_path / "cluster")
    streams = []
    for name, topic in (("one", "t"), ("two", "u")):
        (tmp_path / name).mkdir()
        streams.append(Stream(spark, tmp_path / name, tmp_path / "cluster"))
        for number in range(6):
            streams[-1].give(f"{topic} k {number}")
    queries = [stream.start(availableNow=True) for stream in streams]
    for query in queries:
        assert query.awaitTermination(120)
    assert values(cluster, "t") == values(cluster, "u") == list("012345")


@pytest.mark.s3
def test_topics_on_s3_are_written_without_s3a(spark, s3_uri, s3_options, tmp_path):
    cluster = two_topics(open_store(s3_uri, s3_options))
    options = {"storageOptions": json.dumps(s3_options)}
    frame = spark.range(4).selectExpr("IF(id % 2 = 0, 't', 'u') AS topic", "CAST(id AS STRING) AS value")
    write(frame, s3_uri, **options)
    stream = Stream(spark, tmp_path, s3_uri, **options)
    stream.give("t a 4", "u a 5")
    stream.run()
    if NIGHTLY:  # in each run a stream into a folder is run again
        stream.forget_last_commit()
        stream.give("u a 7")
        stream.run()
    later = by_depth(gate=[], nightly=["7"])
    assert (values(cluster, "t"), values(cluster, "u")) == (["0", "2", "4"], ["1", "3", "5", *later])
    cluster.store.close()
