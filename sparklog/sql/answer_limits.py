"""Bounds of what one answer takes in memory on its way out: of a cell, of a row, and of the rows that are rendered
together. Pure functions of Arrow's data.

DuckDB's own limit counts what it keeps, not what it has handed out: rendered as text, a row takes many times its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from sparklog.errors import InvalidArgumentError

__all__ = ["in_pieces"]

_MOST_CELL_BYTES = 2**20
_MOST_ROW_BYTES = 4 * 2**20
_VALUE_BYTES = 64
"""For a value, beside its bytes: a Python object, and a place in a list."""


def in_pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, as many together as take :data:`_MOST_ROW_BYTES` as Python's objects.

    Raises ``InvalidArgumentError``: a cell or a row is larger than its limit; names the column.
    """
    for batch in batches:
        yield from _pieces(batch)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    sizes = [_weight(column) for column in batch.columns]
    if batch.num_rows > 1 and sum(sizes) > _MOST_CELL_BYTES:
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half))
        yield from _pieces(batch.slice(half))
        return
    for name, size in zip(batch.schema.names, sizes, strict=True):
        if size > _MOST_CELL_BYTES:
            raise InvalidArgumentError(
                f"column {name!r}: a cell takes {size} bytes, expected at most {_MOST_CELL_BYTES}: select a part of it,"
                " such as left(text, 1000)"
            )
    if sum(sizes) > _MOST_ROW_BYTES:
        raise InvalidArgumentError(
            f"a row of {len(sizes)} columns takes {sum(sizes)} bytes, expected at most {_MOST_ROW_BYTES}: select less"
        )
    yield batch


def _weight(array: pa.Array) -> int:
    """About the bytes that values take as Python's objects."""
    return int(array.nbytes) + _VALUE_BYTES * _count(array)


def _count(array: pa.Array) -> int:
    """The number of values, at any depth."""
    kind = array.type
    if pa.types.is_struct(kind):
        return len(array) + sum(_count(array.field(at)) for at in range(kind.num_fields))
    if pa.types.is_map(kind):
        starts = array.offsets
        first, last = starts[0].as_py(), starts[-1].as_py()
        return len(array) + _count(array.keys[first:last]) + _count(array.items[first:last])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return len(array) + _count(array.flatten())
    return len(array)
