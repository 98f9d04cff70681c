"""Rule L17, ground: what producers say, and where records are, once the folder under them was replaced."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparklog import Admin, Consumer, NewTopic, Producer, TopicPartition
from sparklog.errors import SparklogError, StoreReplacedError

PATIENCE: dict[str, Any] = {"request_timeout_ms": 3_000, "delivery_timeout_ms": 6_000, "max_block_ms": 4_000}
LONG_S = 30


def a_cluster(root: Path, count: int = 0) -> list[bytes]:
    Admin(str(root)).create_topics([NewTopic("t", num_partitions=1)])
    sent = [b"%s %d" % (root.name.encode(), number) for number in range(count)]
    with Producer(str(root)) as producer:
        for value in sent:
            producer.send("t", value).get(LONG_S)
    return sent


def values(root: Path) -> list[bytes]:
    with Consumer(cluster=str(root), auto_offset_reset="earliest") as consumer:
        consumer.assign([at := TopicPartition("t", 0)])
        end, found = consumer.end_offsets([at])[at], list[bytes]()
        while consumer.position(at) < end:
            found += [record.value for record in consumer.poll(timeout_ms=500).get(at, [])]
        return found


def tree(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*")) if root.exists() else []


def refused(producer: Producer, topic: str = "t") -> None:
    for _ in range(3):
        with pytest.raises(StoreReplacedError):
            producer.send(topic, b"refused").get(LONG_S)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(params=[1, "all"])
def producer(request: pytest.FixtureRequest, root: Path) -> Iterator[Producer]:
    a_cluster(root)
    producer = Producer(str(root), acks=request.param, **PATIENCE)
    for number in range(3):
        producer.send("t", b"before %d" % number).get(LONG_S)
    yield producer
    producer.close(timeout=10)


BEFORE = [b"before 0", b"before 1", b"before 2"]


@pytest.mark.parametrize("folder", ["", "topics", "topics/t", "topics/t/_delta_log"])
def test_a_producer_whose_folder_is_gone_fails_and_goes_on_once_it_is_back(
    producer: Producer, root: Path, folder: str
) -> None:
    away = root.parent / "away"
    os.rename(root / folder, away)
    refused(producer)
    assert not (root / folder).exists()
    os.rename(away, root / folder)
    assert producer.send("t", b"after").get(LONG_S).offset == 3
    assert values(root) == [*BEFORE, b"after"]


@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_producer_writes_nothing_into_another_cluster_in_the_same_place(
    producer: Producer, root: Path, count: int
) -> None:
    away = root.parent / "away"
    os.rename(root, away)
    sent = a_cluster(root, count)
    before = tree(root)
    refused(producer)
    assert tree(root) == before
    assert values(root) == sent
    with Producer(str(root)) as new:
        assert new.send("t", b"new").get(LONG_S).offset == count
    os.rename(root, root.parent / "other")
    os.rename(away, root)
    assert producer.send("t", b"after").get(LONG_S).offset == 3
    assert values(root) == [*BEFORE, b"after"]
    assert values(root.parent / "other") == [*sent, b"new"]


@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_producer_writes_nothing_into_a_topic_that_was_made_anew(producer: Producer, root: Path, count: int) -> None:
    shutil.rmtree(root / "topics" / "t")
    sent = a_cluster(root, count)
    refused(producer)
    assert values(root) == sent


@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_producer_whose_root_is_a_link_stays_where_it_was_opened(tmp_path: Path, count: int) -> None:
    blue = a_cluster(tmp_path / "blue", 3)
    green = a_cluster(tmp_path / "green", count)
    os.symlink("blue", tmp_path / "current")
    with Producer(str(tmp_path / "current"), **PATIENCE) as producer:
        producer.send("t", b"1").get(LONG_S)
        os.symlink("green", tmp_path / "new")
        os.rename(tmp_path / "new", tmp_path / "current")
        assert producer.send("t", b"2").get(LONG_S).offset == 4
    assert values(tmp_path / "blue") == [*blue, b"1", b"2"]
    assert values(tmp_path / "green") == green


def send_and_commit(producer: Producer, value: bytes) -> None:
    producer.send("t", value)
    producer.commit_transaction()


def test_a_transaction_whose_folder_is_gone_fails_and_the_next_goes_on(root: Path) -> None:
    a_cluster(root)
    with Producer(str(root), transactional_id="x", **PATIENCE) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        send_and_commit(producer, b"1")
        for folder in ("transactions/x", "transactions", ""):
            os.rename(root / folder, root.parent / "away")
            producer.begin_transaction()
            with pytest.raises(SparklogError, match="is gone"):  # what wraps it says why
                send_and_commit(producer, b"gone")
            assert not (root / folder).exists()
            os.rename(root.parent / "away", root / folder)
            producer.abort_transaction()
        producer.begin_transaction()
        send_and_commit(producer, b"2")
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 1_000}
    with Consumer("t", cluster=str(root), isolation_level="read_committed", **settings) as consumer:
        assert [record.value for record in consumer] == [b"1", b"2"]


@pytest.mark.slow
def test_it_is_the_same_without_the_native_core(tmp_path: Path) -> None:
    chosen = "gone_fails or another_cluster or link_stays"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", chosen, __file__]
    command += [f"--basetemp={tmp_path / 'pure'}"]
    done = subprocess.run(
        command, env={**os.environ, "SPARKLOG_PURE": "1"}, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-3_000:]
