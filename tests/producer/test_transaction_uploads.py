"""A transaction takes little memory, however long it is."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.log import TopicFollower, create_topic
from sparklog.producer import Producer
from sparklog.storage import LocalStore
from tests.depth import by_depth
from tests.producer.support import a_cluster

MIB = 2**20
RECORDS = by_depth(gate=180_000, nightly=500_000)
"""Of each of two topics: as objects of Python they take more than 64 MiB."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_large_transaction_takes_less_than_64_mebibytes(tmp_path: Path) -> None:
    cluster = a_cluster(LocalStore(tmp_path))
    for topic in ("t", "u"):
        create_topic(cluster.topic_log(topic), topic, num_partitions=2)
    producer = Producer(cluster, transactional_id="tx", acks=1, transaction_timeout_ms=900_000)
    producer.init_transactions()
    producer.begin_transaction()
    gc.collect()
    pa.default_memory_pool().release_unused()
    arrow_before, arrow_most = pa.total_allocated_bytes(), 0
    tracemalloc.start()
    for number in range(RECORDS):
        key, value = b"%d" % number, b"%0100d" % number
        producer.send("t", value, key)
        producer.send("u", value, key)
        if number % 1_000 == 0:
            arrow_most = max(arrow_most, pa.total_allocated_bytes() - arrow_before)
    producer.flush()
    uploaded = tracemalloc.get_traced_memory()[0]
    producer.commit_transaction()
    python_most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    producer.close()
    assert python_most + arrow_most < 64 * MIB
    assert uploaded < 4 * MIB, "what is uploaded is still held"
    for topic in ("t", "u"):
        assert sum(TopicFollower(cluster.topic_log(topic), topic).head.log_end_offsets) == RECORDS
