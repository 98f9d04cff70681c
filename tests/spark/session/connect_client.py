"""What a client of Spark Connect does with sparklog, in a process without a JVM; run by ``test_connect.py``.

``python -m tests.spark.session.connect_client sc://host:port FOLDER`` runs each function called ``check_…`` and prints
a JSON object with what became of it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparklog.spark as ss
from sparklog.admin import Admin, NewTopic
from sparklog.errors import InvalidArgumentError, InvalidConfigurationError
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.producer import Producer
from sparklog.spark.session.connect import is_connect
from sparklog.spark.views.sqltext import RECORD_COLUMNS

S3 = {"endpoint_url": "http://127.0.0.1:1", "key": "k", "secret": "hush"}


def check_session_is_the_clients(spark: Any, root: Path, cluster: Cluster) -> None:
    settings: dict[str, Any] = {"spark.sql.shuffle.partitions": 2}
    assert ss.session(**settings) is spark
    assert is_connect(spark)
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def check_batch_queries_and_views(spark: Any, root: Path, cluster: Cluster) -> None:
    frame = spark.range(6).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    ss.by_partition(frame, root, "t").write.format("sparklog").mode("append").option("topic", "t").save(str(root))
    assert spark.read.format("sparklog").option("subscribe", "t").load(str(root)).count() == 6
    assert ss.register(spark, root)[:2] == ["empty", "merged"]
    assert spark.sql("SELECT count(*) AS c FROM t WHERE partition < 2").collect()[0].c == 6
    assert ss.read_topic(spark, root, "t", ending=0).columns == [*RECORD_COLUMNS]
    assert ss.create_view(spark, root, "t", name="default.permanent") == "`default`.`permanent`"
    view = spark.table("permanent")
    assert (view.columns, view.count()) == ([*RECORD_COLUMNS], 6)
    spark.sql("DROP VIEW permanent").collect()


def check_streams(spark: Any, root: Path, cluster: Cluster) -> None:
    with Producer(cluster) as producer:
        producer.send("source", b"1").get()
    source = spark.readStream.format("sparklog").option("subscribe", "source").option("startingOffsets", "earliest")
    writer = source.load(str(root)).select("value").writeStream.format("sparklog").option("topic", "sink")
    query = writer.option("checkpointLocation", str(root.parent / "checkpoint")).trigger(availableNow=True)
    running = query.start(str(root))
    assert running.awaitTermination(400)
    assert running.exception() is None
    assert spark.read.format("sparklog").option("subscribe", "sink").load(str(root)).count() == 1


def check_merge_ingest(spark: Any, root: Path, cluster: Cluster) -> None:
    before = dict(spark.conf.getAll)
    identity = ["1L producer_id", "0 producer_epoch", "CAST(id AS INT) sequence", "CAST(id AS STRING) key"]
    rows = spark.range(4).selectExpr(*identity, "'v' value")
    done = ss.merge_ingest(rows.unionAll(rows), root, "merged")
    assert (done.inserted, done.duplicates) == (4, 4)
    assert dict(spark.conf.getAll) == before  # how a MERGE writes is set for no other write
    assert not [table.name for table in spark.catalog.listTables() if table.name.startswith("sparklog_ingest")]


def check_maintenance(spark: Any, root: Path, cluster: Cluster) -> None:
    for number in range(3):
        with Producer(cluster) as producer:
            producer.send("source", b"%d" % number).get()
    report = ss.maintain(spark, root)
    assert report.failures == []
    assert {one.topic for one in report.topics} == set(Admin(cluster).list_topics())
    assert ss.run_retention(spark, root, "t").failures == []


def check_s3_is_configured_on_the_server_alone(spark: Any, root: Path, cluster: Cluster) -> None:
    wanted = "spark.hadoop.fs.s3a.bucket.b.endpoint"
    spark.conf.set(wanted, "http://127.0.0.1:1")  # in the client's session, where Hadoop doesn't look
    expect(InvalidConfigurationError, wanted, lambda: ss.read_topic(spark, "s3://b/p", "t", storage_options=S3))
    expect(InvalidConfigurationError, wanted, lambda: ss.create_view(spark, "s3://b/p", "t", storage_options=S3))
    wanted = "spark.hadoop.fs.s3a.access.key"
    expect(InvalidConfigurationError, wanted, lambda: ss.session(s3=True, storage_options=S3))


def check_a_relative_folder_is_the_servers(spark: Any, root: Path, cluster: Cluster) -> None:
    assert "t" in ss.register(spark, os.path.relpath(root))  # both are where the test is
    os.chdir(root)
    expect(InvalidArgumentError, f"relative: to {root} for this process", lambda: ss.register(spark, "."))


def expect(kind: type[Exception], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(kind, match=re.escape(message)) as caught:
        call()
    assert "hush" not in str(caught.value)


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}


def main(url: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(url).getOrCreate()
    root = Path(folder).resolve() / "cluster"
    cluster = open_cluster(root)
    Admin(cluster).create_topics([NewTopic(name, 2) for name in ("empty", "merged", "sink", "source", "t")])
    outcomes = {}
    for name, check in CHECKS.items():
        print(name, file=sys.stderr, flush=True)  # to be seen where it hangs
        try:
            check(spark, root, cluster)
        except BaseException:
            outcomes[name] = traceback.format_exc()[-3_000:]
        else:
            outcomes[name] = "passed"
    print(json.dumps(outcomes))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
