"""L17: once the store has said that there is no such bucket, each log's ground is checked before the next create."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from sparklog.errors import StoreError, StoreReplacedError
from sparklog.log import open_cluster
from sparklog.storage import ObjectStore
from sparklog.storage._answers import error_of_code
from sparklog.testing import CountingStore, WrappedStore
from tests.replacing import TopicWriting, World, emptied, kept
from tests.support import a_topic, a_writer, append, contents

T = TypeVar("T")


class Bucket(WrappedStore):
    """A bucket that somebody deletes, and makes again."""

    is_there = True

    def __init__(self, store: ObjectStore, code: str = "NoSuchBucket") -> None:
        super().__init__(store)
        self.code = code

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if not self.is_there:
            raise error_of_code(self.code, 404, "The specified bucket does not exist", op, path)
        return call()


@pytest.mark.parametrize("code", ["NoSuchBucket", "ContainerNotFound", "FilesystemNotFound"])
def test_who_was_told_that_there_is_no_bucket_writes_nothing_into_the_next_one(code: str) -> None:
    """✗ For a minute the producer acknowledges into a log without its first entries: its check isn't due."""
    world = World()
    TopicWriting(world.opened())
    bucket = Bucket(world.memory, code)
    writer = TopicWriting(open_cluster(bucket, clock=world.clock))
    writer.write()
    bucket.is_there = False
    emptied(world.memory)
    world.clock.advance(1_000)
    with pytest.raises(StoreError, match="the bucket is not there"):
        writer.write()
    bucket.is_there = True
    world.clock.advance(1_000)
    with pytest.raises(StoreReplacedError, match="is gone: there is no"):
        writer.write()
    assert not [path for path in kept(world.memory) if "_delta_log" in path]


def test_all_logs_are_checked_where_one_was_told_and_go_on_where_it_is_back() -> None:
    world = World()
    world.opened()
    for topic in "tu":
        a_topic(world.memory, world.clock, topic=topic)
    bucket = Bucket(world.memory)
    counting = CountingStore(bucket)
    cluster = open_cluster(counting, clock=world.clock)
    writers = {topic: a_writer(cluster.topic_log(topic), topic=topic) for topic in "tu"}
    for topic, writer in writers.items():
        append(writer, topic)
    world.clock.advance(1_000)
    bucket.is_there = False
    with pytest.raises(StoreError, match="the bucket is not there"):
        cluster.store.list_names("topics/")
    bucket.is_there = True
    world.clock.advance(1_000)
    counting.reset()
    append(writers["u"], "again")
    # cluster.json, and two entries
    assert counting.counts() == {"put": 1, "create": 1, "get": 3, "list": 1}
    append(writers["t"], "again")
    assert counting.counts() == {"put": 2, "create": 2, "get": 5, "list": 2}
    counting.reset()
    world.clock.advance(1_000)
    for writer in writers.values():
        append(writer, "more")
    assert counting.counts() == {"put": 2, "create": 2}
    assert len(contents(cluster.topic_log("t"))[0]) == 3


def test_an_object_that_is_not_there_is_no_reason() -> None:
    world = World()
    TopicWriting(world.opened())
    counting = CountingStore(world.memory)
    cluster = open_cluster(counting, clock=world.clock)
    writer = TopicWriting(cluster)
    writer.write()
    assert not cluster.store.exists("topics/none")
    counting.reset()
    world.clock.advance(1_000)
    writer.write()
    assert counting.counts() == {"put": 1, "create": 1}
