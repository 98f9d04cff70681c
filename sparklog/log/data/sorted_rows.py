"""Rows of a table in another order, in which they are copied once: where they are encoded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog._native import CORE
from sparklog.log.data.arrow_buffers import binary_buffers, one_array, take_rows
from sparklog.log.data.few_rows import FewRows
from sparklog.log.data.schema import PLAIN_RECORDS
from sparklog.log.data.typed_records import TypedRows, typed_rows
from sparklog.log.data.value_columns import DATA, SCHEMA_ID

__all__ = ["PLAIN_RECORDS", "Records", "SomeRows", "SortedRows", "as_table"]

_TYPED = [*PLAIN_RECORDS.names, DATA, SCHEMA_ID]
"""The columns that producers make of records of a typed topic without headers."""


@dataclass(slots=True, eq=False)
class SortedRows:
    """A table's rows in an order. For one thread at a time."""

    _table: pa.Table
    _order: npt.NDArray[np.int64] | None = None
    """The place of each row in the table; None: as they are."""
    _taken: pa.Table | None = None
    _plain: Any = field(default=None, repr=False)
    _typed: TypedRows | None = field(default=None, repr=False)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._table.schema

    def part(self, start: int, count: int) -> SomeRows:
        """So many rows from the row ``start`` of the order on."""
        return SomeRows(self, start, count)

    def table(self) -> pa.Table:
        """The rows in their order; copied once."""
        if self._taken is None:
            self._taken = self._table if self._order is None else _taken(self._table, self._order)
        return self._taken

    def plain(self) -> Any:
        """Times, keys and values of the rows as the compiled core encodes them, ``PlainRows``; None: these columns it
        can't, or there isn't any. No timestamp is null then."""
        if self._plain is None and CORE is not None and self.schema.names in (PLAIN_RECORDS.names, _TYPED):
            table = self._table.select(PLAIN_RECORDS.names)
            times, keys, values = (one_array(column) for column in table.columns)
            if table.schema == PLAIN_RECORDS and times.null_count == 0:
                of_times = (times.buffers()[1], times.offset, len(times))
                self._plain = CORE.PlainRows(*of_times, binary_buffers(keys), binary_buffers(values), self._order)
        return self._plain

    def typed(self) -> TypedRows | None:
        """The typed values of the rows as they are encoded without Arrow's writer; None: others are among them, or
        there are other columns."""
        if self._typed is None and self.schema.names == _TYPED and self.plain() is not None:
            times, _, _, values, schema_ids = (one_array(column) for column in self._table.columns)
            if pa.types.is_struct(values.type) and pa.types.is_int32(schema_ids.type):
                self._typed = typed_rows(values, schema_ids, self._order, times)
        return self._typed


@dataclass(frozen=True, slots=True, eq=False)
class SomeRows:
    """Rows that stand together in an order."""

    rows: SortedRows
    start: int
    num_rows: int

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.rows.schema

    def table(self) -> pa.Table:
        """The rows by themselves."""
        return self.rows.table().slice(self.start, self.num_rows)


Records: TypeAlias = "pa.Table | pa.RecordBatch | SomeRows | FewRows"
"""Records of one partition, as a data file is made of them."""


def as_table(records: Records) -> pa.Table:
    """Records as a table, whatever they come as."""
    if isinstance(records, SomeRows):
        return records.table()
    if isinstance(records, FewRows):
        return records.to_table()
    return pa.Table.from_batches([records]) if isinstance(records, pa.RecordBatch) else records


def _taken(table: pa.Table, order: npt.NDArray[np.int64]) -> pa.Table:
    """The rows in another order."""
    return pa.table({name: take_rows(one_array(table[name]), order) for name in table.column_names})
