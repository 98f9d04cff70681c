"""Rows of an outbox table as records, and as what a relay recognises them by."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Connection, Engine

from sparklog.errors import InvalidTypeError
from sparklog.outbox.errors import OutboxError
from sparklog.outbox.headers import parse_headers
from sparklog.outbox.ids import Id, header_of, is_binary, raw, told
from sparklog.outbox.places import Look, look_at
from sparklog.outbox.sending import EVENT_TOPICS
from sparklog.outbox.tables import PUBLISHED, Order, OutboxTable

__all__ = ["Backlog", "Row", "Seen", "as_record", "backlog", "columns_of", "digest_of", "read_rows", "seen", "selected"]

_DIGEST_BYTES = 16
_TEXTS = frozenset({"payload", "headers"})
_NAMES = frozenset({"aggregatetype", "aggregateid", "type", "topic"})
_SENT = (
    (sa.DateTime, "timestamp_send"),
    (sa.Date, "date_send"),
    (sa.Time, "time_send"),
    (sa.Interval, "interval_send"),
    (postgresql.INTERVAL, "interval_send"),
    (sa.ARRAY, "array_send"),
    (postgresql.ranges.AbstractMultiRange, "multirange_send"),
    (postgresql.ranges.AbstractSingleRange, "range_send"),
    (sa.REAL, "float4send"),
    (sa.Float, "float8send"),
)
"""By type of PostgreSQL: the function that gives a value's bytes."""
_OF_A_SESSION = frozenset({datetime.datetime, bytearray, memoryview})


@dataclass(frozen=True, slots=True)
class Seen:
    """A row as it was read."""

    id: Id
    columns: tuple[str, ...]
    """All but ``published_at``."""
    values: Sequence[Any]
    """The contents of these columns; ``payload`` and ``headers`` as the database's texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row as a record."""

    id: Id
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Backlog:
    """The rows that wait in the table."""

    count: int
    """Rows."""
    oldest_s: float | None
    """The age of the oldest, by the database's clock; None where none waits, or the table has no ``created_at``."""


def read_rows(engine: Engine, outbox: OutboxTable, order: Order, limit: int) -> tuple[list[Seen], Look | None]:
    """Up to ``limit`` rows that aren't settled, in their order, and a look at their table after they were read; None
    without rows.

    Raises:
        OutboxError: a row's id can't be told from others, or it has no place in the order.
        What SQLAlchemy raises.
    """
    query = sa.select(*selected(outbox)).where(*outbox.waiting).order_by(*order.columns).limit(limit)
    with engine.connect() as connection:
        rows = seen(outbox, connection.execute(query))
        if not rows:
            return [], None
        look = look_at(connection, outbox.table)
    if order.is_promised:
        _check_order(outbox, rows, str(order.columns[0].name))
    return rows, look


def _check_order(outbox: OutboxTable, rows: Sequence[Seen], column: str) -> None:
    at = rows[0].columns.index(column)
    for row in rows:
        if row.values[at] is None:
            raise OutboxError(
                f"row {told(row.id)} of table {outbox.name!r} can't be sent: its {column} is NULL, expected a value, "
                "which gives the order in which rows are sent"
            )


def columns_of(outbox: OutboxTable) -> tuple[str, ...]:
    """The names of the columns by whose contents a row is recognised: all that no relay writes."""
    return tuple(name for name in map(str, outbox.table.columns.keys()) if name != PUBLISHED)


def selected(outbox: OutboxTable) -> list[Any]:
    """The expressions to select, or to have returned, for a row: values as the driver gives them, and the database's
    texts of payload and headers, which nobody parses and writes again."""
    found = []
    for name in columns_of(outbox):
        column = outbox.table.columns[name]
        if name == "id":
            value = outbox.ids.read
        elif name in _TEXTS:
            value = _text(outbox, column)
        else:
            value = raw(column) if name in _NAMES else _exact(outbox, column)
        found.append(value.label(name))
    return found


def seen(outbox: OutboxTable, found: Iterable[Sequence[Any]]) -> list[Seen]:
    """The rows of :func:`selected`. Raises ``OutboxError``: an id can't be told from others."""
    columns = columns_of(outbox)
    at = columns.index("id")
    return [Seen(outbox.ids.value(row[at], outbox.name), columns, row) for row in found]


def digest_of(row: Seen, columns: tuple[str, ...]) -> str:
    """The digest of the row's contents in these columns: two rows of one digest are one row, or equal in each of them.

    It is BLAKE2b of the list of values as Python's ``ascii`` writes it. A column that the table doesn't have counts as
    NULL.
    """
    values: Sequence[Any] = row.values
    if columns != row.columns:
        named = dict(zip(row.columns, values, strict=True))
        values = [named.get(name) for name in columns]
    plain = [_plain(each) if type(each) in _OF_A_SESSION else each for each in values]
    return hashlib.blake2b(ascii(plain).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def as_record(row: Seen, table: str) -> Row:
    """The record that a row becomes. Raises ``OutboxError``: it can't become one; names the row."""
    values = dict(zip(row.columns, row.values, strict=True))
    kind, topic, key, event = (values.get(each) for each in ("aggregatetype", "topic", "aggregateid", "type"))
    headers: list[tuple[str, bytes | None]] = [("id", header_of(row.id))]
    if event is not None:
        headers.append(("eventType", _bytes(event)))
    try:
        extra = values.get("headers")
        headers += [] if extra is None else parse_headers(_bytes(extra).decode())
        if kind is None and not topic:
            raise InvalidTypeError("aggregatetype is NULL, expected a name, by which the topic is found")
        name = _bytes(topic).decode() if topic else f"{EVENT_TOPICS}{_bytes(kind).decode()}"
    except (InvalidTypeError, UnicodeDecodeError) as error:
        raise OutboxError(f"row {told(row.id)} of table {table!r} can't be sent: {error}") from error
    value = values["payload"]
    return Row(
        id=row.id,
        topic=name,
        key=None if key is None else _bytes(key),
        value=None if value is None else _bytes(value),
        headers=headers,
    )


def backlog(engine: Engine, outbox: OutboxTable) -> Backlog:
    """How much waits. Raises what SQLAlchemy raises."""
    created = outbox.column("created_at")
    wanted: list[Any] = [sa.func.count(), *([] if created is None else [sa.func.min(created)])]
    with engine.connect() as connection:
        result = connection.execute(sa.select(*wanted).select_from(outbox.table).where(*outbox.waiting)).one()
        oldest = result[1] if len(result) > 1 else None
        age_s = None if oldest is None else _age_s(connection, oldest)
    return Backlog(int(result[0]), age_s)


def _age_s(connection: Connection, since: Any) -> float | None:
    now = connection.execute(sa.select(sa.func.current_timestamp())).scalar()
    until, begin = _moment(now), _moment(since)
    return None if until is None or begin is None else max(0.0, (until - begin).total_seconds())


def _moment(value: Any) -> datetime.datetime | None:
    """A time without its zone: both are of the database. SQLite has them as texts."""
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value)
    return value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else None


def _text(outbox: OutboxTable, column: sa.Column[Any]) -> Any:
    """The bytes of a binary column, else what the database gives for the column as a text."""
    dialect = outbox.ids.dialect
    if dialect == "sqlite":  # whose values have types of their own; the bytes of a text, even if they are no UTF-8
        if outbox.is_utf8:
            return raw(sa.cast(raw(column), sa.LargeBinary))
        return sa.case((sa.func.typeof(raw(column)) == "blob", raw(column)), else_=sa.cast(raw(column), sa.Text))
    is_mysql = dialect in ("mysql", "mariadb")
    if is_binary(column.type) or (is_mysql and isinstance(column.type, sa.String)):
        return raw(column)
    return sa.cast(column, sa.CHAR if is_mysql else sa.Text)


def _exact(outbox: OutboxTable, column: sa.Column[Any]) -> Any:
    """A column whose value is the same whatever a session's settings are, such as its time zone."""
    dialect, kind = outbox.ids.dialect, column.type
    if dialect in ("mysql", "mariadb") and isinstance(kind, sa.TIMESTAMP):
        return sa.func.unix_timestamp(raw(column), type_=sa.types.NullType())
    if dialect != "postgresql":
        return raw(column)
    if isinstance(kind, sa.JSON):
        return sa.cast(column, sa.Text)
    if isinstance(kind, postgresql.DOMAIN):
        kind = kind.data_type
    sent = next((name for each, name in _SENT if isinstance(kind, each)), None)
    if sent is None:
        return raw(column)
    if getattr(kind, "timezone", False):
        sent = sent.replace("_", "tz_")
    return getattr(sa.func, sent)(raw(column), type_=sa.types.NullType())


def _bytes(value: Any) -> bytes:
    """Bytes as they are, texts in UTF-8, others as texts."""
    if isinstance(value, bytes):
        return value
    return bytes(value) if isinstance(value, bytearray | memoryview) else str(value).encode()


def _plain(value: Any) -> Any:
    """A value that is the same whoever reads it: a session's time zone isn't the row's."""
    if isinstance(value, datetime.datetime):
        return value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
    return bytes(value)
