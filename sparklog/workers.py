"""Threads that work for a client in the background, and are joined within a bound."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sparklog.errors import IllegalStateError, NoThreadError
from sparklog.interrupts import bounded_s

__all__ = ["Background", "RestartableWorker", "Run", "Worker", "error_for_another_thread", "no_thread"]

_LOGGER = logging.getLogger(__name__)
_WORK = "work"

Run = Callable[[Callable[[], None]], None]
"""Starts a piece of work, in a thread or at once."""


def error_for_another_thread(error: BaseException) -> Exception:
    """An error that came up in this thread, as another thread is to raise it.

    What is no ``Exception``, such as the panic of a library that is written in Rust, or ``SystemExit``, becomes the
    cause of one: it must neither end the other thread nor bypass its handlers.
    """
    if isinstance(error, Exception):
        return error
    failure = IllegalStateError(f"thread {threading.current_thread().name} failed unexpectedly: {error!r}")
    failure.__cause__ = error
    return failure


def no_thread(name: str, error: RuntimeError) -> NoThreadError:
    """The error that says that a thread can't be started, where Python says so by a bare one."""
    return NoThreadError(
        f"thread {name} can't be started: {error}; this process has {threading.active_count()} of Python's threads, "
        "expected room for one more (ulimit -u, or a container's limit of processes)"
    )


class Worker:
    """A thread that makes one call, and ends with it. A process that exits doesn't wait for it."""

    def __init__(self, name: str, run: Callable[[], object]) -> None:
        self._thread = threading.Thread(target=run, name=f"sparklog-{name}", daemon=True)

    def start(self) -> None:
        """Begin, once. Raises ``NoThreadError`` where no thread can be started."""
        try:
            self._thread.start()
        except RuntimeError as error:
            raise no_thread(self._thread.name, error) from error

    def join(self, timeout_s: float | None) -> bool:
        """Wait until the thread has ended. True: it has, or was never started; a thread doesn't wait for itself."""
        if self._thread.ident is not None and not self.is_current:
            self._thread.join(bounded_s(timeout_s))
        return not self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Is this the thread that asks?"""
        return self._thread is threading.current_thread()


class RestartableWorker:
    """A thread that makes one call, and can be started again once that call has failed. Its owner's lock guards it."""

    def __init__(self, name: str, run: Callable[[], object]) -> None:
        self._name = name
        self._run = run
        self._worker = Worker(name, run)
        self.is_running = False
        """Was it started, and not noted as failed since?"""

    def start(self) -> None:
        """Begin, or begin anew, unless it is running. Raises ``NoThreadError`` where no thread can be started."""
        if not self.is_running:
            worker = Worker(self._name, self._run)
            self.is_running = True
            try:
                worker.start()
            except BaseException:
                self.is_running = False
                raise
            self._worker = worker

    def note_failure(self) -> None:
        """Note, in this thread, that the call has failed and that nothing of it is left to be done."""
        self.is_running = False

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has ended, as :meth:`Worker.join`."""
        return self._worker.join(timeout_s)


class Background:
    """One piece of work at a time, away from the caller's thread."""

    def __init__(self, name: str, run: Run | None = None) -> None:
        self._name = name
        self._run = run or self._in_thread
        self._under_way: dict[str, object] = {}
        """At most one; the dict's own calls say who is first."""
        self._worker: Worker | None = None

    def start(self, work: Callable[[], object], what: str = "") -> bool:
        """Start it, unless something is under way. False: it wasn't started.

        Args:
            what: the work's name in a warning where no thread can be started; empty: that isn't logged.
        """
        own = object()

        def end() -> None:
            if self._under_way.get(_WORK) is own:
                self._under_way.pop(_WORK, None)

        def run() -> None:
            try:
                work()
            finally:
                end()

        try:
            if self._under_way.setdefault(_WORK, own) is not own:
                return False
            self._run(run)
        except RuntimeError as error:  # no more threads, or the interpreter is shutting down
            end()
            if what:
                _LOGGER.warning("%s can't be started: %s", what, error)
            return False
        except BaseException:  # an interrupt: if the work has begun, it goes on
            end()
            raise
        return True

    def close(self, timeout_ms: float) -> bool:
        """Wait for what is under way. True: it has ended, or there is none."""
        return self._worker is None or self._worker.join(timeout_ms / 1000)

    def _in_thread(self, work: Callable[[], None]) -> None:
        worker = Worker(self._name, work)
        worker.start()
        self._worker = worker
