"""The time for which a producer's store calls are repeated, by its settings."""

from __future__ import annotations

from sparklog.clock import Deadline
from sparklog.config import ProducerConfig
from sparklog.storage.retrying import Patience

__all__ = ["store_patience"]


def store_patience(config: ProducerConfig, deadline: Deadline) -> Patience:
    """Repeat refused store calls as ``retries`` and ``retry_backoff_ms`` say, and not beyond a deadline."""
    return Patience(
        deadline=deadline,
        retries=config.retries,
        backoff_ms=config.retry_backoff_ms,
        backoff_max_ms=config.retry_backoff_max_ms,
    )
