"""The outbox table: its columns, and a relay's requirements on a table that an application created."""

from __future__ import annotations

import uuid
import warnings
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Connection, Dialect, Engine

from sparklog.errors import InvalidArgumentError
from sparklog.outbox.ids import Ids, as_number, ids_of

__all__ = ["DEFAULT_NAME", "PUBLISHED", "Order", "OutboxTable", "create_table", "inspect_table", "order_of", "table"]

DEFAULT_NAME = "outbox"
_REQUIRED = ("id", "aggregatetype", "payload")
_ORDER = ("position", "created_at", "timestamp")
"""Columns by which rows are sent where no number gives their order; the first existing one does."""
_MOST_PAYLOAD_BYTES = 2**24 - 1
_MOST_CHARACTERS = 255
PUBLISHED = "published_at"
"""The column that is set once a row was sent, by a relay that marks."""


class _ExactText(sa.types.TypeDecorator[str]):
    """A text that equals only itself: by MariaDB's default ``abc`` equals ``ABC`` and ``abc `` with a space."""

    impl = sa.String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        if dialect.name not in ("mysql", "mariadb"):
            return dialect.type_descriptor(sa.String(_MOST_CHARACTERS))
        collation = "utf8mb4_nopad_bin" if getattr(dialect, "is_mariadb", False) else "utf8mb4_0900_bin"
        return dialect.type_descriptor(mysql.VARCHAR(_MOST_CHARACTERS, charset="utf8mb4", collation=collation))


def table(metadata: sa.MetaData, name: str = DEFAULT_NAME) -> sa.Table:
    """The outbox table for ``metadata.create_all`` or a migration.

    ``position`` is the order in which rows are sent. ``id`` is unique for ever: it becomes the record's header ``id``.
    ``topic`` is the topic's name unless it is ``outbox.event.<aggregatetype>``.
    """
    return sa.Table(
        name,
        metadata,
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("id", _ExactText(), nullable=False, unique=True, default=lambda: str(uuid.uuid4())),
        sa.Column("aggregatetype", sa.String(_MOST_CHARACTERS), nullable=False),
        sa.Column("aggregateid", sa.String(_MOST_CHARACTERS), nullable=True),
        sa.Column("type", sa.String(_MOST_CHARACTERS), nullable=True),
        sa.Column("payload", sa.LargeBinary(_MOST_PAYLOAD_BYTES), nullable=True),
        sa.Column("topic", sa.String(_MOST_CHARACTERS), nullable=True),
        sa.Column("headers", sa.Text, nullable=True),
        sa.Column("created_at", sa.DateTime, nullable=False, server_default=sa.func.now()),
        sa.Column(PUBLISHED, sa.DateTime, nullable=True),
        sqlite_autoincrement=True,  # else SQLite gives a position again once its row is deleted
    )


def create_table(engine: Engine, name: str = DEFAULT_NAME) -> sa.Table:
    """Create the outbox table unless it exists; returns it. Raises SQLAlchemy's errors."""
    metadata = sa.MetaData()
    created = table(metadata, name)
    metadata.create_all(engine, checkfirst=True)
    return created


@dataclass(frozen=True, slots=True)
class OutboxTable:
    """A table as it is in the database, and the columns that decide."""

    table: sa.Table
    ids: Ids
    is_utf8: bool = True
    """Are the database's texts in UTF-8? Of SQLite's, which may be in UTF-16."""

    @property
    def name(self) -> str:
        """Its name, with the schema's if one was given."""
        return self.table.fullname

    def column(self, name: str) -> sa.Column[Any] | None:
        """A column; None if the table has none of this name."""
        return self.table.columns.get(name)

    @property
    def waiting(self) -> list[Any]:
        """The conditions that hold for rows that aren't settled."""
        published = self.column(PUBLISHED)
        return [] if published is None else [published.is_(None)]


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which rows are sent."""

    columns: tuple[sa.Column[Any], ...]
    is_promised: bool
    """Is it that in which the rows were written?"""


def order_of(outbox: OutboxTable, *, by: str | None = None, is_unordered: bool = False) -> Order:
    """The order of a table's rows.

    Args:
        by: the column that gives the order of writing, as the user says.
        is_unordered: no order is asked for.
    Raises:
        InvalidArgumentError: there is no such column; or none gives the order, and nobody said that none is needed.
    """
    columns = outbox.table.columns
    if by is not None:
        there = [str(column.name) for column in columns if column.name != PUBLISHED]  # which no row has that waits
        if by not in there:
            raise InvalidArgumentError(
                f"table {outbox.name!r} has no column {by} to order by; it has {', '.join(there)}"
            )
        return Order(_unique(columns[by], columns.id), is_promised=True)
    first = _order_column(outbox)
    is_promised = first.name == "position" or first is columns.id
    is_promised = is_promised and (outbox.ids.are_numbers if first is columns.id else as_number(first))
    if not is_promised and not is_unordered:
        ids = f"ids of the type {columns.id.type!r}"
        seen = ids if first is columns.id else f"{first.name}, which may be the same for several rows, and {ids}"
        raise InvalidArgumentError(
            f"table {outbox.name!r} has {seen}: they don't give the order in which its rows were written. Expected a "
            "numbered column `position` or integer ids; else --order-by (order_by=…) with the column that gives it, "
            "or --unordered (unordered=True), if records of one aggregate may come in another order than their rows"
        )
    return Order(_unique(first, columns.id), is_promised=is_promised and not is_unordered)


def _order_column(outbox: OutboxTable) -> sa.Column[Any]:
    """The first column to order by: a time may be the same for several rows, or that of the transaction's beginning,
    so numbers go before it."""
    columns = outbox.table.columns
    if "position" in columns and as_number(columns.position):
        return columns.position
    if outbox.ids.are_numbers:
        return columns.id
    return next((columns[each] for each in _ORDER if each in columns), columns.id)


def _unique(*columns: sa.Column[Any]) -> tuple[sa.Column[Any], ...]:
    return tuple(dict.fromkeys(columns))


def inspect_table(engine: Engine, name: str, *, marks: bool) -> OutboxTable:
    """The table of this name, which may lie in a schema: ``schema.table``.

    Args:
        marks: sent rows are to be marked, which takes a column ``published_at``.
    Raises:
        InvalidArgumentError: there is no such table, it lacks a column, or its ids are of a type that can't be settled;
            names it.
    """
    schema, _, short = name.rpartition(".")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Did not recognize type", sa.exc.SAWarning)  # told below, if it matters
            found = sa.Table(short, sa.MetaData(), schema=schema or None, autoload_with=engine)
    except sa.exc.NoSuchTableError:
        raise InvalidArgumentError(
            f"there is no table {name!r} in the database; `sparklog outbox create-table` or "
            "sparklog.outbox.create_table(engine) makes it"
        ) from None
    missing = [each for each in (*_REQUIRED, *([PUBLISHED] if marks else [])) if each not in found.columns]
    if missing:
        raise InvalidArgumentError(
            f"table {name!r} has no column {', '.join(missing)}; it has {', '.join(found.columns.keys())}"
        )
    if engine.dialect.name != "sqlite":
        return OutboxTable(found, ids_of(found.c.id, engine.dialect.name, name))
    with engine.connect() as connection:
        is_utf8 = connection.exec_driver_sql("PRAGMA encoding").scalar() == "UTF-8"
        declared, statement = _declared_ids(connection, found), _statement_of(connection, found)
    if not marks and "AUTOINCREMENT" not in statement and "WITHOUT ROWID" not in statement:
        _refuse_reused_ids(found, declared)
    return OutboxTable(found, ids_of(found.c.id, "sqlite", name, declared=declared), is_utf8)


def _declared_ids(connection: Connection, found: sa.Table) -> str:
    """The type of ``id`` as it is declared: SQLAlchemy knows its affinity alone."""
    query = sa.text("SELECT type FROM pragma_table_info(:name, :schema) WHERE lower(name) = 'id'")
    given = {"name": found.name, "schema": found.schema or "main"}
    return str(connection.execute(query, given).scalar() or "").upper()


def _statement_of(connection: Connection, found: sa.Table) -> str:
    """The statement that created a table of SQLite, in capitals."""
    master = sa.table("sqlite_master", sa.column("sql"), sa.column("type"), sa.column("name"), schema=found.schema)
    query = sa.select(master.c.sql).where(master.c.type == "table", sa.func.lower(master.c.name) == found.name.lower())
    return str(connection.execute(query).scalar() or "").upper()


def _refuse_reused_ids(found: sa.Table, declared: str) -> None:
    """A relay recognises sent rows by their ids; by default SQLite reuses that of a deleted row, in the one kind of
    column that it fills by itself."""
    if declared == "INTEGER" and [column.name for column in found.primary_key] == ["id"]:
        raise InvalidArgumentError(
            f"table {found.name!r}: SQLite gives the id of a deleted row again; expected INTEGER PRIMARY KEY "
            "AUTOINCREMENT, or ids that are unique, such as UUIDs"
        )
