"""Bytes to the values that handlers are annotated with, and values to bytes."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
from collections.abc import Callable, Mapping
from datetime import date, datetime
from functools import lru_cache, partial
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from sparklog.errors import InvalidTypeError
from sparklog.iso_times import parse_date, parse_time

__all__ = ["Decode", "decoder_of", "encode"]

Decode = Callable[[bytes], Any]

_PLAIN = (bytes, pa.Table, pa.RecordBatch)
_SCALARS = (str, int, float, bool, type(None))
_TEXTS: dict[Any, Callable[[str], Any]] = {datetime: parse_time, date: parse_date}


def decoder_of(kind: Any) -> Decode | None:
    """The function that makes a value of a record's bytes; None: the bytes are the value.

    Args:
        kind: bytes (or an Arrow table, for batches): as they are; str: UTF-8; a pydantic model or a dataclass: from a
            JSON object; Any, dict, list, numbers and unions of all these: from JSON.
    Raises:
        InvalidTypeError: values of this type can't be made of bytes.
    """
    if kind in _PLAIN:
        return None
    if kind is str:
        return _text
    validate = getattr(kind, "model_validate_json", None)
    if validate is not None:
        decode: Decode = validate
        return decode
    _check(kind)
    return partial(_from_json, kind)


def encode(value: Any) -> bytes | None:
    """The bytes of a value that is sent, as ``Send`` describes them. Raises ``InvalidTypeError``."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    dump = getattr(value, "model_dump_json", None)
    if dump is not None:
        text: str = dump()
        return text.encode()
    try:
        return json.dumps(value, default=_plain, separators=(",", ":"), ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(
            f"a value of type {type(value).__name__} can't be sent: expected bytes, a text, a dataclass, a pydantic "
            f"model or a value of JSON: {error}"
        ) from error


def _text(data: bytes) -> str:
    return data.decode()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    raise TypeError(f"{type(value).__name__} is nothing that JSON knows")


def _check(kind: Any) -> None:
    origin = get_origin(kind)
    if kind is Any or kind in _SCALARS or kind in (dict, list) or kind in _TEXTS or kind is None:
        return
    if origin is Literal:
        return
    if origin in (Union, types.UnionType, list, tuple, dict):
        for part in get_args(kind):
            if part is not ...:
                _check(part)
        if origin is dict:
            _check_key(get_args(kind)[0])
        return
    if isinstance(kind, type):
        if dataclasses.is_dataclass(kind):
            _hints(kind)
            return
        if issubclass(kind, enum.Enum) or hasattr(kind, "model_validate"):
            return
    raise InvalidTypeError(
        f"values of type {kind!r} can't be made of a record's bytes: expected bytes, str, a dataclass, a pydantic "
        "model, dict, list or Any; or give subscriber(…, decode=function)"
    )


def _check_key(kind: Any) -> None:
    """Raise ``InvalidTypeError`` unless the texts that JSON has as keys can be values of a type."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        for part in get_args(kind):
            _check_key(part)
        return
    is_plain = kind is Any or kind is None or kind in _SCALARS or kind in _TEXTS or origin is Literal
    if not (is_plain or (isinstance(kind, type) and issubclass(kind, enum.Enum))):
        raise InvalidTypeError(
            f"keys of type {kind!r} can't be made of a JSON object's: expected str, a number, bool, a date, an "
            "enumeration or a Literal; or give subscriber(…, decode=function)"
        )


def _from_json(kind: Any, data: bytes) -> Any:
    return _build(kind, json.loads(data), "value")


def _build(kind: Any, found: Any, path: str) -> Any:
    """A value of a type, of what JSON gave. Raises ``ValueError``, which names the place."""
    if kind is Any:
        return found
    if isinstance(kind, type):
        return _of_class(kind, found, path)
    origin, parts = get_origin(kind), get_args(kind)
    if kind is None:
        return _build(type(None), found, path)
    if origin is Literal:
        if found in parts:
            return found
        raise ValueError(f"{path}: got {found!r}, expected one of {', '.join(map(repr, parts))}")
    if origin in (Union, types.UnionType):
        return _first_that_fits(parts, found, path)
    if origin is dict and isinstance(found, Mapping):
        return _of_mapping(parts[0], parts[1], found, path)
    if origin is list and isinstance(found, list):
        return [_build(parts[0], value, f"{path}[{at}]") for at, value in enumerate(found)]
    if origin is tuple and isinstance(found, list):
        kinds = [parts[0]] * len(found) if parts[-1] is ... else parts
        if len(kinds) == len(found):
            both = enumerate(zip(kinds, found, strict=True))
            return tuple(_build(part, value, f"{path}[{at}]") for at, (part, value) in both)
    raise ValueError(f"{path}: got {type(found).__name__}, expected {kind}")


def _of_mapping(key_kind: Any, kind: Any, found: Mapping[str, Any], path: str) -> dict[Any, Any]:
    built = {_key(key_kind, key, path): _build(kind, value, f"{path}.{key}") for key, value in found.items()}
    if len(built) != len(found):
        raise ValueError(f"{path}: several of its keys are one as {key_kind}")
    return built


def _key(kind: Any, text: str, path: str) -> Any:
    """A key as a value of a type: JSON has a text for each. Raises ``ValueError``, which names the place."""
    if kind is str or kind is Any:
        return text
    if get_origin(kind) in (Union, types.UnionType):
        return _first_that_fits(get_args(kind), text, path, _key)
    try:
        return _build(kind, text, path)
    except ValueError:
        pass  # no text, but perhaps the number that it is
    try:
        return _build(kind, json.loads(text), path)
    except ValueError as error:
        raise ValueError(f"{path}: the key {text!r}: expected {getattr(kind, '__name__', kind)}") from error


def _of_class(kind: type, found: Any, path: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _of_dataclass(kind, found, path)
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        return validate(found)
    if issubclass(kind, enum.Enum):
        return kind(found)
    if kind in _TEXTS and isinstance(found, str):
        return _TEXTS[kind](found)
    if kind is float and type(found) is int:
        return float(found)
    if isinstance(found, kind) and (type(found) is not bool or kind is bool):
        return found
    raise ValueError(f"{path}: got {type(found).__name__}, expected {kind.__name__}")


def _of_dataclass(kind: type, found: Any, path: str) -> Any:
    if not isinstance(found, Mapping):
        raise ValueError(f"{path}: got {type(found).__name__}, expected an object for {kind.__name__}")
    hints = _hints(kind)
    known = {name: _build(hints[name], found[name], f"{path}.{name}") for name in hints if name in found}
    try:
        return kind(**known)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from None


def _first_that_fits(
    kinds: tuple[Any, ...], found: Any, path: str, build: Callable[[Any, Any, str], Any] | None = None
) -> Any:
    reasons = []
    for kind in kinds:
        try:
            return (build or _build)(kind, found, path)
        except ValueError as error:
            reasons.append(str(error))
    raise ValueError("; ".join(reasons))


@lru_cache(maxsize=256)
def _hints(kind: type) -> dict[str, Any]:
    """The types of the fields that a dataclass is made with. Fields of an object that it doesn't have are ignored."""
    try:
        hints = get_type_hints(kind)
    except NameError as error:
        raise InvalidTypeError(f"the annotations of {kind.__name__} can't be resolved: {error}") from error
    fields = dataclasses.fields(kind)
    return {field.name: hints[field.name] for field in fields if field.init}
