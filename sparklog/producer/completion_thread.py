"""A thread for what a transactional producer does beside its caller: complete a transaction, refresh a marker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sparklog.interrupts import bounded_s
from sparklog.workers import Worker

__all__ = ["CompletionThread"]

_LOGGER = logging.getLogger("sparklog.producer")


class CompletionThread:
    """Makes calls one at a time. The thread is started by the first."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._work: Callable[[], None] | None = None
        self._is_busy = False
        self._is_stopped = False
        self._worker: Worker | None = None

    def submit(self, work: Callable[[], None]) -> bool:
        """Make this call once those that were submitted before are made. False: no thread can be started, and it isn't
        made."""
        with self._condition:
            self._condition.wait_for(lambda: self._work is None, bounded_s(None))
            if self._worker is None:
                worker = Worker("completer", self._run)
                try:
                    worker.start()
                except RuntimeError as error:
                    _LOGGER.warning("what is left of a transaction is done with the next one: %s", error)
                    return False
                self._worker = worker
            self._work = work
            self._condition.notify_all()
            return True

    @property
    def is_idle(self) -> bool:
        """Is nothing left to do?"""
        with self._condition:
            return self._work is None and not self._is_busy

    def wait_until_idle(self, timeout_s: float | None) -> bool:
        """Wait until nothing is left to do. False: not in time."""
        with self._condition:
            return self._condition.wait_for(lambda: self._work is None and not self._is_busy, bounded_s(timeout_s))

    def stop(self) -> None:
        """End the thread once it is done."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._is_busy = False
                self._condition.notify_all()
                self._condition.wait_for(lambda: self._work is not None or self._is_stopped)
                work, self._work = self._work, None
                if work is None:
                    return
                self._is_busy = True
                self._condition.notify_all()
            try:
                work()
            except BaseException:  # whatever it is, nobody may wait for this thread for ever
                _LOGGER.exception("completing a transaction failed unexpectedly")
