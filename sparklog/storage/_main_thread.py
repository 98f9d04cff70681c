"""Requests for the main thread that Ctrl-C can end: a library written in Rust looks for no signals while it waits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

from sparklog.interrupts import CallThread

__all__ = ["InterruptibleCalls"]

T = TypeVar("T")


class InterruptibleCalls:
    """Makes calls of the main thread in other threads, which are kept; what another thread calls, it does itself.

    An interrupt ends the wait; the request goes on by itself, and nobody learns how it ended.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._idle: list[CallThread] = []

    def run(self, call: Callable[[], T]) -> T:
        """Returns and raises what ``call`` does."""
        if threading.current_thread() is not threading.main_thread():
            return call()
        if self._process != os.getpid():  # threads don't survive a fork
            self._process, self._idle = os.getpid(), []
        thread = self._idle.pop() if self._idle else CallThread("sparklog-request")
        try:
            result = thread.run(call)
        except Exception:
            self._idle.append(thread)
            raise
        except BaseException:
            thread.stop()
            raise
        self._idle.append(thread)
        return result

    def close(self) -> None:
        """Let the kept threads end."""
        while self._idle:
            self._idle.pop().stop()
