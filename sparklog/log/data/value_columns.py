"""The value columns of a typed topic's table: ``data``, a struct with the physical union of all schemas, and
``schema_id`` (``docs/storage_format.md``, Typed topics). Pure functions of Arrow types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sparklog import schemas
from sparklog.arrow import pa, pc
from sparklog.errors import InvalidArgumentError, InvalidConfigurationError

__all__ = [
    "DATA",
    "SCHEMA_ID",
    "conform_values",
    "first_seen",
    "has_values",
    "indexed_leaves",
    "is_tombstone",
    "leaf_column",
    "leaf_name",
    "leaves_of",
    "skipping_columns",
    "stored_type",
    "unknown_fields",
    "unknown_values",
    "view_columns",
    "with_value_columns",
]

DATA = "data"
"""The column of values; null for a tombstone, and where the value is bytes in ``value``."""
SCHEMA_ID = "schema_id"
"""The id of the schema that a value was written by; null where ``data`` is."""
MAX_INDEXED_LEAVES = 32
"""Leaves with statistics where ``value.index`` doesn't say which. Source: Delta's ``dataSkippingNumIndexedCols``."""

Leaf = tuple[str, ...]
"""The names from a field of the value down to a leaf."""


def with_value_columns(schema_string: str, values: pa.StructType | None) -> str:
    """A table's schema, as Delta writes it, with the value columns of these values; without them for None. All other
    columns stay as they are."""
    schema = json.loads(schema_string)
    fields = [field for field in schema["fields"] if field["name"] not in (DATA, SCHEMA_ID)]
    if values is not None:
        at = next((at + 1 for at, field in enumerate(fields) if field["name"] == "value"), len(fields))
        fields[at:at] = [_delta_field(DATA, values), _delta_field(SCHEMA_ID, pa.int32())]
    return json.dumps({**schema, "fields": fields})


def _delta_field(name: str, kind: pa.DataType) -> dict[str, Any]:
    return {"name": name, "type": schemas.delta_type(kind), "nullable": True, "metadata": {}}


def leaves_of(values: pa.StructType) -> Iterator[tuple[Leaf, pa.DataType]]:
    """The leaves of a value that statistics can be of, in order: those outside of lists and maps."""
    for field in values:
        if pa.types.is_struct(field.type):
            yield from (((field.name, *leaf), kind) for leaf, kind in leaves_of(field.type))
        elif not pa.types.is_nested(field.type):
            yield (field.name,), field.type


def leaf_column(values: pa.Array | pa.ChunkedArray, leaf: Leaf) -> pa.Array | pa.ChunkedArray:
    """The column of a leaf, or of a field above one; null where what it is in is null.

    Arrow's ``struct_field`` finds the same, at a cost that grows with all fields that there are.
    """
    if isinstance(values, pa.ChunkedArray):
        kind: Any = values.type
        for name in leaf:
            kind = kind.field(name).type
        return pa.chunked_array([leaf_column(chunk, leaf) for chunk in values.chunks], kind)
    for name in leaf:
        column = values.field(name)
        values = pc.if_else(values.is_valid(), column, pa.scalar(None, column.type)) if values.null_count else column
    return values


def indexed_leaves(values: pa.StructType, setting: str) -> tuple[Leaf, ...]:
    """The leaves that have statistics.

    Args:
        setting: ``value.index``: names joined by commas, nested ones with dots; empty: the first 32 that numbers,
            texts, dates and times are.
    Raises:
        InvalidConfigurationError: a name that no leaf has, or whose type has no order in every engine.
    """
    by_name = {leaf_name(leaf): (leaf, kind) for leaf, kind in leaves_of(values)}
    if not setting.strip():
        return tuple(leaf for leaf, kind in by_name.values() if _is_ordered(kind))[:MAX_INDEXED_LEAVES]
    leaves: dict[Leaf, None] = {}
    for name in (part.strip() for part in setting.split(",")):
        if name == "none" and name not in by_name:
            continue
        if name not in by_name or not _is_ordered(by_name[name][1]):
            known = ", ".join(one for one, (_, kind) in by_name.items() if _is_ordered(kind))
            raise InvalidConfigurationError(f"value.index: no statistics can be of {name!r}; they can be of: {known}")
        leaves[by_name[name][0]] = None
    return tuple(leaves)


def leaf_name(leaf: Leaf) -> str:
    """A leaf's name as ``value.index`` has it."""
    return ".".join(leaf)


def _is_ordered(kind: pa.DataType) -> bool:
    return not (pa.types.is_boolean(kind) or pa.types.is_binary(kind))


def skipping_columns(leaves: Sequence[Leaf]) -> str:
    """The part of ``delta.dataSkippingStatsColumns`` that names these leaves."""
    return "".join("," + ".".join(map(_quoted, (DATA, *leaf))) for leaf in leaves)


def _quoted(name: str) -> str:
    is_plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    return name if is_plain else "`" + name.replace("`", "``") + "`"


def conform_values(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values with the fields of another schema: in its order, null where they aren't there, without those that it
    leaves out; at any depth.

    Raises ``InvalidArgumentError``: the same field has types of which one can't hold the other's values.
    """
    if array.type == kind:
        return array
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        given = {field.name: at for at, field in enumerate(array.type)}
        columns = [
            conform_values(array.field(given[field.name]), field.type)
            if field.name in given
            else pa.nulls(len(array), field.type)
            for field in kind
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        return _conform_list(array, kind)
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        return _conform_map(array, kind)
    try:
        return array.cast(kind)
    except pa.ArrowException as error:
        raise InvalidArgumentError(f"values of type {array.type}, expected {kind} ({error})") from error


def _conform_list(array: pa.ListArray, kind: pa.ListType) -> pa.Array:
    start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    items = conform_values(array.values.slice(start, end - start), kind.value_type)
    offsets = pc.subtract(array.offsets, pa.scalar(start, pa.int32()))
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(offsets, items, type=kind, mask=mask)


def _conform_map(array: pa.MapArray, kind: pa.MapType) -> pa.Array:
    start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    keys = conform_values(array.keys.slice(start, end - start), kind.key_type)
    items = conform_values(array.items.slice(start, end - start), kind.item_type)
    offsets = pc.subtract(array.offsets, pa.scalar(start, pa.int32()))
    mask = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)


def stored_type(kind: pa.DataType) -> pa.DataType:
    """The type of values in a file of another engine, as a topic's own files have it: Spark's INT96 has no time zone,
    others have texts of another width. Types of other meaning stay as they are."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, stored_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(stored_type(kind.key_type), stored_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", stored_type(kind.value_type)))
    if pa.types.is_dictionary(kind):
        return stored_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def view_columns(fields: Iterable[str], taken: Iterable[str], *, tells_cases_apart: bool = False) -> dict[str, str]:
    """The names of a value's fields as columns beside others: with ``value_`` before them where that name is taken, in
    any case, as SQL doesn't tell cases apart.

    A field that is added has no effect on the columns of those before it. So a column keeps its meaning for ever, if
    the fields are given as :func:`first_seen` orders them, all that the topic ever had.
    """
    same = str if tells_cases_apart else str.lower
    used = {same(name) for name in taken}
    names: dict[str, str] = {}
    for field in fields:
        name = field
        while same(name) in used:
            name = f"value_{name}"
        used.add(same(name))
        names[field] = name
    return names


def first_seen(schemas: Iterable[Iterable[str]]) -> list[str]:
    """The fields of a topic's schemas, the oldest first, each where it was first."""
    return list(dict.fromkeys(name for names in schemas for name in names))


def unknown_fields(given: pa.DataType, known: pa.DataType) -> list[str]:
    """The fields of a type, at any depth, that another doesn't have; names of nested ones with dots."""
    if pa.types.is_struct(given) and pa.types.is_struct(known):
        names: list[str] = []
        for field in given:
            at = known.get_field_index(field.name)
            if at < 0:
                names.append(field.name)
            else:
                names += [f"{field.name}.{name}" for name in unknown_fields(field.type, known.field(at).type)]
        return names
    if pa.types.is_list(given) and pa.types.is_list(known):
        return unknown_fields(given.value_type, known.value_type)
    if pa.types.is_map(given) and pa.types.is_map(known):
        return unknown_fields(given.item_type, known.item_type)
    return []


def unknown_values(values: pa.Array, known: pa.DataType) -> list[str]:
    """The fields of some values, at any depth, that a type doesn't have, and that aren't null everywhere; names as of
    :func:`unknown_fields`."""
    kind = values.type
    if pa.types.is_struct(kind) and pa.types.is_struct(known):
        names: list[str] = []
        for number, field in enumerate(kind):
            column, at = values.field(number), known.get_field_index(field.name)
            if at < 0:
                names += [field.name] if column.null_count < len(column) else []
            else:
                names += [f"{field.name}.{name}" for name in unknown_values(column, known.field(at).type)]
        return names
    if pa.types.is_list(kind) and pa.types.is_list(known):
        return unknown_values(values.values, known.value_type)
    if pa.types.is_map(kind) and pa.types.is_map(known):
        return unknown_values(values.items, known.item_type)
    return []


def has_values(table: pa.Table | pa.RecordBatch) -> bool:
    """Have the records the column ``data``, and any value in it?"""
    if DATA not in table.schema.names:
        return False
    column = table.column(DATA)
    return bool(column.null_count < len(column))


def is_tombstone(table: pa.Table | pa.RecordBatch) -> pa.ChunkedArray:
    """Is each record a tombstone? It has neither bytes in ``value`` nor anything in ``data``, where that column is."""
    no_bytes = pc.is_null(table.column("value"))
    return pc.and_(no_bytes, pc.is_null(table.column(DATA))) if DATA in table.schema.names else no_bytes
