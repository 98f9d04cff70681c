"""A name that is taken although nothing can be read there ends a create with an error that names it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog import Admin, NewTopic, Producer
from sparklog.delta.names import entry_path
from sparklog.errors import StoreError
from sparklog.log import create_topic, open_cluster
from sparklog.storage import CreateResult, MemoryStore
from sparklog.storage.blocked_name import MOST_RELOADS
from sparklog.testing import ManualClock, WrappedStore
from tests.support import a_writer, append

ENTRY = entry_path("topics/t", 1)


class Blocked(WrappedStore):
    """A store in which creates of a name are told that it is taken, ``times`` times; nothing can be read there."""

    def __init__(self, times: int) -> None:
        super().__init__(MemoryStore())
        self.times = times
        self.met = 0

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        if path == ENTRY and self.met < self.times:
            self.met += 1
            return CreateResult.EXISTS
        return super().create(path, data, sync=sync)


def writing(store: Blocked) -> tuple[ManualClock, Callable[[], object]]:
    clock = ManualClock()
    cluster = open_cluster(store, clock=clock)
    create_topic(cluster.topic_log("t"), "t")
    writer = a_writer(cluster.topic_log("t"))
    return clock, lambda: append(writer, "a")


def test_a_name_that_stays_taken_is_named_after_a_few_reloads() -> None:
    store = Blocked(1_000)
    clock, write = writing(store)
    began = clock.ticks_ms()
    with pytest.raises(StoreError, match=f"{ENTRY}: the name is taken, but nothing can be read there") as caught:
        write()
    assert store.met == MOST_RELOADS
    assert not caught.value.retriable
    assert 1_000 < clock.ticks_ms() - began < 5_000
    store.times = 0
    write()


@pytest.mark.parametrize("times", [1, MOST_RELOADS - 1])
def test_one_that_shows_late_or_was_just_cleaned_is_waited_for(times: int) -> None:
    store = Blocked(times)
    _, write = writing(store)
    write()
    assert store.met == times


def test_a_producer_fails_by_a_link_that_leads_nowhere_and_goes_on_without_it(tmp_path: Path) -> None:
    Admin(tmp_path).create_topics([NewTopic("t")])
    link = tmp_path / ENTRY
    os.symlink(tmp_path / "nothing", link)
    with Producer(tmp_path) as producer:
        with pytest.raises(StoreError, match=f"{ENTRY}: the name is taken"):
            producer.send("t", b"a").get(30)
        link.unlink()
        assert producer.send("t", b"b").get(30).offset == 0
