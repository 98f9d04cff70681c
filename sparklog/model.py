"""The values that all clients use: immutable, without I/O."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

__all__ = [
    "CREATE_TIME",
    "LOG_APPEND_TIME",
    "NO_HEADERS",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "DeliveredRecord",
    "Headers",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicPartition",
]

Headers = list[tuple[str, bytes | None]]
"""An ordered list; a name may occur several times. Kafka's rule: a name is never null, a value may be."""


class _NoHeaders(list[Any]):
    """The empty list that all records without headers share.

    A list for each record would cost a consumer a third of its time, most of it in the garbage collector. It can't be
    changed, or the change would show in every other record: copy it first.
    """

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("records without headers share this empty list: change a copy, list(record.headers)")

    append = extend = insert = __iadd__ = __imul__ = __setitem__ = _refuse


NO_HEADERS: Headers = _NoHeaders()
"""Equal to ``[]``."""

CREATE_TIME = 0
LOG_APPEND_TIME = 1
"""Values of ``timestamp_type``: the producer or the log set a record's timestamp. Source: Kafka ``TimestampType``."""


class TopicPartition(NamedTuple):
    """A partition of a topic: the topic's name, and the partition's number from 0 on."""

    topic: str
    partition: int
    """0 … number of partitions - 1."""


class OffsetAndMetadata(NamedTuple):
    """A committed offset: that of the next record to read, which is the last processed one + 1, and a free text."""

    offset: int
    """The next offset to read after a restart: last processed + 1."""
    metadata: str = ""
    """Free text of the committer, at most 4,096 bytes as UTF-8."""
    leader_epoch: int = -1
    """Kafka's; sparklog has no leaders and only stores it."""


class OffsetAndTimestamp(NamedTuple):
    """The result of a search by time: a record's offset, and its timestamp in milliseconds since the epoch."""

    offset: int
    timestamp: int
    """The timestamp of the record at ``offset``, milliseconds since the epoch."""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership in its group, for ``send_offsets_to_transaction``. The fields are kafka-python's."""

    group_id: str
    generation_id: int = -1
    """-1 while the consumer has no generation."""
    member_id: str = ""
    """Empty while the consumer has none."""
    group_instance_id: str | None = None


class RecordMetadata(NamedTuple):
    """The position of an acknowledged record; its offset is -1 with ``acks=0``. Fields as kafka-python's."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    """-1 with ``acks=0``."""
    timestamp: int
    """Milliseconds since the epoch."""
    checksum: None
    """Always None; deprecated in Kafka."""
    serialized_key_size: int
    """Bytes; -1 without a key."""
    serialized_value_size: int
    """Bytes; -1 without a value."""
    serialized_header_size: int
    """Bytes; -1 without headers."""


class ConsumerRecord(NamedTuple):
    """A record that a consumer returns; its timestamp is in milliseconds since the epoch. Fields are kafka-python's."""

    topic: str
    partition: int
    leader_epoch: int
    """Always -1: there are no leaders."""
    offset: int
    timestamp: int
    """Milliseconds since the epoch; -1 if another engine wrote the record without a timestamp."""
    timestamp_type: int
    """:data:`CREATE_TIME` or :data:`LOG_APPEND_TIME`."""
    key: Any
    """Bytes or None, or what the deserializer made of them."""
    value: Any
    """Bytes or None (a tombstone), or what the deserializer made of them."""
    headers: Headers
    checksum: None
    serialized_key_size: int
    """Bytes; -1 without a key."""
    serialized_value_size: int
    """Bytes; -1 without a value."""
    serialized_header_size: int
    """Bytes of names and values; -1 without headers."""

    @property
    def delivery_count(self) -> int | None:
        """How often a share group has acquired the record; None for any other consumer."""
        return None


class DeliveredRecord(ConsumerRecord):
    """A record that a share consumer returns."""

    _delivery_count: int

    @classmethod
    def of(cls, record: ConsumerRecord, delivery_count: int) -> DeliveredRecord:
        """A record that was acquired for the ``delivery_count``-th time, from 1 on."""
        found = tuple.__new__(cls, record)
        found._delivery_count = delivery_count
        return found

    @property
    def delivery_count(self) -> int:
        """How often the share group has acquired the record, including this time."""
        return self._delivery_count
