"""``merge_ingest``: each row once, whoever else writes, whoever dies, whatever is repeated."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import Any

import pytest

import sparklog.spark as ss
from sparklog.admin import Admin, NewTopic
from sparklog.errors import InvalidRecordError, KafkaTimeoutError, UnknownTopicOrPartitionError
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.log.state import load_state
from sparklog.paths import topic_table
from sparklog.producer import Producer
from sparklog.spark.ingest.ingest import _ROW_BYTES, DEDUP_WINDOW_MS, Batch, Ingest
from sparklog.spark.ingest.ingest_batch import conform
from sparklog.spark.ingest.ingest_rules import ProducerRange, identity_columns, inserted_count
from sparklog.spark.ingest.ingest_staging import Published, Verdict
from sparklog.streaming.cluster_ref import cluster_ref_of
from sparklog.testing import ManualClock
from tests.spark.spark_support import HOUR_MS, a_cluster, files_read, put
from tests.support import T0_MS, a_writer, contents, records, unsequenced_file, within

pytestmark = pytest.mark.spark

SCHEMA = "producer_id BIGINT, producer_epoch SMALLINT, sequence INT, key BINARY, value BINARY"


def frame(
    spark: Any, values: str, *, producer_id: int = 7, epoch: int = 0, first: int = 0, partitions: Any = None
) -> Any:
    """A row for each character, numbered from ``first`` on; with partitions if they are given."""
    rows = [
        (
            producer_id,
            epoch,
            first + number,
            value.encode(),
            value.encode(),
            *(partitions[number : number + 1] if partitions else []),
        )
        for number, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, SCHEMA + (", partition INT" if partitions else ""))


def an_ingest(spark: Any, cluster: Cluster, *, name: str = "i", window_ms: int = DEDUP_WINDOW_MS) -> Ingest:
    """Its steps, to be taken one by one: whoever stops between two of them was killed there."""
    path = cluster_ref_of(cluster.store.uri).delta_path(topic_table("t"))
    return Ingest(spark, cluster, "t", path, name=name, dedup_window_ms=window_ms)


def values_of(cluster: Cluster) -> list[str]:
    """The values of all records, after looking that offsets are dense and nothing waits for one."""
    seen = contents(cluster.topic_log("t"))
    for found in seen.values():
        assert [offset for offset, _ in found] == sorted({offset for offset, _ in found})
    assert not load_state(cluster.topic_log("t")).require_whole().index.unsequenced()
    return sorted(value for found in seen.values() for _, value in found)


def test_a_row_is_stored_once_however_often_it_comes_though_its_topic_grows(spark, tmp_path):
    cluster = a_cluster(tmp_path)
    put(cluster, (0, "x"))
    keyless = spark.createDataFrame([(8, 0, number, None, b"%d" % number) for number in range(6)], SCHEMA)
    twice = frame(spark, "abcabc").unionAll(frame(spark, "abc")).unionAll(keyless)
    first = ss.merge_ingest(twice, tmp_path, "t", name="one")
    assert (first.rows, first.inserted, first.duplicates, first.attempts) == (15, 12, 3, 1)
    assert values_of(cluster) == [*"012345aabbccx"]  # the same letters, other numbers: six records
    Admin(cluster).create_partitions({"t": 7})  # keys go to others of them than before
    of_two_epochs = frame(spark, "abcabcd").unionAll(frame(spark, "a", epoch=1)).unionAll(frame(spark, "de", first=6))
    rows = of_two_epochs.unionAll(keyless)
    again = ss.merge_ingest(rows, tmp_path, "t", name="another")
    assert (again.rows, again.inserted, again.duplicates) == (16, 3, 13)
    assert values_of(cluster) == [*"012345aaabbccdex"]
    nothing = ss.merge_ingest(rows, tmp_path, "t")
    assert (nothing.inserted, nothing.duplicates, nothing.attempts, nothing.merge_version) == (0, 16, 1, None)
    assert nothing.delta_version == load_state(cluster.topic_log("t")).position.version


def test_rows_go_where_a_producer_sends_their_keys_in_its_order_and_in_small_files(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("sparklog.spark.ingest.ingest._FILE_BYTES", 5 * (_ROW_BYTES + 1 + 1 + 3))
    cluster = a_cluster(tmp_path)
    values = "abcdefghijklmnopqrstuvwxyz"
    with Producer(cluster) as producer:
        for value in values:
            producer.send("t", key=value.encode(), value=value.encode())
    sent = contents(cluster.topic_log("t"))
    before = load_state(cluster.topic_log("t")).require_whole().index.by_path
    numbers = [(2**31 - 13 + number) % 2**31 for number in range(26)]  # a producer's go on from 2**31 - 1 to 0
    rows = [(7, 0, number, value.encode(), value.encode()) for number, value in zip(numbers, values, strict=True)]
    given = spark.createDataFrame(rows[::-1], SCHEMA).selectExpr("*", "array(struct('h' key, X'0102' value)) headers")
    ss.merge_ingest(given.repartition(3), tmp_path, "t")
    merged = contents(cluster.topic_log("t"))
    after = load_state(cluster.topic_log("t")).require_whole().index.by_path
    for partition, of_partition in sent.items():
        count = len(of_partition)
        assert count > 5
        assert merged[partition] == [*of_partition, *((offset + count, value) for offset, value in of_partition)]
        files = sorted(
            (one.first_offset, one.last_offset, one.record_count)
            for path, one in after.items()
            if path not in before and one.partition == partition
        )
        bounds = [(count + first, min(count + first + 4, 2 * count - 1)) for first in range(0, count, 5)]
        assert files == [(first, last, last - first + 1) for first, last in bounds]
    assert not list(tmp_path.rglob("ingest-*/_delta_log/*.json"))


def test_text_times_and_headers_are_read_and_what_a_topic_refuses_is_told(spark, tmp_path):
    cluster = a_cluster(tmp_path, configs={"max.message.bytes": 20})
    rows = spark.read.json(
        spark.sparkContext.parallelize(
            json.dumps(line)
            for line in [
                {"producer_id": 1, "producer_epoch": 0, "sequence": 0, "value": "a", "timestamp": "1700000000123"},
                {
                    "producer_id": 1,
                    "producer_epoch": 0,
                    "sequence": 1,
                    "value": "b",
                    "timestamp": "2026-01-01T00:00:00Z",
                },
                {"producer_id": 1, "producer_epoch": 0, "sequence": 2, "headers": [{"key": "h", "value": "1"}]},
            ]
        )
    )
    before_ms = cluster.clock.now_ms()
    assert ss.merge_ingest(rows, tmp_path, "t").inserted == 3
    found = {row.sequence: row for row in spark.read.format("delta").load(str(tmp_path / "topics" / "t")).collect()}
    assert found[0].timestamp.timestamp() == 1700000000.123
    assert found[1].timestamp.timestamp() == 1767225600
    assert before_ms <= found[2].timestamp.timestamp() * 1_000 <= cluster.clock.now_ms()
    assert [(header.key, bytes(header.value)) for header in found[2].headers] == [("h", b"1")]
    assert (found[2].value, found[2].key) == (None, None)
    good = {
        "producer_id": "1",
        "producer_epoch": "0",
        "sequence": "9",
        "value": "c",
        "timestamp": None,
        "partition": "0",
    }
    wrong = [
        ("producer_id", None, "producer_id isn't a whole number from 0 on"),
        ("producer_epoch", "40000", "producer_epoch isn't a whole number from 0 on"),
        ("sequence", "1.5", "sequence isn't a whole number from 0 on"),
        ("timestamp", "yesterday", "timestamp can't be read"),
        ("timestamp", str(2**62), "timestamp can't be read"),
        ("timestamp", str(T0_MS), "as the topic's settings ask"),
        ("partition", "2", "partition isn't one from 0 to 1"),
        ("value", "x" * 21, "larger than max.message.bytes=20"),
    ]
    lines = [good, *({**good, column: value} for column, value, _ in wrong)]
    bad = spark.createDataFrame([tuple(line.values()) for line in lines], ", ".join(f"{name} STRING" for name in good))
    head = load_state(cluster.topic_log("t")).head
    reasons = [row.refused for row in conform(bad, head, now_ms=cluster.clock.now_ms()).select("refused").collect()]
    assert reasons[0] is None
    for reason, (_, _, expected) in zip(reasons[1:], wrong, strict=True):
        assert expected in reason
    with pytest.raises(InvalidRecordError, match="merge_ingest into 't': 8 of 9 rows are refused, one because"):
        ss.merge_ingest(bad, tmp_path, "t")
    assert sum(head.log_end_offsets) == sum(load_state(cluster.topic_log("t")).head.log_end_offsets) == 3


def test_rows_without_offsets_are_known_and_given_theirs(spark, tmp_path):
    """What any writer has added, and nobody has sequenced yet, at whichever path."""
    from pyspark.sql import functions as F

    cluster = a_cluster(tmp_path / "a cluster: 100%")
    table = str(tmp_path / "a cluster: 100%" / "topics" / "t")
    waiting = frame(spark, "abc", partitions=[0, 1, 1]).withColumn("timestamp", F.current_timestamp())
    waiting.withColumn("base_offset", F.lit(None).cast("bigint")).write.format("delta").mode("append").save(table)
    # Where the input tells the partition it is part of what a row is, as in Kafka: "a" is another one.
    given = frame(spark, "abcd", partitions=[0, 1, 1, 1]).unionAll(frame(spark, "a", partitions=[1]))
    done = ss.merge_ingest(given.unionAll(given), tmp_path / "a cluster: 100%", "t")
    assert (done.inserted, done.duplicates) == (2, 8)
    assert values_of(cluster) == [*"aabcd"]


@pytest.mark.deep  # in each run test_ingest_staging.py shows who is superseded, test_other_ingests_that_come… what then
@pytest.mark.parametrize(("other", "merged"), [("i", False), ("another name", True)])
def test_another_run_between_two_steps(spark, tmp_path, other, merged):
    """It comes first: between our decision and our MERGE, or between the MERGE and the commit."""
    cluster = a_cluster(tmp_path)
    ours = an_ingest(spark, cluster)
    batch = ours.take(frame(spark, "abc"))
    attempt = ours.decide(batch)
    files = ours.merge(batch, attempt) if merged else []
    assert ss.merge_ingest(frame(spark, "bcd", first=1), tmp_path, "t", name=other).inserted == 3
    if not merged:
        files = ours.merge(batch, attempt)
    assert inserted_count(files) == 3
    assert ours.publish(attempt, files).verdict is Verdict.SUPERSEDED
    done = ours.run(batch, max_attempts=1)
    assert (done.inserted, done.attempts) == (1, 1)
    assert values_of(cluster) == [*"abcd"]


@pytest.mark.deep  # in each run test_ingest_staging.py kills it at any call of the store, and loses answers
def test_killed_after_any_step_the_next_run_does_what_is_left(spark, tmp_path):
    cluster = a_cluster(tmp_path)
    batch = an_ingest(spark, cluster).take(frame(spark, "abc"))
    an_ingest(spark, cluster).decide(batch)  # and was killed
    killed = an_ingest(spark, cluster)
    assert inserted_count(killed.merge(batch, killed.decide(batch))) == 3
    assert values_of(cluster) == []
    killed = an_ingest(spark, cluster)
    attempt = killed.decide(batch)
    files = killed.merge(batch, attempt)
    assert killed.publish(attempt, files).verdict is Verdict.COMMITTED
    assert killed.publish(killed.decide(batch), files).verdict is Verdict.COMMITTED  # an answer that was lost
    assert ss.merge_ingest(frame(spark, "abcd"), tmp_path, "t").inserted == 1
    assert values_of(cluster) == [*"abcd"]


def test_a_topic_that_was_created_again_gets_nothing_that_was_meant_for_the_old_one(spark, tmp_path):
    cluster = a_cluster(tmp_path)
    ours = an_ingest(spark, cluster)
    batch = ours.take(frame(spark, "abc"))
    Admin(cluster).delete_topics(["t"])
    a_cluster(tmp_path)
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
        ours.run(batch, max_attempts=3)
    assert values_of(cluster) == []


@pytest.mark.deep  # in each run tests/spark/ingest/test_s3_ingest.py shows it beside one client
def test_it_finishes_beside_producers_that_never_stop_and_another_run_of_its_own(spark, tmp_path):
    cluster = a_cluster(tmp_path)
    stop, sent, results = threading.Event(), Counter[str](), []

    def produce(number: int) -> None:
        with Producer(cluster, linger_ms=0) as producer:
            count = 0
            while not stop.is_set():
                value = f"{number}-{count}"
                producer.send("t", value.encode(), partition=count % 2).get(timeout=60)
                sent[value] += 1
                count += 1
                stop.wait(0.02)

    def ingest(name: str) -> None:
        results.append(ss.merge_ingest(frame(spark, "abcdefghij" * 20), tmp_path, "t", name=name))

    producers = [threading.Thread(target=produce, args=(number,)) for number in range(2)]
    runs = [threading.Thread(target=ingest, args=(name,)) for name in ("one", "one", "two")]
    for thread in [*producers, *runs]:
        thread.start()
    for thread in runs:
        thread.join()
    stop.set()
    for thread in producers:
        thread.join()
    assert len(results) == 3
    assert sum(result.inserted for result in results) == 200
    assert max(result.attempts for result in results) <= 3  # each other run may come first once
    assert len(sent) > 10
    assert Counter(values_of(cluster)) == sent + Counter("abcdefghij" * 20)


def test_only_files_of_the_window_and_of_its_producers_are_read(spark, tmp_path):
    clock = ManualClock(start_ms=T0_MS)
    cluster = open_cluster(tmp_path, clock=clock)
    Admin(cluster).create_topics([NewTopic("t", 2)])
    put(cluster, (0, "abc"), (1, "d"))
    put(cluster, (1, "ef"))
    clock.advance(2 * HOUR_MS)
    writer = a_writer(cluster.topic_log("t"))
    writer.append(writer.upload([(0, records(*"ghij")), (1, records("k"))]), deadline=within(writer, 10_000))
    unsequenced_file(cluster.topic_log("t"), "waits", "waits too", partition=1)
    state = load_state(cluster.topic_log("t"))

    def read(window_ms: int, first_producer_id: int, last_producer_id: int, *partitions: int) -> tuple[int, int]:
        producers = ProducerRange(
            first_producer_id=first_producer_id, last_producer_id=last_producer_id, first_sequence=0, last_sequence=5
        )
        rows, identity = spark.range(0), identity_columns(partition_is_given=True)
        batch = Batch(rows=rows, row_count=0, identity=identity, ranges=(producers,))
        found = an_ingest(spark, cluster, window_ms=window_ms).present(batch, state)
        return files_read(found.where(f"present_partition IN ({', '.join(map(str, partitions))})"))

    anybody = (0, 2**63 - 1)
    assert read(3 * HOUR_MS, *anybody, 0, 1) == (11, 5)
    assert read(HOUR_MS, *anybody, 0, 1) == (5, 2)
    assert read(HOUR_MS, *anybody, 1) == (1, 1)
    assert read(3 * HOUR_MS, writer.producer_id, writer.producer_id, 0, 1) == (5, 2)
    assert read(HOUR_MS, 1, 1, 0, 1) == (0, 0)


def test_other_ingests_that_come_first_make_it_decide_anew_up_to_a_bound(spark, tmp_path, monkeypatch):
    cluster = a_cluster(tmp_path)
    verdicts = [Verdict.SUPERSEDED, Verdict.SUPERSEDED, Verdict.SUPERSEDED, Verdict.COMMITTED]
    decided = []
    monkeypatch.setattr(Ingest, "decide", lambda self, batch: decided.append(batch))
    monkeypatch.setattr(Ingest, "merge", lambda self, batch, attempt: ["a file"])
    monkeypatch.setattr(Ingest, "publish", lambda self, attempt, files: Published(verdicts.pop(0), 1))
    monkeypatch.setattr("sparklog.spark.ingest.ingest.inserted_count", lambda files: 3)
    with pytest.raises(KafkaTimeoutError, match="came first 2 times; its rows aren't stored"):
        ss.merge_ingest(frame(spark, "abc"), tmp_path, "t", max_attempts=2)
    assert values_of(cluster) == []
    done = ss.merge_ingest(frame(spark, "abc"), tmp_path, "t", max_attempts=2)
    assert (done.inserted, done.attempts, len(decided)) == (3, 2, 4)


@pytest.mark.deep  # in each run test_ingest_job.py has a stream, and test_a_row_is_stored_once… what is repeated
def test_a_stream_that_repeats_a_micro_batch_stores_nothing_twice(spark, tmp_path):
    cluster = a_cluster(tmp_path / "cluster")
    (tmp_path / "input").mkdir()
    lines = (
        {"producer_id": 7, "producer_epoch": 0, "sequence": number, "key": value, "value": value}
        for number, value in enumerate("abc")
    )
    (tmp_path / "input" / "rows.json").write_text("\n".join(map(json.dumps, lines)))
    results = []

    def store(batch: Any, batch_id: int) -> None:
        results.append(ss.merge_ingest(batch, tmp_path / "cluster", "t", name="stream"))
        if len(results) == 1:
            raise RuntimeError("killed before the micro-batch is done")

    def run() -> None:
        stream = spark.readStream.schema(SCHEMA.replace("BINARY", "STRING")).json(str(tmp_path / "input"))
        writer = stream.writeStream.foreachBatch(store).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException):
        run()
    run()
    assert [result.inserted for result in results] == [3, 0]
    assert values_of(cluster) == [*"abc"]
