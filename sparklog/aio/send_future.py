"""The result of a send: a future of asyncio that costs next to nothing until somebody waits for it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar

from sparklog.errors import IllegalStateError, SparklogError
from sparklog.model import RecordMetadata
from sparklog.producer.accumulator import FutureBase
from sparklog.producer.batch import Batch
from sparklog.producer.future import FutureBatchMetadata, FutureRecordMetadata
from sparklog.producer.outcome import Outcome

__all__ = ["RecordSendFuture", "SendFuture", "send_future"]

T = TypeVar("T")
_Callback = tuple[Callable[[Any], object], contextvars.Context]


class SendFuture(Generic[T]):
    """The promise of where a record, or a table's rows, will be: with the calls of ``asyncio.Future``.

    What was sent is sent: a task that is cancelled while it awaits this, by a timeout say, ends its own wait alone, and
    a future that was cancelled itself can be awaited once more for the outcome. Only who waits, by ``await`` or by a
    callback, has the batch flushed; to ask whether it is done doesn't. Within a transaction it is done once the record
    is uploaded; the offset is -1, as there is none before the commit, and what it is afterwards.
    """

    __slots__ = ()
    _asyncio_future_blocking = False  # by which asyncio knows futures
    _batch: Batch
    _callbacks: list[_Callback] | None
    """Not set before the first callback is added: nobody looks at most futures."""
    _is_cancelled: bool
    """Not set before it is cancelled."""

    def _error_of(self, outcome: Outcome) -> SparklogError | None:
        raise NotImplementedError

    def _value_of(self, outcome: Outcome) -> T:
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, T]:
        outcome = self._outcome()
        while outcome is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # of this wait alone
            _watch(self._batch, partial(_end_wait, waiter))
            yield from waiter
            outcome = self._outcome()
        return self._result_of(outcome)

    __iter__ = __await__

    def done(self) -> bool:
        """Whether it is settled or was cancelled."""
        return self.cancelled() or self._outcome() is not None

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return getattr(self, "_is_cancelled", False)

    def result(self) -> T:
        """The result. Raises ``asyncio.InvalidStateError`` while it isn't done, and what the send failed with."""
        return self._result_of(self._known())

    def exception(self) -> BaseException | None:
        """The error; None: it is stored. Raises ``asyncio.InvalidStateError`` while it isn't done."""
        return self._error_of(self._known())

    def cancel(self, msg: Any = None) -> bool:
        """Call the callbacks now; the record is sent all the same. False: it was done."""
        if self.done():
            return False
        self._is_cancelled = True  # type: ignore[misc] # a slot of each subclass
        asyncio.get_running_loop().call_soon(self._call_back)
        return True

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the producer, from which alone this is called."""
        return asyncio.get_running_loop()

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Call ``callback(self)`` on the loop once it is done."""
        added = (callback, contextvars.copy_context() if context is None else context)
        callbacks = getattr(self, "_callbacks", None)
        if callbacks is not None:
            callbacks.append(added)
            return
        self._callbacks = [added]  # type: ignore[misc]
        if self.done():
            asyncio.get_running_loop().call_soon(self._call_back)
        else:
            _watch(self._batch, self._call_back)

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Don't call it. Returns how often it had been added."""
        added = getattr(self, "_callbacks", None) or []
        kept = [one for one in added if one[0] != callback]
        removed = len(added) - len(kept)
        added[:] = kept
        return removed

    def _call_back(self) -> None:
        callbacks = getattr(self, "_callbacks", None)
        self._callbacks = None  # type: ignore[misc]
        _call_all([partial(self._call, callback, context) for callback, context in callbacks or ()])

    def _call(self, callback: Callable[[Any], object], context: contextvars.Context) -> None:
        try:
            context.run(callback, self)
        except Exception as error:
            report = {"message": f"a callback of a send raised: {callback!r}", "exception": error, "future": self}
            asyncio.get_running_loop().call_exception_handler(report)

    def _outcome(self) -> Outcome | None:
        batch = self._batch
        return batch.outcome or batch.uploaded_outcome

    def _known(self) -> Outcome:
        if self.cancelled():
            raise asyncio.CancelledError
        outcome = self._outcome()
        if outcome is None:
            raise asyncio.InvalidStateError("the record is not yet stored, nor has it failed")
        return outcome

    def _result_of(self, outcome: Outcome) -> T:
        error = self._error_of(outcome)
        if error is not None:
            raise error.with_traceback(None)  # of several records, perhaps, and asked for by several tasks
        return self._value_of(outcome)


class RecordSendFuture(FutureBase, SendFuture[RecordMetadata]):
    """The promise of one record, as a topic's queue makes it."""

    __slots__ = ("_callbacks", "_is_cancelled")
    _error_of = FutureRecordMetadata._error_of
    _value_of = FutureRecordMetadata._value_of


class _OtherSendFuture(SendFuture[T]):
    """The promise that a future of the synchronous client gives."""

    __slots__ = ("_batch", "_callbacks", "_error_of", "_is_cancelled", "_value_of")

    def __init__(self, sent: FutureRecordMetadata | FutureBatchMetadata) -> None:
        self._batch = sent._batch
        self._error_of = sent._error_of  # type: ignore[method-assign]
        self._value_of: Any = sent._value_of


def send_future(sent: Any) -> SendFuture[Any]:
    """The result of the synchronous client's ``send`` or ``send_batch``, for asyncio."""
    return sent if isinstance(sent, SendFuture) else _OtherSendFuture(sent)


def _watch(batch: Batch, callback: Callable[[], object]) -> None:
    """Call back once a batch is settled, on the running loop: it is woken once, however many wait for the batch.

    Raises:
        IllegalStateError: somebody waits for it in another loop.
    """
    loop, awaited = asyncio.get_running_loop(), batch.awaited
    if awaited is not None and awaited[0] is loop:
        awaited[1].append(callback)
        return
    if awaited is not None and not awaited[0].is_closed():
        raise IllegalStateError(
            "a send's future belongs to the event loop of its producer, which is not the one that runs"
        )
    batch.awaited = (loop, [callback])
    batch.begin_flush()  # within a transaction its records would gather until the commit
    batch.when_known(partial(_wake, loop, batch))


def _wake(loop: asyncio.AbstractEventLoop, batch: Batch) -> None:
    try:
        loop.call_soon_threadsafe(_call_waiting, batch)
    except RuntimeError:  # the loop was closed: nobody waits any more
        return


def _call_waiting(batch: Batch) -> None:
    awaited, batch.awaited = batch.awaited, None
    if awaited is not None:
        _call_all(awaited[1])


def _call_all(callbacks: list[Callable[[], object]]) -> None:
    """Call all; where one ends the program, Ctrl-C say, the others are called if the loop goes on."""
    called = 0
    try:
        for callback in callbacks:
            called += 1
            callback()
    finally:
        if called < len(callbacks):
            asyncio.get_running_loop().call_soon(_call_all, callbacks[called:])


def _end_wait(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
