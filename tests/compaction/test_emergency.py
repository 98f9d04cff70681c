"""On a full disk files go that a commit removed, and no others, without a byte or an i-node for it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from sparklog.compaction import maintain
from sparklog.compaction.emergency import free_removed_files
from sparklog.compaction.steps import Step
from sparklog.delta.actions import AddFile
from sparklog.errors import StoreFullError, StorePermissionError
from sparklog.log import Cluster, TopicFollower
from sparklog.log.data.object_paths import object_path
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic, delete_topic
from sparklog.storage import CreateResult, MemoryStore
from sparklog.testing import ManualClock, WrappedStore
from tests.compaction.support import append_each, live
from tests.support import T0_MS, a_writer, foreign_commit
from tests.txn.support import Driver, a_cluster

UNNAMED = "topics/t/partition=0/an-upload.parquet"
ANNOUNCED = "topics/t/_announced/w/announced.parquet"


class Full(WrappedStore):
    """A disk without a free byte, and without an i-node."""

    denied = "\0"

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        raise StoreFullError("no space left on device")

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        raise StoreFullError("no space left on device")

    def delete(self, paths: Iterable[str]) -> None:
        doomed = [*paths]
        for path in doomed:
            if path.startswith(self.denied):
                raise StorePermissionError(f"{path}: denied")
        super().delete(doomed)


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore(clock=ManualClock(start_ms=T0_MS))


def merged(memory: MemoryStore, *names: str) -> Cluster:
    """Topics whose nine files were merged into one, a moment ago."""
    cluster = a_cluster(memory, ManualClock(start_ms=T0_MS))
    for name in names:
        create_topic(cluster.topic_log(name), name)
        append_each(a_writer(cluster.topic_log(name), topic=name), *map(str, range(9)))
    maintain(cluster, names, steps=[Step.OPTIMIZE])
    return cluster


def full(memory: MemoryStore) -> tuple[Cluster, Full]:
    store = Full(memory)
    return a_cluster(store, ManualClock(start_ms=T0_MS)), store


def files(memory: MemoryStore, topic: str) -> set[str]:
    return {one.path for one in memory.list(f"topics/{topic}/") if one.path.endswith(".parquet")}


def test_files_that_a_commit_removed_go_however_short_ago_and_no_others(memory: MemoryStore) -> None:
    cluster = merged(memory, "t")
    for path in (UNNAMED, ANNOUNCED):
        memory.put(path, b"of a writer that is under way")
    driver = Driver(cluster, "tx", topics=("t",)).init()
    driver.begin()
    driver.send("t", "decided")
    before, living = files(memory, "t"), live(cluster.topic_log("t"))
    here, _ = full(memory)
    [planned] = free_removed_files(here)
    assert files(memory, "t") == before
    [done] = free_removed_files(here, dry_run=False)
    gone = before - files(memory, "t")
    assert planned == done
    assert (done.file_count, done.error, len(gone)) == (8, None, 8)
    assert done.size_bytes > 0
    assert {UNNAMED, ANNOUNCED} <= files(memory, "t")
    assert len(live(cluster.topic_log("t"))) == len(living)
    driver.commit()
    follower = TopicFollower(cluster.topic_log("t"), "t")
    follower.poll()
    values = follower.read(0, 0)["value"].to_pylist()
    assert values == [*(str(number).encode() for number in range(9)), b"decided"]
    assert free_removed_files(here) == []


def test_a_file_that_was_added_again_lives(memory: MemoryStore) -> None:
    """As another engine's RESTORE does."""
    cluster = merged(memory, "t")
    log = cluster.topic_log("t")
    [again], merged_into = (
        [action for action in entry.actions if isinstance(action, AddFile)]
        for version in (1, load_state(log).position.version)
        if (entry := log.read_entry(version)) is not None
    )
    assert all(one.path != again.path for one in merged_into)
    foreign_commit(log, again, places=True)
    removed = object_path(log.table, again.path)
    here, _ = full(memory)
    free_removed_files(here, dry_run=False)
    assert removed in files(memory, "t")
    assert len(files(memory, "t")) == len(merged_into) + 1 + 1  # and the one that was too young to be merged


def test_one_topic_that_fails_hinders_no_other_and_deleted_topics_are_among_them(memory: MemoryStore) -> None:
    cluster = merged(memory, "a", "b", "c", "d")
    memory.put("topics/a/_delta_log/00000000000000000003.json", b"{torn")
    delete_topic(cluster.topic_log("d"), "d")
    here, store = full(memory)
    store.denied = "topics/b/"
    found = free_removed_files(here, dry_run=False)
    assert [(one.topic, one.file_count, one.error is None) for one in found] == [
        ("a", 0, False),
        ("b", 0, False),
        ("c", 8, True),
        ("d", 10, True),
    ]
