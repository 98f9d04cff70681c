"""The bounds of a typed topic's values in a file, as its statistics in Delta's log have them. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.iso_times import parse_date
from sparklog.log.data.segments import parse_timestamp
from sparklog.log.data.stats_columns import stats_columns
from sparklog.log.data.value_columns import DATA, Leaf

__all__ = ["bound_columns", "value_bounds"]

_US_PER_MS = 1_000


def value_bounds(
    stats: str | Mapping[str, Any], leaves: Sequence[tuple[Leaf, pa.DataType]]
) -> Iterator[tuple[Leaf, pa.Scalar | None, pa.Scalar | None]]:
    """For each leaf that the statistics tell of: no value is below the first scalar, nor above the second; None: nobody
    knows. Those of times are rounded outwards to whole milliseconds.

    Statistics that can't be read, whoever wrote them, tell nothing.
    """
    low, high = _sides(stats)
    for leaf, kind in leaves:
        bounds = _scalar(_at(low, leaf), kind, is_high=False), _scalar(_at(high, leaf), kind, is_high=True)
        if bounds != (None, None):
            yield leaf, *bounds


def bound_columns(
    stats: Sequence[str | Mapping[str, Any]], leaves: Sequence[tuple[Leaf, pa.DataType]]
) -> list[tuple[pa.Array, pa.Array]]:
    """The bounds of :func:`value_bounds` of many files: for each leaf the lower and the upper ones, a row for each
    file; null: nobody knows."""
    lows, highs = _values_of(stats, leaves)
    return [
        (_column(low, kind, is_high=False), _column(high, kind, is_high=True))
        for low, high, (_, kind) in zip(lows, highs, leaves, strict=True)
    ]


def _values_of(
    stats: Sequence[str | Mapping[str, Any]], leaves: Sequence[tuple[Leaf, pa.DataType]]
) -> tuple[list[list[Any]], list[list[Any]]]:
    """The least and the greatest values of each leaf, a row for each file; of texts all at once, where Arrow can."""
    texts = [one for one in stats if isinstance(one, str)]
    try:
        of_texts = _values_of_texts(texts, leaves) if texts and leaves else None
    except (pa.ArrowException, ValueError):  # a value as only Python understands it, or as nobody does
        of_texts = None
    sides = [_sides(one) for one in stats if of_texts is None or not isinstance(one, str)]
    found: tuple[list[list[Any]], list[list[Any]]] = ([], [])
    for side in (0, 1):
        for number, (leaf, _) in enumerate(leaves):
            values = [_at(one[side], leaf) for one in sides]
            if of_texts is not None:
                rows = {True: iter(of_texts[side][number]), False: iter(values)}
                values = [next(rows[isinstance(one, str)]) for one in stats]
            found[side].append(values)
    return found


def _values_of_texts(
    texts: Sequence[str], leaves: Sequence[tuple[Leaf, pa.DataType]]
) -> tuple[list[list[Any]], list[list[Any]]] | None:
    """The values of both sides in each text; None where a leaf is of a type whose values aren't read so.

    Raises ``ArrowException``, ``ValueError``: not all of them can be read so.
    """
    fields: dict[str, Any] = {}
    for leaf, kind in leaves:
        written = _written_as(kind)
        if written is None:
            return None
        within = fields
        for name in leaf[:-1]:
            within = within.setdefault(name, {})
        within[leaf[-1]] = written
    of_side = pa.struct([(DATA, _struct_of(fields))])
    table = stats_columns(pa.array(texts, pa.string()), pa.schema([("minValues", of_side), ("maxValues", of_side)]))
    low, high = (
        [pc.struct_field(table[side], [DATA, *leaf]).to_pylist() for leaf, _ in leaves]
        for side in ("minValues", "maxValues")
    )
    return low, high


def _written_as(kind: pa.DataType) -> pa.DataType | None:
    """The type in which the statistics of a leaf are read all at once."""
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.string() if pa.types.is_timestamp(kind) or pa.types.is_string(kind) else None


def _struct_of(fields: Mapping[str, Any]) -> pa.StructType:
    return pa.struct([(name, _struct_of(one) if isinstance(one, dict) else one) for name, one in fields.items()])


def _sides(stats: str | Mapping[str, Any]) -> tuple[Any, Any]:
    """The least and the greatest values, as the statistics have them."""
    try:
        found = json.loads(stats or "{}") if isinstance(stats, str) else stats
    except (ValueError, RecursionError):
        found = {}
    low, high = (_mapping(_mapping(found).get(side)).get(DATA) for side in ("minValues", "maxValues"))
    return low, high


def _column(values: Sequence[Any], kind: pa.DataType, *, is_high: bool) -> pa.Array:
    """The bounds of :func:`_scalar`; all at once where they are of the types that they are to be of."""
    try:
        found = _column_at_once(values, {*map(type, values)} - {type(None)}, kind, is_high=is_high)
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        found = None
    if found is None:
        found = pa.array([_scalar(value, kind, is_high=is_high) for value in values], kind)
    return found


def _column_at_once(values: Sequence[Any], types: set[type], kind: pa.DataType, *, is_high: bool) -> pa.Array | None:
    if pa.types.is_timestamp(kind) and types <= {str}:
        times = pc.floor_temporal(pa.array(values, pa.string()).cast(kind), unit="millisecond")
        return pc.add(times, pa.scalar(_US_PER_MS, pa.duration("us"))) if is_high else times
    if pa.types.is_floating(kind) and types <= {int, float}:
        found = pa.array(values, kind)
        return pc.if_else(pc.is_nan(found), pa.scalar(None, kind), found)
    if pa.types.is_integer(kind) and types <= {int}:
        return pa.array(values, kind)
    return pa.array(values, kind) if pa.types.is_string(kind) and types <= {str} else None


def _at(found: Any, leaf: Leaf) -> Any:
    for name in leaf:
        found = _mapping(found).get(name)
    return found


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _scalar(value: Any, kind: pa.DataType, *, is_high: bool) -> pa.Scalar | None:
    try:
        if pa.types.is_timestamp(kind):
            moment = parse_timestamp(value) * _US_PER_MS
            return pa.scalar(moment + (_US_PER_MS if is_high else 0), kind)
        read = next(read for is_one, read in _READERS if is_one(kind))
        return pa.scalar(read(value), kind)
    except (StopIteration, ValueError, TypeError, AttributeError, ArithmeticError, pa.ArrowException):
        return None


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # NaN bounds nothing
        raise TypeError(value)
    return value


def _float(value: Any) -> float:
    return float(_number(value))  # also an integer of so many digits that Arrow doesn't take it for a float


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


_READERS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]]] = (
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, lambda value: Decimal(repr(_number(value)))),
    (pa.types.is_string, _text),
    (pa.types.is_date, lambda value: parse_date(_text(value))),
)
