"""SQL over topics: a view for each, by Delta's native reader, and views of groups and transactions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparklog.errors import InvalidArgumentError, UnknownTopicOrPartitionError
from sparklog.log.cluster import Cluster, topic_names
from sparklog.log.follow import TopicFollower
from sparklog.log.head import TopicHead, head_of_info
from sparklog.log.state import open_state
from sparklog.log.value_schemas import TopicSchemas
from sparklog.model import CREATE_TIME, LOG_APPEND_TIME
from sparklog.parallel import parallel_map
from sparklog.paths import topic_table
from sparklog.spark.runtime.spark_calls import in_thread_of
from sparklog.spark.runtime.versions import SOURCE_SINCE, need_pyspark
from sparklog.spark.session.session import cluster_ref_for, register_source, run_sql
from sparklog.spark.session.storage_access import configure_storage_access
from sparklog.spark.views import sqltext
from sparklog.sql.named_topics import names_of_all
from sparklog.sql.names import check_names, system_names
from sparklog.streaming.cluster_cache import open_shared_cluster
from sparklog.txn.consistent_read import DEFAULT_CUT_TIMEOUT_MS, load_consistent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["create_view", "read_consistent", "read_topic", "register"]

_TABLES_AT_ONCE = 8
"""Spark's driver loads so many tables at once; more would hinder one another."""


def register(
    spark: SparkSession,
    cluster: str | Path,
    topics: Iterable[str] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Make a temporary view of each topic, and ``consumer_offsets``, ``consumer_lag`` and ``transactions``.

    A topic's view has the topic's name and the columns of Spark's Kafka source, and is a scan by Delta itself: it shows
    what is in the topic by the time of a query. A filter on ``partition`` or ``timestamp`` skips files, and in a
    session that :func:`~sparklog.spark.session` started one on ``offset``, too. Where a log
    starts is as of this call: what :meth:`Admin.delete_records` cuts off within a file later on is seen until the next
    call, whole files that it removes are not.

    Spark 3.5 has the views of topics alone.

    Where a topic has the name of another view, that one is called ``sparklog_…``.

    Args:
        topics: those to make views of. None: all, of names that differ in case alone the oldest topic.
    Returns:
        The names of the views. One with ``.`` or ``-`` in it is quoted in SQL: ```my-topic```.
    Raises:
        InvalidArgumentError: no cluster is there, or two of ``topics`` differ in case alone.
        UnknownTopicOrPartitionError, UnsafeStoreError, and what reading a log raises.
    """
    cluster_ref = cluster_ref_for(spark, cluster, storage_options)
    shared_cluster = open_shared_cluster(cluster_ref)
    configure_storage_access(spark, cluster_ref)
    names = check_names(topics) if topics is not None else names_of_all(shared_cluster, topic_names(shared_cluster))
    heads = dict(zip(names, parallel_map(lambda topic: _living_head(shared_cluster, topic), names), strict=True))

    def frame_of(topic: str) -> DataFrame:
        table = spark.read.format("delta").load(cluster_ref.delta_path(topic_table(topic)))
        return _records(table, topic, heads[topic])

    frames = dict(zip(names, _in_threads(spark, frame_of, names), strict=True))
    for view, name in _system_names(spark, names).items():
        reader = spark.read.format("sparklog").option("path", cluster_ref.uri).option("view", view)
        if cluster_ref.storage_options:
            reader = reader.option("storageOptions", _as_json(cluster_ref.storage_options))
        frames[name] = reader.load()
    for name, frame in frames.items():
        frame.createOrReplaceTempView(sqltext.quoted(name))
    return [*frames]


def create_view(
    spark: SparkSession,
    cluster: str | Path,
    topic: str,
    *,
    name: str | None = None,
    replace: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """Make a permanent view of a topic in the session's catalog, with the columns of :func:`register`'s views.

    It is SQL over the topic's Delta table: any later session with Delta can query it, without sparklog. It shows what
    is in the topic by the time of a query, also records that :meth:`Admin.delete_records` has cut off, as long as a
    file holds them together with others that are left: a view can't know where the log starts. ``topic`` and
    ``timestampType`` are as of this call.

    Args:
        name: in SQL, its parts separated by dots (``lake.orders``); a part is quoted here, and may have been before.
            The topic's name for None, in the session's current schema.
        replace: whether a view of that name is replaced; a table never is.
        storage_options: for this call. A session that queries a view on S3 has S3A configured by itself.
    Returns:
        The name, quoted as SQL needs it.
    Raises:
        InvalidArgumentError: no cluster is there, or ``name`` can't be read.
        UnknownTopicOrPartitionError: there is no such topic.
        InvalidConfigurationError: the session's catalog doesn't know Delta's tables by their paths.
        UnsafeStoreError, what reading a log raises, and what Spark does, as where the view is there already.
    """
    view = sqltext.quoted(topic) if name is None else sqltext.quoted_name(name)
    cluster_ref = cluster_ref_for(spark, cluster, storage_options)
    configure_storage_access(spark, cluster_ref)
    head = _living_head(open_shared_cluster(cluster_ref), topic)
    table = sqltext.path_table(cluster_ref.delta_path(topic_table(topic)))
    columns = sqltext.record_columns(topic, _timestamp_type(head), _fields(head))
    run_sql(spark, sqltext.create_view(view, table, columns, sqltext.readable(()), replace=replace))
    return view


def read_topic(
    spark: SparkSession,
    cluster: str | Path,
    topic: str,
    *,
    starting: int | Mapping[int, int] | datetime | None = None,
    ending: int | Mapping[int, int] | datetime | None = None,
    version: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The records of a topic as of one Delta version, with the columns of a topic's view; by Delta's native reader.

    Args:
        starting: the first offset, of all partitions or of each (those not named are read whole); or a moment: records
            that aren't older. Files before it aren't read.
        ending: exclusive, in the same way.
        version: of the table; the newest for None. Where the log started then holds for what is shown.
    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
        InvalidArgumentError: no such version, a partition that isn't there, or a time without a zone.
        UnsafeStoreError, and what reading a log raises.
    """
    cluster_ref = cluster_ref_for(spark, cluster, storage_options)
    configure_storage_access(spark, cluster_ref)
    path = cluster_ref.delta_path(topic_table(topic))
    shared_cluster = open_shared_cluster(cluster_ref)
    follower: TopicFollower | None = None
    if version is not None:
        head = _head_at(shared_cluster, topic, version)
    elif starting is None or isinstance(starting, datetime):
        head = _living_head(shared_cluster, topic)
    else:
        follower = TopicFollower(shared_cluster.topic_log(topic), topic)
        head = follower.head
    # Pinned: in a later version a file that holds the first offset may begin before the one that does now.
    table = spark.read.format("delta").option("versionAsOf", head.delta_version).load(path)
    for condition in _range(head, follower, starting, ending):
        table = table.where(condition)
    return _records(table, topic, head)


def read_consistent(
    spark: SparkSession,
    cluster: str | Path,
    topics: Iterable[str],
    *,
    timeout_ms: float = DEFAULT_CUT_TIMEOUT_MS,
    storage_options: Mapping[str, Any] | None = None,
) -> dict[str, DataFrame]:
    """The records of several topics as of one consistent cut: every transaction is in all of its topics among these, or
    in none. Each frame is pinned to its version, with the columns of a topic's view; by Delta's native reader.

    Args:
        timeout_ms: how long to look for such versions, while transactions are about to become visible.
    Returns:
        By topic, in the order of ``topics``. For SQL: ``frames["orders"].createOrReplaceTempView("orders")``.
    Raises:
        KafkaTimeoutError: no consistent cut was found in that time; names the transaction that isn't whole.
        UnknownTopicOrPartitionError: a topic that isn't there.
        UnsafeStoreError, and what reading a log raises.
    """
    cluster_ref = cluster_ref_for(spark, cluster, storage_options)
    configure_storage_access(spark, cluster_ref)
    states = load_consistent(open_shared_cluster(cluster_ref), topics, timeout_ms=timeout_ms)

    def frame_of(topic: str) -> DataFrame:
        head = states[topic].head
        path = cluster_ref.delta_path(topic_table(topic))
        table = spark.read.format("delta").option("versionAsOf", head.delta_version).load(path)
        return _records(table, topic, head)

    return dict(zip(states, _in_threads(spark, frame_of, [*states]), strict=True))


def _system_names(spark: SparkSession, topics: Sequence[str]) -> dict[str, str]:
    """Views of groups and transactions with their names; none where PySpark can't read them, as 3.5."""
    if need_pyspark() < SOURCE_SINCE:
        return {}
    register_source(spark)
    return dict(system_names(topics))


def _in_threads(spark: SparkSession, load: Callable[[str], DataFrame], topics: Sequence[str]) -> list[DataFrame]:
    """A frame of each topic. To load one is a job of Spark's, small and mostly spent waiting: several run at once."""
    return parallel_map(in_thread_of(spark, load), topics, at_once=_TABLES_AT_ONCE)


def _records(table: DataFrame, topic: str, head: TopicHead) -> DataFrame:
    readable = table.where(sqltext.readable(head.log_start_offsets))
    return readable.selectExpr(*sqltext.record_columns(topic, _timestamp_type(head), _fields(head)))


def _fields(head: TopicHead) -> list[str]:
    """The fields that a typed topic's values ever had; none of an untyped one."""
    return [] if head.values is None else [field.name for field in head.values]


def _timestamp_type(head: TopicHead) -> int:
    return LOG_APPEND_TIME if head.config["message.timestamp.type"] == "LogAppendTime" else CREATE_TIME


def _range(
    head: TopicHead,
    follower: TopicFollower | None,
    starting: int | Mapping[int, int] | datetime | None,
    ending: int | Mapping[int, int] | datetime | None,
) -> list[str]:
    conditions = []
    if isinstance(starting, datetime):
        conditions.append(sqltext.at_or_after(starting))
        starting = None
    if isinstance(ending, datetime):
        conditions.append(sqltext.before(ending))
        ending = None
    if starting is None and ending is None:
        return conditions
    count = head.partition_count
    first = {} if starting is None else sqltext.bounds(starting, count, "starting")
    last = {} if ending is None else sqltext.bounds(ending, count, "ending")
    bases = {p: _first_base_offset(follower, p, offset) for p, offset in first.items() if follower is not None}
    files = [sqltext.files_between(p, bases.get(p), last.get(p)) for p in range(count)]
    rows = [sqltext.rows_between(p, first.get(p), last.get(p)) for p in range(count)]
    return [*conditions, " OR ".join(files), " OR ".join(rows)]


def _first_base_offset(follower: TopicFollower, partition: int, starting: int) -> int:
    """The lowest base offset of the files that hold a record at ``starting`` or beyond; the log end where none does."""
    start, end = follower.head.log_start_offsets[partition], follower.head.log_end_offsets[partition]
    found = follower.segments(partition, min(max(starting, start), end))
    return min((segment.base_offset or 0 for segment in found), default=end)


def _living_head(cluster: Cluster, topic: str) -> TopicHead:
    head = open_state(cluster.topic_log(topic)).head
    if head.deleted:
        raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r} was deleted")
    return head


def _head_at(cluster: Cluster, topic: str, version: int) -> TopicHead:
    """The topic as of an older version: what the newest entry of ours up to it says.

    Raises:
        InvalidArgumentError: there is no such version (any more).
    """
    log = cluster.topic_log(topic)
    newest = open_state(log)
    if version == newest.head.delta_version:
        return _living_head(cluster, topic)
    for number in range(version, -1, -1):
        entry = log.read_entry(number) if number <= newest.head.delta_version else None
        if entry is None:
            break
        if entry.info is not None:
            head = head_of_info(log.table, number, entry.info)
            if head.deleted:
                raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r} was deleted by version {number}")
            return replace(head, delta_version=version, schemas=_schemas_of(head, newest.head))
    raise InvalidArgumentError(
        f"topic {topic!r} can't be read as of version {version}: its log has no entry of this version (any more); the "
        f"newest is {newest.head.delta_version}"
    )


def _schemas_of(head: TopicHead, newest: TopicHead) -> TopicSchemas | None:
    """The schemas that a topic had by then, of those that it has."""
    if newest.schemas is None or newest.topic_id != head.topic_id or not head.value_schema_id:
        return None
    return newest.schemas.until(head.value_schema_id)


def _as_json(options: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(options))
    except TypeError as error:
        raise InvalidArgumentError(f"storage_options must be JSON to reach Spark's workers: {error}") from None
