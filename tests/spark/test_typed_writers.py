"""Spark's own Delta writer and typed topics: structs by SQL and DataFrame, changes of columns, fields that it adds."""

import datetime
import json

import pytest

from sparklog.admin import Admin, NewTopic
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.integrity import check_cluster
from sparklog.log.cluster import open_cluster
from sparklog.producer import Producer
from tests.spark.spark_support import consumed

pytestmark = pytest.mark.spark

DDL = "id BIGINT, total DOUBLE, at TIMESTAMP, place STRUCT<city: STRING, zip: INT>, tags ARRAY<STRING>"
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
ROW = {"id": 7, "total": 12.5, "at": AT, "place": {"city": "x", "zip": None}, "tags": ["a"]}
NONE = dict.fromkeys(ROW)
WHOLE = (
    "named_struct('id', 7L, 'total', 12.5D, 'at', TIMESTAMP '2026-01-02 03:04:05.000006Z', "
    "'place', named_struct('city', 'x', 'zip', CAST(NULL AS INT)), 'tags', array('a')"
)


@pytest.fixture
def root(tmp_path):
    with Admin(str(tmp_path)) as admin:
        admin.create_topics([NewTopic("t", 1, value_schema=DDL)])
    with Producer(str(tmp_path)) as producer:
        producer.send("t", {"id": 0}, key=b"k").get()
    return str(tmp_path)


def table(root):
    return f"delta.`{root}/topics/t`"


def sequence(root):
    """The reasons of what is refused."""
    with Admin(root) as admin:
        return list(admin.sequence("t").refused.values())


def values(root):
    return [record.value for record in consumed(root, "t", value_format="python")]


def problems(root):
    return [str(one) for one in check_cluster(open_cluster(root), deep=True).errors]


def test_structs_are_inserted_whole_and_by_a_dataframe_in_part(spark, root):
    spark.sql(f"INSERT INTO {table(root)} (key, data) SELECT CAST('k' AS BINARY), {WHOLE})")
    spark.sql(f"INSERT INTO {table(root)} (key, data) SELECT CAST('k' AS BINARY), NULL")
    part = "SELECT CAST('k' AS BINARY) AS key, named_struct('total', 1.5D, 'id', 9L) AS data"
    spark.sql(part).writeTo(table(root)).append()
    assert sequence(root) == []
    assert sorted(values(root), key=str) == sorted(
        [{**NONE, "id": 0}, ROW, None, {**NONE, "id": 9, "total": 1.5}], key=str
    )
    assert problems(root) == []


def test_what_spark_has_changed_is_merged_with_files_of_producers(spark, root):
    with Producer(root) as producer:
        for _ in range(5):
            producer.send("t", ROW, key=b"k").get()
    spark.sql(f"UPDATE {table(root)} SET data.total = 3.5, data.at = data.at + INTERVAL 1 DAY WHERE data.id = 7")
    with Producer(root) as producer:
        for _ in range(5):
            producer.send("t", ROW, key=b"k").get()
    changed = {**ROW, "total": 3.5, "at": AT + datetime.timedelta(days=1)}
    expected = [{**NONE, "id": 0}, *[changed] * 5, *[ROW] * 5]
    assert values(root) == expected
    log = open_cluster(root).topic_log("t")
    merged = optimize_topic(log, "t", policy=OptimizePolicy(min_files=2, growth=1.01)).ranges
    assert [one.error for one in merged] == [""]
    assert values(root) == expected
    assert problems(root) == []


def test_a_field_that_spark_adds_to_the_values_waits_for_a_schema(spark, root):
    spark.sql(f"ALTER TABLE {table(root)} ADD COLUMNS (data.extra INT)")
    spark.sql(f"INSERT INTO {table(root)} (key, data) SELECT CAST('k' AS BINARY), {WHOLE}, 'extra', CAST(NULL AS INT))")
    assert sequence(root) == []
    spark.sql(f"INSERT INTO {table(root)} (key, data) SELECT CAST('k' AS BINARY), {WHOLE}, 'extra', 1)")
    [reason] = sequence(root)
    assert "fields that no schema of the topic has: extra" in reason
    with Producer(root) as producer:
        producer.send("t", ROW, key=b"k").get()
    assert values(root) == [{**NONE, "id": 0}, ROW, ROW]
    with Admin(root) as admin:
        admin.alter_value_schema("t", f"{DDL}, extra INT")
    assert sequence(root) == []
    assert [value["extra"] for value in values(root)] == [None, None, None, 1]
    assert [row[0] for row in spark.sql(f"SELECT data.extra FROM {table(root)} WHERE data.extra > 0").collect()] == [1]
    assert problems(root) == []


def test_values_are_erased_by_sql_and_former_versions_keep_them(spark, root):
    with Producer(root) as producer:
        for number in range(1, 6):
            producer.send("t", {**ROW, "id": number}, key=b"k").get()
    before = spark.sql(f"DESCRIBE HISTORY {table(root)} LIMIT 1").collect()[0].version
    spark.sql(f"DELETE FROM {table(root)} WHERE data.id = 3")
    spark.sql(f"UPDATE {table(root)} SET data = NULL WHERE data.id = 4")
    assert values(root) == [{**NONE, "id": 0}, {**ROW, "id": 1}, {**ROW, "id": 2}, None, {**ROW, "id": 5}]
    former = spark.sql(
        f"SELECT data.id, to_json(data) FROM {table(root)} VERSION AS OF {before} ORDER BY data.id"
    ).collect()
    assert [row[0] for row in former] == [0, 1, 2, 3, 4, 5]
    assert [json.loads(row[1])["id"] for row in former] == [0, 1, 2, 3, 4, 5]
    with Producer(root) as producer:
        assert producer.send("t", {**ROW, "id": 6}, key=b"k").get().offset == 6
    assert values(root)[-1] == {**ROW, "id": 6}
    assert problems(root) == []
