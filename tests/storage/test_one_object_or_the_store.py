"""An error of one object hinders no other; one of the store ends what goes over many objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from sparklog.errors import (
    CommitStateUnknownError,
    CorruptLogError,
    KafkaTimeoutError,
    ObjectNotFoundError,
    SparklogError,
    StoreError,
    StoreFullError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreReplacedError,
    StoreUnavailableError,
    UnknownTopicOrPartitionError,
    UnsafeStoreError,
)
from sparklog.log import Cluster, open_cluster
from sparklog.paths import CLUSTER_FILE
from sparklog.storage import MemoryStore
from sparklog.storage.blame import StoreJudge, may_be_of_store
from sparklog.storage.each_alone import each_alone, list_each_folder, read_each
from sparklog.testing import ManualClock, WrappedStore

T = TypeVar("T")


class SickStore(WrappedStore):
    """A store in which calls fail that concern some paths, and which may be away altogether."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.sick: dict[str, type[StoreError]] = {}
        self.asked: list[str] = []

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self.asked.append(path)
        for prefix, error in self.sick.items():
            if path.startswith(prefix):
                raise error(f"{op} {path}: failed")
        return call()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sick(clock: ManualClock) -> SickStore:
    return SickStore(MemoryStore(clock=clock))


@pytest.fixture
def cluster(sick: SickStore, clock: ManualClock) -> Cluster:
    opened = open_cluster(sick, clock=clock)
    for name in "abc":
        opened.store.put(f"x/{name}/1", name.encode())
    sick.asked.clear()
    return opened


@pytest.mark.parametrize(
    ("error", "may_be"),
    [
        (CorruptLogError, False),
        (ObjectNotFoundError, False),
        (UnknownTopicOrPartitionError, False),
        (RecursionError, False),
        (StorePermissionError, True),
        (StoreUnavailableError, True),
        (StoreOutcomeUnknownError, True),
        (StoreFullError, True),
        (StoreReplacedError, True),
        (StoreError, True),
        (KafkaTimeoutError, True),
        (CommitStateUnknownError, True),
        (UnsafeStoreError, True),
    ],
)
def test_what_an_error_tells_by_itself(error: type[Exception], may_be: bool) -> None:
    assert may_be_of_store(error("x")) is may_be


def test_one_look_counts_for_all_errors_of_a_second(clock: ManualClock) -> None:
    looks: list[int] = []
    judge = StoreJudge(lambda: looks.append(1), clock)
    for _ in range(1_000):
        judge.check(StorePermissionError("refused"))
    assert len(looks) == 1
    clock.advance(1_001)
    judge.check(StorePermissionError("refused"))
    assert len(looks) == 2


def test_the_stores_error_is_raised_from_that_of_the_object(clock: ManualClock) -> None:
    def look() -> None:
        raise StoreUnavailableError("get cluster.json: 503")

    seen = StoreUnavailableError("get topics/a: 503")
    with pytest.raises(StoreUnavailableError, match=r"cluster.json") as caught:
        StoreJudge(look, clock).check(seen)
    assert caught.value.__cause__ is seen


@pytest.mark.parametrize("error", [StorePermissionError, StoreUnavailableError, StoreOutcomeUnknownError, StoreError])
def test_one_of_many_fails_alone(cluster: Cluster, sick: SickStore, error: type[StoreError]) -> None:
    sick.sick = {"x/b": error}
    found = each_alone(cluster.store, lambda name: cluster.store.read(f"x/{name}/1"), "abc")
    assert (found[0], type(found[1]), found[2]) == (b"a", error, b"c")
    together = read_each(cluster.store, ["x/a/1", "x/b/1", "x/nothing", "x/c/1"])
    assert [type(one) if isinstance(one, Exception) else one for one in together] == [b"a", error, None, b"c"]


def test_folders_are_listed_one_by_one_where_one_refuses_the_listing_of_all(cluster: Cluster, sick: SickStore) -> None:
    errors: dict[str, Exception] = {}
    assert [one.path for one in list_each_folder(cluster.store, "x/", errors)] == ["x/a/1", "x/b/1", "x/c/1"]
    assert (sick.asked, errors) == (["x/"], {})
    walk = sick.list

    def refusing(prefix: str, *, after: str = "") -> object:  # as a folder does, which is walked
        if prefix in ("x/", "x/b/"):
            raise StorePermissionError("x/b: EACCES")
        return walk(prefix, after=after)

    sick.list = refusing  # type: ignore[method-assign, assignment]
    assert [one.path for one in list_each_folder(cluster.store, "x/", errors)] == ["x/a/1", "x/c/1"]
    assert {name: str(error) for name, error in errors.items()} == {"b": "x/b: EACCES"}


@pytest.mark.parametrize("error", [StorePermissionError, StoreUnavailableError])
def test_where_the_cluster_cannot_be_read_either_nothing_more_is_tried(
    cluster: Cluster, sick: SickStore, clock: ManualClock, error: type[StoreError]
) -> None:
    sick.sick = {"": error}
    began = clock.ticks_ms()
    with pytest.raises(error, match=CLUSTER_FILE):
        each_alone(cluster.store, lambda number: cluster.store.read(f"x/{number}"), range(10_000), at_once=4)
    assert len({path for path in sick.asked if path != CLUSTER_FILE}) <= 8
    assert sick.asked.count(CLUSTER_FILE) <= 3
    assert clock.ticks_ms() - began < 60_000


def test_a_cluster_that_is_gone_is_no_objects_fault(cluster: Cluster, sick: SickStore) -> None:
    sick.sick = {"x/b": StorePermissionError}
    cluster.store.delete([CLUSTER_FILE])
    with pytest.raises(StoreReplacedError):
        each_alone(cluster.store, lambda name: cluster.store.read(f"x/{name}/1"), "abc")


def test_a_short_outage_of_the_cluster_file_is_none(cluster: Cluster, sick: SickStore) -> None:
    """Three attempts are made before the store counts as away."""
    sick.sick = {"x/b": StorePermissionError, CLUSTER_FILE: StoreUnavailableError}
    asked = sick.asked

    class Counting(list[str]):
        def append(self, path: str) -> None:
            super().append(path)
            if self.count(CLUSTER_FILE) == 3:
                sick.sick.pop(CLUSTER_FILE, None)

    sick.asked = Counting(asked)
    found = each_alone(cluster.store, lambda name: cluster.store.read(f"x/{name}/1"), "abc", at_once=1)
    assert isinstance(found[1], StorePermissionError)


def test_a_defect_is_of_one_object_as_well(cluster: Cluster) -> None:
    def call(name: str) -> str:
        if name == "b":
            raise RecursionError("deep")
        return name

    found = each_alone(cluster.store, call, "abc")
    assert [found[0], repr(found[1]), found[2]] == ["a", "RecursionError('deep')", "c"]
    assert not isinstance(found[1], SparklogError)
