"""Records to the bytes of a data file, and back. One file is one record batch of one partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparklog.errors import CorruptRecordError, InvalidArgumentError
from sparklog.log.schema import DATA_SCHEMA, HEADERS, TIMESTAMP

__all__ = [
    "MAX_TIMESTAMP_MS",
    "SEQUENCE_MODULUS",
    "EncodedBatch",
    "ProducerStamp",
    "decode_file",
    "encode_batch",
    "next_sequence",
    "record_columns",
]

SEQUENCE_MODULUS = 2**31
"""Sequences are int32 and wrap to 0. Source: Kafka ``DefaultRecordBatch.incrementSequence``."""

MAX_TIMESTAMP_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last moment that every reader of the table can show."""

_CODECS: Mapping[str, str | None] = MappingProxyType(
    {"none": None, "uncompressed": None, "gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"}
)


@dataclass(frozen=True, slots=True)
class ProducerStamp:
    """Who wrote a batch to a partition."""

    producer_id: int
    """Random, 63 bits."""
    producer_epoch: int
    """0 … 32767."""
    base_sequence: int
    """Sequence of the batch's first record in its partition, 0 … 2**31 - 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBatch:
    """A data file before it has a name: records of one partition, numbered from 0 on."""

    data: bytes
    record_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    stamp: ProducerStamp

    @property
    def last_offset_delta(self) -> int:
        return self.record_count - 1


def next_sequence(sequence: int, count: int) -> int:
    """The sequence ``count`` records after ``sequence``."""
    return (sequence + count) % SEQUENCE_MODULUS


def encode_batch(
    records: pa.Table | pa.RecordBatch, stamp: ProducerStamp, *, compression: str = "none"
) -> EncodedBatch:
    """Encode the records of one partition, in their order.

    Args:
        records: columns ``timestamp`` (int64 milliseconds or an Arrow timestamp, no nulls), ``value`` (binary or
            null), and if present ``key`` (binary) and ``headers`` (list of struct key: string, value: binary).
        compression: of the Parquet pages: none, gzip, snappy, lz4, zstd.
    Raises:
        InvalidArgumentError: no record, a null or negative timestamp, a header without a key, a column of the wrong
            type, an unknown codec.
    """
    count = records.num_rows
    if count == 0:
        raise InvalidArgumentError("a batch holds at least one record")
    if compression not in _CODECS:
        raise InvalidArgumentError(f"compression {compression!r}: expected one of {', '.join(_CODECS)}")
    columns = record_columns(records)
    timestamps = columns["timestamp"]
    low, high = (bound.as_py() for bound in pc.min_max(timestamps.cast(pa.int64())).values())
    if timestamps.null_count or low < 0 or high // 1000 > MAX_TIMESTAMP_MS:
        raise InvalidArgumentError(
            f"timestamps: got {timestamps.null_count} nulls, from {low} to {high} µs; "
            f"expected no null and 0 to {MAX_TIMESTAMP_MS} ms"
        )
    sequences = pa.arange(stamp.base_sequence, stamp.base_sequence + count)
    if stamp.base_sequence + count > SEQUENCE_MODULUS:
        sequences = pc.if_else(
            pc.greater_equal(sequences, SEQUENCE_MODULUS), pc.subtract(sequences, SEQUENCE_MODULUS), sequences
        )
    arrays = [
        pa.arange(0, count),
        *columns.values(),
        pa.repeat(pa.scalar(stamp.producer_id, pa.int64()), count),
        pa.repeat(pa.scalar(stamp.producer_epoch, pa.int16()), count),
        sequences.cast(pa.int32()),
    ]
    return EncodedBatch(
        data=write_parquet(pa.table(arrays, schema=DATA_SCHEMA), compression=compression),
        record_count=count,
        min_timestamp_ms=low // 1000,
        max_timestamp_ms=high // 1000,
        stamp=stamp,
    )


def record_columns(records: pa.Table | pa.RecordBatch) -> dict[str, Any]:
    """The columns ``timestamp``, ``key``, ``value`` and ``headers`` in the topic's types; null where one isn't given.

    Raises ``InvalidArgumentError``: no timestamp, a column of a wrong type or there twice, a header without a key.
    """
    return {
        "timestamp": _timestamps(records),
        "key": _column(records, "key", pa.binary()),
        "value": _column(records, "value", pa.binary()),
        "headers": _headers(records),
    }


def write_parquet(table: pa.Table, *, compression: str) -> bytes:
    """A table of ``DATA_SCHEMA`` as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression=_CODECS[compression] or "none",
        store_schema=False,  # Delta's log holds the schema; a copy in every small file is waste
        use_dictionary=["producer_id", "producer_epoch"],
        column_encoding={"offset_delta": "DELTA_BINARY_PACKED", "sequence": "DELTA_BINARY_PACKED"},
        write_statistics=["offset_delta", "timestamp", "producer_id", "sequence"],
    )
    return bytes(sink.getvalue())


def decode_file(path: str, data: bytes, columns: list[str] | None = None) -> pa.Table:
    """Read a data file; ``columns`` that it doesn't have are passed over.

    Raises ``CorruptRecordError``, which names the file, where it is truncated or no Parquet.
    """
    try:
        return pq.ParquetFile(pa.BufferReader(data)).read(columns)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptRecordError(f"corrupt data file {path} ({len(data)} bytes): {error}") from error


def _timestamps(records: pa.Table | pa.RecordBatch) -> Any:
    column = _find(records, "timestamp")
    if column is None:
        raise InvalidArgumentError("column timestamp: not there, expected int64 milliseconds or an Arrow timestamp")
    if pa.types.is_integer(column.type):
        column = _cast(column, "timestamp", pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    return _cast(column, "timestamp", TIMESTAMP)


def _headers(records: pa.Table | pa.RecordBatch) -> Any:
    column = _column(records, "headers", HEADERS)
    if column.null_count == len(column):
        return column
    given = _find(records, "headers").type
    is_struct = not pa.types.is_map(given) and pa.types.is_struct(given.value_type)
    # A cast fills fields of other names with null. Source of the second rule: Kafka RecordHeader's constructor.
    misnamed = is_struct and {field.name for field in given.value_type} != {"key", "value"}
    if misnamed or pc.struct_field(pc.list_flatten(column), "key").null_count:
        raise InvalidArgumentError(f"column headers: got {given}, expected {HEADERS} and no header without a key")
    return column


def _column(records: pa.Table | pa.RecordBatch, name: str, kind: pa.DataType) -> Any:
    column = _find(records, name)
    return pa.nulls(records.num_rows, kind) if column is None else _cast(column, name, kind)


def _find(records: pa.Table | pa.RecordBatch, name: str) -> Any:
    """A column of the records; None if there is none."""
    found = records.schema.get_all_field_indices(name)
    if len(found) > 1:
        raise InvalidArgumentError(f"column {name}: there are {len(found)} of it, expected one")
    return records.column(found[0]) if found else None


def _cast(column: Any, name: str, kind: pa.DataType) -> Any:
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        raise InvalidArgumentError(f"column {name}: got {column.type}, expected {kind} ({error})") from error
