"""Work that a client does beside its own, in a thread that nobody waits for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

__all__ = ["Background", "Run"]

_LOGGER = logging.getLogger(__name__)
_WORK = "work"

Run = Callable[[Callable[[], None]], None]
"""Starts a piece of work, in a thread or at once."""


class Background:
    """One piece of work at a time, away from the caller's thread."""

    def __init__(self, name: str, run: Run | None = None) -> None:
        self._name = name
        self._run = run or self._in_thread
        self._under_way: dict[str, object] = {}
        """At most one; the dict's own calls say who is first."""
        self._thread: threading.Thread | None = None

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
        if self._thread is None:
            return True
        self._thread.join(timeout_ms / 1000)
        return not self._thread.is_alive()

    def _in_thread(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=self._name, daemon=True)
        thread.start()
        self._thread = thread  # only one that was started can be joined
