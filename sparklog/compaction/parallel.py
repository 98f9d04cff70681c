"""Many topics at once: most of the time of maintenance is spent waiting for the store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["all_at_once"]

_AT_ONCE = 16

S = TypeVar("S")
T = TypeVar("T")


def all_at_once(act: Callable[[S], T], items: Sequence[S], *, stop: Callable[[], object] = lambda: None) -> list[T]:
    """Act on each of ``items``, 16 at a time; the results in their order.

    Args:
        stop: is called where one of them raises, or the caller is interrupted: those at work are to end soon. What
            hasn't begun isn't begun.
    """
    if len(items) < 2:
        return [act(item) for item in items]
    threads = ThreadPoolExecutor(min(_AT_ONCE, len(items)), "sparklog-maintenance")
    futures = []
    try:
        futures += [threads.submit(act, item) for item in items]
        # Each wait has a limit: without one Ctrl-C is deaf beside libraries that have signals restart waits.
        return [future.result(threading.TIMEOUT_MAX) for future in futures]
    except BaseException:
        stop()
        for future in futures:
            future.cancel()
        raise
    finally:
        threads.shutdown()
