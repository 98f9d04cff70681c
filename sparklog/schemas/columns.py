"""Columns as values of a schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidArgumentError
from sparklog.schemas.canonical import TIMESTAMP, ValueSchema, type_name

__all__ = ["conform", "holds_years", "unreadable_leaf"]

_YEARS_IN_MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_YEARS_IN_DAYS = (-719_162, 2_932_896)
"""The years 1 to 9999, which Python's and Spark's dates and times are of."""


def conform(values: pa.Table | pa.RecordBatch | pa.StructArray, schema: ValueSchema) -> pa.StructArray:
    """Columns, or structs, as values of a schema: its fields in its order, at any depth, null where one is missing.

    A type is changed only into one that means the same and holds each value that is there: another size of integers,
    floats, texts or decimals, another unit of times, integers as decimals or floats, whole floats as integers. Texts
    aren't parsed, numbers don't become texts or times, times without a time zone get none.

    Raises ``InvalidArgumentError``: a column or nested field that the schema doesn't have, or one whose values don't
    fit; names it.
    """
    if isinstance(values, pa.StructArray):
        return _struct(values, schema.struct_type, "")
    given = {name: _one_array(values.column(at)) for at, name in enumerate(values.schema.names)}
    if len(given) < values.num_columns:
        raise InvalidArgumentError(f"columns {', '.join(values.schema.names)}: a name is there twice")
    columns = _columns(given, schema.struct_type, "", values.num_rows)
    return pa.StructArray.from_arrays(columns, fields=list(schema.arrow))


def _one_array(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _columns(given: Mapping[str, pa.Array], kind: pa.StructType, prefix: str, count: int) -> list[pa.Array]:
    names = [field.name for field in kind]
    unknown = [f"{prefix}{name}" for name in given if name not in names]
    if unknown:
        raise InvalidArgumentError(
            f"columns {', '.join(unknown)}: the schema doesn't have them; it has {', '.join(names[:20])}"
        )
    return [
        _cast(given[field.name], field.type, f"{prefix}{field.name}")
        if field.name in given
        else pa.nulls(count, field.type)
        for field in kind
    ]


def _struct(array: pa.StructArray, kind: pa.StructType, prefix: str) -> pa.StructArray:
    given = {field.name: array.field(at) for at, field in enumerate(array.type)}
    columns = _columns(given, kind, prefix, len(array))
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=_mask(array))


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _cast(array: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        return _struct(array, kind, f"{path}.")
    if pa.types.is_list(kind) and _is_list(array.type):
        return _list(array, kind, path)
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        return _map(array, kind, path)
    families = _family(array.type), _family(kind)
    if families[0] != families[1] and families not in _SAFE:
        raise _wrong(path, array.type, kind)
    try:
        found = array if array.type == kind else array.cast(kind)
    except pa.ArrowException as error:
        raise _wrong(path, array.type, kind, f": {error}") from error
    _check_floats(array, found, path)
    if not holds_years(found):
        raise InvalidArgumentError(f"column {path}: a {type_name(kind)} before year 1 or after year 9999")
    if not _is_unicode(found):
        raise InvalidArgumentError(f"column {path}: a text that isn't valid UTF-8")
    return found


def unreadable_leaf(column: pa.Array, path: str = "") -> str | None:
    """The first leaf of a column, at any depth, with a date, a time or a text that not every reader can have: its name,
    and what is wrong with it. None: there is none.

    Args:
        path: the name of the column.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        parts = [(column.field(at), field.name) for at, field in enumerate(kind)]
    elif pa.types.is_map(kind):
        parts = [(column.keys, "key"), (column.items, "value")]
    elif _is_list(kind):
        parts = [(column.values, "element")]
    elif not holds_years(column):
        return f"{path}: a {type_name(kind)} before year 1 or after year 9999"
    elif not _is_unicode(column):
        return f"{path}: a text that isn't valid UTF-8"
    else:
        return None
    return next((found for part, name in parts if (found := unreadable_leaf(part, f"{path}.{name}"))), None)


def _is_unicode(column: pa.Array) -> bool:
    if not pa.types.is_string(column.type):
        return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _list(array: Any, kind: pa.ListType, path: str) -> pa.Array:
    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    elements = _cast(array.values[start:end], kind.value_type, f"{path}.element")
    return pa.ListArray.from_arrays(_from_zero(array), elements, type=kind, mask=_mask(array))


def _map(array: pa.MapArray, kind: pa.MapType, path: str) -> pa.Array:
    start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    keys = _cast(array.keys[start:end], kind.key_type, f"{path}.key")
    items = _cast(array.items[start:end], kind.item_type, f"{path}.value")
    return pa.MapArray.from_arrays(_from_zero(array), keys, items, type=kind, mask=_mask(array))


def _from_zero(array: Any) -> pa.Array:
    return pc.subtract(array.offsets, array.offsets[0])


def _family(kind: pa.DataType) -> str:
    """The meaning of a type; types of a family differ in their size or unit."""
    return next((name for name, is_one in _FAMILIES.items() if is_one(kind)), str(kind))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    is_one = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(each(kind) for each in is_one)


_FAMILIES: Mapping[str, Callable[[pa.DataType], bool]] = {
    "integer": pa.types.is_integer,
    "float": pa.types.is_floating,
    "decimal": pa.types.is_decimal,
    "text": _is_text,
    "bytes": _is_bytes,
    "date": pa.types.is_date,
    "moment": _is_moment,
}
_SAFE = {("integer", "decimal"), ("integer", "float"), ("float", "integer")}
"""Families between which Arrow's cast keeps each value, or fails."""


def _check_floats(given: pa.Array, found: pa.Array, path: str) -> None:
    """Arrow rounds doubles to floats without a word: rounding is what floats do, becoming infinite isn't."""
    if pa.types.is_floating(given.type) and pa.types.is_float32(found.type) and given.type != found.type:
        before, after = (np.isinf(each.to_numpy(zero_copy_only=False)) for each in (given, found))
        if (after & ~before).any():
            raise _wrong(path, given.type, found.type, ": a value is too large")


def holds_years(column: pa.Array) -> bool:
    """Are the dates or times of a column, if that is what it holds, of the years 1 to 9999?"""
    if _is_moment(column.type):
        numbers, (low, high) = column.view(pa.int64()), _YEARS_IN_MICROSECONDS
    elif pa.types.is_date(column.type):
        numbers, (low, high) = column.view(pa.int32()), _YEARS_IN_DAYS
    else:
        return True
    ends = pc.min_max(numbers).as_py()
    return ends["min"] is None or bool(low <= ends["min"] <= ends["max"] <= high)


def _wrong(path: str, given: pa.DataType, kind: pa.DataType, reason: str = "") -> InvalidArgumentError:
    hint = " with a time zone" if pa.types.is_timestamp(given) and kind == TIMESTAMP and given.tz is None else ""
    return InvalidArgumentError(f"column {path}: got {given}, expected {type_name(kind)}{hint}{reason}")
