"""Records to the bytes of a data file, and back. One file is one record batch of one partition."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparklog._native import CORE
from sparklog.delta.parquet_reading import open_parquet
from sparklog.delta.parquet_seals import WRITER_OPTIONS, close_sealed
from sparklog.errors import CorruptRecordError, InvalidArgumentError
from sparklog.log.data.arrow_buffers import buffer_numbers, one_array
from sparklog.log.data.carried_stats import footer_entry
from sparklog.log.data.few_records import encode_few_records
from sparklog.log.data.few_rows import FEW_RECORDS, FewRows
from sparklog.log.data.plain_records import encode_plain_records
from sparklog.log.data.producer_stamp import SEQUENCE_MODULUS, ProducerStamp, next_sequence
from sparklog.log.data.schema import DATA_SCHEMA, HEADERS, PLAIN_RECORDS, TIMESTAMP, data_schema
from sparklog.log.data.sorted_rows import Records, SomeRows, SortedRows, as_table
from sparklog.log.data.typed_columns import SAMPLE, repeats
from sparklog.log.data.value_columns import DATA, SCHEMA_ID, Leaf, has_values, leaf_column, leaves_of
from sparklog.log.data.value_stats import stats_of_facts, value_stats

__all__ = [
    "FEW_RECORDS",
    "MAX_TIMESTAMP_MS",
    "EncodedBatch",
    "Records",
    "byte_columns",
    "decode_file",
    "encode_batch",
    "encode_batches",
    "parquet_options",
    "record_columns",
]

MAX_TIMESTAMP_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last moment that every reader of the table can show."""

_MAX_MULTIPLIED = 2**63 // 1000 - 1
_WITH_HEADERS = DATA_SCHEMA
_WITHOUT_HEADERS = DATA_SCHEMA.remove(DATA_SCHEMA.get_field_index("headers"))

_CODECS: Mapping[str, str | None] = MappingProxyType(
    {"none": None, "uncompressed": None, "gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBatch:
    """A data file before it has a name: records of one partition, numbered from 0 on."""

    data: bytes
    """Or a view of bytes, which can't be written to."""
    record_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    stamp: ProducerStamp
    value_stats: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The statistics of a typed topic's indexed leaves, as Delta has them."""

    @property
    def last_offset_delta(self) -> int:
        """``offset_delta`` of the last record: one less than their number."""
        return self.record_count - 1


def encode_batch(
    records: Records,
    stamp: ProducerStamp,
    *,
    compression: str = "none",
    leaves: Sequence[Leaf] = (),
    carries_stats: bool = False,
    room: Any = None,
) -> EncodedBatch:
    """Encode the records of one partition, in their order.

    Args:
        records: columns ``timestamp`` (int64 milliseconds or an Arrow timestamp, no nulls), ``value`` (binary or
            null), and if present ``key`` (binary), ``headers`` (list of struct key: string, value: binary), and of a
            typed topic ``data`` (struct) and ``schema_id`` (int32).
        leaves: those of ``data`` that get statistics.
        carries_stats: the file's footer has these, too, for whoever publishes it.
        compression: of the Parquet pages: none, gzip, snappy, lz4, zstd.
        room: the core's, for the files of one upload; None: each has memory of its own.
    Raises:
        InvalidArgumentError: no record, a null or negative timestamp, a header without a key, a column of the wrong
            type, an unknown codec.
    """
    count = records.num_rows
    if count == 0:
        raise InvalidArgumentError("a batch holds at least one record")
    if compression not in _CODECS:
        raise InvalidArgumentError(f"compression {compression!r}: expected one of {', '.join(_CODECS)}")
    if _CODECS[compression] is None:
        encoded = _encode_plain(records, stamp, room) or _encode_typed(records, stamp, leaves, carries_stats, room)
        if encoded is not None:
            return encoded
    if isinstance(records, FewRows | SomeRows):
        records = as_table(records)
    columns = record_columns(records)
    min_timestamp_ms, max_timestamp_ms = _check_timestamps(columns["timestamp"])
    columns = {
        "offset_delta": np.arange(count),
        **columns,
        "producer_id": np.full(count, stamp.producer_id),
        "producer_epoch": np.full(count, stamp.producer_epoch, np.int16),
        "sequence": ((np.arange(count) + stamp.base_sequence) % SEQUENCE_MODULUS).astype(np.int32),
    }
    if columns["headers"].null_count == count:
        del columns["headers"]  # Delta reads a column that a file doesn't have as null
    schema = _WITH_HEADERS if "headers" in columns else _WITHOUT_HEADERS
    found: Mapping[str, Mapping[str, Any]] = {}
    if has_values(records):
        columns |= {DATA: records.column(DATA), SCHEMA_ID: records.column(SCHEMA_ID)}
        schema = pa.schema([one for one in data_schema(columns[DATA].type) if one.name in columns])
        found = value_stats(columns[DATA], leaves)
    table = pa.table(columns, schema=schema)
    return EncodedBatch(
        data=write_parquet(table, compression=compression, footer=footer_entry(found) if carries_stats else {}),
        record_count=count,
        min_timestamp_ms=min_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        stamp=stamp,
        value_stats=found,
    )


def encode_batches(
    batches: Sequence[tuple[int, Records]], stamps: Sequence[ProducerStamp], **how: Any
) -> list[tuple[int, EncodedBatch]]:
    """Encode batches of (partition, records) that are uploaded together, by :func:`encode_batch`.

    Where the compiled core encodes them, their files lie in one block of memory, which is free with the last of them.

    Args:
        stamps: of each batch. how: the options of :func:`encode_batch`.
    """
    room = None if CORE is None else CORE.FileRoom()
    return [
        (partition, encode_batch(records, stamp, room=room, **how))
        for (partition, records), stamp in zip(batches, stamps, strict=True)
    ]


def _encode_plain(records: Records, stamp: ProducerStamp, room: Any) -> EncodedBatch | None:
    """Encode plain records without Arrow's writer; None: these are others."""
    if isinstance(records, FewRows):
        return _encode_rows(records, stamp)
    if records.schema != PLAIN_RECORDS:
        return None
    return _encode_few(records, stamp) if records.num_rows <= FEW_RECORDS else _encode_many(records, stamp, room)


def _encode_typed(
    records: Records, stamp: ProducerStamp, leaves: Sequence[Leaf], carries_stats: bool, room: Any
) -> EncodedBatch | None:
    """Encode typed records without Arrow's writer; None: :func:`encode_batch` refuses them, or Arrow encodes them."""
    if isinstance(records, FewRows) or DATA not in records.schema.names or _wraps(stamp, records):
        return None
    some = _some_rows(records)
    start, count = some.start, some.num_rows
    typed = some.rows.typed()
    found = typed.leaves(start, count) if typed is not None else {}
    if typed is None or not found:
        return None
    rows = some.rows.plain()
    low_us, high_us = rows.bounds(start, count)
    if not _may_be_written(low_us, high_us):
        return None
    facts: dict[Leaf, tuple[int, tuple[Any, Any] | None]] = {
        (name,): (leaf.null_count, leaf.bounds) for name, leaf in found.items()
    }
    stats = stats_of_facts(facts, records.schema.field(DATA).type, leaves, count)
    data = encode_plain_records(
        rows,
        start,
        count,
        bounds_us=(low_us, high_us),
        producer_id=stamp.producer_id,
        producer_epoch=stamp.producer_epoch,
        base_sequence=stamp.base_sequence,
        typed=[*((leaf.parts, leaf.chunk) for leaf in found.values()), typed.schema_ids(start, count)],
        layout=typed.layout,
        metadata=footer_entry(stats) if carries_stats else {},
        room=room,
    )
    return replace(_plain(data, count, low_us, high_us, stamp), value_stats=stats)


def _wraps(stamp: ProducerStamp, records: Records) -> bool:
    return next_sequence(stamp.base_sequence, records.num_rows - 1) < stamp.base_sequence


def _some_rows(records: pa.Table | pa.RecordBatch | SomeRows) -> SomeRows:
    return records if isinstance(records, SomeRows) else SortedRows(as_table(records)).part(0, records.num_rows)


def _encode_few(records: Records, stamp: ProducerStamp) -> EncodedBatch | None:
    """A few plain records as producers prepare them; None: :func:`encode_batch` refuses them."""
    timestamps, keys, values = (
        one_array(column) if isinstance(column, pa.ChunkedArray) else column for column in as_table(records).columns
    )
    if timestamps.null_count:
        return None
    timestamps_us = buffer_numbers(timestamps, 1, np.int64).tolist()
    return _encode_rows(FewRows(range(len(timestamps)), timestamps_us, keys.to_pylist(), values.to_pylist()), stamp)


def _encode_rows(rows: FewRows, stamp: ProducerStamp) -> EncodedBatch | None:
    """The same of rows that are no Arrow."""
    low_us, high_us = min(rows.timestamps_us), max(rows.timestamps_us)
    if not _may_be_written(low_us, high_us):
        return None
    count = rows.num_rows
    data = encode_few_records(
        timestamps_us=rows.timestamps_us,
        keys=rows.keys,
        values=rows.values,
        producer_id=stamp.producer_id,
        producer_epoch=stamp.producer_epoch,
        sequences=[next_sequence(stamp.base_sequence, place) for place in range(count)],
    )
    return _plain(data, count, low_us, high_us, stamp)


def _encode_many(records: Records, stamp: ProducerStamp, room: Any) -> EncodedBatch | None:
    """Plain records as producers prepare them; None: :func:`encode_batch` refuses them, or Arrow encodes them."""
    if _wraps(stamp, records):
        return None
    some = _some_rows(records)
    rows = some.rows.plain()
    if rows is None:
        return None
    low_us, high_us = rows.bounds(some.start, some.num_rows)
    if not _may_be_written(low_us, high_us):
        return None
    data = encode_plain_records(
        rows,
        some.start,
        some.num_rows,
        bounds_us=(low_us, high_us),
        producer_id=stamp.producer_id,
        producer_epoch=stamp.producer_epoch,
        base_sequence=stamp.base_sequence,
        room=room,
    )
    return _plain(data, some.num_rows, low_us, high_us, stamp)


def _may_be_written(low_us: int, high_us: int) -> bool:
    return low_us >= 0 and high_us // 1000 <= MAX_TIMESTAMP_MS


def _plain(data: bytes, count: int, low_us: int, high_us: int, stamp: ProducerStamp) -> EncodedBatch:
    return EncodedBatch(
        data=data,
        record_count=count,
        min_timestamp_ms=low_us // 1000,
        max_timestamp_ms=high_us // 1000,
        stamp=stamp,
    )


def record_columns(records: pa.Table | pa.RecordBatch) -> dict[str, Any]:
    """The columns ``timestamp``, ``key``, ``value`` and ``headers`` in the topic's types; null where one isn't given.

    Raises ``InvalidArgumentError``: no timestamp, a column of a wrong type or there twice, a header without a key.
    """
    return {"timestamp": _timestamps(records), **byte_columns(records)}


def byte_columns(records: pa.Table | pa.RecordBatch) -> dict[str, Any]:
    """The columns ``key``, ``value`` and ``headers`` of :func:`record_columns`."""
    return {
        "key": _column(records, "key", pa.binary()),
        "value": _column(records, "value", pa.binary()),
        "headers": _headers(records),
    }


def write_parquet(table: pa.Table, *, compression: str, footer: Mapping[bytes, bytes] = MappingProxyType({})) -> bytes:
    """A table of a topic's columns, with or without headers, as the bytes of a Parquet file.

    Args:
        footer: what the file's metadata has, by key.
    """
    pool = pa.system_memory_pool()  # Arrow's own gives pages back and asks the system for them again, file by file
    sink = io.BytesIO()
    writer = pq.ParquetWriter(sink, table.schema, memory_pool=pool, **parquet_options(compression, table.schema, table))
    writer.write_table(table)
    if footer:
        writer.add_key_value_metadata(dict(footer))
    return close_sealed(writer, sink)


def parquet_options(
    compression: str, schema: pa.Schema = DATA_SCHEMA, first_records: pa.Table | None = None
) -> dict[str, Any]:
    """The options with which Arrow's writers write a data file of such columns.

    Args:
        first_records: of the file; texts of values that repeat among them are written as numbers into a dictionary.
    """
    dictionaries, statistics = (
        ["producer_id", "producer_epoch"],
        ["offset_delta", "timestamp", "producer_id", "sequence"],
    )
    if DATA in schema.names:
        dictionaries = [*dictionaries, SCHEMA_ID]
        leaves = list(leaves_of(schema.field(DATA).type))
        statistics += [_path(leaf) for leaf, _ in leaves]
        if first_records is not None:
            texts = (leaf for leaf, kind in leaves if pa.types.is_string(kind))
            dictionaries += [
                _path(leaf) for leaf in texts if repeats(leaf_column(first_records.column(DATA).slice(0, SAMPLE), leaf))
            ]
    return {
        "compression": _CODECS[compression] or "none",
        "store_schema": False,  # Delta's log holds the schema; a copy in every small file is waste
        "use_dictionary": dictionaries,
        "column_encoding": {"offset_delta": "DELTA_BINARY_PACKED", "sequence": "DELTA_BINARY_PACKED"},
        "write_batch_size": 65_536,
        "write_statistics": statistics,
        **WRITER_OPTIONS,
    }


def _path(leaf: Leaf) -> str:
    """The name of a leaf's column in Parquet."""
    return ".".join((DATA, *leaf))


def decode_file(path: str, data: bytes, columns: list[str] | None = None, *, rows: int | None = None) -> pa.Table:
    """Read a data file; ``columns`` that it doesn't have are passed over.

    Args:
        rows: the number of its records, where the log states it.
    Raises:
        CorruptRecordError: it is truncated or no Parquet, or has another number of records; names the file.
    """
    try:
        return open_parquet(data, rows=rows).read(columns)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptRecordError(f"corrupt data file {path} ({len(data)} bytes): {error}") from error


def _timestamps(records: pa.Table | pa.RecordBatch) -> Any:
    column = _find(records, "timestamp")
    if column is None:
        raise InvalidArgumentError("column timestamp: not there, expected int64 milliseconds or an Arrow timestamp")
    if not pa.types.is_integer(column.type):
        return _cast(column, "timestamp", TIMESTAMP)
    column = _cast(column, "timestamp", pa.int64())
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if len(array) and array.null_count == 0:  # casts of small columns cost more than all else here
        numbers = np.asarray(array)
        if numbers.min() >= -_MAX_MULTIPLIED and numbers.max() <= _MAX_MULTIPLIED:
            return pa.array(numbers * 1000).view(TIMESTAMP)
    return _cast(array.cast(pa.timestamp("ms", tz="UTC")), "timestamp", TIMESTAMP)


def _check_timestamps(column: Any) -> tuple[int, int]:
    """The first and the last of them, in milliseconds."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if array.null_count == 0:
        numbers = np.asarray(array.view(pa.int64()))
        low, high = int(numbers.min()), int(numbers.max())
        if low >= 0 and high // 1000 <= MAX_TIMESTAMP_MS:
            return low // 1000, high // 1000
    bounds = pc.min_max(array.cast(pa.int64())).as_py()
    raise InvalidArgumentError(
        f"timestamps: got {array.null_count} nulls, from {bounds['min']} to {bounds['max']} µs; "
        f"expected no null and 0 to {MAX_TIMESTAMP_MS} ms"
    )


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
