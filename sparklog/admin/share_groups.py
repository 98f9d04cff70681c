"""The admin client's calls about share groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from sparklog.admin.many import check_group, checked_partitions, each, listed
from sparklog.errors import InvalidArgumentError
from sparklog.groups.admin import share_groups
from sparklog.groups.admin.share_groups import ShareGroupDescription
from sparklog.log.cluster import Cluster
from sparklog.model import TopicPartition
from sparklog.parallel import parallel_map
from sparklog.paths import check_topic_name

__all__ = ["ShareGroupCalls"]


class ShareGroupCalls(ABC):
    """The calls of :class:`~sparklog.admin.Admin` about share groups."""

    @abstractmethod
    def _cluster(self, *, create: bool = False) -> Cluster: ...

    @abstractmethod
    def _bound_ms(self, timeout_ms: float | None) -> float: ...

    def list_share_groups(self) -> list[str]:
        """The names of the share groups that have members, or offsets in some partition, sorted."""
        return share_groups.share_group_names(self._cluster())

    def describe_share_groups(self, groups: Iterable[str] | None = None) -> list[ShareGroupDescription]:
        """Describe share groups, all by default: their members, and how far they are in each partition.

        A name that no group has is no error: its state is ``Dead``, as in Kafka.

        Raises ``InvalidArgumentError``: a name that no group may have.
        """
        cluster = self._cluster()
        names = share_groups.share_group_names(cluster) if groups is None else [*map(check_group, listed(groups))]
        return parallel_map(lambda name: share_groups.describe_share_group(cluster, name), names)

    def list_share_group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """The start offset of a share group in each partition: everything below is done with."""
        described = share_groups.describe_share_group(self._cluster(), check_group(group))
        return {each.partition: each.start_offset for each in described.partitions}

    def alter_share_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> None:
        """Let a share group that has no members go on at these offsets. What was in flight is forgotten.

        Raises:
            NonEmptyGroupError: it has members.
            InvalidArgumentError: a negative offset, or one that is no number.
            UnknownTopicOrPartitionError, KafkaTimeoutError, CommitStateUnknownError.
        """
        for at in checked_partitions(offsets):
            if isinstance(offsets[at], bool) or not isinstance(offsets[at], int) or offsets[at] < 0:
                raise InvalidArgumentError(
                    f"offset of {at.topic}-{at.partition}: got {offsets[at]!r}, expected 0 or more"
                )
        cluster = self._cluster()
        deadline = cluster.clock.deadline_in(self._bound_ms(timeout_ms))
        share_groups.alter_share_offsets(cluster, check_group(group), offsets, deadline=deadline)

    def delete_share_group_offsets(self, group: str, topics: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Forget the offsets of a share group that has no members in topics: it begins there anew.

        Raises:
            GroupIdNotFoundError: it has no offsets in any of them.
            NonEmptyGroupError, KafkaTimeoutError, CommitStateUnknownError.
        """
        cluster = self._cluster()
        deadline = cluster.clock.deadline_in(self._bound_ms(timeout_ms))
        names = {check_topic_name(topic) for topic in listed(topics)}
        share_groups.delete_share_offsets(cluster, check_group(group), names, deadline=deadline)

    def delete_share_groups(self, groups: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Delete share groups that have no members.

        Raises:
            GroupIdNotFoundError: there is no such group.
            NonEmptyGroupError, KafkaTimeoutError, CommitStateUnknownError.
        """
        cluster = self._cluster()
        deadline = cluster.clock.deadline_in(self._bound_ms(timeout_ms))
        names = dict.fromkeys(check_group(group) for group in listed(groups))
        each(names, lambda group, _: share_groups.delete_share_group(cluster, group, deadline=deadline))
