"""Commands that run until SIGTERM or Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparklog.interrupts import SafeEvent

__all__ = ["stop_at_signals", "stopped_by_signals"]


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
