"""Which table a relay sends from: what tells two databases, schemas and tables apart without a right to write there."""

from __future__ import annotations

import ctypes
import os
import sys
import uuid
from dataclasses import asdict, dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

__all__ = ["Look", "Place", "look_at"]

_AT_FDCWD, _STATX_BTIME, _STATX_BYTES = -100, 0x800, 256
"""Constants of Linux's statx(2)."""
_IN_MEMORY: WeakKeyDictionary[Engine, str] = WeakKeyDictionary()
"""A mark of each engine with a database in its own memory."""


@dataclass(frozen=True, slots=True)
class Place:
    """A table, and where it is."""

    server: str
    """The server and its database, or SQLite's file."""
    schema: str
    table: str
    made: str | None
    """A mark that is new where the table is made anew under the same name, or emptied by PostgreSQL's TRUNCATE: the oid
    and the file of PostgreSQL, the file and the version of the schema of SQLite, the time of MariaDB. It may be new
    without that, too. None where nothing tells."""
    number: str | None = None
    """A number that the table keeps under another name, and shares with no other of its database: PostgreSQL's oid,
    the root page of SQLite, which is new after VACUUM. None where there is none."""

    def __str__(self) -> str:
        return f"{'.'.join(filter(None, (self.schema, self.table)))} of {self.server}"

    def is_same(self, other: Place) -> bool:
        """Have both the same names? Two tables have different ones, or one was made after the other was gone."""
        return replace(self, made=None, number=None) == replace(other, made=None, number=None)

    def may_be_anew(self, other: Place) -> bool:
        """May it have been made anew between the two looks?"""
        return self.made is not None and other.made is not None and self.made != other.made

    def to_json(self) -> dict[str, Any]:
        """The members of an object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Look:
    """All that a relay sees of a table beside its rows."""

    place: Place
    columns: str
    """A mark that is new where a column is added, dropped or given another type. Empty where :attr:`Place.made` is
    new then."""
    counter: int | None
    """A number of the database's that only grows with what is written there, unless the database is set back: the
    newest transaction's of PostgreSQL, the table's sequence of others. None where there is none."""

    def is_of_another(self, other: Look) -> bool:
        """Was the table made anew, or changed, between the two looks?"""
        return (self.place, self.columns) != (other.place, other.columns)


def look_at(connection: Connection, table: sa.Table) -> Look:
    """Look at a table that is there. Raises what SQLAlchemy raises."""
    find = {"sqlite": _sqlite, "postgresql": _postgresql, "mysql": _mysql, "mariadb": _mysql}
    return find.get(connection.dialect.name, _other)(connection, table)


def _sqlite(connection: Connection, table: sa.Table) -> Look:
    schema, name = (table.schema or "main").lower(), table.name.lower()  # which case doesn't tell apart there
    master = sa.table("sqlite_master", *map(sa.column, ("rootpage", "type", "name")), schema=schema)
    query = sa.select(master.c.name, master.c.rootpage).where(
        master.c.type == "table", sa.func.lower(master.c.name).in_([name, "sqlite_sequence"])
    )
    pages = {each.lower(): page for each, page in connection.execute(query)}
    counter = None
    if "sqlite_sequence" in pages:
        sequence = sa.table("sqlite_sequence", sa.column("seq"), sa.column("name"), schema=schema)
        counter = connection.execute(sa.select(sequence.c.seq).where(sa.func.lower(sequence.c.name) == name)).scalar()
    quoted = connection.dialect.identifier_preparer.quote(schema)
    version = connection.exec_driver_sql(f"PRAGMA {quoted}.schema_version").scalar()
    files = {each[1].lower(): each[2] for each in connection.exec_driver_sql("PRAGMA database_list")}
    path = files.get(schema)
    if path:
        path = os.path.realpath(path)
        server, file = f"SQLite {path}", _file(path)
    else:
        server, file = "SQLite in memory", _IN_MEMORY.setdefault(connection.engine, uuid.uuid4().hex)
    place = Place(server, schema, name, f"{file}/{version}", str(pages[name]) if name in pages else None)
    return Look(place, "", None if counter is None else int(counter))


def _postgresql(connection: Connection, table: sa.Table) -> Look:
    query = sa.text(
        "SELECT current_database(), n.nspname, c.relname, CAST(c.oid AS text), "
        "CAST(pg_relation_filenode(c.oid) AS text), "
        "(SELECT string_agg(concat(a.attname, ' ', a.atttypid, ' ', a.atttypmod), ', ' ORDER BY a.attnum) "
        "FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), "
        "CAST(CAST(txid_snapshot_xmax(txid_current_snapshot()) AS text) AS bigint), "
        "has_function_privilege('pg_control_system()', 'execute') FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = CAST(CAST(:name AS text) AS regclass)"
    )
    named = connection.dialect.identifier_preparer.format_table(table)
    database, schema, name, oid, file, columns, counter, may_ask = connection.execute(query, {"name": named}).one()
    if may_ask:
        server = connection.exec_driver_sql("SELECT system_identifier FROM pg_control_system()").scalar()
    else:
        server = _address(connection)
    return Look(Place(f"PostgreSQL {server}/{database}", schema, name, f"{oid}/{file}", oid), columns, int(counter))


def _mysql(connection: Connection, table: sa.Table) -> Look:
    query = sa.text(
        "SELECT t.table_schema, UNIX_TIMESTAMP(t.create_time), t.auto_increment, "
        "(SELECT GROUP_CONCAT(c.column_name, ' ', c.column_type ORDER BY c.ordinal_position) "
        "FROM information_schema.columns c WHERE c.table_schema = t.table_schema AND c.table_name = t.table_name) "
        "FROM information_schema.tables t "
        "WHERE t.table_schema = coalesce(:schema, DATABASE()) AND t.table_name = :name"
    )
    schema, made, counter, columns = connection.execute(query, {"schema": table.schema, "name": table.name}).one()
    place = Place(f"MySQL {_address(connection)}", str(schema), table.name, None if made is None else str(made))
    return Look(place, str(columns), None if counter is None else int(counter))


def _other(connection: Connection, table: sa.Table) -> Look:
    server = f"{connection.dialect.name} {_address(connection)}/{connection.engine.url.database}"
    return Look(Place(server, table.schema or "", table.name, None), "", None)


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
