"""The bytes of a data file of a few records, put together by hand: Arrow's writer takes a quarter of a millisecond to
set itself up, whatever it writes. One page a column, plain values."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby

from sparklog.log.data.parquet_bytes import MAGIC, Chunk, bounds, data_page, footer, run

__all__ = ["encode_few_records"]


def encode_few_records(
    *,
    timestamps_us: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    producer_id: int,
    producer_epoch: int,
    sequences: Sequence[int],
) -> bytes:
    """A data file of these records, at least one, without headers. All sequences are of one length."""
    count = len(timestamps_us)
    present = _levels([True] * count)
    offset_deltas = range(count)
    int64, int32 = f"<{count}q", f"<{count}i"
    pages = (
        present + struct.pack(int64, *offset_deltas),
        present + struct.pack(int64, *timestamps_us),
        _byte_arrays(keys),
        _byte_arrays(values),
        present + struct.pack(int64, *[producer_id] * count),
        present + struct.pack(int32, *[producer_epoch] * count),
        present + struct.pack(int32, *sequences),
    )
    statistics = (
        bounds("<q", 0, count - 1),
        bounds("<q", min(timestamps_us), max(timestamps_us)),
        b"",
        b"",
        bounds("<q", producer_id, producer_id),
        b"",
        bounds("<i", min(sequences), max(sequences)),
    )
    parts, chunks = [MAGIC], []
    for page, of_column in zip(pages, statistics, strict=True):
        header = data_page(count, len(page))
        parts += (header, page)
        chunks.append(Chunk(len(header) + len(page), of_column))
    return b"".join((*parts, footer(count, chunks)))


def _byte_arrays(column: Sequence[bytes | None]) -> bytes:
    found = [_levels([value is not None for value in column])]
    for value in column:
        if value is not None:
            found += (struct.pack("<I", len(value)), value)
    return b"".join(found)


def _levels(present: Sequence[bool]) -> bytes:
    """Which values are there: definition levels in runs of equal ones."""
    runs = b"".join(run(len([*same]), level) for level, same in groupby(present))
    return struct.pack("<I", len(runs)) + runs
