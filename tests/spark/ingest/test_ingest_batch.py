"""Columns and partitions of an ingest's input."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparklog.errors import InvalidArgumentError
from sparklog.producer.partitioner import murmur2
from sparklog.spark.ingest.ingest_batch import check_columns, partitions_of

NUMBERS = {"producer_id": "bigint", "producer_epoch": "smallint", "sequence": "int"}


@pytest.mark.parametrize(
    "more",
    [
        {"value": "binary"},
        {"key": "string", "timestamp": "string"},
        {"value": "string", "timestamp": "timestamp", "partition": "bigint"},
        {"value": "string", "timestamp": "bigint", "headers": "array<struct<key:string,value:string>>"},
    ],
)
def test_columns_that_can_be_read(more):
    check_columns({**NUMBERS, **more})
    check_columns({**dict.fromkeys(NUMBERS, "string"), **more})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (NUMBERS, "key or value or both"),
        ({"value": "binary"}, "got columns value; expected producer_id"),
        ({**NUMBERS, "value": "binary", "offset": "bigint"}, "offset; expected"),
        ({**NUMBERS, "value": "int"}, "column value is int, expected binary or string"),
        ({**NUMBERS, "value": "binary", "sequence": "double"}, "column sequence is double, expected a whole number"),
        ({**NUMBERS, "value": "binary", "timestamp": "timestamp_ntz"}, "timestamp_ntz, expected a timestamp with"),
        ({**NUMBERS, "value": "binary", "headers": "map<string,binary>"}, "headers is map"),
    ],
)
def test_columns_that_cant_be_read_are_named(columns, message):
    with pytest.raises(InvalidArgumentError, match=message):
        check_columns(columns)


def test_a_row_goes_by_its_key_or_else_by_its_producer_and_sequence():
    keys = pa.array([b"a", None, b"", None, b"abcdefg"], pa.binary())
    ids, sequences = pa.array([1, 2**62, 3, 4, None], pa.int64()), pa.array([0, 2**31 - 1, 2, 3, None], pa.int32())
    keyless = [(2**62).to_bytes(8, "big") + (2**31 - 1).to_bytes(4, "big"), bytes([0] * 7 + [4, 0, 0, 0, 3])]
    hashed = [b"a", keyless[0], b"", keyless[1], b"abcdefg"]
    expected = [(murmur2(data) & 0x7FFFFFFF) % 5 for data in hashed]
    found = partitions_of(keys, ids, sequences, partition_count=5)
    assert (found.type, found.to_pylist()) == (pa.int32(), expected)
    assert partitions_of(keys[1:], ids[1:], sequences[1:], partition_count=5).to_pylist() == expected[1:]


def test_rows_without_keys_are_spread():
    count = 1_000
    nulls, ids = pa.nulls(count, pa.binary()), pa.array([7] * count, pa.int64())
    found = partitions_of(nulls, ids, pa.array(range(count), pa.int32()), partition_count=4).to_pylist()
    assert all(150 < found.count(partition) < 350 for partition in range(4))
