"""Rebalance listeners for asyncio: their calls run on the event loop, while the consumer's thread waits for them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sparklog.aio.call_thread import LoopThread
from sparklog.consumer import ConsumerRebalanceListener
from sparklog.model import TopicPartition

__all__ = ["AsyncRebalanceListener", "OnLoop"]

_CALLS = ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost")


class AsyncRebalanceListener:
    """A listener whose methods may be coroutine functions. It may call the consumer, and await these calls.

    If it raises an error, the waiting call of the consumer raises it, and the change is made nevertheless.
    """

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Any:
        """Called with the partitions, at least one, that are about to be revoked."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> Any:
        """Called with the partitions, at least one, that were added to the consumer's assignment."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> Any:
        """Called with partitions that another member already owns."""
        return self.on_partitions_revoked(lost)


class OnLoop(ConsumerRebalanceListener):
    """Calls a user's listener, whose methods are plain or coroutine functions, on the event loop, from the consumer's
    thread."""

    def __init__(self, listener: Any, thread: LoopThread) -> None:
        missing = [name for name in _CALLS[:2] if not callable(getattr(listener, name, None))]
        if missing:
            raise TypeError(f"listener: got {type(listener).__name__}, which lacks {', '.join(missing)}")
        self._listener = listener
        self._thread = thread

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._thread.run_on_loop(lambda: self._listener.on_partitions_revoked(revoked))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._thread.run_on_loop(lambda: self._listener.on_partitions_assigned(assigned))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        call = getattr(self._listener, "on_partitions_lost", self._listener.on_partitions_revoked)
        self._thread.run_on_loop(lambda: call(lost))
