"""Answers that are written while they are found, and whose work ends when its client has disconnected."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from threading import Timer
from typing import Protocol

import anyio
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from sparklog.console.threads import GivesUp, Threads, result_of

__all__ = ["Job", "StreamedResponse", "in_chunks"]

_LOGGER = logging.getLogger("sparklog.console")
_CHUNK_BYTES = 16_384
_CHUNK_S = 0.1
_CLOSE_LOOK_S = 0.01
_THREADS = Threads("stream", 64)
"""Apart from those of pages, so that the ones don't wait for the others."""


class Job(Protocol):
    """Work whose results are the parts of an answer. Iterated over by one thread at a time; any may cancel it."""

    def __iter__(self) -> Iterator[bytes]: ...

    def cancel(self) -> None:
        """End soon; iterating ends, or raises."""

    def close(self) -> None:
        """Let go of everything."""


class StreamedResponse(Response):
    """Sends what a job yields. Where the client goes away, or time is up, the job is cancelled.

    The status is sent with the first part: what the job raises before is raised, and answered as any error. What it
    raises later ends the answer before its end, which clients notice, and is logged by its kind alone: its text may
    reveal what records hold.
    """

    def __init__(
        self,
        job: Job,
        *,
        media_type: str,
        headers: Mapping[str, str] | None = None,
        timeout_ms: float | None = None,
        gives_up: GivesUp = lambda: None,
    ) -> None:
        """Begins nothing.

        Args:
            gives_up: ends the answer also where the job hangs, which is closed then once it doesn't.
        """
        self.job = job
        self._gives_up = gives_up
        self._step: Future[bytes | None] | None = None
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.body = b""
        self._timeout_ms = timeout_ms
        self._parts: Iterator[bytes] = iter(())
        self._is_begun = False
        # Compressed, the first rows would wait for others: what names an encoding isn't compressed.
        self.init_headers({"Cache-Control": "no-store", "Content-Encoding": "identity", **(headers or {})})
        self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        timer = Timer(self._timeout_ms / 1_000, self.job.cancel) if self._timeout_ms else None
        if timer:
            timer.daemon = True
            timer.start()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch, receive)
                failure = await self._failure_of_sending(send)
                group.cancel_scope.cancel()
        finally:
            if timer:
                timer.cancel()
            with anyio.CancelScope(shield=True):
                self.job.cancel()
                await self._end()
        if failure is None:
            return
        if not self._is_begun:
            raise failure
        _LOGGER.info("an answer was ended by %s", type(failure).__name__)

    async def _end(self) -> None:
        """Close the job; where it hangs in a step, once that has ended, without waiting for it."""
        step = self._step
        if step is not None and not step.done():
            step.add_done_callback(lambda _: _THREADS.submit(self._close))
            return
        closing = _THREADS.submit(self._close)
        while not closing.done() and self._gives_up() is None:
            await anyio.sleep(_CLOSE_LOOK_S)
        if closing.done():
            closing.result()

    def _close(self) -> None:
        try:
            if isinstance(self._parts, Generator):
                self._parts.close()
        finally:
            self.job.close()

    async def _failure_of_sending(self, send: Send) -> Exception | None:
        """Send everything; returns what was raised, as itself and not in a group."""
        try:
            await self._send(send)
        except Exception as error:
            return error
        return None

    async def _send(self, send: Send) -> None:
        self._parts = iter(self.job)
        while True:
            self._step = _THREADS.submit(partial(next, self._parts, None))
            part = await result_of(self._step, self._gives_up)
            if not self._is_begun:
                self._is_begun = True
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
