"""aiokafka's batches: records of one partition that the application gathers itself, and sends at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparklog.config import ProducerConfig
from sparklog.errors import InvalidArgumentError
from sparklog.log.data.schema import HEADERS
from sparklog.model import Headers, RecordMetadata
from sparklog.producer.future import FutureBatchMetadata, FutureRecordMetadata
from sparklog.producer.outcome import Outcome
from sparklog.producer.record_arguments import check_headers, check_timestamp, serialized_bytes, size_of_headers

__all__ = ["AppendedRecord", "BatchBuilder", "FutureFirstRecord"]

_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 21
"""Bytes. Source: Kafka's batch format 2: the header of a batch, and the most of a record beside its contents."""


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
        config: the producer's. Its ``batch_size`` (``max_batch_size``) is the bytes after which the batch is full; the
            first record always fits. Its serializers get no topic: it isn't known yet.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._size = _BATCH_OVERHEAD
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._timestamps: list[int | None] = []
        self._headers: list[Headers | None] = []
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
            InvalidTypeError, InvalidArgumentError: as :meth:`sparklog.Producer.send`.
        """
        if self._is_closed:
            return None
        pairs, timestamp = check_headers(headers), check_timestamp(timestamp)
        key_bytes = serialized_bytes("key", self._config.key_serializer, "", pairs, key)
        value_bytes = serialized_bytes("value", self._config.value_serializer, "", pairs, value)
        size = _RECORD_OVERHEAD + len(key_bytes or b"") + len(value_bytes or b"") + size_of_headers(pairs or [])
        offset = self.record_count()
        if offset and self._size + size > self._config.batch_size:
            self.close()
            return None
        self._size += size
        self._keys.append(key_bytes)
        self._values.append(value_bytes)
        self._timestamps.append(timestamp)
        self._headers.append(pairs or None)
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
        return len(self._keys)

    def build(self, partition: object) -> pa.Table:
        """Close it, and return its records as a table for ``Producer.send_batch``, all of one partition.

        Raises:
            InvalidArgumentError: it has no records, or the partition is no number of one.
        """
        if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition < 2**31:
            raise InvalidArgumentError(f"send_batch: partition={partition!r}, expected the number of a partition")
        self.close()
        if not self._keys:
            raise InvalidArgumentError("send_batch: the batch has no records, expected one at least")
        headers = [
            None if pairs is None else [{"key": name, "value": content} for name, content in pairs]
            for pairs in self._headers
        ]
        return pa.table(
            {
                "key": pa.array(self._keys, pa.binary()),
                "value": pa.array(self._values, pa.binary()),
                "timestamp": pa.array(self._timestamps, pa.int64()),
                "headers": pa.array(headers, HEADERS),
                "partition": pa.array([partition] * len(self._keys), pa.int32()),
            }
        )


class FutureFirstRecord(FutureBatchMetadata):
    """The promise of where the first row of a table is; it fails with the first error of any."""

    __slots__ = ()

    def _value_of(self, outcome: Outcome) -> RecordMetadata:  # type: ignore[override] # as aiokafka's batches
        first = FutureRecordMetadata()
        first._batch, first._index = self._batches[0], 0
        return first._value_of(first._batch.outcome or first._batch.uploaded_outcome or outcome)
