"""Calls about 200 topics, on a store that takes 20 ms a request, 32 at once: simulated milliseconds, and requests."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from sparklog.admin import LATEST, Admin
from sparklog.errors import GroupIdNotFoundError, StorePermissionError, TopicAlreadyExistsError
from sparklog.groups.admin.resets import Kind, ResetTo
from sparklog.kafka.admin.requests import each as each_of_kafkas
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.storage import CreateResult, MemoryStore
from sparklog.testing import WrappedStore
from tests.consumer.support import a_cluster, send, with_topic
from tests.overlapping import OverlappingClock, SlowStore, copy_topic, overlapping
from tests.support import T0_MS

TOPICS = [f"t{number:03}" for number in range(200)]
PARTITIONS = [TopicPartition(topic, 0) for topic in TOPICS]
WAVE = 7
"""How many times 32 calls it takes to make 200."""


class Place(NamedTuple):
    admin: Admin
    store: SlowStore
    clock: OverlappingClock

    def took(self, call: Callable[[], object]) -> float:
        """Simulated milliseconds."""
        self.store.reset()
        began = self.clock.now
        call()
        return self.clock.now - began


@pytest.fixture
def place() -> Iterator[Place]:
    with overlapping() as clock:
        memory = MemoryStore(clock=clock)
        with_topic(a_cluster(memory, clock), "abc", topic="a-template")
        copy_topic(memory, "a-template", TOPICS)
        store = SlowStore(memory, clock, latency_ms=20.0)
        yield Place(Admin(a_cluster(store, clock)), store, clock)


def test_topics_are_created_and_deleted_side_by_side(place):
    new = [f"n{number:03}" for number in range(64)]
    assert place.took(lambda: place.admin.create_topics(new)) == 2 * 3 * 20
    assert place.store.counts() == {"get": 64, "list": 64, "create": 64}
    assert place.took(lambda: place.admin.delete_topics(new)) <= 2 * 8 * 20
    assert place.took(lambda: place.admin.create_topics(["n000", "x"], validate_only=True)) <= 3 * 20
    with pytest.raises(TopicAlreadyExistsError, match=r"^topic 't000' already exists \(done: x; also failed: t001\)$"):
        place.admin.create_topics(["t000", "x", "t001"])


@pytest.mark.slow
def test_topics_are_listed_described_and_their_offsets_listed_side_by_side(place):
    admin = place.admin
    assert place.took(admin.list_topics) == 20 + WAVE * 3 * 20
    assert place.took(lambda: admin.end_offsets(PARTITIONS)) == WAVE * 3 * 20
    assert place.took(lambda: admin.describe_topics(TOPICS[:64])) == 2 * 3 * 20
    assert place.took(lambda: admin.describe_configs(TOPICS[:64])) == 2 * 3 * 20
    assert place.took(lambda: admin.list_offsets(dict.fromkeys(PARTITIONS[:64], LATEST))) == 2 * 3 * 20
    assert place.took(lambda: admin.list_offsets(dict.fromkeys(PARTITIONS[:64], T0_MS + 1))) == 2 * 5 * 20


def test_a_reset_by_time_is_five_requests_a_topic_and_a_file_for_each_partition(place):
    admin = place.admin
    with pytest.raises(GroupIdNotFoundError):
        admin.reset_group_offsets("g", ResetTo("time", T0_MS + 1), dry_run=True)
    plans = {}

    def reset(kind: Kind, number: int) -> None:
        plans[kind] = admin.reset_group_offsets("g", ResetTo(kind, number), PARTITIONS[:64], dry_run=True)

    place.took(lambda: admin.describe_groups(["g"]))
    of_group = sum(place.store.counts().values())
    assert place.took(lambda: reset("time", T0_MS + 1)) < 500
    assert sum(place.store.counts().values()) == of_group + 64 * (5 + 1)
    place.took(lambda: reset("latest", 0))
    assert sum(place.store.counts().values()) == of_group + 64 * 3
    assert {one.new_offset for one in plans["time"]} == {1}
    assert {one.new_offset for one in plans["latest"]} == {3}


def test_files_of_many_partitions_are_read_together_for_their_times():
    with overlapping() as clock:
        memory = MemoryStore(clock=clock)
        cluster = with_topic(a_cluster(memory, clock), partitions=12)
        for partition in range(12):
            send(cluster, "abc", partition=partition)
        admin = Admin(a_cluster(SlowStore(memory, clock, latency_ms=20.0), clock))
        began = clock.now
        found = admin.list_offsets({TopicPartition("t", partition): T0_MS + 2 for partition in range(12)})
        assert {offset.offset for offset in found.values()} == {2}
        assert clock.now - began == 5 * 20  # the hint, a listing, the entries, another listing, the files


def test_topics_that_have_not_begun_when_the_store_fails_are_not_tried(place):
    names = [f"n{number:02}" for number in range(40)]

    class Broken(WrappedStore):
        def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
            raise StorePermissionError(f"create {path}: forbidden")

    admin = Admin(a_cluster(Broken(place.store), place.clock))
    with pytest.raises(StorePermissionError, match=r"create topics/n00/.*: forbidden \(not tried: n01, n02, .*, n39\)"):
        admin.create_topics(names)


def test_groups_are_deleted_side_by_side(place):
    groups = [f"g{number}" for number in range(10)]
    for group in groups:
        place.admin.alter_group_offsets(group, {PARTITIONS[0]: OffsetAndMetadata(1)})
    alone = place.took(lambda: place.admin.delete_groups(groups[:1]))
    assert place.took(lambda: place.admin.delete_groups(groups[1:])) < 2 * alone


def test_kafkas_admin_client_asks_for_each_by_itself_side_by_side(place):
    def describe(topic: str) -> object:
        return place.admin.describe_topics([topic])

    assert place.took(lambda: each_of_kafkas(TOPICS[:64], describe)) == 2 * 3 * 20
    assert place.took(lambda: each_of_kafkas(TOPICS[:5], describe, at_once=1)) == 5 * 3 * 20
