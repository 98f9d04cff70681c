"""A column of a view keeps its meaning, whatever fields come to a topic's values, in every engine."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparklog import Admin, NewTopic, Producer
from sparklog.log.data.value_columns import first_seen, view_columns
from sparklog.sql.dataset import topic_dataset
from sparklog.storage import MemoryStore
from sparklog.streaming.task_reading import field_columns
from tests.consumer.support import a_cluster
from tests.producer.test_typed_sending import read

ORDERS = [["value_key", "key"], ["key", "value_key"]]


def fields(*names: str) -> pa.Schema:
    return pa.schema([(name, pa.int64()) for name in names])


@pytest.mark.parametrize("names", ORDERS)
def test_a_column_keeps_its_meaning_when_a_field_of_a_taken_name_is_added(names):
    """✗ ``value_key`` is the field ``value_key`` until a field ``key`` is added: then it is that one."""
    cluster = a_cluster(MemoryStore())
    with Admin(cluster) as admin, Producer(cluster) as producer:
        admin.create_topics([NewTopic("t", 1, value_schema=fields("value_key"))])
        producer.send_batch("t", pa.table({"value_key": [1]})).get()
        admin.alter_value_schema("t", fields(*names))
        producer.send_batch("t", pa.table({"value_key": [2]})).get()  # as the same program did before
        producer.send_batch("t", pa.table({"value_key": [3], "value_value_key": [30]})).get()
        [described] = admin.describe_topics(["t"])
    assert [record.value for record in read(cluster)] == [
        {"value_key": 1, "key": None},
        {"value_key": 2, "key": None},
        {"value_key": 3, "key": 30},
    ]
    columns = topic_dataset(cluster, "t").to_table().select(["value_key", "value_value_key"])
    assert columns.to_pydict() == {"value_key": [1, 2, 3], "value_value_key": [None, None, 30]}
    assert [
        {column: field.name for column, field in each.items()} for each in field_columns(described.value_schemas)
    ] == [
        {"value_key": "value_key"},
        {"value_key": "value_key", "value_value_key": "key"},
    ]


@pytest.mark.parametrize("later", [["KEY"], ["a", "key"], ["value_key", "key", "a"], ["Value_Value_Key", "key"]])
@pytest.mark.parametrize("first", [["value_key"], ["key"], ["value_value_key", "key"], ["offset", "value_offset"]])
def test_columns_of_fields_that_are_there_are_never_renamed(first, later):
    before = view_columns(first_seen([first]), ["key", "offset", "value"])
    after = view_columns(first_seen([first, later]), ["key", "offset", "value"])
    assert {**after, **before} == after
    assert len({name.lower() for name in after.values()}) == len(after)
