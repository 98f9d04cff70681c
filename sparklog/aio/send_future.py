"""The result of a send: a future of asyncio that costs next to nothing until somebody waits for it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar

from sparklog.producer.batch import Batch, Outcome
from sparklog.producer.future import FutureBatchMetadata, FutureRecordMetadata

__all__ = ["SendFuture", "Settlements"]

T = TypeVar("T")
_Callback = tuple[Callable[[Any], object], contextvars.Context]


class Settlements:
    """What waits for batches. A batch that is settled wakes the loop once, however much waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: dict[Batch, list[Callable[[], object]]] = {}

    def watch(self, batch: Batch, callback: Callable[[], object]) -> None:
        """Call back once the batch is settled. On the loop."""
        waiting = self._waiting.get(batch)
        if waiting is not None:
            waiting.append(callback)
            return
        self._waiting[batch] = [callback]
        batch.begin_flush()  # within a transaction its records would gather until the commit
        batch.when_known(lambda: self._wake(batch))

    def _wake(self, batch: Batch) -> None:
        try:
            self.loop.call_soon_threadsafe(self._settle, batch)
        except RuntimeError:  # the loop was closed: nobody waits any more
            return

    def _settle(self, batch: Batch) -> None:
        for callback in self._waiting.pop(batch, ()):
            callback()


class SendFuture(Generic[T]):
    """The promise of where a record, or a table's rows, will be: with the calls of ``asyncio.Future``.

    What was sent is sent: a task that is cancelled while it awaits this, by a timeout say, ends its own wait alone, and
    a future that was cancelled itself can be awaited once more for the outcome. Only who waits, by ``await`` or by a
    callback, has the batch flushed; to ask whether it is done doesn't. Within a transaction it is done once the record
    is uploaded; the offset is -1, as there is none before the commit.
    """

    __slots__ = ("_callbacks", "_is_cancelled", "_sent", "_settlements")
    _asyncio_future_blocking = False  # by which asyncio knows futures

    def __init__(self, sent: FutureRecordMetadata | FutureBatchMetadata, settlements: Settlements) -> None:
        self._sent = sent
        self._settlements = settlements
        self._is_cancelled = False
        self._callbacks: list[_Callback] | None = None

    def __await__(self) -> Generator[Any, None, T]:
        outcome = self._outcome()
        while outcome is None:
            waiter: asyncio.Future[None] = self._settlements.loop.create_future()  # of this wait alone
            self._settlements.watch(self._sent._batch, partial(_end_wait, waiter))
            yield from waiter
            outcome = self._outcome()
        return self._result_of(outcome)

    __iter__ = __await__

    def done(self) -> bool:
        """Whether it is settled or was cancelled."""
        return self._is_cancelled or self._outcome() is not None

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._is_cancelled

    def result(self) -> T:
        """The result. Raises ``asyncio.InvalidStateError`` while it isn't done, and what the send failed with."""
        return self._result_of(self._known())

    def exception(self) -> BaseException | None:
        """The error; None: it is stored. Raises ``asyncio.InvalidStateError`` while it isn't done."""
        error: BaseException | None = self._sent._error_of(self._known())
        return error

    def cancel(self, msg: Any = None) -> bool:
        """Call the callbacks now; the record is sent all the same. False: it was done."""
        if self.done():
            return False
        self._is_cancelled = True
        self._settlements.loop.call_soon(self._call_back)
        return True

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the producer."""
        return self._settlements.loop

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Call ``callback(self)`` on the loop once it is done."""
        added = (callback, contextvars.copy_context() if context is None else context)
        if self._callbacks is not None:
            self._callbacks.append(added)
            return
        self._callbacks = [added]
        if self.done():
            self._settlements.loop.call_soon(self._call_back)
        else:
            self._settlements.watch(self._sent._batch, self._call_back)

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Don't call it. Returns how often it had been added."""
        added = self._callbacks or []
        kept = [one for one in added if one[0] != callback]
        removed = len(added) - len(kept)
        added[:] = kept
        return removed

    def _call_back(self) -> None:
        callbacks, self._callbacks = self._callbacks, None
        for callback, context in callbacks or ():
            try:
                context.run(callback, self)
            except Exception as error:
                told = {"message": f"a callback of a send raised: {callback!r}", "exception": error, "future": self}
                self._settlements.loop.call_exception_handler(told)

    def _outcome(self) -> Outcome | None:
        batch: Batch = self._sent._batch
        return batch.outcome or batch.uploaded_outcome

    def _known(self) -> Outcome:
        if self._is_cancelled:
            raise asyncio.CancelledError
        outcome = self._outcome()
        if outcome is None:
            raise asyncio.InvalidStateError("the record is not yet stored, nor has it failed")
        return outcome

    def _result_of(self, outcome: Outcome) -> T:
        error = self._sent._error_of(outcome)
        if error is not None:
            raise error.with_traceback(None)  # of several records, perhaps, and asked for by several tasks
        value: T = self._sent._value_of(outcome)  # type: ignore[assignment] # T is what is sent
        return value


def _end_wait(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
