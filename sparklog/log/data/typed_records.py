"""The columns of typed values in a data file, without Arrow's writer: which values are written so, and what a file of
them consists of."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog._native import CORE
from sparklog.log.data.arrow_buffers import is_valid
from sparklog.log.data.parquet_bytes import (
    COLUMNS,
    PLAIN,
    RLE,
    RLE_DICTIONARY,
    Chunk,
    Layout,
    Leaf,
    data_page,
    dictionary_page,
    run,
)
from sparklog.log.data.typed_columns import LeafColumn, LeafPart, leaf_pages, levels_page
from sparklog.log.data.value_columns import DATA, SCHEMA_ID, leaf_column

__all__ = ["TypedRows", "typed_rows"]

_INT32, _INT64, _FLOAT, _DOUBLE, _BYTE_ARRAY, _BOOLEAN = 1, 2, 4, 5, 6, 0
"""Parquet's physical types."""
_PARQUET_TYPES: Mapping[pa.DataType, tuple[int, bytes]] = MappingProxyType(
    {
        pa.bool_(): (_BOOLEAN, b""),
        pa.int8(): (_INT32, b"\x25\x1e\x4c\xac\x13\x08\x11\x00\x00"),
        pa.int16(): (_INT32, b"\x25\x20\x4c\xac\x13\x10\x11\x00\x00"),
        pa.int32(): (_INT32, b""),
        pa.int64(): (_INT64, b""),
        pa.float32(): (_FLOAT, b""),
        pa.float64(): (_DOUBLE, b""),
        pa.timestamp("us", "UTC"): (_INT64, b"\x25\x14\x4c\x8c\x11\x1c\x2c\x00\x00\x00\x00"),
        pa.date32(): (_INT32, b"\x25\x0c\x4c\x6c\x00\x00"),
        pa.string(): (_BYTE_ARRAY, b"\x25\x00\x4c\x1c\x00\x00"),
        pa.binary(): (_BYTE_ARRAY, b""),
    }
)
"""The physical type of each type that is written here, and its converted and logical type as a schema element has
them."""


_MANY_TEXTS, _FEW_ROWS = 8, 4_096
"""With more columns of texts, Arrow's writer takes less for so few rows than it takes to call Arrow for each column."""


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Rows of a typed topic's values, in an order."""

    layout: Layout
    """The layout of files of theirs."""
    names: Sequence[str]
    _columns: Sequence[LeafColumn]
    _is_there: npt.NDArray[np.bool_] | None
    """Is there a value, in each row? None: in all."""
    _schema_id: int

    def leaves(self, start: int, count: int) -> Mapping[str, LeafPart]:
        """The columns of some rows, by name; empty: none of them has a value."""
        if self._is_there is not None and not self._is_there[start : start + count].any():
            return {}
        return {name: column.part(start, count) for name, column in zip(self.names, self._columns, strict=True)}

    def schema_ids(self, start: int, count: int) -> tuple[list[Any], Chunk]:
        """The column ``schema_id`` of some rows, of which one has a value."""
        is_there = np.ones(count, np.bool_) if self._is_there is None else self._is_there[start : start + count]
        dictionary = dictionary_page(struct.pack("<i", self._schema_id))
        places = b"\x01" + run(int(np.count_nonzero(is_there)), 0)
        page = data_page(count, (levels_page(is_there.view(np.uint8), 1), places), RLE_DICTIONARY)
        size = len(dictionary) + len(page)
        return [dictionary, page], Chunk(size, b"", (PLAIN, RLE, RLE_DICTIONARY), len(dictionary))


def typed_rows(
    values: pa.StructArray, schema_ids: pa.Array, order: npt.NDArray[np.int64] | None, times: pa.Array
) -> TypedRows | None:
    """Values of one schema, with fields that aren't nested; None: these are others, or the core isn't there.

    Args:
        order: the place of each row in the values; None: as they are.
        times: as many numbers of 64 bits as there are values.
    """
    kind = values.type
    names = [field.name for field in kind]
    if CORE is None or not names or len({*names}) < len(names) or not all(map(_is_written, kind)):
        return None
    texts = sum(not pa.types.is_primitive(field.type) for field in kind)
    if texts > _MANY_TEXTS and len(values) < _FEW_ROWS:
        return None
    schema_id = _only(schema_ids)
    if schema_id is None or schema_ids.null_count != values.null_count:
        return None
    is_there = None
    if values.null_count:
        is_there = is_valid(values)
        if (is_there != is_valid(schema_ids)).any():
            return None
        is_there = is_there if order is None else is_there[order]
    columns = [leaf_pages(leaf_column(values, (name,)), order, is_there, times) for name in names]
    return TypedRows(_layout(kind), names, columns, is_there, schema_id)


def _only(numbers: pa.Array) -> int | None:
    """The one number that all those are that aren't null."""
    ends = pc.min_max(numbers)
    return ends["min"].as_py() if ends["min"] == ends["max"] else None


def _is_written(field: pa.Field) -> bool:
    return field.nullable and field.type in _PARQUET_TYPES


@lru_cache(maxsize=32)
def _layout(kind: pa.StructType) -> Layout:
    columns: dict[str, int | list[Leaf]] = {}
    for name, physical in COLUMNS.items():
        columns[name] = physical
        if name == "value":
            columns[DATA] = [Leaf(field.name, *_PARQUET_TYPES[field.type]) for field in kind]
            columns[SCHEMA_ID] = _INT32
    return Layout.of(columns)
