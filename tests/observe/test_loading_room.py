"""Topics are loaded side by side as far as there is memory for them."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.errors import StoreUnavailableError
from sparklog.observe import loading_room
from sparklog.observe.loading_room import LoadingRoom, has_room, needed_bytes
from sparklog.observe.topic_watch import TopicWatch
from tests.observe.support import watched


class Told(LoadingRoom):
    """Keeps who came and went."""

    def __init__(self) -> None:
        super().__init__()
        self.entered: list[int] = []

    def enter(self, load: object, need_bytes: int) -> None:
        self.entered.append(need_bytes)
        super().enter(load, need_bytes)

    @property
    def inside_count(self) -> int:
        return len(self._loads)


def test_loads_go_in_order_as_far_as_there_is_room() -> None:
    loads = [("a", 60), ("b", 40), ("c", 1), ("d", 0)]
    assert [has_room(loads, one, 100) for one, _ in loads] == [True, True, False, False]
    assert [has_room(loads[1:], one, 100) for one, _ in loads[1:]] == [True, True, True]
    assert has_room([("whole", 1_000), ("next", 1)], "whole", 100)
    assert not has_room([("whole", 1_000), ("next", 1)], "next", 100)


def test_small_topics_are_loaded_together_and_few_large_ones() -> None:
    """By the sizes measured of a topic of 10 files with some entries, and of one of 10,000 files."""
    assert 128 * needed_bytes(16_100, 20_000) < 128 * 2**20
    assert 2 <= 128 * 2**20 // needed_bytes(229_919, 1_136) <= 8


def test_who_waits_goes_on_when_another_has_ended() -> None:
    room, done = LoadingRoom(100), []
    room.enter("a", 80)
    room.enter("b", 20)

    def load() -> None:
        room.enter("c", 50)
        done.append("c")

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    room.leave("b")
    assert done == []  # with "a" there would be 130
    room.leave("a")
    thread.join(60)
    assert done == ["c"]


@pytest.mark.parametrize(("need_bytes", "is_given_back"), [(2**20, True), (2**20 - 1, False)])
def test_memory_that_arrow_keeps_after_a_large_load_goes_back_to_the_system(
    monkeypatch: pytest.MonkeyPatch, need_bytes: int, is_given_back: bool
) -> None:
    told: list[str] = []

    class Pool:
        def release_unused(self) -> None:
            told.append("released")

    monkeypatch.setattr(loading_room, "pa", SimpleNamespace(default_memory_pool=Pool))
    monkeypatch.setattr(loading_room, "is_arrow_loaded", lambda: True)
    room = LoadingRoom()
    room.enter("a", need_bytes)
    room.leave("a")
    room.leave("a")
    assert told == ["released"] * is_given_back


@pytest.mark.parametrize("is_away", [False, True])
def test_a_topic_is_loaded_in_the_room_and_leaves_it_whatever_happens(
    monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    here = watched()
    writer, log = here.topic("t"), here.cluster.topic_log("t")
    for value in "abc":
        here.append(writer, value)
    write_checkpoint(log)
    here.append(writer, "d")
    room = Told()
    monkeypatch.setattr(loading_room, "ROOM", room)
    listed = list(here.memory.list(f"{log.table}/_delta_log/"))
    parts = sum(one.size_bytes for one in listed if ".checkpoint." in one.path)
    entries = sum(one.size_bytes for one in listed if one.path in (log.path_of(3), log.path_of(4)))
    if is_away:

        def enter(load: object, need_bytes: int) -> None:
            Told.enter(room, load, need_bytes)
            here.failing.is_away = True

        monkeypatch.setattr(room, "enter", enter)
        with pytest.raises(StoreUnavailableError):
            TopicWatch(here.cluster, "t")
    else:
        assert TopicWatch(here.cluster, "t").figures.record_count == 4
    assert room.entered == [needed_bytes(parts, entries)]
    assert room.inside_count == 0
