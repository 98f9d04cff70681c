"""Spark's RESTORE and ALTER TABLE on a topic: refused until it is put back, and what a DELETE removed returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparklog import Admin, NewTopic, Producer
from sparklog.errors import NotATopicError
from sparklog.integrity import check_cluster, repair_cluster
from sparklog.log.cluster import open_cluster
from sparklog.log.state import load_state
from tests.support import contents

pytestmark = pytest.mark.spark


def send(root: Path, *values: bytes, partition: int = 0) -> list[int]:
    with Producer(str(root)) as producer:
        return [producer.send("t", value, partition=partition).get(30).offset for value in values]


def test_sparks_restore_and_alter_table_are_refused_and_undone(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "data"
    admin, table = Admin(root), f"delta.`{root}/topics/t`"
    admin.create_topics([NewTopic("t")])
    send(root, b"a")
    log = open_cluster(root).topic_log("t")
    before = load_state(log).position.version
    admin.create_partitions({"t": 2})
    send(root, b"b", b"c", partition=1)
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {before}")
    with pytest.raises(NotATopicError, match="partitions only grow"):
        send(root, b"d")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('sparklog.partitions'='2')")
    assert send(root, b"d", partition=1) == [2]
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('sparklog.partitions'='1')")
    cluster = open_cluster(root)
    assert repair_cluster(cluster, check_cluster(cluster)).failed == []
    result = admin.restore_topic("t", before + 3)
    assert dict(result.record_counts) == {1: 2}
    assert contents(log) == {0: [(0, "a")], 1: [(0, "b"), (1, "c"), (2, "d")]}


@pytest.mark.deep
def test_what_sparks_delete_removed_returns_and_appends_stay(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "data"
    admin, table = Admin(root), f"delta.`{root}/topics/t`"
    admin.create_topics([NewTopic("t")])
    send(root, b"a", b"b", b"c")
    spark.sql(f"INSERT INTO {table} (value) VALUES (CAST('x' AS BINARY))")
    admin.sequence("t")
    log = open_cluster(root).topic_log("t")
    before = load_state(log).position.version
    spark.sql(f"DELETE FROM {table} WHERE CAST(value AS STRING) IN ('b', 'x')")
    send(root, b"d")
    assert admin.restore_topic("t", before).record_count == 2
    assert contents(log)[0] == [(0, "a"), (1, "b"), (2, "c"), (3, "x"), (4, "d")]
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {before - 1}")
    admin.sequence("t")
    assert contents(log)[0] == [(0, "a"), (1, "b"), (2, "c"), (3, "x")]
