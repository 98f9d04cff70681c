"""Keys that are too long for the store are refused where they would be needed; group commit's names go first."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from sparklog import Admin, Consumer, NewTopic, Producer, ShareConsumer
from sparklog.errors import InvalidArgumentError, InvalidTopicError
from sparklog.log import Cluster, open_cluster
from sparklog.storage import GcsStore, MemoryStore, S3Store
from sparklog.storage.base import CreateResult
from sparklog.testing import WrappedStore


class ShortStore(WrappedStore):
    """A bucket whose keys may have 1,024 bytes, below a prefix of some."""

    def __init__(self, prefix_bytes: int) -> None:
        super().__init__(MemoryStore())
        self.room = 1024 - prefix_bytes
        self.longest = 0

    @property
    def longest_path_bytes(self) -> int:
        return self.room

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self._note(path)
        super().put(path, data, sync=sync)

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        self._note(path)
        return super().create(path, data, sync=sync)

    def _note(self, path: str) -> None:
        assert len(path) <= self.room, path
        self.longest = max(self.longest, len(path))


def opened(prefix_bytes: int) -> tuple[ShortStore, Cluster]:
    store = ShortStore(prefix_bytes)
    return store, open_cluster(store)


def test_a_bucket_leaves_what_its_prefix_does_not_take():
    assert S3Store("s3://bucket/ab/c").longest_path_bytes == 1024 - 5
    assert GcsStore("gs://bucket/ä").longest_path_bytes == 1024 - 3
    assert MemoryStore().longest_path_bytes is None


@pytest.mark.parametrize("prefix_bytes", [700, 780, 860, 900])
def test_what_a_long_prefix_lets_be_opened_works(prefix_bytes):
    store, cluster = opened(prefix_bytes)
    Admin(cluster).create_topics([NewTopic("t", num_partitions=2)])
    for number in range(2):
        with Producer(cluster, linger_ms=0) as producer:
            for at in range(3):
                producer.send("t", value=b"%d" % at, partition=at % 2).get(10)
        try:
            consumer = Consumer(
                "t",
                cluster=cluster,
                group_id="g",
                client_id="c",
                auto_offset_reset="earliest",
                heartbeat_interval_ms=50,
            )
        except InvalidArgumentError:
            continue
        with consumer:
            while number == 0 and not consumer.poll(timeout_ms=500):
                pass
            consumer.commit()
    assert store.longest <= store.room


@pytest.mark.parametrize(("prefix_bytes", "is_on"), [(500, True), (860, False)])
def test_group_commit_is_off_where_its_names_do_not_fit(caplog, prefix_bytes, is_on):
    _, cluster = opened(prefix_bytes)
    Admin(cluster).create_topics(["t"])
    with caplog.at_level(logging.WARNING), Producer(cluster, group_commit=True) as producer:
        producer.send("t", value=b"x").get(10)
    assert ("group commit is off" in caplog.text) is not is_on


def test_a_long_topic_name_counts_as_a_long_prefix_does(caplog):
    _, cluster = opened(630)
    Admin(cluster).create_topics(["t" * 249])
    with caplog.at_level(logging.WARNING), Producer(cluster, group_commit=True) as producer:
        producer.send("t" * 249, value=b"x").get(10)
    assert "group commit is off" in caplog.text


def test_a_root_that_leaves_no_room_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"can need keys of .* take a shorter prefix"):
        opened(970)


def test_a_topic_that_does_not_fit_is_refused():
    _, cluster = opened(800)
    with pytest.raises(InvalidTopicError, match=r"topic 't{249}' can need keys of"):
        Admin(cluster).create_topics(["t" * 249])


OPENINGS: dict[str, Callable[[Cluster], object]] = {
    "group": lambda cluster: Consumer("t", cluster=cluster, group_id="g" * 150),
    "transactional id": lambda cluster: Producer(cluster, transactional_id="x" * 150),
    "share group": lambda cluster: ShareConsumer("t", cluster=cluster, group_id="g" * 150),
}


@pytest.mark.parametrize("what", OPENINGS)
def test_a_name_that_does_not_fit_is_refused(what):
    _, cluster = opened(850)
    with pytest.raises(InvalidArgumentError, match=f"{what} .* can need keys of"):
        OPENINGS[what](cluster)
