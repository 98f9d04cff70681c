"""``merge_ingest`` into a typed topic: fields, structs or bytes become columns, and what can't is refused."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import sparklog.spark as ss
from sparklog.admin import Admin, NewTopic
from sparklog.errors import InvalidArgumentError, InvalidRecordError
from sparklog.schemas import value_schema
from sparklog.spark.ingest.ingest_batch import check_columns
from sparklog.spark.ingest.ingest_values import checked_structs
from tests.depth import NIGHTLY
from tests.spark.spark_support import consumed, files_read

FIELDS = "id BIGINT, total DOUBLE, place STRUCT<city: STRING>, sequence INT"
NUMBERS = "producer_id BIGINT, producer_epoch SMALLINT, sequence INT"


def values(root: Any, topic: str = "t") -> list[Any]:
    found = consumed(root, topic, value_format="python")
    return [record.value for record in sorted(found, key=lambda record: record.offset)]


@pytest.mark.spark
def test_fields_structs_and_bytes_become_columns(spark, tmp_path):
    with Admin(str(tmp_path)) as admin:
        admin.create_topics([NewTopic("t", value_schema=FIELDS)])
        admin.alter_value_schema("t", f"{FIELDS}, more INT")
    columns = f"{NUMBERS}, key STRING, id INT, place STRUCT<city: STRING>, value_sequence INT"
    of_fields = spark.createDataFrame([(1, 0, 0, "k", 7, ("Rom",), 5), (1, 0, 1, "k", None, None, None)], columns)
    first = ss.merge_ingest(of_fields, tmp_path, "t")
    assert (first.rows, first.inserted) == (2, 2)
    empty = dict.fromkeys(("id", "total", "place", "sequence", "more"))
    expected: list[Any] = [{**empty, "id": 7, "place": {"city": "Rom"}, "sequence": 5}, empty]
    assert values(tmp_path) == expected
    structs = f"{NUMBERS}, key STRING, value STRUCT<more: INT, id: BIGINT>"
    of_structs = spark.createDataFrame([(1, 0, 2, "k", (3, 9)), (1, 0, 3, "k", None)], structs)
    assert ss.merge_ingest(of_structs, tmp_path, "t").inserted == 2
    of_bytes = spark.createDataFrame([(1, 0, 4, b'{"id": 10}'), (1, 0, 5, None)], f"{NUMBERS}, value BINARY")
    assert ss.merge_ingest(of_bytes, tmp_path, "t").inserted == 2
    if NIGHTLY:  # in each run test_ingest.py stores a row once however often it comes
        assert ss.merge_ingest(of_bytes, tmp_path, "t").inserted == 0
    expected += [{**empty, "id": 9, "more": 3}, None, {**empty, "id": 10}, None]
    assert values(tmp_path) == expected
    ss.register(spark, tmp_path, ["t"])
    selective = spark.sql("SELECT id FROM t WHERE id = 10")
    assert [row.id for row in selective.collect()] == [10]
    assert files_read(selective) == (1, 1)

    wrong = spark.createDataFrame([(1, 0, 6, b'{"id": "x"}'), (1, 0, 7, b'{"id": 11}')], f"{NUMBERS}, value BINARY")
    with pytest.raises(
        InvalidRecordError, match=r"1 of 2 rows are refused, one because a value can't be the topic's.*id"
    ):
        ss.merge_ingest(wrong, tmp_path, "t")
    with pytest.raises(InvalidArgumentError, match="column id: got string, expected long"):
        ss.merge_ingest(spark.createDataFrame([(1, 0, 6, "x")], f"{NUMBERS}, id STRING"), tmp_path, "t")
    with Admin(str(tmp_path)) as admin:
        admin.alter_configs({"t": {"value.on.error": "keep"}})
    assert ss.merge_ingest(wrong, tmp_path, "t").inserted == 2
    assert [value if isinstance(value, bytes) else value["id"] for value in values(tmp_path)[-2:]] == [
        b'{"id": "x"}',
        11,
    ]
    records = [record for record in consumed(tmp_path, "t") if record.value]
    assert [json.loads(record.value).get("id") for record in records][-2:] == ["x", 11]
    assert [[name for name, _ in record.headers] for record in records[-2:]] == [["sparklog.value.error"], []]


def test_columns_are_those_of_the_values_or_value():
    numbers = {"producer_id": "bigint", "producer_epoch": "smallint", "sequence": "int"}
    check_columns({**numbers, "id": "bigint"}, ["id"])
    check_columns({**numbers, "value": "struct<id:bigint>"}, ["id"])
    for wrong in ({"idd": "bigint"}, {"id": "bigint", "value": "binary"}, {}):
        with pytest.raises(InvalidArgumentError, match="for the values of the typed topic id in place of value"):
            check_columns({**numbers, **wrong}, ["id"])
    with pytest.raises(InvalidArgumentError, match="column value is struct<id:bigint>, expected binary or string"):
        check_columns({**numbers, "value": "struct<id:bigint>"})


def test_structs_are_of_the_tables_type():
    schema = value_schema("id BIGINT")
    physical = value_schema("old INT, id BIGINT").struct_type
    found = checked_structs(pa.array([{"id": 1}, None], pa.struct([("id", pa.int32())])), schema, physical)
    assert found.to_pylist() == [{"old": None, "id": 1}, None]
    with pytest.raises(InvalidArgumentError, match="merge_ingest: column value is int64"):
        checked_structs(pa.array([1]), schema, physical)
