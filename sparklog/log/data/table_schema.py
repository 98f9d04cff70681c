"""The columns and properties of a topic's table, as Delta names them (``docs/storage_format.md``, A topic's table)."""

from __future__ import annotations

import json
from typing import Any

__all__ = [
    "CHANGE_COLUMNS",
    "PARTITION_COLUMNS",
    "SCHEMA_STRING",
    "SKIPPING_COLUMNS",
    "SKIPPING_PROPERTY",
    "STAGE_COLUMN",
    "columns_of",
    "table_properties",
]

PARTITION_COLUMNS = ("partition", "base_offset")
"""Delta partition columns: their values live in the log, so a commit can assign them without rewriting a file."""

CHANGE_COLUMNS = ("_change_type", "__is_cdc")
"""Columns that a data file of another engine may have beside those of its table, once the table keeps changes: which
change a row is, and whether it is one. They are no part of a row. Source: Delta protocol, "Note for non-change data
readers"; Delta's ``CDCReader``."""

STAGE_COLUMN = "ingest_file"
"""A partition column of ingests' stages alone. Data files of ingests may have it: Delta 4.4 writes partition columns
into the files of a table that doesn't say otherwise. It is no part of a row."""

SKIPPING_PROPERTY = "delta.dataSkippingStatsColumns"
SKIPPING_COLUMNS = "offset_delta,timestamp,producer_id,sequence"
"""The columns that every file has statistics of; rule F3, ingest, uses all."""


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


_DELTA_HEADERS = {
    "type": "array",
    "elementType": {"type": "struct", "fields": [_field("key", "string"), _field("value", "binary")]},
    "containsNull": True,
}

# offset_delta and timestamp first: engines that collect statistics by position start with them.
SCHEMA_STRING = json.dumps(
    {
        "type": "struct",
        "fields": [
            _field("partition", "integer"),
            _field("base_offset", "long"),
            _field("offset_delta", "long"),
            _field("timestamp", "timestamp"),
            _field("key", "binary"),
            _field("value", "binary"),
            _field("headers", _DELTA_HEADERS),
            _field("producer_id", "long"),
            _field("producer_epoch", "short"),
            _field("sequence", "integer"),
        ],
    }
)
"""The schema as Delta writes it. Any column may be null: a foreign writer may leave out what it doesn't know."""


def columns_of(schema_string: str) -> dict[str, str]:
    """The columns of a table, by name, with their types as Delta writes them. Source: Delta protocol, "Schema
    Serialization Format".

    Raises:
        ValueError: it isn't what Delta writes.
    """
    try:
        fields = json.loads(schema_string)["fields"]
        return {
            str(field["name"]): field["type"] if isinstance(field["type"], str) else str(field["type"]["type"])
            for field in fields
        }
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a schema of Delta: {error!r}") from error


def table_properties() -> dict[str, str]:
    """The ``delta.`` properties of every topic."""
    return {
        "delta.enableExpiredLogCleanup": "false",  # rule L3, cleanup: only our cleanup deletes log entries
        "delta.checkpointInterval": str(2**31 - 1),  # rule L11, fairness: checkpoints are written in the background
        # rule L7, producer state: 7, and a day for clocks that differ
        "delta.setTransactionRetentionDuration": "interval 8 days",
        SKIPPING_PROPERTY: SKIPPING_COLUMNS,
    }
