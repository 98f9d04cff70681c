"""Calls side by side, in a bounded number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Generic, TypeVar

__all__ = ["AT_ONCE", "Job", "attempt", "parallel_map", "parallel_results"]

AT_ONCE = 32
"""Calls under way at once: as many as an object store's client keeps connections."""

S = TypeVar("S")
T = TypeVar("T")


def parallel_map(
    call: Callable[[S], T],
    items: Iterable[S],
    *,
    at_once: int = AT_ONCE,
    stop: Callable[[], object] = lambda: None,
) -> list[T]:
    """The result of ``call`` for each item, in the order of the items; up to ``at_once`` calls are under way at once.

    A single item is dealt with in the caller's thread, and so are those, one after the other, for which no thread can
    be started, as in what ``atexit`` calls. The threads see the caller's context variables, such as the
    patience of a :class:`~sparklog.storage.retrying.RetryingStore`.

    Args:
        stop: called where a call fails, or the caller is interrupted, before the wait for the calls that are under way:
            asks long ones to end soon.
    Raises:
        The error of the first item whose call failed, once the calls that are under way have ended; calls that haven't
        begun by then are not made. So it is with an interrupt in the caller's thread.
    """
    wanted = list(items)
    if len(wanted) < 2:
        return [call(item) for item in wanted]
    jobs = [Job(partial(copy_context().run, call, item)) for item in wanted]
    with ThreadPoolExecutor(min(at_once, len(wanted)), "sparklog-parallel") as threads:
        try:
            given = _submitted(threads, jobs)
            for job in jobs[len(given) :]:
                job.run()
                job.future.result()
            # Some libraries have SIGINT restart what it interrupts: then Ctrl-C doesn't end a wait without a limit.
            for job, run in zip(jobs, given, strict=False):
                run.result(threading.TIMEOUT_MAX)
                job.future.result(threading.TIMEOUT_MAX)
            return [job.future.result(threading.TIMEOUT_MAX) for job in jobs]
        except BaseException:
            stop()
            raise
        finally:
            _cancel(job.future for job in jobs)


def parallel_results(call: Callable[[S], T], items: Iterable[S], *, at_once: int = AT_ONCE) -> list[T | Exception]:
    """Call as :func:`parallel_map` does; an error that a call raised takes the place of its result, and hinders no
    other call."""
    return parallel_map(partial(attempt, call), items, at_once=at_once)


def attempt(call: Callable[[S], T], item: S) -> T | Exception:
    """The result of a call, or what it raised."""
    try:
        return call(item)
    except Exception as error:
        return error


class Job(Generic[T]):
    """A call that is made once, by whoever comes first.

    An executor that can't start a thread raises an error, and keeps the call: another of its threads may make it.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self.future: Future[T] = Future()
        self._call = call
        self._claims: dict[str, object] = {}
        """At most one; the dict's own calls say who is first."""

    def run(self) -> None:
        """Make the call, unless it was made before, or nobody wants it any more. Its outcome is the future's."""
        own = object()
        if self._claims.setdefault("run", own) is not own or not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self._call()
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


def _cancel(futures: Iterable[Future[T]]) -> None:
    for future in futures:
        future.cancel()


def _submitted(threads: ThreadPoolExecutor, jobs: Sequence[Job[T]]) -> list[Future[None]]:
    """The first jobs, given to threads; for those behind them no thread can be started."""
    given: list[Future[None]] = []
    for job in jobs:
        try:
            given.append(threads.submit(job.run))
        except RuntimeError:  # no more threads, or the interpreter is shutting down
            break
    return given
