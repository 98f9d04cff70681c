"""``format("sparklog")`` and typed topics: the fields of values as columns, read and written."""

import datetime
import decimal
import json

import pytest

from sparklog.admin import Admin, NewTopic
from sparklog.integrity import check_cluster
from sparklog.log.cluster import open_cluster
from sparklog.producer import Producer
from tests.spark.spark_support import consumed

pytestmark = pytest.mark.spark

UTC = datetime.UTC
DDL = (
    "id BIGINT, total DOUBLE, price DECIMAL(8,2), at TIMESTAMP, day DATE, note STRING, raw BINARY, paid BOOLEAN, "
    "small SMALLINT, place STRUCT<city: STRING, zip: INT>, tags ARRAY<STRING>, counts MAP<STRING, INT>, "
    "stops ARRAY<STRUCT<name: STRING>>, offset INT"
)
ROW = {
    "id": 7,
    "total": 12.5,
    "price": decimal.Decimal("1.50"),
    "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "day": datetime.date(2026, 1, 2),
    "note": "é",
    "raw": b"\xff",
    "paid": True,
    "small": -3,
    "place": {"city": "Rom", "zip": None},
    "tags": ["a", None],
    "counts": {"k": 1},
    "stops": [{"name": "x"}, None],
    "offset": 5,
}


@pytest.fixture
def root(tmp_path):
    """A cluster with a typed topic of three records, the last a tombstone, and an empty one like it."""
    with Admin(str(tmp_path)) as admin:
        admin.create_topics([NewTopic(name, 2, value_schema=DDL) for name in ("typed", "copy")])
        admin.create_topics([NewTopic("plain", 1)])
    with Producer(str(tmp_path)) as producer:
        for value in (ROW, {"id": 8}, None):
            producer.send("typed", value, key=b"k", partition=0).get()
    return str(tmp_path)


def values(root, topic):
    return sorted((record.offset, record.value) for record in consumed(root, topic, value_format="python"))


def frame(spark, root, topic="typed", **options):
    return spark.read.format("sparklog").option("subscribe", topic).options(**options).load(root)


def test_fields_are_columns_beside_the_records_own(spark, root):
    found = frame(spark, root)
    assert found.columns[:7] == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert found.columns[7:] == [*list(ROW)[:-1], "value_offset"]
    rows = found.orderBy("offset").collect()
    assert [row.offset for row in rows] == [0, 1, 2]
    first = rows[0].asDict(recursive=True)
    assert json.loads(first["value"])["id"] == 7
    expected = {**ROW, "at": first["at"]}
    assert {name: first["value_offset" if name == "offset" else name] for name in ROW} == expected
    assert found.where("id = 7").selectExpr("at = TIMESTAMP '2026-01-02 03:04:05.000006Z' AS same").first().same
    assert {name for name, value in rows[2].asDict().items() if value is None} >= {
        "value",
        "id",
        "place",
        "value_offset",
    }
    assert [row.city for row in found.where("total > 1").select("place.city").collect()] == ["Rom"]
    assert [row.tag for row in found.selectExpr("explode(tags) AS tag").collect()] == ["a", None]


def test_values_are_bytes_alone_or_fields_alone(spark, root):
    as_bytes = frame(spark, root, valueFormat="bytes")
    assert "id" not in as_bytes.columns
    assert [json.loads(row.value)["id"] for row in as_bytes.where("offset < 2").orderBy("offset").collect()] == [7, 8]
    as_columns = frame(spark, root, valueFormat="columns")
    assert [(row.value, row.id) for row in as_columns.orderBy("offset").collect()] == [
        (None, 7),
        (None, 8),
        (None, None),
    ]
    few = spark.read.format("sparklog").schema("offset BIGINT, id BIGINT").option("subscribe", "typed").load(root)
    assert [tuple(row) for row in few.orderBy("offset").collect()] == [(0, 7), (1, 8), (2, None)]


def test_a_query_of_several_topics_has_bytes(spark, root):
    assert "id" not in frame(spark, root, "typed,plain").columns
    assert "id" in (spark.read.format("sparklog").option("assign", '{"typed": [0]}').load(root).columns)


def test_a_query_planned_before_an_evolution_reads_by_its_own_schema(spark, root):
    found = frame(spark, root)
    with Admin(root) as admin:
        admin.alter_value_schema("typed", "more STRING, id BIGINT")
    with Producer(root) as producer:
        producer.send("typed", {"id": 9, "more": "m"}).get()
    rows = found.where("id IS NOT NULL").orderBy("id").collect()
    assert [(row.id, row.note) for row in rows] == [(7, None), (8, None), (9, None)]  # note was left out since
    assert {row.more for row in frame(spark, root).collect()} == {None, "m"}


def test_fields_are_written_as_columns(spark, root):
    found = frame(spark, root).where("offset < 2").drop("value")
    found.write.format("sparklog").option("topic", "copy").mode("append").save(root)
    assert [value for _, value in values(root, "copy")] == [value for _, value in values(root, "typed")[:2]]
    assert not check_cluster(open_cluster(root)).findings
    assert frame(spark, root, "copy").where("price > 1").count() == 1


def test_values_are_written_as_structs_or_as_bytes(spark, root):
    found = frame(spark, root)
    fields = ", ".join(f"'{name}', {'value_offset' if name == 'offset' else name}" for name in ROW)
    structs = found.selectExpr("key", f"IF(offset = 2, NULL, named_struct({fields})) AS value")
    structs.write.format("sparklog").option("topic", "copy").mode("append").save(root)
    assert sorted(values(root, "copy"), key=str) == sorted(values(root, "typed"), key=str)
    as_bytes = frame(spark, root, valueFormat="bytes").select("key", "value")
    as_bytes.write.format("sparklog").option("topic", "copy").mode("append").save(root)
    found_ids = sorted((value or {"id": -1})["id"] for _, value in values(root, "copy"))
    assert found_ids == [-1, -1, 7, 7, 8, 8]
    assert frame(spark, root, "copy", valueFormat="columns").where("value IS NOT NULL").count() == 0


def test_what_is_no_value_of_the_topic_is_refused(spark, root):
    row = frame(spark, root).limit(1)
    for select, reason in {
        "'x' AS id": "column id: got string, expected long",
        'CAST(\'{"id": "x"}\' AS BINARY) AS value': "id",
        "named_struct('idd', 1) AS value": "fields idd",
    }.items():
        with pytest.raises(Exception, match=reason):
            row.selectExpr("key", select).write.format("sparklog").option("topic", "copy").mode("append").save(root)
    with pytest.raises(Exception, match="unknown column id"):  # the topic isn't typed
        row.select("key", "id").write.format("sparklog").option("topic", "plain").mode("append").save(root)
    assert values(root, "copy") == []


def test_a_stream_carries_fields_from_topic_to_topic(spark, root, tmp_path):
    stream = spark.readStream.format("sparklog").option("subscribe", "typed").option("startingOffsets", "earliest")
    rows = (
        stream.option("valueFormat", "columns")
        .load(root)
        .where("id IS NOT NULL")
        .selectExpr("key", "id * 10 AS id", "total", "place")
    )
    sink = rows.writeStream.format("sparklog").option("topic", "copy").option("path", root)
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(500)
    assert query.exception() is None
    assert sorted(value["id"] for _, value in values(root, "copy")) == [70, 80]
    assert sorted(json.loads(record.value)["id"] for record in consumed(root, "copy")) == [70, 80]


def test_a_field_that_comes_in_mid_stream_ends_the_query(spark, root, tmp_path):
    """✗ It went on with its columns, without a word, and its checkpoint passed what it had left out."""
    checkpoint = str(tmp_path / "checkpoint")

    def started(rows):
        writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
        return writer.trigger(processingTime="0 seconds").start()

    def loaded(**options):
        stream = spark.readStream.format("sparklog").option("subscribe", "typed").options(**options)
        return stream.option("startingOffsets", "earliest").load(root)

    rows = loaded()
    query = started(rows)
    query.processAllAvailable()
    with Admin(root) as admin:
        admin.alter_value_schema("typed", f"{DDL}, city STRING")
    with Producer(root) as producer:
        producer.send("typed", {"id": 9, "city": "Rom"}, key=b"k", partition=0).get()
    with pytest.raises(Exception, match=r"lack: city\. Restart the query"):
        query.processAllAvailable()
    again = started(rows)
    with pytest.raises(Exception, match="lack: city"):
        again.awaitTermination(500)
    assert "city" in loaded().columns
    for restarted in (started(loaded()), started(loaded(newFields="ignore"))):
        restarted.processAllAvailable()
        restarted.stop()
