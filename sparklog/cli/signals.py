"""Commands that run until SIGTERM, SIGHUP or Ctrl-C, and how each of them ends in time, whatever hangs."""

from __future__ import annotations

import concurrent.futures.thread as pools
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from sparklog.workers import Worker

__all__ = ["TERMINATED", "Ending", "Terminated", "end_despite_hanging_calls", "ended_by_signals"]

FAILED = 1
TERMINATED = 128 + signal.SIGTERM
_LONGEST_END_S = 8.0
"""Service managers and containers grant ten."""
_END_S = 0.3


class Terminated(KeyboardInterrupt):
    """A signal asks the command to end. It is raised in the main thread as Ctrl-C's interrupt is, so it ends each wait
    there, and whatever is safe for that one is safe for it."""


class Ending:
    """How a command ends when a signal comes. Only the first one counts."""

    def __init__(self, forced_code: int) -> None:
        self._forced_code: Callable[[], int] = lambda: forced_code
        self._stop: Callable[[], object] | None = None
        self._is_held = False
        self.is_asked = False
        """Has a signal come?"""

    @contextmanager
    def calls(self, stop: Callable[[], object], *, forced_code: Callable[[], int] | None = None) -> Iterator[None]:
        """A signal calls ``stop`` meanwhile, and raises nothing: what is under way ends in order.

        Args:
            stop: is called between any two instructions of the main thread, so it takes no lock that it may hold.
            forced_code: the exit code where that takes too long; called in another thread.
        """
        before = self._forced_code
        self._forced_code = forced_code or before
        self._stop = stop
        try:
            yield
        finally:
            self._stop, self._forced_code = None, before

    def hold(self, *, forced_code: int) -> None:
        """From now on a signal is only noted, until :meth:`release`.

        Args:
            forced_code: the exit code where the command doesn't end in time from now on.
        """
        self._is_held = True
        self._forced_code = lambda: forced_code

    def release(self) -> None:
        """Raise :class:`Terminated` if a signal came, and from now on as soon as one comes."""
        self._is_held = False
        if self.is_asked:
            raise Terminated

    def forced_code(self) -> int:
        """The exit code if the process is ended now, whatever is under way."""
        return self._forced_code()

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.is_asked:
            return
        self.is_asked = True
        if self._stop is not None:
            self._stop()
        elif not self._is_held:
            raise Terminated


@contextmanager
def ended_by_signals(
    *, forced_code: int = 0, is_service: bool = False, with_interrupts: bool = True
) -> Iterator[Ending]:
    """SIGTERM and SIGHUP end what is within by :class:`Terminated`, which is not raised beyond, where this is the main
    thread; after eight seconds they end the process, whatever hangs.

    Args:
        forced_code: the exit code then: 0 for who only reads.
        is_service: ignore SIGHUP where there is no terminal.
        with_interrupts: Ctrl-C does the same, in place of a ``KeyboardInterrupt``.
    """
    ending = Ending(forced_code)
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    handlers: dict[int, object] = {signal.SIGTERM: ending.ask}
    if with_interrupts:
        handlers[signal.SIGINT] = ending.ask
    if is_service and not _has_terminal():
        handlers[signal.SIGHUP] = signal.SIG_IGN
    elif signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup does
        handlers[signal.SIGHUP] = _as_sigterm
    before = {number: signal.getsignal(number) for number in handlers}
    watchdog = _Watchdog({int(number) for number in handlers}, ending)
    try:
        for number, handler in handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        yield ending
    except Terminated:
        pass
    finally:
        for number, known in before.items():
            signal.signal(number, known)
        watchdog.stop()


def end_despite_hanging_calls(code: int = 0) -> None:
    """End the process at once, with this exit code, where threads are left that Python would wait for; return where
    there are none. A call to a store that is away takes half a minute, and one to a store that hangs never ends.

    Called last by a command, once all is closed.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    until = time.monotonic() + _END_S
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and _is_waited_for(thread):
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                _exit_at_once(code)


def _is_waited_for(thread: threading.Thread) -> bool:
    """Python waits for threads of pools even where they are daemons, as those are that a daemon started."""
    return not thread.daemon or thread in getattr(pools, "_threads_queues", ())


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _as_sigterm(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGTERM)  # whoever handles it at this moment, such as a web server


class _Watchdog:
    """Ends the process some seconds after a signal came, also where the main thread never gets to its handler: it waits
    within a library's call. The system's own handler writes the signal's number into a socket at once."""

    def __init__(self, numbers: set[int], ending: Ending) -> None:
        self._numbers = numbers
        self._ending = ending
        self._news, self._noted = socket.socketpair()
        self._noted.setblocking(False)
        self._before = signal.set_wakeup_fd(self._noted.fileno(), warn_on_full_buffer=False)
        Worker("signals", self._watch).start()

    def stop(self) -> None:
        """Let the process live."""
        signal.set_wakeup_fd(self._before)
        self._noted.close()

    def _watch(self) -> None:
        with self._news as news:
            while numbers := news.recv(64):
                if self._numbers.intersection(numbers):
                    break
            deadline_s = time.monotonic() + _LONGEST_END_S
            with suppress(TimeoutError):
                while numbers:
                    news.settimeout(max(0.001, deadline_s - time.monotonic()))
                    numbers = news.recv(64)
                return
        code = self._ending.forced_code()
        told = "error: not everything that was accepted is known to be settled: " if code else ""
        with suppress(OSError):
            os.write(2, f"sparklog: {told}ended by a signal, though calls to the store or a database hang\n".encode())
        _exit_at_once(code)


def _exit_at_once(code: int) -> None:
    """End the process, whatever can't be written any more: a pipe may be closed, a disk full."""
    try:
        for last in (logging.shutdown, sys.stdout.flush, sys.stderr.flush):
            with suppress(OSError, ValueError):  # ValueError: it is closed
                last()
    finally:
        os._exit(code)
