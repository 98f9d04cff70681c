"""The arguments of ``send``, checked and serialized: bytes, headers, timestamp and partition of a record."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple, SupportsIndex

import pyarrow as pa

from sparklog._native import CORE
from sparklog.config import ProducerConfig
from sparklog.errors import (
    InvalidArgumentError,
    InvalidTypeError,
    MessageSizeTooLargeError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.data.value_sizes import copied, python_size
from sparklog.model import Headers
from sparklog.producer.arrow_tables import check_table
from sparklog.producer.batch import Details, Unacknowledged
from sparklog.producer.future import FutureRecordMetadata
from sparklog.producer.interceptors import ProducerRecord
from sparklog.producer.record_memory import memory_bytes
from sparklog.producer.topic_queue import TopicQueue
from sparklog.producer.typed_values import RECORD_COLUMNS, ValueEncoding
from sparklog.producer.writable_topic import WritableTopic
from sparklog.schemas import has_fields, plain_fields

__all__ = [
    "PackableRecord",
    "SerializedRecord",
    "add_first",
    "check_headers",
    "check_sent_table",
    "check_timestamp",
    "packable_record",
    "serialize_record",
    "serialized_bytes",
    "size_of_headers",
]

_BYTES = (bytes, bytearray, memoryview, type(None))
_ROW_BYTES = 232
"""Memory of a dict."""
_FIELD_BYTES = 64
"""Memory of a value in it beside its own bytes: an object, and its place in the dict."""


class SerializedRecord(NamedTuple):
    """A record as it is added to a topic's queue."""

    key: bytes | None
    value: bytes | None
    memory_bytes: int
    """Bytes that it counts against ``buffer_memory``."""
    details: Details | None
    """All but key and value; None for a record that has nothing else."""

    def unacknowledged(self, topic: str, now_ms: int) -> Unacknowledged:
        """The batch that a future is given with ``acks=0``: done from the start, without an offset."""
        timestamp_ms, _, header_size, _, value = self.details or (None, None, -1, None, None)
        value_size = -1 if self.value is None else len(self.value)
        return Unacknowledged.of_record(
            topic,
            timestamp_ms=now_ms if timestamp_ms is None else timestamp_ms,
            key_size=-1 if self.key is None else len(self.key),
            value_size=value_size if value is None else python_size(value),
            header_size=header_size,
        )


class PackableRecord(NamedTuple):
    """A record of a typed topic whose value the compiled core may pack: what ``TopicQueue.add_detailed`` takes."""

    key: bytes | None
    value: dict[str, Any]
    details: Details | None
    size_bytes: int
    """Bytes of key and headers."""
    memory_bytes: int
    """Bytes that it counts against ``buffer_memory`` beside its value."""

    @property
    def headers(self) -> Headers | None:
        """Its headers; None without."""
        return None if self.details is None else self.details[1]


def add_first(queue: TopicQueue, key: object, value: object) -> FutureRecordMetadata | None:
    """Do the work of ``TopicQueue.add_plain`` for a record that needs another batch, as the first one does, or room.

    Returns:
        None: it is no record of bytes or None alone, or too large. Raises as :meth:`TopicQueue.add`.
    """
    if not ((value is None or type(value) is bytes) and (key is None or type(key) is bytes)):
        return None
    size = (len(value) if value else 0) + (len(key) if key else 0)
    return None if size > queue.max_record_bytes else queue.add(key, value, size + queue.overhead_bytes)


def packable_record(record: ProducerRecord, topic: WritableTopic, config: ProducerConfig) -> PackableRecord | None:
    """Check what ``send`` was given, but for its value; None: :func:`serialize_record` has to look at it. Raises as
    that does."""
    if CORE is None or topic.value_encoding is None:
        return None
    if config.value_serializer is not None or config.partitioner is not None or config.acks == 0:
        return None
    value = record.value if type(record.value) is dict else plain_fields(record.value)
    if value is None:
        return None
    headers = check_headers(record.headers)
    key = serialized_bytes("key", config.key_serializer, topic.name, headers, record.key)
    timestamp_ms = check_timestamp(record.timestamp_ms)
    partition = None if record.partition is None else _check_partition(topic, record.partition)
    header_size = size_of_headers(headers) if headers else -1
    details = None
    if headers or timestamp_ms is not None or partition is not None:
        details = (timestamp_ms, headers or None, header_size, partition, None)
    size = len(key or b"") + max(0, header_size)
    return PackableRecord(key, value, details, size, memory_bytes(size, headers, timestamp_ms, partition))


def serialize_record(
    record: ProducerRecord, topic: WritableTopic, config: ProducerConfig, packable: PackableRecord | None = None
) -> SerializedRecord:
    """Check what ``send`` was given, call the user's serializers and partitioner.

    Args:
        packable: what :func:`packable_record` has made of it: no serializer is called for it again.
    Raises:
        InvalidTypeError: key or value aren't bytes after serializing; headers or partition of another shape.
        InvalidArgumentError: a timestamp that no int64 holds, or a negative one.
        MessageSizeTooLargeError: beyond ``max_request_size`` or the topic's ``max.message.bytes``.
        UnknownTopicOrPartitionError: the topic has no such partition.
    """
    if packable is None:
        headers = check_headers(record.headers)
        key = serialized_bytes("key", config.key_serializer, topic.name, headers, record.key)
    else:
        headers, key = packable.headers, packable.key
    given = _serialize(config.value_serializer, topic.name, headers, record.value)
    typed, typed_size, width = None, 0, 0
    if not isinstance(given, _BYTES) and (encoding := _encoding_for(topic, given)) is not None:
        encoding = _check_value(topic, encoding, given)
        typed, given = copied(given), None
        typed_size, width = python_size(typed), encoding.width
    value = _to_bytes("value", given)
    header_size = size_of_headers(headers) if headers else -1
    size = len(key or b"") + len(value or b"") + typed_size + max(0, header_size)
    if size > topic.max_record_bytes:
        raise MessageSizeTooLargeError(
            f"a record of {size} bytes for topic {topic.name!r}: expected at most {topic.max_record_bytes} "
            f"(max_request_size={config.max_request_size}, buffer_memory={config.buffer_memory}, the topic's "
            f"max.message.bytes={topic.max_message_bytes})"
        )
    timestamp_ms = check_timestamp(record.timestamp_ms)
    partition = record.partition
    if partition is None and config.partitioner is not None:
        partition = _choose_partition(config.partitioner, topic, record, key, value)
    if partition is not None:
        partition = _check_partition(topic, partition)
    details = None
    if headers or timestamp_ms is not None or partition is not None or typed is not None:
        details = (timestamp_ms, headers or None, header_size, partition, typed)
    counted = memory_bytes(size, headers, timestamp_ms, partition)
    if typed is not None:
        counted += _ROW_BYTES + _FIELD_BYTES * width
    elif value is not None and topic.value_encoding is not None:
        counted += topic.value_encoding.decoded_bytes
    return SerializedRecord(key, value, counted, details)


def _encoding_for(topic: WritableTopic, value: Any) -> ValueEncoding | None:
    """The encoding of a value that is no bytes; None for an untyped topic, which it still is where it matters."""
    if topic.value_encoding is None and has_fields(value):
        return topic.newer_encoding(None, ["the topic isn't typed"])  # it may be by now
    return topic.value_encoding


def _check_value(topic: WritableTopic, encoding: ValueEncoding, value: Any) -> ValueEncoding:
    """Check a value by the newest schema that is known; one that it doesn't allow, by the newest that there is."""
    try:
        encoding.check(value)
    except SparklogError as error:
        newest = topic.newer_encoding(encoding, [str(error)])
        if newest is None:
            raise
        newest.check(value)
        return newest
    return encoding


def check_sent_table(
    table: pa.Table | pa.RecordBatch, topic: WritableTopic, now_ms: int, *, compressed_bytes: int | None = None
) -> pa.Table:
    """Check what ``send_batch`` was given, see :func:`~sparklog.producer.arrow_tables.check_table`: by the newest
    schema that is known; a table that it doesn't allow, by the newest that there is.

    Args:
        compressed_bytes: of the batch that it came as, where that was compressed.
    """
    encoding = topic.value_encoding

    def check(by: ValueEncoding | None) -> pa.Table:
        return check_table(
            topic.name,
            table,
            now_ms=now_ms,
            partition_count=topic.partition_count,
            max_record_bytes=topic.max_record_bytes_in(compressed_bytes),
            encoding=by,
        )

    try:
        return check(encoding)
    except InvalidArgumentError as error:
        may_help = table.num_rows and _may_be_typed(table, encoding)
        newest = topic.newer_encoding(encoding, [str(error)]) if may_help else None
        if newest is None:
            raise
        return check(newest)


def _may_be_typed(table: pa.Table | pa.RecordBatch, encoding: ValueEncoding | None) -> bool:
    """Could another schema make a difference?"""
    schema = table.schema
    if encoding is not None or not {*RECORD_COLUMNS, "value"}.issuperset(schema.names):
        return True
    return any(field.name == "value" and pa.types.is_struct(field.type) for field in schema)


class _Partitions:
    """A cluster as kafka-python's partitioners see it."""

    def __init__(self, topic: str, partitions: list[int]) -> None:
        self._topic = topic
        self._partitions = partitions

    def topics(self) -> set[str]:
        return {self._topic}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(self._partitions) if topic == self._topic else None

    available_partitions_for_topic = partitions_for_topic


def _serialize(serializer: Any, topic: str, headers: Headers | None, data: Any) -> Any:
    return data if serializer is None else serializer(topic, headers or [], data)


def serialized_bytes(argument: str, serializer: Any, topic: str, headers: Headers | None, data: Any) -> bytes | None:
    """A key or value as bytes; ``argument`` says which. Raises ``InvalidTypeError``: it is none after serializing."""
    return _to_bytes(argument, _serialize(serializer, topic, headers, data))


def _to_bytes(argument: str, data: Any) -> bytes | None:
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    hint = ", or give the topic a schema of its values" if argument == "value" and has_fields(data) else ""
    raise InvalidTypeError(
        f"{argument}: got {type(data).__name__}, expected bytes or None; set {argument}_serializer to send other types"
        f"{hint}"
    )


def check_headers(headers: object) -> Headers | None:
    """Headers as a list of pairs. Raises ``InvalidTypeError``: they have another shape."""
    if headers is None:
        return None
    if not isinstance(headers, list | tuple):
        raise InvalidTypeError(f"headers: got {type(headers).__name__}, expected a list of (name, bytes or None)")
    for item in headers:
        if not (
            isinstance(item, tuple | list)
            and len(item) == 2
            and isinstance(item[0], str)
            and isinstance(item[1], bytes | None)
            and _is_utf8(item[0])
        ):
            raise InvalidTypeError(f"headers: got {item!r}, expected (name as str of valid Unicode, bytes or None)")
    return [(name, value) for name, value in headers]


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True


def size_of_headers(headers: Headers) -> int:
    """Bytes of the headers' names and values."""
    return sum(len(name.encode()) + len(data or b"") for name, data in headers)


def check_timestamp(timestamp_ms: object) -> int | None:
    """A timestamp in milliseconds. Raises ``InvalidTypeError``: no int; ``InvalidArgumentError``: out of range."""
    if timestamp_ms is None:
        return None
    if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int):
        raise InvalidTypeError(f"timestamp_ms: got {type(timestamp_ms).__name__}, expected int milliseconds")
    if not 0 <= timestamp_ms < 2**63:
        raise InvalidArgumentError(f"timestamp_ms={timestamp_ms}: expected 0 to 2**63 - 1")
    return timestamp_ms


def _choose_partition(
    partitioner: Any, topic: WritableTopic, record: ProducerRecord, key: bytes | None, value: bytes | None
) -> int:
    partitions = list(range(topic.partition_count))
    method = getattr(partitioner, "partition", None)
    if callable(method):  # kafka-python 3
        return method(record.topic, record.key, key, record.value, value, _Partitions(record.topic, partitions))  # type: ignore[no-any-return]
    return partitioner(key, partitions, partitions)  # type: ignore[no-any-return]


def _check_partition(topic: WritableTopic, partition: object) -> int:
    if isinstance(partition, bool) or not isinstance(partition, SupportsIndex):
        raise InvalidTypeError(f"partition: got {partition!r}, expected int")
    number = operator.index(partition)  # a partitioner may well return numpy's
    if number >= topic.partition_count:
        topic.refresh()  # it may be new
    if not 0 <= number < topic.partition_count:
        raise UnknownTopicOrPartitionError(
            f"topic {topic.name!r} has no partition {number}; it has 0 to {topic.partition_count - 1}"
        )
    return number
