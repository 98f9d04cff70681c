"""A cluster on a clock that stands still, whose store counts requests, and what happens in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sparklog.errors import StoreError, StorePermissionError, StoreUnavailableError
from sparklog.groups.membership.member_state import MemberState
from sparklog.groups.membership.roster import Roster
from sparklog.log import Cluster, open_cluster
from sparklog.log.append import TopicWriter
from sparklog.log.topic import create_topic
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, ManualClock, WrappedStore
from tests.support import T0_MS, a_writer, append, records, within

T = TypeVar("T")


class FailingStore(WrappedStore):
    """A store that may be away, or closed to its reader below a path."""

    is_away = False
    closed = "\0"
    refusal: type[StoreError] = StorePermissionError
    """Of what is closed."""

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        for path in paths:
            self._check(path)
        return self._store.read_many(paths)

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self._check(path)
        return call()

    def _check(self, path: str) -> None:
        if self.is_away:
            raise StoreUnavailableError("the store is away")
        if path.startswith(self.closed):
            raise self.refusal(f"{path}: forbidden")


@dataclass
class Watched:
    cluster: Cluster
    store: CountingStore
    failing: FailingStore
    memory: MemoryStore
    clock: ManualClock

    def topic(self, name: str, *, num_partitions: int = 1, **configs: object) -> TopicWriter:
        """Create a topic; a writer of it."""
        log = self.cluster.topic_log(name)
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        create_topic(log, name, num_partitions=num_partitions, configs=settings)
        return a_writer(log, topic=name)

    def append(self, writer: TopicWriter, *values: str, timestamp_ms: int | None = None, partition: int = 0) -> None:
        """Append in one commit, with timestamps a millisecond apart."""
        if timestamp_ms is None:
            append(writer, *values, partition=partition)
        else:
            table = records(*values, timestamp_ms=timestamp_ms)
            writer.append(writer.upload([(partition, table)]), deadline=within(writer, 60_000))

    def requests(self) -> int:
        """Since the last call."""
        count = sum(self.store.counts().values())
        self.store.reset()
        return count


def watched() -> Watched:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    failing = FailingStore(memory)
    store = CountingStore(failing)
    return Watched(open_cluster(store, clock=clock), store, failing, memory, clock)


def a_member(
    here: Watched, group: str, *topics: str, session_timeout_ms: int = 45_000, reads_from_start: bool = False
) -> Roster:
    """The member ``ann`` of a group, which has no generation yet; what it is seen by."""
    roster = Roster(here.cluster.store, here.clock, group, heartbeat_interval_ms=3_000)
    state = MemberState(
        member_id="ann",
        instance_id=None,
        client_id="c",
        host="h",
        topics=topics,
        assignors=("range",),
        session_timeout_ms=session_timeout_ms,
        generation=0,
        claims=frozenset(),
        reads_from_start=reads_from_start,
    )
    roster.write_state(state)
    return roster
