"""The admin client's calls about what other Delta writers did to a topic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from sparklog.log.cluster import Cluster
from sparklog.log.sequencing.sequencing import SequencingResult, sequence_topic
from sparklog.paths import check_topic_name

if TYPE_CHECKING:
    from sparklog.log.restore import RestoreResult

__all__ = ["ForeignWriteCalls"]


class ForeignWriteCalls(ABC):
    """The calls of :class:`~sparklog.admin.Admin` about other Delta writers' commits."""

    @abstractmethod
    def _cluster(self, *, create: bool = False) -> Cluster: ...

    @abstractmethod
    def _bound_ms(self, timeout_ms: float | None) -> float: ...

    def sequence(self, topic: str, *, timeout_ms: float | None = None) -> SequencingResult:
        """Assign offsets to rows that other Delta writers added without them; readers don't see the rows before.

        This call isn't necessary: consumers and producers of the topic that detect such files do the same shortly
        afterwards. It reports the result, and errors: a file that can't be sequenced stays as it is, and doesn't
        prevent others from being sequenced.

        Args:
            timeout_ms: bound for the commit, after the files are read and copied.
        Returns:
            How many files and records got offsets; path and reason of each file that was refused.
        Raises:
            UnknownTopicOrPartitionError, NotATopicError, KafkaTimeoutError, StoreError.
        """
        check_topic_name(topic)
        cluster, bound_ms = self._cluster(), self._bound_ms(timeout_ms)
        return sequence_topic(cluster.topic_log(topic), timeout_ms=bound_ms, sync=True)

    def restore_topic(
        self, topic: str, version: int, *, dry_run: bool = False, timeout_ms: float | None = None
    ) -> RestoreResult:
        """Bring back the records that other engines' SQL removed from a topic since a version of its table, under their
        offsets. Use it in place of Delta's ``RESTORE``, which also removes what was appended since.

        Appends, partitions, schemas, log starts and ends stay as they are, and so do records that have other values
        since. No record returns that retention, ``delete_records`` or compaction by key removed.

        Args:
            version: a version of the Delta table whose entry, and all since, the topic's log still has.
            dry_run: only say what would return.
        Returns:
            How many records of each partition returned, and which can't as their files don't exist any more.
        Raises:
            InvalidArgumentError: the log doesn't reach back to that version, or it is of an earlier topic of the name.
            UnknownTopicOrPartitionError, NotATopicError, PolicyViolationError, KafkaTimeoutError, StoreError.
        """
        from sparklog.log.restore import restore_topic  # loads Arrow

        check_topic_name(topic)
        log, bound_ms = self._cluster().topic_log(topic), self._bound_ms(timeout_ms)
        return restore_topic(log, topic, version, dry_run=dry_run, timeout_ms=bound_ms)
