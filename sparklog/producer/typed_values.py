"""Values of a typed topic on their way into columns: dicts, bytes and structs of a whole batch at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidArgumentError, InvalidRecordError, SparklogError
from sparklog.log.data.arrow_buffers import binary_lengths, one_array
from sparklog.log.data.schema import HEADERS
from sparklog.log.data.value_columns import DATA, SCHEMA_ID, conform_values, view_columns
from sparklog.log.data.value_sizes import value_sizes
from sparklog.log.head import TopicHead
from sparklog.log.value_bytes import ValueBytes
from sparklog.producer.outcome import I32
from sparklog.schemas import ValueSchema, check_record, conform, python_rows_to_struct

__all__ = ["ERROR_HEADER", "Encoded", "ValueEncoding", "sizes_of"]

ERROR_HEADER = "sparklog.value.error"
"""With ``value.on.error=keep``: the header that says why a value's bytes couldn't be decoded."""


_COLUMN_BYTES = 2
"""Memory that a field of a value counts. A column takes four times as much, while a batch is encoded: a few at once."""
_FREE_COLUMNS = 16
"""A schema of so few fields has columns of about as many bytes; of a larger one most may be missing from a value."""
_OF_NO_SCHEMA = "no JSON"
"""So begins what is wrong with bytes that aren't JSON at all: no other schema would help."""
_MOST_REASONS = 64
RECORD_COLUMNS = ("key", "headers", "timestamp", "partition")
"""The columns of ``send_batch`` that are no fields of a value."""


class Encoded(NamedTuple):
    """The records of a batch with their values as columns."""

    table: pa.Table
    refused: dict[int, SparklogError]
    """Errors of records that can't be the topic's, by place."""
    unfit: frozenset[str]
    """Reasons why values are unfit that might be of a newer schema: refused ones, ones that are kept as bytes, and
    those with fields that are left out. Some of the reasons, if there are many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueEncoding:
    """How values become columns: a topic's newest schema and its settings."""

    topic: str
    schema: ValueSchema
    """The newest one, which values are checked against."""
    schema_id: int
    physical: ValueSchema
    """The fields of all schemas."""
    codec: ValueBytes
    """By which values of bytes are decoded."""
    keeps_undecodable: bool
    """Is ``value.on.error`` keep?"""
    keeps_bytes: bool
    """Is ``value.bytes`` keep?"""
    decoded_bytes: int
    """Bytes that a value of bytes counts against ``buffer_memory`` for the columns it becomes, beside its own."""

    @classmethod
    def of(cls, topic: str, head: TopicHead) -> ValueEncoding | None:
        """The encoding of a typed topic; None for an untyped one."""
        if head.schemas is None:
            return None
        physical = ValueSchema(pa.schema(list(head.schemas.physical)))
        return cls(
            topic=topic,
            schema=head.schemas.newest,
            schema_id=head.schemas.newest_id,
            physical=physical,
            codec=ValueBytes.of(head.schemas, head.config),
            keeps_undecodable=head.config["value.on.error"] == "keep",
            keeps_bytes=head.config["value.bytes"] == "keep",
            decoded_bytes=_COLUMN_BYTES * max(0, len(physical.leaves()) - _FREE_COLUMNS),
        )

    @property
    def type(self) -> pa.StructType:
        """The type of the column ``data`` in files that are written now. It has the fields of all schemas: a value that
        was taken before the newest schema left a field out is stored with it."""
        return self.physical.struct_type

    @property
    def width(self) -> int:
        """How many fields a value has."""
        return len(self.schema.arrow.names)

    def check(self, value: Any) -> None:
        """Raise ``InvalidTypeError`` or ``InvalidRecordError``, which names field, type and value, where a value can't
        be one of the topic's."""
        check_record(self.schema, value)

    def check_table(self, table: pa.Table) -> pa.Table:
        """A table of ``send_batch`` with the fields of its values in one column ``data``; see :func:`typed_columns`."""
        return typed_columns(self.topic, table, self.schema, self.physical.arrow.names, RECORD_COLUMNS)

    def encode(self, table: pa.Table, given: Mapping[int, Any]) -> Encoded:
        """The records of a batch with their values in ``data``, and what is wrong with some, by place.

        Args:
            table: as :meth:`~sparklog.producer.batch.Batch.take_table` returns it; perhaps with ``data`` already.
            given: the values that are no bytes, by place.
        """
        errors: dict[int, str] = {}
        parts: list[pa.Array] = []
        if DATA in table.schema.names:
            parts.append(conform_values(one_array(table[DATA]), self.type))
            table = table.drop_columns([DATA])
        if given:
            rows = [given.get(place) for place in range(table.num_rows)]
            found, wrong = python_rows_to_struct(self.physical, rows, checked=True)
            parts.append(found)
            errors |= wrong
        values = one_array(table["value"])
        undecodable: dict[int, str] = {}
        passed_over: list[int] = []
        if values.null_count < len(values):
            found, undecodable = self.codec.decode(values, self.type, passed_over)
            parts.append(found)
            table = self._without_decoded(table, values, undecodable)
            errors |= {} if self.keeps_undecodable else undecodable
        data = _together(parts, table.num_rows, self.type)
        unmet = self.codec.unmet(conform_values(data, self.schema.struct_type))
        errors |= {place: reason for place, reason in unmet.items() if not values[place].is_valid}
        table = table.append_column(pa.field(DATA, self.type), data)
        table = table.append_column(SCHEMA_ID, _ids(data, self.schema_id))
        refused: dict[int, SparklogError] = {
            place: InvalidRecordError(f"topic {self.topic!r}, schema {self.schema_id}: {reason}")
            for place, reason in errors.items()
        }
        reasons = [*errors.values(), *undecodable.values(), *(["fields are left out"] if passed_over else [])]
        unfit = (reason for reason in reasons if not reason.startswith(_OF_NO_SCHEMA))
        return Encoded(table, refused, frozenset(islice(unfit, _MOST_REASONS)))

    def _without_decoded(self, table: pa.Table, values: pa.Array, undecodable: Mapping[int, str]) -> pa.Table:
        """The table without bytes but for those to be kept; those that can't be decoded get a header that says what is
        wrong with them."""
        kept = undecodable if self.keeps_undecodable else {}
        at = table.schema.get_field_index("value")
        if not kept:
            return table if self.keeps_bytes else table.set_column(at, "value", pa.nulls(len(values), pa.binary()))
        if not self.keeps_bytes:
            stays = np.zeros(len(values), np.bool_)
            stays[list(kept)] = True
            table = table.set_column(at, "value", pc.if_else(pa.array(stays), values, pa.scalar(None, pa.binary())))
        headers = one_array(table["headers"]).to_pylist()
        for place, reason in kept.items():
            headers[place] = [*(headers[place] or ()), {"key": ERROR_HEADER, "value": reason.encode()}]
        return table.set_column(table.schema.get_field_index("headers"), "headers", pa.array(headers, HEADERS))


def sizes_of(table: pa.Table) -> I32:
    """The bytes of each value, typed or not; -1 for a tombstone."""
    sizes = binary_lengths(one_array(table["value"]))
    if DATA not in table.schema.names:
        return sizes
    data = one_array(table[DATA])
    if data.null_count == len(data):
        return sizes
    typed = value_sizes(data).astype(np.int32)
    if data.null_count == 0 and table["value"].null_count == table.num_rows:
        return typed
    return np.where(np.asarray(data.is_valid()) & (sizes < 0), typed, sizes).astype(np.int32)


def typed_columns(
    topic: str, table: pa.Table, schema: ValueSchema, all_fields: Sequence[str], reserved: Sequence[str]
) -> pa.Table:
    """A table of ``send_batch`` with the fields of its values in one column ``data``.

    Args:
        all_fields: those that the topic ever had, in the order in which they came: a column keeps its meaning.
        reserved: the names of columns that are no fields; a field of such a name is the column ``value_<name>``.
    Raises:
        InvalidArgumentError: a column that is neither, or of a type that can't be the field's.
    """
    names = table.column_names
    if "value" in names:
        kind = table["value"].type
        if not pa.types.is_struct(kind):
            return table  # bytes, as any producer may send
        values = one_array(table["value"])
        unknown = sorted({field.name for field in kind} - set(schema.arrow.names))
        if unknown:
            raise InvalidArgumentError(_expected(topic, "column value has fields", unknown, schema.arrow.names))
        return _with_data(topic, table.drop_columns(["value"]), values, schema)
    of_fields = view_columns(all_fields, (*reserved, "value"), tells_cases_apart=True)
    columns = {of_fields[name]: name for name in schema.arrow.names}
    unknown = sorted(set(names) - set(columns) - set(reserved))
    if unknown or not set(names) & set(columns):
        raise InvalidArgumentError(_expected(topic, "got columns", unknown or names, list(columns)))
    fields = {columns[name]: one_array(table[name]) for name in names if name in columns}
    values = pa.StructArray.from_arrays([*fields.values()], [*fields])
    return _with_data(topic, table.select([name for name in names if name in reserved]), values, schema)


def _with_data(topic: str, table: pa.Table, values: pa.Array, schema: ValueSchema) -> pa.Table:
    try:
        data = conform(values, schema)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"send_batch to {topic!r}: {error}") from error
    columns = {name: table[name] for name in table.column_names}
    return pa.table({**columns, "value": pa.nulls(len(values), pa.binary()), DATA: data})


def _expected(topic: str, what: str, seen: Sequence[str], expected: Sequence[str]) -> str:
    return (
        f"send_batch to {topic!r}: {what} {', '.join(seen) or 'none'}; expected {', '.join(expected)} of the topic's "
        "schema, or one column value, and perhaps key, headers, timestamp and partition"
    )


def _together(parts: Sequence[pa.Array], count: int, kind: pa.StructType) -> pa.Array:
    """Values of which each place has one at most, as one array."""
    if not parts:
        return pa.nulls(count, kind)
    data = parts[0]
    for part in parts[1:]:
        data = pc.if_else(data.is_valid(), data, part)
    return data


def _ids(data: pa.Array, schema_id: int) -> pa.Array:
    ids = pa.array(np.full(len(data), schema_id, np.int32))
    if data.null_count == 0:
        return ids
    return pc.if_else(data.is_valid(), ids, pa.scalar(None, pa.int32()))
