"""Values of a schema as bytes: JSON and Avro, both perhaps in Confluent's framing.

Equal in value both ways, not in bytes: what a producer sent as bytes comes back with the same fields and values.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidConfigurationError
from sparklog.schemas.avro_schema import avro_of_schema
from sparklog.schemas.canonical import ValueSchema
from sparklog.schemas.json_columns import json_to_struct, reads_as_columns
from sparklog.schemas.records import python_rows_to_struct
from sparklog.schemas.to_python import struct_to_python

__all__ = ["FORMATS", "decode", "encode"]

_FRAME = b"\0"
_FRAME_BYTES = 5
"""A zero byte and the id of the schema, four bytes. Source: Confluent, "Wire format"."""
_NAMED_FLOATS = MappingProxyType({"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf})
_MOST_DIGITS_OF_INTEGERS = 20
_MOST_SHOWN = 80
_ROWS_AROUND = 128
"""The number of values around one that can't be decoded, that are decoded one by one, which takes ten times as long."""

_ToObject = Callable[[Any], Any]


def decode(value_format: str, schema: ValueSchema, values: pa.Array) -> tuple[pa.StructArray, dict[int, str]]:
    """Bytes as values of a schema, and what is wrong with some, by place; those are null, as those that are null.

    Args:
        value_format: one of :data:`FORMATS`; with ``-confluent`` five bytes of framing are passed over, whatever id.
        values: binary.
    Raises:
        InvalidConfigurationError: no such format, or its library isn't installed.
    """
    name, is_framed = _parsed(value_format)
    read = _READERS[name](schema)
    errors: dict[int, str] = {}
    if is_framed:
        values = _without_frames(values, errors)
    by_columns = name == "json" and reads_as_columns(schema.struct_type)
    if not by_columns or values.null_count == len(values):
        found, wrong = _one_by_one(schema, read, values)
    elif values.null_count == 0:
        found, wrong = _by_columns(schema, read, values)
    else:
        places = np.flatnonzero(np.asarray(values.is_valid()))
        found, wrong = _by_columns(schema, read, values.drop_null())
        wrong = {int(places[at]): reason for at, reason in wrong.items()}
        at = np.zeros(len(values), np.int64)
        at[places] = np.arange(len(places))
        found = found.take(pa.array(at, mask=~np.asarray(values.is_valid())))
    return found, {**errors, **wrong}


def _one_by_one(
    schema: ValueSchema, read: Callable[[bytes], Any], values: pa.Array
) -> tuple[pa.StructArray, dict[int, str]]:
    errors: dict[int, str] = {}
    rows: list[Any] = []
    for place, raw in enumerate(values.to_pylist()):
        row = None
        if raw is not None:
            try:
                row = read(raw)
            except _UndecodableError as error:
                errors[place] = str(error)
        rows.append(row)
    found, wrong = python_rows_to_struct(schema, rows)
    return found, {**errors, **wrong}


def _by_columns(
    schema: ValueSchema, read: Callable[[bytes], Any], values: pa.Array
) -> tuple[pa.StructArray, dict[int, str]]:
    """All at once; where that fails, those without braces around them one by one and all others at once; where that
    fails, too, all around one that must be read alone one by one."""
    whole = json_to_struct(schema, values)
    if whole is not None:
        return whole, {}
    is_object = np.asarray(pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}")))
    rest = None if is_object.all() else json_to_struct(schema, values.filter(pa.array(is_object)))
    if rest is not None:
        found, wrong = _one_by_one(schema, read, values.filter(pa.array(~is_object)))
        places = np.concatenate([np.flatnonzero(is_object), np.flatnonzero(~is_object)])
        in_order = pa.concat_arrays([rest, found]).take(pa.array(np.argsort(places)))
        return in_order, {int(places[len(rest) + at]): reason for at, reason in wrong.items()}
    errors: dict[int, str] = {}
    parts: list[pa.StructArray] = []
    for start in range(0, len(values), _ROWS_AROUND):
        some = values.slice(start, _ROWS_AROUND)
        found, wrong = json_to_struct(schema, some), {}
        if found is None:
            found, wrong = _one_by_one(schema, read, some)
        parts.append(found)
        errors |= {start + at: reason for at, reason in wrong.items()}
    return pa.concat_arrays(parts), errors


def _without_frames(values: pa.Array, errors: dict[int, str]) -> pa.Array:
    found: list[bytes | None] = []
    for place, raw in enumerate(values.to_pylist()):
        try:
            found.append(None if raw is None else _unframed(raw))
        except _UndecodableError as error:
            errors[place] = str(error)
            found.append(None)
    return pa.array(found, pa.binary())


def encode(value_format: str, schema: ValueSchema, values: pa.StructArray, *, schema_id: int = 0) -> pa.Array:
    """Values as bytes, null as null.

    Args:
        schema_id: of Confluent's framing.
    Raises:
        InvalidConfigurationError: no such format, or its library isn't installed.
    """
    name, is_framed = _parsed(value_format)
    write = _WRITERS[name](schema)
    frame = _FRAME + schema_id.to_bytes(4, "big") if is_framed else b""
    found = [None if row is None else frame + write(row) for row in struct_to_python(values)]
    return pa.array(found, pa.binary())


class _UndecodableError(ValueError):
    """Bytes that are no value; says why."""


def _parsed(value_format: str) -> tuple[str, bool]:
    if value_format not in FORMATS:
        raise InvalidConfigurationError(f"value.format={value_format!r}; expected one of {', '.join(FORMATS)}")
    return value_format.removesuffix("-confluent"), value_format.endswith("-confluent")


def _unframed(raw: bytes) -> bytes:
    if len(raw) < _FRAME_BYTES or raw[:1] != _FRAME:
        raise _UndecodableError(
            f"no framing by Confluent: got {_shown(raw)}, expected a zero byte and four of the schema's id"
        )
    return raw[_FRAME_BYTES:]


def _shown(raw: bytes) -> str:
    return repr(raw if len(raw) <= _MOST_SHOWN else raw[:_MOST_SHOWN] + b"...")


# JSON


def _json_reader(schema: ValueSchema) -> Callable[[bytes], Any]:
    convert = _from_json(schema.struct_type)
    has_decimals = "decimal(" in schema.to_json()
    options: dict[str, Any] = {"parse_float": decimal.Decimal} if has_decimals else {}

    def read(raw: bytes) -> Any:
        try:
            found = json.loads(raw, parse_constant=_refuse_constant, **options)
            if not isinstance(found, dict):
                raise _UndecodableError(f"JSON of {type(found).__name__}, expected an object: {_shown(raw)}")
            return found if convert is None else convert(found)
        except RecursionError as error:
            raise _UndecodableError(f"JSON that is nested too deeply: {_shown(raw)}") from error
        except (ValueError, TypeError, ArithmeticError) as error:
            if isinstance(error, _UndecodableError):
                raise
            raise _UndecodableError(f"no JSON of the schema: {error}: {_shown(raw)}") from error

    return read


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON; expected a text {name!r} in a field of floats")


def _from_json(kind: pa.DataType) -> _ToObject | None:
    """A converter of what JSON has for a type; None: it is the same. A value of another shape is left as
    it is, for the check that follows."""
    if pa.types.is_struct(kind):
        return _fields_from_json(kind)
    if pa.types.is_list(kind):
        element = _from_json(kind.value_type)
        return None if element is None else _each(element)
    if pa.types.is_map(kind):
        return _map_from_json(kind)
    if pa.types.is_decimal(kind):
        return lambda value: decimal.Decimal(value) if isinstance(value, str) else value
    if pa.types.is_floating(kind):
        return _float_from_json
    if pa.types.is_integer(kind):
        return _integer_from_json
    return _FROM_JSON.get(kind)


def _fields_from_json(kind: pa.StructType) -> _ToObject | None:
    converters = {field.name: one for field in kind if (one := _from_json(field.type)) is not None}
    if not converters:
        return None

    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            for name, one in converters.items():
                found = value.get(name)
                if found is not None:
                    value[name] = one(found)
        return value

    return convert


def _each(element: _ToObject) -> _ToObject:
    def convert(value: Any) -> Any:
        return [each if each is None else element(each) for each in value] if isinstance(value, list) else value

    return convert


def _map_from_json(kind: pa.MapType) -> _ToObject | None:
    key, value = (_from_json(each) or _same for each in (kind.key_type, kind.item_type))

    def convert(found: Any) -> Any:
        if isinstance(found, dict):
            return {key(name): each if each is None else value(each) for name, each in found.items()}
        if isinstance(found, list) and all(isinstance(each, dict) and {*each} == {"key", "value"} for each in found):
            return [(key(each["key"]), each["value"] and value(each["value"])) for each in found]
        return found

    return convert


def _same(value: Any) -> Any:
    return value


def _integer_from_json(value: Any) -> Any:
    """``5.0`` and ``5e0`` are integers, too. A number like 1e99999999 must not become one: that takes hours."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, decimal.Decimal) and value.adjusted() < _MOST_DIGITS_OF_INTEGERS:
        return int(value) if value == value.to_integral_value() else value
    return value


def _float_from_json(value: Any) -> Any:
    """JSON doesn't tell integers from floats: whatever number it is becomes the next double."""
    if isinstance(value, str):
        return _NAMED_FLOATS.get(value, value)
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        return value
    found = float(value)
    if math.isinf(found):
        raise ValueError("a number is larger than any double")
    return found


def _time_from_json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value[:-1] + "+00:00" if value.endswith(("Z", "z")) else value
    return datetime.datetime.fromisoformat(text)


_FROM_JSON: Mapping[pa.DataType, _ToObject] = {
    pa.binary(): lambda value: base64.b64decode(value, validate=True) if isinstance(value, str) else value,
    pa.date32(): lambda value: datetime.date.fromisoformat(value) if isinstance(value, str) else value,
    pa.timestamp("us", "UTC"): _time_from_json,
}


def _json_writer(schema: ValueSchema) -> Callable[[Any], bytes]:
    convert = _to_json(schema.struct_type) or _same

    def write(row: Any) -> bytes:
        return json.dumps(convert(row), separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    return write


def _to_json(kind: pa.DataType) -> _ToObject | None:
    """A converter of a type's values to JSON; None: it is the same. Null fields are left out, as Spark does."""
    if pa.types.is_struct(kind):
        converters = {field.name: _to_json(field.type) or _same for field in kind}
        return lambda row: {name: converters[name](each) for name, each in row.items() if each is not None}
    if pa.types.is_list(kind):
        element = _to_json(kind.value_type)
        return None if element is None else _each(element)
    if pa.types.is_map(kind):
        key, value = (_to_json(each) or _same for each in (kind.key_type, kind.item_type))
        if pa.types.is_string(kind.key_type):
            return lambda found: {name: each if each is None else value(each) for name, each in found.items()}
        return lambda found: [
            {"key": key(name), "value": each if each is None else value(each)} for name, each in found.items()
        ]
    if pa.types.is_floating(kind):
        return lambda value: value if math.isfinite(value) else ("NaN" if value != value else _infinity(value))
    if pa.types.is_decimal(kind):
        return str
    return _TO_JSON.get(kind)


def _infinity(value: float) -> str:
    return "Infinity" if value > 0 else "-Infinity"


_TO_JSON: Mapping[pa.DataType, _ToObject] = {
    pa.binary(): lambda value: base64.b64encode(value).decode(),
    pa.date32(): lambda value: value.isoformat(),
    pa.timestamp("us", "UTC"): lambda value: value.isoformat().replace("+00:00", "Z"),
}


# Avro

_AVRO_ERRORS = (ArithmeticError, EOFError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""Whatever fastavro raises for bytes that are none of the schema."""


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError:
        raise InvalidConfigurationError("value.format=avro needs fastavro: pip install 'sparklog[avro]'") from None
    return fastavro


@lru_cache(maxsize=64)
def _parsed_avro(schema: ValueSchema) -> Any:
    return _fastavro().parse_schema(avro_of_schema(schema))


def _avro_reader(schema: ValueSchema) -> Callable[[bytes], Any]:
    library, parsed = _fastavro(), _parsed_avro(schema)
    convert = _pairs(schema.struct_type) or _same

    def read(raw: bytes) -> Any:
        source = io.BytesIO(raw)
        try:
            found = library.schemaless_reader(source, parsed, None)
        except (
            ValueError,
            EOFError,
            IndexError,
            KeyError,
            TypeError,
            OverflowError,
            ArithmeticError,
            MemoryError,
        ) as error:
            raise _UndecodableError(f"no Avro of the schema: {type(error).__name__} {error}: {_shown(raw)}") from error
        if source.read(1):
            raise _UndecodableError(f"no Avro of the schema: bytes are left over: {_shown(raw)}")
        return convert(found)

    return read


def _avro_writer(schema: ValueSchema) -> Callable[[Any], bytes]:
    library, parsed = _fastavro(), _parsed_avro(schema)
    convert = _to_pairs(schema.struct_type) or _same

    def write(row: Any) -> bytes:
        target = io.BytesIO()
        library.schemaless_writer(target, parsed, convert(row))
        return target.getvalue()

    return write


def _pairs(kind: pa.DataType) -> _ToObject | None:
    """A converter that makes a map of Avro's list of pairs, at any depth; None: there is none."""
    return _through(kind, lambda found, key, value: {each["key"]: value(each["value"]) for each in found})


def _to_pairs(kind: pa.DataType) -> _ToObject | None:
    return _through(kind, lambda found, key, value: [{"key": k, "value": value(v)} for k, v in found.items()])


def _through(kind: pa.DataType, change: Callable[[Any, Any, _ToObject], Any]) -> _ToObject | None:
    """A converter of the maps whose keys are no texts, at any depth; None: there are none."""
    if pa.types.is_struct(kind):
        converters = {field.name: one for field in kind if (one := _through(field.type, change)) is not None}
        if not converters:
            return None
        return lambda row: (
            row and {n: converters[n](v) if n in converters and v is not None else v for n, v in row.items()}
        )
    if pa.types.is_list(kind):
        element = _through(kind.value_type, change)
        return None if element is None else lambda found: [each if each is None else element(each) for each in found]
    if pa.types.is_map(kind):
        inner = _through(kind.item_type, change) or _same
        value: _ToObject = lambda each: each if each is None else inner(each)  # noqa: E731 - bound twice below
        if not pa.types.is_string(kind.key_type):
            return lambda found: change(found, None, value)
        return None if inner is _same else lambda found: {name: value(each) for name, each in found.items()}
    return None


_READERS: Mapping[str, Callable[[ValueSchema], Callable[[bytes], Any]]] = MappingProxyType(
    {"json": _json_reader, "avro": _avro_reader}
)
_WRITERS: Mapping[str, Callable[[ValueSchema], Callable[[Any], bytes]]] = MappingProxyType(
    {"json": _json_writer, "avro": _avro_writer}
)
FORMATS = tuple(f"{name}{framing}" for name in _READERS for framing in ("", "-confluent"))
"""The values that ``value.format`` may have."""
