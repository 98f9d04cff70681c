"""Delayed records that their topic refuses when they are due: each goes to the dead letters, or stops its partition."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress

from sparklog.clock import Clock
from sparklog.errors import SparklogError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from sparklog.log import Cluster, create_topic
from sparklog.log.topic import alter_topic, describe_topic
from sparklog.logs import about
from sparklog.model import ConsumerRecord
from sparklog.processing.commits import send_output
from sparklog.processing.moves import Origin, bury
from sparklog.processing.retry_topics import retry_topic_settings
from sparklog.processing.schedule import Place
from sparklog.processing.subscriber import DLQ_PREFIX
from sparklog.producer import FutureRecordMetadata, Producer
from sparklog.producer.delayed_records import Waiting, delay_topic
from sparklog.producer.record_arguments import size_of_headers

__all__ = ["DelayedError", "Refusals"]

_LOGGER = logging.getLogger("sparklog.processing")
_STOP_MS = 60_000.0
"""A partition that stands still is tried again after so long."""


class DelayedError(SparklogError):
    """A delayed record can't be delivered, nor moved to the dead letters; names it. Its partition of the delay topic
    stands still until that is mended, or the record is cancelled. Or the topic is gone: then all wait."""


class Refusals:
    """The records that one mover couldn't deliver, and the partitions that stand still for them."""

    def __init__(self, topic: str, clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self._reasons: dict[bytes, SparklogError] = {}
        """By id: why a record was refused that is to be a dead letter."""
        self._stopped: dict[int, tuple[float, DelayedError]] = {}
        """By partition: until when, in ticks, and why."""
        self._letters: tuple[int, int] | None = None
        """Partitions and ``max.message.bytes`` of the topic of dead letters, as of this transaction."""

    def reason(self, name: bytes) -> SparklogError | None:
        """Why the record of an id was refused; None: it wasn't."""
        return self._reasons.get(name)

    def stopped(self) -> dict[int, DelayedError]:
        """The partitions that stand still now."""
        now = self._clock.ticks_ms()
        return {number: error for number, (until, error) in list(self._stopped.items()) if now < until}

    def without_stopped(self, refused: Mapping[bytes, SparklogError], due: Sequence[Place]) -> list[Place]:
        """Note what was refused: as it is, or as a letter, which stops its partition there. Returns what is left."""
        left: list[Place] = []
        stopped: set[int] = set()
        self._letters = None
        for place in due:
            error = refused.get(place.id)
            if error is not None and (reason := self._reasons.pop(place.id, None)) is not None:
                self._stop(place, reason, error)
                stopped.add(place.partition)
            elif place.partition not in stopped:
                left.append(place)
            if error is not None and place.partition not in stopped:
                self._reasons[place.id] = error
        return left

    def _stop(self, place: Place, reason: SparklogError, error: SparklogError) -> None:
        failed = DelayedError(
            f"{self._named(place, reason)}; nor can it be moved to {DLQ_PREFIX + self._topic!r}: {error}; nothing is "
            "skipped: mend it, or cancel the record"
        )
        failed.__cause__ = error
        self._stopped[place.partition] = (self._clock.ticks_ms() + _STOP_MS, failed)
        _LOGGER.error(
            "partition %d of %s stands still: %s",
            place.partition,
            delay_topic(self._topic),
            failed,
            extra=about(topic=self._topic),
        )

    def done(self, due: Sequence[Place]) -> int:
        """Note what was committed. Returns how many of it were letters."""
        self._letters = None
        return sum(self._reasons.pop(place.id, None) is not None for place in due)

    def send_letter(
        self, producer: Producer, cluster: Cluster, place: Place, record: Waiting, reason: SparklogError
    ) -> FutureRecordMetadata:
        """Send a record to the dead letters. Raises as ``Producer.send``, and as creating a topic."""
        partition = place.partition if record.partition is None else record.partition
        letter_of = ConsumerRecord(
            topic=self._topic,
            partition=partition,
            leader_epoch=-1,
            offset=place.offset,
            timestamp=place.deliver_at_ms if record.timestamp_ms is None else record.timestamp_ms,
            timestamp_type=0,
            key=record.key,
            value=record.value,
            headers=record.headers,
            checksum=None,
            serialized_key_size=-1,
            serialized_value_size=-1,
            serialized_header_size=-1,
        )
        error = DelayedError(self._named(place, reason))
        error.__cause__ = reason
        origin = Origin(topic=self._topic, partition=partition, offset=place.offset, timestamp=letter_of.timestamp)
        output, _ = bury(
            letter_of,
            DLQ_PREFIX + self._topic,
            origin=origin,
            group_id=delay_topic(self._topic),
            attempts=1,
            error=error,
        )
        _LOGGER.warning("%s", error, extra=about(topic=self._topic))
        size = sum(len(data or b"") for data in (output.key, output.value)) + size_of_headers(output.headers)
        return send_output(producer, output, self._letter_partitions(producer, cluster, size))

    def _letter_partitions(self, producer: Producer, cluster: Cluster, size_bytes: int) -> int:
        """How many partitions the topic of dead letters has, which is created if it isn't there; looked at once for a
        transaction. It takes letters of this size: its topic has taken the record, perhaps by another setting."""
        count, most_bytes = self._letters or self._look_at_letters(producer, cluster)
        if most_bytes < size_bytes:
            most_bytes = min(2 * size_bytes, 2**31 - 1)
            log = cluster.topic_log(DLQ_PREFIX + self._topic)
            alter_topic(log, DLQ_PREFIX + self._topic, {"max.message.bytes": most_bytes})
            producer.partitions_for(DLQ_PREFIX + self._topic)  # which learns of it
        self._letters = count, most_bytes
        return count

    def _look_at_letters(self, producer: Producer, cluster: Cluster) -> tuple[int, int]:
        name = DLQ_PREFIX + self._topic
        try:
            producer.partitions_for(name)
        except UnknownTopicOrPartitionError:
            source = describe_topic(cluster.topic_log(self._topic), self._topic)
            with suppress(TopicAlreadyExistsError):
                create_topic(
                    cluster.topic_log(name),
                    name,
                    num_partitions=source.partition_count,
                    configs=retry_topic_settings(source.config),
                )
            producer.partitions_for(name)
        there = describe_topic(cluster.topic_log(name), name)
        return there.partition_count, there.config.integer("max.message.bytes")

    def _named(self, place: Place, reason: BaseException) -> str:
        return (
            f"the record of {delay_topic(self._topic)}-{place.partition}, offset {place.offset}, id "
            f"{place.id.decode(errors='replace')}, can't be delivered to topic {self._topic!r}: {reason}"
        )
