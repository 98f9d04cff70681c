"""Offsets of partitions, assigned or not: what they cost, how soon they are there, and that nothing stops meanwhile."""

import threading

import pytest

from sparklog.consumer.lookups import Lookups
from sparklog.errors import KafkaTimeoutError, UnknownTopicOrPartitionError
from sparklog.log import delete_topic
from sparklog.model import OffsetAndTimestamp
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, ManualClock, WrappedStore
from tests.consumer.support import LONG_MS, a_cluster, a_consumer, send, take, text, tp, until, with_topic
from tests.overlapping import SlowStore, copy_topic, overlapping
from tests.support import T0_MS


class BlockedStore(WrappedStore):
    """Reading a path with ``blocked`` in it waits until :attr:`is_free` is set."""

    def __init__(self, store, blocked):
        super().__init__(store)
        self.blocked = blocked
        self.is_free = threading.Event()
        self.waiting = threading.Event()

    def _call(self, op, path, call):
        if self.blocked in path:
            self.waiting.set()
            assert self.is_free.wait(LONG_MS / 1_000)
        return call()


def test_a_look_up_costs_three_requests_at_first_and_one_while_nothing_is_new():
    store, clock = CountingStore(MemoryStore()), ManualClock(start_ms=T0_MS)
    cluster = with_topic(a_cluster(store, clock), "abc")
    lookups = Lookups(cluster)
    costs = []
    for before in (lambda: None, lambda: None, lambda: send(cluster, "d"), lambda: None, lambda: clock.advance(31_000)):
        before()
        store.reset()
        costs.append((lookups.log_end_offsets([tp()])[tp()], sum(store.counts().values())))
    assert costs == [(3, 3), (3, 1), (4, 4), (4, 1), (4, 3)]  # the last: trust in the position is about to run out


def test_an_answer_that_comes_after_trust_ran_out_does_not_count():
    """Rule L1: what wasn't there may have been deleted and created meanwhile."""
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)

    class Stalling(CountingStore):
        def read_many(self, paths):
            found = super().read_many(paths)
            if stalls:
                stalls.pop()
                clock.advance(61_000)
                send(a_cluster(memory, clock), "d")
            return found

    stalls: list[int] = []
    lookups = Lookups(with_topic(a_cluster(Stalling(memory), clock), "abc"))
    assert lookups.log_end_offsets([tp()]) == {tp(): 3}
    stalls.append(1)
    assert lookups.log_end_offsets([tp()]) == {tp(): 4}


def test_a_topic_that_was_deleted_is_unknown_though_it_was_looked_up_before():
    cluster = with_topic(a_cluster(), "abc")
    lookups = Lookups(cluster)
    assert lookups.partition_count("t") == 1
    delete_topic(cluster.topic_log("t"), "t")
    assert lookups.partition_count("t") is None
    with pytest.raises(UnknownTopicOrPartitionError):
        lookups.log_start_offsets([tp()])
    with_topic(cluster, "x", partitions=2)
    assert lookups.log_end_offsets([tp(0), tp(1)]) == {tp(0): 1, tp(1): 0}


def test_the_ends_of_200_topics_are_looked_up_in_half_a_second_and_then_in_less():
    with overlapping() as clock:
        memory = MemoryStore(clock=clock)
        with_topic(a_cluster(memory, clock), "abc")
        topics = [f"t{number:03}" for number in range(200)]
        copy_topic(memory, "t", topics)
        lookups = Lookups(a_cluster(SlowStore(memory, clock, latency_ms=20.0), clock))
        partitions = [tp(topic=topic) for topic in topics]
        took = []
        for look in (lookups.log_end_offsets, lookups.log_start_offsets):
            began = clock.now
            look(partitions)
            took.append(clock.now - began)
        assert took == [7 * 3 * 20, 7 * 20]


def test_offsets_by_time_cost_five_requests_a_topic_and_a_file_more_a_partition():
    memory = MemoryStore()
    cluster = a_cluster(memory)
    for topic in "uv":
        with_topic(cluster, topic=topic, partitions=3)
        for partition in range(3):
            send(cluster, "ab", topic=topic, partition=partition)
    store = CountingStore(memory)
    lookups = Lookups(a_cluster(store))
    asked = {tp(partition, topic): T0_MS + 1 for topic in "uv" for partition in range(3)}
    assert lookups.offsets_for_times(asked) == dict.fromkeys(asked, OffsetAndTimestamp(1, T0_MS + 1))
    assert store.counts() == {"get": 2 * (1 + 4 + 3), "list": 2 * 2}  # the hint, four entries, three files


def test_a_look_up_is_answered_while_the_fetcher_waits_for_the_store():
    memory = MemoryStore()
    with_topic(with_topic(a_cluster(memory), "abc"), "de", topic="u")
    store = BlockedStore(memory, ".parquet")
    with a_consumer(a_cluster(store), "t") as consumer:
        until(lambda: consumer.poll(timeout_ms=1) == {} and store.waiting.is_set())
        assert consumer.end_offsets([tp(), tp(topic="u")], timeout_ms=LONG_MS) == {tp(): 3, tp(topic="u"): 2}
        assert consumer.partitions_for_topic("u") == {0}
        store.is_free.set()
        assert text(take(consumer, 3)) == "abc"


def test_a_consumer_reads_on_during_a_lookup_that_timed_out_and_close_waits_for_it():
    memory = MemoryStore()
    with_topic(with_topic(a_cluster(memory), "abc"), "de", topic="u")
    store = BlockedStore(memory, "/u/")
    consumer = a_consumer(a_cluster(store), "t")
    with pytest.raises(KafkaTimeoutError):
        consumer.end_offsets([tp(topic="u")], timeout_ms=20)
    assert text(take(consumer, 3)) == "abc"
    closing = threading.Thread(target=consumer.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    store.is_free.set()
    closing.join(LONG_MS / 1_000)
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "sparklog-lookup"])
