"""Values as Python objects: the check of one, and many into a column."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa

from sparklog.errors import InvalidRecordError, InvalidTypeError
from sparklog.schemas.canonical import ValueSchema, type_name

__all__ = ["as_mapping", "check_record", "has_fields", "python_rows_to_struct"]

_Check = Callable[[Any, str], None]
"""Raises ``InvalidRecordError`` unless a value, which isn't None, can be that of the field with this path."""
_MOST_SHOWN = 80
_EXACT_INTEGERS = 2**53
"""Above it a double can't represent every integer."""
_EXACT_FLOATS = 2**24
"""The same of a float of 32 bits."""
_MOST_OF_FLOATS = 2.0**128 - 2.0**103
"""From here on a double is rounded to infinity as a float of 32 bits."""
_EXACT_DECIMALS = decimal.Context(
    prec=38, Emax=999_999, Emin=-999_999, traps=[decimal.Inexact, decimal.InvalidOperation]
)
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


def has_fields(value: Any) -> bool:
    """Is it a dict, a dataclass or a pydantic model?"""
    is_object = dataclasses.is_dataclass(value) or hasattr(value, "model_dump")  # pydantic need not be there
    return isinstance(value, Mapping) or (is_object and not isinstance(value, type))


def as_mapping(value: Any) -> Mapping[str, Any]:
    """A value's fields by name. Raises ``InvalidTypeError``: it has none."""
    if isinstance(value, Mapping):
        return value
    if has_fields(value):
        if dataclasses.is_dataclass(value):
            return {field.name: _bare(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {name: _bare(each) for name, each in value.model_dump().items()}
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
    given = [row if row is None or type(row) is dict else as_mapping(row) for row in given]
    try:
        return pa.array(given, schema.struct_type), errors
    except _ARROW_ERRORS:  # by a value that must be converted first, or one that was changed since its check
        plain = [row if row is None else _plain(row, schema.struct_type) for row in given]
    return _encoded(plain, schema.struct_type, 0, errors), errors


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


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value of a type as Arrow takes it: dicts for dataclasses, models and other mappings, pairs for maps, decimals
    with the digits of their column, at any depth. One of another shape is left as it is, and Arrow refuses it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        types = {field.name: field.type for field in kind}
        try:
            fields = as_mapping(value)
        except InvalidTypeError:
            return value
        return {name: _plain(each, types[name]) if name in types else each for name, each in fields.items()}
    if pa.types.is_list(kind) and isinstance(value, list | tuple):
        return [_plain(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        if not isinstance(value, Mapping | list | tuple) or any(len(pair) != 2 for pair in pairs):
            return value
        return [(_plain(key, kind.key_type), _plain(each, kind.item_type)) for key, each in pairs]
    if pa.types.is_decimal(kind) and isinstance(value, decimal.Decimal) and value.is_finite():
        try:
            return value.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_EXACT_DECIMALS)
        except decimal.DecimalException:
            return value
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
    exact = {field.name: _EXACT[field.type] for field in kind if field.type in _EXACT}
    known = ", ".join(list(checks)[:20])

    def check(value: Any, path: str) -> None:
        if type(value) is not dict:
            value = _mapping_at(value, path, kind)
        for name, each in value.items():
            if each is None or type(each) is exact.get(name):
                continue
            found = checks.get(name)
            if found is None:
                raise InvalidRecordError(f"field {path}{_cut(str(name))}: the schema doesn't have it; it has {known}")
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
        if not (_is_integer(value) or isinstance(value, np.integer)):
            raise _wrong(value, path, kind)
        if not low <= value <= high:
            raise InvalidRecordError(f"field {path}: got {_shown(value)}, expected {low} to {high} ({type_name(kind)})")

    return check


def _decimal_check(kind: pa.DataType) -> _Check:
    def check(value: Any, path: str) -> None:
        if _is_integer(value):
            value = decimal.Decimal(value)
        if not isinstance(value, decimal.Decimal):
            raise _wrong(value, path, kind)
        if not _fits(value, kind):
            raise InvalidRecordError(
                f"field {path}: {_shown(value)} doesn't fit into {type_name(kind)} without rounding"
            )

    return check


def _fits(value: decimal.Decimal, kind: pa.Decimal128Type) -> bool:
    """Without rounding? NaN and infinities don't."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return False
    zeros = next((place for place, digit in enumerate(reversed(digits)) if digit), None)
    if zeros is None:
        return True
    return bool(-(exponent + zeros) <= kind.scale and len(digits) + exponent <= kind.precision - kind.scale)


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


def _is_integer(value: Any) -> TypeGuard[int]:
    """Whether it is an int, or of a subclass, as an ``IntEnum``'s members are; a bool isn't one."""
    return type(value) is int or (isinstance(value, int) and not isinstance(value, bool))


def _is_float(value: Any) -> bool:
    if _is_integer(value):
        return -_EXACT_INTEGERS <= value <= _EXACT_INTEGERS
    return isinstance(value, float | np.floating)


def _is_float32(value: Any) -> bool:
    """Rounding is what a float of 32 bits does; becoming infinite isn't."""
    if _is_integer(value):
        return -_EXACT_FLOATS <= value <= _EXACT_FLOATS
    return isinstance(value, float | np.floating) and not _MOST_OF_FLOATS <= abs(float(value)) < math.inf


def _is_moment(value: Any) -> bool:
    if not isinstance(value, datetime.datetime):
        return False
    if value.tzinfo is datetime.UTC:
        return True
    try:
        return value.utcoffset() is not None and bool(value.astimezone(datetime.UTC))
    except OverflowError:  # before year 1 or after year 9999 in UTC, where no datetime could be read back
        return False


_IS_RIGHT: Mapping[pa.DataType, Callable[[Any], bool]] = {
    pa.bool_(): lambda value: isinstance(value, bool | np.bool_),
    pa.float32(): _is_float32,
    pa.float64(): _is_float,
    pa.string(): _is_text,
    pa.binary(): lambda value: isinstance(value, bytes | bytearray),
    pa.date32(): lambda value: isinstance(value, datetime.date) and not isinstance(value, datetime.datetime),
    pa.timestamp("us", "UTC"): _is_moment,
}


def _wrong(value: Any, path: str, kind: pa.DataType) -> InvalidRecordError:
    hint = ""
    if isinstance(value, datetime.datetime) and pa.types.is_timestamp(kind):
        hint = " with a time zone" if value.utcoffset() is None else " of the years 1 to 9999 in UTC"
    return InvalidRecordError(f"field {path}: got {_shown(value)}, expected {type_name(kind)}{hint}")


def _shown(value: Any) -> str:
    return f"{_cut(repr(value))} ({type(value).__name__})"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"
