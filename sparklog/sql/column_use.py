"""Which columns a projection and a filter of Arrow's need. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

__all__ = ["columns_used"]


def columns_used(schema: pa.Schema, columns: Any, filter: Any) -> list[str]:
    """The columns of a schema that a scan has to read, in the schema's order.

    Arrow doesn't say which fields an expression refers to. A name that isn't in its text isn't one of them; of the
    others each is left out by which the expressions still have a meaning.

    Args:
        columns: names, expressions by name, or None for all.
        filter: an expression, or None.
    Raises:
        pa.ArrowInvalid: as Arrow does, for a column that the schema doesn't have.
    """
    if columns is None:
        return list(schema.names)
    plain, text = _texts(columns, filter)
    names = [name for name in schema.names if name in plain or name in text]
    if not _has_meaning(schema, names, columns, filter):
        names = list(schema.names)
    for name in [name for name in names if name not in plain]:
        others = [other for other in names if other != name]
        if _has_meaning(schema, others, columns, filter):
            names = others
    return names


def _texts(columns: Sequence[str] | Mapping[str, Any], filter: Any) -> tuple[set[str], str]:
    """The names of columns, and the text of all expressions."""
    expressions = list(columns.values()) if isinstance(columns, Mapping) else []
    plain = set() if isinstance(columns, Mapping) else set(columns)
    return plain, "\n".join(str(expression) for expression in (*expressions, *plain, filter))


def _has_meaning(schema: pa.Schema, names: Sequence[str], columns: Any, filter: Any) -> bool:
    """Can this projection and filter be of these columns alone?"""
    part = pa.schema([schema.field(name) for name in names])
    try:
        ds.Scanner.from_batches(iter(()), schema=part, columns=columns, filter=filter)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError):
        return False
    return True
