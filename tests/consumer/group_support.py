"""What the tests of groups share: members that are polled by turns, and a listener that writes down what it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from sparklog.consumer import Consumer, ConsumerRebalanceListener
from sparklog.errors import CommitFailedError, RebalanceInProgressError
from sparklog.log import Cluster
from sparklog.model import ConsumerRecord, TopicPartition
from sparklog.storage import ObjectStore
from sparklog.testing import Fault, FaultKind, FaultyStore
from sparklog.testing.wrapped_store import WrappedStore
from tests.consumer.support import LONG_MS, a_cluster, a_consumer

FAST: dict[str, Any] = {"session_timeout_ms": 60_000, "heartbeat_interval_ms": 50}

T = TypeVar("T")

Call = tuple[str, list[int]]
"""What a listener was told, and of which partitions."""


class Listener(ConsumerRebalanceListener):
    """Writes down what it is told, and in which thread; then does what a test wants of it."""

    def __init__(self, **then: Callable[[Collection[TopicPartition]], object]) -> None:
        self.calls: list[Call] = []
        self.threads: set[str] = set()
        self._then = then

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._note("revoked", revoked)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._note("assigned", assigned)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._note("lost", lost)

    def _note(self, event: str, partitions: Collection[TopicPartition]) -> None:
        assert list(partitions) == sorted(partitions)
        self.calls.append((event, [partition for _, partition in partitions]))
        self.threads.add(threading.current_thread().name)
        if event in self._then:
            self._then[event](partitions)


class Member:
    """A consumer of a group, what its listener was told, and what it has read."""

    def __init__(self, cluster: Cluster, *topics: str, listener: Listener | None = None, **settings: Any) -> None:
        self.consumer: Consumer = a_consumer(cluster, **{"group_id": "g", **FAST, **settings})
        self.listener = listener or Listener()
        self.seen: list[ConsumerRecord] = []
        if topics:
            self.consumer.subscribe(topics, listener=self.listener)

    def poll(self, timeout_ms: float = 0) -> int:
        """Poll once; how many records came."""
        found = self.consumer.poll(timeout_ms)
        self.seen += [record for records in found.values() for record in records]
        return sum(map(len, found.values()))

    @property
    def text(self) -> str:
        """The values that it has read."""
        return "".join(record.value.decode() for record in self.seen)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the partitions that it has."""
        return sorted(partition for _, partition in self.consumer.assignment())

    @property
    def id(self) -> str:
        return self.consumer.group_metadata().member_id

    def close(self) -> None:
        self.consumer.close()

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def commits(member: Member) -> bool:
    """Commit; False: a busy machine kept it from heartbeats or polls for too long, so the member has to poll first."""
    try:
        member.consumer.commit()
    except (CommitFailedError, RebalanceInProgressError):
        return False
    return True


def run(condition: Callable[[], object], *members: Member) -> None:
    """Let members poll by turns until something is so."""
    deadline = time.monotonic() + LONG_MS / 1000
    while not condition():
        assert time.monotonic() < deadline, [(member.numbers, member.listener.calls) for member in members]
        for member in members:
            member.poll(2)


def joined(*members: Member, count: int = 1) -> None:
    """Let members poll until they share ``count`` partitions as evenly as can be, and nothing is under way."""

    def is_shared() -> bool:
        sizes = sorted(len(member.numbers) for member in members)
        return sum(sizes) == count and sizes[-1] - sizes[0] <= 1

    run(is_shared, *members)


class Gate(WrappedStore):
    """Holds up every write whose name has ``path`` in it while it is shut."""

    def __init__(self, store: ObjectStore, path: str = "/offsets/") -> None:
        super().__init__(store)
        self._path = path
        self._may_pass = threading.Event()
        self._may_pass.set()
        self.waiting = threading.Event()
        """Does a call stand before the gate?"""

    def shut(self) -> None:
        self.waiting.clear()
        self._may_pass.clear()

    def open(self) -> None:
        self._may_pass.set()

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if op in ("put", "create") and self._path in path and not self._may_pass.is_set():
            self.waiting.set()
            assert self._may_pass.wait(LONG_MS / 1000)
        return call()


class Outage:
    """A second way to a store: it can't be reached while ``is_on``, or only where ``path`` is part of the name."""

    def __init__(self, store: ObjectStore) -> None:
        self.is_on = False
        self.path = ""
        throttled = Fault(kind=FaultKind.THROTTLED, times=None, when=lambda call: self.is_on and self.path in call.path)
        self.cluster = a_cluster(FaultyStore(store, throttled))
