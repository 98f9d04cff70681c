"""Reading and settling rows of an outbox table."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from sparklog.outbox.sending import EVENT_TOPICS
from sparklog.outbox.tables import OutboxTable

__all__ = ["Backlog", "Row", "backlog", "read_rows", "settle_rows"]

_IDS_AT_ONCE = 500
"""In one statement: SQLite takes 999 parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row that isn't sent yet, as a record."""

    id: str
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


def read_rows(engine: Engine, outbox: OutboxTable, limit: int) -> list[Row]:
    """Up to ``limit`` rows that aren't settled, in their order. Raises what SQLAlchemy raises."""
    query = sa.select(outbox.table).where(*_waiting(outbox)).order_by(*outbox.order).limit(limit)
    with engine.connect() as connection:
        return [_row(row) for row in connection.execute(query).mappings()]


def settle_rows(engine: Engine, outbox: OutboxTable, ids: Sequence[str], *, marks: bool) -> None:
    """Delete rows that were sent, or mark them. Again is no error. Raises what SQLAlchemy raises."""
    values = outbox.ids(ids)
    with engine.begin() as connection:
        for start in range(0, len(values), _IDS_AT_ONCE):
            is_among = outbox.table.c.id.in_(values[start : start + _IDS_AT_ONCE])
            if marks:
                now = sa.func.current_timestamp()
                update = sa.update(outbox.table).where(is_among, *_waiting(outbox)).values(published_at=now)
                connection.execute(update)
            else:
                connection.execute(sa.delete(outbox.table).where(is_among))


def backlog(engine: Engine, outbox: OutboxTable) -> Backlog:
    """How much waits. Raises what SQLAlchemy raises."""
    created = outbox.column("created_at")
    wanted: list[Any] = [sa.func.count(), *([] if created is None else [sa.func.min(created)])]
    with engine.connect() as connection:
        result = connection.execute(sa.select(*wanted).select_from(outbox.table).where(*_waiting(outbox))).one()
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


def _waiting(outbox: OutboxTable) -> list[Any]:
    published = outbox.column("published_at")
    return [] if published is None else [published.is_(None)]


def _row(found: Any) -> Row:
    message_id, kind, aggregate_id = str(found["id"]), str(found["aggregatetype"]), found.get("aggregateid")
    headers: list[tuple[str, bytes | None]] = [("id", message_id.encode())]
    if found.get("type") is not None:
        headers.append(("eventType", str(found["type"]).encode()))
    extra = found.get("headers")
    if extra:
        pairs = json.loads(extra) if isinstance(extra, str | bytes) else extra
        pairs = pairs.items() if isinstance(pairs, dict) else pairs
        headers += [(str(name), _bytes(value)) for name, value in pairs]
    return Row(
        id=message_id,
        topic=str(found.get("topic") or f"{EVENT_TOPICS}{kind}"),
        key=None if aggregate_id is None else str(aggregate_id).encode(),
        value=_bytes(found["payload"]),
        headers=headers,
    )


def _bytes(value: Any) -> bytes | None:
    """A payload: bytes as they are, texts in UTF-8, what a JSON column gives as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
