"""A condition in SQL on records, for several threads."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

from sparklog.sql.confined import confine
from sparklog.sql.duck import duckdb_module
from sparklog.sql.filtering import rows_where

__all__ = ["Where"]

_MEMORY_BYTES = 2**26


class Where:
    """A condition in SQL. Each thread has a connection of its own, which can do nothing else."""

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        self._own = threading.local()
        self._lock = threading.Lock()
        self._connections: list[Any] = []

    @property
    def is_empty(self) -> bool:
        return not self._text

    def __enter__(self) -> Where:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()

    def rows(self, batch: pa.RecordBatch) -> list[int]:
        """The numbers of the rows for which it holds, ascending."""
        return rows_where(self._connection(), self._text, pa.Table.from_batches([batch]))

    def _connection(self) -> Any:
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = duckdb_module().connect()
            with self._lock:
                self._connections.append(connection)
            connection.execute("set TimeZone = 'UTC'")
            connection.execute("set threads = 1")
            confine(connection, memory_bytes=_MEMORY_BYTES)
            self._own.connection = connection
        return connection
