"""The time for which a producer's store calls are repeated, by its settings."""

from __future__ import annotations

from sparklog.clock import Deadline
from sparklog.config import ProducerConfig
from sparklog.storage.retrying import Patience

__all__ = ["store_patience"]


def store_patience(config: ProducerConfig, deadline: Deadline, *, abandons: bool = False) -> Patience:
    """Repeat refused store calls as ``retries`` and ``retry_backoff_ms`` say, and not beyond a deadline.

    Args:
        abandons: for calls that a caller of the producer waits in, who gets control back then. What the topic's threads
            do is watched by others: :class:`~sparklog.producer.overdue.OverdueWatch`.
    """
    return Patience(
        deadline=deadline,
        retries=config.retries,
        backoff_ms=config.retry_backoff_ms,
        backoff_max_ms=config.retry_backoff_max_ms,
        abandons=abandons,
    )
