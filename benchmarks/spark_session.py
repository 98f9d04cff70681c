"""The other process of the Spark benchmarks: one session, whose JVM is warm, that does the cases one after the other.

It reads a request a line, ``{"work": name, …arguments}``, and answers each with a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import Usage, bytes_read
from benchmarks.peers import PARTITIONS, expect
from benchmarks.processes import tree_cpu_seconds
from benchmarks.produce import TOPIC

__all__ = ["serve"]

CORES = 2


def serve(jars: list[str], folder: str) -> None:
    """Work till the standard input ends."""
    from sparklog.spark import session

    conf: dict[str, Any] = {
        "spark.master": f"local[{CORES}]",
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.local.dir": f"{folder}/local",
    }
    if jars:
        conf["spark.jars"] = ",".join(jars)
    spark = session("sparklog-benchmarks", **conf)
    spark.sparkContext.setLogLevel("ERROR")
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = WORK[request.pop("work")](spark, **request)
        print(json.dumps(answer), flush=True)
    spark.stop()


@contextmanager
def used(spark: Any, records: int, broker_pid: int | None) -> Iterator[Usage]:
    """As the harness measures, but of the JVM and all of its Python workers, too."""
    pids = [os.getpid(), *([] if broker_pid is None else [broker_pid])]
    usage = Usage(records, 0.0, 0.0)
    cpu, began = sum(map(tree_cpu_seconds, pids)), time.perf_counter()
    yield usage
    usage.wall_s = time.perf_counter() - began
    usage.cpu_s = sum(map(tree_cpu_seconds, pids)) - cpu


def _scan(spark: Any, frame: Any, count: int, value_bytes: int, broker_pid: int | None) -> dict[str, Any]:
    with used(spark, count, broker_pid) as usage:
        row = frame.selectExpr("count(*) AS records", "sum(length(value)) AS bytes").first()
    expect("records and bytes of values", (row.records, row.bytes), (count, value_bytes))
    return _as_dict(usage)


def read_source(
    spark: Any,
    *,
    format: str,
    options: dict[str, str],
    count: int,
    value_bytes: int,
    schema: str | None = None,
    broker_pid: int | None = None,
) -> dict[str, Any]:
    """Count, and sum of the lengths of values, by ``spark.read.format(…)``; of the columns of ``schema`` alone."""
    reader = spark.read.format(format).options(**options)
    frame = (reader if schema is None else reader.schema(schema)).load()
    return _scan(spark, frame, count, value_bytes, broker_pid)


def read_view(spark: Any, *, root: str, topic: str, count: int, value_bytes: int) -> dict[str, Any]:
    """The same by the topic's view."""
    from sparklog.spark import register

    register(spark, root, [topic])
    return _scan(spark, spark.table(f"`{topic}`"), count, value_bytes, None)


def query_view(spark: Any, *, root: str, topic: str, text: str) -> dict[str, Any]:
    """The answer to a question in SQL to the topic's view."""
    from sparklog.spark import register

    register(spark, root, [topic])
    return _asked(spark, text, None)


def query_kafka(spark: Any, *, options: dict[str, str], text: str, broker_pid: int) -> dict[str, Any]:
    """The same to ``format("kafka")``, as the view ``kafka``."""
    spark.read.format("kafka").options(**options).load().createOrReplaceTempView("kafka")
    return _asked(spark, text, broker_pid)


def _asked(spark: Any, text: str, broker_pid: int | None) -> dict[str, Any]:
    jvm = spark.sparkContext._jvm.ProcessHandle.current().pid()
    before = bytes_read(jvm)
    with used(spark, 1, broker_pid) as usage:
        answer = spark.sql(text).collect()
    rows = [list(row) for row in answer]
    return {"answer": rows, "wall_s": usage.wall_s, "cpu_s": usage.cpu_s, "read": bytes_read(jvm) - before}


def write_sink(
    spark: Any, *, format: str, options: dict[str, str], count: int, value_size: int, broker_pid: int | None = None
) -> dict[str, Any]:
    """``DataFrame.write.format(…)``; what makes the rows is the same for all, and counted."""
    rows = spark.range(count, numPartitions=CORES).selectExpr(
        "concat('key-', lpad(CAST(id * 7919 % 1000000000 AS STRING), 12, '0')) AS key",
        f"CAST(rpad(CAST(hash(id) AS STRING), {value_size}, sha2(CAST(id AS STRING), 256)) AS BINARY) AS value",
    )
    with used(spark, count, broker_pid) as usage:
        rows.write.format(format).options(**options).mode("append").save()
    return _as_dict(usage)


def stream(
    spark: Any, *, format: str, options: dict[str, str], count: int, seconds: float, broker_pid: int | None = None
) -> dict[str, Any]:
    """A query over what is being sent, whose values begin with the time of sending, in nanoseconds.

    Returns:
        Milliseconds: ``triggers`` of micro-batches with records, ``ages`` of records when their batch is processed; the
        first fifth of both left out.
    """
    ages: list[float] = []

    def take(frame: Any, _: int) -> None:
        values = [bytes(row.value) for row in frame.select("value").collect()]
        now = time.time_ns()
        ages.extend((now - int(value[:19])) / 1e6 for value in values)

    with tempfile.TemporaryDirectory() as checkpoint:
        frame = spark.readStream.format(format).options(**options).load()
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).start()
        try:
            while not query.recentProgress and query.isActive:
                time.sleep(0.05)
            with used(spark, count, broker_pid) as usage:
                print("ready", flush=True)
                deadline = time.monotonic() + seconds + 60
                while len(ages) < count and query.isActive and time.monotonic() < deadline:
                    time.sleep(0.05)
            progress = [each for each in query.recentProgress if each["numInputRows"]]
        finally:
            query.stop()
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    expect("records", len(ages), count)
    return {
        "triggers": [each["durationMs"]["triggerExecution"] for each in progress[len(progress) // 5 :]],
        "ages": ages[count // 5 :],
        "cpu_s": usage.cpu_s,
        "wall_s": usage.wall_s,
    }


# Maintenance.


def optimize_topic(spark: Any, *, root: str, count: int) -> dict[str, Any]:
    import sparklog.spark as ss

    with used(spark, count, None) as usage:
        report = ss.optimize(spark, root)
    expect("failures", report.failures, [])
    return _as_dict(usage)


def rewrite_plainly(spark: Any, *, root: str, count: int) -> dict[str, Any]:
    """As one would without sparklog: nothing is committed, and the files have no order."""
    table = f"{root}/topics/{TOPIC}"
    with used(spark, count, None) as usage:
        frame = spark.read.parquet(*(str(path) for path in Path(table).glob("partition=*")))
        frame.coalesce(PARTITIONS).write.option("compression", "none").parquet(f"{root}/plain")
    return _as_dict(usage)


def retain(spark: Any, *, root: str, count: int) -> dict[str, Any]:
    import sparklog.spark as ss

    with used(spark, count, None) as usage:
        report = ss.run_retention(spark, root)
    [topic] = report.topics
    expect("files that were removed", topic.retention.removed_files if topic.retention else 0, count)
    return _as_dict(usage)


def compact_topic(spark: Any, *, root: str, count: int, small_bytes: int) -> dict[str, Any]:
    import sparklog.spark as ss

    with used(spark, count, None) as usage:
        report = ss.run_compaction(spark, root, small_bytes=small_bytes)
    expect("failures", report.failures, [])
    [topic] = report.topics
    dropped = sum(one.counts.dropped for one in topic.compact.partitions) if topic.compact else 0
    expect("more than half of the records dropped", dropped > count // 2, True)
    return _as_dict(usage)


def _as_dict(usage: Usage) -> dict[str, Any]:
    return {"records": usage.records, "wall_s": usage.wall_s, "cpu_s": usage.cpu_s}


WORK: dict[str, Callable[..., dict[str, Any]]] = {
    "read_source": read_source,
    "read_view": read_view,
    "query_view": query_view,
    "query_kafka": query_kafka,
    "write_sink": write_sink,
    "stream": stream,
    "optimize_topic": optimize_topic,
    "rewrite_plainly": rewrite_plainly,
    "retain": retain,
    "compact_topic": compact_topic,
}
