"""Values of a schema as the compiled core packs them: what it has to know of the schema, and the columns it returns."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from sparklog._native import CORE
from sparklog.schemas.canonical import TIMESTAMP, ValueSchema

__all__ = ["column_of_parts", "packer_of"]

_KINDS: Mapping[pa.DataType, tuple[str, int]] = {
    pa.bool_(): ("boolean", 1),
    pa.int8(): ("integer", 1),
    pa.int16(): ("integer", 2),
    pa.int32(): ("integer", 4),
    pa.int64(): ("integer", 8),
    pa.float32(): ("float", 4),
    pa.float64(): ("double", 8),
    pa.string(): ("text", 0),
    pa.binary(): ("bytes", 0),
    pa.date32(): ("date", 4),
    TIMESTAMP: ("moment", 8),
}
"""The core's name of each type, and the bytes of a value; 0: they differ."""
_DECIMAL_BYTES = 16
_EXACT = decimal.Context(prec=38, Emax=999_999, Emin=-999_999, traps=[decimal.Inexact, decimal.InvalidOperation])

_Field = tuple[str, int, str, tuple[Any, ...]]
_Prepare = Callable[[Any], Any]
"""Returns a value with bytes for its decimals; raises ``_NotPlainError``."""


class _NotPlainError(Exception):
    """The check of the schema has to look at the value."""


def packer_of(schema: ValueSchema) -> Any:
    """The core's packer for values of a schema, the same at each call; None: there is no core."""
    if CORE is None:
        return None
    if "_packer" not in schema.__dict__:
        kind = schema.struct_type
        schema.__dict__["_packer"] = CORE.Packer(kind, _fields(kind), _preparation(kind))
    return schema.__dict__["_packer"]


def column_of_parts(kind: pa.DataType, parts: tuple[Any, ...]) -> pa.Array:
    """A column of the core's as Arrow's, without a copy but of booleans.

    Args:
        parts: number of values, validity, offsets, data, and the parts of its children.
    """
    count, is_valid, offsets, data, children = parts
    validity = None if is_valid is None else _bits(is_valid)
    if pa.types.is_struct(kind):
        columns = [column_of_parts(field.type, child) for field, child in zip(kind, children, strict=True)]
        return pa.Array.from_buffers(kind, count, [validity], children=columns)
    if pa.types.is_list(kind):
        columns = [column_of_parts(kind.value_type, children[0])]
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(offsets)], children=columns)
    if pa.types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        columns = [column_of_parts(entries, (children[0][0], None, None, None, children))]
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(offsets)], children=columns)
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, count, [validity, _bits(data)])
    if offsets is not None:
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(data)])


def _bits(flags: Any) -> pa.Buffer:
    """A byte a value as a bit a value."""
    return pa.py_buffer(np.packbits(np.frombuffer(flags, np.uint8), bitorder="little"))


def _fields(kind: pa.StructType) -> tuple[_Field, ...]:
    """The fields of a struct as the core's packer takes them."""
    return tuple(_field(field.name, field.type) for field in kind)


def _field(name: str, kind: pa.DataType) -> _Field:
    if pa.types.is_struct(kind):
        return ("struct", 0, name, _fields(kind))
    if pa.types.is_list(kind):
        return ("list", 0, name, (_field("element", kind.value_type),))
    if pa.types.is_map(kind):
        return ("map", 0, name, (_field("key", kind.key_type), _field("value", kind.item_type)))
    if pa.types.is_decimal(kind):
        return ("decimal", _DECIMAL_BYTES, name, ())
    return (*_KINDS[kind], name, ())


# Decimals, which only Python's own module can read.


def _preparation(kind: pa.StructType) -> _Prepare | None:
    """The function that replaces the decimals of a value; None: it has none."""
    prepare = _prepare_of(kind)
    if prepare is None:
        return None

    def prepared(value: Any) -> Any:
        try:
            return prepare(value)
        except _NotPlainError:
            return None

    return prepared


def _prepare_of(kind: pa.DataType) -> _Prepare | None:
    if pa.types.is_decimal(kind):
        return _decimal_bytes(kind.precision, kind.scale)
    if pa.types.is_struct(kind):
        found = {field.name: prepare for field in kind if (prepare := _prepare_of(field.type)) is not None}
        return _in_struct(found) if found else None
    if pa.types.is_list(kind):
        element = _prepare_of(kind.value_type)
        return None if element is None else _in_list(element)
    if pa.types.is_map(kind):
        key, value = _prepare_of(kind.key_type), _prepare_of(kind.item_type)
        return None if key is None and value is None else _in_map(key or _unchanged, value or _unchanged)
    return None


def _unchanged(value: Any) -> Any:
    return value


def _decimal_bytes(precision: int, scale: int) -> _Prepare:
    unit, bound = decimal.Decimal(1).scaleb(-scale), 10**precision

    def prepare(value: Any) -> bytes:
        number: int
        if type(value) is int:
            number = value * 10**scale if -bound < value < bound else bound
        elif type(value) is decimal.Decimal and value.is_finite():
            try:
                number = int(value.quantize(unit, context=_EXACT).scaleb(scale, context=_EXACT))
            except decimal.DecimalException:
                raise _NotPlainError from None
        else:
            raise _NotPlainError
        if not -bound < number < bound:
            raise _NotPlainError
        return number.to_bytes(_DECIMAL_BYTES, "little", signed=True)

    return prepare


def _in_struct(prepares: Mapping[str, _Prepare]) -> _Prepare:
    def prepare(value: Any) -> Any:
        if type(value) is not dict:
            raise _NotPlainError
        given = dict(value)
        for name, each in prepares.items():
            found = given.get(name)
            if found is not None:
                given[name] = each(found)
        return given

    return prepare


def _in_list(prepare_element: _Prepare) -> _Prepare:
    def prepare(value: Any) -> Any:
        if type(value) is not list and type(value) is not tuple:
            raise _NotPlainError
        return [None if each is None else prepare_element(each) for each in value]

    return prepare


def _in_map(prepare_key: _Prepare, prepare_value: _Prepare) -> _Prepare:
    def prepare(value: Any) -> Any:
        if type(value) is not dict or None in value:
            raise _NotPlainError
        return {prepare_key(key): None if each is None else prepare_value(each) for key, each in value.items()}

    return prepare
