"""Outputs to a topic that can't be read or written, and a partitioner that fails: one partition pays for it at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from sparklog import Admin, Producer
from sparklog.errors import HandlerError, StorePermissionError
from sparklog.log import Cluster
from sparklog.processing import App, Record, Send
from sparklog.storage import MemoryStore
from sparklog.testing.wrapped_store import WrappedStore
from tests.processing.support import a_world, an_app, done, offsets, records, running, texts, until, with_poison

T = TypeVar("T")

FORBIDDEN: dict[str, tuple[str, str]] = {
    "reading": ("", "topics/bad/"),
    "writing files": ("put", "topics/bad/"),
}
LOG_OF_BAD = ("create", "topics/bad/_delta_log/")
BAD_LOG: dict[str, bytes] = {
    "no log": b"garbage\n",
    "another writer's": b'{"protocol":{"minReaderVersion":99,"minWriterVersion":99}}\n',
}


class GuardedStore(WrappedStore):
    """Refuses some calls for want of rights, once it is told which."""

    forbidden: tuple[str, str] | None = None
    """The beginnings of a call's name and of its path."""

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if self.forbidden is not None and op.startswith(self.forbidden[0]) and path.startswith(self.forbidden[1]):
            raise StorePermissionError(f"{op} {path}: access denied")
        return call()


def a_worker(store: GuardedStore, **given: Any) -> App:
    cluster = a_world("in", "out", "bad", "dlq.in", partitions=2, store=store)
    with_poison(cluster)
    return subscribed(an_app(cluster, patience_s=60, **given))


def subscribed(app: App) -> App:
    @app.subscriber("in", dead_letter=True)
    def handle(record: Record[str]) -> Send:
        return Send("bad" if record.value == "poison" else "out", record.value)

    return app


def cluster_of(app: App) -> Cluster:
    cluster = app.settings.cluster
    assert isinstance(cluster, Cluster)
    return cluster


def stops_alone(app: App, topic: str) -> None:
    cluster = cluster_of(app)
    app.start()
    until(lambda: offsets(cluster) == {0: 1, 1: 20})
    until(lambda: app.health().stopped)
    health = app.health()
    assert health.is_alive
    assert health.error == health.stopped[0]
    expected = rf"what was made of in-0, offset 1, can't be sent to topic '{topic}': .*; nothing is skipped"
    with pytest.raises(HandlerError, match=expected):
        app.stop()
    assert sorted(texts(cluster, "out")) == sorted(["a", *map(str, range(20))])
    assert texts(cluster, "dlq.in") == []


@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_topic_that_may_not_be_used_stops_one_partition(what):
    """✗ The worker ends, and what is done of the others isn't committed."""
    store = GuardedStore(MemoryStore())
    app = a_worker(store)
    store.forbidden = FORBIDDEN[what]
    stops_alone(app, "bad")


@pytest.mark.parametrize("what", BAD_LOG)
def test_a_topic_whose_log_is_unreadable_stops_one_partition(what):
    """✗ The worker ends, and what is done of the others isn't committed."""
    store = GuardedStore(MemoryStore())
    app = a_worker(store)
    store.put("topics/bad/_delta_log/00000000000000000000.json", BAD_LOG[what])
    stops_alone(app, "bad")


def test_a_stopped_partition_begins_again_once_the_topic_is_repaired():
    store = GuardedStore(MemoryStore())
    app = a_worker(store)
    store.forbidden = FORBIDDEN["reading"]
    stops_alone(app, "bad")
    store.forbidden = None
    with running(again := subscribed(an_app(cluster_of(app)))):
        done(again, 2)
    assert texts(cluster_of(app), "bad") == ["poison"]


def test_a_topic_whose_log_cant_be_written_stops_one_partition_behind():
    """✗ The worker ends with an error that names no record, once its transaction is committed."""
    store = GuardedStore(MemoryStore())
    app = a_worker(store)
    cluster = cluster_of(app)
    store.forbidden = LOG_OF_BAD
    app.start()
    until(lambda: offsets(cluster).get(1) == 20 and app.health().stopped)
    with Producer(cluster) as producer:
        producer.send("in", b"more", partition=1)
    until(lambda: offsets(cluster)[1] == 21)
    assert app.health().is_alive
    expected = "handle: what was made of in-0, offset 1, is committed, but topic 'bad' can't be written: .*"
    with pytest.raises(HandlerError, match=expected):
        app.stop()
    with running(again := subscribed(an_app(cluster))):
        until(lambda: offsets(cluster) == {0: 3, 1: 21})
    assert again.health().stopped == ()
    store.forbidden = None
    with Admin(cluster) as admin:
        admin.recover_transactions()
    assert texts(cluster, "bad") == ["poison"]
    assert texts(cluster, "dlq.in") == []
    assert sorted(texts(cluster, "out")) == sorted(["a", "b", "more", *map(str, range(20))])


@pytest.mark.parametrize("forbidden", [*FORBIDDEN.values(), LOG_OF_BAD])
def test_a_share_group_holds_the_record_alone(forbidden):
    """✗ The worker ends."""
    store = GuardedStore(MemoryStore())
    app = a_worker(store, group_type="share", consumer={})
    store.forbidden = forbidden
    app.start()
    expected = sorted(["a", "b", *map(str, range(20))])
    until(lambda: sorted(texts(cluster_of(app), "out")) == expected)
    until(lambda: app.health().stopped)
    with pytest.raises(HandlerError, match="can't be sent to topic 'bad'"):
        app.stop()


class Choosy:
    """kafka-python 3's form of a partitioner."""

    def partition(self, topic: str, key: Any, key_bytes: Any, value: Any, value_bytes: Any, cluster: Any) -> int:
        return choosy(key_bytes, [], [])


def choosy(key: bytes | None, every: list[int], available: list[int]) -> int:
    if key == b"poison":
        raise RuntimeError("no place for it")
    return 1


@pytest.mark.parametrize("partitioner", [choosy, Choosy()])
@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_the_input_of_which_a_partitioner_fails_becomes_a_dead_letter(partitioner, kind):
    """✗ The worker ends with the partitioner's error, and so does the next."""
    cluster = a_world("in", "out", "dlq.in", partitions=2)
    with Producer(cluster) as producer:
        for value in ("a", "poison", "b"):
            producer.send("in", value.encode(), value.encode(), partition=0)
    settings: dict[str, Any] = {"consumer": {}} if kind == "share" else {}
    app = an_app(cluster, group_type=kind, producer={"partitioner": partitioner}, **settings)

    @app.subscriber("in", dead_letter=True)
    def handle(record: Record[str]) -> Send:
        return Send("out", record.value, key=record.key)

    with running(app):
        done(app, 3)
    assert sorted(texts(cluster, "out")) == ["a", "b"]
    assert {record.partition for record in records(cluster, "out")} == {1}
    assert texts(cluster, "dlq.in") == ["poison"]
