"""Values as Python objects: the check of one, many into a column and back."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidArgumentError, InvalidRecordError, InvalidTypeError
from sparklog.schemas.value_schema import ValueSchema, type_name

__all__ = ["as_mapping", "check_record", "conform", "python_rows_to_struct", "struct_to_python"]

_Check = Callable[[Any, str], None]
"""Raises ``InvalidRecordError`` unless a value, which isn't None, can be that of the field with this path."""
_MOST_SHOWN = 80
_EXACT_INTEGERS = 2**53
"""Above it a double can't tell one integer from the next."""
_ARROW_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)


def check_record(schema: ValueSchema, value: Any) -> None:
    """Check that a value is one of the schema: a dict, a dataclass or a pydantic model. None is a tombstone.

    Integers must fit, times must have a time zone, decimals must fit without rounding, texts must be valid Unicode;
    an integer may stand for a float, nothing else is converted. A field that the schema doesn't have is an error; one
    that isn't there is null.

    Raises:
        InvalidTypeError: it is none of these.
        InvalidRecordError: names the field, its type and what was seen.
    """
    if value is None:
        return
    check = schema.__dict__.get("_check")
    if check is None:
        check = schema.__dict__["_check"] = _struct_check(schema.struct_type)
    check(value if type(value) is dict else as_mapping(value), "")


def as_mapping(value: Any) -> Mapping[str, Any]:
    """A value's fields by name. Raises ``InvalidTypeError``: it has none."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _bare(getattr(value, field.name)) for field in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)  # of pydantic, which need not be there
    if dump is not None and not isinstance(value, type):
        return {name: _bare(each) for name, each in dump().items()}
    raise InvalidTypeError(f"value: got {_shown(value)}, expected a dict, a dataclass or a pydantic model")


def _bare(value: Any) -> Any:
    """The text of an enumeration's member, or of a UUID; any other value as it is."""
    if isinstance(value, enum.Enum):
        return value.value
    return str(value) if isinstance(value, uuid.UUID) else value


def python_rows_to_struct(
    schema: ValueSchema, rows: Sequence[Any], *, checked: bool = False
) -> tuple[pa.StructArray, dict[int, str]]:
    """Values as a column, and what is wrong with some of them, by place; those are null.

    Args:
        rows: as :func:`check_record` takes them.
        checked: it has taken all of them.
    """
    errors: dict[int, str] = {}
    given = list(rows)
    if not checked:
        for place, row in enumerate(given):
            try:
                check_record(schema, row)
            except (InvalidRecordError, InvalidTypeError) as error:
                errors[place], given[place] = str(error), None
    given = [row if row is None or type(row) is dict else _plain(row) for row in given]
    return _encoded(given, schema.struct_type, 0, errors), errors


def _encoded(rows: list[Any], kind: pa.StructType, first: int, errors: dict[int, str]) -> pa.StructArray:
    try:
        return pa.array(rows, kind)
    except _ARROW_ERRORS as error:
        if len(rows) == 1:
            errors[first] = f"value {_shown(rows[0])}: {error}"
            return pa.array([None], kind)
    middle = len(rows) // 2
    halves = [_encoded(rows[:middle], kind, first, errors), _encoded(rows[middle:], kind, first + middle, errors)]
    return pa.concat_arrays(halves)


def _plain(value: Any) -> Any:
    """The value with dicts for dataclasses and models, at any depth."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping) or dataclasses.is_dataclass(value) or hasattr(value, "model_dump"):
        return {name: _plain(each) for name, each in as_mapping(value).items()}
    return value


# The check of a field


def _check_of(kind: pa.DataType) -> _Check:
    if pa.types.is_struct(kind):
        return _struct_check(kind)
    if pa.types.is_list(kind):
        return _list_check(kind)
    if pa.types.is_map(kind):
        return _map_check(kind)
    if pa.types.is_integer(kind):
        return _integer_check(kind)
    if pa.types.is_decimal(kind):
        return _decimal_check(kind)
    return _simple_check(kind)


def _struct_check(kind: pa.StructType) -> _Check:
    checks = {field.name: _check_of(field.type) for field in kind}
    exact = {field.name: _EXACT.get(field.type, object) for field in kind}
    known = ", ".join(list(checks)[:20])

    def check(value: Any, path: str) -> None:
        if type(value) is not dict:
            value = _mapping_at(value, path, kind)
        for name, each in value.items():
            if each is None or type(each) is exact.get(name):
                continue
            found = checks.get(name)
            if found is None:
                raise InvalidRecordError(f"field {path}{name}: the schema doesn't have it; it has {known}")
            found(each, f"{path}{name}")

    def nested(value: Any, path: str) -> None:
        check(value, f"{path}." if path else "")

    return nested


def _mapping_at(value: Any, path: str, kind: pa.DataType) -> Mapping[str, Any]:
    try:
        return as_mapping(value)
    except InvalidTypeError:
        raise _wrong(value, path.removesuffix("."), kind) from None


_EXACT: Mapping[pa.DataType, type] = {pa.bool_(): bool, pa.float64(): float, pa.binary(): bytes}
"""Types whose every value is right."""


def _list_check(kind: pa.DataType) -> _Check:
    check_element = _check_of(kind.value_type)

    def check(value: Any, path: str) -> None:
        if not isinstance(value, list | tuple):
            raise _wrong(value, path, kind)
        for place, each in enumerate(value):
            if each is not None:
                check_element(each, f"{path}[{place}]")

    return check


def _map_check(kind: pa.DataType) -> _Check:
    check_key, check_value = _check_of(kind.key_type), _check_of(kind.item_type)

    def check(value: Any, path: str) -> None:
        pairs = value.items() if isinstance(value, Mapping) else value
        if not isinstance(value, Mapping | list | tuple):
            raise _wrong(value, path, kind)
        for pair in pairs:
            if not (isinstance(pair, tuple | list) and len(pair) == 2):
                raise _wrong(value, path, kind)
            if pair[0] is None:
                raise InvalidRecordError(f"field {path}: a key of {type_name(kind)} is null")
            check_key(pair[0], f"{path}.key")
            if pair[1] is not None:
                check_value(pair[1], f"{path}[{_shown(pair[0])}]")

    return check


def _integer_check(kind: pa.DataType) -> _Check:
    low, high = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1

    def check(value: Any, path: str) -> None:
        if type(value) is not int and not isinstance(value, np.integer):
            raise _wrong(value, path, kind)
        if not low <= value <= high:
            raise InvalidRecordError(f"field {path}: got {_shown(value)}, expected {low} to {high} ({type_name(kind)})")

    return check


def _decimal_check(kind: pa.DataType) -> _Check:
    def check(value: Any, path: str) -> None:
        if type(value) is int:
            value = decimal.Decimal(value)
        if not isinstance(value, decimal.Decimal):
            raise _wrong(value, path, kind)
        _, digits, exponent = value.as_tuple()
        fits = isinstance(exponent, int) and -exponent <= kind.scale
        if not (fits and len(digits) + int(exponent) <= kind.precision - kind.scale):
            raise InvalidRecordError(
                f"field {path}: {_shown(value)} doesn't fit into {type_name(kind)} without rounding"
            )

    return check


def _simple_check(kind: pa.DataType) -> _Check:
    is_right = _IS_RIGHT[kind]

    def check(value: Any, path: str) -> None:
        if not is_right(value):
            raise _wrong(value, path, kind)

    return check


def _is_text(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _is_float(value: Any) -> bool:
    if type(value) is int:
        return -_EXACT_INTEGERS <= value <= _EXACT_INTEGERS
    return isinstance(value, float | np.floating)


_IS_RIGHT: Mapping[pa.DataType, Callable[[Any], bool]] = {
    pa.bool_(): lambda value: isinstance(value, bool | np.bool_),
    pa.float32(): _is_float,
    pa.float64(): _is_float,
    pa.string(): _is_text,
    pa.binary(): lambda value: isinstance(value, bytes | bytearray),
    pa.date32(): lambda value: isinstance(value, datetime.date) and not isinstance(value, datetime.datetime),
    pa.timestamp("us", "UTC"): lambda value: isinstance(value, datetime.datetime) and value.utcoffset() is not None,
}


def _wrong(value: Any, path: str, kind: pa.DataType) -> InvalidRecordError:
    hint = ""
    if isinstance(value, datetime.datetime) and pa.types.is_timestamp(kind):
        hint = " with a time zone"
    return InvalidRecordError(f"field {path}: got {_shown(value)}, expected {type_name(kind)}{hint}")


def _shown(value: Any) -> str:
    text = repr(value)
    text = text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"
    return f"{text} ({type(value).__name__})"


# Back


def struct_to_python(array: pa.StructArray) -> list[dict[str, Any] | None]:
    """The values of a column as dicts, null as None; times in UTC."""
    names = [field.name for field in array.type]
    columns = [_to_list(_child(array, at)) for at in range(len(names))]
    rows: list[dict[str, Any] | None] = [dict(zip(names, each, strict=True)) for each in zip(*columns, strict=True)]
    if array.null_count:
        for place in np.flatnonzero(~np.asarray(array.is_valid())):
            rows[place] = None
    return rows


def _child(array: pa.StructArray, at: int) -> pa.Array:
    return array.field(at)  # of a slice, its slice


def _to_list(array: pa.Array) -> list[Any]:
    kind = array.type
    if pa.types.is_struct(kind):
        return struct_to_python(array)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _numbers(array)
    if pa.types.is_timestamp(kind):
        utc = datetime.timezone.utc
        return [value and value.replace(tzinfo=utc) for value in _moments(array)]
    if pa.types.is_list(kind):
        return _lists(array, _to_list(array.flatten()))
    if pa.types.is_map(kind):
        keys, values = _to_list(_flat(array).field(0)), _to_list(_flat(array).field(1))
        return [pairs and dict(pairs) for pairs in _lists(array, list(zip(keys, values, strict=True)), empty={})]
    return list(array.to_pylist())


def _numbers(array: pa.Array) -> list[Any]:
    if array.null_count == 0:
        return list(np.asarray(array).tolist())
    found = np.asarray(array.fill_null(0)).tolist()
    for place in np.flatnonzero(~np.asarray(array.is_valid())):
        found[place] = None
    return list(found)


def _moments(array: pa.Array) -> list[Any]:
    found = _numbers(array.view(pa.int64()))
    epoch = datetime.datetime(1970, 1, 1)
    delta = datetime.timedelta
    return [None if value is None else epoch + delta(microseconds=value) for value in found]


def _flat(array: pa.MapArray) -> pa.Array:
    """The entries of all maps, as structs."""
    offsets = array.offsets
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    return pa.StructArray.from_arrays([array.keys[start:end], array.items[start:end]], names=["key", "value"])


def _lists(array: Any, elements: list[Any], empty: Any = None) -> list[Any]:
    """The elements of each list."""
    lengths = pc.list_value_length(array) if pa.types.is_list(array.type) else _map_lengths(array)
    found: list[Any] = []
    at = 0
    for length in lengths.to_pylist():
        if length is None:
            found.append(None)
            continue
        each = elements[at : at + length]
        found.append(each if each or empty is None else empty)
        at += length
    return found


def _map_lengths(array: pa.MapArray) -> pa.Array:
    offsets = np.asarray(array.offsets)
    return pa.array(offsets[1:] - offsets[:-1], mask=~np.asarray(array.is_valid()))


def conform(values: pa.Table | pa.RecordBatch | pa.StructArray, schema: ValueSchema) -> pa.StructArray:
    """Columns, or structs, as values of a schema: in its order, null where a field is missing, cast where nothing
    is lost.

    Raises ``InvalidArgumentError``: a column that the schema doesn't have, or one whose values don't fit; names it.
    """
    if isinstance(values, pa.StructArray):
        given = {field.name: values.field(at) for at, field in enumerate(values.type)}
        mask = ~np.asarray(values.is_valid()) if values.null_count else None
    else:
        given = {name: _one_array(values.column(at)) for at, name in enumerate(values.schema.names)}
        mask = None
    unknown = [name for name in given if name not in schema.arrow.names]
    if unknown:
        raise InvalidArgumentError(
            f"columns {', '.join(unknown)}: the schema doesn't have them; it has {', '.join(schema.arrow.names)}"
        )
    count = len(values) if isinstance(values, pa.StructArray) else values.num_rows
    columns = [_cast(given.get(field.name), field, count) for field in schema.arrow]
    return pa.StructArray.from_arrays(columns, fields=list(schema.arrow), mask=None if mask is None else pa.array(mask))


def _one_array(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _cast(column: pa.Array | None, field: pa.Field, count: int) -> pa.Array:
    if column is None:
        return pa.nulls(count, field.type)
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise InvalidArgumentError(
            f"column {field.name}: got {column.type}, expected {type_name(field.type)}: {error}"
        ) from error
