"""Counting how often a request was really sent. aiohttp sends a PUT once more, and says nothing, when its connection
breaks.

This can't be switched off (aiohttp issue 10790), and only the answer to the second one comes up. So a refusal of the
second says nothing of the first; who has counted one sending knows that the refusal is the answer to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

__all__ = ["Sendings", "count_sendings", "counting_session_class", "note_sending"]


class Sendings:
    """The sendings of one request."""

    def __init__(self) -> None:
        self.count = 0


_CURRENT: ContextVar[Sendings | None] = ContextVar("sparklog_sendings", default=None)


@contextmanager
def count_sendings() -> Iterator[Sendings]:
    """Counts how often the request is sent that is made within, in this task or in one that it starts."""
    sendings = Sendings()
    token = _CURRENT.set(sendings)
    try:
        yield sendings
    finally:
        _CURRENT.reset(token)


async def note_sending(*_: object) -> None:
    """A request's headers were sent: a hook of aiohttp's tracing."""
    sendings = _CURRENT.get()
    if sendings is not None:
        sendings.count += 1


@cache
def counting_session_class() -> Any:
    """An ``http_session_cls`` for aiobotocore whose requests are counted.

    If aiobotocore makes its sessions by another method one day, nothing is counted: then a refused create is unknown.
    """
    from aiobotocore.httpsession import AIOHTTPSession
    from aiohttp import TraceConfig

    trace = TraceConfig()
    trace.on_request_headers_sent.append(note_sending)
    trace.freeze()

    class CountingSession(AIOHTTPSession):  # type: ignore[misc]
        async def _get_session(self, proxy_url: str | None) -> Any:
            session = await super()._get_session(proxy_url)
            if trace not in session.trace_configs:
                session.trace_configs.append(trace)
            return session

    return CountingSession
