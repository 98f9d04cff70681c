"""A poll that has taken offsets of which its caller gets nothing goes on with what comes behind them."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pyarrow as pa

from sparklog import Admin, Consumer, Producer, TopicPartition
from sparklog.consumer.assignment import Chunk, Handover
from sparklog.log.data.record_streaming import RECORD_SCHEMA


class KeepLast:
    """Lets the caller have records of value ``last`` alone."""

    def on_consume(self, found):
        kept = {partition: [one for one in records if one.value == b"last"] for partition, records in found.items()}
        return {partition: records for partition, records in kept.items() if records}

    def on_commit(self, offsets):
        """Nothing."""


def test_records_behind_those_that_an_interceptor_kept_are_returned_by_the_same_poll():
    uri = f"memory://{uuid.uuid4().hex}"
    Admin(uri).create_topics(["t"])
    with (
        Producer(uri) as producer,
        Consumer("t", cluster=uri, auto_offset_reset="earliest", interceptors=[KeepLast()]) as consumer,
    ):
        producer.send("t", b"first").get(60)
        timer = threading.Timer(0.3, lambda: producer.send("t", b"last"))
        timer.start()
        found = consumer.poll(timeout_ms=60_000)
        timer.join()
        assert [record.offset for records in found.values() for record in records] == [1]
        assert consumer.position(TopicPartition("t", 0)) == 2


def test_offsets_without_records_hold_up_nothing_in_the_same_poll():
    uri = f"memory://{uuid.uuid4().hex}"
    Admin(uri).create_topics(["t"])
    partition = TopicPartition("t", 0)
    with Consumer(cluster=uri, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        runtime: Any = consumer._runtime
        assignment, buffer, handover = runtime.fetch_state.assignment, runtime.record_buffer, Handover()
        state = assignment.get(partition)
        assignment.seek(state, 0)
        empty = pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA)
        row = {"offset": 5, "timestamp": 0, "key": None, "value": b"v", "headers": None}
        for batch, next_offset in ((empty, 5), (pa.RecordBatch.from_pylist([row], schema=RECORD_SCHEMA), 6)):
            assert buffer.records(10, handover) == {}
            assignment.deliver(state, Chunk(batch=batch, next_offset=next_offset, size_bytes=1, fetched_ticks_ms=0.0))
        assert state.position == 5
        assert [record.offset for record in buffer.records(10, handover)[partition]] == [5]
        assert state.position == 5
        handover.is_done = True
        assert state.position == 6
