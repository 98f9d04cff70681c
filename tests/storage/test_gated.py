"""A store that is opened later."""

from __future__ import annotations

import threading

import pytest

from sparklog.errors import StoreError, StoreUnavailableError
from sparklog.storage import MemoryStore
from sparklog.storage.base import FilesRead
from sparklog.storage.gated import GatedStore
from sparklog.testing import CountingStore
from sparklog.testing.store_contract import StoreContract


class TestAnOpenGate(StoreContract):
    @pytest.fixture
    def store(self):
        gate = GatedStore(MemoryStore())
        gate.open()
        return gate


CALLS = {
    "read": lambda store: store.read("a"),
    "read_range": lambda store: store.read_range("a", 0, 1),
    "read_many": lambda store: store.read_many(["a"]),
    "read_buffers": lambda store: store.read_buffers(["a"]),
    "read_files_by": lambda store: store.read_files_by(["a"], lambda files: FilesRead(files, 1, 0)),
    "exists": lambda store: store.exists("a"),
    "put": lambda store: store.put("a", b""),
    "put_many": lambda store: store.put_many({"a": b""}),
    "create": lambda store: store.create("a", b""),
    "list": lambda store: [*store.list("")],
    "list_names": lambda store: store.list_names(""),
    "delete": lambda store: store.delete(["a"]),
    "remove_empty_folders": lambda store: store.remove_empty_folders("a/", changed_before_ms=0),
    "sync": lambda store: store.sync(["a"]),
    "sync_all": lambda store: store.sync_all(),
    "arrow_filesystem": lambda store: store.arrow_filesystem(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_no_call_comes_to_a_store_that_is_not_open(call):
    counting = CountingStore(MemoryStore())
    gate = GatedStore(counting, wait_s=0)
    gate.reason = "nobody is there"
    with pytest.raises(StoreUnavailableError, match="nobody is there"):
        call(gate)
    gate.give_up()
    with pytest.raises(StoreError) as found:
        call(gate)
    assert not found.value.retriable
    assert gate.watch("a/", lambda: None) is None
    assert sum(counting.counts().values()) == 0


def test_who_waits_goes_on_as_soon_as_it_is_opened():
    gate = GatedStore(MemoryStore(), wait_s=60)
    threading.Timer(0.05, gate.open).start()
    assert gate.list_names("") == []
    gate.give_up()  # too late
    assert gate.list_names("") == []
