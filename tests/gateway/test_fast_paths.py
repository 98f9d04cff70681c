"""What is done without a thread, a task or a copy more: sending at once, calls of the loop, kept batches, one timer."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from sparklog import Admin, NewTopic, Producer
from sparklog.gateway.backend import Backend
from sparklog.gateway.settings import GatewaySettings
from sparklog.gateway.topic_view import _KEPT_BATCH_BYTES, BatchCache, _Batch
from sparklog.log.cluster import open_cluster
from sparklog.log.data.schema import HEADERS
from sparklog.producer.batch import TableBatch
from sparklog.producer.outcome import Outcome, Piece
from sparklog.storage import MemoryStore

FINE = {"greatest_partition": 1, "size_bytes": 10, "least_timestamp_ms": 5, "largest_bytes": 3}


@pytest.fixture
def cluster():
    opened = open_cluster(MemoryStore())
    Admin(opened).create_topics([NewTopic("t", num_partitions=2)])
    return opened


def rows(partition=1):
    columns = [pa.array([5, 6]), pa.array([b"k", None]), pa.array([b"vv", b"v"]), pa.nulls(2, HEADERS)]
    names = ["timestamp", "key", "value", "headers", "partition"]
    return pa.table([*columns, pa.array(np.full(2, partition, np.int32))], names)


def test_rows_are_sent_at_once_where_nothing_has_to_be_waited_for(cluster):
    with Producer(cluster) as producer:
        assert producer._try_send_rows("t", rows(), [Piece(2)], **FINE) is None  # the topic isn't open
        producer._pipelines.get("t")
        for wrong in ({"greatest_partition": 2}, {"least_timestamp_ms": -1}, {"largest_bytes": 2**30}):
            assert producer._try_send_rows("t", rows(), [Piece(2)], **{**FINE, **wrong}) is None
        assert producer._try_send_rows("t", rows(), [Piece(2)], **{**FINE, "size_bytes": 2**30}) is None
        first = producer._try_send_rows("t", rows(), [Piece(2)], **FINE)
        second = producer._try_send_rows("t", rows(), [Piece(2)], **FINE)
        assert first is not None
        assert second is not None
        settled: list[Outcome] = []
        second.when_outcome(settled.append)
        producer.flush()
        first.when_outcome(settled.append)
        assert [[*outcome.require_written().offsets] for outcome in settled] == [[2, 3], [0, 1]]


def test_rows_that_find_no_room_are_not_sent(cluster):
    with Producer(cluster, buffer_memory=1_000) as producer:
        queue = producer._pipelines.get("t").queue
        held = TableBatch("t", rows(), created_ticks_ms=0.0, size_bytes=900)
        with queue.lock:
            queue._taken[held] = None  # as if it were on its way
        assert producer._try_send_rows("t", rows(), [Piece(2)], **{**FINE, "size_bytes": 900}) is None
        with queue.lock:
            queue._taken.pop(held)


def test_every_call_of_any_thread_is_made_by_the_loop(cluster):
    made: list[int] = []

    async def play() -> None:
        backend, loop, everything = (
            Backend(cluster, GatewaySettings(), None),
            asyncio.get_running_loop(),
            asyncio.Event(),
        )

        def call(number: int) -> None:
            made.append(number)
            if len(made) == 800:
                everything.set()

        def hand_over(first: int) -> None:
            for number in range(first, first + 200):
                backend.later(loop, partial(call, number))

        threads = [threading.Thread(target=hand_over, args=(200 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.wait_for(everything.wait(), 60)
        for thread in threads:
            thread.join()
        await backend.close()

    asyncio.run(play())
    assert sorted(made) == list(range(800))


def test_kept_batches_are_those_used_last_within_the_bound():
    cache = BatchCache(100 + 3 * _KEPT_BATCH_BYTES)
    for offset in (0, 10, 20):
        cache.keep("id", 0, offset, _Batch(offset + 9, bytearray(30), frozenset()))
    assert cache.find("id", 0, 0) is not None  # used again: the oldest is the second one now
    cache.keep("id", 0, 20, _Batch(29, bytearray(60), frozenset()))  # in place of the one that was there
    assert [cache.find("id", 0, offset) is not None for offset in (0, 10, 20)] == [True, False, True]
    assert cache.find("id", 1, 0) is None
