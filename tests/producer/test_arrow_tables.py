"""``send_batch``: whole Arrow tables, checked before any of it is sent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from sparklog.errors import (
    InvalidArgumentError,
    InvalidTimestampError,
    InvalidTypeError,
    MessageSizeTooLargeError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.data.schema import HEADERS
from sparklog.producer.arrow_tables import split_table
from sparklog.producer.partitioner import murmur2
from sparklog.producer.topic_queue import MAX_BATCH_BYTES
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.producer.support import (
    LONG_S,
    HeldStore,
    a_cluster,
    a_producer,
    a_topic,
    assert_empty,
    column,
    eventually,
    rows,
    through,
    values,
)


def a_table(count: int, *, size: int = 10, **columns: Any) -> pa.Table:
    """Values of ``size`` bytes that begin with their number."""
    return pa.table({"value": [str(number).encode().ljust(size, b".") for number in range(count)], **columns})


def test_every_column_reaches_the_log_and_the_future_tells_where_each_row_is() -> None:
    cluster = a_topic(partitions=4)
    headers = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, []]
    table = pa.table(
        {
            "partition": pa.array([3, None, 1], pa.int64()),
            "timestamp": pa.array([5, 6, 7], pa.int64()),
            "headers": pa.array(headers, HEADERS),
            "value": pa.array(["v0", None, ""]),
            "key": pa.array([b"k0", b"k1", None], pa.large_binary()),
        }
    )
    with a_producer(cluster) as producer:
        told = producer.send_batch("t", table).get(LONG_S)
    by_key = (murmur2(b"k1") & 0x7FFFFFFF) % 4
    assert (told.topic, told.record_count, told.partitions.to_pylist()) == ("t", 3, [3, by_key, 1])
    found = rows(cluster)
    given = zip([b"k0", b"k1", None], [b"v0", None, b""], strict=True)
    for partition, offset, row in zip(told.partitions.to_pylist(), told.offsets.to_pylist(), given, strict=True):
        assert found[partition][offset] == (offset, *row)
    assert column(cluster, "headers", 3)[0] == headers[0]
    assert [int(time.timestamp() * 1000) for time in column(cluster, "timestamp", 3)] == [5]


@pytest.mark.parametrize("name", ["key", "value"])
def test_one_of_key_and_value_may_be_missing(name: str) -> None:
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send_batch("t", pa.table({name: [b"x"]})).get(LONG_S)
        producer.send_batch("t", pa.record_batch({name: [b"y"]})).get(LONG_S)
    found = [(key, value) for _, key, value in rows(cluster)[0]]
    assert found == ([(b"x", None), (b"y", None)] if name == "key" else [(None, b"x"), (None, b"y")])


NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)
NOON_MS = 1_714_996_800_000


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pa.array([NOON_MS, None], pa.int64()), [NOON_MS, None]),
        (pa.array([5, None], pa.uint8()), [5, None]),
        (pa.array([NOON, None], pa.timestamp("us", "UTC")), [NOON_MS, None]),
        (pa.array([NOON, None], pa.timestamp("ns")), [NOON_MS, None]),
        (pa.array([NOON, None], pa.timestamp("s", "Asia/Tokyo")), [NOON_MS, None]),
        (pa.nulls(2), [None, None]),
    ],
    ids=lambda given: str(getattr(given, "type", "")),
)
def test_timestamps_are_numbers_or_arrows_and_now_where_null(times: pa.Array, expected: list[int | None]) -> None:
    clock = ManualClock(start_ms=NOON_MS + 60_000)
    cluster = a_topic(clock=clock)
    with a_producer(cluster) as producer:
        producer.send_batch("t", pa.table({"value": [b"1", b"2"], "timestamp": times})).get(LONG_S)
    found = [int(time.timestamp() * 1000) for time in column(cluster, "timestamp")]
    assert found == [clock.now_ms() if time is None else time for time in expected]


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ([{"value": b"v"}], InvalidTypeError, "got list, expected a pyarrow Table"),
        (None, InvalidTypeError, "got NoneType"),
        ({"values": [b"v"]}, InvalidArgumentError, "got columns values"),
        ({"value": [b"v"], "ts": [1]}, InvalidArgumentError, "got columns value, ts"),
        ({"headers": pa.nulls(1, HEADERS)}, InvalidArgumentError, "expected key or value"),
        ({}, InvalidArgumentError, "got columns none"),
        ({"value": pa.array([], pa.binary())}, InvalidArgumentError, "no rows"),
        ({"value": [5]}, InvalidArgumentError, "column value: got int64"),
        ({"value": [b"v"], "key": [[b"k"]]}, InvalidArgumentError, "column key: got list"),
        ({"value": [b"v"], "timestamp": ["now"]}, InvalidArgumentError, "column timestamp"),
        ({"value": [b"v"], "timestamp": [1.5]}, InvalidArgumentError, "column timestamp"),
        ({"value": [b"v"], "timestamp": pa.array(["x", None])}, InvalidArgumentError, "column timestamp"),
        ({"value": [b"v"], "timestamp": [-1]}, InvalidArgumentError, "timestamp -1 ms"),
        ({"value": [b"v"], "timestamp": [2**62]}, InvalidArgumentError, "timestamp"),
        ({"value": [b"v"], "timestamp": pa.array([2**64 - 1], pa.uint64())}, InvalidArgumentError, "timestamp"),
        ({"value": [b"v"], "partition": [1.0]}, InvalidArgumentError, "column partition is double"),
        ({"value": [b"v"], "partition": [2]}, InvalidArgumentError, "partition has 2 to 2, expected 0 to 1"),
        ({"value": [b"v", b"v"], "partition": [0, -1]}, InvalidArgumentError, "partition has -1 to 0"),
        ({"value": [b"v"], "headers": [{"a": b"1"}]}, InvalidArgumentError, "column headers"),
        ({"value": [b"v"], "headers": [[{"name": "a", "value": b"1"}]]}, InvalidArgumentError, "column headers"),
        (
            {"value": [b"v"], "headers": pa.array([[{"key": None, "value": b"1"}]], HEADERS)},
            InvalidArgumentError,
            "header without a key",
        ),
        ({"value": [b"1", b"x" * 61], "key": [b"k", b"k" * 40]}, MessageSizeTooLargeError, "row 1 has 101 bytes"),
    ],
    ids=lambda given: given if isinstance(given, str) else None,
)
def test_a_table_of_another_shape_is_refused_and_nothing_of_it_sent(
    table: Any, error: type[SparklogError], message: str
) -> None:
    cluster = a_topic(partitions=2)
    columns = dict(table) if isinstance(table, dict) else None
    if columns is not None and isinstance(columns.get("timestamp"), pa.Array) and len(columns["timestamp"]) == 2:
        columns["value"] = [b"1", b"2"]
    with a_producer(cluster, max_request_size=100) as producer:
        with pytest.raises(error, match=message):
            producer.send_batch("t", table if columns is None else pa.table(columns))
        assert_empty(producer)
    assert rows(cluster) == {0: [], 1: []}


def test_a_column_that_is_there_twice_is_refused() -> None:
    table = pa.Table.from_arrays([pa.array([b"1"]), pa.array([b"2"])], ["value", "value"])
    with a_producer(a_topic()) as producer, pytest.raises(InvalidArgumentError, match="value"):
        producer.send_batch("t", table)


def test_an_unknown_topic_is_refused() -> None:
    with a_producer(a_cluster()) as producer, pytest.raises(UnknownTopicOrPartitionError):
        producer.send_batch("t", a_table(1))


def test_records_and_tables_keep_the_order_of_sending() -> None:
    cluster = a_topic()
    expected = []
    with a_producer(cluster, linger_ms=5) as producer:
        for round_number in range(20):
            expected.append(f"single {round_number}".encode())
            producer.send("t", expected[-1])
            rows_of_table = [f"{round_number}:{number}".encode() for number in range(round_number % 4 + 1)]
            producer.send_batch("t", pa.table({"value": rows_of_table}))
            expected += rows_of_table
        producer.flush(LONG_S)
    assert values(cluster) == expected


def test_a_table_larger_than_a_batch_is_committed_piece_by_piece_and_told_as_one() -> None:
    cluster = a_topic(partitions=2)
    count, size = 140, MAX_BATCH_BYTES // 50  # three batches, the last of which isn't full
    table = a_table(count, size=size, key=[str(number % 7).encode() for number in range(count)])
    with a_producer(cluster, buffer_memory=1_000_000) as producer:  # and larger than the buffer
        told = producer.send_batch("t", table).get(LONG_S)
        assert producer.metrics()["producer-metrics"]["records-per-request-avg"] == count / 3
        assert_empty(producer)
    assert told.record_count == count
    found = rows(cluster)
    for number, (partition, offset) in enumerate(
        zip(told.partitions.to_pylist(), told.offsets.to_pylist(), strict=True)
    ):
        assert (found[partition][offset][2] or b"").startswith(f"{number}.".encode())
    assert sum(map(len, found.values())) == count


@pytest.mark.parametrize(("batches", "pieces"), [(0.9, 1), (1.2, 1), (1.3, 2), (2.4, 2), (2.6, 3)])
def test_what_is_left_over_of_a_table_is_no_piece_of_its_own(batches: float, pieces: int) -> None:
    rows_count = int(10 * batches * MAX_BATCH_BYTES) // 1_000_000
    table = pa.table({"key": [b""] * rows_count, "value": [b"v" * 100_000] * rows_count})
    sizes = [piece.num_rows for piece in split_table(table)]
    assert sum(sizes) == rows_count
    assert len(sizes) == pieces
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.slow
def test_pieces_are_cut_by_size_also_where_large_rows_stand_together() -> None:
    table = pa.table({"key": [b""] * 1_100, "value": [b""] * 1_000 + [b"v" * (MAX_BATCH_BYTES // 10)] * 100})
    pieces = list(split_table(table))
    assert pa.concat_tables(pieces).equals(table)
    assert max(piece.nbytes for piece in pieces) < 1.35 * MAX_BATCH_BYTES  # a quarter more, and a row
    assert len(pieces) < 12


def test_a_table_larger_than_the_buffer_waits_until_nothing_else_is_in_it() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    store = HeldStore(memory)
    with a_producer(through(store, cluster), buffer_memory=10_000) as producer:
        store.hold("create")
        producer.send("t", b"first")
        store.wait_until_reached()
        import threading

        thread = threading.Thread(target=lambda: producer.send_batch("t", a_table(100, size=1_000)))
        thread.start()
        eventually(lambda: producer._buffer.waiting_count)
        assert producer._buffer.used_bytes < 1_000
        store.let_go()
        thread.join(LONG_S)
        producer.flush(LONG_S)
        assert_empty(producer)
    assert len(values(cluster)) == 101


@pytest.mark.parametrize("columns", [{}, {"partition": [0, 0, 0]}], ids=["by key", "by partition"])
def test_a_table_fails_with_its_rows_first_error_while_the_others_are_stored(columns: dict[str, Any]) -> None:
    clock = ManualClock()
    cluster = a_topic(clock=clock)
    times = [clock.now_ms(), clock.now_ms() + 7_200_000, clock.now_ms()]
    with a_producer(cluster) as producer:
        future = producer.send_batch("t", pa.table({"value": [b"1", b"late", b"2"], "timestamp": times, **columns}))
        with pytest.raises(InvalidTimestampError):
            future.get(LONG_S)
        told: list[object] = []
        producer.flush(LONG_S)
        future.add_callback(told.append).add_errback(told.append)
        assert told == [future.exception]
        assert producer.metrics()["producer-topic-metrics.t"]["record-error-total"] == 1
        assert_empty(producer)
    assert values(cluster) == [b"1", b"2"]


def test_with_acks_0_the_future_of_a_table_is_done_at_once() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    store = HeldStore(memory)
    with a_producer(through(store, cluster), acks=0) as producer:
        store.hold("create")
        told = producer.send_batch("t", a_table(3)).get(0)
        assert (told.partitions.to_pylist(), told.offsets.to_pylist()) == ([-1] * 3, [-1] * 3)
        store.let_go()
        producer.flush(LONG_S)
    assert len(values(cluster)) == 3


def test_serializers_interceptors_and_partitioner_are_not_asked() -> None:
    def never(*given: object) -> Any:
        raise AssertionError(given)

    class Never:
        on_send = on_acknowledgement = never

    settings: dict[str, Any] = {"key_serializer": never, "value_serializer": never, "partitioner": never}
    cluster = a_topic()
    with a_producer(cluster, interceptors=[Never()], **settings) as producer:
        producer.send_batch("t", pa.table({"value": [b"v"]})).get(LONG_S)
    assert values(cluster) == [b"v"]


def test_a_slice_of_a_table_sends_its_own_rows() -> None:
    cluster = a_topic(partitions=3)
    table = pa.concat_tables([a_table(50, key=[b"k"] * 50), a_table(50, key=[b"l"] * 50)])
    with a_producer(cluster) as producer:
        told = producer.send_batch("t", table.slice(45, 10)).get(LONG_S)
    found = rows(cluster)
    sent = [found[p][o][2] for p, o in zip(told.partitions.to_pylist(), told.offsets.to_pylist(), strict=True)]
    assert sent == table["value"].slice(45, 10).to_pylist()
