"""Entries that a cluster should have in a catalog: its topics, and the lag of its groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sparklog.catalogs.entries import Entry, Kind, entry_name, table_name
from sparklog.delta.log import DeltaLog
from sparklog.delta.snapshot import Newest, open_newest
from sparklog.groups.admin.inspection import group_names
from sparklog.log.cluster import Cluster, topic_names
from sparklog.log.data.schema import data_schema
from sparklog.log.data.value_columns import view_columns
from sparklog.log.head import TopicHead
from sparklog.log.state import load_state
from sparklog.model import CREATE_TIME, LOG_APPEND_TIME
from sparklog.parallel import parallel_map
from sparklog.paths import group_offsets_table, topic_table

__all__ = ["LAG_VIEW", "MOST_GROUPS", "Dialect", "wanted_entries"]

LAG_VIEW = "sparklog_lag"
MOST_GROUPS = 500
"""Groups whose lag one view shows; a cluster with more has no such view."""
_PARTITIONED_BY = ("partition", "base_offset")
_PARTITIONS = (pa.field("partition", pa.int32()), pa.field("base_offset", pa.int64()))
_OFFSET = "base_offset + offset_delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a catalog's engine writes the queries of views."""

    quote: str
    """Around names."""
    schema: str
    """The schema's name as a query has it, quoted."""
    timestamp_type: str
    """The name of the column that Spark's Kafka source calls ``timestampType``."""
    escapes: bool
    """Is a backslash in a text an escape, as in Spark's?"""

    def literal(self, text: str) -> str:
        """A text, whatever it holds."""
        quote = "\\'" if self.escapes else "''"
        return "'" + (text.replace("\\", "\\\\") if self.escapes else text).replace("'", quote) + "'"

    def quoted(self, name: str) -> str:
        """A name in quotes, whatever it holds."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def table(self, name: str) -> str:
        """A table or view of the schema."""
        return f"{self.schema}.{self.quoted(name)}"


def wanted_entries(
    cluster: Cluster, root: str, dialect: Dialect | None, topics: Iterable[str] | None = None
) -> list[Entry]:
    """The tables and views that should be in a catalog.

    Loads the log of each topic, and with views looks at each group.

    Args:
        root: the cluster's URI as the catalog's engines know it.
        dialect: of the views; None where the catalog has none: each topic then is a table under its own name.
        topics: None: all.
    """
    names = sorted(topic_names(cluster) if topics is None else topics)
    heads = parallel_map(lambda topic: load_state(cluster.topic_log(topic)).head, names)
    living = [(name, head) for name, head in zip(names, heads, strict=True) if not head.deleted]
    entries = [entry for name, head in living for entry in _topic(name, head, root, dialect)]
    if dialect is not None and topics is None:
        entries += _lag(cluster, living, root, dialect)
    return entries


def _topic(name: str, head: TopicHead, root: str, dialect: Dialect | None) -> list[Entry]:
    table = Entry(
        name=entry_name(name) if dialect is None else table_name(name),
        kind=Kind.TABLE,
        source=f"topic {name}" if dialect is None else f"the table of topic {name}",
        location=f"{root.rstrip('/')}/{topic_table(name)}",
        columns=[*data_schema(head.values), *_PARTITIONS],
        partitioned_by=_PARTITIONED_BY,
    )
    if dialect is None:
        return [table]
    text = _records(name, head, dialect)
    view = Entry(name=entry_name(name), kind=Kind.VIEW, source=f"topic {name}", text=text, tables=[table.name])
    return [table, view]


def _records(topic: str, head: TopicHead, dialect: Dialect) -> str:
    quoted = dialect.quoted
    names = ["key", "value", "topic", "partition", "offset", "timestamp", dialect.timestamp_type, "headers"]
    kind = LOG_APPEND_TIME if head.config["message.timestamp.type"] == "LogAppendTime" else CREATE_TIME
    fields = [] if head.values is None else [field.name for field in head.values]
    columns = [
        quoted("key"),
        quoted("value"),
        f"'{topic}' AS {quoted('topic')}",  # Kafka's names hold nothing that would have to be escaped
        quoted("partition"),
        f"{_OFFSET} AS {quoted('offset')}",
        quoted("timestamp"),
        f"{kind} AS {quoted(dialect.timestamp_type)}",
        quoted("headers"),
        *(f"data.{quoted(field)} AS {quoted(name)}" for field, name in view_columns(fields, names).items()),
    ]
    condition = f"{quoted('partition')} IS NOT NULL AND base_offset IS NOT NULL"
    return f"SELECT {', '.join(columns)} FROM {dialect.table(table_name(topic))} WHERE {condition}"  # noqa: S608


def _lag(cluster: Cluster, topics: Sequence[tuple[str, TopicHead]], root: str, dialect: Dialect) -> list[Entry]:
    groups = group_names(cluster)
    if not topics or len(groups) > MOST_GROUPS:
        return []

    def newest(group: str) -> Newest | None:
        return open_newest(DeltaLog(store=cluster.store, table=group_offsets_table(group), clock=cluster.clock))

    tables = {
        f"sparklog_group_{entry_name(group)}": group
        for group, entry in zip(groups, parallel_map(newest, groups), strict=True)
        if entry is not None
    }
    if not tables:
        return []
    entries = [
        Entry(
            name=name,
            kind=Kind.TABLE,
            source=f"the offsets of group {group}",
            location=f"{root.rstrip('/')}/{group_offsets_table(group)}",
        )
        for name, group in tables.items()
    ]
    text = _lag_query(tables, topics, dialect)
    return [*entries, Entry(name=LAG_VIEW, kind=Kind.VIEW, source="lag", text=text, tables=[*tables])]


def _lag_query(tables: dict[str, str], topics: Sequence[tuple[str, TopicHead]], dialect: Dialect) -> str:
    quoted = dialect.quoted
    partition, offset = quoted("partition"), quoted("offset")
    ends = " UNION ALL ".join(
        f"SELECT '{topic}' AS topic, '{head.topic_id}' AS topic_id, {partition}, max({_OFFSET}) + 1 AS log_end "  # noqa: S608
        f"FROM {dialect.table(table_name(topic))} WHERE base_offset IS NOT NULL GROUP BY {partition}"
        for topic, head in topics
    )
    committed = " UNION ALL ".join(
        f"SELECT {dialect.literal(group)} AS group_id, topic, topic_id, {partition}, {offset} AS committed "  # noqa: S608
        f"FROM {dialect.table(name)} WHERE {offset} IS NOT NULL"
        for name, group in tables.items()
    )
    return (
        f"SELECT c.group_id, c.topic, c.{partition}, c.committed AS committed_offset, "  # noqa: S608
        f"greatest(coalesce(e.log_end, c.committed), c.committed) - c.committed AS lag "
        f"FROM ({committed}) c LEFT JOIN ({ends}) e "
        f"ON c.topic = e.topic AND c.topic_id = e.topic_id AND c.{partition} = e.{partition}"
    )
