"""Waiting for rows: by PostgreSQL's ``LISTEN`` where the driver can, else for a time."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from sqlalchemy.engine import Engine

from sparklog.interrupts import SafeEvent
from sparklog.outbox.sending import channel_of

__all__ = ["Waiter", "waiter_for"]

_LOGGER = logging.getLogger(__name__)
_SLICE_S = 0.25
"""How long ``stop`` may go unnoticed: a wait for notifications can't be woken by it."""


class Waiter:
    """Waits for a time, or until the relay is stopped."""

    def __init__(self, stopping: SafeEvent) -> None:
        self._stopping = stopping

    def wait(self, seconds: float) -> None:
        """Return after ``seconds`` at most."""
        self._stopping.wait(seconds)

    def close(self) -> None:
        """Give connections back."""


class _Listener(Waiter):
    """Waits on a connection of its own that listens. A notification that was missed costs a time of waiting."""

    def __init__(self, engine: Engine, channel: str, stopping: SafeEvent) -> None:
        super().__init__(stopping)
        self._engine = engine
        self._channel = channel
        self._connection: Any = None

    def wait(self, seconds: float) -> None:
        try:
            connection = self._listening()
            if connection is None:
                return  # look at the table first
            left_s = seconds
            while left_s > 0 and not self._stopping.is_set():
                if list(connection.notifies(timeout=min(_SLICE_S, left_s), stop_after=1)):
                    return
                left_s -= _SLICE_S
        except Exception as error:  # of the driver, whose errors aren't wrapped here: notifications are a hint alone
            _LOGGER.info("notifications of %s are lost: %s", self._channel, error)
            self.close()
            self._stopping.wait(seconds)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # the connection may be gone, which is what is wanted
                connection.close()

    def _listening(self) -> Any:
        """The driver's connection; None right after it was made: what came before it listened wasn't notified."""
        if self._connection is not None:
            return self._connection
        pooled = self._engine.raw_connection()
        connection = pooled.driver_connection
        pooled.detach()
        self._connection = connection
        connection.autocommit = True  # type: ignore[union-attr]
        quoted = self._engine.dialect.identifier_preparer.quote(self._channel)
        connection.execute(f"LISTEN {quoted}")  # type: ignore[union-attr]
        return None


def waiter_for(engine: Engine, table: str, stopping: SafeEvent) -> Waiter:
    """The waiter that the database and its driver allow."""
    if engine.dialect.name == "postgresql" and engine.dialect.driver == "psycopg":
        return _Listener(engine, channel_of(table), stopping)
    return Waiter(stopping)
