"""The interface of an observer of a producer. Only instrumented producers have one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from sparklog.producer.future import FutureBatchMetadata, FutureRecordMetadata
from sparklog.producer.interceptors import ProducerRecord

__all__ = ["ProducerObserver"]


class ProducerObserver(Protocol):
    """Called by the producer; raises nothing of its own."""

    def send(
        self, record: ProducerRecord, send: Callable[[ProducerRecord], FutureRecordMetadata]
    ) -> FutureRecordMetadata:
        """Send a record, perhaps with other headers. Raises what ``send`` does."""

    def send_table(self, topic: str, row_count: int, send: Callable[[], FutureBatchMetadata]) -> FutureBatchMetadata:
        """Send a table. Raises what ``send`` does."""

    def transaction_call(self, call: str) -> AbstractContextManager[None]:
        """Watch a call: ``init``, ``begin``, ``send-offsets``, ``commit`` or ``abort``. Lets errors pass."""

    def settled(self, topic: str, *, sent: int, failed: int, error: BaseException | None, took_s: float) -> None:
        """A batch is stored, uploaded within a transaction, or failed; ``took_s`` since its first record."""
