"""The outbox table: its columns, and a relay's requirements on a table that an application created."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from sparklog.errors import InvalidArgumentError

__all__ = ["DEFAULT_NAME", "OutboxTable", "create_table", "inspect_table", "table"]

DEFAULT_NAME = "outbox"
_REQUIRED = ("id", "aggregatetype", "payload")
_ORDER = ("position", "created_at", "timestamp")
"""Columns that may give the order in which rows are sent; the first existing one does."""
_MOST_PAYLOAD_BYTES = 2**24 - 1


def table(metadata: sa.MetaData, name: str = DEFAULT_NAME) -> sa.Table:
    """The outbox table for ``metadata.create_all`` or a migration.

    ``position`` is the order in which rows are sent. ``id`` is unique for ever: it becomes the record's header ``id``.
    ``topic`` is the topic's name unless it is ``outbox.event.<aggregatetype>``.
    """
    return sa.Table(
        name,
        metadata,
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(255), nullable=False, unique=True, default=lambda: str(uuid.uuid4())),
        sa.Column("aggregatetype", sa.String(255), nullable=False),
        sa.Column("aggregateid", sa.String(255), nullable=True),
        sa.Column("type", sa.String(255), nullable=True),
        sa.Column("payload", sa.LargeBinary(_MOST_PAYLOAD_BYTES), nullable=True),
        sa.Column("topic", sa.String(255), nullable=True),
        sa.Column("headers", sa.Text, nullable=True),
        sa.Column("created_at", sa.DateTime, nullable=False, server_default=sa.func.now()),
        sa.Column("published_at", sa.DateTime, nullable=True),
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
    order: tuple[sa.Column[Any], ...]
    """Rows are sent in the order of these."""

    def column(self, name: str) -> sa.Column[Any] | None:
        """A column; None if the table has none of this name."""
        return self.table.columns.get(name)

    def ids(self, texts: Sequence[str]) -> list[Any]:
        """The values of ``id`` that were written as texts."""
        kind = self.table.c.id.type
        if isinstance(kind, sa.Uuid):
            return [uuid.UUID(text) for text in texts]
        return [int(text) for text in texts] if isinstance(kind, sa.Integer) else list(texts)


def inspect_table(engine: Engine, name: str, *, marks: bool) -> OutboxTable:
    """The table of this name, which may lie in a schema: ``schema.table``.

    Args:
        marks: sent rows are to be marked, which takes a column ``published_at``.
    Raises:
        InvalidArgumentError: there is no such table, or it lacks a column; names it.
    """
    schema, _, short = name.rpartition(".")
    try:
        columns_of_table = sa.Table(short, sa.MetaData(), schema=schema or None, autoload_with=engine)
    except sa.exc.NoSuchTableError:
        raise InvalidArgumentError(
            f"there is no table {name!r} in the database; `sparklog outbox create-table` or "
            "sparklog.outbox.create_table(engine) makes it"
        ) from None
    missing = [
        column
        for column in (*_REQUIRED, *(["published_at"] if marks else []))
        if column not in columns_of_table.columns
    ]
    if missing:
        raise InvalidArgumentError(
            f"table {name!r} has no column {', '.join(missing)}; it has {', '.join(columns_of_table.columns.keys())}"
        )
    if isinstance(columns_of_table.c.id.type, sa.Integer) and engine.dialect.name == "sqlite" and not marks:
        _refuse_reused_ids(engine, columns_of_table)
    first = next((columns_of_table.columns[column] for column in _ORDER if column in columns_of_table.columns), None)
    order = (columns_of_table.c.id,) if first is None else (first, columns_of_table.c.id)
    return OutboxTable(columns_of_table, order)


def _refuse_reused_ids(engine: Engine, found: sa.Table) -> None:
    """A relay recognises sent rows by their ids; by default SQLite reuses that of a deleted row."""
    with engine.connect() as connection:
        query = sa.text("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = :name")
        statement = connection.execute(query, {"name": found.name}).scalar() or ""
    if "AUTOINCREMENT" not in statement.upper():
        raise InvalidArgumentError(
            f"table {found.name!r}: SQLite gives the id of a deleted row again; expected INTEGER PRIMARY KEY "
            "AUTOINCREMENT, or ids that are unique, such as UUIDs"
        )
