"""Which table a relay sends from: what tells two databases, schemas and tables apart without a right to write there."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from sparklog.outbox.tables import OutboxTable

__all__ = ["Place", "counter_of", "place_of"]

_AT_FDCWD, _STATX_BTIME, _STATX_BYTES = -100, 0x800, 256
"""Constants of Linux's statx(2)."""


@dataclass(frozen=True, slots=True)
class Place:
    """A table, and where it is."""

    server: str
    """The server and its database, or SQLite's file."""
    schema: str
    table: str
    made: str | None
    """A mark that is new where the table is made anew under the same name: PostgreSQL's oid, the file of SQLite, the
    time of MariaDB. It may be new without that, too. None where nothing tells."""

    def __str__(self) -> str:
        return f"{'.'.join(filter(None, (self.schema, self.table)))} of {self.server}"

    def is_same(self, other: Place) -> bool:
        """Have both the same names? Two tables have different ones, or one was made after the other was gone."""
        return replace(self, made=None) == replace(other, made=None)

    def may_be_anew(self, other: Place) -> bool:
        """May it have been made anew between the two looks?"""
        return self.made is not None and other.made is not None and self.made != other.made

    def to_json(self) -> dict[str, Any]:
        """The members of an object."""
        return asdict(self)


def place_of(engine: Engine, outbox: OutboxTable) -> Place:
    """Where the table is. Raises what SQLAlchemy raises."""
    with engine.connect() as connection:
        find = {"sqlite": _sqlite, "postgresql": _postgresql, "mysql": _mysql, "mariadb": _mysql}
        return find.get(engine.dialect.name, _other)(connection, outbox.table)


def counter_of(engine: Engine, outbox: OutboxTable) -> int | None:
    """A number of the database's that only grows with what is written there, unless the database is set back: the
    newest transaction's of PostgreSQL, the table's sequence of others. None where there is none. Raises what
    SQLAlchemy raises.
    """
    table, dialect = outbox.table, engine.dialect.name
    query: Any
    if dialect == "postgresql":
        query = sa.text("SELECT CAST(CAST(txid_snapshot_xmax(txid_current_snapshot()) AS text) AS bigint)")
    elif dialect in ("mysql", "mariadb"):
        query = sa.text(
            "SELECT auto_increment FROM information_schema.tables "
            "WHERE table_schema = coalesce(:schema, DATABASE()) AND table_name = :name"
        ).bindparams(schema=table.schema, name=table.name)
    elif outbox.has_sequence:
        sequence = sa.table("sqlite_sequence", sa.column("seq"), sa.column("name"), schema=table.schema)
        query = sa.select(sequence.c.seq).where(sa.func.lower(sequence.c.name) == table.name.lower())
    else:
        return None
    with engine.connect() as connection:
        found = connection.execute(query).scalar()
    return None if found is None else int(found)


def _sqlite(connection: Connection, table: sa.Table) -> Place:
    schema, name = (table.schema or "main").lower(), table.name.lower()  # which case doesn't tell apart there
    files = {each[1].lower(): each[2] for each in connection.exec_driver_sql("PRAGMA database_list")}
    path = files.get(schema)
    if not path:
        return Place("SQLite in memory", schema, name, f"process {os.getpid()}")
    path = os.path.realpath(path)
    return Place(f"SQLite {path}", schema, name, _file(path))


def _postgresql(connection: Connection, table: sa.Table) -> Place:
    preparer = connection.dialect.identifier_preparer
    query = sa.text(
        "SELECT current_database(), n.nspname, c.relname, CAST(c.oid AS text) FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = CAST(CAST(:name AS text) AS regclass)"
    )
    database, schema, name, oid = connection.execute(query, {"name": preparer.format_table(table)}).one()
    may_ask = "SELECT has_function_privilege('pg_control_system()', 'execute')"
    if connection.exec_driver_sql(may_ask).scalar():
        server = connection.exec_driver_sql("SELECT system_identifier FROM pg_control_system()").scalar()
    else:
        server = _address(connection)
    return Place(f"PostgreSQL {server}/{database}", schema, name, str(oid))


def _mysql(connection: Connection, table: sa.Table) -> Place:
    schema = table.schema or connection.exec_driver_sql("SELECT DATABASE()").scalar()
    query = sa.text(
        "SELECT UNIX_TIMESTAMP(create_time) FROM information_schema.tables "
        "WHERE table_schema = :schema AND table_name = :name"
    )
    made = connection.execute(query, {"schema": schema, "name": table.name}).scalar()
    return Place(f"MySQL {_address(connection)}", str(schema), table.name, None if made is None else str(made))


def _other(connection: Connection, table: sa.Table) -> Place:
    server = f"{connection.dialect.name} {_address(connection)}/{connection.engine.url.database}"
    return Place(server, table.schema or "", table.name, None)


def _address(connection: Connection) -> str:
    url = connection.engine.url
    host = url.host or url.query.get("host") or url.query.get("unix_socket") or "localhost"
    return f"{host}{'' if url.port is None else f':{url.port}'}"


def _file(path: str) -> str:
    """A file's number, which a later file may have again, and the time when it was made, where the system tells it."""
    stat = os.stat(path)
    made = getattr(stat, "st_birthtime", None) or (_birth_on_linux(path) if sys.platform == "linux" else None)
    return f"{stat.st_ino}" if made is None else f"{stat.st_ino} {made}"


def _birth_on_linux(path: str) -> str | None:
    """The time when a file was made, which Python's ``os.stat`` doesn't ask Linux for."""
    statx = getattr(ctypes.CDLL(None), "statx", None)
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if statx is None or statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, found) != 0:
        return None
    known = int.from_bytes(found.raw[0:4], sys.byteorder)
    if not known & _STATX_BTIME:
        return None
    seconds, nanoseconds = found.raw[80:88], found.raw[88:92]
    return f"{int.from_bytes(seconds, sys.byteorder, signed=True)}.{int.from_bytes(nanoseconds, sys.byteorder):09d}"
