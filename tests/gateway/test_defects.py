"""A defect met with one topic is told of that topic; the connection goes on, and other topics are answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import sparklog.gateway
from sparklog import Admin, NewTopic
from sparklog.delta.actions import AddFile
from sparklog.errors import IllegalStateError
from sparklog.gateway.client_log import ClientLog
from sparklog.gateway.defects import log_defect, topic_defects
from sparklog.gateway.repeats import Repeats
from sparklog.log.cluster import open_cluster
from sparklog.storage import MemoryStore
from sparklog.testing import WrappedStore
from tests.gateway.test_server import Wire, batch, ends, fetching, produce
from tests.support import foreign_commit

UNKNOWN_SERVER_ERROR, KAFKA_STORAGE_ERROR = -1, 56


class DefectiveStore(WrappedStore):
    """Fails below a path as no store does."""

    defective: str | None = None
    error: type[BaseException] = ZeroDivisionError

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        for path in paths:
            self._check(path)
        return self._store.read_many(paths)

    def _call(self, op: str, path: str, call: Callable[[], Any]) -> Any:
        self._check(path)
        return call()

    def _check(self, path: str) -> None:
        if self.defective is not None and path.startswith(self.defective):
            raise self.error("a defect")


@pytest.fixture
def store() -> DefectiveStore:
    return DefectiveStore(MemoryStore())


@pytest.fixture
def wire(store: DefectiveStore) -> Iterator[Wire]:
    cluster = open_cluster(store)
    Admin(cluster).create_topics([NewTopic("bad", 1), NewTopic("good", 1)])
    with sparklog.gateway.serve(cluster) as servers:
        client = Wire(servers)
        yield client
        client.close()


def both(body: Callable[..., dict[str, Any]], field: str) -> dict[str, Any]:
    bad, good = body(topic="bad"), body(topic="good")
    return {**bad, field: [*bad[field], *good[field]]}


def codes(topics: list[dict[str, Any]], name: str, partitions: str = "partitions") -> dict[str, int]:
    return {topic[name]: part["error_code"] for topic in topics for part in topic[partitions]}


def play(wire: Wire) -> dict[str, dict[str, int]]:
    """The codes of both topics, by request."""
    named = {"topics": [{"name": "bad"}, {"name": "good"}]}
    found = wire.call("Metadata", 9, named)["topics"]
    everything = wire.call("Metadata", 9, {"topics": None})["topics"]
    sent = wire.call("Produce", 9, both(lambda topic: produce(batch(b"a"), topic), "topic_data"))["responses"]
    fetched = wire.call("Fetch", 11, both(lambda topic: fetching(0, topic=topic), "topics"))["responses"]
    looked = wire.call("ListOffsets", 8, both(lambda topic: ends(topic=topic), "topics"))["topics"]
    return {
        "Metadata": {one["name"]: one["error_code"] for one in found},
        "Metadata of all": {one["name"]: one["error_code"] for one in everything},
        "Produce": codes(sent, "name", "partition_responses"),
        "Fetch": codes(fetched, "topic"),
        "ListOffsets": codes(looked, "name"),
    }


def test_a_defect_with_one_topic_ends_no_request_of_others(
    wire: Wire, store: DefectiveStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.defective = "topics/bad/"
    told = play(wire)
    assert told == {one: {"bad": UNKNOWN_SERVER_ERROR, "good": 0} for one in told}
    assert "topic 'bad' can't be read: a defect" in caplog.text
    store.defective = None
    told = play(wire)
    assert told == {one: {"bad": 0, "good": 0} for one in told}


def test_a_panic_of_the_stores_library_is_told_as_a_defect(wire: Wire, store: DefectiveStore) -> None:
    class PanicError(BaseException):
        pass

    store.error, store.defective = PanicError, "topics/bad/"
    told = [codes(wire.call("Fetch", 11, fetching(0, topic="bad"))["responses"], "topic")]
    store.defective = None
    told.append(codes(wire.call("Fetch", 11, fetching(0, topic="bad"))["responses"], "topic"))
    assert told == [{"bad": UNKNOWN_SERVER_ERROR}, {"bad": 0}]


def test_what_a_foreign_engine_committed_to_one_topic_hinders_no_other(wire: Wire, store: DefectiveStore) -> None:
    values = {"partition": "x", "base_offset": None}
    odd = AddFile(path="odd.parquet", partition_values=values, size_bytes=1, modification_ms=1)
    foreign_commit(open_cluster(store).topic_log("bad"), odd)
    told = play(wire)
    assert told == {one: {"bad": KAFKA_STORAGE_ERROR, "good": 0} for one in told}


def test_of_each_kind_of_defect_there_is_an_entry_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times_s = [0.0]
    repeats = Repeats(lambda: times_s[0])
    for number in range(40):
        with pytest.raises(IllegalStateError), topic_defects(repeats, f"t{number % 8}"):
            raise ZeroDivisionError(number)
        try:
            raise ZeroDivisionError(number)
        except ZeroDivisionError:
            log_defect(repeats, "another of %s", "t")
        ClientLog(f"client {number}", repeats).disconnected(ZeroDivisionError(number))
        times_s[0] += 0.0625
    others = " (and 15 others since the last such entry)"
    expected = ["topic 't0' can't be read: a defect", "another of t", "client client {} was disconnected by an error"]
    texts = [one.getMessage() for one in caplog.records]
    assert texts == [text.format(number) + (others if number else "") for number in (0, 16, 32) for text in expected]
    assert all(one.exc_info for one in caplog.records)
