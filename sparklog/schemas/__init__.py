"""The least of schemas of values that typed topics need: Arrow schemas, and JSON for clients of bytes."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

from sparklog.errors import InvalidArgumentError, InvalidRecordError

__all__ = [
    "ValueSchema",
    "Verdict",
    "check",
    "check_record",
    "decode",
    "encode",
    "merged_type",
    "python_rows_to_struct",
    "struct_to_python",
    "union",
    "value_schema",
]

_TIMESTAMP = pa.timestamp("us", "UTC")
_PLAIN: Mapping[pa.DataType, tuple[type, ...]] = {
    pa.bool_(): (bool,),
    pa.float32(): (float, int),
    pa.float64(): (float, int),
    pa.string(): (str,),
    pa.binary(): (bytes,),
    pa.date32(): (date,),
    _TIMESTAMP: (datetime,),
}
_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """The schema of a typed topic's values."""

    arrow: pa.Schema
    """The fields; each may be null."""
    _ranges: Mapping[str, tuple[int, int]] = field(init=False, repr=False, compare=False, default_factory=dict)
    """By field of whole numbers: the least, and the greatest plus one."""
    _moments: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())
    """The fields that are timestamps."""
    _types: Mapping[str, tuple[type, ...]] = field(init=False, repr=False, compare=False, default_factory=dict)
    """By field of another type that is no nested one: the Python types of its values."""

    def __post_init__(self) -> None:
        bits = {one.name: _BITS[one.type] for one in self.arrow if one.type in _BITS}
        ranges = {name: (-(1 << (count - 1)), 1 << (count - 1)) for name, count in bits.items()}
        types = {one.name: _PLAIN[one.type] for one in self.arrow if one.type in _PLAIN and one.type != _TIMESTAMP}
        object.__setattr__(self, "_moments", frozenset(one.name for one in self.arrow if one.type == _TIMESTAMP))
        object.__setattr__(self, "_ranges", ranges)
        object.__setattr__(self, "_types", types)

    def is_plainly(self, value: Mapping[str, Any]) -> bool:
        """Is a dict of the schema, as far as that is told without a look into what is nested? False: it may be."""
        ranges, types = self._ranges, self._types
        for name, one in value.items():
            kind = type(one)
            if kind is int and name in ranges:
                low, end = ranges[name]
                if low <= one < end:
                    continue
            if kind is datetime and name in self._moments and one.tzinfo is not None:
                continue
            if name not in types or kind not in types[name]:
                return False
        return True

    def to_json(self) -> str:
        """The schema as a text, equal for equal schemas."""
        return json.dumps({"arrow": base64.b64encode(self.arrow.serialize().to_pybytes()).decode()})

    @classmethod
    def from_json(cls, text: str) -> ValueSchema:
        """The schema of such a text. Raises ``ValueError``, ``KeyError``, or what Arrow raises."""
        return cls(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(json.loads(text)["arrow"]))))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a schema may follow others."""

    compatible: bool
    reasons: tuple[str, ...]


def value_schema(source: object) -> ValueSchema:
    """The schema of an Arrow schema. Raises ``InvalidArgumentError``: it is none, or has types that no topic has."""
    if isinstance(source, ValueSchema):
        return source
    if not isinstance(source, pa.Schema) or not len(source) or len(set(source.names)) < len(source):
        raise InvalidArgumentError(f"value_schema: got {source!r:.200}, expected an Arrow schema of named fields")
    return ValueSchema(pa.schema([pa.field(field.name, _checked(field.type, field.name)) for field in source]))


def _checked(kind: pa.DataType, path: str) -> pa.DataType:
    if kind in _PLAIN or kind in _BITS or pa.types.is_decimal128(kind):
        return kind
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([pa.field(field.name, _checked(field.type, f"{path}.{field.name}")) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_checked(kind.value_type, path))
    if pa.types.is_map(kind):
        return pa.map_(_checked(kind.key_type, path), _checked(kind.item_type, path))
    raise InvalidArgumentError(f"value_schema: field {path!r} has type {kind}, which no typed topic has")


def check(new: ValueSchema, olds: Sequence[ValueSchema], mode: str) -> Verdict:
    """May a schema follow others? No field may have another type than it ever had.

    Args:
        mode: of compatibility. All fields may be null here, so that fields may be added and left out in every mode.
    """
    reasons = [text for old in olds for text in _changes(pa.struct(list(old.arrow)), pa.struct(list(new.arrow)), "")]
    return Verdict(not reasons, tuple(dict.fromkeys(reasons)))


def _changes(old: pa.DataType, new: pa.DataType, path: str) -> Iterable[str]:
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        for field in old:
            at = new.get_field_index(field.name)
            if at >= 0:
                yield from _changes(field.type, new.field(at).type, f"{path}.{field.name}".lstrip("."))
    elif pa.types.is_list(old) and pa.types.is_list(new):
        yield from _changes(old.value_type, new.value_type, path)
    elif pa.types.is_map(old) and pa.types.is_map(new):
        yield from _changes(old.key_type, new.key_type, path)
        yield from _changes(old.item_type, new.item_type, path)
    elif old != new:
        yield f"field {path!r} was {old} and can't become {new}"


def union(schemas: Sequence[ValueSchema]) -> ValueSchema:
    """The schema that has the fields of all. Raises ``InvalidArgumentError`` where two have one field differently."""
    kind = pa.struct(list(schemas[0].arrow))
    for schema in schemas[1:]:
        kind = merged_type(kind, pa.struct(list(schema.arrow)))
    return ValueSchema(pa.schema(list(kind)))


def merged_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type that has the fields of both, at any depth. Raises ``InvalidArgumentError``: they differ otherwise."""
    if one == other:
        return one
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = merged_type(fields.get(field.name, field.type), field.type)
        return pa.struct(list(fields.items()))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(merged_type(one.value_type, other.value_type))
    if pa.types.is_map(one) and pa.types.is_map(other):
        return pa.map_(merged_type(one.key_type, other.key_type), merged_type(one.item_type, other.item_type))
    raise InvalidArgumentError(f"values of type {one} and of type {other}: they can't be of one topic")


def check_record(schema: ValueSchema, value: object) -> None:
    """Raise ``InvalidRecordError``, which names field, type and value, where a value isn't of the schema."""
    if not isinstance(value, dict):
        raise InvalidRecordError(
            f"value: got {type(value).__name__}, expected a dict of {', '.join(schema.arrow.names)}"
        )
    problem = "" if schema.is_plainly(value) else _problem(pa.struct(list(schema.arrow)), value, "")
    if problem:
        raise InvalidRecordError(problem)


def _problem(kind: pa.DataType, value: Any, path: str) -> str:
    if value is None:
        return ""
    if kind in _BITS:
        bits = _BITS[kind]
        is_right = type(value) is int and -(1 << (bits - 1)) <= value < 1 << (bits - 1)
    elif kind in _PLAIN:
        is_right = type(value) in _PLAIN[kind] and not (kind == _TIMESTAMP and value.tzinfo is None)
    elif pa.types.is_decimal128(kind):
        is_right = isinstance(value, Decimal)
    elif pa.types.is_struct(kind):
        if not isinstance(value, dict):
            return f"field {path!r}: got {value!r:.100}, expected a dict"
        return _first(
            f"field {f'{path}.{name}'.lstrip('.')!r}: the schema has no such field"
            if kind.get_field_index(name) < 0
            else _problem(kind.field(name).type, one, f"{path}.{name}".lstrip("."))
            for name, one in value.items()
        )
    elif pa.types.is_list(kind):
        if not isinstance(value, list | tuple):
            return f"field {path!r}: got {value!r:.100}, expected a list"
        return _first(_problem(kind.value_type, one, path) for one in value)
    else:
        pairs = value.items() if isinstance(value, dict) else value
        return _first(_problem(kind.key_type, k, path) or _problem(kind.item_type, v, path) for k, v in pairs)
    return "" if is_right else f"field {path!r}: got {value!r:.100} ({type(value).__name__}), expected {kind}"


def _first(problems: Iterable[str]) -> str:
    return next((problem for problem in problems if problem), "")


def python_rows_to_struct(schema: ValueSchema, rows: Sequence[Any]) -> tuple[pa.StructArray, dict[int, str]]:
    """Dicts, and None for no value, as structs; and what is wrong with some, by place, which are null then."""
    kind = pa.struct(list(schema.arrow))
    errors: dict[int, str] = {}
    try:
        return pa.array(rows, kind), errors
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        found: list[Any] = []
        for place, row in enumerate(rows):
            try:
                pa.array([row], kind)
                found.append(row)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                errors[place] = str(error)
                found.append(None)
        return pa.array(found, kind), errors


def struct_to_python(values: pa.StructArray) -> list[Any]:
    """Structs as dicts, maps in them as dicts."""
    return list(values.to_pylist(maps_as_pydicts="lossy"))


def decode(value_format: str, schema: ValueSchema, values: pa.Array) -> tuple[pa.StructArray, dict[int, str]]:
    """Bytes as structs; and what is wrong with some, by place, which are null then. Raises ``InvalidArgumentError`` for
    a format that isn't known."""
    _check_format(value_format)
    kind = pa.struct(list(schema.arrow))
    rows: list[Any] = []
    errors: dict[int, str] = {}
    for place, value in enumerate(values.to_pylist()):
        row = None
        if value is not None:
            try:
                row = _of_json(kind, json.loads(value))
                problem = "" if isinstance(row, dict) else "value: no JSON object"
                if not problem and not schema.is_plainly(row):
                    problem = _problem(kind, row, "")
            except (ValueError, TypeError, RecursionError) as error:
                problem = f"value: no JSON of the schema: {error}"
            if problem:
                errors[place], row = problem, None
        rows.append(row)
    found, wrong = python_rows_to_struct(schema, rows)
    return found, {**errors, **wrong}


def _of_json(kind: pa.DataType, value: Any) -> Any:
    if pa.types.is_struct(kind) and isinstance(value, dict):
        known = {field.name: field.type for field in kind}
        return {name: _of_json(known[name], one) if name in known else one for name, one in value.items()}
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_of_json(kind.value_type, one) for one in value]
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [(_of_json(kind.key_type, k), _of_json(kind.item_type, v)) for k, v in value.items()]
    if isinstance(value, str) and kind in (pa.float32(), pa.float64()):
        return float(value) if value in ("NaN", "Infinity", "-Infinity") else value
    if isinstance(value, str) and kind != pa.string():
        return _of_text(kind, value)
    return Decimal(str(value)) if pa.types.is_decimal128(kind) and isinstance(value, int | float) else value


def _of_text(kind: pa.DataType, value: str) -> Any:
    if kind == _TIMESTAMP:
        moment = datetime.fromisoformat(value.removesuffix("Z") + "+00:00" if value.endswith("Z") else value)
        return moment.astimezone(timezone.utc) if moment.tzinfo else moment
    if kind == pa.date32():
        return date.fromisoformat(value)
    if kind == pa.binary():
        return base64.b64decode(value, validate=True)
    if kind in _BITS:  # the key of a map
        return int(value)
    return Decimal(value) if pa.types.is_decimal128(kind) else value


def encode(value_format: str, schema: ValueSchema, values: pa.StructArray) -> pa.Array:
    """Structs as bytes; null as null. Raises ``InvalidArgumentError`` for a format that isn't known."""
    _check_format(value_format)
    return pa.array(
        [None if row is None else json.dumps(_to_json(row)).encode() for row in struct_to_python(values)], pa.binary()
    )


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name if isinstance(name, str) else str(_to_json(name)): _to_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_to_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, Decimal) else value


def _check_format(value_format: str) -> None:
    if value_format != "json":
        raise InvalidArgumentError(f"value.format={value_format}: expected json, the only one there is yet")
