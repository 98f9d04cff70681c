"""Commits of a consumer that assigns partitions itself: allowed while the group has no members (rule G5,
administrators)."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.errors import CommitFailedError, SparklogError, UnknownMemberIdError
from sparklog.groups.admin.emptiness import empty_generation
from sparklog.groups.membership.topic_catalog import TopicCatalog
from sparklog.groups.offsets.changes import CommitUnowned
from sparklog.log import Cluster
from sparklog.model import OffsetAndMetadata, TopicPartition

__all__ = ["EmptyGroup", "UnownedCommit"]

_LOOKS = 3


class EmptyGroup:
    """The empty generation under which one consumer commits. Owned by one thread."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.cluster = cluster
        self.group = group
        self._generation: int | None = None

    def generation(self, *, beyond: int | None = None) -> int:
        """The number of the group's newest generation, which is empty; looked for once, and created where need be.

        Args:
            beyond: a generation after which members were in the group: another is looked for.
        Raises:
            CommitFailedError: the group has members. Its cause is the ``UnknownMemberIdError`` that Kafka's broker
                would answer. Source: Kafka ``ConsumerCoordinator.OffsetCommitResponseHandler``.
            StoreUnavailableError, StoreError, …: see :func:`~sparklog.groups.admin.emptiness.empty_generation`.
        """
        if self._generation is None or self._generation == beyond:
            self._generation = None
            cause = UnknownMemberIdError(f"group {self.group!r} has members")
            try:
                self._generation = empty_generation(self.cluster, self.group, cause)
            except UnknownMemberIdError as error:
                raise self.refusal() from error
        return self._generation

    def refusal(self) -> CommitFailedError:
        """The error that says why offsets can't be committed beside members."""
        return CommitFailedError(
            f"group {self.group!r} has members: offsets of partitions that were assigned by hand can't be committed "
            "beside them; use another group_id"
        )


class UnownedCommit:
    """One commit, as an :class:`~sparklog.groups.offsets.commit_thread.OffsetCommitThread` carries it out.

    Args:
        topic_ids: of the partitions whose topics the consumer has seen; the others are looked at.
    """

    def __init__(
        self,
        group: EmptyGroup,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | None],
        topic_ids: Mapping[TopicPartition, str],
    ) -> None:
        self._group = group
        self._offsets = dict(offsets)
        self._topic_ids = topic_ids
        self._generation: int | None = None
        self._looks_left = _LOOKS

    def make(self) -> CommitUnowned:
        """The change. Raises as :meth:`EmptyGroup.generation`, and ``UnknownTopicOrPartitionError``."""
        self._generation = self._group.generation(beyond=self._generation)
        unseen = self._offsets.keys() - self._topic_ids.keys()
        if unseen:
            self._topic_ids = {**TopicCatalog(self._group.cluster).ids_of(unseen), **self._topic_ids}
        return CommitUnowned(offsets=self._offsets, topic_ids=self._topic_ids, generation=self._generation)

    def again(self, refusal: SparklogError) -> CommitUnowned | None:
        """The commit to try after a refusal: members were in the group since its empty generation, and may have left.

        Raises as :meth:`make`.
        """
        if not isinstance(refusal, UnknownMemberIdError):
            return None
        self._looks_left -= 1
        if self._looks_left < 0:
            raise self._group.refusal() from refusal
        return self.make()
