"""Types of columns as catalogs write them. Pure."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

__all__ = ["hive_type", "unity_column", "unity_name"]

_SCALARS: dict[pa.DataType, tuple[str, str]] = {
    pa.bool_(): ("boolean", "boolean"),
    pa.int8(): ("tinyint", "byte"),
    pa.int16(): ("smallint", "short"),
    pa.int32(): ("int", "integer"),
    pa.int64(): ("bigint", "long"),
    pa.float32(): ("float", "float"),
    pa.float64(): ("double", "double"),
    pa.string(): ("string", "string"),
    pa.binary(): ("binary", "binary"),
    pa.date32(): ("date", "date"),
}
"""Hive's name of each, and Spark's in JSON."""
_UNITY = {"integer": "INT"}


def hive_type(kind: pa.DataType) -> str:
    """A type in Hive's words, which are Spark SQL's too. Raises ``ValueError`` for one that no topic has."""
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{hive_type(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{hive_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{hive_type(kind.key_type)},{hive_type(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return "timestamp" if pa.types.is_timestamp(kind) else _scalar(kind)[0]


def spark_json(kind: pa.DataType) -> Any:
    """A type as Spark writes it in JSON. Raises ``ValueError`` for one that no topic has."""
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [spark_field(field) for field in kind]}
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": spark_json(kind.value_type), "containsNull": True}
    if pa.types.is_map(kind):
        value = spark_json(kind.item_type)
        return {"type": "map", "keyType": spark_json(kind.key_type), "valueType": value, "valueContainsNull": True}
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    return hive_type(kind) if pa.types.is_decimal(kind) else _scalar(kind)[1]


def spark_field(field: pa.Field) -> dict[str, Any]:
    """A column as Spark writes it in JSON."""
    return {"name": field.name, "type": spark_json(field.type), "nullable": True, "metadata": {}}


def unity_name(kind: pa.DataType) -> str:
    """A type's name in Unity Catalog's list of them."""
    written = spark_json(kind)
    name = written["type"] if isinstance(written, dict) else str(written).partition("(")[0]
    return _UNITY.get(name, name.upper())


def unity_column(field: pa.Field, position: int, partition_index: int | None) -> dict[str, Any]:
    """A column as Unity Catalog's API has it."""
    column: dict[str, Any] = {
        "name": field.name,
        "type_text": hive_type(field.type),
        "type_json": json.dumps(spark_field(field)),
        "type_name": unity_name(field.type),
        "position": position,
        "nullable": True,
    }
    if pa.types.is_decimal(field.type):
        column |= {"type_precision": field.type.precision, "type_scale": field.type.scale}
    return column if partition_index is None else {**column, "partition_index": partition_index}


def _scalar(kind: pa.DataType) -> tuple[str, str]:
    found = _SCALARS.get(kind)
    if found is None:
        raise ValueError(f"a column of type {kind}: expected any of {', '.join(map(str, _SCALARS))}")
    return found
