"""Expressions of Arrow's that hold for every record of a file or row group, and those that a filter rules out by them.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from sparklog.log.data.schema import TIMESTAMP
from sparklog.log.data.segments import Segment
from sparklog.log.data.value_bounds import value_bounds
from sparklog.log.data.value_columns import Leaf

__all__ = ["between", "known_times", "known_values", "not_ruled_out"]


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
    """An expression of what the log tells of the timestamps of a segment's records."""
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
    """An expression of what a file's statistics tell of the values of every record.

    Args:
        field_of: the field that a leaf is.
    """
    known = pc.scalar(True)
    for leaf, low, high in value_bounds(stats, leaves) if stats else ():
        known &= between(field_of(leaf), low, high)
    return known


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
