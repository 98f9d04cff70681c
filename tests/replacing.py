"""A store in memory that is emptied, set back or filled anew under clients, and clients of each kind of log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial

from sparklog.clock import Deadline
from sparklog.groups.membership.generations import encode_generation, generation_log
from sparklog.groups.membership.proposals import empty_plan
from sparklog.groups.offsets.changes import CommitUnowned
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.sharing.changes import Acquisition, ShareChange
from sparklog.groups.sharing.exchange import PartitionExchange
from sparklog.log import Cluster, create_topic, open_cluster
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.paths import CLUSTER_FILE
from sparklog.storage import MemoryStore
from sparklog.storage.entry_log import Created
from sparklog.storage.position import Position
from sparklog.testing import ManualClock
from sparklog.txn.session import TransactionSession
from tests.support import T0_MS, a_writer, append

AT = TopicPartition("t", 0)
Kept = dict[str, bytes]
"""The content of a store, by path."""


def kept(memory: MemoryStore, prefix: str = "") -> Kept:
    """A backup."""
    return {found.path: memory.read(found.path) for found in memory.list(prefix)}


def emptied(memory: MemoryStore, prefix: str = "") -> None:
    """As ``aws s3 rm --recursive`` does."""
    memory.delete([found.path for found in memory.list(prefix)])


def put_back(memory: MemoryStore, backup: Kept) -> None:
    """All that there is, replaced by a backup."""
    emptied(memory)
    memory.put_many(backup)


class World:
    """A cluster in memory on a clock that stands still."""

    def __init__(self) -> None:
        self.clock = ManualClock(start_ms=T0_MS)
        self.memory = MemoryStore(clock=self.clock)

    def opened(self) -> Cluster:
        """The cluster as another process opens it; it is made where there is none."""
        return open_cluster(self.memory, clock=self.clock)


class Writer(ABC):
    """A client that writes to one log, one entry at each call."""

    folder: str
    """What its log and all that belongs to it lies below."""

    def __init__(self, cluster: Cluster) -> None:
        """Open the log, or make it where there is none."""
        self.cluster = cluster
        self.count = 0
        self.open()

    @property
    def deadline(self) -> Deadline:
        return self.cluster.clock.deadline_in(10_000)

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def write(self) -> object: ...


class TopicWriting(Writer):
    folder = "topics/"

    def open(self) -> None:
        log = self.cluster.topic_log("t")
        if not [*log.store.list(log.folder)]:
            create_topic(log, "t")
        self.writer = a_writer(log)

    def write(self) -> int:
        self.count += 1
        return append(self.writer, str(self.count), timeout_ms=10_000).base_offsets[0]


class OffsetWriting(Writer):
    folder = "groups/"

    def open(self) -> None:
        self.table = OffsetTable(self.cluster, "g")

    def write(self) -> None:
        self.count += 1
        change = CommitUnowned(offsets={AT: OffsetAndMetadata(self.count)}, topic_ids={AT: "id"}, generation=0)
        assert self.table.change([change], deadline=self.deadline).errors == (None,)


class TransactionWriting(Writer):
    folder = "transactions/"

    def open(self) -> None:
        self.session = TransactionSession(self.cluster, "tx", timeout_ms=60_000, sync=True)
        self.session.begin_epoch(deadline=self.deadline)

    def write(self) -> None:
        """A decision, and that it was carried out: two entries."""
        self.session.begin(ticks_ms=self.cluster.clock.ticks_ms())
        self.session.commit({}, deadline=self.deadline)
        self.session.complete(deadline=self.deadline)


class ShareWriting(Writer):
    folder = "share-groups/"

    def open(self) -> None:
        self.exchange = PartitionExchange(self.cluster, "g", AT, interval_ms=1_000)
        self.exchange.look()
        self.exchange.begin(lambda _: ("id", 0), 0, deadline=self.deadline)

    def write(self) -> None:
        wanted = Acquisition(
            member="ann",
            lock_ms=30_000,
            max_records=1,
            max_open=10**6,
            read_from=self.count,
            read_until=self.count + 1,
            runs=[(self.count, self.count)],
        )
        change = ShareChange(acquisition=wanted)
        self.exchange.submit(change, lambda _: ("id", 0), read_of="id", deadline=self.deadline)
        self.count += 1


class GenerationWriting(Writer):
    folder = "groups/"

    def open(self) -> None:
        self.log = generation_log(self.cluster, "g")
        self.position: Position = self.log.open_newest()[1]

    def write(self) -> None:
        encode = partial(encode_generation, empty_plan(now_ms=0))
        done = self.log.create_next(self.position, encode, tokens=set(), deadline=self.deadline, sync=True)
        assert isinstance(done, Created)
        self.position = done.position


def entries(memory: MemoryStore) -> set[str]:
    """The names of all entries of all logs, and of nothing else."""
    return {found.path for found in memory.list("") if found.path.endswith(".json") and found.path != CLUSTER_FILE}
