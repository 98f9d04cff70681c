"""A cluster in memory, a producer on it, a store that can be held, and a look at all that is readable."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from sparklog.clock import Clock, SystemClock
from sparklog.errors import SparklogError
from sparklog.log import Cluster, TopicFollower, create_topic
from sparklog.producer import Producer, ProducerRecord
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import Fault, FaultKind, WrappedStore

T = TypeVar("T")

FAR_FUTURE_MS = 2**60
"""A timestamp that topics refuse, by their default settings."""
LONG_S = 60.0
"""For what is there in milliseconds: reached only by a test that fails."""

IMPATIENT: dict[str, Any] = {
    "linger_ms": 0,
    "request_timeout_ms": 100,
    "delivery_timeout_ms": 200,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 10,
    "max_block_ms": 200,
}
"""Settings of a producer that gives up early."""

Row = tuple[int, "bytes | None", "bytes | None"]
"""Offset, key and value."""


def a_cluster(store: ObjectStore | None = None, clock: Clock | None = None) -> Cluster:
    """A cluster without topics."""
    clock = clock or SystemClock()
    store = MemoryStore() if store is None else store
    return Cluster(cluster_id="c", store=RetryingStore(store, clock=clock), clock=clock)


def a_topic(
    store: ObjectStore | None = None,
    clock: Clock | None = None,
    *,
    partitions: int = 1,
    configs: Mapping[str, object] | None = None,
) -> Cluster:
    """A cluster with the topic ``t``."""
    cluster = a_cluster(store, clock)
    create_topic(cluster.topic_log("t"), "t", num_partitions=partitions, configs=configs)
    return cluster


def through(store: ObjectStore, cluster: Cluster) -> Cluster:
    """The same cluster as a process sees it whose calls go through ``store``."""
    return a_cluster(store, cluster.clock)


@contextmanager
def a_producer(cluster: Cluster, **settings: Any) -> Iterator[Producer]:
    """A producer that acknowledges early, and is closed after the block."""
    producer = Producer(cluster, **{"acks": 1, "linger_ms": 0, **settings})
    try:
        yield producer
    except BaseException:
        producer.close(timeout=0)  # the store may be held
        raise
    producer.close()


def rows(cluster: Cluster, topic: str = "t") -> dict[int, list[Row]]:
    """Everything that a fresh reader sees, by partition."""
    follower = TopicFollower(cluster.topic_log(topic), topic)
    seen: dict[int, list[Row]] = {}
    for partition, start in enumerate(follower.head.log_start_offsets):
        table = follower.read(partition, start, max_records=10_000_000)
        columns = (table[name].to_pylist() for name in ("offset", "key", "value"))
        seen[partition] = list(zip(*columns, strict=True))
    return seen


def values(cluster: Cluster, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    """The values of one partition, in order; its offsets are dense."""
    found = rows(cluster, topic)[partition]
    assert [offset for offset, _, _ in found] == list(range(len(found)))
    return [value for _, _, value in found]


def column(cluster: Cluster, name: str, partition: int = 0) -> list[Any]:
    """One column of a partition of ``t``."""
    return list(TopicFollower(cluster.topic_log("t"), "t").read(partition, 0, max_records=10_000)[name].to_pylist())


def assert_empty(producer: Producer) -> None:
    """All that was taken of ``buffer_memory`` was given back, once: soon after the futures are done."""
    eventually(lambda: producer._buffer.used_bytes == 0)
    assert producer.metrics()["producer-metrics"]["requests-in-flight"] == 0


class RemoteStore(WrappedStore):
    """A store that says that it is another machine's."""

    @property
    def is_remote(self) -> bool:
        return True


class HeldStore(WrappedStore):
    """Calls of one kind wait, from :meth:`hold` until :meth:`let_go`."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._held: str | None = None
        self._path = ""
        self._go = threading.Event()
        self.reached = threading.Event()
        """Set once a call waits."""

    def hold(self, op: str, path: str = "") -> None:
        """Let every call of this kind wait (get, put, create, list) whose path has this part."""
        self.reached.clear()
        self._go.clear()
        self._held, self._path = op, path

    def let_go(self) -> None:
        """Let all that wait go on."""
        self._held = None
        self._go.set()

    def wait_until_reached(self) -> None:
        """Wait for a call that waits."""
        assert self.reached.wait(LONG_S)

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if op == self._held and self._path in path:
            self.reached.set()
            assert self._go.wait(LONG_S)
        return call()


@contextmanager
def in_thread(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """Do ``work`` in another thread meanwhile; it has ended after the block."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield thread
    thread.join(LONG_S)
    assert not thread.is_alive()


def eventually(condition: Callable[[], object]) -> None:
    """Wait until a condition holds that another thread brings about."""
    pause = threading.Event()
    for _ in range(int(LONG_S * 1000)):
        if condition():
            return
        pause.wait(0.001)
    raise AssertionError("it didn't come about")


class Switch:
    """Faults that befall calls from :meth:`on` to :meth:`off`."""

    def __init__(self, kind: FaultKind, *ops: str) -> None:
        self._on = threading.Event()
        self.fault = Fault(kind=kind, ops=ops, times=None, when=lambda call: self._on.is_set())

    def on(self) -> None:
        self._on.set()

    def off(self) -> None:
        self._on.clear()


def error_of(future: Any) -> SparklogError:
    """The error that a future fails with."""
    with pytest.raises(SparklogError) as caught:
        future.get(LONG_S)
    return caught.value


class Interceptor:
    """Logs its calls, and appends its name to values."""

    def __init__(self, log: list[object], name: str = "") -> None:
        self.log, self.name = log, name

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.log.append(("send", self.name, record.value))
        return record._replace(value=f"{record.value}{self.name}")

    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        self.log.append(("ack", self.name, metadata and metadata.offset, error and type(error)))

    def close(self) -> None:
        self.log.append(("close", self.name))
