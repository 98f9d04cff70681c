"""Groups and transactions as tables: the views ``consumer_offsets``, ``consumer_lag`` and ``transactions``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import pyarrow as pa

from sparklog.admin import Admin
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.pending import Deciding, stable_rows
from sparklog.groups.offsets.rows import Rows
from sparklog.log.cluster import Cluster
from sparklog.sql.view_schemas import VIEW_SCHEMAS
from sparklog.storage.each_alone import one_alone
from sparklog.txn.deciding_for_groups import deciding_for

__all__ = ["read_view"]

_DECISION_MS = 60_000.0


def read_view(cluster: Cluster, view: str, unread: dict[str, Exception]) -> pa.RecordBatch:
    """The rows of a view, as of now.

    Args:
        unread: gets why groups and transactional ids aren't among them, or not whole, each under its name.
    Raises:
        StoreError: the store can't be read.
    """
    rows = [*_ROWS[view](cluster, unread)]
    schema = VIEW_SCHEMAS[view]
    columns = [[row[at] for row in rows] for at in range(len(schema))]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _consumer_offsets(cluster: Cluster, unread: dict[str, Exception]) -> Iterator[tuple[object, ...]]:
    """The rows of each group's offset table, with the offsets that a committed transaction is to put there."""
    deciding = deciding_for(cluster, reason="", timeout_ms=_DECISION_MS)
    for group in Admin(cluster).list_groups():
        rows = one_alone(cluster.store, lambda group=group: _stable(cluster, group, deciding))  # type: ignore[misc]
        if isinstance(rows, Exception):
            unread[f"group {group}"] = rows
            continue
        for (topic, partition), row in sorted(rows.items()):
            if row.committed is None or not topic:  # taken but not committed; the floor row, which is of no partition
                continue
            yield (
                group,
                topic,
                partition,
                row.committed.offset,
                row.committed.metadata,
                row.committed.leader_epoch,
                row.topic_id,
                row.stamp.generation,
                row.stamp.member or None,
                row.commit_timestamp_ms * 1_000,
            )


def _stable(cluster: Cluster, group: str, deciding: Deciding) -> Rows:
    rows = OffsetTable(cluster, group).fetch()
    return stable_rows(group, rows, [*rows], deciding.look, now_ms=cluster.clock.now_ms(), waits=False)


def _consumer_lag(cluster: Cluster, unread: dict[str, Exception]) -> Iterator[tuple[object, ...]]:
    for group in Admin(cluster).describe_groups():
        if group.error is not None:
            unread[f"group {group.group_id}"] = group.error
        for row in group.partitions:
            yield (
                group.group_id,
                row.partition.topic,
                row.partition.partition,
                None if row.committed is None else row.committed.offset,
                row.log_start_offset,
                row.log_end_offset,
                row.lag,
                row.member_id,
            )


def _transactions(cluster: Cluster, unread: dict[str, Exception]) -> Iterator[tuple[object, ...]]:
    for listing in Admin(cluster).list_transactions():
        if listing.error is not None:
            unread[f"transactional id {listing.transactional_id}"] = listing.error
        yield (listing.transactional_id, listing.producer_id, None if listing.state is None else listing.state.value)


_ROWS: Mapping[str, Callable[[Cluster, dict[str, Exception]], Iterator[tuple[object, ...]]]] = MappingProxyType(
    {"consumer_offsets": _consumer_offsets, "consumer_lag": _consumer_lag, "transactions": _transactions}
)
