"""A statement of an untrusted user: it may read the topics, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparklog.errors import InvalidArgumentError, InvalidConfigurationError
from sparklog.log.cluster import Cluster
from sparklog.sql.duck import connection_for, duckdb_module, told_in_one_line
from sparklog.sql.unread import log_unread
from sparklog.workers import Background

if TYPE_CHECKING:
    import duckdb

__all__ = ["ConfinedQuery", "confine"]

_BATCH_ROWS = 64
"""Rows that DuckDB hands out together: it doesn't count them as its own memory, and each may be large."""
_MEMORY_BYTES = 160 * 2**20
"""The memory of one statement; a console runs a few."""
_INTERRUPT_AGAIN_S = 0.02
_CONFINING = (
    "set temp_directory = ''",  # nothing is spilled to the disk, and no folder is left that may be read
    "set python_enable_replacements = false",  # a name in a statement is no variable of this program
    "set enable_external_access = false",
    "set lock_configuration = true",
)


def confine(connection: duckdb.DuckDBPyConnection, *, memory_bytes: int) -> None:
    """Let a connection use nothing but what is in it already: no files, no extensions, no network, no settings.

    Args:
        memory_bytes: the most that DuckDB may take for itself; a statement that needs more fails.
    """
    connection.execute(f"set memory_limit = '{memory_bytes} bytes'")
    for statement in _CONFINING:
        connection.execute(statement)


class ConfinedQuery:
    """One SELECT (or EXPLAIN, DESCRIBE, SHOW, SUMMARIZE) over topics, run once; any thread may cancel it."""

    def __init__(
        self,
        cluster: Cluster,
        text: str,
        *,
        versions: Mapping[str, int] | None = None,
        memory_bytes: int = _MEMORY_BYTES,
        threads: int | None = None,
    ) -> None:
        """Loads the logs of the topics whose names stand in ``text``; runs nothing.

        Args:
            versions: topics that are shown as of an older version.
            threads: of DuckDB; None: as many as there are processors.
        Raises:
            InvalidArgumentError: no statement, more than one, or one that isn't a query.
            InvalidConfigurationError: DuckDB isn't installed.
            What reading a log raises.
        """
        _check_statement(text)
        self._text = text
        self._is_cancelled = False
        self._lock = threading.Lock()
        """Held while the connection is interrupted or closed, so that no closed one is interrupted."""
        self._is_closed = False
        self._is_idle = threading.Event()
        """Set while DuckDB does nothing for this statement."""
        self._is_idle.set()
        self._interrupting = Background("sql-cancel")
        self._reader: Any = None
        unread: dict[str, Exception] = {}
        self._connection = connection_for(cluster, text, versions=versions, unread=unread)
        log_unread(unread)
        try:
            if threads is not None:
                self._connection.execute(f"set threads = {threads:d}")
            confine(self._connection, memory_bytes=memory_bytes)
        except BaseException:
            self.close()
            raise

    def run(self) -> pa.Schema:
        """Begin; returns the columns.

        Raises:
            InvalidArgumentError: what DuckDB says of the statement, in one line; that it was cancelled.
        """
        with self._at_work():
            relation: Any = self._connection.sql(self._text)
            self._reader = None if relation is None else relation.to_arrow_reader(_BATCH_ROWS)
        return pa.schema([]) if self._reader is None else self._reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, as they are found. Raises ``InvalidArgumentError`` as :meth:`run` does."""
        reader = self._reader
        while reader is not None:
            with self._at_work():
                batch = next(reader, None)
            self._check_running()
            if batch is None:
                return
            yield batch

    def cancel(self) -> None:
        """End the statement soon, wherever it is. From any thread."""
        self._is_cancelled = True
        if not self._is_idle.is_set():
            self._interrupt()
            self._interrupting.start(self._interrupt_until_idle, "cancelling a statement")

    def close(self) -> None:
        """Let go of everything; by the thread that runs the statement."""
        self._reader = None
        with self._lock:
            self._is_closed = True
            self._connection.close()

    def _interrupt(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._connection.interrupt()

    def _interrupt_until_idle(self) -> None:
        """Interrupt again and again: DuckDB forgets an interrupt that comes before it has begun to execute."""
        while not self._is_idle.wait(_INTERRUPT_AGAIN_S):
            self._interrupt()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """DuckDB is at work meanwhile. Raises ``InvalidArgumentError``: what it says, in one line; or it was cancelled.

        ``cancel`` sets its mark first and then looks, here it is the other way round: so one of the two sees the other.
        """
        try:
            self._is_idle.clear()
            self._check_running()
            with told_in_one_line():
                yield
        except InvalidArgumentError:
            self._check_running()
            raise
        finally:
            self._is_idle.set()

    def _check_running(self) -> None:
        if self._is_cancelled:
            raise InvalidArgumentError("the query was cancelled")


def _check_statement(text: str) -> None:
    """Raise ``InvalidArgumentError`` unless it is one statement that only reads."""
    if not text.strip():
        raise InvalidArgumentError("got an empty statement, expected one SELECT")
    duckdb = duckdb_module()
    with told_in_one_line():
        statements = duckdb.extract_statements(text)
    if len(statements) != 1:
        raise InvalidArgumentError(f"got {len(statements)} statements, expected one SELECT")
    kind = statements[0].type
    if kind not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise InvalidArgumentError(f"got a statement of the kind {kind.name}, expected a SELECT: topics are only read")
    if not hasattr(duckdb.DuckDBPyConnection, "interrupt"):
        raise InvalidConfigurationError("queries that can be cancelled need a newer DuckDB: pip install -U duckdb")
