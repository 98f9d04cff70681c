"""The table of an inbox as it is in a database, which an application may have made by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from sparklog.errors import InvalidArgumentError
from sparklog.processing.message_ids import MOST_CHARACTERS
from sparklog.rollback import check_rollback

__all__ = ["MYSQL", "InboxTable", "inbox_table"]

MYSQL = ("mysql", "mariadb")
KEY = frozenset({"group_id", "message_id"})
_KNOWN: WeakKeyDictionary[Engine, dict[str, InboxTable]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class InboxTable:
    """A table of messages, by what decides how an id is compared there."""

    collation: str | None = None
    """The collation of the ids, with MariaDB and MySQL; empty where it isn't known. None: they are bytes, or of
    PostgreSQL or SQLite, where a text that was refused is looked for."""

    @property
    def is_exact(self) -> bool:
        """Are all characters told apart, but for spaces at the end?"""
        return self.collation is None or (self.has_unicode and self.collation.endswith("_bin"))

    @property
    def has_unicode(self) -> bool:
        """Can each text be compared with an id?"""
        return self.collation is None or self.collation.startswith("utf8mb4")


def inbox_table(session: Any, name: str) -> InboxTable:
    """The table of this name, which is looked at once for an engine.

    Raises:
        InvalidArgumentError: by its keys or types a message could have its effect twice, or never.
        What SQLAlchemy raises.
    """
    connection = session if isinstance(session, Connection) else session.connection()
    known = _KNOWN.setdefault(connection.engine, {})
    if name not in known:
        known[name] = _inspected(connection, name)
    return known[name]


def _inspected(connection: Connection, name: str) -> InboxTable:
    inspector = sa.inspect(connection)
    if not inspector.has_table(name):
        raise InvalidArgumentError(f"inbox: there is no table {name!r}; inbox.create_table(engine) makes it")
    columns = {column["name"]: column["type"] for column in inspector.get_columns(name) if column["name"] in KEY}
    for missing in sorted(KEY - columns.keys()):
        raise InvalidArgumentError(f"inbox: table {name!r} has no column {missing}")
    keys = set(_unique_keys(connection, inspector, name))
    narrower = sorted(", ".join(sorted(key)) for key in keys if key < KEY)
    if KEY not in keys or narrower:
        seen = f"a unique key of {narrower[0]} alone" if narrower else "no unique key of both"
        raise InvalidArgumentError(
            f"inbox: table {name!r} has {seen}, expected PRIMARY KEY (group_id, message_id): a message would have its "
            "effect in one group alone, or more than once"
        )
    for column, kind in columns.items():
        if isinstance(kind, sa.Integer | sa.Numeric):  # SQLite makes a number of a text there
            raise InvalidArgumentError(
                f"inbox: column {column} of table {name!r} has the type {kind!r}, expected texts"
            )
    check_rollback(connection, sa.table(name, *map(sa.column, sorted(KEY))))
    if connection.dialect.name in MYSQL:
        return _of_mysql(connection, name)
    return InboxTable(collation=None if connection.dialect.name in ("postgresql", "sqlite") else "")


def _unique_keys(connection: Connection, inspector: Any, name: str) -> Iterator[frozenset[str]]:
    if primary := inspector.get_pk_constraint(name)["constrained_columns"]:
        yield frozenset(primary)
    if connection.dialect.name == "sqlite":  # of which SQLAlchemy doesn't know each unique key
        quote = connection.dialect.identifier_preparer.quote_identifier
        for index in connection.exec_driver_sql(f"PRAGMA index_list({quote(name)})").all():
            if index[2] and not index[4]:
                columns = connection.exec_driver_sql(f"PRAGMA index_info({quote(index[1])})").all()
                yield frozenset(column[2] for column in columns)
        return
    for each in (*inspector.get_unique_constraints(name), *inspector.get_indexes(name)):
        options = each.get("dialect_options", {})
        is_partial = any(option.endswith("_where") and value is not None for option, value in options.items())
        columns = each["column_names"]
        if each.get("unique", True) and not is_partial and None not in columns:
            yield frozenset(columns)


def _of_mysql(connection: Connection, name: str) -> InboxTable:
    query = sa.text(
        "SELECT column_name, collation_name, character_maximum_length FROM information_schema.columns "
        "WHERE table_schema = database() AND table_name = :name AND column_name IN ('group_id', 'message_id')"
    )
    columns = connection.execute(query, {"name": name}).all()
    for column, _, length in columns:
        if length is not None and length < MOST_CHARACTERS:
            raise InvalidArgumentError(
                f"inbox: column {column} of table {name!r} has {length} characters, expected {MOST_CHARACTERS}"
            )
    found = {collation for _, collation, _ in columns}
    return InboxTable(collation=found.pop() if len(found) == 1 else "")
