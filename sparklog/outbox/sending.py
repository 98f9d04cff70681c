"""Writing to the outbox, in the caller's transaction."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

import sqlalchemy as sa

from sparklog.errors import InvalidArgumentError, InvalidTypeError
from sparklog.outbox.tables import DEFAULT_NAME

__all__ = ["EVENT_TOPICS", "channel_of", "send"]

EVENT_TOPICS = "outbox.event."
"""Prefix of the topics, before the row's ``aggregatetype``. Source: Debezium, ``route.topic.replacement``."""
_MOST_CHARACTERS = 255
_OWN_HEADERS = {"id": "id", "eventType": "type"}
"""By header that the relay adds: the argument that sets it."""


class _Executes(Protocol):
    def execute(self, statement: Any, parameters: Any = None, /) -> Any:
        """The method of SQLAlchemy's ``Session`` and ``Connection``."""


def send(
    session: _Executes,
    topic: str,
    value: Any = None,
    key: str | None = None,
    *,
    type: str | None = None,
    headers: Sequence[tuple[str, str]] | None = None,
    id: str | None = None,
    table: str = DEFAULT_NAME,
) -> str:
    """Write a record to the outbox table. A relay sends it after the transaction is committed, and never otherwise.

    Args:
        session: SQLAlchemy's ``Session`` or ``Connection``; the caller ends its transaction. With an ``AsyncSession``:
            ``await session.run_sync(lambda s: outbox.send(s, …))``.
        topic: ``outbox.event.<aggregatetype>`` becomes the row's ``aggregatetype``; any other name, its ``topic``.
        value: bytes, a str, or a value of JSON; None is a tombstone.
        key: the row's ``aggregateid``: records of one key stay in the order of their rows.
        type: the event's type; becomes the header ``eventType``.
        headers: further headers, none named ``id`` or ``eventType``.
        id: the message's id, which must be unique for ever; random by default. Becomes the header ``id``.
        table: the table's name in the database.
    Returns:
        The message's id.
    Raises:
        InvalidTypeError, InvalidArgumentError: an argument isn't allowed. SQLAlchemy's errors.
    """
    message_id = str(uuid.uuid4()) if id is None else id
    values: dict[str, Any] = {"id": message_id, **_route(topic), "payload": _payload(value)}
    for name, text in (("id", message_id), ("aggregateid", key), ("type", type)):
        if text is None:
            continue
        if not isinstance(text, str):
            raise InvalidTypeError(f"outbox: {name} is a {text.__class__.__name__}, expected a str")
        if not 0 < len(text) <= _MOST_CHARACTERS:
            raise InvalidArgumentError(f"outbox: {name} has {len(text)} characters, expected 1 to {_MOST_CHARACTERS}")
        values[name] = text
    if headers:
        values["headers"] = json.dumps([_header(each) for each in headers])
    target = sa.table(table.rpartition(".")[2], *map(sa.column, values), schema=table.rpartition(".")[0] or None)
    session.execute(sa.insert(target).values(values))
    if _dialect(session) == "postgresql":  # a relay that listens wakes when the transaction is committed
        session.execute(sa.text("SELECT pg_notify(:channel, '')"), {"channel": channel_of(table)})
    return message_id


def channel_of(table: str) -> str:
    """The channel of PostgreSQL's ``NOTIFY`` for a table: its own name, or one that a trigger uses."""
    return table.rpartition(".")[2]


def _route(topic: str) -> dict[str, str]:
    if not topic:
        raise InvalidArgumentError("outbox: topic is empty, expected a name")
    if topic.startswith(EVENT_TOPICS) and len(topic) > len(EVENT_TOPICS):
        return {"aggregatetype": topic.removeprefix(EVENT_TOPICS)}
    return {"aggregatetype": topic, "topic": topic}


def _payload(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    try:
        return json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"outbox: value can't be JSON, expected bytes or a str: {error}") from error


def _header(header: tuple[Any, Any]) -> list[str]:
    name, value = header
    if not (isinstance(name, str) and isinstance(value, str)):
        raise InvalidTypeError(f"outbox: header {name!r} of {value.__class__.__name__}, expected two strs")
    if name in _OWN_HEADERS:
        raise InvalidArgumentError(
            f"outbox: header {name!r} is the relay's own, which {_OWN_HEADERS[name]}=… sets; expected another name"
        )
    return [name, value]


def _dialect(session: Any) -> str:
    bind = session.get_bind() if hasattr(session, "get_bind") else session
    return str(bind.dialect.name)
