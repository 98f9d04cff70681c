"""Statistics of a typed topic's values, as Delta's ``add`` action has them: minima, maxima and numbers of nulls of the
indexed leaves, by which any engine skips files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from sparklog.arrow import pa, pc
from sparklog.log.data.segments import format_timestamp
from sparklog.log.data.value_columns import DATA, Leaf, leaf_column

__all__ = ["ValueStats", "merged_stats", "stats_of_facts", "value_stats"]

_TEXT_CHARACTERS = 32
"""The length of a text in the statistics. Source: Delta ``StatisticsCollection.truncateMinStringAgg``."""
_EPOCH = date(1970, 1, 1)
_AFTER_ALL = "\U0010ffff"

Bounds = tuple[Any, Any]


class ValueStats:
    """Gathers the statistics of the leaves of ``data``, piece by piece as a file is written."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self._leaves = tuple(leaves)
        self._nulls = dict.fromkeys(self._leaves, 0)
        self._bounds: dict[Leaf, Bounds] = {}
        self._unbounded: set[Leaf] = set()
        self._record_count = 0

    def add(self, values: pa.Array | pa.ChunkedArray | None, record_count: int) -> None:
        """Count the next records' values: the column ``data``; None where the records don't have it."""
        self._record_count += record_count
        for leaf in self._leaves:
            column = None if values is None else _leaf_column(values, leaf)
            if column is None:
                self._nulls[leaf] += record_count
                continue
            self._nulls[leaf] += column.null_count
            if leaf not in self._unbounded and column.null_count < len(column):
                self._add_bounds(leaf, column)

    def _add_bounds(self, leaf: Leaf, column: pa.Array | pa.ChunkedArray) -> None:
        found = _bounds(column)
        if found is None:
            self._unbounded.add(leaf)
            self._bounds.pop(leaf, None)
            return
        low, high = found
        known = self._bounds.get(leaf, (low, high))
        self._bounds[leaf] = (min(low, known[0]), max(high, known[1]))

    def put_facts(self, leaf: Leaf, null_count: int, bounds: Bounds | None) -> None:
        """Say what :meth:`facts` is to say of a leaf."""
        self._nulls[leaf] = null_count
        if bounds is not None:
            self._bounds[leaf] = bounds

    def facts(self, leaf: Leaf) -> tuple[int, Bounds | None]:
        """A leaf's number of nulls, and its least and greatest value: dates as days, times as microseconds since the
        epoch. None: it has no value, or one that has no order."""
        return self._nulls[leaf], self._bounds.get(leaf)

    def to_delta(self, values: pa.StructType) -> dict[str, dict[str, Any]]:
        """``minValues``, ``maxValues`` and ``nullCount``, each with nothing but the column ``data``; empty without
        leaves.

        Args:
            values: the type of the column.
        """
        lows: dict[str, Any] = {}
        highs: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for leaf in self._leaves:
            _put(nulls, leaf, self._nulls[leaf])
            if leaf in self._bounds:
                kind = _leaf_type(values, leaf)
                low, high = self._bounds[leaf]
                shown_low, shown_high = _shown_low(low, kind), _shown_high(high, kind)
                if shown_low is not None and shown_high is not None:
                    _put(lows, leaf, shown_low)
                    _put(highs, leaf, shown_high)
        sides = {"minValues": lows, "maxValues": highs, "nullCount": nulls}
        return {side: {DATA: found} for side, found in sides.items() if found}


def _bounds(column: pa.Array | pa.ChunkedArray) -> Bounds | None:
    """Least and greatest value; of dates and times as numbers, as another engine may have written some that Python
    doesn't have. None where there can't be any: engines differ in where NaN is, and JSON has no infinity."""
    if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
        return None
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    try:
        low, high = pc.min_max(column).as_py().values()
    except UnicodeDecodeError:
        return None
    return low, high


def value_stats(values: pa.Array | pa.ChunkedArray, leaves: Sequence[Leaf]) -> Mapping[str, Mapping[str, Any]]:
    """The statistics of one column ``data``, as :meth:`ValueStats.to_delta`."""
    stats = ValueStats(leaves)
    stats.add(values, len(values))
    return stats.to_delta(values.type)


def stats_of_facts(
    facts: Mapping[Leaf, tuple[int, Bounds | None]],
    values: pa.StructType,
    leaves: Sequence[Leaf],
    record_count: int,
) -> Mapping[str, Mapping[str, Any]]:
    """The statistics of one column ``data`` of which all is known already, as :meth:`ValueStats.to_delta`.

    Args:
        facts: of each leaf that the values have, as :meth:`ValueStats.facts` has them.
        values: the type of the column.
    """
    stats = ValueStats(leaves)
    for leaf in leaves:
        stats.put_facts(leaf, *facts.get(leaf, (record_count, None)))
    return stats.to_delta(values)


def merged_stats(stats: Mapping[str, Any], more: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A file's statistics with those of its values."""
    return {**stats, **{side: {**stats.get(side, {}), **found} for side, found in more.items()}}


def _leaf_column(values: pa.Array | pa.ChunkedArray, leaf: Leaf) -> pa.Array | pa.ChunkedArray | None:
    kind: Any = values.type
    for name in leaf:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(name).type
    return leaf_column(values, leaf)


def _leaf_type(values: pa.StructType, leaf: Leaf) -> pa.DataType:
    kind: Any = values
    for name in leaf:
        kind = kind.field(name).type
    return kind


def _put(into: dict[str, Any], leaf: Leaf, value: Any) -> None:
    for name in leaf[:-1]:
        into = into.setdefault(name, {})
    into[leaf[-1]] = value


def _shown_low(value: Any, kind: pa.DataType) -> Any:
    """A minimum as Delta writes it, or less; None where it can't be written."""
    if pa.types.is_timestamp(kind):
        return _timestamp(value // 1000)
    if pa.types.is_date(kind):
        return _date(value)
    if isinstance(value, str):
        return value[:_TEXT_CHARACTERS]
    if isinstance(value, float) and value == 0:
        return -0.0  # as Parquet has it: some engines order it before 0.0, and a file may hold both
    return _plain(value)


def _shown_high(value: Any, kind: pa.DataType) -> Any:
    """A maximum as Delta writes it, or more; None where it can't be written."""
    if pa.types.is_timestamp(kind):
        return _timestamp(-(-value // 1000))
    if pa.types.is_date(kind):
        return _date(value)
    if isinstance(value, float) and value == 0:
        return 0.0
    if isinstance(value, str) and len(value) > _TEXT_CHARACTERS:
        cut = value[:_TEXT_CHARACTERS]
        return cut + _AFTER_ALL if value[_TEXT_CHARACTERS] < _AFTER_ALL else None
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        as_float = float(value)
        # JSON's numbers are decimals, Python's encoder writes none: only what a float keeps exactly.
        return as_float if math.isfinite(as_float) and Decimal(repr(as_float)) == value else None
    return value


def _date(days: int) -> str | None:
    try:
        return (_EPOCH + timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def _timestamp(milliseconds: int) -> str | None:
    try:
        return format_timestamp(milliseconds)
    except OverflowError:
        return None
