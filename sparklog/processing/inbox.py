"""The inbox (extra ``outbox``): the effect of a record on an application's own database happens once.

The database remembers which messages a group has dealt with, in the same transaction as the effect: in a table with one
row for each (group, message id), which a unique constraint keeps single. Which of the three to use:

- :func:`once` around the effect: a message that was dealt with raises :class:`AlreadyProcessedError` before it.
- :func:`check_and_record` where a branch reads better than an exception: True once, False ever after.
- :func:`update_if_version` where the row that is changed has a version (an optimistic lock): the precondition fails
  where the change was made already, so no table of messages is needed; changes out of order are refused, too.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from sparklog.errors import InvalidArgumentError
from sparklog.processing.deduplication import AlreadyProcessedError, current_group
from sparklog.processing.inbox_tables import MYSQL, InboxTable, inbox_table
from sparklog.processing.message_ids import MOST_CHARACTERS, HasHeaders, digest, message_id, stored_text

__all__ = [
    "AlreadyProcessedError",
    "check_and_record",
    "create_table",
    "current_group",
    "message_id",
    "once",
    "prune",
    "table",
    "update_if_version",
]

TABLE_NAME = "sparklog_inbox"
_SURROGATES = re.compile("[\ud800-\udfff]")
_PRUNED_AT_ONCE = 10_000


class _Session(Protocol):
    def execute(self, statement: Any, parameters: Any = None, /) -> Any:
        """The method of SQLAlchemy's ``Session`` and ``Connection``."""


def table(metadata: sa.MetaData, name: str = TABLE_NAME) -> sa.Table:
    """The table of processed messages, for ``metadata.create_all`` or a migration."""
    return sa.Table(
        name,
        metadata,
        sa.Column("group_id", sa.String(MOST_CHARACTERS), primary_key=True),
        sa.Column("message_id", sa.String(MOST_CHARACTERS), primary_key=True),
        sa.Column("processed_at", sa.DateTime, nullable=False, server_default=sa.func.now(), index=True),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",  # else ids that differ in case alone are one
        mariadb_charset="utf8mb4",  # the dialect's name is that of the URL
        mariadb_collate="utf8mb4_bin",
    )


def create_table(engine: Engine, name: str = TABLE_NAME) -> sa.Table:
    """Create the table unless it exists; returns it. Raises SQLAlchemy's errors."""
    metadata = sa.MetaData()
    created = table(metadata, name)
    metadata.create_all(engine, checkfirst=True)
    return created


@contextmanager
def once(session: _Session, record: HasHeaders, *, group: str | None = None, table: str = TABLE_NAME) -> Iterator[str]:
    """Have the effect inside the ``with`` once for each message, if it is in the transaction of ``session``.

    A rollback undoes both; of two concurrent attempts the database lets the second wait for the first.

    Args:
        session: SQLAlchemy's ``Session`` or ``Connection``; the caller commits.
        group: by default that of the worker whose handler this is (``App(group_id=…)``). To be given anywhere else,
            such as in threads that a handler hands its work to.
        table: its name in the database.
    Yields:
        The message's id.
    Raises:
        InvalidArgumentError: there is no group.
        AlreadyProcessedError: before the body: it was dealt with. A worker of :mod:`sparklog.processing` takes that for
            success.
        SQLAlchemy's errors.
    """
    if not check_and_record(session, record, group=group, table=table):
        raise AlreadyProcessedError(f"group {_group(group)!r} has dealt with message {message_id(record)!r} before")
    yield message_id(record)


def check_and_record(
    session: _Session, record: HasHeaders, *, group: str | None = None, table: str = TABLE_NAME
) -> bool:
    """Record that the group deals with a message, in the transaction of ``session``. False: it has before.

    Ids and groups are compared byte for byte, whatever the table's collation.

    Raises:
        InvalidArgumentError: there is no group, see :func:`once`, or it is too long.
        SQLAlchemy's errors.
    """
    group_id, message = _group(group), message_id(record)
    target, there = sa.table(table, sa.column("group_id"), sa.column("message_id")), inbox_table(session, table)
    stored = stored_text(group_id, is_exact=there.is_exact), stored_text(message, is_exact=there.is_exact)
    # Earlier versions stored each id as it is.
    if stored != (group_id, message) and _holds(session, target, group_id, message, there):
        return False
    if _is_inserted(session, target, *stored):
        return True
    if _holds(session, target, *stored, there):
        return False
    # The table takes another id for the same: a collation of its own, or a row of an earlier version.
    stored = digest(group_id.encode("utf-8", "surrogatepass")), digest(message.encode("utf-8", "surrogatepass"))
    if _is_inserted(session, target, *stored):
        return True
    if _holds(session, target, *stored, there):
        return False
    raise InvalidArgumentError(
        f"inbox: table {table!r} takes no row of group {group_id!r} and message {message!r}, and has none: expected a "
        "table as inbox.create_table makes it"
    )


def _group(given: str | None) -> str:
    group = current_group.get() if given is None else given
    if not group:
        raise InvalidArgumentError(
            "inbox: no group is given, and this isn't a handler in its own thread or task: expected group=…, the group "
            "that deals with the message"
        )
    if len(group) > MOST_CHARACTERS:
        raise InvalidArgumentError(f"inbox: group has {len(group)} characters, expected up to {MOST_CHARACTERS}")
    return group


def _holds(session: _Session, target: Any, group_id: str, message: str, there: InboxTable) -> bool:
    """Does the table have exactly this row?"""
    texts, dialect = group_id + message, _dialect(session)
    if "\0" in texts and dialect == "postgresql":
        return False  # it can't
    if _SURROGATES.search(texts) or not (texts.isascii() or there.has_unicode):
        return False  # another character set: such a comparison can be an error, and such an id was never stored whole
    is_row = (target.c.group_id == group_id, target.c.message_id == message)
    read = [sa.cast(each, sa.Text) if dialect == "postgresql" else each for each in target.c]  # char(n) without spaces
    # A lock sees what others have committed since this transaction began.
    query = sa.select(*read).where(*is_row)
    rows = session.execute(query.with_for_update(read=True) if dialect in MYSQL else query)
    wanted = (group_id.encode(), message.encode())
    return any(tuple(each if isinstance(each, bytes) else str(each).encode() for each in row) == wanted for row in rows)


def _is_inserted(session: _Session, target: Any, group_id: str, message: str) -> bool:
    """Insert a row unless its key is there. Raises SQLAlchemy's errors."""
    values = {"group_id": group_id, "message_id": message}
    dialect = _dialect(session)
    if dialect == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as insert_postgresql

        return _changes_a_row(session, insert_postgresql(target).values(values).on_conflict_do_nothing())
    if dialect == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as insert_sqlite

        return _changes_a_row(session, insert_sqlite(target).values(values).on_conflict_do_nothing())
    insert = sa.insert(target).values(values)
    if dialect in MYSQL:  # what it would cut or change silently, inbox_table has refused, or stored_text replaced
        return _changes_a_row(session, insert.prefix_with("IGNORE"))
    try:
        with session.begin_nested():  # type: ignore[attr-defined]
            session.execute(insert)
    except sa.exc.IntegrityError:
        return False
    return True


def update_if_version(
    session: _Session,
    target: sa.Table,
    where: Mapping[str, Any],
    version: int,
    values: Mapping[str, Any],
    *,
    version_column: str = "version",
) -> bool:
    """Change a row if it still has ``version``, and give it the next one. False: it was changed meanwhile, perhaps for
    this very message. Raises what SQLAlchemy raises."""
    columns = target.columns
    is_the_row = [columns[name] == value for name, value in where.items()]
    update = (
        sa.update(target)
        .where(*is_the_row, columns[version_column] == version)
        .values({**values, version_column: version + 1})
    )
    return _changes_a_row(session, update)


def prune(engine: Engine, *, older_than: datetime.timedelta, table: str = TABLE_NAME) -> int:
    """Forget messages that were dealt with longer ago, by the database's clock; returns their number.

    A message that comes again after that has its effect again: keep them for longer than the topic keeps its records,
    and longer than anybody replays.
    """
    rows = sa.table(table, sa.column("group_id"), sa.column("message_id"), sa.column("processed_at"))
    key = (rows.c.group_id, rows.c.message_id)
    total = 0
    with engine.connect() as connection:
        now: Any = connection.execute(sa.select(sa.func.current_timestamp())).scalar()
        if isinstance(now, str):
            now = datetime.datetime.fromisoformat(now)
        before = now.replace(tzinfo=None) - older_than
        connection.rollback()
        while True:
            with connection.begin():
                due = connection.execute(
                    sa.select(*key).where(rows.c.processed_at < before).limit(_PRUNED_AT_ONCE)
                ).all()
                delete = sa.delete(rows).where(
                    rows.c.group_id == sa.bindparam("g"), rows.c.message_id == sa.bindparam("m")
                )
                if due:
                    connection.execute(delete, [{"g": each[0], "m": each[1]} for each in due])
            total += len(due)
            if len(due) < _PRUNED_AT_ONCE:
                return total


def _changes_a_row(session: _Session, statement: Any) -> bool:
    # Without the option the count of an insert isn't kept, whatever the driver knows.
    return bool(session.execute(statement.execution_options(preserve_rowcount=True)).rowcount == 1)


def _dialect(session: Any) -> str:
    bind = session.get_bind() if hasattr(session, "get_bind") else session
    return str(bind.dialect.name)
