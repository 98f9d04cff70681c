"""The job: flights to alerts and to counts, by two streaming queries with checkpoints.

``python -m examples.spark_stream.job ROOT CHECKPOINTS``, or by ``spark-submit``. It ends when it has read what was
there as it began, and goes on from there when it is started again. With ``--last-ms`` no more flights will come: when
all are read it sends a record of a time long after the last one, and so has the last hours counted as well.

What Kafka Streams calls ``exactly_once_v2`` is a checkpoint and ``format("sparklog")`` on both ends. A micro-batch's
records become visible in all its topics together; one that is repeated after a crash changes nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from sparklog import Producer
from sparklog.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["ALERTS", "CLOSING", "COUNTS", "FLIGHTS", "LATE_MIN", "STARTED", "VERY_LATE_MIN", "WORSE", "main"]

FLIGHTS, ALERTS, WORSE, COUNTS = "flights", "alerts", "worse-alerts", "departures-by-hour"
LATE_MIN = 15
VERY_LATE_MIN = 120
"""Alerts from so many minutes on are in a topic of their own as well."""
WATERMARK = "3 days"
"""How much later than others a record may come; what comes later still isn't counted."""
STARTED = "started"
"""Said when both queries run."""
CLOSING = "closing"
"""Carrier of the record that ends the last hours: of those alone is told that are over."""
WEEKS_LATER_MS = 30 * 24 * 3_600_000

FLIGHT = "carrier STRING, flight INT, dest STRING, arr_delay DOUBLE"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.spark_stream.job", description=__doc__)
    parser.add_argument("root", help="of the cluster")
    parser.add_argument("checkpoints", type=Path, help="a folder; whoever goes on with the work is given the same")
    parser.add_argument("--each", type=int, default=1_000, help="flights in a micro-batch, about (%(default)s)")
    parser.add_argument("--last-ms", type=int, default=None, help="when the last flight left; no more will come")
    arguments = parser.parse_args()
    spark = session(
        "sparklog-streams",
        **{
            "spark.ui.enabled": False,
            "spark.ui.showConsoleProgress": False,
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.session.timeZone": "UTC",
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    queries = start_both(spark, arguments)
    print(STARTED, flush=True)
    for query in queries:
        query.awaitTermination()
    if arguments.last_ms is not None:
        close(arguments.root, after_ms=arguments.last_ms)
        for query in start_both(spark, arguments):
            query.awaitTermination()
    spark.stop()


def start_both(spark: SparkSession, arguments: argparse.Namespace) -> list[StreamingQuery]:
    return [
        start(alerts(flights(spark, arguments.root, arguments.each, group="alerts")), arguments, "alerts"),
        start(counts(flights(spark, arguments.root, arguments.each, group="counts")), arguments, "counts"),
    ]


def close(root: str, *, after_ms: int) -> None:
    """Send a record of a time long after, which ends every hour before it."""
    value = json.dumps({"carrier": CLOSING, "flight": 0, "dest": "", "arr_delay": None}).encode()
    with Producer(root) as producer:
        producer.send(FLIGHTS, value=value, timestamp_ms=after_ms + WEEKS_LATER_MS).get(timeout=60)


def flights(spark: SparkSession, root: str, each: int, *, group: str) -> DataFrame:
    """The topic as a stream; ``flight`` is the value, parsed."""
    return (
        spark.readStream.format("sparklog")
        .option("subscribe", FLIGHTS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", each)
        .option("groupId", group)  # so that `sparklog groups describe` shows how far it is
        .load(root)
        .selectExpr("*", f"from_json(CAST(value AS STRING), '{FLIGHT}') AS flight")
    )


def alerts(flights: DataFrame) -> DataFrame:
    """One for each flight that was late, and another one where it was very late: in two topics, or in none."""
    return flights.where(f"flight.arr_delay >= {LATE_MIN}").selectExpr(
        f"explode(IF(flight.arr_delay >= {VERY_LATE_MIN}, array('{ALERTS}', '{WORSE}'), array('{ALERTS}'))) AS topic",
        "key",
        "to_json(struct(partition, offset, flight.carrier, flight.flight, flight.dest, flight.arr_delay)) AS value",
    )


def counts(flights: DataFrame) -> DataFrame:
    """How many flights of each carrier left in each hour; told once, when the hour is over."""
    from pyspark.sql.functions import window  # here, as the rest of this module can do without Spark

    return (
        flights.withWatermark("timestamp", WATERMARK)
        .groupBy("flight.carrier", window("timestamp", "1 hour"))
        .count()
        .selectExpr(
            f"'{COUNTS}' AS topic",
            "carrier AS key",
            "to_json(struct(carrier, window.start AS hour, count)) AS value",
        )
    )


def start(records: DataFrame, arguments: argparse.Namespace, name: str) -> StreamingQuery:
    return (
        records.writeStream.format("sparklog")
        .option("path", arguments.root)
        .option("checkpointLocation", str(arguments.checkpoints / name))
        .trigger(availableNow=True)
        .queryName(name)
        .start()
    )


if __name__ == "__main__":
    main()
