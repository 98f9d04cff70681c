"""A cluster in memory with two topics and a group, and one producer's transaction over all of them, call by call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparklog.clock import Clock, Deadline
from sparklog.groups.membership.generations import GenerationMember, Subscription, encode_generation
from sparklog.groups.membership.proposals import empty_plan
from sparklog.groups.offsets.changes import CommitOffsets, TakePartitions
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.pending import settle_pending
from sparklog.groups.offsets.rows import CommittedPartitions, Decider, Rows, Stamp
from sparklog.log import Cluster, TopicFollower, TopicWriter, create_topic
from sparklog.log.data.data_files import UploadedFile
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.paths import generation_path
from sparklog.storage import CreateResult, MemoryStore, ObjectStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import ManualClock, WrappedStore
from sparklog.txn.deciding import decide
from sparklog.txn.entries import (
    TopicFiles,
    TransactionEntry,
    TransactionLog,
    open_transaction_log,
)
from sparklog.txn.session import TransactionSession
from tests.support import T0_MS, no_checkpoints, records

TIMEOUT_MS = 60_000
ID = "tx"
IN = TopicPartition("in", 0)
ANN, BOB = Stamp(1, "ann"), Stamp(2, "bob")


def a_cluster(store: ObjectStore | None = None, clock: Clock | None = None) -> Cluster:
    clock = clock or ManualClock(start_ms=T0_MS)
    store = store if store is not None else MemoryStore(clock=clock)
    return Cluster(cluster_id="c", store=RetryingStore(store, clock=clock), clock=clock)


def a_world() -> tuple[MemoryStore, ManualClock, Cluster]:
    """Topics ``t`` (two partitions) and ``u``; in group ``g``, ann has taken ``in-0`` in generation 1, committed 5."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    cluster = a_cluster(memory, clock)
    for topic, partitions in (("t", 2), ("u", 1)):
        create_topic(cluster.topic_log(topic), topic, num_partitions=partitions)
    with_generation(cluster, "g", ANN)
    take(cluster, ANN)
    table = OffsetTable(cluster, "g")
    commit = CommitOffsets(offsets={IN: OffsetAndMetadata(5)}, stamps={IN: ANN}, topic_ids={})
    assert table.change([commit], deadline=soon(cluster)).errors == (None,)
    return memory, clock, cluster


def soon(cluster: Cluster, ms: float = TIMEOUT_MS) -> Deadline:
    return cluster.clock.deadline_in(ms)


def with_generation(cluster: Cluster, group: str, stamp: Stamp) -> None:
    """The generation in which a member takes partitions: one that is there is left alone."""
    member = GenerationMember(instance_id=None, client_id="c", host="h", subscription=Subscription((), "", ("range",)))
    plan = replace(
        empty_plan(now_ms=0), members={stamp.member: member}, assignment={stamp.member: frozenset()}, assignor="range"
    )
    cluster.store.create(generation_path(group, stamp.generation), encode_generation(plan, "a generation"))


def take(cluster: Cluster, stamp: Stamp) -> Rows:
    """A member takes ``in-0``, and has decided what is pending, as rule T2 wants it; the rows afterwards."""
    table = OffsetTable(cluster, "g")
    done = table.change([TakePartitions(topic_ids={IN: "in-id"}, stamp=stamp)], deadline=soon(cluster))
    for error in done.errors:
        if error is not None:
            raise error

    def decided(decider: Decider) -> CommittedPartitions:
        return decide(cluster, decider, reason=f"{stamp.member} took the partition", timeout_ms=TIMEOUT_MS)

    return settle_pending(table, done.rows, [IN], decided, deadline=soon(cluster))


def group_rows(cluster: Cluster) -> Rows:
    return OffsetTable(cluster, "g").fetch()


def committed(cluster: Cluster) -> int | None:
    """The group's committed offset."""
    row = group_rows(cluster)[IN]
    return row.committed.offset if row.committed else None


def values(cluster: Cluster, topic: str) -> list[str]:
    """What a fresh reader sees in a topic, partition by partition; offsets are dense."""
    follower = TopicFollower(cluster.topic_log(topic), topic)
    seen: list[str] = []
    for partition in range(follower.head.partition_count):
        table = follower.read(partition, 0, max_records=1_000_000)
        assert table["offset"].to_pylist() == list(range(table.num_rows))
        seen += [value.decode() for value in table["value"].to_pylist()]
    return seen


def a_log(cluster: Cluster, transactional_id: str = ID) -> TransactionLog:
    return open_transaction_log(cluster, transactional_id)


def newest_entry(cluster: Cluster, transactional_id: str = ID) -> TransactionEntry | None:
    return a_log(cluster, transactional_id).open_newest()[0]


def states(cluster: Cluster, transactional_id: str = ID) -> list[str]:
    """The log of a transactional id, as names of states."""
    log = a_log(cluster, transactional_id)
    entries = [log.read_entry(number) for number in sorted(log.numbers())]
    return [entry.state.value for entry in entries if entry is not None]


def data_files(cluster: Cluster, topic: str) -> set[str]:
    folder = f"topics/{topic}/"
    paths = (found.path for found in cluster.store.list(folder))
    return {path for path in paths if path.endswith(".parquet") and "_delta_log" not in path}


class Overtaken(WrappedStore):
    """Right before one of the creates of a path others act."""

    def __init__(self, store: ObjectStore, path: str, others_act: Callable[[], object], *, skip: int = 0) -> None:
        super().__init__(store)
        self._path = path
        self._others_act = others_act
        self._skip = skip

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        if self._path in path:
            self._skip -= 1
            if self._skip == -1:
                self._others_act()
        return super().create(path, data, sync=sync)


@dataclass
class Driver:
    """A producer with a transactional id, without its threads: what it does to the store, in an order that is fixed."""

    cluster: Cluster
    transactional_id: str = ID
    topics: Sequence[str] = ("t", "u")
    member: Stamp = ANN
    sync: bool = True
    session: TransactionSession = field(init=False)
    writers: dict[str, TopicWriter] = field(default_factory=dict)
    files: dict[str, list[UploadedFile]] = field(default_factory=dict)
    known_versions: dict[str, int] = field(default_factory=dict)
    """Of the topics, before anything was decided."""

    def __post_init__(self) -> None:
        self.session = TransactionSession(self.cluster, self.transactional_id, timeout_ms=TIMEOUT_MS, sync=self.sync)

    @property
    def deadline(self) -> Deadline:
        return soon(self.cluster)

    def init(self) -> Driver:
        self.session.begin_epoch(deadline=self.deadline)
        header = self.session.header
        for topic in self.topics:
            log = self.cluster.topic_log(topic)
            writer = self.writers[topic] = TopicWriter(log, topic, sync=self.sync, checkpoints=no_checkpoints())
            writer.adopt(producer_id=header.producer_id, producer_epoch=header.producer_epoch)
        return self

    def begin(self) -> None:
        self.session.complete(deadline=self.deadline)
        if self.session.is_marker_old():
            self.session.refresh_marker()
        self.session.begin(ticks_ms=self.cluster.clock.ticks_ms())
        self.files = {}
        self.known_versions = {topic: writer.version for topic, writer in self.writers.items()}

    def send(self, topic: str, *sent: str, partition: int = 0) -> None:
        staged = self.writers[topic].upload([(partition, records(*sent))])
        self.files.setdefault(topic, []).extend(file.facts for file in staged)

    def send_offset(self, offset: int, generation: int | None = None) -> None:
        metadata = ConsumerGroupMetadata(
            "g", self.member.generation if generation is None else generation, self.member.member
        )
        self.session.add_offsets({IN: OffsetAndMetadata(offset)}, metadata, deadline=self.deadline)

    def commit(self) -> None:
        """The commit point, and all that follows but the last entry."""
        named = {
            topic: TopicFiles(topic_id=self.writers[topic].topic_id, files=tuple(files)) for topic, files in self.named
        }
        marker = self.session.commit(named, deadline=self.deadline)
        for topic, files in self.named:
            known = self.known_versions[topic]
            self.writers[topic].publish(files, marker, known_version=known, deadline=self.deadline)
        self.session.settle_groups(is_committed=True, deadline=self.deadline)

    @property
    def named(self) -> list[tuple[str, list[UploadedFile]]]:
        return [(topic, files) for topic, files in self.files.items() if files]

    def complete(self) -> None:
        self.session.complete(deadline=self.deadline)

    def abort(self) -> None:
        self.session.abort(deadline=self.deadline)
        for topic, files in self.named:
            self.cluster.store.delete([f"topics/{topic}/{file.path}" for file in files])
            self.writers[topic].forget(files)
        self.complete()


def contents(cluster: Cluster) -> dict[str, Any]:
    """All that is to change together."""
    return {"t": values(cluster, "t"), "u": values(cluster, "u"), "g": committed(cluster)}
