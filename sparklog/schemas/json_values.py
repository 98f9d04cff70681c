"""Values in JSON, one by one. Many at once: :mod:`sparklog.schemas.json_columns`."""

from __future__ import annotations

import base64
import decimal
import json
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from sparklog.iso_times import parse_date, parse_time
from sparklog.schemas.canonical import ValueSchema
from sparklog.schemas.undecodable import UndecodableError, shown

__all__ = ["json_reader", "json_writer"]

_NAMED_FLOATS = MappingProxyType({"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf})
_MOST_DIGITS_OF_INTEGERS = 20

_ToObject = Callable[[Any], Any]


def json_reader(schema: ValueSchema) -> Callable[[bytes], Any]:
    """Bytes to a dict of a schema. The function raises ``UndecodableError``."""
    convert = _from_json(schema.struct_type)
    options: dict[str, Any] = {"parse_float": _exact_number} if _has_exact_numbers(schema.struct_type) else {}
    decoder = json.JSONDecoder(parse_constant=_refuse_constant, **options)  # json.loads makes one for each value

    def read(raw: bytes) -> Any:
        try:
            found = decoder.decode(raw.decode(json.detect_encoding(raw), "surrogatepass"))
            if not isinstance(found, dict):
                raise UndecodableError(f"JSON of {type(found).__name__}, expected an object: {shown(raw)}")
            return found if convert is None else convert(found)
        except RecursionError as error:
            raise UndecodableError(f"JSON that is nested too deeply: {shown(raw)}") from error
        except (ValueError, TypeError, ArithmeticError) as error:
            if isinstance(error, UndecodableError):
                raise
            raise UndecodableError(f"no JSON of the schema: {error}: {shown(raw)}") from error

    return read


def _has_exact_numbers(kind: pa.DataType) -> bool:
    """Has a type integers or decimals, at any depth? Then a number with a point or an exponent is read as it stands:
    a double would change it beyond 2^53."""
    if pa.types.is_struct(kind):
        return any(_has_exact_numbers(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _has_exact_numbers(kind.value_type)
    if pa.types.is_map(kind):
        return _has_exact_numbers(kind.key_type) or _has_exact_numbers(kind.item_type)
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _exact_number(text: str) -> decimal.Decimal | float:
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:  # an exponent beyond 10^18: no integer, no decimal, and 0 or infinity as a double
        return float(text)


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
            pairs = [(each["key"], each["value"]) for each in found]
            return [(key(name), each if each is None else value(each)) for name, each in pairs]
        return found

    return convert


def _same(value: Any) -> Any:
    return value


def _integer_from_json(value: Any) -> Any:
    """``5.0`` and ``5e0`` are integers, too. A number like 1e99999999 must not become one: that takes hours."""
    if isinstance(value, decimal.Decimal) and value.adjusted() < _MOST_DIGITS_OF_INTEGERS:
        return int(value) if value == value.to_integral_value() else value
    return value


def _float_from_json(value: Any) -> Any:
    """JSON doesn't distinguish integers from floats: whatever number it is becomes the next double."""
    if isinstance(value, str):
        return _NAMED_FLOATS.get(value, value)
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        return value
    found = float(value)
    if math.isinf(found):
        raise ValueError("a number is larger than any double")
    return found


_FROM_JSON: Mapping[pa.DataType, _ToObject] = {
    pa.binary(): lambda value: base64.b64decode(value, validate=True) if isinstance(value, str) else value,
    pa.date32(): lambda value: parse_date(value) if isinstance(value, str) else value,
    pa.timestamp("us", "UTC"): lambda value: parse_time(value) if isinstance(value, str) else value,
}


def json_writer(schema: ValueSchema, others: Sequence[ValueSchema] = ()) -> Callable[[Any], bytes]:
    """A dict of a schema to bytes.

    Args:
        others: nothing of them is needed.
    """
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
