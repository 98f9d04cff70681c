"""Arrow columns to record batches, by the compiled core. In pure Python: the numbers by numpy, and Arrow puts the
pieces of all records together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog._native import CORE
from sparklog.gateway.records.batches import (
    CODECS,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    batch_with_header,
    write_header,
)
from sparklog.gateway.records.compression import compress
from sparklog.log.data.varints import encode_varints

__all__ = ["encode_batches", "encode_empty_batch", "encode_records_pure"]

_Ints = npt.NDArray[np.int64]
_NOBODY = -1
_MAX_DELTA = 2**31 - 1
_CODEC_BITS = {name: bits for bits, name in CODECS.items()}


def encode_batches(
    records: pa.Table, *, batch_bytes: int = 1_048_576, codec: str | None = None, is_append_time: bool = False
) -> Iterator[bytearray]:
    """Record batches of about a size.

    Args:
        records: columns ``offset`` (int64, rising), ``timestamp`` (int64 ms), ``key``, ``value`` (binary), ``headers``.
        batch_bytes: keys and values of a batch; a record is never cut.
        codec: gzip, snappy, lz4 or zstd; None: none.
        is_append_time: the log set the timestamps. Clients take the greatest of a batch for all of its records then, so
            each batch holds records of one timestamp.
    """
    records = records.combine_chunks()
    if is_append_time:
        for part in _of_one_time(records):
            yield from _batches(part, batch_bytes, codec, LOG_APPEND_TIME_BIT)
    else:
        yield from _batches(records, batch_bytes, codec, 0)


def encode_empty_batch(first_offset: int, last_offset: int) -> bytearray:
    """A batch without records, which takes its reader beyond ``last_offset``: as Kafka's cleaner leaves where the last
    records of a log are gone. It covers the offsets from the first on, or as many as a batch can. Source: Kafka
    ``DefaultRecordBatch.writeEmptyHeader``."""
    first = max(first_offset, last_offset - _MAX_DELTA)
    return batch_with_header(
        BatchHeader(
            base_offset=first,
            attributes=0,
            last_offset_delta=last_offset - first,
            base_timestamp_ms=-1,
            max_timestamp_ms=-1,
            producer_id=_NOBODY,
            producer_epoch=_NOBODY,
            base_sequence=_NOBODY,
            count=0,
            records=memoryview(b""),
        )
    )


def _of_one_time(records: pa.Table) -> Iterator[pa.Table]:
    times = records["timestamp"].to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(times)) + 1).tolist(), len(times)]
    return (records.slice(start, end - start) for start, end in pairwise(bounds))


def _batches(records: pa.Table, batch_bytes: int, codec: str | None, bits: int) -> Iterator[bytearray]:
    """``bits`` are attributes beside that of the codec."""
    sizes = sum(
        pc.fill_null(pc.binary_length(records[name]), 0).to_numpy().astype(np.int64) for name in ("key", "value")
    )
    ends = np.cumsum(sizes + 8)
    offsets = records["offset"].to_numpy()
    start, before = 0, 0
    while start < records.num_rows:
        end = max(start + 1, int(np.searchsorted(ends, before + batch_bytes, side="right")))
        end = min(end, int(np.searchsorted(offsets, offsets[start] + _MAX_DELTA, side="right")))
        yield _batch(records.slice(start, end - start), codec, bits)
        start, before = end, int(ends[end - 1])


def _batch(records: pa.Table, codec: str | None, bits: int) -> bytearray:
    offsets, times = (records[name].to_numpy().astype(np.int64, copy=False) for name in ("offset", "timestamp"))
    header = BatchHeader(
        base_offset=int(offsets[0]),
        attributes=_CODEC_BITS[codec] | bits,
        last_offset_delta=int(offsets[-1] - offsets[0]),
        base_timestamp_ms=int(times[0]),
        max_timestamp_ms=int(times.max()),
        producer_id=_NOBODY,
        producer_epoch=_NOBODY,
        base_sequence=_NOBODY,
        count=records.num_rows,
        records=memoryview(b""),
    )
    whole = _by_core(CORE, records, times, offsets) if CORE is not None else None
    if whole is not None and codec is None:
        write_header(header, whole)
        return whole
    raw = encode_records_pure(records, times, offsets) if whole is None else memoryview(whole)[HEADER_BYTES:]
    return batch_with_header(replace(header, records=raw if codec is None else memoryview(compress(raw, codec))))


def _by_core(core: ModuleType, records: pa.Table, times: _Ints, offsets: _Ints) -> bytearray:
    """The records behind room for their header."""
    keys, values = (_one_array(records[name]) for name in ("key", "value"))
    headers = _one_array(records["headers"])
    rows = None if headers.null_count == len(headers) else _header_rows(headers)
    made: bytearray = core.encode_records(
        HEADER_BYTES,
        np.ascontiguousarray(offsets),
        np.ascontiguousarray(times),
        *((*column.buffers(), column.offset) for column in (keys, values)),
        rows,
    )
    return made


def encode_records_pure(records: pa.Table, times: _Ints, offsets: _Ints) -> memoryview:
    """The records of a batch, in pure Python."""
    times, deltas = times - times[0], offsets - offsets[0]
    keys, values = _one_array(records["key"]), _one_array(records["value"])
    headers, header_sizes = _headers(_one_array(records["headers"]))
    key_sizes, value_sizes = (
        pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False).astype(np.int64)
        for column in (keys, values)
    )
    pieces = [_zigzags(numbers) for numbers in (times, deltas, key_sizes, value_sizes)]
    sizes = 1 + sum(size for _, size in pieces) + np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + header_sizes
    (time, _), (delta, _), (key_size, _), (value_size, _) = pieces
    nothing = pa.scalar(b"", pa.binary())
    joined = pc.binary_join_element_wise(
        _zigzags(sizes)[0],
        pa.scalar(b"\0", pa.binary()),
        time,
        delta,
        key_size,
        pc.fill_null(keys, b""),
        value_size,
        pc.fill_null(values, b""),
        headers,
        nothing,
    )
    _, bounds, data = joined.buffers()
    first, last = np.frombuffer(bounds, np.int32)[[joined.offset, joined.offset + len(joined)]]
    return memoryview(data)[first:last]


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)  # not copied
    array = column.combine_chunks()
    return array.chunk(0) if isinstance(array, pa.ChunkedArray) else array


def _zigzags(numbers: _Ints) -> tuple[pa.Array, _Ints]:
    """Each number as bytes, and how many they are."""
    left = (numbers << 1 ^ numbers >> 63).view(np.uint64)
    sizes = np.ones(len(left), np.int64)
    for bits in range(7, 64, 7):
        larger = left >= np.uint64(1) << np.uint64(bits)
        if not larger.any():
            break
        sizes += larger
    bounds = np.zeros(len(left) + 1, np.int32)
    np.cumsum(sizes, out=bounds[1:])
    out = np.empty(int(bounds[-1]), np.uint8)
    for number in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > number)
        part = left[rows] >> np.uint64(7 * number) & np.uint64(127)
        goes_on = np.where(sizes[rows] > number + 1, 128, 0)
        out[bounds[rows] + number] = part.astype(np.uint8) | goes_on.astype(np.uint8)
    return pa.Array.from_buffers(pa.binary(), len(left), [None, pa.py_buffer(bounds), pa.py_buffer(out)]), sizes


def _headers(column: pa.Array) -> tuple[pa.Array | pa.Scalar, _Ints]:
    rows = _header_rows(column)
    if rows is None:
        return pa.scalar(b"\0", pa.binary()), np.ones(len(column), np.int64)
    return pa.array(rows, pa.binary()), np.array([len(row) for row in rows], np.int64)


def _header_rows(column: pa.Array) -> list[bytes] | None:
    """The headers of each record as the format has them; None: nobody has any."""
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    if not counts.any():
        return None
    rows = [b"\0"] * len(column)
    for row in np.flatnonzero(counts):
        rows[row] = _row(column[int(row)].as_py())
    return rows


def _row(headers: list[dict[str, bytes | str | None]]) -> bytes:
    out = bytearray(encode_varints([len(headers)]))
    for header in headers:
        key, value = str(header["key"] or "").encode(), header["value"]
        out += encode_varints([len(key)]) + key
        if isinstance(value, bytes):
            out += encode_varints([len(value)]) + value
        else:
            out += encode_varints([-1])
    return bytes(out)
