"""Fixtures of pytest: a separate Kafka broker for each test, in this process (``docs/gateway.md``).

In ``conftest.py``: ``pytest_plugins = ["sparklog.gateway.testing"]``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from sparklog.gateway.inprocess import serve

__all__ = ["kafka_bootstrap_servers", "kafka_cluster"]


@pytest.fixture
def kafka_cluster() -> str:
    """The root URI of a cluster in memory, for sparklog's own clients in the same test."""
    return f"memory://kafka-{uuid.uuid4().hex}"


@pytest.fixture
def kafka_bootstrap_servers(kafka_cluster: str) -> Iterator[str]:
    """The address of a gateway to it, for any Kafka client; topics are created as they are asked for."""
    with serve(kafka_cluster) as servers:
        yield servers
