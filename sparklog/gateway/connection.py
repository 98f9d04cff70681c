"""One client's connection: frames are read ahead, requests are carried out and answered in their order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sparklog.errors import KafkaTimeoutError, SparklogError, StoreError
from sparklog.gateway.apis import API_VERSIONS, APIS, PRODUCE, Api
from sparklog.gateway.authentication import Authentication
from sparklog.gateway.authorizer import NotAllowedError
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.bounded_queue import BoundedQueue
from sparklog.gateway.client_log import ClientLog, UnavailableError
from sparklog.gateway.counts import GatewayFigures
from sparklog.gateway.error_counts import error_name
from sparklog.gateway.frame_reader import FrameReader
from sparklog.gateway.large_messages import decoded, encoded, note_refused, refused_by
from sparklog.gateway.produce import begin_produce
from sparklog.gateway.produce_rounds import rounds_of
from sparklog.gateway.refusals import KINDS
from sparklog.gateway.sent_request import Sent
from sparklog.gateway.silence import Silence
from sparklog.gateway.wire import WireError
from sparklog.gateway.wire.frames import Frame, unversioned_header
from sparklog.logs import without_content

__all__ = ["ByteBudget", "Connection"]

_LOGGER = logging.getLogger("sparklog.gateway")
_READ_AHEAD = 8
"""Requests of a connection that are read and not answered."""
_SMALL_REQUEST_BYTES = 8_388_608
"""Bound of a request that isn't Produce: decoded it takes many times its size."""

_CANCELLATIONS = 50

_Answer = Callable[[], Awaitable[Frame | None]]


class _Pending:
    """A request that was read."""

    __slots__ = ("answer", "api", "read_s", "sent", "size")

    def __init__(self, answer: _Answer | Sent, api: str, size: int, read_s: float) -> None:
        self.sent = answer if isinstance(answer, Sent) else None
        """Records that are on their way; None: it is another request."""
        self.answer = None if isinstance(answer, Sent) else answer
        self.api = api
        self.size = size
        self.read_s = read_s


class ByteBudget:
    """Memory of requests that all connections share."""

    def __init__(self, limit_bytes: int, figures: GatewayFigures) -> None:
        """``figures`` hold what is taken."""
        self._limit_bytes = limit_bytes
        self._figures = figures
        self._changed = asyncio.Condition()

    def try_take(self, size: int) -> bool:
        """Take so much, if there is room and nobody waits for it."""
        if self._figures.connections_waiting or not self._has_room(size):
            return False
        self._figures.queued_bytes += size
        return True

    async def take(self, size: int) -> None:
        """Wait until there is room; a request larger than all of it goes alone."""
        if self.try_take(size):
            return
        self._figures.connections_waiting += 1
        try:
            await self._take_later(size)
        finally:
            self._figures.connections_waiting -= 1

    async def _take_later(self, size: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._has_room(size))
            self._figures.queued_bytes += size

    async def give_back(self, size: int) -> None:
        """Let others have it."""
        if not self._figures.connections_waiting:
            self._figures.queued_bytes -= size
            return
        async with self._changed:
            self._figures.queued_bytes -= size
            self._changed.notify_all()

    def _has_room(self, size: int) -> bool:
        used = self._figures.queued_bytes
        return not used or used + size <= self._limit_bytes


class Connection:
    """Serves one client until it goes, or does what Kafka disconnects for."""

    def __init__(self, backend: Backend, budget: ByteBudget, reader: FrameReader, writer: asyncio.StreamWriter) -> None:
        self._backend = backend
        self._budget = budget
        self._reader = reader
        self._writer = writer
        # What the system doesn't take is copied: so nothing more is written until it has taken that.
        writer.transport.set_write_buffer_limits(high=0)
        self._idle_s = backend.settings.max_idle_ms / 1_000
        self._silence = Silence(
            reader,
            asyncio.get_running_loop(),
            wait_s=self._idle_s,
            within_frame_s=backend.settings.max_stall_ms / 1_000,
        )
        self._peer = writer.get_extra_info("peername")
        self._log = ClientLog(self._peer, backend.log_repeats)
        self._local: tuple[str, int] = writer.get_extra_info("sockname")[:2]
        is_encrypted = writer.get_extra_info("ssl_object") is not None
        self._authentication = Authentication(backend, self._log, is_encrypted=is_encrypted)
        self._answers: BoundedQueue[_Pending | None] = BoundedQueue(_READ_AHEAD)
        self._reading: asyncio.Future[None] | None = None
        self._begun: list[Sent] = []
        """Produce requests that may not be sent yet."""
        self._is_between_requests = False
        self._is_draining = False

    def drain(self) -> None:
        """Read no more requests; the connection ends once that which is being read, and those before, are answered."""
        self._is_draining = True
        if self._reading is not None and self._is_between_requests:
            self._reading.cancel()

    async def serve(self) -> None:
        """Read and answer; returns when the connection is over."""
        answering = asyncio.ensure_future(self._answer_all())
        self._reading = reading = asyncio.ensure_future(self._read_all())
        try:
            await asyncio.wait([answering, reading], return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                self._answers.put_last(None)  # the queue may be full, and answering end before it takes anything
                await asyncio.wait([answering], timeout=self._idle_s)
        finally:
            await _end([reading, answering])
            for task in (reading, answering):
                if task.done() and not task.cancelled():
                    self._report(task.exception())
            self._silence.end()
            await self._forget_unanswered()
            has_taken_all = _unsent_bytes(self._writer.transport) == 0  # before the close: afterwards it is unknown
            self._writer.close()
            if has_taken_all:
                with contextlib.suppress(OSError, asyncio.TimeoutError):
                    await asyncio.wait_for(self._writer.wait_closed(), 1)
            self._writer.transport.abort()  # what the client doesn't read would be kept for ever
            # An error keeps by its trace the frames that it went through, and they this connection, which keeps it, as
            # its transport's protocol does: nothing of a request that broke off would be freed before the interpreter
            # happens to look for such circles.
            self._reading = None
            for error in [self._reader.lost_by, self._reader.exception(), *map(_error_of, (reading, answering))]:
                _forget_trace(error)
            self._reader.let_go()

    def _report(self, error: BaseException | None) -> None:
        if error is None or isinstance(error, (EOFError, ConnectionError)):
            return
        if isinstance(error, OSError) and error is self._reader.lost_by:  # such as EHOSTUNREACH, or an error of TLS
            return
        self._backend.figures.disconnected[self._log.disconnected(error)] += 1

    async def _forget_unanswered(self) -> None:
        for item in self._answers.take_all():
            if item is not None:
                await self._budget.give_back(item.size)

    async def _read_all(self) -> None:
        reader, figures = self._reader, self._backend.figures
        while not self._is_draining:
            found, start = reader.head(), b""
            if found is None:
                self._is_between_requests = True
                if not await self._silence.bound(reader.has_come(4)):
                    return
                self._is_between_requests = False
                found = reader.head()
            if found is not None:
                size, key = found
            else:
                size = int.from_bytes(await reader.readexactly(4), "big", signed=True)
                self._check_size(size)
                start = await self._silence.bound(reader.readexactly(8), within_frame=True)
                key = int.from_bytes(start[:2], "big")
            # Whose request isn't carried out anyway takes nothing of what others need.
            self._check_size(size)
            self._check_allowed(key, size)
            if not self._budget.try_take(size):
                await self._budget.take(size)
            figures.received_bytes += size + 4
            is_queued = False
            try:
                frame = None if start else reader.take_frame(size)
                if frame is None:
                    start = start or (await reader.readexactly(12))[4:]
                    frame = await self._silence.bound(reader.read_frame(start, size), within_frame=True)
                read_s = time.monotonic()
                api, answer = await self._begin(frame)
                await self._answers.put(_Pending(answer, api.name, size, read_s))
                is_queued = True
            finally:
                if not is_queued:
                    await self._budget.give_back(size)
            del frame, answer  # whose bytes are given back once it is answered, which may be long before the next one

    def _check_size(self, size: int) -> None:
        """Raise ``WireError``: no frame has this size."""
        if not 8 <= size <= self._backend.settings.max_request_bytes:
            raise WireError(f"a frame of {size} bytes: expected 8 to {self._backend.settings.max_request_bytes}")

    def _check_allowed(self, key: int, size: int) -> None:
        """Raise ``WireError``: a request of this API key and size may not come now."""
        if not self._authentication.may_send(key, size):
            raise WireError("a request of a client that isn't authenticated, or isn't to be")
        if size > _SMALL_REQUEST_BYTES and key != PRODUCE:
            raise WireError(f"a frame of {size} bytes that isn't Produce: expected {_SMALL_REQUEST_BYTES}")

    async def _begin(self, frame: memoryview) -> tuple[Api, _Answer | Sent]:
        """Begin a request; the answer that it returns carries it on when its turn has come, and has its answer's bytes.

        Raises ``WireError``: the client is to be disconnected, as Kafka does.
        """
        key, version, correlation_id = unversioned_header(frame)
        api = APIS.get(key)
        if api is None:
            raise WireError(f"API key {key} isn't served")
        if not api.first <= version <= api.last:
            if key != API_VERSIONS:
                raise WireError(f"{api.name} of version {version}: expected {api.first} to {api.last}")
            # Source: KIP-511: whatever the version, an answer of version 0.
            request = Request(version, {}, "", self._local)
            return api, lambda: self._answered(api, request, 0, correlation_id)
        rules = None if self._authentication.user is None else await self._authentication.rules()
        if key == PRODUCE and (sent := rounds_of(self._backend).begin(frame, rules, self)) is not None:
            if len(self._begun) > _READ_AHEAD:
                self._begun = [one for one in self._begun if not one.is_sent]
            self._begun.append(sent)
            return api, sent
        header, body = await decoded(self._backend, api, version, frame)
        host = str(self._peer[0]) if self._peer else ""
        self._log.client_id = header.client_id
        request = Request(version, body, header.client_id or "", self._local, host)
        request.rules, request.connection_end = rules, self._reading
        if key != PRODUCE:
            return api, lambda: self._answered(api, request, version, correlation_id)
        while self._begun:  # records of a connection are stored in their order
            await self._begun[0].wait_until_sent()
            del self._begun[0]
        pending = await begin_produce(self._backend, request)
        return api, lambda: self._produced(api, pending, version, correlation_id)

    async def _answered(self, api: Api, request: Request, version: int, correlation_id: int) -> Frame | None:
        return await self._frame(api, version, correlation_id, await self._response(api, request), request.body)

    async def _frame(
        self, api: Api, version: int, correlation_id: int, response: dict[str, Any], asked: Mapping[str, Any]
    ) -> Frame:
        count_by_code, frame = await encoded(self._backend, api.response, version, correlation_id, response)
        for code, count in count_by_code.items():
            self._backend.figures.errors[api.name, error_name(code)] += count
        refused_count = sum(count for code, count in count_by_code.items() if code in KINDS)
        if refused_count:
            await note_refused(self._backend, self._log, api.name, response, asked, refused_count)
        return frame

    async def _response(self, api: Api, request: Request) -> dict[str, Any]:
        if api.name == "SaslHandshake":
            return self._authentication.handshake(request.body["mechanism"])
        if api.name == "SaslAuthenticate":
            return await self._authentication.authenticate(bytes(request.body["auth_bytes"]))
        if api.handle is None:
            raise WireError(f"{api.name} has no handler")
        try:
            refused = await refused_by(self._backend, api.name, request)
        except NotAllowedError as error:
            raise WireError(str(error)) from error
        return refused if refused is not None else await api.handle(self._backend, request)

    async def _produced(
        self, api: Api, pending: Awaitable[dict[str, Any]] | None, version: int, correlation_id: int
    ) -> Frame | None:
        if pending is None:
            return None
        return await self._frame(api, version, correlation_id, await pending, {})

    async def _answer_all(self) -> None:
        while (item := await self._answers.get()) is not None:
            if item.sent is not None:
                await self._answer_sent(item, item.sent)
            else:
                await self._answer_other(item)
                if self._authentication.has_failed:
                    return
            del item  # nothing of it is kept until the next one comes

    async def _answer_other(self, item: _Pending) -> None:
        try:
            data = await self._carried_on(item)
        finally:
            await self._budget.give_back(item.size)
        self._note_answered(item, time.monotonic())
        if data is not None:
            await self._write(data)

    async def _carried_on(self, item: _Pending) -> Frame | None:
        answer, item.answer = item.answer, None  # the request isn't kept while its answer is written
        try:
            return None if answer is None else await answer()
        except SparklogError as error:  # what no part of the answer can say
            is_away = error.retriable and isinstance(error, (StoreError, KafkaTimeoutError))
            kind = UnavailableError if is_away else WireError
            raise kind(f"{type(error).__name__}: {without_content(error)}") from error

    async def _answer_sent(self, item: _Pending, sent: Sent) -> None:
        """Answer a request whose records were sent once they are stored, and with it those behind it that are stored,
        too, by one call of the system."""
        size, found = item.size, []
        try:
            if not sent.is_done:
                await sent.done
            now_s, answer = time.monotonic(), sent.answer
            self._note_answered(item, now_s)
            while not isinstance(answer, dict):
                found.append(answer or b"")
                following = self._answers.first
                if following is None or following.sent is None or not following.sent.is_done:
                    break
                answer = following.sent.answer
                if isinstance(answer, dict):
                    break
                self._answers.take_first()
                size += following.size
                self._note_answered(following, now_s)
        finally:
            await self._budget.give_back(size)
        if not found and isinstance(answer, dict):
            await self._write(await self._frame(APIS[PRODUCE], sent.version, sent.correlation_id, answer, {}))
        elif data := b"".join(found):
            await self._write(data)

    def _note_answered(self, item: _Pending, now_s: float) -> None:
        figures = self._backend.figures
        figures.requests[item.api] += 1
        figures.request_seconds[item.api] += now_s - item.read_s

    async def _write(self, data: bytes | Frame) -> None:
        """Write an answer; returns once the client has taken all but what the system holds for it."""
        parts, transport = (data.parts() if isinstance(data, Frame) else (data,)), self._writer.transport
        for part in parts:
            self._backend.figures.sent_bytes += len(part)
            transport.write(part)
            if _unsent_bytes(transport) != 0 or transport.is_closing():
                await asyncio.wait_for(self._writer.drain(), self._idle_s)


def _error_of(task: asyncio.Future[None]) -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None


def _forget_trace(error: BaseException | None) -> None:
    """Let go of the frames that an error, and those before it, went through."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _unsent_bytes(transport: asyncio.WriteTransport) -> int | None:
    """Bytes that the system hasn't taken yet; None: the connection is lost."""
    try:
        return transport.get_write_buffer_size()
    except AttributeError:  # of TLS, which has let go of its connection: in Python 3.10 as soon as it is lost
        return None


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: before Python 3.12 ``wait_for`` may swallow a cancellation."""
    left = set(tasks)
    for _ in range(_CANCELLATIONS):
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.1)
        if not left:
            return
    _LOGGER.error("%d tasks of a connection couldn't be ended", len(left))
