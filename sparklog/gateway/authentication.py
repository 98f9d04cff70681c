"""SaslHandshake and SaslAuthenticate of one connection, and what it may send before it is authenticated."""

from __future__ import annotations

import asyncio
from typing import Any

from sparklog.errors import SparklogError
from sparklog.gateway.backend import Backend
from sparklog.gateway.client_log import ClientLog
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.sasl import MECHANISMS, AuthenticationError, Exchange, begin_exchange
from sparklog.gateway.users import Rules, User
from sparklog.gateway.wire import WireError

__all__ = ["SASL_AUTHENTICATE", "SASL_HANDSHAKE", "Authentication"]

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
API_VERSIONS = 18
_FAILED_S = 0.1
"""Source: Kafka ``connection.failed.authentication.delay.ms``."""
_SOON_MS, _SURELY_MS = 5_000.0, 10_000.0
"""Ages of the users that are known, at which they are read again, and at which a request waits for that."""
_MOST_BYTES = 65_536
"""Bound of a frame of a client that isn't known."""


class Authentication:
    """The state of one connection. Requests are answered in their order, so these calls come one after the other."""

    def __init__(self, backend: Backend, log: ClientLog, *, is_encrypted: bool) -> None:
        self._backend = backend
        self._log = log
        self._is_encrypted = is_encrypted
        self._exchange: Exchange | None = None
        self.user: User | None = None
        """The client's user; None before it is known, and where nobody is asked."""
        self.has_failed = False
        """The connection is to be closed once its answer is sent."""

    def may_send(self, key: int, size: int) -> bool:
        """May the client send a request of an API key and a size now?"""
        if self._backend.users is None:
            return key not in (SASL_HANDSHAKE, SASL_AUTHENTICATE)
        if self.user is not None:
            return True
        return key in (SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS) and size <= _MOST_BYTES

    async def rules(self) -> Rules | None:
        """Rights of the client, by users that aren't older than some seconds; None: everything.

        Raises ``WireError``: the client's user is no more.
        """
        user, users = self.user, self._backend.users
        if user is None or users is None:
            return None
        age_ms = users.age_ms()
        if age_ms >= _SOON_MS:
            reading = self._backend.read_users_again(users)
            if age_ms >= _SURELY_MS:  # nobody has asked for a while
                await asyncio.shield(reading)
        now = users.now(user)
        if now is None:
            raise WireError(f"user {user.name!r} is no more")
        return now.rules

    def handshake(self, mechanism: str) -> dict[str, Any]:
        """Answer SaslHandshake. PLAIN, which shows the password to whoever listens, asks for encryption."""
        is_safe = self._is_encrypted or self._backend.settings.allow_plain_without_tls
        offered = [name for name in MECHANISMS if is_safe or name != "PLAIN"]
        users = self._backend.users
        if users is None or mechanism not in offered:
            self.has_failed = True
            return {"error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": offered}
        self._exchange = begin_exchange(mechanism, users)
        return {"mechanisms": offered}

    async def authenticate(self, message: bytes) -> dict[str, Any]:
        """Answer SaslAuthenticate."""
        exchange = self._exchange
        if exchange is None:
            self.has_failed = True
            return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "error_message": "expected SaslHandshake before"}
        try:
            step = await self._backend.run_sasl(lambda: exchange.step(message))
            if step.user is not None:
                self._enter(step.user)
            return {"error_message": None, "auth_bytes": step.answer}
        except AuthenticationError as error:
            self._log.not_let_in(error, exchange.name)
            text = str(error)
        except (SparklogError, OSError) as error:
            self._log.users_not_read(error)
            if isinstance(error, SparklogError) and error.retriable:
                await asyncio.sleep(_FAILED_S)
                raise  # a failed authentication is final for clients; they connect again after a disconnect
            text = "the users can't be read"
        self.has_failed = True
        await asyncio.sleep(_FAILED_S)
        return {"error_code": ErrorCode.SASL_AUTHENTICATION_FAILED, "error_message": text}

    def _enter(self, user: User) -> None:
        self._exchange = None
        if self.user is not None and self.user.name != user.name:
            raise AuthenticationError(f"this connection is of {self.user.name!r}")
        self.user = user
        self._log.let_in(user.name)
