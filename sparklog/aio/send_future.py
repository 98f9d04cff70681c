"""The result of a send: a future of asyncio that costs next to nothing until somebody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from sparklog.producer.batch import Batch
from sparklog.producer.future import FutureBatchMetadata, FutureRecordMetadata

__all__ = ["SendFuture", "Settlements"]

T = TypeVar("T")


class Settlements:
    """Futures that wait for batches. A batch that is settled wakes the loop once, however many futures wait for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: dict[Batch, list[SendFuture[Any]]] = {}

    def watch(self, batch: Batch, future: SendFuture[Any]) -> None:
        """Settle ``future`` once its batch is. On the loop."""
        waiting = self._waiting.get(batch)
        if waiting is not None:
            waiting.append(future)
            return
        self._waiting[batch] = [future]
        batch.begin_flush()  # within a transaction its records would gather until the commit
        batch.when_known(lambda: self._wake(batch))

    def _wake(self, batch: Batch) -> None:
        try:
            self.loop.call_soon_threadsafe(self._settle, batch)
        except RuntimeError:  # the loop was closed: nobody waits any more
            return

    def _settle(self, batch: Batch) -> None:
        for future in self._waiting.pop(batch, ()):
            future._settle()


class SendFuture(Generic[T]):
    """The promise of where a record, or a table's rows, will be: with the calls of ``asyncio.Future``.

    To cancel it ends the wait alone: what was sent is sent. Within a transaction it is done once the record is
    uploaded; the offset is -1, as there is none before the commit.
    """

    __slots__ = ("_callbacks", "_future", "_sent", "_settlements")
    _asyncio_future_blocking = False  # by which asyncio knows futures

    def __init__(self, sent: FutureRecordMetadata | FutureBatchMetadata, settlements: Settlements) -> None:
        self._sent = sent
        self._settlements = settlements
        self._future: asyncio.Future[T] | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._waited().__await__()

    __iter__ = __await__

    def done(self) -> bool:
        """Whether it is settled or was cancelled."""
        return self._waited().done()

    def cancelled(self) -> bool:
        """Whether the wait was cancelled."""
        return self._future is not None and self._future.cancelled()

    def result(self) -> T:
        """The result. Raises ``asyncio.InvalidStateError`` while it isn't done, and what the send failed with."""
        return self._waited().result()

    def exception(self) -> BaseException | None:
        """The error; None: it is stored. Raises ``asyncio.InvalidStateError`` while it isn't done."""
        return self._waited().exception()

    def cancel(self, msg: Any = None) -> bool:
        """Wait no longer; the record is sent all the same. False: it was done."""
        return self._waited().cancel(msg)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the producer."""
        return self._settlements.loop

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Any = None) -> None:
        """Call ``callback(self)`` on the loop once it is done."""

        def call(_: object) -> None:
            callback(self)

        self._callbacks = [*getattr(self, "_callbacks", ()), (callback, call)]
        self._waited().add_done_callback(call, context=context)

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Don't call it. Returns how often it had been added."""
        mine = [call for given, call in getattr(self, "_callbacks", ()) if given == callback]
        return sum(self._waited().remove_done_callback(call) for call in mine)

    def _waited(self) -> asyncio.Future[T]:
        if self._future is None:
            self._future = self._settlements.loop.create_future()
            batch = self._sent._batch
            if batch.outcome is None:
                self._settlements.watch(batch, self)
            else:
                self._settle()
        return self._future

    def _settle(self) -> None:
        future, batch = self._future, self._sent._batch
        outcome = batch.outcome or batch.uploaded_outcome
        if future is None or future.done() or outcome is None:
            return
        error = self._sent._error_of(outcome)
        if error is not None:
            future.set_exception(error.with_traceback(None))
            future.exception()  # as with the synchronous client: a send that nobody asks about isn't reported
        else:
            value: Any = self._sent._value_of(outcome)
            future.set_result(value)
