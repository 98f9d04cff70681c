"""Which micro-batches of streaming queries were committed (rule T7). Pure.

A query that is started again runs its last micro-batch again: with the same number, if it stopped before it had noted
that the batch is done. The entry that commits a batch says so itself, and every later entry of the log repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.errors import IllegalStateError
from sparklog.txn.entries import QueryBatch

__all__ = ["MOST_QUERIES", "is_committed", "with_batch"]

MOST_QUERIES = 16
"""So many queries an id remembers, one after the other: a new checkpoint is a new query."""


def is_committed(batches: Sequence[QueryBatch], batch: QueryBatch) -> bool:
    """Is ``batch`` the newest that was committed of its query?

    Args:
        batches: as the newest entry of the id tells them.
    Raises:
        IllegalStateError: a later one was. A query that goes on from its own checkpoint runs none but the newest again,
            so its records may be others than those that were committed under its number.
    """
    newest = max((known.batch_id for known in batches if known.query_id == batch.query_id), default=-1)
    if newest > batch.batch_id:
        raise IllegalStateError(
            f"micro-batch {batch.batch_id} of query {batch.query_id}: batch {newest} is committed already. Another "
            "driver of this query runs or ran, or its checkpoint was taken back to an earlier state; give the query a "
            "new checkpoint to write these records once more"
        )
    return newest == batch.batch_id


def with_batch(batches: Sequence[QueryBatch], batch: QueryBatch) -> tuple[QueryBatch, ...]:
    """``batches`` once ``batch`` is committed too: one of each query, the newest last, at most :data:`MOST_QUERIES`."""
    others = [known for known in batches if known.query_id != batch.query_id]
    return (*others, batch)[-MOST_QUERIES:]
