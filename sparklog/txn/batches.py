"""Micro-batches of streaming queries: which ones were committed, and where to (rule T7, micro-batches). Pure.

A query that is started again runs its last micro-batch again: with the same number, if it stopped before it had noted
that the batch is done. The entry that commits a batch says so itself, and every later entry of the log repeats it.

A checkpoint that was copied gives two queries one id and one count of batches: what one of them has committed, the
other would take for its own. So a batch also says where its rows go, and a query that writes elsewhere is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparklog.errors import IllegalStateError
from sparklog.txn.entries import BatchTarget, QueryBatch

__all__ = ["MOST_QUERIES", "is_committed", "with_batch"]

MOST_QUERIES = 16
"""So many queries an id remembers, one after the other: a new checkpoint is a new query."""
_REMEDY = (
    "If the query's checkpoint was copied, give the copy an option transactionalId of its own; if the query is to "
    "write elsewhere from now on, give it a new transactionalId, or a new checkpoint to write all of its records again"
)
_APPLICATION_REMEDY = "Give each of an application's writes the option topic, or a txnAppId of its own"
_SHOWN = 5


def is_committed(batches: Sequence[QueryBatch], batch: QueryBatch, *, skip_older: bool = False) -> bool:
    """Is ``batch`` the newest that was committed of its query, and were its rows written where they go now?

    Args:
        batches: as the newest entry of the id has them.
        skip_older: ``batch`` is a write that an application has numbered, ``txnAppId`` and ``txnVersion``: one before
            the newest counts as committed. Source: Delta's idempotent writes.
    Raises:
        IllegalStateError: a later micro-batch was committed. A query that goes on from its own checkpoint runs none but
            the newest again, so its records may be others than those that were committed under its number. Or the query
            has written elsewhere: then the records of this batch aren't there.
    """
    same_query = [known for known in batches if known.query_id == batch.query_id]
    if not same_query:
        return False
    newest = max(same_query, key=lambda known: known.batch_id)
    name = _name(batch, is_application=skip_older)
    remedy = _APPLICATION_REMEDY if skip_older else _REMEDY
    _check_declared_topic(newest, batch, name, remedy)
    if newest.batch_id < batch.batch_id:
        return False
    if newest.batch_id == batch.batch_id:
        _check_topics(newest, batch, name, remedy)
        return True
    if skip_older:
        return True
    raise IllegalStateError(
        f"{name}: batch {newest.batch_id} is committed already. Another driver of this query runs or ran, or its "
        "checkpoint was taken back to an earlier state; give the query a new checkpoint to write these records once "
        "more"
    )


def with_batch(batches: Sequence[QueryBatch], batch: QueryBatch) -> tuple[QueryBatch, ...]:
    """``batches`` once ``batch`` is committed too: one of each query, the newest last, at most :data:`MOST_QUERIES`."""
    others = [known for known in batches if known.query_id != batch.query_id]
    return (*others, batch)[-MOST_QUERIES:]


def _check_declared_topic(newest: QueryBatch, batch: QueryBatch, name: str, remedy: str) -> None:
    """Raise unless both batches declare the same topic, or neither any; entries of an older sparklog have none."""
    before, now = newest.target, batch.target
    if before is not None and now is not None and before.topic != now.topic:
        raise IllegalStateError(
            f"{name} goes to {_declared(now)}, but its number {newest.batch_id} was committed to {_declared(before)}. "
            f"{remedy}"
        )


def _check_topics(newest: QueryBatch, batch: QueryBatch, name: str, remedy: str) -> None:
    """Raise if a batch that counts as committed has rows for topics that the committed one had none for."""
    before, now = newest.target, batch.target
    if before is None or now is None or before.topic is not None or now.topics <= before.topics:
        return
    raise IllegalStateError(
        f"{name} was committed with rows for topics {_shown(before.topics)}; now it has rows for "
        f"{_shown(now.topics - before.topics)}, which would be lost. {remedy}"
    )


def _name(batch: QueryBatch, *, is_application: bool) -> str:
    if is_application:
        return f"txnVersion {batch.batch_id} of txnAppId {batch.query_id!r}"
    return f"micro-batch {batch.batch_id} of query {batch.query_id}"


def _declared(target: BatchTarget) -> str:
    return "the topics that its rows name" if target.topic is None else f"topic {target.topic!r}"


def _shown(topics: Collection[str]) -> str:
    return ", ".join(sorted(topics)[:_SHOWN]) + (f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else "")
