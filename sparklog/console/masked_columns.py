"""The columns of records that a search compares, without what is masked. Pure functions of Arrow's data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.console.masks import Masks, Unmasked

__all__ = ["SeenColumns"]


@dataclass(frozen=True, slots=True)
class SeenColumns:
    """The part of keys, values and headers that a search may see: that its conditions compare, and that it returns."""

    masks: Masks
    names: frozenset[str]
    """The columns that are compared: ``key``, ``value``, ``headers``, or a field of typed values. No other is there."""

    def compared(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that conditions may compare; null where all of a value is hidden."""
        columns = {name: self._column(name, rows[name]) for name in rows.schema.names if name in self.names}
        return pa.RecordBatch.from_pydict(columns)

    def values(self, values: pa.Array) -> pa.Array:
        """Typed values with null for what is masked."""
        return _seen_array(values, self.masks)

    def _column(self, name: str, column: pa.Array) -> pa.Array:
        if name == "headers":
            return pa.array([self._headers(row) for row in column.to_pylist()], column.type)
        if name in ("key", "value"):
            of = "key" if name == "key" else ""
            return pa.array([self._bytes(of, one) for one in column.to_pylist()], pa.binary())
        return _seen_array(column, self.masks)

    def _headers(self, headers: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        if headers is None:
            return None
        return [{"key": one["key"], "value": self._bytes(one["key"], one["value"])} for one in headers]

    def _bytes(self, name: str, data: bytes | None) -> bytes | None:
        found = None if data is None else self.masks.of_bytes(name, data)
        return found.text.encode(errors="backslashreplace") if isinstance(found, Unmasked) else found


def _seen_array(array: pa.Array, masks: Masks) -> pa.Array:
    """Typed values of the same type, with null for what is masked, at any depth."""
    kind = array.type
    if pa.types.is_struct(kind):
        parts = [
            pa.nulls(len(array), field.type) if masks.hides(field.name) else _seen_array(array.field(at), masks)
            for at, field in enumerate(kind)
        ]
        fields = [field.with_nullable(True) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null()) if parts else array
    if pa.types.is_list(kind):
        items = _seen_array(array.values, masks)
        return pa.ListArray.from_arrays(_offsets(array), items, mask=array.is_null())
    if pa.types.is_map(kind):
        keys = array.keys
        hidden = pa.array([isinstance(key, str) and masks.hides(key) for key in keys.to_pylist()], pa.bool_())
        items = pc.if_else(hidden, pa.scalar(None, kind.item_type), _seen_array(array.items, masks))
        return pa.MapArray.from_arrays(_offsets(array), _seen_array(keys, masks), items, mask=array.is_null())
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.array([_text(one, masks) for one in array.to_pylist()], kind)
    return array


def _text(value: str | bytes | None, masks: Masks) -> Any:
    return None if value is None else masks.of_value(value)


def _offsets(array: pa.Array) -> pa.Array:
    """The offsets of lists, in memory of their own: Arrow takes no slice of them beside a bitmap of nulls."""
    return pa.array(array.offsets.to_pylist(), pa.int32())
