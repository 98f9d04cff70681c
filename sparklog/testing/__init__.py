"""The tools that sparklog is tested with, shipped so that users can test with it too.

``sparklog.testing.store_contract.StoreContract`` needs pytest and is imported from there. ``sparklog.testing.history``
records what clients see, and checks it.
"""

from __future__ import annotations

from sparklog.testing.counting_store import CountingStore
from sparklog.testing.faulty_store import Call, Fault, FaultKind, FaultyStore, SimulatedCrash, crashes
from sparklog.testing.interrupted_store import InterruptedStore
from sparklog.testing.manual_clock import ManualClock
from sparklog.testing.power_loss import Disk, PowerLossStore
from sparklog.testing.scheduler import Scheduler, SteppedStore
from sparklog.testing.unsafe_stores import CheckThenWriteStore, OverwritingStore, WrongBytesStore
from sparklog.testing.wrapped_store import WrappedStore

__all__ = [
    "Call",
    "CheckThenWriteStore",
    "CountingStore",
    "Disk",
    "Fault",
    "FaultKind",
    "FaultyStore",
    "InterruptedStore",
    "ManualClock",
    "OverwritingStore",
    "PowerLossStore",
    "Scheduler",
    "SimulatedCrash",
    "SteppedStore",
    "WrappedStore",
    "WrongBytesStore",
    "crashes",
]
