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

from sparklog.schemas.canonical import Declaration, SchemaError, ValueSchema, canonical_schema

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


class _Reading(typing.NamedTuple):
    """The classes that a field is in, and what all fields read so far declare beside their types."""

    within: tuple[type, ...]
    declarations: list[Declaration]


def schema_of_class(source: type) -> ValueSchema:
    """The schema of a dataclass or a pydantic model: int is a long, float a double,
    ``Annotated[Decimal, pa.decimal128(10, 2)]`` (or another Arrow type) says what the annotation alone doesn't.

    Raises ``SchemaError``: a field's type that has no counterpart, or a class that holds itself.
    """
    reading = _Reading((), [])
    schema = canonical_schema(_struct_of(source, "", reading))
    return dataclasses.replace(schema, declarations=tuple(reading.declarations))


def _defaults(source: type) -> dict[str, str | None]:
    """The fields of a class, each with its default as a text; None: it has none, or None."""
    models = getattr(source, "model_fields", None)
    if models is not None:
        return {name: _default_of_model(field) for name, field in models.items()}
    return {field.name: _default_text(field.default, field.default_factory) for field in dataclasses.fields(source)}


def _default_of_model(field: Any) -> str | None:
    return None if field.is_required() else _default_text(field.default, field.default_factory)


def _default_text(default: Any, factory: Any) -> str | None:
    if hasattr(default, "is_required"):  # pydantic's ``Field(…)`` in a dataclass of pydantic's
        return _default_of_model(default)
    if default is dataclasses.MISSING:
        default = None
    if factory is not None and factory is not dataclasses.MISSING:
        return f"of {getattr(factory, '__name__', factory)}()"
    return None if default is None else repr(default)


def _struct_of(source: type, prefix: str, reading: _Reading) -> pa.StructType:
    if source in reading.within:
        raise SchemaError(
            f"field {prefix.removesuffix('.')}: {source.__name__} holds itself; recursive types can't be columns"
        )
    hints = typing.get_type_hints(source, include_extras=True)
    fields = getattr(source, "model_fields", None)
    names = list(fields) if fields is not None else [field.name for field in dataclasses.fields(source)]
    for name, default in _defaults(source).items():
        if default is not None:
            reading.declarations.append(Declaration(f"{prefix}{name}", default))
    inner = reading._replace(within=(*reading.within, source))
    return pa.struct([(name, _type_of(hints[name], f"{prefix}{name}", inner)) for name in names])


def _type_of(hint: Any, path: str, reading: _Reading) -> pa.DataType:
    if hint in _TYPES:
        return _TYPES[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        given = next((each for each in arguments[1:] if isinstance(each, pa.DataType)), None)
        return given if given is not None else _type_of(arguments[0], path, reading)
    if origin in (typing.Union, types.UnionType):
        return _optional(arguments, path, reading)
    if origin in (list, tuple, set, frozenset) and arguments and (origin is not tuple or arguments[1:] == (...,)):
        return pa.list_(_type_of(arguments[0], f"{path}.element", reading))
    if origin is dict:
        return pa.map_(_type_of(arguments[0], f"{path}.key", reading), _type_of(arguments[1], f"{path}.value", reading))
    if origin is typing.Literal and all(isinstance(each, str) for each in arguments):
        return pa.string()
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        kinds = {type(each.value) for each in hint}
        if kinds == {int} or all(issubclass(kind, str) for kind in kinds):
            return pa.int64() if kinds == {int} else pa.string()
    if has_fields(hint):
        return _struct_of(hint, f"{path}.", reading)
    if hint is decimal.Decimal:
        raise SchemaError(f"field {path}: a Decimal needs its digits: Annotated[Decimal, pa.decimal128(10, 2)]")
    raise SchemaError(
        f"field {path}: {hint} can't be a column; expected bool, int, float, str, bytes, date, datetime, Decimal with "
        "its digits, a list, a dict, a dataclass or a model, each perhaps Optional"
    )


def _optional(arguments: tuple[Any, ...], path: str, reading: _Reading) -> pa.DataType:
    kinds = [each for each in arguments if each is not type(None)]
    if len(kinds) == 1:
        return _type_of(kinds[0], path, reading)
    raise SchemaError(f"field {path}: a union of {len(kinds)} types; expected one type, perhaps Optional")
