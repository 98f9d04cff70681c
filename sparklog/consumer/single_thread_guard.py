"""The guard of a consumer: one thread at a time, of the process that made it, may call it until it is closed."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType

from sparklog.errors import IllegalStateError

__all__ = ["SingleThreadGuard"]


class SingleThreadGuard:
    """Entered by every call of the consumer that changes something or waits. A thread that is inside may enter again:
    listeners call the consumer.

    Source: Java ``KafkaConsumer.acquireAndEnsureOpen``.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self.user = 0
        """The thread that is inside; 0 where none is. For calls that must be too fast to enter."""
        self.is_closed = False
        self.was_interrupted = False
        """Did an interrupt end a call, perhaps in the middle of a change?"""
        self.is_forked = False
        """Is this the copy of a consumer in a child process?"""
        _GUARDS.add(self)

    def check(self) -> None:
        """Check a call that any thread may make, whoever is inside: it only looks.

        Raises ``IllegalStateError``: the consumer is closed, or is the copy of one in a child process.
        """
        self.check_process()
        if self.is_closed:
            raise IllegalStateError("this consumer is closed")

    def check_process(self) -> None:
        """Check as :meth:`check`, for calls that are allowed after closing, too."""
        if self.is_forked:
            raise IllegalStateError(
                "this consumer was made before the process forked: its thread isn't in this process; "
                "create one in each process"
            )

    def __enter__(self) -> None:
        self.check_process()
        if not self._lock.acquire(blocking=False):
            raise IllegalStateError(
                f"a consumer is for one thread at a time: thread {_name(threading.get_ident())} called it "
                f"while thread {_name(self.user)} is in a call; only wakeup(), metrics(), assignment(), "
                "subscription() and paused() may be called by others"
            )
        try:
            self.check()
        except IllegalStateError:
            self._lock.release()
            raise
        self._depth += 1
        self.user = threading.get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self.was_interrupted = True
        self._depth -= 1
        if not self._depth:
            self.user = 0
        self._lock.release()


def _name(ident: int) -> str:
    return next((thread.name for thread in threading.enumerate() if thread.ident == ident), str(ident))


_GUARDS: weakref.WeakSet[SingleThreadGuard] = weakref.WeakSet()


def _forked() -> None:
    for guard in _GUARDS:
        guard.is_forked = True


if hasattr(os, "register_at_fork"):  # not on Windows, which doesn't fork
    os.register_at_fork(after_in_child=_forked)
