"""Values of a schema as bytes: JSON, Avro and Protobuf, each perhaps in Confluent's framing.

Equal in value both ways, not in bytes: what a producer sent as bytes comes back with the same fields and values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidConfigurationError, InvalidRecordError
from sparklog.schemas.avro_values import avro_reader, avro_writer
from sparklog.schemas.canonical import ValueSchema
from sparklog.schemas.json_columns import json_to_struct, reads_as_columns
from sparklog.schemas.json_pattern import look_readable
from sparklog.schemas.json_values import json_reader, json_writer
from sparklog.schemas.protobuf_values import message_indexes, protobuf_to_struct, without_indexes
from sparklog.schemas.protobuf_writing import protobuf_writer
from sparklog.schemas.records import python_rows_to_struct
from sparklog.schemas.to_python import struct_to_python
from sparklog.schemas.undecodable import UndecodableError, shown

__all__ = ["FORMATS", "UnwritableError", "check_format", "decode", "encode", "frame_ids"]

_FRAME = b"\0"
_FRAME_BYTES = 5
"""A zero byte and the id of the schema, four bytes. Source: Confluent, "Wire format"."""
_ROWS_AROUND = 128
"""The number of values around one that can't be decoded, that are decoded one by one, which takes ten times as long."""


def decode(
    value_format: str, schema: ValueSchema, values: pa.Array, passed_over: list[int] | None = None
) -> tuple[pa.StructArray, dict[int, str]]:
    """Bytes as values of a schema, and what is wrong with some, by place; those are null, as those that are null.

    Args:
        value_format: one of :data:`FORMATS`; with ``-confluent`` five bytes of framing are passed over, whatever id.
        values: binary.
        passed_over: is given the places of values of which something is left out that the schema doesn't have; only
            Protobuf allows that.
    Raises:
        InvalidConfigurationError: no such format, or its library isn't installed.
    """
    name, is_framed = _parsed(value_format)
    errors: dict[int, str] = {}
    if is_framed:
        values = _without_frames(values, errors, message_indexes(schema) if name == "protobuf" else b"")
    if name == "protobuf":
        found, wrong = protobuf_to_struct(schema, values, passed_over)
        return found, {**errors, **wrong}
    read = _READERS[name](schema)
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
            except UndecodableError as error:
                errors[place] = str(error)
        rows.append(row)
    found, wrong = python_rows_to_struct(schema, rows)
    return found, {**errors, **wrong}


def _by_columns(
    schema: ValueSchema, read: Callable[[bytes], Any], values: pa.Array
) -> tuple[pa.StructArray, dict[int, str]]:
    """All at once; where that fails, those that don't look as if they could be one by one, and all others at once."""
    whole = json_to_struct(schema, values)
    if whole is not None:
        return whole, {}
    looks = look_readable(schema, values)
    if looks is None:
        looks = pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}"))
    is_readable = np.asarray(looks)
    rest, errors = _by_stretches(schema, read, values.filter(looks))
    found, wrong = _one_by_one(schema, read, values.filter(pc.invert(looks)))
    places = np.concatenate([np.flatnonzero(is_readable), np.flatnonzero(~is_readable)])
    in_order = pa.concat_arrays([rest, found]).take(pa.array(np.argsort(places)))
    errors |= {len(rest) + at: reason for at, reason in wrong.items()}
    return in_order, {int(places[at]): reason for at, reason in errors.items()}


def _by_stretches(
    schema: ValueSchema, read: Callable[[bytes], Any], values: pa.Array
) -> tuple[pa.StructArray, dict[int, str]]:
    """All at once; where that fails, all around one that must be read alone one by one."""
    if not len(values):
        return pa.nulls(0, schema.struct_type), {}
    whole = json_to_struct(schema, values)
    if whole is not None:
        return whole, {}
    errors: dict[int, str] = {}
    parts: list[pa.StructArray] = []
    for start in range(0, len(values), _ROWS_AROUND):
        some = values.slice(start, _ROWS_AROUND)
        found = json_to_struct(schema, some)
        if found is None:
            found, wrong = _one_by_one(schema, read, some)
            errors |= {start + at: reason for at, reason in wrong.items()}
        parts.append(found)
    return pa.concat_arrays(parts), errors


def _without_frames(values: pa.Array, errors: dict[int, str], indexes: bytes) -> pa.Array:
    found: list[bytes | None] = []
    for place, raw in enumerate(values.to_pylist()):
        try:
            if raw is None:
                found.append(None)
            else:
                found.append(without_indexes(_unframed(raw), indexes) if indexes else _unframed(raw))
        except UndecodableError as error:
            errors[place] = str(error)
            found.append(None)
    return pa.array(found, pa.binary())


def frame_ids(values: pa.Array) -> list[int | None]:
    """The id in Confluent's framing of each value; None where there is no frame."""
    return [
        None if raw is None or len(raw) < _FRAME_BYTES or raw[:1] != _FRAME else int.from_bytes(raw[1:5], "big")
        for raw in values.to_pylist()
    ]


def encode(
    value_format: str,
    schema: ValueSchema,
    values: pa.StructArray,
    *,
    schema_id: int = 0,
    others: Sequence[ValueSchema] = (),
    otherwise: Callable[[int], bytes | None] | None = None,
) -> pa.Array:
    """Values as bytes, null as null. A text that an enumeration doesn't have is its default in Avro, and its number in
    Protobuf, where there is such a thing.

    Args:
        schema_id: of Confluent's framing.
        others: schemas that values may be of, the oldest first, which know numbers of Protobuf's enumerations.
        otherwise: returns the bytes of the value at a place that the schema can't hold; None: there are none.
    Raises:
        InvalidConfigurationError: no such format, its library isn't installed, or the schema isn't for it.
        UnwritableError: the format's own schema has no such value.
    """
    name, is_framed = _parsed(value_format)
    write = _WRITERS[name](schema, others)
    frame = b""
    if is_framed:
        frame = _FRAME + schema_id.to_bytes(4, "big") + (message_indexes(schema) if name == "protobuf" else b"")
    found: list[bytes | None] = []
    for row in struct_to_python(values):
        try:
            found.append(None if row is None else frame + write(row))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raw = None if otherwise is None else otherwise(len(found))
            if raw is None:
                raise UnwritableError(len(found), f"a value that {value_format} can't hold: {error}") from error
            found.append(raw)
    return pa.array(found, pa.binary())


class UnwritableError(InvalidRecordError):
    """A value that can't be bytes of a format: its schema has no null for it, or not such an enumeration's text."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place = place
        """The first such value's."""


def check_format(value_format: str, schema: ValueSchema) -> None:
    """Raise ``InvalidConfigurationError`` where values of a schema can't be bytes of a format: its library isn't
    installed, or the schema isn't for it."""
    name, _ = _parsed(value_format)
    _WRITERS[name](schema, ())


def _parsed(value_format: str) -> tuple[str, bool]:
    if value_format not in FORMATS:
        raise InvalidConfigurationError(f"value.format={value_format!r}; expected one of {', '.join(FORMATS)}")
    return value_format.removesuffix("-confluent"), value_format.endswith("-confluent")


def _unframed(raw: bytes) -> bytes:
    if len(raw) < _FRAME_BYTES or raw[:1] != _FRAME:
        raise UndecodableError(
            f"no framing by Confluent: got {shown(raw)}, expected a zero byte and four of the schema's id"
        )
    return raw[_FRAME_BYTES:]


_READERS: Mapping[str, Callable[[ValueSchema], Callable[[bytes], Any]]] = MappingProxyType(
    {"json": json_reader, "avro": avro_reader}
)
_WRITERS: Mapping[str, Callable[[ValueSchema, Sequence[ValueSchema]], Callable[[Any], bytes]]] = MappingProxyType(
    {"json": json_writer, "avro": avro_writer, "protobuf": protobuf_writer}
)
FORMATS = tuple(f"{name}{framing}" for name in _WRITERS for framing in ("", "-confluent"))
"""The values that ``value.format`` may have."""
