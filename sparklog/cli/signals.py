"""Commands that run until SIGTERM or Ctrl-C."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sparklog.interrupts import SafeEvent

__all__ = ["end_despite_hanging_calls", "stop_at_signals", "stopped_by_signals"]

_END_S = 0.3


@contextmanager
def stop_at_signals(stop: Callable[[], object]) -> Iterator[None]:
    """SIGTERM and Ctrl-C call ``stop`` meanwhile, instead of what they do else, where this is the main thread.

    Args:
        stop: is called between any two instructions of that thread, so it takes no lock that the thread may hold.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, lambda *_: stop())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stopped_by_signals() -> Iterator[SafeEvent]:
    """An event that SIGTERM and Ctrl-C set, instead of what they do else."""
    stopped = SafeEvent()
    with stop_at_signals(stopped.set):
        yield stopped


def end_despite_hanging_calls() -> None:
    """End the process at once, with exit code 0, where threads are left that Python would wait for; return where there
    are none. A call to a store that is away takes half a minute.

    Called last by a command, once all is closed.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    until = time.monotonic() + _END_S
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                _exit_at_once()


def _exit_at_once() -> None:
    """End the process by exit code 0, whatever can't be written any more: a pipe may be closed, a disk full."""
    try:
        for last in (logging.shutdown, sys.stdout.flush, sys.stderr.flush):
            with suppress(OSError, ValueError):  # ValueError: it is closed
                last()
    finally:
        os._exit(0)
