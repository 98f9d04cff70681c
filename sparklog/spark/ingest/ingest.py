"""``merge_ingest``: at-least-once input into a topic, each row once, by Delta's MERGE, beside producers that go on.

An attempt pins a version of the topic, drops the rows that have an offset there, and merges the others into a stage
with those that have none; what the MERGE wrote is published by one commit with offsets, unless another ingest came
first. Then the topic is sequenced. docs/ingest.md says why no interleaving stores a row twice; docs/decisions/0007.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparklog.delta.actions import AddFile
from sparklog.errors import (
    InvalidArgumentError,
    InvalidRecordError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.cluster import Cluster
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.state import TopicState, load_state
from sparklog.paths import topic_table
from sparklog.spark.ingest.ingest_batch import REFUSED, conform, row_size
from sparklog.spark.ingest.ingest_merge import MERGED_COLUMNS, Merge
from sparklog.spark.ingest.ingest_rules import (
    ProducerRange,
    identity_columns,
    in_window,
    inserted_count,
    may_be_of,
    merge_condition,
    next_txn_version,
    window_starts,
)
from sparklog.spark.ingest.ingest_staging import FILE_COLUMN, Published, Verdict, file_uri, make_stage, publish
from sparklog.spark.ingest.ingest_values import TYPED_COLUMNS
from sparklog.spark.session.job_groups import described_jobs
from sparklog.spark.session.session import cluster_ref_for
from sparklog.spark.session.session_settings import check_delta
from sparklog.spark.session.storage_access import configure_storage_access
from sparklog.storage.retrying import Backoff
from sparklog.streaming.cluster_cache import open_shared_cluster

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "DEDUP_WINDOW_MS",
    "Attempt",
    "Batch",
    "Ingest",
    "IngestResult",
    "merge_ingest",
]

_LOGGER = logging.getLogger("sparklog.spark")

DEDUP_WINDOW_MS = 7 * 86_400_000
"""The window of deduplication: as long as a topic knows a producer (rule L7, producer state)."""
_MAX_ATTEMPTS = 10
_TIMEOUT_MS = 120_000
"""The time-out of a commit. Source: Kafka's ``delivery.timeout.ms``."""
_MAX_RANGES = 100
"""More producers than these are looked for as one range of ids and sequences."""
_PLACE = "place"
"""A column: the order of a producer's rows."""
_QUARTER = 2**29
"""A quarter of the numbers that a sequence has."""
_FILE_BYTES = 64 * 2**20
"""The size of the rows of a file, by :func:`_size_bytes`: a file is no larger than this and one record, compressed or
not."""
_ROW_BYTES = 40
"""The size of a row's numbers and lengths, in Parquet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """The result of an ingest."""

    rows: int
    """Rows in the input."""
    inserted: int
    """Rows of the input that weren't in the topic."""
    attempts: int
    """MERGEs that were tried; 0 where the input was empty."""
    merge_version: int | None
    """The Delta version of the commit with the new rows; None where there was none."""
    delta_version: int
    """From this version on every row of the input has its offset; but for those that were there in a file of another
    writer which can't be sequenced: a warning names it."""

    @property
    def duplicates(self) -> int:
        """Rows of the input that were in the topic already, or twice in the input."""
        return self.rows - self.inserted


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The input as rows of the topic, computed once: every attempt sees the same."""

    rows: DataFrame
    """:data:`~sparklog.spark.ingest.ingest_batch.ROW_COLUMNS`, and where a row stands among its producer's."""
    row_count: int
    identity: tuple[str, ...]
    """The columns by which two rows are the same."""
    ranges: tuple[ProducerRange, ...]
    """Each row is in one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The input of one MERGE, as decided on one version of the topic."""

    state: TopicState
    """The state of that version; whole."""
    decided_at_ms: float
    """By the clock's ticks."""
    txn_version: int
    """The number of this ingest, if no other comes first."""
    rows: DataFrame
    """The rows that have no offset there, numbered by partition, and in files of bounded size."""


def merge_ingest(
    df: DataFrame,
    cluster: str | Path,
    topic: str,
    *,
    name: str = "merge_ingest",
    dedup_window_ms: int = DEDUP_WINDOW_MS,
    max_attempts: int = _MAX_ATTEMPTS,
    storage_options: Mapping[str, Any] | None = None,
) -> IngestResult:
    """Store the rows that the topic doesn't have yet, each once, and give them offsets. Safe to repeat, to run twice at
    once, and to kill at any point: what was begun is finished or found by the next run.

    Rows are the same record if they agree in ``producer_id``, ``producer_epoch``, ``sequence``, and ``partition`` or,
    where the input has no such column, ``key``.

    Args:
        df: ``producer_id``, ``producer_epoch``, ``sequence``, ``key`` or ``value`` or both, and perhaps ``headers``,
            ``timestamp`` and ``partition``. Of a typed topic the fields of its values in place of ``value`` (one of
            the names above as ``value_<name>``), or ``value`` as a struct, or as bytes of its ``value.format``.
            Evaluated once.
        name: of the ingest, recorded in its commits.
        dedup_window_ms: how long ago, at most, a row may have been written that is to be recognised.
        max_attempts: how often it is decided anew when other ingests came first.
    Raises:
        InvalidArgumentError: columns or types that can't be used, or no cluster there.
        InvalidRecordError: the topic doesn't take some of the rows; nothing was stored.
        UnknownTopicOrPartitionError: no such topic, or it was deleted meanwhile.
        KafkaTimeoutError: other ingests came first each time; retriable.
        UnsafeStoreError: commits of this session could overwrite others'.
        InvalidConfigurationError: the session has no Delta. And what Spark raises, and reading and writing a log.
    """
    if dedup_window_ms <= 0 or max_attempts <= 0:
        raise InvalidArgumentError(
            f"merge_ingest: got dedup_window_ms={dedup_window_ms} and max_attempts={max_attempts}, expected more than 0"
        )
    spark = df.sparkSession
    cluster_ref = cluster_ref_for(spark, cluster, storage_options)
    check_delta(lambda setting: spark.conf.get(setting, None))
    configure_storage_access(spark, cluster_ref)
    path = cluster_ref.delta_path(topic_table(topic))
    ingest = Ingest(spark, open_shared_cluster(cluster_ref), topic, path, name=name, dedup_window_ms=dedup_window_ms)
    with described_jobs(spark, f"sparklog: {name} into {topic}"):
        batch = ingest.take(df)
        return ingest.run(batch, max_attempts=max_attempts)


class Ingest:
    """One run, by its steps: take the input, decide, merge, finish. Killed after any of them, the next run goes on."""

    def __init__(
        self, spark: SparkSession, cluster: Cluster, topic: str, path: str, *, name: str, dedup_window_ms: int
    ) -> None:
        """``path``: where Spark finds the topic's table."""
        self._spark = spark
        self._log = cluster.topic_log(topic)
        self._topic = topic
        self._path = path
        self._name = name
        self._window_ms = dedup_window_ms
        self._clock = cluster.clock
        state = self._load(topic_id=None)
        self._topic_id = state.head.topic_id
        self._head = state.head
        self._merge = Merge(spark, compression=str(state.head.config["compression.type"]))

    def take(self, df: DataFrame) -> Batch:
        """Read the input, once, and check it. Raises ``InvalidArgumentError``, ``InvalidRecordError``."""
        from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own documentation

        # Computed once: another result would escape the bounds that are taken of this one. Where a part of it is
        # lost with an executor, Spark fails.
        rows = conform(df, self._head, now_ms=self._clock.now_ms()).localCheckpoint()
        by_producer = rows.groupBy("producer_id").agg(
            F.max("producer_id").alias("last_producer_id"),
            F.min("sequence").alias("first"),
            F.max("sequence").alias("last"),
            _wraps().alias("wraps"),
            F.count("*").alias("count"),
            F.count(REFUSED).alias("refused_count"),
            F.min(REFUSED).alias("reason"),
        )
        found = by_producer.limit(_MAX_RANGES + 1).collect()
        if len(found) > _MAX_RANGES:
            found = by_producer.agg(
                F.min("producer_id").alias("producer_id"),
                *(F.max(name).alias(name) for name in ("last_producer_id", "last", "wraps")),
                *(F.min(name).alias(name) for name in ("first", "reason")),
                *(F.sum(name).alias(name) for name in ("count", "refused_count")),
            ).collect()
        total, refused = (sum(row[name] for row in found) for name in ("count", "refused_count"))
        if refused:
            reason = next(row.reason for row in found if row.reason is not None)
            raise InvalidRecordError(
                f"merge_ingest into {self._topic!r}: {refused} of {total} rows are refused, one because {reason}"
            )
        return Batch(
            rows=rows.drop(REFUSED).withColumn(_PLACE, _place(wraps=any(row.wraps for row in found))),
            row_count=total,
            identity=identity_columns(partition_is_given="partition" in df.columns),
            ranges=tuple(
                ProducerRange(
                    first_producer_id=row.producer_id,
                    last_producer_id=row.last_producer_id,
                    first_sequence=row["first"],
                    last_sequence=row["last"],
                )
                for row in found
            ),
        )

    def run(self, batch: Batch, *, max_attempts: int) -> IngestResult:
        """Run all further steps. Raises as :func:`merge_ingest`."""
        backoff = Backoff(self._clock)
        attempts = 0
        files: list[AddFile] = []
        published: Published | None = None
        while batch.row_count and (published is None or published.verdict is not Verdict.COMMITTED):
            if attempts == max_attempts:
                raise KafkaTimeoutError(
                    f"merge_ingest {self._name!r} into {self._topic!r}: other ingests came first {attempts} times; its "
                    "rows aren't stored. Run it again"
                )
            if attempts:
                backoff.wait()
            attempts += 1
            attempt = self.decide(batch)
            files = self.merge(batch, attempt)
            if not files:  # all of them are there, with offsets or without
                break
            published = self.publish(attempt, files)
            _LOGGER.info("merge_ingest %r into %r: %s", self._name, self._topic, published.verdict.value)
        return IngestResult(
            rows=batch.row_count,
            inserted=inserted_count(files),
            attempts=attempts,
            merge_version=published.delta_version if files and published else None,
            delta_version=self.finish(),
        )

    def decide(self, batch: Batch) -> Attempt:
        """Pin the topic's newest version, drop the rows that have an offset there, and number the others."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        began = self._clock.ticks_ms()
        state = self._load(self._topic_id)
        present = self.present(batch, state)
        same = [F.col(name).eqNullSafe(F.col(f"present_{name}")) for name in batch.identity]
        fresh = batch.rows.dropDuplicates([*batch.identity]).join(present, reduce(and_, same), "left_anti")
        in_order = Window.partitionBy("partition").orderBy("producer_id", "producer_epoch", _PLACE)
        so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        size_bytes = _size_bytes({name: F.col(name) for name in fresh.columns})
        before = F.sum(size_bytes).over(so_far) - size_bytes
        numbered = fresh.withColumns(
            {
                "offset_delta": F.row_number().over(in_order).cast("bigint") - 1,
                FILE_COLUMN: F.floor(before / _FILE_BYTES).cast("int"),
            }
        )
        return Attempt(
            state=state,
            decided_at_ms=began,
            txn_version=next_txn_version(state.transactions),
            rows=numbered.select(*MERGED_COLUMNS, *(name for name in TYPED_COLUMNS if name in numbered.columns)),
        )

    def present(self, batch: Batch, state: TopicState) -> DataFrame:
        """The rows of a version that have an offset and may be some of the batch, by the columns of their identity as
        ``present_…``. Read are the files of the window, by the log's own values, that their statistics leave.
        """
        starts = window_starts(
            state.head, state.require_whole().index, now_ms=self._clock.now_ms(), window_ms=self._window_ms
        )
        table = self._spark.read.format("delta").option("versionAsOf", state.position.version).load(self._path)
        rows = table.where(in_window(starts)).where(may_be_of(batch.ranges))
        return rows.selectExpr(*(f"{name} AS present_{name}" for name in batch.identity))

    def merge(self, batch: Batch, attempt: Attempt) -> list[AddFile]:
        """Write the rows of an attempt that aren't in the topic without an offset, either. Raises what Spark does.

        Returns:
            Files that no log has yet.
        """
        stage = make_stage(attempt.state, file_uri(self._path))
        condition = merge_condition(batch.identity, batch.ranges)
        self._merge.insert_missing(f"{self._path}/{stage.folder}", attempt.rows, condition)
        files = stage.new_files()
        stage.forget()
        return files

    def publish(self, attempt: Attempt, files: Sequence[AddFile]) -> Published:
        """Publish the files: one commit assigns their offsets. Raises as
        :func:`~sparklog.spark.ingest.ingest_staging.publish`."""
        return publish(
            attempt.state,
            self._topic_id,
            files,
            name=self._name,
            txn_version=attempt.txn_version,
            written_ticks_ms=attempt.decided_at_ms,
            deadline=self._clock.deadline_in(_TIMEOUT_MS),
        )

    def finish(self) -> int:
        """Give offsets to rows that were there without, durably; returns the version from which on all have theirs."""
        return sequence_topic(self._log, sync=True).delta_version

    def _load(self, topic_id: str | None) -> TopicState:
        state = load_state(self._log)
        if state.head.deleted or topic_id not in (None, state.head.topic_id):
            raise self._vanished()
        return state

    def _vanished(self) -> UnknownTopicOrPartitionError:
        return UnknownTopicOrPartitionError(f"merge_ingest {self._name!r}: topic {self._topic!r} was deleted")


def _size_bytes(columns: Mapping[str, Column]) -> Column:
    """About how many bytes a row takes in a file that isn't compressed; headers by their contents."""
    from pyspark.sql import functions as F  # noqa: N812

    def bytes_of(column: Column) -> Column:
        return F.coalesce(F.octet_length(column), F.lit(0)).cast("bigint")

    of_headers = F.aggregate(
        "headers",
        F.lit(0).cast("bigint"),
        lambda total, header: total + bytes_of(header["key"]) + bytes_of(header["value"]),
    )
    return row_size(columns) + F.coalesce(of_headers, F.lit(0)) + F.lit(_ROW_BYTES)


def _wraps(over: Callable[[Column], Column] = lambda aggregate: aggregate) -> Column:
    """Whether a producer's sequence goes on from 2**31 - 1 to 0 within a batch: its rows are at both ends, and none is
    between.

    Args:
        over: makes each aggregate one of a window.
    """
    from pyspark.sql import functions as F  # noqa: N812

    sequence = F.col("sequence")
    between = F.count_if((sequence >= _QUARTER) & (sequence < 3 * _QUARTER))
    at_both_ends = (over(F.min(sequence)) < _QUARTER) & (over(F.max(sequence)) >= 3 * _QUARTER)
    return at_both_ends & (over(between) == 0)


def _place(*, wraps: bool) -> Column:
    """The place of a row among those of its producer and epoch: by sequence, what is behind a wrap at the end."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    sequence = F.col("sequence").cast("bigint")
    if not wraps:
        return sequence
    of_producer = Window.partitionBy("producer_id")
    is_behind = _wraps(lambda aggregate: aggregate.over(of_producer)) & (sequence < _QUARTER)
    return F.when(is_behind, sequence + 4 * _QUARTER).otherwise(sequence)
