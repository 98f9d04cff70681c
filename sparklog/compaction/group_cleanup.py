"""Forgetting what groups left: offsets past their time, groups without members and offsets, old generations, files."""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.errors import NonEmptyGroupError, SparklogError, as_sparklog_error
from sparklog.groups.admin.description import GroupState, describe
from sparklog.groups.admin.emptiness import empty_generation, empty_since_ms, members_now, members_seen
from sparklog.groups.admin.inspection import group_names
from sparklog.groups.membership.generations import Generation, clean_generations, generation_log
from sparklog.groups.membership.member_state import MemberState
from sparklog.groups.offsets.changes import GENERATION_FENCE, ExpireOffsets
from sparklog.groups.offsets.expiry import DEFAULT_RETENTION_MS, expired
from sparklog.groups.offsets.offset_maintenance import clean_offset_log, sweep
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.rows import Rows
from sparklog.log import Cluster
from sparklog.storage.each_alone import each_alone

__all__ = ["GroupReport", "expire_group", "expire_groups"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """The report on one group: what was deleted of it, or would be."""

    group: str
    expired_offsets: int
    """Partitions whose committed offsets were forgotten."""
    deleted: bool
    """It had no members and no offsets any more."""
    generations_deleted: int
    files_deleted: int
    """The number of files of its offset table: replaced an hour ago, or left by a writer that died."""
    entries_deleted: int
    """The number of entries of that table's log."""
    dry_run: bool
    error: SparklogError | None = None
    """Why it couldn't be looked at, or not to the end."""


def expire_groups(
    cluster: Cluster, *, now_ms: int, retention_ms: int = DEFAULT_RETENTION_MS, dry_run: bool = False, timeout_ms: float
) -> list[GroupReport]:
    """:func:`expire_group` for each of a cluster's groups, 32 at a time; one that fails hinders no other. Raises
    ``StoreError`` where they can't be listed, or the store can't be read."""

    def forget(group: str) -> GroupReport:
        return expire_group(
            cluster, group, now_ms=now_ms, retention_ms=retention_ms, dry_run=dry_run, timeout_ms=timeout_ms
        )

    groups = group_names(cluster)
    return [
        _report(group, dry_run=dry_run, error=as_sparklog_error(report)) if isinstance(report, Exception) else report
        for group, report in zip(groups, each_alone(cluster.store, forget, groups), strict=True)
    ]


def expire_group(
    cluster: Cluster,
    group: str,
    *,
    now_ms: int,
    retention_ms: int = DEFAULT_RETENTION_MS,
    dry_run: bool = False,
    timeout_ms: float,
) -> GroupReport:
    """Forget what is past its time in one group.

    A group whose members all died is declared empty by a generation: from then on its time counts.

    Args:
        now_ms: the store's time.
        retention_ms: of committed offsets. Source: Kafka ``offsets.retention.minutes``.
        timeout_ms: for the commit.
    Raises:
        KafkaTimeoutError, CorruptLogError, StoreError, …: do it again.
    """
    table = OffsetTable(cluster, group)
    rows = table.fetch()  # before the members are looked at: a member that takes a partition later changes its row
    generations = generation_log(cluster, group)
    newest, _ = generations.open_newest()
    members = (members_seen if dry_run else members_now)(cluster, group)
    since_ms = empty_since_ms(generations, newest) if not members else None
    gone = _expired(group, newest, members, rows, since_ms=since_ms, now_ms=now_ms, retention_ms=retention_ms)
    if dry_run:
        return _report(group, expired_offsets=len(gone), dry_run=True)
    if newest is not None and newest.plan.members and not members:
        refusal = NonEmptyGroupError(f"group {group!r} has members again")
        try:
            empty_generation(cluster, group, refusal)
        except NonEmptyGroupError:
            return _report(group)
    if gone:
        deadline = cluster.clock.deadline_in(timeout_ms)
        changed = table.change([ExpireOffsets(seen=gone)], deadline=deadline)
        for error in changed.errors:
            if error is not None:
                raise error
        rows = changed.rows
    is_group = newest is not None and not newest.plan.deleted
    is_idle = is_group and since_ms is not None and now_ms - since_ms >= retention_ms
    is_over = is_idle and not rows.keys() - {GENERATION_FENCE}
    is_deleted = is_over and _delete(cluster, group)
    cleaned = clean_offset_log(table.log)
    return _report(
        group,
        expired_offsets=len(gone),
        deleted=is_deleted,
        generations_deleted=clean_generations(generations),
        files_deleted=sweep(table.log),
        entries_deleted=cleaned.deleted_count if cleaned is not None else 0,
    )


def _expired(
    group: str,
    newest: Generation | None,
    members: dict[str, MemberState],
    rows: Rows,
    *,
    since_ms: int | None,
    now_ms: int,
    retention_ms: int,
) -> Rows:
    is_stable = describe(group, newest, members, rows, {}).state is GroupState.STABLE
    topics = frozenset(topic for state in members.values() for topic in state.topics)
    found = expired(
        rows,
        now_ms=now_ms,
        retention_ms=retention_ms,
        empty_since_ms=since_ms,
        subscribed_topics=topics if is_stable else None,
        has_generations=bool(members) or (newest is not None and not newest.plan.deleted),
    )
    return {partition: row for partition, row in found.items() if partition != GENERATION_FENCE}


def _delete(cluster: Cluster, group: str) -> bool:
    """Say that there is no such group any more. Offsets that are committed meanwhile stay, and make it a group again.

    Source: Kafka ``GroupMetadataManager.cleanupExpiredGroupOffsets``: an empty group without offsets is dead.
    """
    try:
        return empty_generation(cluster, group, NonEmptyGroupError(f"group {group!r} is used again"), deleted=True) > 0
    except NonEmptyGroupError:
        return False


def _report(
    group: str,
    *,
    expired_offsets: int = 0,
    deleted: bool = False,
    generations_deleted: int = 0,
    files_deleted: int = 0,
    entries_deleted: int = 0,
    dry_run: bool = False,
    error: SparklogError | None = None,
) -> GroupReport:
    return GroupReport(
        group=group,
        expired_offsets=expired_offsets,
        deleted=deleted,
        generations_deleted=generations_deleted,
        files_deleted=files_deleted,
        entries_deleted=entries_deleted,
        dry_run=dry_run,
        error=error,
    )
