"""The store's time, and what is left of asking for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparklog.errors import StoreUnavailableError
from sparklog.log.store_time import store_time_ms
from sparklog.storage import MemoryStore, ObjectInfo
from sparklog.testing import FaultyStore, ManualClock, WrappedStore
from tests.support import DAY_MS, T0_MS
from tests.txn.support import a_cluster


def test_it_is_the_stores_and_nothing_is_left_of_asking() -> None:
    memory = MemoryStore(clock=ManualClock(start_ms=T0_MS))
    store = FaultyStore(memory)
    assert store_time_ms(a_cluster(store, ManualClock(start_ms=5)), "probes/p") == T0_MS
    assert list(memory.list("")) == []
    assert [call.op for call in store.calls] == ["put", "list", "delete"]


def test_what_killed_processes_left_goes_a_day_later() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    cluster = a_cluster(memory, ManualClock(start_ms=T0_MS + 30 * DAY_MS))
    for path in ("probes/old", "elsewhere/old"):
        memory.put(path, b"")
    clock.advance(1)
    memory.put("probes/young", b"")
    clock.advance(DAY_MS - 1)
    store_time_ms(cluster, "probes/p")
    assert {found.path for found in memory.list("probes/")} == {"probes/old", "probes/young"}
    clock.advance(1)
    assert store_time_ms(cluster, "probes/p") == T0_MS + DAY_MS + 1
    assert {found.path for found in memory.list("")} == {"probes/young", "elsewhere/old"}


class Swept(WrappedStore):
    """Before it lists, somebody sweeps the folder."""

    def __init__(self, store: MemoryStore, times: int) -> None:
        super().__init__(store)
        self.times = times

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        if self.times > 0:
            self.times -= 1
            self._store.delete([found.path for found in self._store.list(prefix)])
        return super().list(prefix, after=after)


def test_who_slept_until_his_own_was_swept_asks_again_and_not_his_own_clock() -> None:
    memory = MemoryStore(clock=ManualClock(start_ms=T0_MS))
    ahead = ManualClock(start_ms=T0_MS + 30 * DAY_MS)
    assert store_time_ms(a_cluster(Swept(memory, 4), ahead), "probes/p") == T0_MS
    with pytest.raises(StoreUnavailableError, match="probes/p was deleted by others 5 times"):
        store_time_ms(a_cluster(Swept(memory, 5), ahead), "probes/p")
