"""Rule L17, ground: what members of groups say, and what is kept, once the folder under them was replaced."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparklog import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, ShareConsumer, TopicPartition
from sparklog.errors import SparklogError, StoreReplacedError

LONG_S = 30
GROUP: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "session_timeout_ms": 1_500,
    "heartbeat_interval_ms": 300,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    Admin(str(root)).create_topics([NewTopic("t", num_partitions=1)])
    send(root, 3)
    return root


def send(root: Path, count: int) -> None:
    with Producer(str(root)) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number).get(LONG_S)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def read(consumer: Any, count: int) -> None:
    found = 0
    end = time.monotonic() + LONG_S
    while found < count and time.monotonic() < end:
        try:
            found += sum(map(len, consumer.poll(timeout_ms=200).values()))
        except StoreReplacedError:  # of a moment ago
            continue
    assert found == count


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["", "groups", "groups/g", "groups/g/offsets", "groups/g/generations"])
@pytest.mark.parametrize("is_long", [False, True], ids=["for a moment", "for longer than the session"])
def test_a_member_goes_on_where_it_was_once_its_groups_folder_is_back(root: Path, folder: str, is_long: bool) -> None:
    with Consumer("t", cluster=str(root), **GROUP) as consumer:
        read(consumer, 3)
        consumer.commit()
        away = root.parent / "away"
        os.rename(root / folder, away)
        end = time.monotonic() + (4 if is_long else 0.5)
        errors: list[SparklogError] = []
        while time.monotonic() < end:
            try:
                consumer.poll(timeout_ms=100)
                consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(3)})
            except SparklogError as error:
                errors.append(error)
            assert not (root / folder).exists()
        if folder != "groups/g/generations":
            assert any(isinstance(error, StoreReplacedError) for error in errors)
        os.rename(away, root / folder)
        send(root, 2)
        read(consumer, 2)
        consumer.commit()
    with Consumer("t", cluster=str(root), **GROUP) as other:
        until(lambda: bool(other.poll(timeout_ms=100)) or bool(other.assignment()))
        committed = other.committed(TopicPartition("t", 0))
        assert committed == 5


@pytest.mark.slow
def test_a_member_doesnt_join_a_group_of_another_cluster_in_the_same_place(root: Path) -> None:
    consumer = Consumer("t", cluster=str(root), **GROUP)
    read(consumer, 3)
    consumer.commit()
    shutil.rmtree(root)
    Admin(str(root)).create_topics([NewTopic("t", num_partitions=1)])
    send(root, 4)
    with pytest.raises(StoreReplacedError):
        consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(1)})
    with Consumer("t", cluster=str(root), **GROUP) as new:
        read(new, 4)
        new.commit()
        with pytest.raises(SparklogError):
            consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(1)})
        members = {path.parent.name for path in (root / "groups/g/members").rglob("*") if path.is_file()}
        assert len(members) == 1
    try:
        consumer.close(timeout_ms=2_000)
    except SparklogError:
        return


def use(consumer: ShareConsumer) -> None:
    for _ in range(20):
        consumer.poll(timeout_ms=200)
        consumer.commit_sync()


@pytest.mark.slow
def test_a_share_groups_member_goes_on_once_its_folder_is_back(root: Path) -> None:
    for folder in ("share-groups/s", "share-groups/s/partitions/t/0"):
        with ShareConsumer("t", cluster=str(root), group_id="s", share_auto_offset_reset="earliest") as consumer:
            send(root, 1)
            until(lambda: bool(consumer.poll(timeout_ms=200)))
            away = root.parent / "away"
            consumer.commit_sync()
            send(root, 1)
            os.rename(root / folder, away)
            with pytest.raises(StoreReplacedError):
                use(consumer)
            assert not (root / folder).exists()
            os.rename(away, root / folder)
            end = time.monotonic() + LONG_S
            while time.monotonic() < end:
                try:
                    if consumer.poll(timeout_ms=200):
                        break
                except StoreReplacedError:
                    continue
            consumer.commit_sync()
