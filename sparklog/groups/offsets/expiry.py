"""Expiry of committed offsets: which ones are too old to be kept (pure)."""

from __future__ import annotations

from sparklog.groups.offsets.rows import Rows

__all__ = ["DEFAULT_RETENTION_MS", "expired"]

DEFAULT_RETENTION_MS = 604_800_000
"""Seven days. Source: Kafka ``offsets.retention.minutes``."""


def expired(
    rows: Rows,
    *,
    now_ms: int,
    retention_ms: int = DEFAULT_RETENTION_MS,
    empty_since_ms: int | None,
    subscribed_topics: frozenset[str] | None,
    has_generations: bool,
) -> Rows:
    """The rows whose time is over; :class:`~sparklog.groups.offsets.changes.ExpireOffsets` removes them.

    - A group that never had members: counted from the commit.
    - An empty group: counted from when it became empty, or from a later commit.
    - A group with members: topics to which no member subscribes any more, counted from the commit.
    - A group between two assignments: nothing.

    A row that was taken and never committed counts from the take. One that a transaction may still change stays.

    Args:
        empty_since_ms: wall time at which the group became empty; None while it has members.
        subscribed_topics: of all members; None where they aren't known or the group isn't stable.
        has_generations: False for a group whose consumers all assign partitions themselves.
    Source: Kafka ``ClassicGroup.offsetExpirationCondition``, ``OffsetExpirationConditionImpl.isOffsetExpired``,
        ``OffsetMetadataManager.cleanupExpiredOffsets``. There, what is committed into a group that has long been empty
        is gone with the next sweep; here it is kept for as long as any commit, as in Kafka's newer
        ``ConsumerGroup.offsetExpirationCondition``.
    """
    kept_topics: frozenset[str] = frozenset()
    not_before_ms = 0
    if has_generations:
        if empty_since_ms is not None:
            not_before_ms = empty_since_ms
        elif subscribed_topics is not None:
            kept_topics = subscribed_topics
        else:
            return {}
    return {
        partition: row
        for partition, row in rows.items()
        if row.pending is None
        and partition.topic not in kept_topics
        and now_ms - max(row.commit_timestamp_ms, not_before_ms) >= retention_ms
    }
