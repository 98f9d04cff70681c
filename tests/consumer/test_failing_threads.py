"""A consumer's threads that meet what is no ``Exception``, such as a panic of a library: the next call says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from sparklog.consumer import Consumer
from sparklog.errors import CommitStateUnknownError, IllegalStateError
from sparklog.model import OffsetAndMetadata
from sparklog.storage import MemoryStore
from sparklog.testing.wrapped_store import WrappedStore
from tests.consumer.support import LONG_MS, a_cluster, a_consumer, send, take, text, tp, with_topic

T = TypeVar("T")


class Panic(BaseException):
    """As pyo3's ``PanicException``, which obstore may raise: no ``Exception``."""


class PanickingStore(WrappedStore):
    """A store whose next call in a certain thread raises."""

    thread = ""
    error: type[BaseException] = Panic

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if self.thread and threading.current_thread().name.startswith(self.thread):
            self.thread = ""
            raise self.error("a bug")
        return call()


@pytest.fixture
def store() -> PanickingStore:
    return PanickingStore(MemoryStore())


def read_until_raised(consumer: Consumer) -> None:
    """Poll until a poll raises, which the rest of a test fails without."""
    for _ in range(100):
        consumer.poll(timeout_ms=100)


@pytest.mark.parametrize("error", [Panic, SystemExit, KeyboardInterrupt, MemoryError])
def test_a_poll_raises_what_the_fetcher_met_and_the_next_one_reads_on(
    store: PanickingStore, error: type[BaseException]
) -> None:
    cluster = with_topic(a_cluster(store), "a")
    with a_consumer(cluster, "t") as consumer:
        assert text(take(consumer, 1)) == "a"
        store.error, store.thread = error, "sparklog-fetcher"
        with pytest.raises((IllegalStateError, MemoryError), match="a bug"):
            read_until_raised(consumer)
        send(cluster, "b")
        assert text(take(consumer, 1)) == "b"


def test_a_poll_raises_what_the_fetcher_met_while_it_rested() -> None:
    cluster = with_topic(a_cluster(), "a")
    with a_consumer(cluster, "t") as consumer:
        assert text(take(consumer, 1)) == "a"
        consumer.pause(tp())
        raise_in_thread("sparklog-fetcher", Panic)
        with pytest.raises(IllegalStateError, match="Panic"):
            read_until_raised(consumer)
        consumer.resume(tp())
        send(cluster, "b")
        assert text(take(consumer, 1)) == "b"


def raise_in_thread(name: str, error: type[BaseException]) -> None:
    import ctypes

    (thread,) = (each for each in threading.enumerate() if each.name == name)
    assert thread.ident is not None
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error)) == 1


def test_a_question_raises_what_its_thread_met(store: PanickingStore) -> None:
    cluster = with_topic(a_cluster(store), "a")
    with a_consumer(cluster) as consumer:
        store.thread = "sparklog-lookup"
        with pytest.raises(IllegalStateError, match="a bug"):
            consumer.end_offsets([tp()])
        assert consumer.end_offsets([tp()]) == {tp(): 1}


def test_a_poll_raises_what_the_heartbeats_met_and_the_member_stays(store: PanickingStore) -> None:
    cluster = with_topic(a_cluster(store), "a")
    with a_consumer(cluster, "t", group_id="g", heartbeat_interval_ms=50) as consumer:
        assert text(take(consumer, 1)) == "a"
        store.thread = "sparklog-heartbeat"
        with pytest.raises(IllegalStateError, match="a bug"):
            read_until_raised(consumer)
        send(cluster, "b")
        assert text(take(consumer, 1)) == "b"
        consumer.commit()


def test_a_commit_is_unknown_where_its_thread_met_a_panic_and_the_next_one_is_made(store: PanickingStore) -> None:
    cluster = with_topic(a_cluster(store), "a")
    with a_consumer(cluster, "t", group_id="g", enable_auto_commit=False) as consumer:
        assert text(take(consumer, 1)) == "a"
        store.thread = "sparklog-offsets"
        with pytest.raises(CommitStateUnknownError) as caught:
            consumer.commit({tp(): OffsetAndMetadata(1, "", -1)}, timeout_ms=LONG_MS)
        assert "a bug" in repr(caught.value.__cause__)
        consumer.commit({tp(): OffsetAndMetadata(1, "", -1)}, timeout_ms=LONG_MS)
        assert consumer.committed(tp()) == 1
