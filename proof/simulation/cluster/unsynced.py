"""Transactions with ``acks=1`` beside a group's commits, which are fsynced: where the power fails, nothing is promised
of the former, and all of the latter, though both have one log of offsets.

Nobody is a member, and nobody reads: what tells one commit from another is its metadata.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from unittest import mock

from proof.simulation.cluster.life import Life
from proof.simulation.cluster.shape import JobPlan, Shape
from sparklog.consumer import Consumer
from sparklog.errors import InvalidTxnStateError, KafkaTimeoutError, SparklogError, StoreError
from sparklog.groups.offsets import offset_commit
from sparklog.groups.offsets.offset_state import OffsetState
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.log import Cluster
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.producer import Producer

if TYPE_CHECKING:
    from proof.simulation.cluster.play import Play

__all__ = ["LOST_COMMIT", "check_steady", "draw_unsynced", "offsets_before_are_not_flushed", "steady", "unsynced"]

GROUP = "unsynced"
LOST_COMMIT = "lost commit: "
_TOPIC = "a"
_LIKELY = 0.4
_TIMEOUT_MS = 30_000


def draw_unsynced(seed: int, shape: Shape) -> Shape:
    """Some of the worlds whose power fails, as they are beside such a group. Drawn apart: all others stay as they
    are."""
    draw = random.Random(f"unsynced {seed}")
    if draw.random() >= _LIKELY:
        return shape
    jobs: list[JobPlan] = []
    for role, most in (("steady", 2), ("unsynced", 2)):
        for number in range(draw.randint(1, most)):
            settings: dict[str, object] = {"partition": len(jobs)}
            jobs.append(JobPlan(name=f"{role}{number}", role=role, steps=draw.randint(5, 12), settings=settings))
    topics = (
        replace(plan, partitions=max(plan.partitions, len(jobs))) if plan.name == _TOPIC else plan
        for plan in shape.topics
    )
    return replace(shape, topics=tuple(topics), jobs=(*shape.jobs, *jobs))


def steady(life: Life) -> None:
    """Commit again and again, with fsync, as who has assigned the partition itself."""
    consumer = life.keep(
        Consumer(cluster=life.cluster, group_id=GROUP, enable_auto_commit=False, default_api_timeout_ms=_TIMEOUT_MS)
    )
    partition = _partition(life)
    consumer.assign([partition])
    asked, told = life.play.steady_commits.setdefault(partition, ([0], [0]))
    while life.goes_on():
        asked.append(asked[-1] + 1)
        number = asked[-1]
        if life.attempt("commit offsets", partial(consumer.commit, {partition: OffsetAndMetadata(0, f"{number}")})):
            told.append(number)
            life.world.counts["steady commits"] += 1
        life.gap()
    life.attempt("close", partial(consumer.close, 10_000))


def unsynced(life: Life) -> None:
    """Transactions with ``acks=1``, of the group's offsets alone: nobody knows what will be left."""
    while life.goes_on(counts=False):
        producer = life.keep(
            Producer(
                life.cluster,
                acks=1,
                transactional_id=f"unsynced-{life.job.name}",
                transaction_timeout_ms=life.play.transaction_timeout_ms,
                max_block_ms=_TIMEOUT_MS,
            )
        )
        if life.attempt("init_transactions", producer.init_transactions):
            while life.goes_on() and _transaction(life, producer):
                life.world.counts["unsynced transactions"] += 1
                life.gap()
        life.attempt("close", partial(producer.close, 20.0))
        life.gap()


def _transaction(life: Life, producer: Producer) -> bool:
    """False: begin anew with another producer."""
    offsets = {_partition(life): OffsetAndMetadata(0, life.value())}
    is_commit = life.draw.random() < 0.8
    try:
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(GROUP))
    except SparklogError as error:
        life.check("fill", error)
        is_commit = False
    for _ in range(4):
        try:
            if is_commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            return True
        except InvalidTxnStateError as error:
            life.check("end", error)
            return False
        except SparklogError as error:
            life.check("end", error)
            is_commit = is_commit and isinstance(error, (KafkaTimeoutError, StoreError))
    return False


def offsets_before_are_not_flushed() -> AbstractContextManager[object]:
    """Planted, rule L9: who commits a group's offsets fsyncs its own entry, and nothing of what others left before
    it."""

    def told_to_be_durable(log: object, state: OffsetState) -> OffsetState:
        return replace(state, unsynced_since=state.position.version + 1, unread=range(0))

    return mock.patch.object(offset_commit, "synced", told_to_be_durable)


def _partition(life: Life) -> TopicPartition:
    number = life.settings["partition"]
    assert isinstance(number, int)
    return TopicPartition(_TOPIC, number)


def check_steady(play: Play, cluster: Cluster) -> None:
    """What was told to be committed with fsync is there, or something newer that was asked for."""
    if not play.steady_commits:
        return
    rows = OffsetTable(cluster, GROUP).fetch()
    for partition, (asked, told) in play.steady_commits.items():
        row = rows.get(partition)
        found = int(row.committed.metadata) if row is not None and row.committed is not None else 0
        if not told[-1] <= found <= asked[-1]:
            play.violate(f"{LOST_COMMIT}{partition} is at {found}, of {asked[-1]} {told[-1]} was told to be committed")
