"""Columns of many small files of this machine, read by the compiled core in one call, without Python's lock.

What the columns of a file are is judged by Arrow, once for each schema; the core takes files whose schema is the same,
byte for byte. Whatever it doesn't know, as pages that are compressed, is left to Arrow, which reads it, or says what is
wrong with it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from sparklog._native import CORE
from sparklog.delta.parquet_reading import open_parquet
from sparklog.log.data.parquet_bytes import MAGIC
from sparklog.log.data.value_columns import DATA

__all__ = ["read_columns"]

_NO_ROWS = b"\x16\x00\x19\x0c\x00"
"""The rest of a footer, behind its schema, where there are no rows and no row groups. Source: Parquet's
``FileMetaData``, by Thrift's compact protocol."""
_WIDTHS: Mapping[str, int] = {"INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8}
"""Bytes of a value, by Parquet's physical types."""
_TEXTS = 0
_TEXT = pa.string()
_LEVELS = (1, 2)
_TIME = "timestamp"
_MOST_ROWS = 1 << 24
"""Room is made for as many as the log says, before a file is opened: another engine may have written any number."""
_MOST_COLUMNS = 32
"""The core reads no more at once."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column of a file that the core can read."""

    number: int
    most_level: int
    width: int
    """The bytes of a value; 0: texts."""
    kind: pa.DataType


def read_columns(
    filesystem: Any, files: Sequence[tuple[str, int | None]], wanted: Mapping[str, tuple[str, pa.DataType]]
) -> dict[str, pa.Array] | None:
    """Columns of small files of this machine, one file behind the other.

    Args:
        filesystem: a ``pyarrow.fs.SubTreeFileSystem`` of a folder.
        files: the path of each, and the number of its rows, as far as it is known.
        wanted: by the name of each column its path in the files and its type; texts come as a dictionary whose texts
            are all different.
    Returns:
        None: Arrow has to read them.
    """
    counts = [count for _, count in files if count is not None and count > 0]
    if CORE is None or len(counts) < len(files) or not 0 < len(wanted) <= _MOST_COLUMNS or sum(counts) > _MOST_ROWS:
        return None
    folder = filesystem.base_path
    paths = tuple(os.fsencode(os.path.join(folder, path)) for path, _ in files)
    if any(b"\0" in path for path in paths):  # no file has such a name: Arrow says which
        return None
    schema = CORE.file_schema(paths[0])
    leaves = {} if schema is None else _leaves(schema)
    leaf_of_column = {name: leaves.get(path) for name, (path, _) in wanted.items()}
    sorted_leaves: list[tuple[_Leaf, str]] = []
    for name, leaf in leaf_of_column.items():
        if leaf is None or leaf.kind != wanted[name][1]:
            return None
        sorted_leaves.append((leaf, name))
    sorted_leaves.sort(key=lambda each: each[0].number)
    rows = sum(counts)
    room = [
        (pa.allocate_buffer(rows * (leaf.width or 4)), pa.allocate_buffer((rows + 7) // 8)) for leaf, _ in sorted_leaves
    ]
    numbers = tuple((leaf.number, leaf.most_level, leaf.width) for leaf, _ in sorted_leaves)
    read = CORE.read_columns(paths, tuple(counts), schema or b"", numbers, tuple(room))
    if read is None:
        return None
    return {
        name: _array(leaf, rows, buffers, parts)
        for (leaf, name), buffers, parts in zip(sorted_leaves, room, read, strict=True)
    }


def _array(leaf: _Leaf, rows: int, buffers: tuple[Any, Any], parts: tuple[int, Any, Any]) -> pa.Array:
    values, bits = buffers
    null_count, ends, texts = parts
    kind = leaf.kind if leaf.width else pa.int32()
    array = pa.Array.from_buffers(kind, rows, [bits if null_count else None, values], null_count)
    if leaf.width:
        return array
    count = len(ends) // 4 - 1
    dictionary = pa.Array.from_buffers(_TEXT, count, [None, pa.py_buffer(ends), pa.py_buffer(texts)], 0)
    return pa.DictionaryArray.from_arrays(array, dictionary, safe=False)


@lru_cache(maxsize=64)
def _leaves(schema: bytes) -> Mapping[str, _Leaf]:
    """The columns of files with such a schema that the core can read, by their paths: ``timestamp``, and fields of
    values that are no structs.

    Args:
        schema: the first bytes of a footer, up to its schema's end.
    """
    footer = schema + _NO_ROWS
    try:
        file = open_parquet(MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC)
        columns, kinds = file.schema, _kinds(file.schema_arrow)
    except (pa.ArrowException, OSError, ValueError):  # no file can be read that has it, which Arrow says of each
        return MappingProxyType({})
    names = Counter(columns.column(number).path for number in range(len(columns)))
    leaves = {}
    for number in range(len(columns)):
        column = columns.column(number)
        path, level = column.path, column.max_definition_level
        if path not in kinds or names[path] > 1 or level not in _LEVELS or column.max_repetition_level:
            continue
        kind, width = kinds[path], _WIDTHS.get(column.physical_type)
        if width is not None and pa.types.is_primitive(kind) and kind.bit_width == 8 * width:
            leaves[path] = _Leaf(number, level, width, kind)
        elif column.physical_type == "BYTE_ARRAY" and kind == _TEXT:
            leaves[path] = _Leaf(number, level, _TEXTS, kind)
    return MappingProxyType(leaves)


def _kinds(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Arrow's types of the columns that may be wanted."""
    kinds: dict[str, pa.DataType] = {}
    for field in schema:
        if field.name == _TIME:
            kinds[_TIME] = field.type
        elif field.name == DATA and pa.types.is_struct(field.type):
            kinds |= {f"{DATA}.{each.name}": each.type for each in field.type}
    return kinds
