"""Whatever is sent in whatever way: the log holds it once, in order, where the futures say."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.producer.support import LONG_S, a_producer, a_topic, assert_empty, rows

PARTITIONS = 3
partitions = st.integers(0, PARTITIONS - 1)
keys = st.one_of(st.none(), st.binary(max_size=3))
sizes = st.integers(0, 400)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), keys, st.one_of(st.none(), partitions), sizes, st.booleans()),
        st.tuples(st.just("table"), st.lists(st.tuples(keys, partitions, sizes), min_size=1, max_size=5)),
        st.just(("flush",)),
        st.just(("wait",)),
    ),
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    steps,
    st.sampled_from([0, 1, 500, 1_000_000]),
    st.sampled_from([0, 1]),
    st.integers(1, 5),
    st.sampled_from([2_000, 33_554_432]),
)
def test_the_log_is_what_was_sent_and_the_futures_tell_where(
    todo: list[Any], batch_size: int, linger_ms: int, in_flight: int, buffer_memory: int
) -> None:
    cluster = a_topic(partitions=PARTITIONS)
    sent: list[tuple[int | None, bytes | None, bytes, bool, Any]] = []  # partition, key, value, refused, where

    def value(size: int) -> bytes:
        return b"%d:" % len(sent) + b"." * size

    given_settings = {
        "batch_size": batch_size,
        "linger_ms": linger_ms,
        "max_in_flight_requests_per_connection": in_flight,
        "buffer_memory": buffer_memory,
    }
    with a_producer(cluster, **given_settings) as producer:
        for step in todo:
            if step[0] == "send":
                _, key, partition, size, late = step
                data = value(size)
                timestamp = 2**60 if late else None
                future = producer.send("t", data, key, partition=partition, timestamp_ms=timestamp)
                sent.append((partition, key, data, late, (future, None)))
            elif step[0] == "table":
                first = len(sent)
                columns: dict[str, list[Any]] = {"key": [], "value": [], "partition": []}
                for number, (key, partition, size) in enumerate(step[1]):
                    data = value(size)
                    sent.append((partition, key, data, False, number))
                    columns["key"].append(key)
                    columns["value"].append(data)
                    columns["partition"].append(partition)
                types = {"key": pa.binary(), "value": pa.binary(), "partition": pa.int32()}
                table = pa.table({name: pa.array(column, types[name]) for name, column in columns.items()})
                future_of_table = producer.send_batch("t", table)
                sent[first:] = [(*one[:4], (future_of_table, one[4])) for one in sent[first:]]
            elif step[0] == "flush":
                producer.flush(LONG_S)
            elif sent and not sent[-1][3]:
                sent[-1][4][0].get(LONG_S)
        producer.flush(LONG_S)
        assert_empty(producer)

    found = rows(cluster)
    model: dict[int, list[tuple[int, bytes | None, bytes]]] = {partition: [] for partition in range(PARTITIONS)}
    of_key: dict[bytes, set[int]] = {}
    for chosen, key, data, late, (future, row) in sent:
        assert future.succeeded() is not late
        if late:
            continue
        told = future.get(0)
        partition = told.partition if row is None else told.partitions[row].as_py()
        offset = told.offset if row is None else told.offsets[row].as_py()
        assert chosen in (None, partition)
        if chosen is None and key is not None:
            of_key.setdefault(key, set()).add(partition)
        model[partition].append((offset, key, data))
    assert found == model
    assert all(len(reached) == 1 for reached in of_key.values())
    assert all([row[0] for row in part] == list(range(len(part))) for part in model.values())
