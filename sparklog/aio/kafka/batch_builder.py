"""aiokafka's batches: records of one partition that the application gathers itself, and sends at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparklog.errors import InvalidArgumentError
from sparklog.log.data.schema import HEADERS
from sparklog.model import RecordMetadata
from sparklog.producer.batch import Outcome
from sparklog.producer.future import FutureBatchMetadata, FutureRecordMetadata

__all__ = ["AppendedRecord", "BatchBuilder", "FutureFirstRecord"]

_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 21
"""Bytes. Source: Kafka's batch format 2: the header of a batch, and the most of a record beside its contents."""
Serializer = Callable[[Any], "bytes | None"] | None


@dataclass(frozen=True, slots=True)
class AppendedRecord:
    """A record as it was appended."""

    offset: int
    """Its place in the batch."""
    size: int
    """Bytes, as :meth:`BatchBuilder.size` counts them."""
    timestamp: int | None
    """Milliseconds since the epoch; None: the time at which the batch is sent."""
    crc: None = None
    """No record has a checksum of its own."""


class BatchBuilder:
    """A batch that is being filled; made by ``AIOKafkaProducer.create_batch``.

    Args:
        batch_size: the bytes after which it is full, ``max_batch_size`` of the producer. The first record always fits.
        key_serializer: applied to keys; None: they are bytes.
        value_serializer: applied to values; None: they are bytes.
    """

    def __init__(self, batch_size: int, *, key_serializer: Serializer = None, value_serializer: Serializer = None):
        self._batch_size = batch_size
        self._serializers = (key_serializer, value_serializer)
        self._size = _BATCH_OVERHEAD
        self._columns: tuple[list[Any], list[Any], list[Any], list[Any]] = ([], [], [], [])
        self._is_closed = False

    def append(
        self, *, timestamp: int | None, key: Any, value: Any, headers: Sequence[tuple[str, bytes | None]] | None = ()
    ) -> AppendedRecord | None:
        """Append a record.

        Args:
            timestamp: milliseconds since the epoch; None: the time at which the batch is sent.
        Returns:
            Where it is; None: the batch is full, and closed now, or was closed.
        Raises:
            InvalidArgumentError: a key or value that isn't bytes, once serialized.
        """
        if self._is_closed:
            return None
        serialized = [
            given if serializer is None else serializer(given)
            for serializer, given in zip(self._serializers, (key, value), strict=True)
        ]
        for name, given in zip(("key", "value"), serialized, strict=True):
            if given is not None and not isinstance(given, bytes | bytearray | memoryview):
                raise InvalidArgumentError(f"append: {name} is {type(given).__name__}, expected bytes or None")
        pairs = [(name, None if content is None else bytes(content)) for name, content in headers or ()]
        size = _RECORD_OVERHEAD + sum(len(given) for given in serialized if given is not None)
        size += sum(len(name.encode()) + len(content or b"") for name, content in pairs)
        offset = self.record_count()
        if offset and self._size + size > self._batch_size:
            self.close()
            return None
        self._size += size
        keys, values, timestamps, all_headers = self._columns
        keys.append(serialized[0])
        values.append(serialized[1])
        timestamps.append(timestamp)
        all_headers.append(pairs or None)
        return AppendedRecord(offset, size, timestamp)

    def close(self) -> None:
        """Append no more; again does nothing."""
        self._is_closed = True

    def closed(self) -> bool:
        """Whether it is closed: full, sent, or by :meth:`close`."""
        return self._is_closed

    def size(self) -> int:
        """Its bytes: those of keys, values and headers, and at most what Kafka's format takes beside them."""
        return self._size

    def record_count(self) -> int:
        """How many records it has."""
        return len(self._columns[0])

    def build(self, partition: int) -> pa.Table:
        """Close it, and return its records as a table for ``Producer.send_batch``, all of one partition.

        Raises:
            InvalidArgumentError: it has no records, or a timestamp is no number of milliseconds.
        """
        self.close()
        keys, values, timestamps, headers = self._columns
        if not keys:
            raise InvalidArgumentError("send_batch: the batch has no records, expected one at least")
        structs = [None if one is None else [{"key": name, "value": given} for name, given in one] for one in headers]
        try:
            times = pa.array(timestamps, pa.int64())
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise InvalidArgumentError(f"send_batch: a timestamp is no int of milliseconds: {error}") from None
        return pa.table(
            {
                "key": pa.array(keys, pa.binary()),
                "value": pa.array(values, pa.binary()),
                "timestamp": times,
                "headers": pa.array(structs, HEADERS),
                "partition": pa.array([partition] * len(keys), pa.int32()),
            }
        )


class FutureFirstRecord(FutureBatchMetadata):
    """The promise of where the first row of a table is; it fails with the first error of any."""

    __slots__ = ()

    def _value_of(self, outcome: Outcome) -> RecordMetadata:  # type: ignore[override] # as aiokafka's batches
        first = FutureRecordMetadata()
        first._batch, first._index = self._batches[0], 0
        return first._value_of(first._batch.outcome or first._batch.uploaded_outcome or outcome)
