"""Regular expressions of RE2 that clients send, with the rules of Kafka's brokers."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["matching"]


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match an expression as a whole, which takes linear time whatever the expression. Raises
    ``ValueError``: it is no expression."""
    column = pa.array(sorted(names), pa.string())
    pc.match_substring_regex(column, pattern)  # it is one without what is put around it, too
    matched = pc.match_substring_regex(column, rf"\A(?:{pattern})\z")
    return frozenset(column.filter(matched).to_pylist())
