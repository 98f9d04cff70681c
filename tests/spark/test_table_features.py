"""Delta's table features: beside those that sparklog accepts Spark reads the table, its changes and its history after
everything that sparklog writes; from each other one docs/operations.md names the way back."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import sparklog.spark as ss
from sparklog import Admin, Producer
from sparklog.compaction import Outcome
from sparklog.compaction.compact import compact_topic
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.compaction.retention import retain_topic
from sparklog.compaction.vacuum import vacuum_topic
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.errors import UnsupportedVersionError
from sparklog.integrity import check_cluster
from sparklog.integrity.findings import Code
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.log.follow import TopicFollower
from sparklog.log.state import load_state
from tests.spark.spark_support import a_cluster, consumed
from tests.support import DAY_MS, a_writer, append

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parent.parent.parent / "docs" / "operations.md"
TWO_DAYS_S = 172_800
CHANGES = "SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
IN_HISTORY = {"WRITE", "SEQUENCE", "MERGE", "OPTIMIZE", "COMPACT", "DELETE", "RETENTION"}
DROPPED = [
    "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')",
    "DROP FEATURE deletionVectors",
]

ACCEPTED: dict[str, list[str]] = {
    "allowColumnDefaults": ["SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"],
    "changeDataFeed": [],
    "checkConstraints": ["ADD CONSTRAINT c CHECK (partition >= 0)", "DROP CONSTRAINT c"],
    "checkpointProtection": DROPPED,
    "domainMetadata": ["SET TBLPROPERTIES ('delta.feature.domainMetadata' = 'supported')"],
    "generatedColumns": ["SET TBLPROPERTIES ('delta.feature.generatedColumns' = 'supported')"],
    "identityColumns": ["SET TBLPROPERTIES ('delta.feature.identityColumns' = 'supported')"],
    "inCommitTimestamp": [
        "SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        "SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'false')",
    ],
    "vacuumProtocolCheck": ["SET TBLPROPERTIES ('delta.feature.vacuumProtocolCheck' = 'supported')"],
}
"""By feature: the ``ALTER TABLE`` statements that bring it into the table's protocol."""


def table_of(root: Path) -> str:
    return f"delta.`{root}/topics/t`"


def alter(spark: Any, root: Path, *statements: str) -> None:
    for statement in statements:
        spark.sql(f"ALTER TABLE {table_of(root)} {statement}")


def features_of(spark: Any, root: Path) -> set[str]:
    return set(spark.sql(f"DESCRIBE DETAIL {table_of(root)}").select("tableFeatures").collect()[0][0])


def send(root: Path, *values: str, **more: Any) -> None:
    """A commit for each value, in both partitions in turn, its key the first letter."""
    with Producer(root, delivery_timeout_ms=60_000) as producer:
        for number, value in enumerate(values):
            producer.send("t", value.encode(), key=value[0].encode(), partition=number % 2, **more).get(60)


def write_all_kinds(spark: Any, root: Path, cluster: Cluster) -> None:
    """Appends, retention, a transaction, foreign statements that insert and update and the sequencing of their rows, an
    ingest, a merge, compaction by key, a foreign DELETE, checkpoints."""
    log, now_ms = cluster.topic_log("t"), int(time.time() * 1_000)
    send(root, "old", "old", timestamp_ms=now_ms - 30 * DAY_MS)
    send(root, *(f"{key}{number}" for number in range(2) for key in "aabbcc"))
    assert retain_topic(log, "t", now_ms=now_ms).log_start_offsets == {0: (0, 1), 1: (0, 1)}
    with Producer(root, transactional_id="tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for partition in (0, 1):
            producer.send("t", b"together", key=b"t", partition=partition)
        producer.commit_transaction()
    spark.sql(f"INSERT INTO {table_of(root)} (key, value) VALUES (X'66', X'66'), (X'67', X'67')")
    spark.sql(f"UPDATE {table_of(root)} SET value = X'7878' WHERE key = X'61'")
    spark.sql(
        f"MERGE INTO {table_of(root)} old USING (SELECT explode(array(X'62', X'68')) AS k) new ON old.key = new.k "
        "WHEN MATCHED THEN UPDATE SET value = X'6d' WHEN NOT MATCHED THEN INSERT (key, value) VALUES (new.k, X'6d')"
    )
    with Admin(root) as admin:
        result = admin.sequence("t")
        assert (result.record_count, result.refused) == (3, {})
    rows = [(7, 0, number, b"i%d" % number, b"ingested") for number in range(4)]
    columns = "producer_id BIGINT, producer_epoch SMALLINT, sequence INT, key BINARY, value BINARY"
    assert ss.merge_ingest(spark.createDataFrame(rows, columns), root, "t").inserted == 4
    write_checkpoint(log)
    assert optimize_topic(log, "t", policy=OptimizePolicy(min_files=2, max_files=4, growth=1.5)).ranges
    send(root, *(f"{key}new" for key in "aabbcc"))
    assert any(one.outcome is Outcome.DONE for one in compact_topic(log, "t", now_ms=now_ms).partitions)
    spark.sql(f"DELETE FROM {table_of(root)} WHERE key = X'74'")
    send(root, "last", "last")
    write_checkpoint(log)


def clean_up(root: Path) -> int:
    """Vacuum the topic in two days from now, as the store's times have it. How many entries went."""
    cluster = open_cluster(root)
    newest = load_state(cluster.topic_log("t")).checkpoint_version
    for path in (root / "topics" / "t" / "_delta_log").iterdir():
        if path.name[:20].isdecimal() and int(path.name[:20]) < newest:
            os.utime(path, (time.time() - TWO_DAYS_S,) * 2)
    return vacuum_topic(cluster, "t", timeout_ms=60_000).entries_deleted


def rows_of(frame: Any) -> Counter[tuple[Any, ...]]:
    """The rows with offsets, as often as they are there; those of a change feed that were deleted count less."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in frame.where("base_offset IS NOT NULL").collect():
        sign = -1 if getattr(row, "_change_type", "insert") in ("delete", "update_preimage") else 1
        found[row.partition, row.base_offset + row.offset_delta, bytes(row.key), bytes(row.value)] += sign
    return Counter({row: count for row, count in found.items() if count})


def changes_since(spark: Any, root: Path, version: int) -> Any:
    options = {"readChangeFeed": "true", "startingVersion": str(version)}
    return spark.read.format("delta").options(**options).load(f"{root}/topics/t")


def records_of(root: Path) -> Counter[tuple[Any, ...]]:
    found = consumed(root, "t", consumer_timeout_ms=60_000)
    return Counter((one.partition, one.offset, one.key, one.value) for one in found)


@pytest.mark.parametrize(
    "feature", [name if name == "changeDataFeed" else pytest.param(name, marks=pytest.mark.deep) for name in ACCEPTED]
)
def test_spark_reads_table_changes_and_history_after_all_that_we_write(
    spark: Any, tmp_path: Path, feature: str
) -> None:
    policy = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 0.01}
    cluster = a_cluster(tmp_path, configs=policy)
    alter(spark, tmp_path, CHANGES, *ACCEPTED[feature])
    since = load_state(cluster.topic_log("t")).position.version
    write_all_kinds(spark, tmp_path, cluster)
    assert feature in features_of(spark, tmp_path)
    records = records_of(tmp_path)
    assert set(records.values()) == {1}
    assert rows_of(spark.table(table_of(tmp_path))) == records
    assert rows_of(changes_since(spark, tmp_path, since)) == records
    history = {row.operation for row in spark.sql(f"DESCRIBE HISTORY {table_of(tmp_path)}").collect()}
    assert history >= IN_HISTORY
    before = load_state(cluster.topic_log("t")).position.version
    assert clean_up(tmp_path) > 0
    send(tmp_path, "z", "z")
    added = records_of(tmp_path) - records
    assert rows_of(spark.table(table_of(tmp_path))) == records + added
    assert rows_of(changes_since(spark, tmp_path, before + 1)) == added
    assert rows_of(spark.sql(f"SELECT * FROM {table_of(tmp_path)} VERSION AS OF {before}")) == records
    assert spark.sql(f"DESCRIBE HISTORY {table_of(tmp_path)}").count() >= 2
    assert [*check_cluster(open_cluster(tmp_path)).findings] == []
    assert feature in features_of(spark, tmp_path)


REFUSED: dict[str, list[str]] = {
    "allowColumnDefaults": [
        "SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
        "ALTER COLUMN key SET DEFAULT CAST('x' AS BINARY)",
    ],
    "checkConstraints": ["ADD CONSTRAINT c CHECK (partition >= 0)"],
    "columnMapping": [
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', "
        "'delta.minWriterVersion' = '5')"
    ],
    "deletionVectors": ["SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"],
    "inCommitTimestamp": ["SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')"],
    "materializePartitionColumns": ["SET TBLPROPERTIES ('delta.feature.materializePartitionColumns' = 'supported')"],
    "rowTracking": ["SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"],
    "timestampNtz": [
        "SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')",
        "ADD COLUMNS (extra TIMESTAMP_NTZ)",
    ],
    "typeWidening": ["SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"],
    "v2Checkpoint": ["SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')"],
    "variantType": ["ADD COLUMNS (extra VARIANT)"],
}
"""By feature that stops producers: the ``ALTER TABLE`` statements that bring it."""
OF_WRITERS = {
    "allowColumnDefaults",
    "checkConstraints",
    "inCommitTimestamp",
    "materializePartitionColumns",
    "rowTracking",
}
WAY_BACK = re.compile(r"written to: (?P<statements>.*) \(docs/operations\.md, \"Table features\"\)")


@pytest.mark.deep
@pytest.mark.parametrize("feature", REFUSED)
def test_what_the_error_says_to_type_brings_the_topic_back(spark: Any, tmp_path: Path, feature: str) -> None:
    cluster = a_cluster(tmp_path)
    send(tmp_path, "a", "b", "c")
    log = cluster.topic_log("t")
    writer, follower = a_writer(log), TopicFollower(log, "t")
    before = load_state(log).position.version
    alter(spark, tmp_path, *REFUSED[feature])
    if feature == "deletionVectors":
        spark.sql(f"DELETE FROM {table_of(tmp_path)} WHERE value = X'62'")
    with pytest.raises(UnsupportedVersionError, match=rf"\(feature {feature}\)") as refused:
        append(writer, "meanwhile")
    if feature in OF_WRITERS:
        follower.poll()
        assert len(consumed(tmp_path, "t")) == 3
    else:
        with pytest.raises(UnsupportedVersionError, match=rf"\(feature {feature}\)"):
            follower.poll()
    told = WAY_BACK.search(str(refused.value))
    assert told is not None
    for statement in told["statements"].split("; "):
        wanted = statement.partition(" TO VERSION AS OF ")[0].replace("ALTER TABLE … ", "")
        assert in_docs(wanted), wanted
        typed = statement.replace("…", table_of(tmp_path))
        spark.sql(re.sub(r"(?<=TO VERSION AS OF ).*", str(before), typed)).collect()
    spark.conf.unset("spark.databricks.delta.restore.protocolDowngradeAllowed")
    append(writer, "after")
    read_on(follower)
    assert len(follower.read(0, 0)) + len(follower.read(1, 0)) >= 3
    send(tmp_path, "d")
    kept = ["a", "c"] if feature == "deletionVectors" else ["a", "b", "c"]
    assert sorted(one.value.decode() for one in consumed(tmp_path, "t")) == sorted([*kept, "after", "d"])
    assert vacuum_topic(open_cluster(tmp_path), "t", timeout_ms=60_000).topic == "t"
    assert findings_of(tmp_path) == [Code.ORPHANS]  # what the refused append uploaded


CHANGED: dict[str, list[str]] = {
    "renamed column": [*REFUSED["columnMapping"], "RENAME COLUMN value TO payload"],
    "dropped column": [*REFUSED["columnMapping"], "DROP COLUMN headers"],
    "changed type": [*REFUSED["typeWidening"], "ALTER COLUMN partition TYPE BIGINT"],
}
"""Statements that change a column of the topic, after which the feature that they need can't be dropped."""


@pytest.mark.deep
@pytest.mark.parametrize("change", CHANGED)
def test_restore_brings_back_a_topic_of_which_a_column_was_changed(spark: Any, tmp_path: Path, change: str) -> None:
    cluster = a_cluster(tmp_path)
    send(tmp_path, "a", "b", "c")
    log = cluster.topic_log("t")
    writer, follower = a_writer(log), TopicFollower(log, "t")
    before = load_state(log).position.version
    alter(spark, tmp_path, *CHANGED[change])
    with pytest.raises(UnsupportedVersionError):
        append(writer, "meanwhile")
    with pytest.raises(UnsupportedVersionError):
        follower.poll()
    restore(spark, tmp_path, before)
    append(writer, "after")
    read_on(follower)
    send(tmp_path, "d")
    assert sorted(one.value for one in consumed(tmp_path, "t")) == [b"a", b"after", b"b", b"c", b"d"]
    assert findings_of(tmp_path) == [Code.ORPHANS]


def findings_of(root: Path) -> list[Code]:
    return [one.code for one in check_cluster(open_cluster(root)).findings]


def restore(spark: Any, root: Path, version: int) -> None:
    """What docs/operations.md says under RESTORE."""
    allowed = "spark.databricks.delta.restore.protocolDowngradeAllowed"
    spark.sql(f"SET {allowed} = true")
    spark.sql(f"RESTORE TABLE {table_of(root)} TO VERSION AS OF {version}")
    spark.sql(f"SET {allowed} = false")


def read_on(follower: TopicFollower) -> None:
    """It reads some entries at a time, and refuses until it has read the one that ends a feature."""
    for _ in range(20):
        with suppress(UnsupportedVersionError):
            follower.poll()
    follower.poll()


def in_docs(statement: str) -> bool:
    """Is it in the section of docs/operations.md, with a name of one's own in place of a column's or a constraint's?"""
    section = PAGE.read_text().partition("## Table features\n")[2].partition("\n## ")[0]
    named = re.sub(r"(?<=DROP CONSTRAINT )\w+|(?<=ALTER COLUMN )\w+", "name", statement)
    return named.removesuffix(" …") in section
