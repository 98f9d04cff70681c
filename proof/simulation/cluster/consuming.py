"""Processes that read: alone, as members of a group, or to send what they made of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from proof.simulation.cluster.life import Life
from proof.simulation.cluster.producing import End, begin_epoch, send_one, transaction
from sparklog.consumer import Consumer
from sparklog.errors import SparklogError
from sparklog.model import ConsumerRecord, OffsetAndMetadata, TopicPartition
from sparklog.testing.history import Isolation, RecordingConsumer, RecordingProducer, Source

if TYPE_CHECKING:
    from proof.simulation.cluster.play import Play

__all__ = ["LOOP_GROUP", "consume", "follow", "inputs_of", "loop"]

LOOP_GROUP = "loop"
"""Of the loops that consume, transform and produce."""

Polled: TypeAlias = Mapping[TopicPartition, "list[ConsumerRecord]"]


def inputs_of(play: Play) -> list[str]:
    """The topic that loops read."""
    return ["b"] if "b" in play.topic_names else ["a"]


def _consumer(life: Life, *, group: str | None = None, **settings: Any) -> RecordingConsumer:
    draw = life.draw
    isolation = draw.choice(list(Isolation)) if group is None else Isolation.READ_COMMITTED
    given: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "isolation_level": isolation.value,
        "group_id": group,
        "enable_auto_commit": False,
        "default_api_timeout_ms": draw.choice([5_000, 30_000]),
        "retry_backoff_ms": 100,
        **settings,
    }
    if group is not None:
        given |= {
            "session_timeout_ms": life.play.session_timeout_ms,
            "heartbeat_interval_ms": life.play.session_timeout_ms // 3,
            "max_poll_interval_ms": draw.choice([30_000, 300_000]),
            "partition_assignment_strategy": life.play.strategy,
        }
    consumer = life.keep(Consumer(cluster=life.cluster, **given))
    recorder = life.recorder.consumer(
        life.client_name("consumer"),
        group=group,
        isolation=isolation,
        from_start=given["auto_offset_reset"] == "earliest",
    )
    return RecordingConsumer(consumer, recorder)


def _poll(life: Life, consumer: RecordingConsumer) -> Polled:
    try:
        found = consumer.poll(life.draw.choice([0, 100, 1_000, 4_000]), life.draw.choice([None, 1, 3]))
    except SparklogError as error:
        life.check("poll", error)
        return {}
    life.world.counts["polled"] += sum(len(records) for records in found.values())
    return found


def follow(life: Life) -> None:
    """Read partitions without a group."""
    draw = life.draw
    consumer = _consumer(life)
    names = [plan.name for plan in life.play.shape.topics if not plan.is_recreated]
    wanted = [
        TopicPartition(name, partition)
        for name in draw.sample(names, draw.randint(1, len(names)))
        for partition in range(life.play.topic(name).partitions)
    ]
    consumer.assign(wanted)
    while life.goes_on():
        found = _poll(life, consumer)
        if found and draw.random() < 0.1:
            partition, records = draw.choice(sorted(found.items()))
            consumer.seek(partition, records[0].offset)
        life.gap()
    consumer.close(5_000)


def consume(life: Life) -> None:
    """Read as a member of a group, and commit."""
    draw = life.draw
    is_auto = bool(life.settings["auto"])
    consumer = _consumer(
        life,
        group="auto" if is_auto else "manual",
        enable_auto_commit=is_auto,
        auto_commit_interval_ms=1_000,
        group_instance_id=life.job.name if draw.random() < 0.2 else None,
    )
    consumer.subscribe([plan.name for plan in life.play.shape.topics if not plan.is_recreated])
    while life.goes_on():
        for _ in range(draw.choice([1, 3, 5])):
            _poll(life, consumer)
        if not is_auto and draw.random() < 0.7:
            life.attempt("commit offsets", consumer.commit)
        life.gap()
    life.attempt("close", lambda: consumer.close(draw.choice([0, 10_000])))


def loop(life: Life) -> None:
    """Consume, transform, produce: each input has one output, committed with the input's offset."""
    own_id = life.settings["id"] == "own"
    transactional_id = f"loop-{life.job.name}" if own_id else str(life.settings["id"])
    consumer = _consumer(life, group=LOOP_GROUP)
    consumer.subscribe(inputs_of(life.play))
    waits_left = 1_000
    while life.goes_on(counts=False):
        producer = begin_epoch(life, transactional_id)
        if producer is None:
            return
        while life.goes_on(counts=False):
            found = _poll(life, consumer)
            if not found:
                waits_left -= 1
                life.goes_on(counts=waits_left % 8 == 0)
                life.gap()
                continue
            life.goes_on()

            ended = transaction(life, producer, partial(_transform, life, consumer, producer, found))
            if ended is not End.COMMITTED and not _go_back(life, consumer):
                return
            if ended is End.OVER:
                break
        life.attempt("close", partial(producer.close, 20.0))
        life.gap()
    life.attempt("close", partial(consumer.close, 10_000))


def _transform(life: Life, consumer: RecordingConsumer, producer: RecordingProducer, found: Polled) -> None:
    draw = life.draw
    offsets = {}
    for partition, records in found.items():
        for record in records:
            source = Source(LOOP_GROUP, partition, record.offset)
            send_one(life, producer, source=source, topic=life.play.output)
        offsets[partition] = OffsetAndMetadata(records[-1].offset + 1)
    if draw.random() < 0.1:
        life.rest(draw.choice([2_000.0, 70_000.0]))
    producer.send_offsets_to_transaction(offsets, consumer.consumer.group_metadata())


def _go_back(life: Life, consumer: RecordingConsumer) -> bool:
    """To what is committed; False: that can't be told, and the life ends."""
    try:
        consumer.seek_to_committed()
    except SparklogError as error:
        life.check("committed", error)
        return False
    return True
