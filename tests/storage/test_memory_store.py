import pytest

from sparklog.storage import MemoryStore, ObjectStore
from sparklog.testing import ManualClock
from sparklog.testing.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryStore("contract")


def test_modification_times_are_the_clocks():
    clock = ManualClock(5_000)
    store = MemoryStore(clock=clock)
    store.put("old", b"")
    clock.advance(3_000)
    store.put("new", b"")
    assert {info.path: info.modified_ms for info in store.list("")} == {"old": 5_000, "new": 8_000}


def test_the_same_bytes_written_again_have_another_etag():
    store = MemoryStore()
    store.put("a", b"same")
    [before] = store.list("")
    store.put("a", b"same")
    [after] = store.list("")
    assert before.etag != after.etag
