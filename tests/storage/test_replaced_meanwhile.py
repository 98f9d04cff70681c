"""Rule L17, ground: folders are exchanged while files are deleted, and logs opened, checkpointed and cleaned up."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparklog import Admin, Consumer, NewTopic, Producer, TopicPartition
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.log import DeltaLog
from sparklog.errors import StoreReplacedError
from sparklog.log.cluster import open_cluster
from sparklog.paths import topic_table
from sparklog.storage import LocalStore

LONG_S = 30
PATIENCE: dict[str, Any] = {"request_timeout_ms": 3_000, "delivery_timeout_ms": 6_000, "max_block_ms": 4_000}


def a_cluster(root: Path, count: int) -> None:
    Admin(str(root)).create_topics([NewTopic("t", num_partitions=1), NewTopic("u", num_partitions=1)])
    with Producer(str(root)) as producer:
        for number in range(count):
            producer.send("u", b"%s %d" % (root.name.encode(), number)).get(LONG_S)


def values(root: Path) -> list[bytes]:
    with Consumer(cluster=str(root), auto_offset_reset="earliest") as consumer:
        return read(consumer, "u")


def read(consumer: Consumer, topic: str) -> list[bytes]:
    consumer.assign([at := TopicPartition(topic, 0)])
    end, found = consumer.end_offsets([at])[at], list[bytes]()
    while consumer.position(at) < end:
        found += [record.value for record in consumer.poll(timeout_ms=500).get(at, [])]
    return found


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    a_cluster(tmp_path / "data", 3)
    a_cluster(tmp_path / "other", 7)
    return tmp_path / "data", tmp_path / "other"


def exchange(one: Path, other: Path) -> None:
    between = one.parent / "between"
    os.rename(one, between)
    os.rename(other, one)
    os.rename(between, other)


def test_a_topic_first_used_while_another_cluster_is_there_works_later(
    places: tuple[Path, Path],
) -> None:
    root, other = places
    with Producer(str(root), **PATIENCE) as producer, Consumer(cluster=str(root), group_id="g") as consumer:
        producer.send("t", b"1").get(LONG_S)
        assert read(consumer, "t") == []  # it begins at the end
        exchange(root, other)
        before = tree(root)
        with pytest.raises(StoreReplacedError, match="another cluster"):
            producer.send("u", b"refused").get(LONG_S)
        consumer.assign([TopicPartition("u", 0)])
        with pytest.raises(StoreReplacedError, match="another cluster"):
            consumer.poll(timeout_ms=500)
        assert tree(root) == before
        exchange(root, other)
        assert producer.send("u", b"after").get(LONG_S).offset == 3
    assert values(root) == [b"data 0", b"data 1", b"data 2", b"after"]


def test_a_reader_takes_no_records_from_another_cluster_for_its_own(places: tuple[Path, Path]) -> None:
    root, other = places
    with Consumer(cluster=str(root), auto_offset_reset="earliest") as consumer:
        assert read(consumer, "t") == []
        exchange(root, other)
        consumer.assign([at := TopicPartition("u", 0)])
        with pytest.raises(StoreReplacedError, match="another cluster"):
            consumer.poll(timeout_ms=500)
        exchange(root, other)
        assert read(consumer, "u") == [b"data 0", b"data 1", b"data 2"]
        assert consumer.position(at) == 3


@pytest.mark.parametrize("folder", ["", "topics", "topics/u", "topics/u/_delta_log"])
def test_files_are_deleted_in_the_folder_that_was_there_when_it_began(
    places: tuple[Path, Path], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, other = places
    store = open_cluster(str(root)).store
    store.put("topics/u/mine", b"")
    before, unlink = tree(other), os.unlink

    def unlink_and_exchange(*args: Any, **options: Any) -> None:
        monkeypatch.setattr(os, "unlink", unlink)
        unlink(*args, **options)
        exchange(root / folder, other / folder)

    monkeypatch.setattr(os, "unlink", unlink_and_exchange)
    store.delete([f"topics/u/_delta_log/{version:020d}.json" for version in range(3)])
    exchange(root / folder, other / folder)
    assert tree(other) == before
    assert not [*root.glob("topics/u/_delta_log/0000000000000000000[012].json")]


def exchanging(call: str, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``act`` done before the next call of this name to a store."""
    method = getattr(LocalStore, call)

    def changed(self: LocalStore, *args: Any, **options: Any) -> Any:
        monkeypatch.setattr(LocalStore, call, method)
        act()
        return method(self, *args, **options)

    monkeypatch.setattr(LocalStore, call, changed)


@pytest.mark.parametrize("holds", [True, False], ids=["a writer", "maintenance"])
@pytest.mark.parametrize("folder", ["topics", "topics/u", "topics/u/_delta_log"])
@pytest.mark.parametrize("is_longer", [True, False])
@pytest.mark.parametrize("call", ["sync", "create_next", "_is_at"])
def test_a_checkpoint_is_written_only_into_the_log_that_it_was_made_of(
    places: tuple[Path, Path], folder: str, holds: bool, is_longer: bool, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, other = places if not is_longer else places[::-1]
    cluster = open_cluster(str(root))
    log = DeltaLog(store=cluster.store, table=topic_table("u"), clock=cluster.clock)
    if holds:
        log.foothold.held = log.hold().held
    exchanging(call, lambda: exchange(root / folder, other / folder), monkeypatch)
    before = tree(other)
    with pytest.raises(StoreReplacedError, match="was exchanged"):
        write_checkpoint(log)
    exchange(root / folder, other / folder)
    assert tree(other) == before
    assert write_checkpoint(log) == (7 if is_longer else 3)


@pytest.mark.parametrize("folder", ["topics", "topics/u", "topics/u/_delta_log"])
def test_a_cleanup_deletes_only_from_the_log_that_it_listed(places: tuple[Path, Path], folder: str) -> None:
    root, other = places
    cluster = open_cluster(str(root))
    log = DeltaLog(store=cluster.store, table=topic_table("u"), clock=cluster.clock, tail_trust_ms=1)
    assert write_checkpoint(log) == 3
    for number, path in enumerate(sorted(root.glob("topics/u/_delta_log/*"))):
        os.utime(path, (number * 1_000, number * 1_000))
    before = tree(other)
    with pytest.raises(StoreReplacedError, match="was exchanged"):
        clean_log(log, retention_ms=1, before_delete=lambda: exchange(root / folder, other / folder))
    exchange(root / folder, other / folder)
    assert tree(other) == before
    cleaned = clean_log(log, retention_ms=1)
    assert cleaned is not None
    assert cleaned.deleted_count > 0
