"""Schemas of dataclasses and pydantic models: the types of their fields."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from sparklog.schemas.canonical import SchemaError, ValueSchema, canonical_schema

__all__ = ["has_fields", "schema_of_class"]

_TYPES: Mapping[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.date: pa.date32(),
    datetime.datetime: pa.timestamp("us", "UTC"),
    uuid.UUID: pa.string(),
}


def has_fields(source: Any) -> bool:
    """Is it a dataclass, or a pydantic model's class?"""
    return isinstance(source, type) and (dataclasses.is_dataclass(source) or hasattr(source, "model_fields"))


def schema_of_class(source: type) -> ValueSchema:
    """The schema of a dataclass or a pydantic model: int is a long, float a double,
    ``Annotated[Decimal, pa.decimal128(10, 2)]`` (or another Arrow type) says what the annotation alone doesn't.

    Raises ``SchemaError``: a field's type that has no counterpart, or a class that holds itself.
    """
    return canonical_schema(_struct_of(source, "", ()))


def _struct_of(source: type, prefix: str, within: tuple[type, ...]) -> pa.StructType:
    if source in within:
        raise SchemaError(
            f"field {prefix.removesuffix('.')}: {source.__name__} holds itself; recursive types can't be columns"
        )
    hints = typing.get_type_hints(source, include_extras=True)
    fields = getattr(source, "model_fields", None)
    names = list(fields) if fields is not None else [field.name for field in dataclasses.fields(source)]
    return pa.struct([(name, _type_of(hints[name], f"{prefix}{name}", (*within, source))) for name in names])


def _type_of(hint: Any, path: str, within: tuple[type, ...]) -> pa.DataType:
    if hint in _TYPES:
        return _TYPES[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        given = next((each for each in arguments[1:] if isinstance(each, pa.DataType)), None)
        return given if given is not None else _type_of(arguments[0], path, within)
    if origin in (typing.Union, types.UnionType):
        return _optional(arguments, path, within)
    if origin in (list, tuple, set, frozenset) and arguments and (origin is not tuple or arguments[1:] == (...,)):
        return pa.list_(_type_of(arguments[0], f"{path}.element", within))
    if origin is dict:
        return pa.map_(_type_of(arguments[0], f"{path}.key", within), _type_of(arguments[1], f"{path}.value", within))
    if origin is typing.Literal and all(isinstance(each, str) for each in arguments):
        return pa.string()
    if isinstance(hint, type) and issubclass(hint, enum.Enum) and all(isinstance(each.value, str) for each in hint):
        return pa.string()
    if has_fields(hint):
        return _struct_of(hint, f"{path}.", within)
    if hint is decimal.Decimal:
        raise SchemaError(f"field {path}: a Decimal needs its digits: Annotated[Decimal, pa.decimal128(10, 2)]")
    raise SchemaError(
        f"field {path}: {hint} can't be a column; expected bool, int, float, str, bytes, date, datetime, Decimal with "
        "its digits, a list, a dict, a dataclass or a model, each perhaps Optional"
    )


def _optional(arguments: tuple[Any, ...], path: str, within: tuple[type, ...]) -> pa.DataType:
    kinds = [each for each in arguments if each is not type(None)]
    if len(kinds) == 1:
        return _type_of(kinds[0], path, within)
    raise SchemaError(f"field {path}: a union of {len(kinds)} types; expected one type, perhaps Optional")
