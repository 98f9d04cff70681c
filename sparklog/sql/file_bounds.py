"""Expressions of Arrow's that hold for every record of a file or row group, and those that a filter rules out by them.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from sparklog.log.data.schema import TIMESTAMP
from sparklog.log.data.segments import Segment
from sparklog.log.data.value_bounds import value_bounds
from sparklog.log.data.value_columns import Leaf

__all__ = ["ColumnBounds", "FileBounds", "between", "known_times", "known_values", "not_ruled_out"]

_PARTS = 8
"""Parts of a stretch of files that are judged next, where it may have what is looked for."""


def between(field: Any, low: Any, high: Any) -> Any:
    """An expression: no value of the field is below ``low`` or above ``high``, each None where that isn't known.

    Two comparisons that each allow null, since that is the form in which Arrow draws conclusions from them.
    """
    known = pc.scalar(True)
    if low is not None:
        known &= (field >= low) | field.is_null()
    if high is not None:
        known &= (field <= high) | field.is_null()
    return known


def known_times(segment: Segment) -> Any:
    """An expression of the log's bounds of the timestamps of a segment's records."""
    low, high = segment.min_timestamp_ms, segment.max_timestamp_ms
    # Statistics are cut to milliseconds, foreign records may have microseconds.
    return between(
        ds.field("timestamp"),
        None if low is None else _time_us(low * 1_000),
        None if high is None else _time_us(high * 1_000 + 999),
    )


def known_values(
    stats: str | Mapping[str, Any], leaves: Sequence[tuple[Leaf, pa.DataType]], field_of: Callable[[Leaf], Any]
) -> Any:
    """An expression of a file's statistics of the values of every record.

    Args:
        field_of: the field that a leaf is.
    """
    known = pc.scalar(True)
    for leaf, low, high in value_bounds(stats, leaves) if stats else ():
        known &= between(field_of(leaf), low, high)
    return known


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The bounds of a column in each of many files."""

    field: Any
    """The column, or a field of it, as an expression."""
    low: pa.Array
    high: pa.Array
    """Bounds of all of a file's values; null: unknown."""
    is_constant: bool = False
    """Have all records of a file the one value, and is it never null?"""

    def known(self, first: int, count: int) -> Any:
        """An expression that holds for every record of some files in a row."""
        low, high = _least(self.low.slice(first, count)), _greatest(self.high.slice(first, count))
        if self.is_constant and low is not None and low == high:
            return self.field == low
        return between(self.field, low, high)


def _least(bounds: pa.Array) -> Any:
    if bounds.null_count:
        return None
    return bounds[0] if len(bounds) == 1 else pc.min(bounds)


def _greatest(bounds: pa.Array) -> Any:
    if bounds.null_count:
        return None
    return bounds[0] if len(bounds) == 1 else pc.max(bounds)


class FileBounds:
    """The bounds of some columns in each of many files.

    An expression of Arrow's costs tens of microseconds, and so does asking whether a filter rules it out. Therefore
    stretches of files are judged first, then their parts: files in a row mostly have values that are close.
    """

    def __init__(self, columns: Sequence[ColumnBounds], count: int) -> None:
        """
        Args:
            count: of the files.
        """
        self._columns = columns
        self._count = count
        self._made: dict[tuple[int, int], Any] = {}
        """The expressions of stretches, and of files, that were needed so far."""

    def places_left(self, schema: pa.Schema, filter: Any) -> list[int]:
        """The places of the files, in their order, of which a filter may hold.

        Args:
            schema: of the columns, at least those of the filter.
        """
        length = _PARTS
        while length < self._count:
            length *= _PARTS
        places: Sequence[int] = range(min(self._count, 1))
        while length > 1:
            ends = [min(first + length, self._count) for first in places]
            length //= _PARTS
            parts = [at for first, end in zip(places, ends, strict=True) for at in range(first, end, length)]
            left = not_ruled_out([self._known(at, length) for at in parts], schema, filter)
            places = [parts[at] for at in left]
        return list(places)

    def _known(self, first: int, count: int) -> Any:
        expression = self._made.get((first, count))
        if expression is None:
            expression = pc.scalar(True)
            for column in self._columns:
                expression &= column.known(first, count)
            self._made[first, count] = expression
        return expression


def not_ruled_out(known: Sequence[Any], schema: pa.Schema, filter: Any) -> list[int]:
    """The places of those, in their order, of which a filter may hold.

    Args:
        known: for each file or row group an expression that holds for all of it.
        schema: of the columns, at least those of the filter.
    """
    format_, nowhere = ds.ParquetFileFormat(), pafs.LocalFileSystem()
    fragments = [
        format_.make_fragment(str(place), filesystem=nowhere, partition_expression=expression)
        for place, expression in enumerate(known)
    ]
    dataset = ds.FileSystemDataset(fragments, schema, format_, filesystem=nowhere)
    return [int(fragment.path) for fragment in dataset.get_fragments(filter)]


def _time_us(microseconds: int) -> Any:
    return pa.scalar(microseconds, TIMESTAMP)
