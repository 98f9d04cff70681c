"""Arrow columns to Python records."""

import operator
from typing import Any

import pyarrow as pa
import pytest

from sparklog._native import CORE
from sparklog.config.clients import OfData
from sparklog.consumer.plain_columns import PlainColumns
from sparklog.consumer.records import RecordMaker
from sparklog.log.data.record_streaming import RECORD_SCHEMA
from sparklog.model import LOG_APPEND_TIME, ConsumerRecord, TopicPartition

ROWS: list[dict[str, Any]] = [
    {"offset": 7, "timestamp": 1_500, "key": b"k", "value": b"v", "headers": None},
    {"offset": 8, "timestamp": 2_999, "key": None, "value": b"", "headers": []},
    {"offset": 11, "timestamp": None, "key": b"", "value": None, "headers": [{"key": "a", "value": None}]},
    {
        "offset": 12,
        "timestamp": 0,
        "key": b"\x00\xff",
        "value": b"long" * 100,
        "headers": [{"key": "é", "value": b"1"}, {"key": "é", "value": b""}, {"key": "", "value": b"23"}],
    },
]
EXPECTED = [
    (7, 1, b"k", b"v", [], 1, 1, -1),
    (8, 2, None, b"", [], -1, 0, -1),
    (11, -1, b"", None, [("a", None)], 0, -1, 1),
    (12, 0, b"\x00\xff", b"long" * 100, [("é", b"1"), ("é", b""), ("", b"23")], 2, 400, 7),
]


def a_batch(rows):
    columns = {name: [row[name] for row in rows] for name in RECORD_SCHEMA.names}
    arrays = [pa.array(columns[field.name], field.type) for field in RECORD_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)


@pytest.fixture(params=["native", "pure"], autouse=True)
def core(request, monkeypatch):
    """Each test here, on both cores."""
    if request.param == "native" and CORE is None:
        pytest.skip("the native core isn't compiled")
    make = RecordMaker.make_native if request.param == "native" else RecordMaker.make_pure
    monkeypatch.setattr(RecordMaker, "make", make)


def records_of(batch, partition, timestamp_type):
    made, error = RecordMaker(None, None).make(batch, partition, timestamp_type)
    assert error is None
    return made


def shown(record):
    assert (record.topic, record.partition, record.leader_epoch, record.checksum) == ("t", 3, -1, None)
    assert record.timestamp_type == LOG_APPEND_TIME
    sizes = (record.serialized_key_size, record.serialized_value_size, record.serialized_header_size)
    return (record.offset, record.timestamp, record.key, record.value, record.headers, *sizes)


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("count", range(5))
def test_every_slice_of_a_batch_is_the_same_records(first, count):
    """Null is not empty; timestamps are rounded down to milliseconds; header names may repeat, values be null."""
    found = records_of(a_batch(ROWS).slice(first, count), TopicPartition("t", 3), LOG_APPEND_TIME)
    assert [type(record) for record in found] == [ConsumerRecord] * len(found)
    assert [shown(record) for record in found] == EXPECTED[first : first + count]


@pytest.mark.parametrize("first", range(3))
@pytest.mark.parametrize("sliced", range(2))
def test_a_part_of_a_batch_whose_columns_were_looked_up_is_the_same_records(first, sliced):
    rows = [{**row, "headers": None} for row in [ROWS[3], *ROWS]]
    batch = a_batch(rows).slice(sliced)
    columns = PlainColumns.of(batch)
    if CORE is None:
        assert columns is None
        return
    assert columns is not None
    for count in range(batch.num_rows - first + 1):
        maker, partition = RecordMaker(None, lambda topic, headers, data: data * 2), TopicPartition("t", 3)
        made, error = maker.make_part(columns, first, count, partition, LOG_APPEND_TIME)
        assert error is None
        assert made == maker.make(batch.slice(first, count), partition, LOG_APPEND_TIME)[0]
    assert columns.offsets.tolist() == batch.column(0).to_pylist()


def test_a_part_whose_deserializer_fails_ends_before_that_record():
    def fails(topic, headers, data):
        raise ValueError(data)

    columns = PlainColumns.of(a_batch([{**row, "headers": None} for row in ROWS]))
    if columns is not None:
        made, error = RecordMaker(fails, None).make_part(columns, 1, 3, TopicPartition("t", 3), LOG_APPEND_TIME)
        assert [record.offset for record in made] == [8]
        assert error is not None
        assert error.offset == 11


@pytest.mark.parametrize("rows", [ROWS, ROWS[3:], []])
def test_records_with_headers_and_no_records_have_no_plain_columns(rows):
    assert PlainColumns.of(a_batch(rows)) is None


def test_records_without_headers_share_an_empty_list_that_nobody_can_change():
    one, other = records_of(a_batch([ROWS[0]] * 2), TopicPartition("t", 3), 0)
    assert one.headers == [] == list(one.headers)
    for change in (
        lambda: one.headers.append(("a", b"")),
        lambda: one.headers.extend([("a", b"")]),
        lambda: one.headers.insert(0, ("a", b"")),
        lambda: operator.iadd(one.headers, [("a", b"")]),
        lambda: operator.setitem(one.headers, slice(0, 0), [("a", b"")]),
    ):
        with pytest.raises(TypeError, match="share this empty list"):
            change()
    assert other.headers == []


def test_header_names_that_are_not_utf_8_are_decoded_with_replacement_characters():
    """As in Java: such a name, which another engine may write, must not stop the partition."""
    names = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\x00\x00\x00\x00\x02\x00\x00\x00"), pa.py_buffer(b"\xffa")]
    )
    pairs = pa.StructArray.from_arrays([names, pa.array([b"v"], pa.binary())], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pairs).cast(RECORD_SCHEMA.field("headers").type)
    batch = a_batch([ROWS[0]])
    batch = pa.RecordBatch.from_arrays([*batch.columns[:-1], headers], schema=RECORD_SCHEMA)
    (record,) = records_of(batch, TopicPartition("t", 3), 0)
    assert record.headers == [("\ufffda", b"v")]


def test_times_before_1970_are_rounded_down_too():
    (record,) = records_of(a_batch([{**ROWS[0], "timestamp": -1_001}]), TopicPartition("t", 3), 0)
    assert record.timestamp == -2


def test_a_record_is_a_tuple_like_any_other():
    (record,) = records_of(a_batch([ROWS[0]]), TopicPartition("t", 3), 0)
    same = ConsumerRecord(*record)
    assert (record, repr(record)) == (same, repr(same))
    assert record._replace(offset=8).offset == 8


def test_deserializers_are_called_record_by_record_but_not_for_null():
    calls = []

    def of_key(topic, headers, data):
        calls.append((topic, list(headers), data))
        return data.decode("latin-1")

    def of_value(data):
        calls.append(data)
        return [data]

    found, error = RecordMaker(of_key, OfData(of_value)).make(a_batch(ROWS[:3]), TopicPartition("t", 3), 0)
    assert error is None
    assert [(record.key, record.value) for record in found] == [("k", [b"v"]), (None, [b""]), ("", None)]
    assert calls == [("t", [], b"k"), b"v", b"", ("t", [("a", None)], b"")]
    sizes = [(record.serialized_key_size, record.serialized_value_size) for record in found]
    assert sizes == [(1, 1), (-1, 0), (0, -1)]


@pytest.mark.parametrize("name", ["key", "value"])
def test_the_records_before_one_that_cannot_be_deserialized_are_returned(name):
    rows = [{**ROWS[0], "offset": number, name: data} for number, data in ((4, b"1"), (9, b"x"), (11, b"2"))]
    maker = RecordMaker(OfData(int), None) if name == "key" else RecordMaker(None, OfData(int))
    found, error = maker.make(a_batch(rows), TopicPartition("t", 3), 0)
    assert [getattr(record, name) for record in found] == [1]
    assert error is not None
    assert (error.offset, error.topic_partition) == (9, TopicPartition("t", 3))
    assert f"the {name} of t-3 at offset 9 can't be deserialized: ValueError" in str(error)
    assert isinstance(error.__cause__, ValueError)
    with pytest.raises(KeyboardInterrupt):
        RecordMaker(None, OfData(interrupted)).make(a_batch(ROWS), TopicPartition("t", 3), 0)


def interrupted(_):
    raise KeyboardInterrupt
