"""Another cluster, or an older state, takes the place of a prefix between what a cleanup has listed and its deletes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import pytest

from sparklog.compaction.emergency import free_removed_files
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.compaction.vacuum import vacuum_topic
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.errors import SparklogError
from sparklog.groups.membership.generations import clean_generations, generation_log
from sparklog.groups.offsets.offset_maintenance import clean_offset_log, sweep
from sparklog.groups.offsets.offset_state import offset_log
from sparklog.groups.sharing.entries import clean_share_log, open_share_log
from sparklog.log import Cluster, open_cluster
from sparklog.storage import MemoryStore
from sparklog.testing.interrupted_store import InterruptedStore
from sparklog.txn.cleaning import clean_transaction_log
from sparklog.txn.entries import open_transaction_log
from tests.replacing import (
    AT,
    GenerationWriting,
    Kept,
    OffsetWriting,
    ShareWriting,
    TopicWriting,
    TransactionWriting,
    World,
    Writer,
    kept,
    put_back,
)
from tests.support import DAY_MS

T = TypeVar("T")


def clean_topic(cluster: Cluster) -> object:
    return clean_log(cluster.topic_log("t"), retention_ms=DAY_MS)


def vacuum(cluster: Cluster) -> object:
    return vacuum_topic(cluster, "t", timeout_ms=10_000)


def emergency(cluster: Cluster) -> object:
    return free_removed_files(cluster, dry_run=False)


def clean_offsets(cluster: Cluster) -> object:
    return clean_offset_log(offset_log(cluster, "g"))


def sweep_offsets(cluster: Cluster) -> object:
    return sweep(offset_log(cluster, "g"))


def clean_id(cluster: Cluster) -> object:
    log = open_transaction_log(cluster, "tx")
    newest, _ = log.open_newest()
    assert newest is not None
    return clean_transaction_log(log, newest)


def clean_group(cluster: Cluster) -> object:
    return clean_generations(generation_log(cluster, "g"))


def clean_share_group(cluster: Cluster) -> object:
    return clean_share_log(open_share_log(cluster, "g", AT))


CLEANUPS: list[tuple[type[Writer], Callable[[Cluster], object]]] = [
    (TopicWriting, clean_topic),
    (TopicWriting, vacuum),
    (TopicWriting, emergency),
    (OffsetWriting, clean_offsets),
    (OffsetWriting, sweep_offsets),
    (TransactionWriting, clean_id),
    (GenerationWriting, clean_group),
    (ShareWriting, clean_share_group),
]


def an_old_cluster(writer: type[Writer], count: int) -> World:
    """Much that a cleanup deletes, and little that is needed: entries of long ago, and a few of now."""
    world = World()
    cluster = world.opened()
    client = writer(cluster)
    for _ in range(count):
        client.write()
    if writer is TopicWriting:
        policy = OptimizePolicy(min_files=2, growth=1.01)
        assert optimize_topic(cluster.topic_log("t"), "t", policy=policy).ranges
        write_checkpoint(cluster.topic_log("t"))
    if writer is OffsetWriting:
        write_checkpoint(offset_log(cluster, "g"))
    world.clock.advance(30 * DAY_MS)
    for _ in range(2):
        client.write()
    return world


class RecordingStore(InterruptedStore):
    """Remembers what the calls were."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.ops: list[str] = []

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self.ops.append(op)
        return super()._call(op, path, call)


def exchanged_at(world: World, clean: Callable[[Cluster], object], other: Kept, at: int) -> RecordingStore:
    """The other content is put there right before the call of this number, with the times of a copy."""
    store = RecordingStore(world.memory)
    cluster = open_cluster(store, clock=world.clock)
    store.ops.clear()
    store.interrupt(lambda: put_back(world.memory, other), at=at, after=False)
    with suppress(SparklogError):
        clean(cluster)
    return store


@pytest.mark.slow
@pytest.mark.parametrize(("writer", "clean"), CLEANUPS, ids=[clean.__name__ for _, clean in CLEANUPS])
@pytest.mark.parametrize("is_longer", [True, False])
def test_nothing_of_another_cluster_is_deleted(
    writer: type[Writer], clean: Callable[[Cluster], object], is_longer: bool
) -> None:
    """Another one that has the same names, at whichever call it comes. Between the check and the delete there is
    nothing: what comes with the delete itself can't be seen."""
    other = an_old_cluster(writer, 24 if is_longer else 12)
    backup = kept(other.memory)
    at = deletes = 0
    while True:
        world = an_old_cluster(writer, 18)
        store = exchanged_at(world, clean, backup, at)
        if len(store.ops) <= at:
            deletes = store.ops.count("delete")
            break
        left = kept(world.memory)
        if store.ops[at] not in ("delete", "put"):
            gone = backup.keys() - left.keys()
            assert not gone, f"{len(gone)} objects of another cluster are gone, exchanged before call {at}: {store.ops}"
            assert all(left[path] == data for path, data in backup.items() if not path.endswith("_last_checkpoint"))
        at += 1
    assert deletes > 3, "a cleanup that deletes nothing shows nothing"
