"""Files that nobody needs are found by listings that are spread over time."""

from __future__ import annotations

import pytest

from sparklog.errors import StorePermissionError
from sparklog.observe import ClusterWatch, loading_room
from sparklog.observe.loading_room import LoadingRoom
from sparklog.observe.orphan_watch import OrphanWatch, share_of
from sparklog.txn.orphans import ORPHAN_AGE_MS
from tests.observe.support import Watched, watched

HOUR_MS = 3_600_000


@pytest.fixture
def here() -> Watched:
    """Three topics; files that nobody ever committed in two of them, old ones and a young one."""
    here = watched()
    for name in "abc":
        here.append(here.topic(name), "x")
    here.memory.put("topics/a/partition=0/left.parquet", b"12345")
    here.memory.put("topics/c/partition=0/left.parquet", b"1")
    here.memory.put("topics/c/partition=0/more.parquet", b"22")
    here.clock.advance(ORPHAN_AGE_MS + 1)
    here.memory.put("topics/b/partition=0/young.parquet", b"1")
    return here


def orphans(watch: ClusterWatch) -> dict[str, tuple[int, int]]:
    return {one.topic: (one.file_count, one.size_bytes) for one in watch.look().orphans}


def test_nothing_is_searched_unless_it_is_asked_for(here: Watched) -> None:
    assert orphans(ClusterWatch(here.cluster)) == {}


def test_all_are_searched_at_once_where_that_is_asked_for(here: Watched) -> None:
    watch = ClusterWatch(here.cluster, orphans_every_ms=0)
    assert orphans(watch) == {"a": (1, 5), "b": (0, 0), "c": (2, 3)}
    here.memory.delete(["topics/a/partition=0/left.parquet"])
    assert orphans(watch)["a"] == (0, 0)


def test_each_topic_is_searched_once_in_the_time_and_not_all_in_one_look(here: Watched) -> None:
    watch = ClusterWatch(here.cluster, orphans_every_ms=3 * HOUR_MS)
    found = []
    for _ in range(3):
        found.append(sorted(orphans(watch)))
        here.clock.advance(HOUR_MS)
    assert found == [["a"], ["a", "b"], ["a", "b", "c"]]
    here.memory.delete(["topics/a/partition=0/left.parquet"])
    assert orphans(watch)["a"] == (0, 0)  # a's turn came again


def test_a_topic_that_cannot_be_searched_hides_no_other(here: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ClusterWatch(here.cluster, orphans_every_ms=0)
    assert len(orphans(watch)) == 3

    def refuse(cluster: object, name: str, **options: object) -> list[object]:
        if name == "b":
            raise StorePermissionError("forbidden")
        return []

    monkeypatch.setattr("sparklog.observe.orphan_watch.find_orphans", refuse)
    assert orphans(watch) == {"a": (0, 0), "b": (0, 0), "c": (0, 0)}  # b's as it was known


def test_a_topic_that_is_gone_is_told_of_no_more(here: Watched) -> None:
    watch = ClusterWatch(here.cluster, orphans_every_ms=0)
    assert len(orphans(watch)) == 3
    here.memory.delete([found.path for found in here.memory.list("topics/a/")])
    assert sorted(orphans(watch)) == ["b", "c"]


def test_those_that_waited_longest_come_first() -> None:
    names = [*"abcdefgh"]
    searched = {"a": 0.0, "b": 5.0, "c": 9.0, "d": 1.0}
    assert share_of(names, searched, 10.0, elapsed_ms=5.0, every_ms=10.0) == ["e", "f", "g", "h"]
    assert share_of([*"abcd"], searched, 10.0, elapsed_ms=0.0, every_ms=5.0) == ["a"]
    assert share_of([*"abcd"], searched, 10.0, elapsed_ms=9e9, every_ms=5.0) == ["a", "d", "b"]
    assert share_of([], {}, 10.0, elapsed_ms=1.0, every_ms=5.0) == []


def test_topics_are_searched_side_by_side_as_far_as_there_is_room_for_them(
    here: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, most = set[object](), list[int]()

    class Small(LoadingRoom):
        def enter(self, load: object, need_bytes: int) -> None:
            assert need_bytes > 0
            super().enter(load, need_bytes)
            inside.add(load)
            most.append(len(inside))

        def leave(self, load: object) -> None:
            inside.discard(load)
            super().leave(load)

    monkeypatch.setattr(loading_room, "ROOM", Small(room_bytes=1))
    watch = OrphanWatch(here.cluster, every_ms=0, at_once=3)
    assert [one.file_count for one in watch.look("abc")] == [1, 0, 2]
    assert len(most) >= 3
    assert max(most) == 1
    assert not inside
