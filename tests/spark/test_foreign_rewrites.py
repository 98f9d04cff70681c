"""Spark statements that give or move offsets: refused, or the partition stops until RESTORE undoes them (rule F6,
moved records)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparklog import Admin, NewTopic, Producer
from sparklog.errors import CorruptLogError
from sparklog.integrity import check_cluster
from sparklog.integrity.findings import Code
from sparklog.log.cluster import open_cluster
from sparklog.log.follow import TopicFollower

pytestmark = pytest.mark.spark


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with Admin(tmp_path / "data") as admin:
        admin.create_topics([NewTopic("t", 2)])
    with Producer(tmp_path / "data") as producer:
        for number in range(6):
            producer.send("t", b"v%d" % number, partition=number % 2)
            producer.flush()
    return tmp_path / "data"


def read(root: Path, partition: int) -> list[bytes]:
    follower = TopicFollower(open_cluster(root).topic_log("t"), "t")
    found: list[bytes] = follower.read(partition, 0)["value"].to_pylist()
    return found


def source(spark: Any, root: Path, partition: int) -> list[bytes]:
    frame = spark.read.format("sparklog").option("subscribe", "t").load(str(root))
    return [bytes(row.value) for row in frame.where(f"partition = {partition}").orderBy("offset").collect()]


@pytest.mark.deep
def test_an_insert_with_base_offset_is_refused_by_every_reader(spark: Any, root: Path) -> None:
    spark.sql(
        f"INSERT INTO delta.`{root}/topics/t` (key, value, partition, base_offset, offset_delta) "
        "VALUES (CAST('k' AS BINARY), CAST('own' AS BINARY), 0, 0, 0)"
    )
    assert read(root, 0) == source(spark, root, 0) == [b"v0", b"v2", b"v4"]
    codes = {one.code for one in check_cluster(root).errors}
    assert {Code.FOREIGN_FILE_REFUSED, Code.OFFSETS_OVERLAP} <= codes


def test_an_update_that_moves_records_stops_their_partition_until_restore(spark: Any, root: Path) -> None:
    table = f"delta.`{root}/topics/t`"
    spark.sql(f"UPDATE {table} SET base_offset = 7 WHERE partition = 0")
    with pytest.raises(CorruptLogError, match=r"version 7, by Apache-Spark.*UPDATE.*TO VERSION AS OF 6"):
        read(root, 0)
    with pytest.raises(Exception, match="neither read nor maintained"):
        source(spark, root, 0)
    assert read(root, 1) == [b"v1", b"v3", b"v5"]
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 6")
    assert read(root, 0) == source(spark, root, 0) == [b"v0", b"v2", b"v4"]
    assert not check_cluster(root, deep=True).errors


@pytest.mark.deep
def test_what_spark_may_change_stops_nothing(spark: Any, root: Path) -> None:
    table = f"delta.`{root}/topics/t`"
    spark.sql(f"UPDATE {table} SET value = CAST('x' AS BINARY) WHERE value = CAST('v0' AS BINARY)")
    spark.sql(f"DELETE FROM {table} WHERE value = CAST('v2' AS BINARY)")
    spark.sql(f"OPTIMIZE {table}")
    assert read(root, 0) == [b"x", b"v4"]
    assert not check_cluster(root, deep=True).errors
