"""Arrow columns to Python records."""

import operator
from typing import Any

import pyarrow as pa
import pytest

from sparklog.consumer.records import records_of
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
