"""A worker's report about itself: whether it is alive, its progress, its counters."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Counts", "Health", "State"]


class State(enum.Enum):
    """Where a worker stands."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    """It begins nothing more, and ends what it has begun."""
    STOPPED = "stopped"
    FAILED = "failed"
    """It ended with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A worker's health, for probes."""

    state: State
    is_alive: bool
    """Should it go on? False: it failed, or its last round began longer ago than ``max_poll_interval_ms`` allows."""
    is_ready: bool
    """Does it run, with partitions of its own?"""
    assigned: int
    """Partitions."""
    in_flight: int
    """Records that were read, and aren't done or wait behind one that isn't."""
    oldest_handler_ms: float
    """For how long the slowest handler that is at work has been; 0 without."""
    last_round_ms: float
    """How long ago the worker's last round began."""
    error: str | None
    """The error that it failed with, else the first in ``stopped``: it is alive then, and goes on."""
    stopped: tuple[str, ...] = ()
    """The errors of partitions that go no further, since something of a record can't be sent and the record has nowhere
    to go; in a share group those of such records. The worker goes on with all others."""


@dataclass(slots=True)
class Counts:
    """Totals of a worker since it began."""

    records: int = 0
    """Records whose offsets were committed."""
    sent: int = 0
    """Records that were sent in transactions, those that were moved among them."""
    dead_letters: int = 0
    delayed: int = 0
    """Records that were moved to delay topics."""
    commits: int = 0
    transactions: int = 0
    """Commits that sent something."""
    failed_commits: int = 0
