"""The decision of an append: may it be made, and which offsets do its files get (rules L4, decide again; L7, producer
state; L8, one log)?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log.announced.plan import GroupPlan, Listed, OwnFlush, plan_group
from sparklog.log.head import TopicHead
from sparklog.log.producer_state import ProducerEntry, is_duplicate_commit, producer_txn

__all__ = ["plan_append"]


def plan_append(
    head: TopicHead,
    known: ProducerEntry | None,
    own: Sequence[OwnFlush],
    *,
    topic: str,
    topic_id: str,
    producer_id: int,
    entry: ProducerEntry,
    now_ms: int,
    others: Sequence[Sequence[Listed]] = (),
    must_settle: bool = False,
    value_stats: Callable[[str], Mapping[str, Mapping[str, Any]]] = lambda path: {},
) -> GroupPlan | None:
    """Decide an append; its files get their offsets by :func:`~sparklog.log.announced.plan.plan_group`.

    Args:
        known: what the topic has of this producer.
        own: ordinary uploads of this append and the writer's announced flushes that aren't settled, in the order of
            uploading.
        topic_id: of the topic that the records were meant for.
        entry: the producer's epoch and the counter of this append.
        others: announced flushes of others; they come behind.
        must_settle: is an announced one of ``own`` waited for?
        value_stats: what is known of the values of a file of others, by its path.
    Returns:
        None where the log already holds this counter, and no announced flush is waited for.
    Raises:
        UnknownTopicOrPartitionError: the topic was deleted (and perhaps created again), or has no such partition.
        InvalidProducerEpochError, OutOfOrderSequenceError: see
            :func:`~sparklog.log.producer_state.is_duplicate_commit`.
    """
    if head.topic_id != topic_id or head.deleted:
        raise UnknownTopicOrPartitionError(f"topic {topic!r} with id {topic_id} was deleted")
    announced = [flush for flush in own if flush.announcer is not None]
    is_new = len(announced) < len(own) and not is_duplicate_commit(
        known, topic=topic, producer_id=producer_id, producer_epoch=entry.producer_epoch, counter=entry.counter
    )
    if not is_new and not must_settle:
        return None
    counter = producer_txn(producer_id, entry, now_ms=now_ms) if is_new else None
    return plan_group(
        head,
        own if is_new else announced,
        others,
        counter=counter,
        topic=topic,
        now_ms=now_ms,
        value_stats=value_stats,
    )
