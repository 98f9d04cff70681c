"""Values in Avro, one by one, by fastavro."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from sparklog.errors import InvalidConfigurationError
from sparklog.schemas.avro_defaults import with_defaults
from sparklog.schemas.avro_schema import avro_of_schema, readable_avro
from sparklog.schemas.canonical import SchemaError, ValueSchema
from sparklog.schemas.undecodable import UndecodableError, shown

__all__ = ["avro_reader", "avro_writer"]

_ToObject = Callable[[Any], Any]
_ERRORS = (ArithmeticError, EOFError, LookupError, MemoryError, TypeError, ValueError, struct.error)
"""Whatever fastavro raises for bytes that are none of the schema."""


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError:
        raise InvalidConfigurationError("value.format=avro needs fastavro: pip install 'sparklog[avro]'") from None
    return fastavro


def _is_of_avro(schema: ValueSchema) -> bool:
    return schema.source is not None and schema.source.language == "avro"


@lru_cache(maxsize=64)
def _parsed(schema: ValueSchema) -> Any:
    """The Avro record by which values are read and written: the schema's source, or one made of it."""
    library = _fastavro()
    if schema.source is None or not _is_of_avro(schema):
        return library.parse_schema(avro_of_schema(schema))
    try:
        return library.parse_schema(readable_avro(json.loads(schema.source.text)))
    except (library.schema.SchemaParseException, *_ERRORS) as error:
        raise SchemaError(f"an Avro schema that can't be read: {type(error).__name__} {error}") from error


def _defaults(schema: ValueSchema) -> _ToObject | None:
    return None if schema.source is None else with_defaults(json.loads(schema.source.text))


def avro_reader(schema: ValueSchema) -> Callable[[bytes], Any]:
    """Bytes to a dict of a schema. The function raises ``UndecodableError``."""
    library, parsed = _fastavro(), _parsed(schema)
    convert = (None if _is_of_avro(schema) else _pairs(schema.struct_type)) or _same

    def read(raw: bytes) -> Any:
        source = io.BytesIO(raw)
        try:
            found = library.schemaless_reader(source, parsed, None)
        except _ERRORS as error:
            raise UndecodableError(f"no Avro of the schema: {type(error).__name__} {error}: {shown(raw)}") from error
        if source.read(1):
            raise UndecodableError(f"no Avro of the schema: bytes are left over: {shown(raw)}")
        return convert(found)

    return read


def avro_writer(schema: ValueSchema, others: Sequence[ValueSchema] = ()) -> Callable[[Any], bytes]:
    """A dict of a schema to bytes; a symbol that an enumeration doesn't have is its default, and a field that may not
    be null, and is, has its default, where the record says one. The function raises ``ValueError`` or ``TypeError`` for
    what the record doesn't allow.

    Args:
        others: nothing of them is needed.
    """
    library, parsed = _fastavro(), _parsed(schema)
    convert = (_defaults(schema) if _is_of_avro(schema) else _to_pairs(schema.struct_type)) or _same

    def write(row: Any) -> bytes:
        target = io.BytesIO()
        library.schemaless_writer(target, parsed, convert(row))
        return target.getvalue()

    return write


def _same(value: Any) -> Any:
    return value


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
