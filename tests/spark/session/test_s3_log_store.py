"""Spark commits to topics on S3 beside Python clients, through sparklog's log store: nobody's commit is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import sparklog.spark as ss
from sparklog.admin import Admin
from sparklog.clock import SystemClock
from sparklog.delta.log import DeltaLog
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.spark.session.storage_access import configure_storage_access
from sparklog.storage import open_store
from sparklog.streaming.cluster_ref import ClusterRef, cluster_ref_of
from tests.depth import NIGHTLY, by_depth
from tests.s3_proxy import S3Proxy, s3_proxy
from tests.spark.spark_support import a_cluster, put, seen
from tests.support import a_topic, a_writer, append, contents, entry_lines, versions_of

pytestmark = [pytest.mark.spark, pytest.mark.s3]

COMMITS = by_depth(gate=2, nightly=10)


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[S3Proxy]:
    """Between Spark and S3; Python clients go to S3 directly."""
    with s3_proxy(s3_endpoint) as proxy:
        yield proxy


@pytest.fixture
def place(spark: Any, s3_uri: str, s3_options: dict[str, Any], proxy: S3Proxy) -> ClusterRef:
    """A root that Spark reaches through the proxy."""
    place = cluster_ref_of(s3_uri, {**s3_options, "endpoint_url": proxy.url})
    configure_storage_access(spark, place)
    return place


@pytest.fixture
def log(s3_uri: str, s3_options: dict[str, Any]) -> Iterator[DeltaLog]:
    """The topic ``t`` there."""
    store = open_store(s3_uri, s3_options)
    yield a_topic(store, SystemClock(), num_partitions=2)
    store.close()


def insert(spark: Any, place: ClusterRef, value: str) -> None:
    """As any Delta writer does it: a row without an offset."""
    spark.sql(
        f"INSERT INTO delta.`{place.delta_path('topics/t')}` (partition, base_offset, offset_delta, timestamp, value) "
        f"VALUES (0, NULL, 0, TIMESTAMP '2100-01-01', CAST('{value}' AS BINARY))"
    )


def values(log: DeltaLog) -> list[str]:
    """What is in the topic, also what has no offsets yet; these get some."""
    sequence_topic(log)
    return sorted(value for found in contents(log).values() for _, value in found)


def test_a_commit_that_comes_second_is_tried_again_and_overwrites_nothing(
    spark: Any, place: ClusterRef, proxy: S3Proxy, log: DeltaLog
) -> None:
    """With Delta's own log store all of the acknowledged records were lost: it looks first, and then writes."""
    writer = a_writer(log)
    acknowledged = []
    for number in range(COMMITS):
        proxy.hold = lambda: acknowledged.append(append(writer, f"ours{number}").base_offsets)  # noqa: B023
        insert(spark, place, f"theirs{number}")
        assert proxy.hold is None
    taken, made = proxy.commits[::2], proxy.commits[1::2]
    assert [(condition, status) for _, condition, status in taken] == [("*", 412)] * COMMITS
    assert [(condition, status) for _, condition, status in made] == [("*", 200)] * COMMITS
    assert versions_of(log) == [*range(2 * COMMITS + 1)]
    assert acknowledged == [(number,) for number in range(COMMITS)]
    assert values(log) == sorted(f"{whose}{number}" for whose in ("ours", "theirs") for number in range(COMMITS))


def test_a_commit_whose_answer_was_lost_is_known_by_its_content(
    spark: Any, place: ClusterRef, proxy: S3Proxy, log: DeltaLog
) -> None:
    """S3A sends it once more and is told that it exists: taken for another's, the row would be there twice."""
    proxy.lose_answer = True
    insert(spark, place, "once")
    assert [status for *_, status in proxy.commits] == [200, 412]
    assert versions_of(log) == [0, 1]
    assert "txnId" in entry_lines(log, 1)[0]["commitInfo"]  # no other commit has the same content
    assert values(log) == ["once"]


def test_a_commit_that_s3_asks_to_send_again_is_sent_again(
    spark: Any, place: ClusterRef, proxy: S3Proxy, log: DeltaLog
) -> None:
    """S3 may answer 409, ConditionalRequestConflict, to PUTs of one name that race."""
    proxy.refuse = 409
    insert(spark, place, "once")
    assert [status for *_, status in proxy.commits] == [409, 200]
    assert values(log) == ["once"]


def test_a_store_without_conditional_puts_is_refused(
    spark: Any, place: ClusterRef, proxy: S3Proxy, log: DeltaLog
) -> None:
    bucket = place.uri.removeprefix("s3://").split("/")[0]
    spark.conf.set(f"fs.s3a.bucket.{bucket}.create.conditional.enabled", "false")
    with pytest.raises(Exception, match=r"can't create a file only if there is none"):
        insert(spark, place, "unsafe")
    assert proxy.commits == []
    assert values(log) == []


@pytest.mark.deep  # in each run the first test here, by INSERT, and test_s3_ingest.py, by MERGE beside a client
def test_spark_and_python_clients_write_to_one_topic_at_once(spark: Any, place: ClusterRef, log: DeltaLog) -> None:
    def write(name: str) -> list[str]:
        writer = a_writer(log)
        written = []
        for number in range(8):
            time.sleep(0.3)  # else they could be done before Spark begins, or Spark never come first
            append(writer, f"{name}{number}", partition=1)
            written.append(f"{name}{number}")
        return written

    path = place.delta_path("topics/t")
    with ThreadPoolExecutor(2) as pool:
        ours = [pool.submit(write, name) for name in "ab"]
        theirs = []
        for number in range(2):
            insert(spark, place, f"insert{number}")
            spark.sql(
                f"MERGE INTO delta.`{path}` t USING (SELECT CAST('merge{number}' AS BINARY) AS value) s "
                "ON t.value = s.value AND t.base_offset IS NULL AND t.partition = 0 "
                "WHEN NOT MATCHED THEN INSERT (partition, base_offset, offset_delta, timestamp, value) "
                "VALUES (0, NULL, 0, TIMESTAMP '2100-01-01', s.value)"
            )
            theirs += [f"insert{number}", f"merge{number}"]
        written = [value for future in ours for value in future.result()]
    assert values(log) == sorted([*written, *theirs])


def test_topics_on_s3_are_views_and_are_read_by_the_source(spark: Any, s3_uri: str, s3_options: dict[str, Any]) -> None:
    cluster = a_cluster(open_store(s3_uri, s3_options))
    put(cluster, (0, "abc"), (1, "d"))
    put(cluster, (0, "ef"))
    everything = [(0, 0, "a"), (0, 1, "b"), (0, 2, "c"), (0, 3, "e"), (0, 4, "f"), (1, 0, "d")]
    assert "t" in ss.register(spark, s3_uri, storage_options=s3_options)
    assert seen(spark.table("t")) == everything
    Admin(cluster).alter_group_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(2)})
    lag = spark.sql("SELECT lag FROM consumer_lag WHERE topic = 't' AND partition = 0")
    assert [row.lag for row in lag.collect()] == [3]
    middle = ss.read_topic(spark, s3_uri, "t", starting={0: 2}, ending={0: 4, 1: 0}, storage_options=s3_options)
    assert seen(middle) == [(0, 2, "c"), (0, 3, "e")]
    if NIGHTLY:  # in each run test_data_source.py reads topics on S3
        reader = spark.read.format("sparklog").option("subscribe", "t").option("storageOptions", json.dumps(s3_options))
        assert seen(reader.load(s3_uri)) == everything
