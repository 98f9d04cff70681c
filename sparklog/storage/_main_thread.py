"""Requests for the main thread that Ctrl-C can end: a library written in Rust looks for no signals while it waits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from sparklog.interrupts import CallAbandonedError, CallThread

__all__ = ["run_interruptibly", "run_within"]

T = TypeVar("T")

_IDLE: dict[int, list[CallThread]] = {}
"""Threads that wait for a call, by process id: they don't survive a fork."""


def run_interruptibly(call: Callable[[], T]) -> T:
    """Make a call of the main thread in another thread, which is kept for the next; what another thread calls, it does
    itself. Returns and raises what ``call`` does.

    An interrupt ends the wait; the request goes on by itself, and nobody learns how it ended.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    return _in_thread(lambda thread: thread.run(partial(copy_context().run, call)))


def run_within(call: Callable[[], T], timeout_s: float) -> T:
    """Make a call in another thread, and wait for it so long, whatever it waits for: a library, or the system. Returns
    and raises what ``call`` does.

    Raises:
        CallAbandonedError: it isn't over in time; it goes on by itself, and keeps what it holds until then.
    """
    return _in_thread(lambda thread: thread.run_within(partial(copy_context().run, call), timeout_s))


def _in_thread(run: Callable[[CallThread], T]) -> T:
    idle = _IDLE.setdefault(os.getpid(), [])
    try:
        thread = idle.pop()
    except IndexError:
        thread = CallThread("sparklog-request")
    try:
        result = run(thread)
    except CallAbandonedError:
        thread.stop()
        raise
    except Exception:
        idle.append(thread)
        raise
    except BaseException:
        thread.stop()
        raise
    idle.append(thread)
    return result
