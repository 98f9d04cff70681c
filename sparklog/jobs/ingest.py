"""Store files in a topic, each record once: ``python -m sparklog.jobs.ingest --help``. docs/ingest.md tells more.

Exit codes: 0 done; 1 failed; 2 wrong arguments; 75 failed, and the same call may succeed later.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import sparklog.spark as ss
from sparklog.compaction.report_format import error_as_plain
from sparklog.errors import SparklogError
from sparklog.spark.session.spark_job import DONE, FAILED, TRY_AGAIN, add_storage_options, parsed, print_lines, say

FORMATS = ("json", "parquet", "csv", "delta", "orc", "avro")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; returns its exit code."""
    given = parse(arguments)
    try:
        spark = ss.session(app_name=f"sparklog ingest {given.topic}", s3=given.cluster.startswith("s3"))
        if given.checkpoint is None:
            report(given, store(given, read(spark.read, given)))
        else:
            store_stream(spark, given)
    except SparklogError as error:
        if given.json:
            print_lines(json.dumps(error_as_plain(error)))
        say(f"ingest: {error}")
        return TRY_AGAIN if error.retriable else FAILED
    return DONE


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; exits with 2 where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="ingest.py",
        description="Store files in a topic, each record once, however often they come: by Delta's MERGE.",
        epilog="The input has producer_id, producer_epoch and sequence, key or value or both, and perhaps headers, "
        "timestamp and partition. Exit codes: 0 done, 1 failed, 2 wrong arguments, 75 try again.",
    )
    parser.add_argument("--cluster", required=True, metavar="URI", help="the cluster's root")
    parser.add_argument("--topic", required=True)
    parser.add_argument(
        "--input", required=True, metavar="PATH", help="files or a folder, as Spark's reader takes them"
    )
    parser.add_argument("--format", choices=FORMATS, default="json", help="of the files (default: %(default)s)")
    parser.add_argument(
        "--schema", metavar="DDL", help="of the files, e.g. 'producer_id BIGINT, …'; else it is inferred"
    )
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of Spark's reader")
    parser.add_argument("--name", default="ingest", help="of the ingest, told in its commits (default: %(default)s)")
    parser.add_argument(
        "--dedup-window-ms",
        type=int,
        default=ss.DEDUP_WINDOW_MS,
        metavar="MS",
        help="how long ago, at most, a record may have been stored that is to be recognised (default: %(default)s)",
    )
    parser.add_argument("--max-attempts", type=int, default=10, help="when others are faster (default: %(default)s)")
    add_storage_options(parser)
    parser.add_argument(
        "--checkpoint", metavar="PATH", help="store only files that weren't there at the last run: where that is kept"
    )
    parser.add_argument("--json", action="store_true", help="print results as JSON, one a line; an error, too")
    given = parsed(parser, arguments)
    for option in given.option:
        if "=" not in option:
            parser.error(f"--option {option}: expected NAME=VALUE")
    return given


def read(reader: Any, given: argparse.Namespace) -> Any:
    """The input, by ``spark.read`` or ``spark.readStream``."""
    reader = reader.format(given.format).options(**dict(option.split("=", 1) for option in given.option))
    if given.schema is not None:
        reader = reader.schema(given.schema)
    elif given.format == "csv":
        reader = reader.option("header", "true")
    return reader.load(given.input)


def store(given: argparse.Namespace, frame: Any) -> ss.IngestResult:
    """Store one batch."""
    return ss.merge_ingest(
        frame,
        given.cluster,
        given.topic,
        name=given.name,
        dedup_window_ms=given.dedup_window_ms,
        max_attempts=given.max_attempts,
        storage_options=given.storage_options,
    )


def store_stream(spark: Any, given: argparse.Namespace) -> None:
    """Store what came since the last run with this checkpoint, and end."""
    if given.schema is None and given.format != "delta":  # a stream of files must be told what is in them
        given.schema = read(spark.read, given).schema
    failed: list[SparklogError] = []

    def store_one(frame: Any, _: int) -> None:
        try:
            report(given, store(given, frame))
        except SparklogError as error:
            failed.append(error)
            raise

    writer = read(spark.readStream, given).writeStream.foreachBatch(store_one)
    query = writer.trigger(availableNow=True).option("checkpointLocation", given.checkpoint).start()
    try:
        query.awaitTermination()
    except Exception:
        if failed:  # Spark tells of it in words alone
            raise failed[-1] from None
        raise


def report(given: argparse.Namespace, result: ss.IngestResult) -> None:
    """Print what was done."""
    if given.json:
        names = ("rows", "inserted", "duplicates", "attempts", "merge_version", "delta_version")
        print_lines(json.dumps({name: getattr(result, name) for name in names}))
        return
    print_lines(
        f"{given.topic}: {result.inserted} of {result.rows} rows stored, {result.duplicates} were there already; "
        f"delta version {result.delta_version}"
    )


if __name__ == "__main__":
    sys.exit(main())
