"""The columns of a topic's data files, as Arrow names them (``docs/storage_format.md``, A topic's table)."""

from __future__ import annotations

import pyarrow as pa

from sparklog.log.data.value_columns import DATA, SCHEMA_ID

__all__ = [
    "DATA_SCHEMA",
    "HEADERS",
    "PLAIN_RECORDS",
    "RECORD_SCHEMA",
    "TIMESTAMP",
    "data_schema",
]

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""Kafka's milliseconds, in the unit that every Delta reader knows."""
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

DATA_SCHEMA = pa.schema(
    [
        pa.field("offset_delta", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int16()),
        pa.field("sequence", pa.int32()),
    ]
)
"""The columns of a data file; ``partition`` and ``base_offset`` come from the log."""
PLAIN_RECORDS = pa.schema([("timestamp", TIMESTAMP), ("key", pa.binary()), ("value", pa.binary())])
"""The columns that producers make of records of an untyped topic without headers."""
RECORD_SCHEMA = pa.schema(
    [pa.field("offset", pa.int64()), *(DATA_SCHEMA.field(name) for name in ("timestamp", "key", "value", "headers"))]
)
"""The columns that a consumer reads of a record."""


def data_schema(values: pa.StructType | None) -> pa.Schema:
    """The columns of a data file of a topic whose values are such; of an untyped one for None."""
    if values is None:
        return DATA_SCHEMA
    fields = list(DATA_SCHEMA)
    at = DATA_SCHEMA.get_field_index("value") + 1
    fields[at:at] = [pa.field(DATA, values), pa.field(SCHEMA_ID, pa.int32())]
    return pa.schema(fields)
