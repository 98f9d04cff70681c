"""The end of the process: no thread of a consumer decodes while the interpreter shuts down, which would crash it."""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol

from sparklog.consumer.single_thread_guard import SingleThreadGuard

__all__ = ["end_at_exit", "forget_at_exit"]

_JOIN_S = 1.0


class _Running(Protocol):
    @property
    def guard(self) -> SingleThreadGuard: ...

    def stop(self) -> None: ...

    def join(self, timeout_s: float) -> bool: ...


_LIVE: weakref.WeakSet[_Running] = weakref.WeakSet()


def end_at_exit(runtime: _Running) -> None:
    """End the threads of a consumer when the process ends, if it is still there."""
    _LIVE.add(runtime)


def forget_at_exit(runtime: _Running) -> None:
    """Leave a consumer alone at the end of the process: it is closed."""
    _LIVE.discard(runtime)


def _end_all() -> None:
    runtimes = [runtime for runtime in _LIVE if not runtime.guard.is_forked]
    for runtime in runtimes:
        runtime.stop()
    for runtime in runtimes:
        runtime.join(_JOIN_S)


atexit.register(_end_all)
