"""The log entries about one client: its user, requests that were refused, why it was disconnected. They contain neither
contents of records nor passwords."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from itertools import islice
from typing import Any

from sparklog.gateway.defects import log_defect
from sparklog.gateway.error_counts import error_name
from sparklog.gateway.refusals import KINDS, refused_in
from sparklog.gateway.repeats import Repeats
from sparklog.gateway.wire import WireError
from sparklog.logs import about, short

__all__ = ["ClientLog", "UnavailableError", "address_text"]

_LOGGER = logging.getLogger("sparklog.gateway")
_MOST_REFUSALS = 50
"""Entries of a connection about what isn't allowed: clients ask again and again."""


class UnavailableError(WireError):
    """A client is disconnected as no answer can say that the store is away; it connects again."""


def address_text(peer: object) -> str:
    """``host:port`` of a socket's address."""
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) >= 2 else str(peer)


class ClientLog:
    """The log of one connection."""

    def __init__(self, peer: object, repeats: Repeats | None = None) -> None:
        """``repeats``: of all connections of a gateway; None: of this one alone."""
        self._repeats = Repeats() if repeats is None else repeats
        self._client = address_text(peer)
        self.client_id: str | None = None
        """The ``client.id`` of its first request; None before."""
        self.user: str | None = None
        """Its user, once that is sure."""
        self._refused: set[tuple[str, int, str]] = set()

    def _about(self, **more: object) -> dict[str, object]:
        known = {"client": self._client, "client_id": self.client_id, "user": self.user, **more}
        return about(**{name: short(value) for name, value in known.items() if value is not None})

    def let_in(self, user: str) -> None:
        """Note that it is a user."""
        self.user = user
        _LOGGER.debug("client %s is user %r", self._client, user, extra=self._about())

    def not_let_in(self, error: Exception, name: str) -> None:
        """Note that it isn't who it says, by a name that it gave; empty: none."""
        as_whom = f" as {short(name)!r}" if name else ""
        extra = self._about(reason=str(error), **({"user": name} if name else {}))
        _LOGGER.warning("client %s wasn't let in%s: %s", self._client, as_whom, short(error), extra=extra)

    def users_not_read(self, error: Exception) -> None:
        """Note that nobody can say who it is; of all clients, one a second."""
        left_out = self._repeats.left_out("users")
        if left_out is not None:
            text = "client %s wasn't let in, as the users can't be read: %s%s"
            _LOGGER.error(text, self._client, short(error), left_out, extra=self._about())

    def refused(self, api: str, answer: Mapping[str, Any], asked: Mapping[str, Any], count: int) -> None:
        """Note what an answer refuses for want of rights, each thing once. ``count``: things that it refuses."""
        if len(self._refused) >= _MOST_REFUSALS:
            return
        left = _MOST_REFUSALS - len(self._refused)
        for code, whole_name in islice(refused_in(answer, asked), min(count, left)):
            name = short(whole_name)
            if (api, code, name) in self._refused:
                continue
            self._refused.add((api, code, name))
            kind, reason = KINDS[code], error_name(code)
            named = f" of {kind} {name!r}" if kind != "cluster" and name else ""
            extra = self._about(api=api, reason=reason, **({kind: name} if named else {}))
            _LOGGER.info(
                "client %s, user %r: %s%s was refused: %s", self._client, self.user, api, named, reason, extra=extra
            )

    def disconnected(self, error: BaseException) -> str:
        """Note why it was disconnected; returns that in one word. While the store is away, and of defects, one of all
        clients a second is noted."""
        if isinstance(error, UnavailableError):
            reason, level = "unavailable", logging.WARNING
        elif isinstance(error, WireError):
            reason, level = "invalid", logging.WARNING
        elif isinstance(error, asyncio.TimeoutError):
            reason, level = "idle", logging.INFO
        else:
            extra = self._about(reason="error")
            log_defect(self._repeats, "client %s was disconnected by an error", self._client, error=error, extra=extra)
            return "error"
        why = short(str(error) or "it was idle for too long")
        if reason == "unavailable":
            left_out = self._repeats.left_out(reason)
            if left_out is None:
                return reason
            why += left_out
        _LOGGER.log(level, "client %s was disconnected: %s", self._client, why, extra=self._about(reason=reason))
        return reason
