"""Typed topics in SQL: the fields of values as columns of the topic's view."""

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog import Admin, NewTopic, Producer
from sparklog.log.cluster import open_cluster
from sparklog.log.topic import alter_value_schema
from sparklog.model import TopicPartition
from sparklog.schemas import value_schema
from sparklog.sql import connect, query, topic_dataset
from tests.producer.support import a_producer
from tests.producer.test_typed_sending import CLASHING, ROW, WIDER, a_topic


def rows(cluster, text):
    with query(cluster, text) as result:
        return [tuple(row.values()) for batch in result for row in batch.to_pylist()]


def test_fields_are_columns_beside_the_records_own():
    cluster = a_topic()
    with a_producer(cluster) as producer:
        for value in (ROW, {"id": 8}, None):
            producer.send("t", value, key=b"k")
    assert rows(cluster, 'SELECT "offset", key, id, total, tags FROM t ORDER BY 1') == [
        (0, b"k", 7, 12.5, ["a"]),
        (1, b"k", 8, None, None),
        (2, b"k", None, None, None),
    ]
    assert rows(cluster, "SELECT count(*) FROM t WHERE total > 10") == [(1,)]


def test_files_of_older_schemas_have_null_in_newer_fields():
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send("t", ROW).get()
        alter_value_schema(cluster.topic_log("t"), "t", WIDER)
        producer.send("t", {"id": 8, "note": "n"}).get()
    assert rows(cluster, "SELECT id, note FROM t ORDER BY id") == [(7, None), (8, "n")]
    assert rows(cluster, "SELECT id FROM t WHERE note = 'n'") == [(8,)]


def test_a_field_whose_name_is_taken_has_a_prefix():
    cluster = a_topic(CLASHING)
    with a_producer(cluster) as producer:
        producer.send("t", {"id": 1, "timestamp": "noon"})
    assert rows(cluster, "SELECT id, value_timestamp, epoch_ms(timestamp) > 0 FROM t") == [(1, "noon", True)]


def test_files_are_skipped_by_the_log_alone(tmp_path):
    with Admin(str(tmp_path)) as admin:
        admin.create_topics([NewTopic("t", value_schema="id BIGINT, note STRING, place STRUCT<zip: INT>")])
    with Producer(str(tmp_path)) as producer:
        for number in range(5):
            producer.send("t", {"id": number, "note": "x" * number, "place": {"zip": number % 2}}).get()
        producer.send("t", {"id": None}).get()
        producer.send("t", None).get()
    cluster = open_cluster(tmp_path)
    assert rows(cluster, "SELECT count(*) FROM t WHERE id IS NULL") == [(2,)]
    files = [path for path in (tmp_path / "topics" / "t").rglob("*.parquet") if "_delta_log" not in path.parts]
    assert len(files) == 7
    for path in files:
        [row] = pq.read_table(path).to_pylist()
        if (row.get("data") or {}).get("id", 2) not in (None, 2):
            path.write_bytes(b"unreadable")
    assert rows(cluster, "SELECT note, place.zip FROM t WHERE id = 2") == [("xx", 0)]
    assert rows(cluster, "SELECT id FROM t WHERE note > 'x' AND note < 'xxx'") == [(2,)]


@pytest.fixture
def folder(tmp_path):
    Admin(str(tmp_path)).create_topics([NewTopic("t", value_schema=WIDER.arrow)])
    with Producer(str(tmp_path)) as producer:
        producer.send("t", {**ROW, "note": "n"}, key=b"k").get()
        producer.send("t", {"id": 8}).get()
    return tmp_path / "topics" / "t"


def test_other_engines_read_the_struct(folder):
    table = deltalake.DeltaTable(folder)
    found = table.to_pyarrow_dataset().to_table().to_pylist()
    assert sorted(row["data"]["id"] for row in found) == [7, 8]
    assert {row["schema_id"] for row in found} == {1}
    frame = pl.read_delta(str(folder), use_pyarrow=True)
    assert sorted(frame["data"].struct.field("id").to_list()) == [7, 8]


TEXTS = "id BIGINT, kind STRING, note STRING"


@pytest.fixture
def texts():
    """A topic whose files have a text that repeats (in one as a dictionary, in one not), one that doesn't, nulls, and
    an older schema without either."""
    cluster = a_topic(value_schema("id BIGINT"))
    with a_producer(cluster) as producer:
        producer.send_batch("t", pa.table({"id": [-1, None]}))
        producer.flush()
        alter_value_schema(cluster.topic_log("t"), "t", value_schema(TEXTS))
    with a_producer(cluster) as producer:
        for first, count in ((0, 300), (300, 20)):
            ids = range(first, first + count)
            kinds = [None if number % 7 == 0 else f"kind-{number % 5}" for number in ids]
            notes = [None if number % 11 == 0 else f"note-{number:04}" for number in ids]
            producer.send_batch("t", pa.table({"id": ids, "kind": kinds, "note": notes}))
            producer.flush()
    return cluster


@pytest.mark.parametrize(
    "text",
    [
        "SELECT kind, count(*), min(note), max(note) FROM t GROUP BY kind ORDER BY 1 NULLS FIRST",
        "SELECT id, kind, note FROM t ORDER BY id NULLS FIRST",
        "SELECT id, kind, note FROM t WHERE kind = 'kind-3' ORDER BY id",
        "SELECT kind, note FROM t WHERE id BETWEEN 290 AND 310 ORDER BY id",
        "SELECT note FROM t WHERE kind IN ('kind-1', 'kind-2') AND note > 'note-0200' ORDER BY 1",
        "SELECT id FROM t WHERE kind IS NULL AND id > 0 ORDER BY 1",
        "SELECT id, kind FROM t WHERE note LIKE '%-03%' OR kind LIKE '%-4' ORDER BY 1",
        'SELECT partition, "offset", kind FROM t ORDER BY 1, 2',
        "SELECT a.id, b.id FROM t a JOIN t b ON a.note = b.note ORDER BY 1, 2",
        "SELECT DISTINCT kind || note FROM t ORDER BY 1 NULLS FIRST",
    ],
)
def test_texts_are_the_same_as_numbers_into_a_dictionary(texts, text):
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.register("t", topic_dataset(texts, "t").to_table())
        expected = connection.execute(text).fetchall()
    with connect(texts, ["t"]) as connection:
        found = connection.execute(text)
        assert found.fetchall() == expected
        assert len(expected) > 2
        assert connection.execute("SELECT DISTINCT typeof(kind), typeof(note) FROM t").fetchall() == [
            ("VARCHAR", "VARCHAR")
        ]


def test_deleted_records_are_left_out_of_texts_that_repeat(texts):
    with Admin(texts) as admin:
        admin.delete_records({TopicPartition("t", 0): 200})
    assert rows(texts, "SELECT count(kind), min(note) FROM t WHERE partition = 0") == rows(
        texts, "SELECT sum(CASE WHEN kind IS NULL THEN 0 ELSE 1 END), min(note) FROM t WHERE partition = 0 AND id > -5"
    )
    dataset = topic_dataset(texts, "t", texts_as_dictionaries=True)
    assert dataset.to_table().schema == dataset.schema
    assert dataset.schema.field("kind").type == pa.dictionary(pa.int32(), pa.string())
