"""L17: a consumer whose cluster is gone, or is another one, says so; and one whose topic's log is gone."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sparklog.consumer import Consumer
from sparklog.errors import SparklogError, StoreReplacedError
from sparklog.log import Cluster, open_cluster
from sparklog.storage import MemoryStore
from tests.consumer.group_support import FAST
from tests.consumer.support import LONG_MS, a_consumer, send, take, text, tp, with_topic
from tests.replacing import emptied, kept, put_back

TRUST_MS = 300.0


def a_world() -> tuple[MemoryStore, Cluster]:
    memory = MemoryStore()
    return memory, with_topic(open_cluster(memory, tail_trust_ms=TRUST_MS, retry_ms=0), "abc")


def gone(memory: MemoryStore) -> str:
    emptied(memory)
    return "is gone"


def another(memory: MemoryStore) -> str:
    emptied(memory)
    with_topic(open_cluster(memory, retry_ms=0), "xyz")
    return "another cluster is at"


def topic_gone(memory: MemoryStore) -> str:
    emptied(memory, "topics/")
    return "topics/t/_delta_log/ is gone"


def set_back(memory: MemoryStore) -> str:
    memory.delete([found.path for found in memory.list("topics/t/_delta_log/") if found.path.endswith("1.json")])
    return "ends at entry 0, but this process knows its entry 1"


def error_of(consumer: Consumer) -> tuple[SparklogError, float]:
    """The first error of a poll, and after how many ms it came; nothing is read meanwhile."""
    began = time.monotonic()
    while time.monotonic() - began < LONG_MS / 1_000:
        try:
            found = consumer.poll(timeout_ms=50)
        except SparklogError as error:
            return error, (time.monotonic() - began) * 1_000
        assert not found
    pytest.fail("no poll raised")


def an_assigned(cluster: Cluster) -> Consumer:
    consumer = a_consumer(cluster)
    consumer.assign([tp()])
    return consumer


def a_member(cluster: Cluster) -> Consumer:
    return a_consumer(cluster, "t", group_id="g", **FAST)


@pytest.mark.parametrize("replace", [gone, another, topic_gone, set_back])
@pytest.mark.parametrize("opened", [an_assigned, a_member])
def test_a_consumer_tells_within_the_trust_what_was_replaced(
    opened: Callable[[Cluster], Consumer], replace: Callable[[MemoryStore], str]
) -> None:
    memory, cluster = a_world()
    with opened(cluster) as consumer:
        assert text(take(consumer, 3)) == "abc"
        what = replace(memory)
        error, after_ms = error_of(consumer)
        assert isinstance(error, StoreReplacedError)
        assert what in str(error)
        assert after_ms < 20 * TRUST_MS  # a busy machine's


def test_a_consumer_goes_on_once_its_cluster_is_back() -> None:
    memory, cluster = a_world()
    with an_assigned(cluster) as consumer:
        take(consumer, 3)
        whole = kept(memory)
        gone(memory)
        error_of(consumer)
        put_back(memory, whole)
        send(cluster, "de")
        found = ""
        while len(found) < 2:
            try:
                found += text([record for records in consumer.poll(timeout_ms=50).values() for record in records])
            except StoreReplacedError:  # of a look before
                continue
        assert found == "de"


def test_a_member_writes_nothing_into_another_cluster() -> None:
    memory, cluster = a_world()
    with a_member(cluster) as consumer:
        take(consumer, 3)
        another(memory)
        error_of(consumer)
        deadline = time.monotonic() + 2 * TRUST_MS / 1_000
        emptied(memory, "groups/")  # what a heartbeat wrote before the look
        while time.monotonic() < deadline:
            with pytest.raises(StoreReplacedError):
                error_of_any(consumer)
        assert not [*memory.list("groups/")]


def error_of_any(consumer: Consumer) -> None:
    raise error_of(consumer)[0]
