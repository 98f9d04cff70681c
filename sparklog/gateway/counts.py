"""The counters of a gateway. Their exposition is another module, whose imports take an eighth of a gateway's start."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["GatewayFigures"]


def _is_open() -> None:
    """It is open from the start."""


@dataclass(slots=True)
class GatewayFigures:
    """Counted by the gateway's loop; read by any thread."""

    requests: Counter[str] = field(default_factory=Counter)
    """Requests that were answered, or needed no answer, by the name of their API."""
    request_seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """From reading a request to its answer, together, by the name of its API."""
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Errors that were answered, by the name of the API and Kafka's name of the error; of partitions each its own."""
    received_bytes: int = 0
    sent_bytes: int = 0
    connections: int = 0
    """Connections that are open."""
    connections_max: int = 0
    """Further ones are refused."""
    accepted: int = 0
    refused: int = 0
    """Connections that were refused for want of room."""
    disconnected: Counter[str] = field(default_factory=Counter)
    """By this gateway: ``invalid``, ``unavailable``, ``idle`` or ``error``."""
    queued_bytes: int = 0
    """Requests that are read and not answered."""
    connections_waiting: int = 0
    """Connections whose next request isn't read, as those have all the memory that there is for them."""
    fetch_sessions: int = 0
    """Sessions of Fetch that are kept."""
    fetch_sessions_evicted: int = 0
    """Sessions that made room for others."""
    why_unopened: Callable[[], str | None] = _is_open
    """Why the cluster isn't open yet; None: it is."""
    is_draining: bool = False
    turned_s: float = field(default_factory=time.monotonic)
    """When the loop turned last."""
