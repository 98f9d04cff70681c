"""Requests for the main thread that Ctrl-C can end: a library written in Rust looks for no signals while it waits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

from sparklog.interrupts import CallThread

__all__ = ["run_interruptibly"]

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
    idle = _IDLE.setdefault(os.getpid(), [])
    thread = idle.pop() if idle else CallThread("sparklog-request")
    try:
        result = thread.run(call)
    except Exception:
        idle.append(thread)
        raise
    except BaseException:
        thread.stop()
        raise
    idle.append(thread)
    return result
