"""Whether statements of a connection take effect together, or not at all: what an outbox and an inbox rest on."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from sparklog.errors import InvalidArgumentError

__all__ = ["check_rollback"]

_MYSQL = ("mysql", "mariadb")


def check_rollback(connection: Connection, table: sa.TableClause) -> None:
    """Check that what is written to a table can be rolled back, in SQLite, PostgreSQL, MariaDB and MySQL; of other
    databases it isn't known.

    Raises:
        InvalidArgumentError: the connection commits each statement, or the table has no transactions.
        What SQLAlchemy raises.
    """
    dialect = connection.dialect.name
    if dialect in _MYSQL:
        _check_engine(connection, table)
    commits = {
        "sqlite": _sqlite_commits,
        "postgresql": _postgresql_commits,
        "mysql": _mysql_commits,
        "mariadb": _mysql_commits,
    }.get(dialect)
    if commits is not None and commits(connection, table):
        raise InvalidArgumentError(
            f"table {table.name!r}: the engine commits each statement (isolation_level='AUTOCOMMIT'), so that rows and "
            "what belongs to them can't be written all together or not at all; expected one with transactions"
        )


def _sqlite_commits(connection: Connection, table: sa.TableClause) -> bool:
    connection.execute(sa.delete(table).where(sa.false()))
    return not getattr(connection.connection.dbapi_connection, "in_transaction", True)


def _postgresql_commits(connection: Connection, _: Any) -> bool:
    return len({connection.execute(sa.text("SELECT txid_current()")).scalar() for _ in range(2)}) > 1


def _mysql_commits(connection: Connection, _: Any) -> bool:
    return bool(connection.exec_driver_sql("SELECT @@autocommit").scalar())


def _check_engine(connection: Connection, table: sa.TableClause) -> None:
    query = sa.text(
        "SELECT e.engine, e.transactions FROM information_schema.tables t JOIN information_schema.engines e "
        "ON e.engine = t.engine WHERE t.table_schema = coalesce(:schema, DATABASE()) AND t.table_name = :name"
    )
    found = connection.execute(query, {"schema": table.schema, "name": table.name}).first()
    if found is not None and found[1] != "YES":
        raise InvalidArgumentError(
            f"table {table.name!r} has the engine {found[0]}, which has no transactions: its rows can't be written all "
            f"together or not at all; expected one that has them (ALTER TABLE {table.name} ENGINE = InnoDB)"
        )
