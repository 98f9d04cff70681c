"""Typed topics in Spark: fields as columns, files skipped by their statistics, values as bytes for streams."""

import json

import pytest

import sparklog.spark as ss
from sparklog.admin import Admin, NewTopic
from sparklog.producer import Producer
from tests.producer.test_typed_sending import ROW, SCHEMA, WIDER
from tests.spark.spark_support import files_read

pytestmark = pytest.mark.spark


def test_fields_are_columns_and_files_are_skipped_by_them(spark, tmp_path):
    admin = Admin(str(tmp_path))
    admin.create_topics([NewTopic("typed", value_schema=SCHEMA)])
    with Producer(str(tmp_path)) as producer:
        for number in range(6):
            producer.send("typed", {**ROW, "id": number}, key=b"k").get()
        producer.send("typed", None, key=b"k").get()
        admin.alter_value_schema("typed", WIDER)
        producer.send("typed", {"id": 9, "note": "n"}).get()
    ss.register(spark, tmp_path, ["typed"])
    found = spark.sql("SELECT offset, key, id, total, tags, note FROM typed ORDER BY offset").collect()
    assert [(row.offset, row.id, row.note) for row in found][5:] == [(5, 5, None), (6, None, None), (7, 9, "n")]
    selective = spark.sql("SELECT id FROM typed WHERE id = 3")
    assert [row.id for row in selective.collect()] == [3]
    assert files_read(selective) <= (1, 2)  # that of the tombstone has no statistics of values
    source = spark.read.format("sparklog").option("subscribe", "typed").load(str(tmp_path))
    values = [row.value for row in source.orderBy("offset").collect()]
    assert json.loads(bytes(values[0]))["id"] == 0
    assert values[6] is None
