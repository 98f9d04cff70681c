"""All that sparklog does with Spark, briefly, with whichever PySpark is there: ``python -m tests.spark.each_version``.

A program, as it runs in environments of older PySparks (``make sparks``), which have nothing that tests need. Ends with
exit code 1 at what isn't as expected.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyspark

import sparklog.spark as ss
from sparklog.admin import Admin, NewTopic
from sparklog.compaction import OptimizePolicy
from sparklog.consumer import Consumer
from sparklog.errors import InvalidConfigurationError, SparklogError
from sparklog.log.cluster import open_cluster
from sparklog.model import TopicPartition
from sparklog.producer import Producer

VERSION = pyspark.__version__
HAS_SOURCE = int(VERSION.partition(".")[0]) > 3
TIMEOUT_S = 240


def expect(what: str, seen: object, wanted: object) -> None:
    """Ends the program where something isn't as expected."""
    if seen != wanted:
        sys.exit(f"PySpark {VERSION}: {what}: got {seen!r}, expected {wanted!r}")
    print(f"PySpark {VERSION}: {what}: ok", flush=True)


def refusal(call: Any) -> str:
    """What a call is refused with."""
    try:
        call()
    except InvalidConfigurationError as error:
        return str(error)
    return "not refused"


def consumed(root: str, topic: str) -> list[str]:
    """All values of a topic, sorted, as a consumer returns them."""
    with Consumer(cluster=root, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, partition) for partition in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        values: list[str] = []
        ends_at = time.monotonic() + TIMEOUT_S
        while any(consumer.position(at) < end for at, end in ends.items()):
            if time.monotonic() > ends_at:
                sys.exit(f"PySpark {VERSION}: {topic} can't be read in {TIMEOUT_S} s")
            for records in consumer.poll(timeout_ms=500).values():
                values += [(record.value or b"").decode() for record in records]
    return sorted(values)


def make_topics(root: str) -> None:
    """``t`` with 100 records in 10 commits, ``keyed`` with 7 keys among 84, and empty ones."""
    admin = Admin(open_cluster(root))
    compacted: dict[str, object] = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01}
    admin.create_topics(
        [
            NewTopic("t", 2),
            NewTopic("keyed", 1, configs=compacted),
            NewTopic("typed", 1, value_schema="id BIGINT, at TIMESTAMP"),
            *(NewTopic(name, 2) for name in ("ingested", "written", "copied", "slowly")),
        ]
    )
    with Producer(cluster=root) as producer:
        for commit in range(10):
            for number in range(10):
                producer.send("t", str(commit * 10 + number).encode(), key=str(number).encode())
            producer.flush()
        for commit in range(12):
            for number in range(7):
                producer.send("keyed", f"{commit}.{number}".encode(), key=f"k{number}".encode())
            producer.flush()


def query(spark: Any, root: str) -> None:
    """Views, ranges, and cuts."""
    names = ss.register(spark, root)
    expect("views", {"t", "keyed"} <= set(names), True)
    expect("views of groups", "consumer_offsets" in names, HAS_SOURCE)
    [row] = spark.sql("SELECT count(*) AS n, count(DISTINCT partition, offset) AS d FROM t").collect()
    expect("rows of a view", (row.n, row.d), (100, 100))
    first = ss.read_topic(spark, root, "t", starting={0: 10}, ending={0: 20, 1: 5})
    expect("read_topic", first.count(), 15)
    expect(
        "read_consistent", {name: f.count() for name, f in ss.read_consistent(spark, root, ["t"]).items()}, {"t": 100}
    )


def ingest(spark: Any, root: str) -> None:
    """Rows come twice and are stored once."""
    rows = spark.range(50).selectExpr(
        "CAST(7 AS BIGINT) AS producer_id", "0 AS producer_epoch", "CAST(id AS INT) AS sequence",
        "CAST(id % 9 AS STRING) AS key", "CAST(id AS STRING) AS value",
    )  # fmt: skip
    first, again = (ss.merge_ingest(rows, root, "ingested") for _ in range(2))
    expect("merge_ingest", (first.inserted, again.inserted, again.duplicates), (50, 0, 50))
    given = "SELECT 7L AS producer_id, 0 AS producer_epoch, 0 AS sequence, 5L AS id, TIMESTAMP '2026-01-01' AS at"
    typed = spark.sql(given)
    expect("merge_ingest of fields", ss.merge_ingest(typed, root, "typed").inserted, 1)
    found = ss.read_topic(spark, root, "typed").select("id", "at")
    expect("fields", found.collect(), typed.select("id", "at").collect())
    expect("what was ingested", consumed(root, "ingested"), sorted(str(number) for number in range(50)))


def maintain(spark: Any, root: str) -> None:
    """Merging and compaction on executors, then all of it."""
    policy = OptimizePolicy(min_files=2, max_files=4, growth=1.5)
    reports = [
        ss.optimize(spark, root, "t", small_bytes=0, policy=policy),
        ss.run_compaction(spark, root, "keyed", small_bytes=0),
        ss.maintain(spark, root),
    ]
    expect("failures of maintenance", [line for report in reports for line in report.failures], [])
    expect("merged", bool(reports[0].topics[0].optimize), True)
    expect("compacted", consumed(root, "keyed")[-7:], [f"11.{number}" for number in range(7)])
    expect("records after maintenance", consumed(root, "t"), sorted(str(number) for number in range(100)))


def source(spark: Any, root: str) -> None:
    """A batch query, and one into a topic."""
    read = spark.read.format("sparklog").option("subscribe", "t").load(root)
    expect("format('sparklog')", read.where("partition < 2 AND offset >= 0").count(), 100)
    rows = read.select("key", "value")
    rows.write.format("sparklog").mode("append").option("topic", "written").save(root)
    expect("written", consumed(root, "written"), sorted(str(number) for number in range(100)))
    by_partition = ss.by_partition(rows, root, "written")
    by_partition.write.format("sparklog").mode("append").option("topic", "written").save(root)
    expect("by_partition", consumed(root, "written"), sorted(2 * [str(number) for number in range(100)]))


def streams(spark: Any, root: str, folder: Path) -> None:
    """Topic to topic, exactly once: to the end and again with more; then by a limit."""

    def start(topic: str, checkpoint: str, trigger: dict[str, Any], **options: Any) -> Any:
        reader = spark.readStream.format("sparklog").option("subscribe", "t").option("startingOffsets", "earliest")
        frame = reader.options(**options).load(root).select("key", "value")
        writer = frame.writeStream.format("sparklog").option("topic", topic).trigger(**trigger)
        return writer.option("checkpointLocation", str(folder / checkpoint)).start(root)

    def to_the_end(query: Any) -> None:
        if not query.awaitTermination(TIMEOUT_S):
            sys.exit(f"PySpark {VERSION}: a stream hasn't ended in {TIMEOUT_S} s")

    values = [str(number) for number in range(100)]
    for _ in range(2):  # the second time there is nothing
        to_the_end(start("copied", "copy", {"availableNow": True}))
        expect("a stream with AvailableNow", consumed(root, "copied"), sorted(values))
    with Producer(cluster=root) as producer:
        producer.send("t", b"more", key=b"k")
    to_the_end(start("copied", "copy", {"availableNow": True}))
    expect("a stream that goes on", consumed(root, "copied"), sorted([*values, "more"]))
    for stops_at in (40, 101):  # stopped in the middle, and started again
        query = start("slowly", "slow", {"processingTime": "0 seconds"}, maxOffsetsPerTrigger=20)
        ends_at = time.monotonic() + TIMEOUT_S
        while len(consumed(root, "slowly")) < stops_at and query.isActive and time.monotonic() < ends_at:
            time.sleep(0.5)
        batches = [progress["numInputRows"] for progress in query.recentProgress]
        query.stop()
        if query.exception() is not None:
            sys.exit(f"PySpark {VERSION}: {query.exception()}")
        expect("a limited stream", max(batches, default=0) <= 20, True)
    expect("a limited stream that was stopped", consumed(root, "slowly"), sorted([*values, "more"]))


def main() -> int:
    """Run all of it in a temporary folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = str(folder / "cluster")
        make_topics(root)
        settings: dict[str, Any] = {
            "spark.master": "local[2,3]",
            "spark.jars.ivy": str(Path(sys.prefix, "ivy")),  # apart: a folder's jars go to other tests together
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "3",
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
            "spark.local.dir": str(folder / "local"),
            # To compile code for queries of a few rows takes longer than to run them.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dderby.system.home={folder}",
        }
        spark = ss.session("each version", **settings)
        spark.sparkContext.setLogLevel("ERROR")
        try:
            query(spark, root)
            ingest(spark, root)
            if HAS_SOURCE:
                source(spark, root)
                streams(spark, root, folder)
            else:
                wanted = f'format("sparklog") needs PySpark 4.0, 4.1 or 4.2, this is {VERSION}'
                expect("the source is refused", refusal(lambda: ss.register_source(spark)), wanted)
            maintain(spark, root)
        except SparklogError as error:
            sys.exit(f"PySpark {VERSION}: {type(error).__name__}: {error}")
        finally:
            spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
