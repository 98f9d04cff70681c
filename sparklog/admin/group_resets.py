"""The offsets to which a reset would set a group, by its committed offsets and the bounds of its topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sparklog.admin.many import by_topic, checked_partitions
from sparklog.admin.offsets import topic_bounds
from sparklog.errors import GroupIdNotFoundError
from sparklog.groups.admin.administration import has_members
from sparklog.groups.admin.description import GroupDescription
from sparklog.groups.admin.resets import OffsetReset, PartitionBounds, ResetTo, plan_reset
from sparklog.log.cluster import Cluster
from sparklog.model import TopicPartition
from sparklog.parallel import parallel_map

__all__ = ["plan_group_reset"]


def plan_group_reset(
    cluster: Cluster,
    group: GroupDescription,
    to: ResetTo | Mapping[TopicPartition, int],
    partitions: Iterable[TopicPartition] | None,
) -> list[OffsetReset]:
    """The offset that a reset would commit for each partition, sorted. Changes nothing.

    Args:
        partitions: by default those that ``to`` names, or all for which the group has committed something.
    Raises:
        GroupIdNotFoundError: no partitions are given, and there is no such group.
        UnknownMemberIdError: the group has members.
        UnknownTopicOrPartitionError, InvalidArgumentError.
    """
    if group.error is not None:
        raise group.error
    if group.members:
        raise has_members(group.group_id)
    committed = {row.partition: row.committed.offset for row in group.partitions if row.committed is not None}
    if partitions is None and isinstance(to, Mapping):
        partitions = to
    if partitions is None and not group.exists:
        raise GroupIdNotFoundError(f"unknown group: {group.group_id!r}")
    wanted = sorted(set(committed if partitions is None else checked_partitions(partitions)))
    return plan_reset(to, _bounds(cluster, wanted, committed, to))


def _bounds(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    to: ResetTo | Mapping[TopicPartition, int],
) -> dict[TopicPartition, PartitionBounds]:
    since_ms = to.number if isinstance(to, ResetTo) and to.kind == "time" else None
    asked = by_topic(dict.fromkeys(partitions, 0))
    looks = parallel_map(lambda name: topic_bounds(cluster, name, asked[name], since_ms=since_ms), asked)
    bounds = dict(zip(asked, looks, strict=True))
    return {at: replace(bounds[at.topic][at.partition], committed=committed.get(at)) for at in partitions}
