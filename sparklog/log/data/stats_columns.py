"""The statistics of many files as columns, from the texts that the log has. Pure."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

__all__ = ["stats_columns"]


def stats_columns(texts: pa.Array, schema: pa.Schema) -> pa.Table:
    """The columns of a schema, a row for each JSON text; whatever else the texts tell is passed over.

    Raises ``ArrowInvalid``: a text that can't be read, or not in this schema.
    """
    texts = pc.if_else(pc.equal(pc.binary_length(pc.fill_null(texts, "")), 0), "{}", texts)
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n")[0].as_buffer()
    table = pj.read_json(
        pa.BufferReader(lines),
        pj.ReadOptions(use_threads=False, block_size=lines.size + 1),
        pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(texts):
        raise pa.ArrowInvalid(f"{table.num_rows} rows of {len(texts)} statistics")
    return table
