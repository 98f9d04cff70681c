"""The decision of an append: may it be made, and which offsets do its files get (rules L4, decide again; L7, producer
state; L8, one log)?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log.commit import Commit
from sparklog.log.data.data_files import UploadedFile
from sparklog.log.head import TopicHead
from sparklog.log.producer_state import ProducerEntry, check_counter, producer_txn

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
    """Assign offsets: each file starts at its partition's log end offset, several of one partition follow one another.

    Args:
        known: what the topic has of this producer.
        topic_id: of the topic that the records were meant for.
        entry: the producer's epoch and the counter of this append.
    Returns:
        The commit and the files' base offsets; None where the log already holds this counter.
    Raises:
        UnknownTopicOrPartitionError: the topic was deleted (and perhaps created again), or has no such partition.
        InvalidProducerEpochError, OutOfOrderSequenceError: see :func:`check_counter`.
    """
    if head.topic_id != topic_id or head.deleted:
        raise UnknownTopicOrPartitionError(f"topic {topic!r} with id {topic_id} was deleted")
    verdict = check_counter(
        known, topic=topic, producer_id=producer_id, producer_epoch=entry.producer_epoch, counter=entry.counter
    )
    if verdict.duplicate:
        return None
    ends = list(head.log_end_offsets)
    base_offsets: list[int] = []
    for file in files:
        if not 0 <= file.partition < len(ends):
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has no partition {file.partition}; it has 0 to {len(ends) - 1}"
            )
        base_offsets.append(ends[file.partition])
        ends[file.partition] += file.record_count
    adds = [file.to_add(base_offset) for file, base_offset in zip(files, base_offsets, strict=True)]
    after = replace(head, log_end_offsets=tuple(ends), live_file_count=head.live_file_count + len(files))
    plan = Commit(
        actions=[*adds, producer_txn(producer_id, entry, now_ms=now_ms)],
        head=after,
        operation="WRITE",
        blind_append=True,
    )
    return plan, tuple(base_offsets)
