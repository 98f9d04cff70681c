"""The arguments and results of handlers: a record, a batch of records, and records to be sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from sparklog.errors import InvalidArgumentError, InvalidTypeError
from sparklog.model import ConsumerRecord, Headers

__all__ = ["Batch", "Record", "Send"]

T = TypeVar("T")

_MILLISECONDS = pa.timestamp("ms", tz="UTC")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Record(Generic[T]):
    """A record that a handler gets: the value has the type of the handler's annotation, all else is as it was read."""

    __slots__ = ("attempt", "raw", "value")

    def __init__(self, raw: ConsumerRecord, value: T, attempt: int = 1) -> None:
        self.raw = raw
        """The record as the consumer read it: key and value as bytes."""
        self.value = value
        """None for a tombstone, whatever the annotation says."""
        self.attempt = attempt
        """1 for the first try; goes on through delay topics, and begins anew after a crash for retries in place."""

    @property
    def key(self) -> bytes | None:
        """The key's bytes."""
        key: bytes | None = self.raw.key
        return key

    @property
    def headers(self) -> Headers:
        """An ordered list of (name, bytes or None)."""
        return self.raw.headers

    @property
    def topic(self) -> str:
        """The topic from which it was read; a delay topic for a record that was retried through one."""
        return self.raw.topic

    @property
    def partition(self) -> int:
        """The partition that it was read from."""
        return self.raw.partition

    @property
    def offset(self) -> int:
        """Its offset in the partition that it was read from."""
        return self.raw.offset

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch."""
        return self.raw.timestamp

    def __repr__(self) -> str:
        return f"Record({self.topic}-{self.partition}@{self.offset}, value={self.value!r}, attempt={self.attempt})"


class Batch(Generic[T]):
    """Records of one partition, in its order, which succeed or fail together. Never empty."""

    __slots__ = ("attempt", "records")

    def __init__(self, records: Sequence[Record[T]], attempt: int = 1) -> None:
        self.records = records
        self.attempt = attempt
        """The number of the try, as that of a record."""

    @property
    def values(self) -> list[T]:
        """The values in the order of the records."""
        return [record.value for record in self.records]

    @property
    def table(self) -> pa.Table:
        """The records in Arrow, as they were read: topic (string), partition (int32), offset (int64), timestamp
        (timestamp[ms, UTC]), key and value (binary), headers (list of struct key: string, value: binary)."""
        raws = [record.raw for record in self.records]
        return pa.table(
            {
                "topic": pa.array([raw.topic for raw in raws], pa.string()),
                "partition": pa.array([raw.partition for raw in raws], pa.int32()),
                "offset": pa.array([raw.offset for raw in raws], pa.int64()),
                "timestamp": pa.array([raw.timestamp for raw in raws], _MILLISECONDS),
                "key": pa.array([raw.key for raw in raws], pa.binary()),
                "value": pa.array([raw.value for raw in raws], pa.binary()),
                "headers": pa.array(
                    [[{"key": name, "value": value} for name, value in raw.headers] for raw in raws], _HEADERS
                ),
            }
        )

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        first = self.records[0]
        return f"Batch({len(self)} records from {first.topic}-{first.partition}@{first.offset} on)"


@dataclass(frozen=True, slots=True)
class Send:
    """A record that a handler wants sent, in the transaction that commits the offset of what it was made from.

    Raises (as it is made):
        InvalidTypeError, InvalidArgumentError: a field of another type or value; names it.
    """

    topic: str
    value: Any = None
    """Bytes, text, None (a tombstone), or what becomes JSON: a dataclass, a pydantic model, a dict, a list, …"""
    key: bytes | str | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    """Chosen by the key if None."""
    timestamp_ms: int | None = None
    """The moment at which it is sent if None."""

    def __post_init__(self) -> None:
        unchecked: Any = self  # the annotations are what is expected of callers, not what is known of them
        if not isinstance(unchecked.topic, str) or not unchecked.topic:
            raise InvalidTypeError(f"Send: topic={unchecked.topic!r}, expected the name of a topic")
        if unchecked.key is not None and not isinstance(unchecked.key, bytes | str):
            raise InvalidTypeError(f"Send to {self.topic}: key={unchecked.key!r}, expected bytes, a text or None")
        if not isinstance(unchecked.headers, list | tuple):  # of an iterator nothing would be left to be sent
            what = type(unchecked.headers).__name__
            raise InvalidTypeError(f"Send to {self.topic}: headers of {what}, expected a list or a tuple of pairs")
        for header in unchecked.headers:
            if not (isinstance(header, tuple) and len(header) == 2 and _is_header(*header)):
                raise InvalidTypeError(f"Send to {self.topic}: header {header!r}, expected (name, bytes or None)")
        for name, number in (("partition", unchecked.partition), ("timestamp_ms", unchecked.timestamp_ms)):
            if number is not None and (not isinstance(number, int) or number < 0):
                raise InvalidArgumentError(f"Send to {self.topic}: {name}={number!r}, expected 0 or more, or None")


def _is_header(name: Any, value: Any) -> bool:
    return isinstance(name, str) and (value is None or isinstance(value, bytes))
