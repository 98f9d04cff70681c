"""Data files of many plain records to record batches, by the compiled core: each value is copied once, from the file to
its place in a batch. What Arrow's columns and :mod:`~sparklog.gateway.records.encoding` make of a file is the same."""

from __future__ import annotations

from typing import Any

from sparklog._native import CORE
from sparklog.log.data.plain_reading import plain_column_ranges

__all__ = ["encode_plain_file"]


def encode_plain_file(
    data: Any,
    count: int,
    *,
    base_offset: int,
    start_offset: int,
    batch_bytes: int,
    most_bytes: int,
    is_append_time: bool,
) -> list[bytearray] | None:
    """The record batches of a file's records from ``start_offset`` on.

    Args:
        data: the file, as bytes or a buffer.
        count: its records, as the log has it, whose ``offset_delta`` counts from 0 on.
        batch_bytes, is_append_time: as :func:`~sparklog.gateway.records.encode_batches` has them.
        most_bytes: of a file that is read so.
    Returns:
        None: there is no core, the file isn't one of many plain records, or it isn't as expected.
    """
    if CORE is None:
        return None
    file = memoryview(data).cast("B")
    places = plain_column_ranges(file, count, most_bytes)
    if places is None:
        return None
    first = min(count, max(0, start_offset - base_offset))
    made: list[bytearray] | None = CORE.plain_batches(
        file, count, tuple(places), base_offset, first, batch_bytes, is_append_time
    )
    return made
