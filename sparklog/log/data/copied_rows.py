"""Rows of many plain records as the compiled core has copied them out of their file, not yet Arrow's.

To make a batch of them, and to ask it for its size and its buffers, takes 75 µs, and gives Python's lock away a dozen
times. So the thread that reads files for a consumer doesn't: who makes records needs no batch, and who polls batches
makes each in the thread that polls.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.log.data.schema import HEADERS, RECORD_SCHEMA, TIMESTAMP

__all__ = ["CopiedRows"]

_OFFSET_BYTES = 8


@dataclass(frozen=True, eq=False)
class CopiedRows:
    """Plain records, which have no headers and whose offsets count one by one."""

    memory: pa.Buffer
    """The records of the whole file, whichever of them these are."""
    parts: tuple[int, ...]
    """The places in it where the parts begin: times (int64, µs), and of keys and of values the validity (bits), the
    ends (int32) and the data. Behind them its size."""
    null_counts: tuple[int, int]
    """The number of nulls among all keys and among all values in it."""
    file_count: int
    """The number of records in it."""
    first: int
    """The place of the first of these."""
    base_offset: int
    """The offset of the first of these."""
    num_rows: int
    """The number of these; named as Arrow names it."""

    @property
    def offsets(self) -> range:
        """The offset of each."""
        return range(self.base_offset, self.base_offset + self.num_rows)

    @property
    def nbytes(self) -> int:
        """About the memory that they take; named as Arrow names it."""
        return self.parts[-1] * self.num_rows // self.file_count + _OFFSET_BYTES * self.num_rows

    def slice(self, start: int, count: int | None = None) -> CopiedRows:
        """The rows from ``start`` on, at most ``count``."""
        start = min(start, self.num_rows)
        left = self.num_rows - start if count is None else min(count, self.num_rows - start)
        if left == self.num_rows:
            return self
        first, offset = self.first + start, self.base_offset + start
        return CopiedRows(self.memory, self.parts, self.null_counts, self.file_count, first, offset, left)

    @cached_property
    def _buffers(self) -> list[pa.Buffer]:
        ends = zip(self.parts, self.parts[1:], strict=False)
        return [self.memory.slice(start, end - start) for start, end in ends]

    def plain_columns(self) -> tuple[pa.Array, pa.Array, pa.Array]:
        """The timestamps, keys and values."""
        times, *others = self._buffers
        is_whole = self.num_rows == self.file_count
        keys, values = (
            pa.Array.from_buffers(
                pa.binary(),
                self.num_rows,
                [of[0] if null_count else None, *of[1:]],
                null_count if is_whole or not null_count else -1,
                self.first,
            )
            for of, null_count in zip((others[:3], others[3:]), self.null_counts, strict=True)
        )
        return pa.Array.from_buffers(TIMESTAMP, self.num_rows, [None, times], 0, self.first), keys, values

    def places(self) -> tuple[npt.NDArray[np.int64], tuple[tuple[Any, ...], ...]]:
        """The offsets; and the buffers of offsets, timestamps, keys and values, each with the place of its first value
        in them, as the compiled core takes them."""
        offsets = np.arange(self.base_offset, self.base_offset + self.num_rows)
        times, *others = self._buffers
        (key_bits, *keys), (value_bits, *values) = others[:3], others[3:]
        key_nulls, value_nulls = self.null_counts
        return offsets, (
            (None, offsets, 0),
            (None, times, self.first),
            (key_bits if key_nulls else None, *keys, self.first),
            (value_bits if value_nulls else None, *values, self.first),
        )

    def to_batch(self) -> pa.RecordBatch:
        """The rows as a batch of :data:`~sparklog.log.data.schema.RECORD_SCHEMA`."""
        offsets = pa.array(np.arange(self.base_offset, self.base_offset + self.num_rows))
        columns = [offsets, *self.plain_columns(), pa.nulls(self.num_rows, HEADERS)]
        return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
