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
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from sparklog.errors import InvalidArgumentError
from sparklog.processing.deduplication import AlreadyProcessedError, current_group

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
ID_HEADER = "id"
_MOST_CHARACTERS = 255
_PRUNED_AT_ONCE = 10_000


class _Session(Protocol):
    def execute(self, statement: Any, parameters: Any = None, /) -> Any:
        """The method of SQLAlchemy's ``Session`` and ``Connection``."""


class _Record(Protocol):
    @property
    def topic(self) -> str:
        """The record's topic."""

    @property
    def partition(self) -> int:
        """Its partition."""

    @property
    def offset(self) -> int:
        """Its offset there."""

    @property
    def headers(self) -> Any:
        """(name, bytes or None) of each header."""


def table(metadata: sa.MetaData, name: str = TABLE_NAME) -> sa.Table:
    """The table of processed messages, for ``metadata.create_all`` or a migration."""
    return sa.Table(
        name,
        metadata,
        sa.Column("group_id", sa.String(_MOST_CHARACTERS), primary_key=True),
        sa.Column("message_id", sa.String(_MOST_CHARACTERS), primary_key=True),
        sa.Column("processed_at", sa.DateTime, nullable=False, server_default=sa.func.now(), index=True),
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",  # else ids that differ in case alone are one
    )


def create_table(engine: Engine, name: str = TABLE_NAME) -> sa.Table:
    """Create the table unless it exists; returns it. Raises SQLAlchemy's errors."""
    metadata = sa.MetaData()
    created = table(metadata, name)
    metadata.create_all(engine, checkfirst=True)
    return created


def message_id(record: _Record) -> str:
    """The id of a record's message: its header ``id``, else ``topic-partition-offset``.

    With the header a message that was sent twice is one; without, only a record that was read twice. An id of more than
    255 characters, or one that is no UTF-8, stands as its SHA-256.
    """
    for name, value in reversed(list(record.headers or ())):
        if name == ID_HEADER and value is not None:
            try:
                text = value.decode()
            except UnicodeDecodeError:
                return f"sha256:{hashlib.sha256(value).hexdigest()}"
            return text if len(text) <= _MOST_CHARACTERS else f"sha256:{hashlib.sha256(value).hexdigest()}"
    return f"{record.topic}-{record.partition}-{record.offset}"


@contextmanager
def once(session: _Session, record: _Record, *, group: str | None = None, table: str = TABLE_NAME) -> Iterator[str]:
    """Have the effect inside the ``with`` once for each message, if it is in the transaction of ``session``.

    A rollback undoes both; of two concurrent attempts the database lets the second wait for the first.

    Args:
        session: SQLAlchemy's ``Session`` or ``Connection``; the caller commits.
        group: by default that of the worker whose handler this is (``App(group_id=…)``), else ``default``.
        table: its name in the database.
    Yields:
        The message's id.
    Raises:
        AlreadyProcessedError: before the body: it was dealt with. A worker of :mod:`sparklog.processing` takes that for
            success.
        SQLAlchemy's errors.
    """
    if not check_and_record(session, record, group=group, table=table):
        raise AlreadyProcessedError(
            f"group {group or current_group.get()!r} has dealt with message {message_id(record)!r} before"
        )
    yield message_id(record)


def check_and_record(session: _Session, record: _Record, *, group: str | None = None, table: str = TABLE_NAME) -> bool:
    """Record that the group deals with a message, in the transaction of ``session``. False: it has before.

    Raises what SQLAlchemy raises.
    """
    group_id = group or current_group.get()
    if len(group_id) > _MOST_CHARACTERS:
        raise InvalidArgumentError(f"inbox: group has {len(group_id)} characters, expected up to {_MOST_CHARACTERS}")
    values = {"group_id": group_id, "message_id": message_id(record)}
    target = sa.table(table, sa.column("group_id"), sa.column("message_id"))
    dialect = _dialect(session)
    if dialect == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as insert_postgresql

        return _changes_a_row(session, insert_postgresql(target).values(values).on_conflict_do_nothing())
    if dialect == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as insert_sqlite

        return _changes_a_row(session, insert_sqlite(target).values(values).on_conflict_do_nothing())
    insert = sa.insert(target).values(values)
    if dialect in ("mysql", "mariadb"):
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
