"""Records of a typed topic as their readers want the values: as structs, as bytes of the topic's format, as Python
objects. Each reads records of all schemas by the newest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidConfigurationError
from sparklog.log.data.value_columns import DATA, conform_values
from sparklog.log.head import TopicHead
from sparklog.log.value_bytes import ValueBytes
from sparklog.schemas import ValueSchema, struct_to_python

__all__ = ["VALUE_BYTES", "ValueReading", "values_left_out"]

VALUE_BYTES = "value_bytes"
"""Beside values as structs: the bytes of a value that can't be decoded."""


@dataclass(frozen=True, slots=True)
class ValueReading:
    """How the values of a typed topic are read: by its newest schema or another one, and its ``value.format``."""

    schema: ValueSchema
    schema_id: int
    codec: ValueBytes

    @classmethod
    def of(cls, head: TopicHead, schema_id: int | None = None) -> ValueReading | None:
        """The reading of a typed topic by a schema, by the newest for None; None for an untyped one.

        Raises ``InvalidConfigurationError``: the topic has no such schema.
        """
        schemas = head.schemas
        if schemas is None:
            return None
        number = schemas.newest_id if schema_id is None else schema_id
        if not 1 <= number <= schemas.newest_id:
            raise InvalidConfigurationError(f"value_schema_id={number}: the topic has schemas 1 to {schemas.newest_id}")
        return cls(schemas.schema(number), number, ValueBytes.of(schemas, head.config))

    @property
    def type(self) -> pa.StructType:
        """The type of values as structs."""
        return pa.struct(list(self.schema.arrow))

    def as_bytes(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The records without ``data``, and with its values as bytes in ``value``: those that were sent, where the
        topic keeps them, else of its format. Raises ``UnwritableError``."""
        values = records.column("value")
        if DATA in records.schema.names:
            data = records.column(DATA)
            if values.null_count < len(values):
                values, data = self.codec.readable(values, data, self.schema_id)
                data = pc.if_else(values.is_valid(), pa.scalar(None, data.type), data)
            if data.null_count < len(data):
                encoded = self.codec.encode(data, self.schema_id)
                values = encoded if values.null_count == len(values) else pc.coalesce(values, encoded)
        return _with_value(records, values)

    def as_structs(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The records without ``data``, with structs in ``value``, and behind all others the column
        :data:`VALUE_BYTES`."""
        data, undecodable = self.structs(records)
        return _with_value(records, data).append_column(VALUE_BYTES, undecodable)

    def as_python(self, records: pa.RecordBatch) -> tuple[list[Any], pa.Array]:
        """The values as dicts, those that can't be decoded as their bytes, tombstones as None; and the structs."""
        data, undecodable = self.structs(records)
        values = list(struct_to_python(data))
        if undecodable.null_count < len(undecodable):
            for at, raw in enumerate(undecodable.to_pylist()):
                values[at] = values[at] if raw is None else raw
        return values, data

    def structs(self, records: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """The values as structs, and the bytes of those that can't be decoded."""
        values = records.column("value")
        data = pa.nulls(len(values), self.type)
        if DATA in records.schema.names:
            data = conform_values(records.column(DATA), self.type)
        if values.null_count == len(values):
            return data, values
        if data.null_count == 0:
            return data, pa.nulls(len(values), pa.binary())
        values = pc.if_else(data.is_valid(), pa.scalar(None, pa.binary()), values)
        decoded = self.codec.decode_stored(values, self.type)
        data = pc.if_else(data.is_valid(), data, decoded)
        return data, pc.if_else(data.is_valid(), pa.scalar(None, pa.binary()), values)


def values_left_out(records: pa.RecordBatch) -> pa.RecordBatch:
    """The records as they are, without ``data``."""
    return _with_value(records, records.column("value"))


def _with_value(records: pa.RecordBatch, values: pa.Array) -> pa.RecordBatch:
    names = [name for name in records.schema.names if name != DATA]
    columns = [values if name == "value" else records.column(name) for name in names]
    fields = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
