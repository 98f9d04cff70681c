"""Groups and transactions as tables: the views ``consumer_offsets``, ``consumer_lag`` and ``transactions``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import pyarrow as pa

from sparklog.admin import Admin
from sparklog.errors import CorruptLogError, UnsupportedVersionError
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.pending import stable_rows
from sparklog.log.cluster import Cluster
from sparklog.sql.view_schemas import VIEW_SCHEMAS
from sparklog.txn.deciding import deciding_for

__all__ = ["read_view"]

_LOGGER = logging.getLogger("sparklog.sql")
_DECISION_MS = 60_000.0


def read_view(cluster: Cluster, view: str) -> pa.RecordBatch:
    """The rows of a view, as of now."""
    rows = [*_ROWS[view](cluster)]
    schema = VIEW_SCHEMAS[view]
    columns = [[row[at] for row in rows] for at in range(len(schema))]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _consumer_offsets(cluster: Cluster) -> Iterator[tuple[object, ...]]:
    """The rows of each group's offset table, with the offsets that a committed transaction is to put there."""
    deciding = deciding_for(cluster, reason="", timeout_ms=_DECISION_MS)
    for group in Admin(cluster).list_groups():
        try:
            rows = OffsetTable(cluster, group).fetch()
            rows = stable_rows(rows, [*rows], deciding.look, now_ms=cluster.clock.now_ms(), waits=False)
        except (CorruptLogError, UnsupportedVersionError) as error:
            _LOGGER.warning("group %r isn't shown: %s", group, error)
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


def _consumer_lag(cluster: Cluster) -> Iterator[tuple[object, ...]]:
    for group in Admin(cluster).describe_groups():
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


def _transactions(cluster: Cluster) -> Iterator[tuple[object, ...]]:
    for listing in Admin(cluster).list_transactions():
        yield (listing.transactional_id, listing.producer_id, None if listing.state is None else listing.state.value)


_ROWS: Mapping[str, Callable[[Cluster], Iterator[tuple[object, ...]]]] = MappingProxyType(
    {"consumer_offsets": _consumer_offsets, "consumer_lag": _consumer_lag, "transactions": _transactions}
)
