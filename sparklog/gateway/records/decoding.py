"""Record batches to Arrow columns, by the compiled core. In pure Python: a loop over the records' lengths alone, the
rest by numpy and Arrow.

There a column of keys is a ``take`` from an array whose elements are the pieces of all records one after the other:
[head | key | between | value]. So nothing is copied but by Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog._native import CORE
from sparklog.gateway.records.batches import BatchError, BatchHeader, TooLargeError
from sparklog.gateway.records.compression import decompress
from sparklog.log.data.schema import HEADERS
from sparklog.log.data.varints import decode_varints

__all__ = ["DecodedRows", "decode_batches", "decode_batches_pure", "decode_parts", "decode_rows"]

_FEW_HEADERS = 1_000
"""So many are read by Python in a few milliseconds."""

_Ints = npt.NDArray[np.int64]
_SENT = pa.schema(
    [
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("partition", pa.int32()),
    ]
)
_SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)


def decode_batches(batches: Sequence[BatchHeader], *, limit_bytes: int) -> pa.Table:
    """The records of batches, in their order.

    Args:
        limit_bytes: of all records together, once decompressed; less than 2 GiB.
    Returns:
        Columns ``offset`` (int64), ``timestamp`` (int64 ms), ``key``, ``value`` (binary), ``headers``.
    Raises:
        BatchError: the records aren't as many as the header says, or lie outside of it, or are more than the limit.
    """
    parts = _parts(batches, limit_bytes)
    if CORE is not None:
        rows = _by_core(CORE, parts, batches)
        if rows is not None:
            return rows.table
    return _pure(parts, batches)  # which also says what is wrong with records that the core has refused


def decode_batches_pure(batches: Sequence[BatchHeader], *, limit_bytes: int) -> pa.Table:
    """Does the same as :func:`decode_batches`, in pure Python."""
    return _pure(_parts(batches, limit_bytes), batches)


def _parts(batches: Sequence[BatchHeader], limit_bytes: int) -> list[bytes | memoryview]:
    """The records of each batch, decompressed."""
    parts, left = [], limit_bytes
    for batch in batches:
        part = batch.records if batch.codec is None else decompress(batch.records, batch.codec, limit_bytes=left)
        left -= len(part)
        if left < 0:
            raise TooLargeError(f"records of more than {limit_bytes} bytes")
        parts.append(part)
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRows:
    """Records as the compiled core has read them, and what it saw on its way."""

    table: pa.Table
    size_bytes: int
    """Bytes of the columns."""
    least_timestamp_ms: int
    largest_bytes: int
    """The most that a record's key and value have together."""


def decode_rows(batches: Sequence[BatchHeader], partition: int, *, limit_bytes: int) -> DecodedRows | None:
    """The records of one partition with the columns that a producer's batch has: as :func:`decode_batches`, with
    ``partition`` in place of ``offset``. None: there is no compiled core, some records aren't as they should be, or
    they have so many headers that an event loop shouldn't read them."""
    return None if CORE is None else _by_core(CORE, _parts(batches, limit_bytes), batches, partition)


def decode_parts(batches: Sequence[tuple[Any, ...]], parts: Sequence[bytes | memoryview]) -> DecodedRows | None:
    """Read batches that the core has found in requests, as :func:`decode_rows` does.

    Args:
        batches: as ``produce_request`` of the core has them.
        parts: the records of each, decompressed.
    """
    if CORE is None:
        return None
    partitions, _, _, _, last_deltas, counts, base_times, append_times, *_ = zip(*batches, strict=True)
    columns = CORE.decode_records(parts, last_deltas, counts, [0] * len(parts), base_times, append_times)
    return None if columns is None else _rows(columns, parts, np.repeat(np.array(partitions, np.int32), counts))


def _by_core(
    core: ModuleType,
    parts: Sequence[bytes | memoryview],
    batches: Sequence[BatchHeader],
    partition: int | None = None,
) -> DecodedRows | None:
    """None: some records aren't as their format says, or those of a ``partition`` have more than a few headers.

    Args:
        partition: a column of it, in place of that of the offsets.
    """
    columns = core.decode_records(
        parts,
        [batch.last_offset_delta for batch in batches],
        [batch.count for batch in batches],
        [batch.base_offset for batch in batches],
        [batch.base_timestamp_ms for batch in batches],
        [batch.max_timestamp_ms if batch.is_log_append_time else None for batch in batches],
    )
    if columns is None:
        return None
    return _rows(columns, parts, partition)


def _rows(
    found: tuple[Any, ...], parts: Sequence[bytes | memoryview], partition: int | npt.NDArray[np.int32] | None
) -> DecodedRows | None:
    """Make a table of what the core has read; see :func:`_by_core`. ``partition``: of all records, or of each."""
    offsets, times, keys, values, headers, least, largest = found
    total = len(offsets) // 8
    if partition is not None and sum(count for *_, count in headers) > _FEW_HEADERS:
        return None
    raw = {number: bytes(parts[number]) for number in {number for _, number, *_ in headers}}  # once, not for each row
    rows = ((row, raw[number], at, count, end) for row, number, at, end, count in headers)
    columns = [
        pa.Array.from_buffers(pa.int64(), total, [None, pa.py_buffer(times)]),
        *(
            pa.Array.from_buffers(
                pa.binary(), total, [None if buffer is None else pa.py_buffer(buffer) for buffer in column]
            )
            for column in (keys, values)
        ),
        _headers(total, rows),
    ]
    if partition is None:
        numbers = pa.Array.from_buffers(pa.int64(), total, [None, pa.py_buffer(offsets)])
        table = pa.Table.from_arrays([numbers, *columns], schema=_SCHEMA)
    else:
        of_each = np.full(total, partition, np.int32) if isinstance(partition, int) else partition
        table = pa.Table.from_arrays([*columns, pa.array(of_each)], schema=_SENT)
    size = sum(len(buffer) for buffer in (offsets, times, *keys[1:], *values[1:])) + sum(
        end - at for _, _, at, end, _ in headers
    )
    return DecodedRows(table=table, size_bytes=size, least_timestamp_ms=least, largest_bytes=largest)


def _pure(parts: Sequence[bytes | memoryview], batches: Sequence[BatchHeader]) -> pa.Table:
    starts, begin = [], 0
    for part, batch in zip(parts, batches, strict=True):
        starts += _starts(part, batch.count, begin)
        begin += len(part)
    raw = bytes(parts[0]) if len(parts) == 1 else b"".join(parts)
    counts = np.array([batch.count for batch in batches], np.int64)
    return _columns(raw, np.array(starts, np.int64).reshape(-1, 2), batches, counts)


def _starts(part: bytes | memoryview, count: int, begin: int) -> list[tuple[int, int]]:
    """Where each record begins behind its length, and where it ends, counted from ``-begin``."""
    data = bytes(part)
    end, at = len(data), 0
    if count * 7 > end:  # the least that a record takes; before memory is taken for them
        raise BatchError(f"{count} records in {end} bytes")
    starts: list[tuple[int, int]] = []
    for _ in range(count):
        if at >= end:
            raise BatchError(f"a batch of {count} records ends after {len(starts)}")
        byte = data[at]
        if byte < 128:
            size, at = byte >> 1 ^ -(byte & 1), at + 1
        else:
            size, at = _length(data, at)
        if size < 6 or size > end - at:
            raise BatchError(f"a record of {size} bytes where {end - at} are left")
        starts.append((at + begin, at + size + begin))
        at += size
    if at != end:
        raise BatchError(f"{end - at} bytes behind the {count} records of a batch")
    return starts


def _length(data: bytes, at: int) -> tuple[int, int]:
    try:
        (size,), behind = decode_varints(data, at, 1)
    except ValueError as error:
        raise BatchError(str(error)) from error
    return size, behind


def _varints(data: npt.NDArray[np.uint8], at: _Ints, ends: _Ints) -> tuple[_Ints, _Ints]:
    """The zigzag numbers at positions, and the positions behind them; each ends before its ``ends``."""
    if (at >= ends).any():
        raise BatchError("a record ends within a number")
    byte = data[at]
    value = (byte & 127).astype(np.uint64)
    behind = at + 1
    more = np.flatnonzero(byte > 127)
    shift = 7
    while more.size:
        if shift > 63 or (behind[more] >= ends[more]).any():
            raise BatchError("a record ends within a number, or it takes more than 64 bits")
        byte = data[behind[more]]
        if shift == 63 and (byte > 1).any():
            raise BatchError("a number that takes more than 64 bits")
        value[more] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        behind[more] += 1
        more = more[byte > 127]
        shift += 7
    return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), behind


def _sized(at: _Ints, sizes: _Ints, ends: _Ints) -> _Ints:
    """Where bytes of sizes end; -1: null, which has none."""
    if (sizes < -1).any() or (sizes > ends - at).any():
        raise BatchError("a key or value that is larger than its record")
    return at + np.maximum(sizes, 0)


def _columns(raw: bytes, spans: _Ints, batches: Sequence[BatchHeader], counts: _Ints) -> pa.Table:
    at, ends = spans[:, 0], spans[:, 1]
    data, total = np.frombuffer(raw, np.uint8), len(at)
    times, behind = _varints(data, at + 1, ends)  # after the attributes, which mean nothing yet
    deltas, behind = _varints(data, behind, ends)
    key_sizes, keys = _varints(data, behind, ends)
    keys_end = _sized(keys, key_sizes, ends)
    value_sizes, values = _varints(data, keys_end, ends)
    values_end = _sized(values, value_sizes, ends)
    header_counts, headers = _varints(data, values_end, ends)
    if (header_counts < 0).any() or (headers[header_counts == 0] != ends[header_counts == 0]).any():
        raise BatchError("a record that doesn't end after its headers")
    _check_deltas(deltas, batches)
    bounds = np.zeros(4 * total + 1, np.int32)
    bounds[0::4][:total], bounds[1::4], bounds[2::4], bounds[3::4] = at, keys, keys_end, values
    bounds[4::4] = values_end
    if total:
        bounds[0] = at[0]
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(raw)]
    cells = pa.Array.from_buffers(pa.binary(), 4 * total, buffers)
    first_cell = np.arange(total, dtype=np.int32) * 4
    base_times = np.repeat(np.array([batch.base_timestamp_ms for batch in batches], np.int64), counts)
    base_offsets = np.repeat(np.array([batch.base_offset for batch in batches], np.int64), counts)
    return pa.table(
        {
            "offset": pa.array(base_offsets + deltas),
            "timestamp": pa.array(_times(base_times + times, batches, counts)),
            "key": cells.take(pa.array(first_cell + 1, mask=key_sizes < 0)),
            "value": cells.take(pa.array(first_cell + 3, mask=value_sizes < 0)),
            "headers": _headers(
                total,
                (
                    (row, raw, int(headers[row]), int(header_counts[row]), int(ends[row]))
                    for row in np.flatnonzero(header_counts).tolist()
                ),
            ),
        }
    )


def _times(times: _Ints, batches: Sequence[BatchHeader], counts: _Ints) -> _Ints:
    appended = np.repeat(np.array([batch.is_log_append_time for batch in batches], bool), counts)
    if not appended.any():
        return times
    return np.where(
        appended, np.repeat(np.array([batch.max_timestamp_ms for batch in batches], np.int64), counts), times
    )


def _check_deltas(deltas: _Ints, batches: Sequence[BatchHeader]) -> None:
    at = 0
    for batch in batches:
        of_batch = deltas[at : at + batch.count]
        at += batch.count
        if batch.count and (
            of_batch[0] < 0 or of_batch[-1] > batch.last_offset_delta or (np.diff(of_batch) <= 0).any()
        ):
            raise BatchError("a batch whose offset deltas don't rise from 0 to the last one")


def _headers(total: int, entries: Iterable[tuple[int, bytes, int, int, int]]) -> pa.Array:
    """The column of headers: of each row that has some, the bytes, where they begin, how many, and their end."""
    rows: list[list[dict[str, object]] | None] = []
    for row, raw, at, count, end in entries:
        rows += [None] * (row - len(rows))
        rows.append(_row_headers(raw, at, count, end))
    if not rows:
        return pa.nulls(total, HEADERS)
    return pa.array([*rows, *[None] * (total - len(rows))], HEADERS)


def _row_headers(raw: bytes, at: int, count: int, end: int) -> list[dict[str, object]]:
    headers: list[dict[str, object]] = []
    if count * 2 > end - at:
        raise BatchError(f"{count} headers in {end - at} bytes")
    for _ in range(count):
        size, at = _length(raw, at)
        if not 0 <= size <= end - at:
            raise BatchError(f"a header's key of {size} bytes where {end - at} are left")
        try:
            key = raw[at : at + size].decode()
        except UnicodeDecodeError as error:
            raise BatchError(f"a header's key that isn't UTF-8: {error}") from error
        size, at = _length(raw, at + size)
        if not -1 <= size <= end - at:
            raise BatchError(f"a header's value of {size} bytes where {end - at} are left")
        headers.append({"key": key, "value": None if size < 0 else raw[at : at + size]})
        at += max(0, size)
    if at != end:
        raise BatchError(f"{end - at} bytes behind the headers of a record")
    return headers
