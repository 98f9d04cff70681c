"""Creates that end long after the check before them, or are tried for long, while their storage is exchanged (L17)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparklog.errors import KafkaTimeoutError, StoreReplacedError, StoreUnavailableError
from sparklog.paths import CLUSTER_FILE
from sparklog.storage import CreateResult, MemoryStore, ObjectStore
from sparklog.storage.ground import Ground
from sparklog.testing import ManualClock, WrappedStore
from tests.support import T0_MS, a_topic, a_writer, append, contents

TRUST_MS = 60_000


class ExchangedStore(WrappedStore):
    """A store whose creates of log entries do something else before or after their effect.

    Args:
        before: called first; may raise.
        after: called once the entry is there.
    """

    def __init__(self, store: ObjectStore, before: Callable[[], None], after: Callable[[], None]) -> None:
        super().__init__(store)
        self._before, self._after = before, after
        self.is_on = False

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        if not self.is_on:
            return super().create(path, data, sync=sync)
        self._before()
        result = super().create(path, data, sync=sync)
        self.is_on = False
        self._after()
        return result


def copy_of(memory: MemoryStore) -> dict[str, bytes]:
    return {found.path: memory.read(found.path) for found in memory.list("")}


def put_there(memory: MemoryStore, objects: dict[str, bytes]) -> None:
    kept = {path: data for path, data in copy_of(memory).items() if path.endswith(".parquet")}
    memory.delete([found.path for found in memory.list("")])
    for path, data in {**kept, **objects}.items():
        memory.put(path, data)


def test_a_create_that_ended_late_is_looked_for_where_its_log_was_set_back() -> None:
    """✗ The entry before it is there, so the record counts as stored, though its own entry is gone."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)

    def set_back() -> None:
        put_there(memory, before)
        clock.advance(2 * TRUST_MS)

    store = ExchangedStore(memory, lambda: None, set_back)
    writer = a_writer(a_topic(store, clock))
    append(writer, "first")
    before = copy_of(memory)
    store.is_on = True
    append(writer, "second", timeout_ms=10 * TRUST_MS)
    assert contents(writer.state.log) == {0: [(0, "first"), (1, "second")]}


def test_attempts_that_take_long_look_beneath_them_before_the_next() -> None:
    """✗ The store refuses for minutes, another cluster is put there meanwhile, and gets the entry."""
    clock = ManualClock(start_ms=T0_MS)
    memory, other = MemoryStore(clock=clock), MemoryStore(clock=clock)
    a_topic(other, clock)
    other.put(CLUSTER_FILE, b'{"cluster_id": "other", "format_version": 1}')

    def refuse() -> None:
        if clock.now_ms() < T0_MS + 2 * TRUST_MS:
            clock.advance(2 * TRUST_MS)
            put_there(memory, copy_of(other))
            raise StoreUnavailableError("503")

    store = ExchangedStore(memory, refuse, lambda: None)
    memory.put(CLUSTER_FILE, b'{"cluster_id": "own", "format_version": 1}')
    log = a_topic(store, clock)
    log.store.ground = Ground(log.store, "own")
    writer = a_writer(log)
    append(writer, "first")
    store.is_on = True
    with pytest.raises((KafkaTimeoutError, StoreReplacedError)):
        append(writer, "second", timeout_ms=10 * TRUST_MS)
    entries = [found.path for found in memory.list("topics/t/_delta_log/") if found.path.endswith(".json")]
    assert entries == [found.path for found in other.list("topics/t/_delta_log/") if found.path.endswith(".json")]
