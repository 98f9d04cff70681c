"""Rows of an Arrow table, chosen by a condition in SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from sparklog.sql.duck import duckdb_module, told_in_one_line

if TYPE_CHECKING:
    import duckdb

__all__ = ["row_filter", "rows_where"]

_ROW = "sparklog_row"


def row_filter(where: str) -> Callable[[pa.Table], list[int]]:
    """A function that returns the numbers, from 0 and ascending, of a table's rows for which a condition holds.

    Args:
        where: in DuckDB's SQL, over the table's columns.
    Raises (the function):
        InvalidArgumentError: what DuckDB says of the condition, in one line.
        InvalidConfigurationError: DuckDB isn't installed.
    """

    def choose(table: pa.Table) -> list[int]:
        connection = duckdb_module().connect()
        try:
            connection.execute("set TimeZone = 'UTC'")
            return rows_where(connection, where, table)
        finally:
            connection.close()

    return choose


def rows_where(connection: duckdb.DuckDBPyConnection, where: str, table: pa.Table) -> list[int]:
    """The numbers, from 0 and ascending, of a table's rows for which a condition holds.

    Raises ``InvalidArgumentError``: what DuckDB says of the condition, in one line.
    """
    numbered = table.append_column(_ROW, pa.array(range(table.num_rows), pa.int64()))
    with told_in_one_line():
        rows = connection.from_arrow(numbered).filter(where).project(_ROW).fetchall()
    return sorted(row for (row,) in rows)
