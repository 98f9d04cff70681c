"""The decision of an append: may it be made, and which offsets do its files get (rules L4, decide again; L7, producer
state; L8, one log)?"""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log.commit import Commit
from sparklog.log.data.data_files import UploadedFile
from sparklog.log.head import TopicHead
from sparklog.log.offset_assignment import assign_offsets
from sparklog.log.producer_state import ProducerEntry, is_duplicate_commit, producer_txn

__all__ = ["plan_append"]


def plan_append(
    head: TopicHead,
    known: ProducerEntry | None,
    files: Sequence[UploadedFile],
    *,
    topic: str,
    topic_id: str,
    producer_id: int,
    entry: ProducerEntry,
    now_ms: int,
) -> tuple[Commit, tuple[int, ...]] | None:
    """Decide an append; its files get their offsets by :func:`~sparklog.log.offset_assignment.assign_offsets`.

    Args:
        known: what the topic has of this producer.
        topic_id: of the topic that the records were meant for.
        entry: the producer's epoch and the counter of this append.
    Returns:
        The commit and the files' base offsets; None where the log already holds this counter.
    Raises:
        UnknownTopicOrPartitionError: the topic was deleted (and perhaps created again), or has no such partition.
        InvalidProducerEpochError, OutOfOrderSequenceError: see
            :func:`~sparklog.log.producer_state.is_duplicate_commit`.
    """
    if head.topic_id != topic_id or head.deleted:
        raise UnknownTopicOrPartitionError(f"topic {topic!r} with id {topic_id} was deleted")
    if is_duplicate_commit(
        known, topic=topic, producer_id=producer_id, producer_epoch=entry.producer_epoch, counter=entry.counter
    ):
        return None

    def no_partition(file: UploadedFile) -> UnknownTopicOrPartitionError:
        return UnknownTopicOrPartitionError(
            f"topic {topic!r} has no partition {file.partition}; it has 0 to {head.partition_count - 1}"
        )

    assigned = assign_offsets(head, files, no_partition=no_partition)
    plan = Commit(
        actions=[*assigned.adds, producer_txn(producer_id, entry, now_ms=now_ms)],
        head=assigned.head,
        operation="WRITE",
        blind_append=True,
    )
    return plan, assigned.base_offsets
