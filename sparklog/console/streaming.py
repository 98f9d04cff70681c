"""Answers that are written while they are found, and whose work ends when nobody waits for it any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from threading import Timer
from typing import Protocol

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

__all__ = ["Job", "StreamedResponse", "in_chunks"]

_CHUNK_BYTES = 16_384
_CHUNK_S = 0.1
_THREADS = 64


class Job(Protocol):
    """Work whose results are the parts of an answer. Iterated over by one thread at a time; any may cancel it."""

    def __iter__(self) -> Iterator[bytes]: ...

    def cancel(self) -> None:
        """End soon; iterating ends, or raises."""

    def close(self) -> None:
        """Let go of everything."""


class StreamedResponse(Response):
    """Sends what a job yields. Where the client goes away, or time is up, the job is cancelled.

    The status is sent with the first part: what the job raises before is raised, and answered as any error.
    """

    def __init__(
        self, job: Job, *, media_type: str, headers: Mapping[str, str] | None = None, timeout_ms: float | None = None
    ) -> None:
        self.job = job
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.body = b""
        self._timeout_ms = timeout_ms
        # Compressed, the first rows would wait for others: what names an encoding isn't compressed.
        self.init_headers({"Cache-Control": "no-store", "Content-Encoding": "identity", **(headers or {})})
        self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        timer = Timer(self._timeout_ms / 1_000, self.job.cancel) if self._timeout_ms else None
        if timer:
            timer.daemon = True
            timer.start()
        failed: list[BaseException] = []
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch, receive)
                try:
                    await self._send(send)
                except Exception as error:  # raised below, as itself and not in a group
                    failed.append(error)
                group.cancel_scope.cancel()
        finally:
            if timer:
                timer.cancel()
            with anyio.CancelScope(shield=True):
                self.job.cancel()
                await to_thread.run_sync(self.job.close, limiter=_limiter())
        if failed:
            raise failed[0]

    async def _send(self, send: Send) -> None:
        parts = iter(self.job)
        is_begun = False
        while True:
            part = await to_thread.run_sync(next, parts, None, limiter=_limiter())
            if not is_begun:
                is_begun = True
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": part or b"", "more_body": part is not None})
            if part is None:
                return

    async def _watch(self, receive: Receive) -> None:
        while True:
            message: Message = await receive()
            if message["type"] == "http.disconnect":
                self.job.cancel()
                return


def in_chunks(parts: Iterator[str], *, clock: Callable[[], float] = time.monotonic) -> Iterator[bytes]:
    """Texts joined to pieces of some kilobytes, none of which waits for long; an empty text sends what there is."""
    waiting: list[str] = []
    size, since = 0, clock()
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= _CHUNK_BYTES or not part or clock() - since >= _CHUNK_S:
            if size:
                yield "".join(waiting).encode(errors="replace")
            waiting, size, since = [], 0, clock()
    if waiting:
        yield "".join(waiting).encode(errors="replace")


_LIMITER: RunVar[anyio.CapacityLimiter] = RunVar("sparklog_console_streams")


def _limiter() -> anyio.CapacityLimiter:
    """The threads of streamed answers, apart from those of pages, so that the ones don't wait for the others."""
    found = _LIMITER.get(None)
    if found is None:
        found = anyio.CapacityLimiter(_THREADS)
        _LIMITER.set(found)
    return found
